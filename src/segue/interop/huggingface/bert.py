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

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save
from torch import Tensor

from segue.data.files import describe_file
from segue.data.ledger import Ledger
from segue.errors import InputError
from segue.interop.formats import model_type
from segue.interop.huggingface.bert_tokens import MARKS, Style, Tokens, read_tokens, their_ids, write_tokens
from segue.interop.huggingface.folder import WEIGHTS, Folder, check_folder
from segue.interop.huggingface.origin import (
    NONE,
    Origin,
    keep,
    origin_from,
    origin_of,
    rows_back,
    rows_left,
    write_back,
)
from segue.interop.imported_run import check_free, write_imported_run
from segue.models.base import Sizes
from segue.models.bert import Bert
from segue.models.network import check_finite
from segue.recipe import Recipe, load_recipe
from segue.runs import folder as files
from segue.runs.run import Run, load

_ACTIVATIONS = {"gelu_erf": "gelu", "gelu": "gelu_new", "relu": "relu", "silu": "silu"}
_SAME = {theirs: ours for ours, theirs in _ACTIVATIONS.items()} | {"gelu_pytorch_tanh": "gelu", "swish": "silu"}
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
_PAD_ID: dict[Style, int] = {"bert": 0, "roberta": 1}
_NEVER = -10_000.0
"""The bias of the padding that is written: e to this power is 0."""

# The weights: our names and theirs, without the prefix `bert.` or `roberta.`

WORDS = "embeddings.word_embeddings.weight"
_TABLES = {
    "vectors.weight": WORDS,
    "positions.table.weight": "embeddings.position_embeddings.weight",
    "segment_vectors.weight": "embeddings.token_type_embeddings.weight",
}
_LAYER = {
    "attention.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.out": ("attention.output.dense",),
    "norm_attention": ("attention.output.LayerNorm",),
    "feed.up": ("intermediate.dense",),
    "feed.down": ("output.dense",),
    "norm_feed": ("output.LayerNorm",),
}
_POOLER = {"pooler": "pooler.dense"}
_NEXT = {"next_head": "cls.seq_relationship"}
_TRANSFORM: dict[Style, dict[str, str]] = {
    "bert": {"transform": "cls.predictions.transform.dense", "transform_norm": "cls.predictions.transform.LayerNorm"},
    "roberta": {"transform": "lm_head.dense", "transform_norm": "lm_head.layer_norm"},
}
_BIAS: dict[Style, str] = {"bert": "cls.predictions.bias", "roberta": "lm_head.bias"}
_SHARED = {
    "cls.predictions.decoder.bias": _BIAS["bert"],
    "lm_head.decoder.bias": _BIAS["roberta"],
    "cls.predictions.decoder.weight": WORDS,
    "lm_head.decoder.weight": WORDS,
}
"""Second names of tensors, which older files hold twice."""
_OLDER = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
_CONSTANTS = re.compile(r"embeddings\.(position|token_type)_ids")
"""Constants that older files keep among the weights."""
Names = dict[str, tuple[str, ...]]


def _plain(name: str) -> str:
    """The one name of a tensor of theirs."""
    name = name.removeprefix("bert.").removeprefix("roberta.")
    for older, newer in _OLDER:
        name = name.replace(older, newer)
    return _SHARED.get(name, name)


def _pairs(names: Mapping[str, str | tuple[str, ...]]) -> Names:
    """Weights and biases of parts by their names."""
    many = {ours: (theirs,) if isinstance(theirs, str) else theirs for ours, theirs in names.items()}
    return {
        f"{ours}.{kind}": tuple(f"{one}.{kind}" for one in theirs)
        for ours, theirs in many.items()
        for kind in ("weight", "bias")
    }


def _body_names(layers: int) -> Names:
    """Map our tensors of the body to theirs; several of theirs stand one below the other in ours."""
    names: Names = {ours: (theirs,) for ours, theirs in _TABLES.items()} | _pairs({"norm": "embeddings.LayerNorm"})
    for i in range(layers):
        layer = {f"blocks.{i}.{ours}": tuple(f"encoder.layer.{i}.{one}" for one in _LAYER[ours]) for ours in _LAYER}
        names |= _pairs(layer)
    return names


def _masked_names(style: Style) -> Names:
    return _pairs(_TRANSFORM[style]) | {"bias": (_BIAS[style],)}


def _first(name: str, shape: torch.Size) -> Tensor:
    """What a part that a folder does not hold begins as: the identity."""
    if len(shape) == 2:
        return torch.eye(*shape)
    return torch.ones(shape) if name.endswith("weight") else torch.zeros(shape)


# Import


def import_bert(folder: Path, out: Path) -> list[str]:
    """Make a run folder from a BERT or a RoBERTa of transformers, whole or not at all; return notes for the user."""
    check_free(out)
    check_folder(folder)
    theirs = _Bert(folder)
    tokens = read_tokens(theirs, theirs.style)
    raw = theirs.weights()
    weights = theirs.plain(raw)
    recipe = _recipe(theirs, tokens, theirs.model_section(weights))
    sizes = Sizes(len(tokens.ids) - len(MARKS), marks=MARKS, separators=2 if theirs.style == "roberta" else 1)
    tensors = theirs.body(recipe.model, sizes, weights, tokens.ids)
    origin = origin_from(folder, tokens.ids, theirs.rest(raw, recipe.model, tokens.ids), raw)
    ledger = Ledger(files=[describe_file(path) for path in theirs.read])
    for note in theirs.notes:
        ledger.note(note, str(folder))

    def write_weights(out: Path) -> None:
        files.write_atomic(out / WEIGHTS, save(tensors))
        keep(out, origin)

    parameters = sum(tensor.numel() for tensor in tensors.values())
    return write_imported_run(out, recipe, sizes, tokens.content, ledger, folder, parameters, write_weights)


def _recipe(theirs: _Bert, tokens: Tokens, section: dict[str, Any]) -> Recipe:
    return load_recipe(
        "bert",
        base={
            "data": {"path": str(theirs.path / "config.json"), "validation": 0.0, "test": 0.0},
            "tokens": {"kind": tokens.kind, "vocab_size": max(258, len(tokens.ids) - len(MARKS))},
            "batches": {"length": min(128, section["context"])},
            "model": section,
        },
    )


class _Bert(Folder):
    """The folder of a BERT or a RoBERTa."""

    def __init__(self, path: Path) -> None:
        self.style: Style = "roberta" if model_type(path) == "roberta" else "bert"
        super().__init__(path, self.style)
        self.config = _DEFAULTS | {"pad_token_id": _PAD_ID[self.style]} | self.config

    # config.json

    def model_section(self, weights: dict[str, Tensor]) -> dict[str, Any]:
        """Return the recipe's [model]; refuse settings that our bert does not have."""
        config = self.config
        names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
        width, layers, heads, rows = map(self._number, names)
        able: dict[str, tuple[Any, ...]] = {"hidden_act": tuple(_SAME), "intermediate_size": (4 * width,)}
        able |= {key: (_DEFAULTS[key],) for key in ("position_embedding_type", "is_decoder", "add_cross_attention")}
        able["pruned_heads"] = ({}, None)
        if self.style == "bert" and _BIAS["bert"] in weights:
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
        return section | {"next_sentence": f"{_NEXT['next_head']}.weight" in weights}

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

    # The weights

    def plain(self, raw: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return their tensors, each by its one name, without constants."""
        try:
            check_finite(raw)
        except ValueError as error:
            raise self.damaged(WEIGHTS, str(error)) from None
        found: dict[str, Tensor] = {}
        for name, tensor in raw.items():
            one = _plain(name)
            if one in found and not torch.equal(found[one], tensor):
                raise self.damaged(WEIGHTS, f"{name} is not the same as {one}, and one tensor serves both here")
            if not _CONSTANTS.fullmatch(one):
                found[one] = tensor
        return found

    def body(self, config: Bert.Config, sizes: Sizes, weights: dict[str, Tensor], ids: list[int]) -> dict[str, Tensor]:
        """Return the weights of a Bert."""
        with torch.device("meta"):
            shapes = {name: tensor.shape for name, tensor in Bert(config, sizes).state_dict().items()}
        names = _body_names(config.layers) | (_pairs(_NEXT) if config.next_sentence else {})
        tensors = {ours: self._taken(ours, theirs, weights, shapes[ours], ids) for ours, theirs in names.items()}
        for part, lacks, means in (
            (_pairs(_POOLER), "pooler", "the vector of a text is tanh of the first state"),
            (_masked_names(self.style), "masked head", "what fill and score say means nothing before more training"),
        ):
            if any(theirs[0] in weights for theirs in part.values()):
                tensors |= {
                    ours: self._taken(ours, theirs, weights, shapes[ours], ids) for ours, theirs in part.items()
                }
                continue
            self.notes.append(f"it has no {lacks}, which begins as the identity: {means}")
            tensors |= {ours: _first(ours, shapes[ours]) for ours in part}
        return tensors

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
        names = _body_names(config.layers) | _pairs(_POOLER) | _masked_names(self.style)
        names |= _pairs(_NEXT) if config.next_sentence else {}
        known = {one for theirs in names.values() for one in theirs}
        rest = {}
        for name, tensor in raw.items():
            one = _plain(name)
            if one in (WORDS, _BIAS[self.style]):
                rest[name] = rows_left(tensor, ids)
            elif one == _TABLES["segment_vectors.weight"]:
                rest[name] = tensor[config.segments :]
            elif one not in known:
                rest[name] = tensor
        if strange := sorted(
            name for name in rest if _plain(name) not in known and not _CONSTANTS.fullmatch(_plain(name))
        ):
            self.notes.append(f"{len(strange)} tensors have no place here and are only kept for export: {strange[0]} …")
        return rest


def _rows(table: Tensor, ids: list[int]) -> Tensor:
    """Return the rows of a table, or the numbers of a bias, of each id of ours; zeros where they have none."""
    rows = table[[max(i, 0) for i in ids]]
    rows[[place for place, i in enumerate(ids) if i == NONE]] = 0
    return rows


# Export


def export_bert(run: Path, folder: Path) -> list[str]:
    """Write a bert run as a folder for transformers; return notes for the user.

    An existing folder is not overwritten."""
    if folder.exists():
        raise InputError(f"{folder} exists already; nothing is overwritten. Choose another name.")
    files.check_run(run)
    loaded = load(run, "cpu")
    if not isinstance(loaded.model, Bert):
        raise InputError(f"The run in {run} is a {loaded.recipe.kind}. Only a bert has the form of BERT and RoBERTa.")
    if reason := inexpressible(loaded.model.config):
        raise InputError(f"The run in {run} has {reason}. Export it with --to zip.")
    origin = origin_of(run) or _made_origin(loaded)
    origin = grown(loaded.model, origin)
    return write_back(folder, origin, origin.config, their_tensors(loaded.model, origin))


def inexpressible(config: Bert.Config) -> str:
    """Return the first setting that BERT's format cannot express, or ""."""
    for name, own, means in (
        ("norm", "post", "normalises after each part of a layer"),
        ("position", "learned", "has a learned vector for each place"),
    ):
        if (value := vars(config)[name]) != own:
            return f"model.{name}={value}, where BERT {means}"
    if config.activation != "gelu_erf" and _style_of(config) == "bert":
        return f"model.activation={config.activation}, where BERT's masked head has the function of its layers"
    return ""


def _style_of(config: Bert.Config) -> Style:
    """RoBERTa's positions begin after that of the padding, whose id is 1."""
    return "roberta" if config.first_position == _PAD_ID["roberta"] + 1 and config.segments == 1 else "bert"


def _style(origin: Origin) -> Style:
    return cast(Style, origin.config["model_type"])


def _architecture(style: Style, suffix: str) -> str:
    return {"bert": "Bert", "roberta": "Roberta"}[style] + suffix


def _made_origin(run: Run) -> Origin:
    """Return the folder that a run which was trained here goes out as."""
    model, style = cast(Bert, run.model), _style_of(run.model.config)
    order = their_ids(run.tokenizer, style)
    place = {ours: theirs for theirs, ours in enumerate(order)}
    ids = [place[i] for i in range(model.sizes.ids)]
    content, about = write_tokens(run.tokenizer, style, model.sizes.separators, model.window, rows=False)
    config = _their_config(model.config, style, len(order), run.tokenizer.vocab_size)
    made = {"config.json": config, "tokenizer.json": content, "tokenizer_config.json": about}
    padding = {WORDS: torch.zeros(1, model.width), _BIAS[style]: torch.tensor([_NEVER])}
    names = _body_names(model.config.layers) | _masked_names(style)
    if model.config.next_sentence:
        names |= _pairs(_POOLER) | _pairs(_NEXT)
    return Origin({name: _json(one) for name, one in made.items()}, ids, padding, _types(names, style))


def _types(names: Names, style: Style) -> dict[str, str]:
    """The names that are written, of models with a head."""
    heads = ("cls.", "lm_head.")
    plain = [one for theirs in names.values() for one in theirs]
    return {one if one.startswith(heads) else f"{style}.{one}": "float32" for one in plain}


def _json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()


def grown(model: Bert, origin: Origin) -> Origin:
    """Return the origin with a masked head, if it had none and training here has made one."""
    style, had = _style(origin), {_plain(name) for name in origin.types}
    names, weights = _masked_names(style), model.state_dict()
    if any(theirs[0] in had for theirs in names.values()):
        return origin
    if all(torch.equal(weights[ours], _first(ours, weights[ours].shape)) for ours in names):
        return origin
    config = origin.config | {"architectures": [_architecture(style, "ForMaskedLM")]}
    types = _types(_body_names(model.config.layers) | names, style)
    return origin._replace(files=origin.files | {"config.json": _json(config)}, types=types)


def their_tensors(model: Bert, origin: Origin) -> dict[str, Tensor]:
    """Return the tensors of a folder by the names that the origin has."""
    style, ours = _style(origin), model.state_dict()
    rest = {_plain(name): tensor for name, tensor in origin.rest.items()}
    rest.setdefault(WORDS, ours["vectors.weight"][:0])
    rest.setdefault(_BIAS[style], torch.full((len(rest[WORDS]),), _NEVER))
    names = _body_names(model.config.layers) | _pairs(_POOLER) | _masked_names(style)
    names |= _pairs(_NEXT) if model.config.next_sentence else {}
    made: dict[str, Tensor] = {}
    for name, theirs in names.items():
        tensor, left = ours[name], rest.get(theirs[0])
        if name in ("vectors.weight", "bias"):
            tensor = rows_back(tensor, origin.ids, rest[theirs[0]])
        elif name == "segment_vectors.weight" and left is not None:
            tensor = torch.cat([tensor, left.to(tensor.dtype)])
        elif name == "positions.table.weight" and style == "bert":
            tensor = tensor[model.config.first_position :]
        elif name.startswith("next_head."):
            tensor = tensor.flip(0)
        made |= {their: part.clone() for their, part in zip(theirs, tensor.chunk(len(theirs)), strict=True)}
    whole = {name: tensor for name, tensor in rest.items() if name not in made}
    return {name: (made | whole)[_plain(name)] for name in origin.types if _plain(name) in made | whole}


def _their_config(config: Bert.Config, style: Style, ids: int, vocab_size: int) -> dict[str, Any]:
    suffix = "ForPreTraining" if config.next_sentence and style == "bert" else "ForMaskedLM"
    ends = {"bos_token_id": 0, "eos_token_id": 2} if style == "roberta" else {}
    return {
        "architectures": [_architecture(style, suffix)],
        "model_type": style,
        "torch_dtype": "float32",
        "vocab_size": ids,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": 4 * config.width,
        "hidden_act": _ACTIVATIONS[config.activation],
        **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), config.dropout),
        "max_position_embeddings": config.context + (config.first_position if style == "roberta" else 0),
        "type_vocab_size": config.segments,
        "layer_norm_eps": config.eps,
        "pad_token_id": _PAD_ID[style],
        **ends,
    }
