"""BERT and RoBERTa in Hugging Face's format, both ways (their tokens: bert_tokens.py).

The networks are the same; what differs is where numbers stand:

    ids             rows of the tokens' vectors and of the bias change places (bert_tokens.py has the order)
    q, k, v         there three matrices, here one
    next sentence   there the first of the two logits means "follows", here the second (follows_B = 1)
    logits          there [CLS] and [MASK] have one too; here no mark is predicted, so that every log p is higher by
                    what they would take
    positions       RoBERTa's begin at pad_token_id + 1: first_position here

What a folder does not hold begins as the identity, with a note: BertModel has no masked head, BertForMaskedLM has no
pooler. A run that was imported goes out as it came (origin.py).
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor

from segue.batches.codec import BodySpec
from segue.data.config import Label
from segue.data.files import describe_file
from segue.data.ledger import Ledger
from segue.errors import InputError
from segue.interop.formats import model_type
from segue.interop.huggingface.bert_tokens import MARKS, Style, Tokens, read_tokens
from segue.interop.huggingface.bert_weights import (
    BIAS,
    NEXT,
    SEGMENTS,
    WORDS,
    Head,
    Names,
    body_names,
    first_value,
    head_names,
    masked_names,
    next_names,
    plain,
    pooler_names,
)
from segue.interop.huggingface.folder import WEIGHTS, Folder, check_folder
from segue.interop.huggingface.origin import NONE, keep, origin_from, rows_left
from segue.interop.imported_run import check_free, write_imported_run
from segue.models.base import Sizes
from segue.models.bert import Bert
from segue.models.network import check_finite
from segue.recipe import Recipe, load_recipe
from segue.runs import folder as files
from segue.tasks.answer import BEGIN, END
from segue.tasks.answer import NONE as NO_ANSWER

ACTIVATIONS = {"gelu_erf": "gelu", "gelu": "gelu_new", "relu": "relu", "silu": "silu"}
_SAME = {theirs: ours for ours, theirs in ACTIVATIONS.items()} | {"gelu_pytorch_tanh": "gelu", "swish": "silu"}
_DEFAULTS: dict[str, Any] = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "pruned_heads": {},
}
"""Defaults of the keys of config.json."""
PAD_ID: dict[Style, int] = {"bert": 0, "roberta": 1}
_CONSTANTS = re.compile(r"embeddings\.(position|token_type)_ids")
"""Constants that older files keep among the weights."""
_HEADS: dict[str, Head] = {
    "ForSequenceClassification": "classes",
    "ForTokenClassification": "tags",
    "ForQuestionAnswering": "answers",
}
_KINDS: dict[Head, str] = {
    "masked": "bert",
    "classes": "finetuned_classifier",
    "tags": "finetuned_tagger",
    "answers": "finetuned_answerer",
}
"""The kinds of runs that they become."""


def import_bert(folder: Path, out: Path) -> list[str]:
    """Make a run folder from a BERT or a RoBERTa of transformers, whole or not at all; return notes for the user."""
    check_free(out)
    check_folder(folder)
    theirs = _Bert(folder)
    tokens = read_tokens(theirs, theirs.style)
    raw = theirs.weights()
    weights = theirs.plain(raw)
    config = Bert.Config(**theirs.model_section(weights))
    sizes = Sizes(len(tokens.ids) - len(MARKS), marks=MARKS, separators=2 if theirs.style == "roberta" else 1)
    tensors = theirs.body(config, sizes, weights, tokens.ids)
    labels, recipe = theirs.labels(), _recipe(theirs, tokens, config)
    if theirs.head != "masked":
        spec = BodySpec("bert", dataclasses.asdict(config), sizes)
        classes = len(labels) or 1
        sizes = dataclasses.replace(sizes, classes=classes, label=theirs.label, body=spec, window=config.context)
        tensors = {f"body.{name}": tensor for name, tensor in tensors.items()}
        tensors |= theirs.last_layer(weights, 2 if theirs.head == "answers" else classes, config.width)
    origin = origin_from(folder, tokens.ids, theirs.rest(raw, config, tokens.ids), raw)
    ledger = Ledger(files=[describe_file(path) for path in theirs.read])
    for note in theirs.notes:
        ledger.note(note, str(folder))

    def write_weights(out: Path) -> None:
        files.write_atomic(out / WEIGHTS, save(tensors))
        keep(out, origin)

    parameters = sum(tensor.numel() for tensor in tensors.values())
    return write_imported_run(out, recipe, sizes, tokens.content, ledger, folder, parameters, write_weights, labels)


def _recipe(theirs: _Bert, tokens: Tokens, config: Bert.Config) -> Recipe:
    """Return the recipe: [model] is that of a bert, or that of a head, whose body is in config.json."""
    masked = theirs.head == "masked"
    section = dataclasses.asdict(config) if masked else {"dropout": theirs.head_dropout()}
    return load_recipe(
        _KINDS[theirs.head],
        base={
            "data": {"path": str(theirs.path / "config.json"), "validation": 0.0, "test": 0.0, "label": theirs.label},
            "tokens": {"kind": tokens.kind, "vocab_size": max(258, len(tokens.ids) - len(MARKS))},
            "batches": {"length": min(128, config.context) if masked else config.context},
            "model": section,
        },
    )


class _Lacking(NamedTuple):
    """A part that a folder need not hold."""

    names: Names
    means: str
    """What follows where it is missing, if the user should know."""


class _Bert(Folder):
    """The folder of a BERT or a RoBERTa."""

    def __init__(self, path: Path) -> None:
        self.style: Style = "roberta" if model_type(path) == "roberta" else "bert"
        super().__init__(path, self.style)
        self.config = _DEFAULTS | {"pad_token_id": PAD_ID[self.style]} | self.config
        architecture = str((self.config.get("architectures") or [""])[0])
        self.head: Head = _HEADS.get(architecture.removeprefix("Bert").removeprefix("Roberta"), "masked")

    # config.json

    def model_section(self, weights: dict[str, Tensor]) -> dict[str, Any]:
        """Return the recipe's [model]; refuse settings that our bert does not have."""
        config = self.config
        names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
        width, layers, heads, rows = map(self._number, names)
        able: dict[str, tuple[Any, ...]] = {"hidden_act": tuple(_SAME), "intermediate_size": (4 * width,)}
        able |= {key: (_DEFAULTS[key],) for key in ("position_embedding_type", "is_decoder", "add_cross_attention")}
        able["pruned_heads"] = ({}, None)
        if self.style == "bert" and BIAS["bert"] in weights:
            able["hidden_act"] = ("gelu",)  # the masked head has the same function there
        for key, values in able.items():
            if config[key] not in values:
                expected = " or ".join(map(json.dumps, values))
                raise InputError(
                    f"{self.path / 'config.json'} has {key}={json.dumps(config[key])}, which bert here cannot be. "
                    f"Expected {expected}."
                )
        if width % heads:
            raise self.damaged("config.json", f"hidden_size={width} does not divide by num_attention_heads={heads}")
        first = config["pad_token_id"] + 1 if self.style == "roberta" else 0
        if rows - first < 8:
            raise self.damaged("config.json", f"max_position_embeddings={rows} leaves {rows - first} places for a text")
        section: dict[str, Any] = {"layers": layers, "width": width, "heads": heads, "context": rows - first}
        section |= {"segments": self._number("type_vocab_size") if self.style == "bert" else 1}
        section |= {"first_position": first, "activation": _SAME[config["hidden_act"]]}
        section |= {"eps": self._eps(), "dropout": self._dropout()}
        return section | {"next_sentence": f"{NEXT}.weight" in weights}

    def _number(self, key: str) -> int:
        value = self.config[key]
        if type(value) is not int or value < 1:
            raise self.damaged("config.json", f"{key} is {value!r}, not a whole number of 1 or more")
        return value

    def _eps(self) -> float:
        eps = self.config["layer_norm_eps"]
        if not isinstance(eps, int | float) or not 0 < eps < 1:
            raise self.damaged("config.json", f"layer_norm_eps is {eps!r}, not a number between 0 and 1")
        return float(eps)

    def _dropout(self) -> float:
        drops = [self.config[key] for key in ("hidden_dropout_prob", "attention_probs_dropout_prob")]
        if not all(isinstance(drop, int | float) and 0 <= drop < 1 for drop in drops):
            raise self.damaged("config.json", f"hidden_dropout_prob and attention_probs_dropout_prob are {drops}")
        if drops[0] != drops[1]:
            self.notes.append(f"dropout is {drops[0]} everywhere; it was {drops[1]} of attention")
        return float(drops[0])

    # The head of a classifier, a tagger or an answerer

    @property
    def label(self) -> Label:
        """What a row is labelled with, by the rule of transformers: one output is a number."""
        if self.head != "classes":
            return "class"
        said = self.config.get("problem_type") or ("regression" if len(self._names()) == 1 else "")
        if said == "regression" and len(self._names()) > 1:
            raise self.damaged("config.json", f"it predicts {len(self._names())} numbers for a text; one is read here")
        known: dict[str, Label] = {"regression": "number", "multi_label_classification": "classes"}
        return known.get(said, "class")

    def labels(self) -> tuple[str, ...]:
        """Return the labels or tags in the order of their numbers; none for numbers and for masked tokens. Nobody
        wrote whether questions may have no answer: they may, unless decode.threshold is low."""
        if self.head == "answers":
            return BEGIN, END, NO_ANSWER
        return () if self.head == "masked" or self.label == "number" else self._names()

    def _names(self) -> tuple[str, ...]:
        found = self.config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
        try:
            named = {int(i): name for i, name in found.items()}
        except (AttributeError, TypeError, ValueError):
            named = {}
        names = tuple(named[i] for i in sorted(named))
        if sorted(named) != list(range(len(found))) or not all(isinstance(name, str) and name for name in names):
            raise self.damaged("config.json", "id2label does not name the labels 0, 1, 2 and so on")
        if len(set(names)) < len(names):
            raise self.damaged("config.json", "two labels of id2label have the same name")
        return names

    def head_dropout(self) -> float:
        drop = self.config.get("classifier_dropout")
        drop = self.config["hidden_dropout_prob"] if drop is None else drop
        if not isinstance(drop, int | float) or not 0 <= drop < 1:
            raise self.damaged("config.json", f"classifier_dropout is {drop!r}, not a share")
        return float(drop)

    def last_layer(self, weights: dict[str, Tensor], outputs: int, width: int) -> dict[str, Tensor]:
        shapes = {"head.weight": torch.Size([outputs, width]), "head.bias": torch.Size([outputs])}
        names = head_names(self.style, self.head)
        tensors = {ours: self._taken(ours, theirs, weights, shapes[ours], []) for ours, theirs in names.items()}
        if self.label == "number":  # here a score is the number less its mean in training, by its deviation there
            tensors |= {"centre": torch.zeros(()), "spread": torch.ones(())}
        return tensors

    # The weights

    def plain(self, raw: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return their tensors, each by its one name, without constants."""
        try:
            check_finite(raw)
        except ValueError as error:
            raise self.damaged(WEIGHTS, str(error)) from None
        found: dict[str, Tensor] = {}
        for name, tensor in raw.items():
            one = plain(name)
            if one in found and not torch.equal(found[one], tensor):
                raise self.damaged(WEIGHTS, f"{name} is not the same as {one}, and one tensor serves both here")
            if not _CONSTANTS.fullmatch(one):
                found[one] = tensor
        return found

    def body(self, config: Bert.Config, sizes: Sizes, weights: dict[str, Tensor], ids: list[int]) -> dict[str, Tensor]:
        """Return the weights of a Bert."""
        with torch.device("meta"):
            shapes = {name: tensor.shape for name, tensor in Bert(config, sizes).state_dict().items()}
        names = body_names(config.layers) | (next_names() if config.next_sentence else {})
        tensors = {ours: self._taken(ours, theirs, weights, shapes[ours], ids) for ours, theirs in names.items()}
        for part, lacks in self._parts_that_may_lack().items():
            names = lacks.names
            if any(theirs[0] in weights for theirs in names.values()):
                tensors |= {o: self._taken(o, theirs, weights, shapes[o], ids) for o, theirs in names.items()}
                continue
            if lacks.means:
                self.notes.append(f"a {part} is missing and was made as the identity ({lacks.means})")
            tensors |= {ours: first_value(ours, shapes[ours]) for ours in names}
        return tensors

    def _parts_that_may_lack(self) -> dict[str, _Lacking]:
        masked = "what fill and score say means nothing before more training" if self.head == "masked" else ""
        pooler = "the vector of a text is tanh of its first state" if self.head == "masked" else ""
        return {
            "pooler": _Lacking(pooler_names(self.style, self.head), pooler),
            "masked head": _Lacking(masked_names(self.style), masked),
        }

    def _taken(
        self, ours: str, theirs: tuple[str, ...], weights: dict[str, Tensor], shape: torch.Size, ids: list[int]
    ) -> Tensor:
        """Return a tensor of ours."""
        if missing := [name for name in theirs if name not in weights]:
            raise self.damaged(WEIGHTS, f"{missing[0]} is missing")
        tensor = torch.cat([weights[name] for name in theirs]).float()
        if ours in ("vectors.weight", "bias"):
            if len(tensor) <= max(ids):
                raise self.damaged(
                    WEIGHTS, f"{theirs[0]} has {len(tensor):,} rows, and the tokens go up to {max(ids):,}"
                )
            tensor = _rows(tensor, ids)
        if ours == "segment_vectors.weight":
            tensor = tensor[: shape[0]]
        if ours.startswith("next_head."):
            tensor = tensor.flip(0)
        if tensor.shape != shape:
            raise self.damaged(
                WEIGHTS, f"{theirs[0]} is {list(weights[theirs[0]].shape)}, which does not fit config.json"
            )
        return tensor.contiguous()

    def rest(self, raw: dict[str, Tensor], config: Bert.Config, ids: list[int]) -> dict[str, Tensor]:
        """Return their tensors, or rows of tables, that have no place here."""
        names = body_names(config.layers) | pooler_names(self.style, self.head) | masked_names(self.style)
        names |= next_names() if config.next_sentence else {}
        names |= head_names(self.style, self.head) if self.head != "masked" else {}
        known = {one for theirs in names.values() for one in theirs}
        rest = {}
        for name, tensor in raw.items():
            one = plain(name)
            if one in (WORDS, BIAS[self.style]):
                rest[name] = rows_left(tensor, ids)
            elif one == SEGMENTS:
                rest[name] = tensor[config.segments :]
            elif one not in known:
                rest[name] = tensor
        if strange := sorted(
            name for name in rest if plain(name) not in known and not _CONSTANTS.fullmatch(plain(name))
        ):
            self.notes.append(f"{len(strange)} tensors have no place here and are only kept for export: {strange[0]} …")
        return rest


def _rows(table: Tensor, ids: list[int]) -> Tensor:
    """Return the rows of a table, or the numbers of a bias, of each id of ours; zeros where they have none."""
    rows = table[[max(i, 0) for i in ids]]
    rows[[place for place, i in enumerate(ids) if i == NONE]] = 0
    return rows
