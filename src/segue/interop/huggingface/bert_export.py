"""Write runs of bert, and heads on one (classes, tags, answers), as folders of transformers (what differs: bert.py).

A run that came from a folder goes out as it came (origin.py). One that was trained here gets ids as BERT or RoBERTa
have them, and a row for padding, which is never predicted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from segue.errors import InputError
from segue.interop.huggingface.bert import ACTIVATIONS, PAD_ID
from segue.interop.huggingface.bert_tokens import Style, their_ids, write_tokens
from segue.interop.huggingface.bert_weights import (
    BIAS,
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
    written,
)
from segue.interop.huggingface.origin import Origin, origin_of, rows_back, write_back
from segue.models.bert import Bert
from segue.models.finetuned_answerer import FinetunedAnswerer
from segue.models.finetuned_classifier import FinetunedClassifier
from segue.models.finetuned_tagger import FinetunedTagger
from segue.runs import folder as files
from segue.runs.run import Run, load

_NEVER = -10_000.0
"""The bias of the padding that is written: e to this power is 0."""
_PREFIX: dict[Style, str] = {"bert": "Bert", "roberta": "Roberta"}
_SUFFIX: dict[Head, str] = {
    "masked": "ForMaskedLM",
    "classes": "ForSequenceClassification",
    "tags": "ForTokenClassification",
    "answers": "ForQuestionAnswering",
}


class Parts(NamedTuple):
    """What is written of a model."""

    body: Bert
    head: Head
    weights: dict[str, Tensor]
    """By our names, the body's without `body.`"""


def export_bert(run: Path, folder: Path) -> list[str]:
    """Write a run as a folder for transformers; return notes for the user. An existing folder is not overwritten."""
    if folder.exists():
        raise InputError(f"{folder} exists already; nothing is overwritten. Choose another name.")
    files.check_run(run)
    loaded = load(run, "cpu")
    parts = parts_of(loaded.model)
    reason = f"a {loaded.recipe.kind} of another body" if parts is None else inexpressible(loaded.model)
    if parts is None or reason:
        raise InputError(f"The run in {run} has {reason}. Export it with --to zip.")
    came = origin_of(run)
    origin = _made_origin(loaded, parts) if came is None else came
    origin = with_head(parts, origin, _head_config(loaded, parts.head))
    return write_back(folder, origin, origin.config, their_tensors(parts, origin))


def parts_of(model: Any) -> Parts | None:
    """Return the parts of a bert, or of a head on one; None of any other model."""
    if isinstance(model, Bert):
        return Parts(model, "masked", model.state_dict())
    heads: dict[type, Head] = {FinetunedClassifier: "classes", FinetunedTagger: "tags", FinetunedAnswerer: "answers"}
    if type(model) not in heads or not isinstance(model.body, Bert):
        return None
    weights = {name.removeprefix("body."): tensor for name, tensor in model.state_dict().items()}
    if "spread" in weights:  # the head says a number less its mean in training, by its deviation there
        weights |= {f"head.{kind}": weights[f"head.{kind}"] * weights["spread"] for kind in ("weight", "bias")}
        weights["head.bias"] = weights["head.bias"] + weights["centre"]
    return Parts(model.body, heads[type(model)], weights)


def inexpressible(model: Any) -> str:
    """Return the first setting that their format cannot express, or ""."""
    body = model.config if isinstance(model, Bert) else model.body.config
    for name, own, means in (
        ("norm", "post", "normalises after each part of a layer"),
        ("position", "learned", "has a learned vector for each place"),
    ):
        if (value := vars(body)[name]) != own:
            return f"model.{name}={value}, where BERT {means}"
    if isinstance(model, Bert):
        if body.activation != "gelu_erf" and _style_of(body) == "bert":
            return f"model.activation={body.activation}, where BERT's masked head has the function of its layers"
        return ""
    if model.config.mix:
        return "model.mix=true, where BERT's heads read the last layer"
    if isinstance(model, FinetunedTagger):
        if model.several:
            return "several tags for a word, where BERT has one"
        return "model.crf=true, where BERT tags each word by itself" if model.config.crf else ""
    if isinstance(model, FinetunedAnswerer):
        return ""
    if model.pooling != "pooler":
        return f"a text's vector by pooling={model.pooling}, where BERT reads the first place through its pooler"
    return ""


def _style_of(config: Bert.Config) -> Style:
    """RoBERTa's positions begin after that of the padding, whose id is 1."""
    return "roberta" if config.first_position == PAD_ID["roberta"] + 1 and config.segments == 1 else "bert"


def _style(origin: Origin) -> Style:
    return cast(Style, origin.config["model_type"])


def _names(parts: Parts, style: Style) -> Names:
    """Return the names of all that the model of an architecture has."""
    names = body_names(parts.body.config.layers)
    if parts.head == "masked":
        names |= masked_names(style)
        return names | pooler_names(style, "masked") | next_names() if parts.body.config.next_sentence else names
    pooler = pooler_names(style, parts.head) if parts.head == "classes" else {}
    return names | pooler | head_names(style, parts.head)


# config.json


def _made_origin(run: Run, parts: Parts) -> Origin:
    """Return the folder that a run which was trained here goes out as."""
    body, style = parts.body, _style_of(parts.body.config)
    order = their_ids(run.tokenizer, style)
    place = {ours: theirs for theirs, ours in enumerate(order)}
    ids = [place[i] for i in range(body.sizes.ids)]
    rows = parts.head != "masked"
    content, about = write_tokens(run.tokenizer, style, body.sizes.separators, body.window, rows)
    config = _their_config(body.config, style, len(order))
    made = {"config.json": config, "tokenizer.json": content, "tokenizer_config.json": about}
    padding = {WORDS: torch.zeros(1, body.width)}
    return Origin({name: _json(one) for name, one in made.items()}, ids, padding, {})


def _json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()


def _their_config(config: Bert.Config, style: Style, ids: int) -> dict[str, Any]:
    ends = {"bos_token_id": 0, "eos_token_id": 2} if style == "roberta" else {}
    return {
        "model_type": style,
        "torch_dtype": "float32",
        "vocab_size": ids,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": 4 * config.width,
        "hidden_act": ACTIVATIONS[config.activation],
        **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), config.dropout),
        "max_position_embeddings": config.context + (config.first_position if style == "roberta" else 0),
        "type_vocab_size": config.segments,
        "layer_norm_eps": config.eps,
        "pad_token_id": PAD_ID[style],
        **ends,
    }


def _head_config(run: Run, head: Head) -> dict[str, Any]:
    """Return the keys of config.json that a classifier or a tagger has beside those of its body."""
    if head in ("masked", "answers"):
        return {}
    names = run.codec.labels or ("LABEL_0",)
    kinds = {"class": "single_label_classification", "classes": "multi_label_classification", "number": "regression"}
    config: dict[str, Any] = {"id2label": {str(i): name for i, name in enumerate(names)}}
    config |= {"label2id": {name: i for i, name in enumerate(names)}, "classifier_dropout": run.model.config.dropout}
    return config | ({"problem_type": kinds[run.codec.sizes.label]} if head == "classes" else {})


def with_head(parts: Parts, origin: Origin, keys: dict[str, Any]) -> Origin:
    """Return the origin with the head that the run has: as it came, if it came with this head, else as another
    architecture with these `keys` of config.json."""
    style, had = _style(origin), {plain(name) for name in origin.types}
    names = _names(parts, style)
    head = masked_names(style) if parts.head == "masked" else head_names(style, parts.head)
    same = all(one in had for theirs in head.values() for one in theirs)
    untouched = all(torch.equal(parts.weights[name], first_value(name, parts.weights[name].shape)) for name in head)
    if had and (same or (parts.head == "masked" and untouched)) and _says(origin.config, keys):
        return origin
    suffix = "ForPreTraining" if any(name.startswith("next_head.") for name in names) else _SUFFIX[parts.head]
    config = origin.config | keys | {"architectures": [_PREFIX[style] + suffix]}
    types = dict.fromkeys(written(names, style), "float32")
    return origin._replace(files=origin.files | {"config.json": _json(config)}, types=types)


def _says(config: dict[str, Any], keys: dict[str, Any]) -> bool:
    """Whether a config has the same labels."""
    return config.get("id2label") == keys.get("id2label") or not keys


# The weights


def their_tensors(parts: Parts, origin: Origin) -> dict[str, Tensor]:
    """Return the tensors of a folder by the names that the origin has."""
    style, ours = _style(origin), parts.weights
    rest = {plain(name): tensor for name, tensor in origin.rest.items()}
    rest.setdefault(WORDS, ours["vectors.weight"][:0])
    rest.setdefault(BIAS[style], torch.full((len(rest[WORDS]),), _NEVER))
    names = _names(parts, style) | pooler_names(style, parts.head) | masked_names(style)
    made: dict[str, Tensor] = {}
    for name, theirs in names.items():
        tensor, left = ours[name], rest.get(theirs[0])
        if name in ("vectors.weight", "bias"):
            tensor = rows_back(tensor, origin.ids, rest[theirs[0]])
        elif name == "segment_vectors.weight" and left is not None:
            tensor = torch.cat([tensor, left.to(tensor.dtype)])
        elif name == "positions.table.weight" and style == "bert":
            tensor = tensor[parts.body.config.first_position :]
        elif name.startswith("next_head."):
            tensor = tensor.flip(0)
        made |= {their: part.clone() for their, part in zip(theirs, tensor.chunk(len(theirs)), strict=True)}
    known = {name: tensor for name, tensor in rest.items() if name not in made} | made
    return {name: known[plain(name)] for name in origin.types if plain(name) in known}
