"""Names of the weights of BERT and RoBERTa: ours and Hugging Face's.

Theirs stand here without the prefix `bert.` or `roberta.`, which a model with a head puts before those of its body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from segue.interop.huggingface.bert_tokens import Style

Names = dict[str, tuple[str, ...]]
"""Our tensor, and those of theirs that stand in it one below the other."""
Head = Literal["masked", "classes", "tags", "answers"]
"""What the head of a model says: masked tokens, classes of texts, tags of words, answers in a text."""

WORDS = "embeddings.word_embeddings.weight"
SEGMENTS = "embeddings.token_type_embeddings.weight"
BIAS: dict[Style, str] = {"bert": "cls.predictions.bias", "roberta": "lm_head.bias"}
NEXT = "cls.seq_relationship"
_TABLES: Names = {
    "vectors.weight": (WORDS,),
    "positions.table.weight": ("embeddings.position_embeddings.weight",),
    "segment_vectors.weight": (SEGMENTS,),
}
_LAYER: Names = {
    "attention.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.out": ("attention.output.dense",),
    "norm_attention": ("attention.output.LayerNorm",),
    "feed.up": ("intermediate.dense",),
    "feed.down": ("output.dense",),
    "norm_feed": ("output.LayerNorm",),
}
_TRANSFORM: dict[Style, dict[str, str]] = {
    "bert": {"transform": "cls.predictions.transform.dense", "transform_norm": "cls.predictions.transform.LayerNorm"},
    "roberta": {"transform": "lm_head.dense", "transform_norm": "lm_head.layer_norm"},
}
_SHARED = {
    "cls.predictions.decoder.bias": BIAS["bert"],
    "lm_head.decoder.bias": BIAS["roberta"],
    "cls.predictions.decoder.weight": WORDS,
    "lm_head.decoder.weight": WORDS,
}
"""Second names of tensors, which older files hold twice."""
_OLDER = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
_HEADS = ("cls.", "lm_head.", "classifier.", "qa_outputs.")


def plain(name: str) -> str:
    """Return the one name of a tensor of theirs."""
    name = name.removeprefix("bert.").removeprefix("roberta.")
    for older, newer in _OLDER:
        name = name.replace(older, newer)
    return _SHARED.get(name, name)


def written(names: Names, style: Style) -> list[str]:
    """Return their names of tensors as a model with a head has them."""
    every = [one for theirs in names.values() for one in theirs]
    return [one if one.startswith(_HEADS) else f"{style}.{one}" for one in every]


def body_names(layers: int) -> Names:
    """Return the names of what every architecture has."""
    parts: dict[str, str | tuple[str, ...]] = {"norm": "embeddings.LayerNorm"}
    for i in range(layers):
        parts |= {f"blocks.{i}.{ours}": tuple(f"encoder.layer.{i}.{one}" for one in _LAYER[ours]) for ours in _LAYER}
    return _TABLES | _weights_and_biases(parts)


def pooler_names(style: Style, head: Head) -> Names:
    """Return the names of the pooler: in RoBERTa's classifiers it is a part of the head."""
    return _weights_and_biases(
        {"pooler": "classifier.dense" if (style, head) == ("roberta", "classes") else "pooler.dense"}
    )


def masked_names(style: Style) -> Names:
    return _weights_and_biases(_TRANSFORM[style]) | {"bias": (BIAS[style],)}


def next_names() -> Names:
    return _weights_and_biases({"next_head": NEXT})


def head_names(style: Style, head: Head) -> Names:
    """Return the names of the last layer of a classifier, a tagger or an answerer."""
    if head == "answers":
        return _weights_and_biases({"head": "qa_outputs"})
    return _weights_and_biases(
        {"head": "classifier.out_proj" if (style, head) == ("roberta", "classes") else "classifier"}
    )


def _weights_and_biases(parts: Mapping[str, str | tuple[str, ...]]) -> Names:
    many = {ours: (theirs,) if isinstance(theirs, str) else theirs for ours, theirs in parts.items()}
    return {
        f"{ours}.{kind}": tuple(f"{one}.{kind}" for one in theirs)
        for ours, theirs in many.items()
        for kind in ("weight", "bias")
    }


def first_value(name: str, shape: torch.Size) -> Tensor:
    """Return what a part that a folder does not hold begins as: the identity."""
    if len(shape) == 2:
        return torch.eye(*shape)
    return torch.ones(shape) if name.endswith("weight") else torch.zeros(shape)
