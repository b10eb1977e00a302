"""Marian's translation models (Junczys-Dowmunt et al. 2018), such as OPUS-MT's, in Hugging Face's format.

The network is `transformer` with norm=post, position=sinusoidal and output_bias=true. What differs is where numbers
stand, and all of it is only moved:

    ids             there </s> is mostly 0, <unk> 1, and <pad> the last; here STOP is 0, UNK 1, and there is no <pad>
    first token     there a target begins with <pad>, whose vector is zeros; here the mark `start` has that vector
    logits          there <pad> has one; here it has none, so that every log p is higher by log(1 + p(<pad>) / the rest)
    coordinates     there the sines of all places come first, then the cosines; here they take turns. No layer minds the
                    order of the coordinates of x_t, so all weights that read or write x_t are put in the other order
    q, k, v         there three matrices, here one

tokens/sentencepiece.py says how source.spm, target.spm and vocab.json become a tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor

from segue.data.atomic import atomic_folder
from segue.data.files import describe_file
from segue.data.ledger import Ledger
from segue.errors import InputError
from segue.interop.huggingface.folder import WEIGHTS, Folder, check_folder
from segue.interop.imported_run import check_free, write_imported_run
from segue.layers.position import sinusoids
from segue.models.base import Sizes
from segue.models.network import check_finite
from segue.models.transformer import Transformer
from segue.recipe import load_recipe
from segue.runs import folder as files
from segue.runs.run import load
from segue.tokens.file_format import STOP, UNK
from segue.tokens.sentencepiece import SentencePieces, content, processor
from segue.tokens.tokenizer import SOURCE_TOKENIZER

END, UNKNOWN, PAD = "</s>", "<unk>", "<pad>"
START = "start"
"""Our mark that a target begins with."""
_SAME = {"swish": "silu", "silu": "silu", "relu": "relu", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu"}
_ACTIVATIONS = {"silu": "swish", "relu": "relu", "gelu": "gelu_new"}
_DEFAULTS: dict[str, Any] = {
    "max_position_embeddings": 1024,
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 12),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 4096),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 16),
    "activation_function": "gelu",
    "d_model": 1024,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "decoder_start_token_id": 58100,
    "scale_embedding": False,
    "eos_token_id": 0,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
    "forced_bos_token_id": None,
    **dict.fromkeys(("normalize_before", "normalize_embedding", "add_final_layer_norm"), False),
}
"""Defaults of the keys of config.json; the last three are of older files."""
_NEVER = -10_000.0
"""The bias of <pad> that is written: e to this power is 0."""

# The weights


class _Part(NamedTuple):
    """A part of a layer."""

    theirs: tuple[str, ...]
    """Its names there; ours is these one after the other."""
    side: Literal["reads", "writes"]
    """Which end of its matrix is x_t; a norm is a vector and writes."""


_ENCODER = {
    "norm_attention": _Part(("self_attn_layer_norm",), "writes"),
    "attention.qkv": _Part(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), "reads"),
    "attention.out": _Part(("self_attn.out_proj",), "writes"),
    "norm_feed": _Part(("final_layer_norm",), "writes"),
    "feed.up": _Part(("fc1",), "reads"),
    "feed.down": _Part(("fc2",), "writes"),
}
_DECODER = _ENCODER | {
    "norm_cross": _Part(("encoder_attn_layer_norm",), "writes"),
    "cross.q": _Part(("encoder_attn.q_proj",), "reads"),
    "cross.kv": _Part(("encoder_attn.k_proj", "encoder_attn.v_proj"), "reads"),
    "cross.out": _Part(("encoder_attn.out_proj",), "writes"),
}


def _layers(config: Transformer.Config) -> Iterator[tuple[str, list[str], str]]:
    """Yield for each tensor of the layers our name, their names, and what happens to its coordinates."""
    for stack, layers, parts in (
        ("encoder", config.layers, _ENCODER),
        ("decoder", config.decoder_layers or config.layers, _DECODER),
    ):
        for i in range(layers):
            for name, part in parts.items():
                for kind in ("weight", "bias"):
                    theirs = [f"model.{stack}.layers.{i}.{one}.{kind}" for one in part.theirs]
                    stays = part.side == "reads" and kind == "bias"
                    yield f"{stack}.{i}.{name}.{kind}", theirs, "stays" if stays else part.side


def _order(width: int) -> Tensor:
    """Their coordinate for each of ours: sine and cosine in turns, out of all sines and then all cosines."""
    sines = (width + 1) // 2
    return torch.tensor([place // 2 + sines * (place % 2) for place in range(width)])


def _moved(tensor: Tensor, side: str, order: Tensor) -> Tensor:
    """A tensor with the coordinates of x_t in this order."""
    if side == "stays":
        return tensor
    return tensor[:, order] if side == "reads" else tensor[order]


def _tables(config: Transformer.Config) -> dict[str, str]:
    """Map our tables of tokens' vectors to theirs."""
    if config.tied == "all":
        return {"vectors.weight": "model.shared.weight"}
    names = {"vectors.weight": "model.decoder.embed_tokens.weight"}
    names["source_vectors.weight"] = "model.encoder.embed_tokens.weight"
    return names if config.tied == "target" else names | {"head.weight": "lm_head.weight"}


# Export


def export_marian(run: Path, folder: Path) -> list[str]:
    """Write a transformer run as a folder for transformers (MarianMTModel); return notes for the user.

    An existing folder is not overwritten.
    """
    if folder.exists():
        raise InputError(f"{folder} exists already; nothing is overwritten. Choose another name.")
    files.check_run(run)
    loaded = load(run, "cpu")
    model, tokenizer = loaded.model, loaded.tokenizer
    if not isinstance(model, Transformer):
        raise InputError(f"The run in {run} is a {loaded.recipe.kind}. Only a transformer has the form of Marian.")
    if model.sizes.frame:
        raise InputError(
            f"The run in {run} reads {model.sizes.source}s, where Marian reads text. Export it with --to zip."
        )
    reason = inexpressible(model.config)
    if not reason and (not isinstance(tokenizer, SentencePieces) or loaded.codec.own_source):
        own = " for each side" if loaded.codec.own_source else ""
        reason = f"{tokenizer.kind} tokens{own}, where Marian has SentencePiece's, one vocabulary for both sides"
    if reason or not isinstance(tokenizer, SentencePieces):
        raise InputError(
            f"The run in {run} has {reason}. Train one that goes out by the recipe transformer/marian, or export this "
            "one with --to zip."
        )
    _write(folder, model, tokenizer)
    return []


def inexpressible(config: Transformer.Config) -> str:
    """Return the first setting that Marian's format cannot express, or ""."""
    for name, own, means in (
        ("norm", "post", "normalises after each part of a layer"),
        ("position", "sinusoidal", "has sines and cosines of each place"),
        ("tied", "all", "has one table of vectors for sources, targets and output"),
        ("output_bias", True, "adds a bias to each logit and begins a target with zeros"),
    ):
        if (value := vars(config)[name]) != own:
            return f"model.{name}={str(value).lower()}, where Marian {means}"
    return ""


def _write(folder: Path, model: Transformer, tokenizer: SentencePieces) -> None:
    """Write all files of the folder, or none."""
    last = tokenizer.vocab_size
    vocab = {name: i for i, name in enumerate([END, UNKNOWN, *tokenizer.names[UNK + 1 :], PAD])}
    context = model.config.context
    about = {"source_lang": "", "target_lang": "", "model_max_length": context, "separate_vocabs": False}
    about |= {"tokenizer_class": "MarianTokenizer", "eos_token": END, "unk_token": UNKNOWN, "pad_token": PAD}
    special = {"decoder_start_token_id": last, "eos_token_id": STOP, "forced_eos_token_id": STOP, "pad_token_id": last}
    generation = special | {"bad_words_ids": [[last], [UNK]], "max_length": context, "num_beams": 4}
    with atomic_folder(folder) as beside:
        files.write_json(beside / "config.json", _their_config(model.config, last + 1) | special)
        files.write_json(beside / "generation_config.json", generation)
        files.write_json(beside / "vocab.json", vocab)
        files.write_json(beside / "tokenizer_config.json", about)
        files.write_atomic(beside / "source.spm", tokenizer.source_spm)
        files.write_atomic(beside / "target.spm", tokenizer.spm)
        files.write_atomic(beside / WEIGHTS, save(_their_weights(model), {"format": "pt"}))


def _their_weights(model: Transformer) -> dict[str, Tensor]:
    ours, order = model.state_dict(), _order(model.config.width).argsort()
    never = torch.tensor([_NEVER])
    tensors = {
        "model.shared.weight": ours["vectors.weight"][:, order],  # the mark's row is the last, as <pad> is there
        "final_logits_bias": torch.cat([ours["bias"], never])[None],
    }
    for name, theirs, side in _layers(model.config):
        parts = _moved(ours[name], side, order).chunk(len(theirs))
        tensors |= {their: part.clone() for their, part in zip(theirs, parts, strict=True)}
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def _their_config(config: Transformer.Config, vocab_size: int) -> dict[str, Any]:
    layers, feed = config.decoder_layers or config.layers, config.feed or 4 * config.width
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "torch_dtype": "float32",
        "is_encoder_decoder": True,
        **dict.fromkeys(("vocab_size", "decoder_vocab_size"), vocab_size),
        "max_position_embeddings": config.context,
        "d_model": config.width,
        "encoder_layers": config.layers,
        "decoder_layers": layers,
        "num_hidden_layers": config.layers,
        **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), config.heads),
        **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), feed),
        "activation_function": _ACTIVATIONS[config.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
    }


# Import


def import_marian(folder: Path, out: Path) -> list[str]:
    """Make a run folder from a Marian model of transformers, whole or not at all; return notes for the user."""
    check_free(out)
    check_folder(folder)
    theirs = _Marian(folder)
    section = theirs.model_section()
    target, source = theirs.vocabularies()
    decode = theirs.decode_section()
    recipe = load_recipe(
        "transformer",
        base={
            "data": {"path": str(folder / "config.json"), "validation": 0.0, "test": 0.0},
            "tokens": {"kind": "sentencepiece", "vocab_size": len(target.ids), "sides": "each" if source else "both"},
            "batches": {"length": min(512, section["context"])},
            "model": section,
            "decode": decode,
        },
    )
    sizes = Sizes(len(target.ids), marks=(START,), source_vocab_size=len(source.ids) if source else 0)
    tensors = theirs.tensors(recipe.model, sizes, target, source)
    spm, source_spm = theirs.spm("target.spm"), theirs.spm("source.spm")
    written = content(target.names, spm, None if source else source_spm)
    ledger = Ledger(files=[describe_file(path) for path in theirs.read])
    for note in theirs.notes:
        ledger.note(note, str(folder))

    def write_weights(out: Path) -> None:
        files.write_atomic(out / WEIGHTS, save(tensors))
        if source:
            files.write_json(out / SOURCE_TOKENIZER, content(source.names, source_spm))

    shared = {"source_vectors.weight"} if recipe.model.tied == "all" else set()
    parameters = sum(tensor.numel() for name, tensor in tensors.items() if name not in shared)
    return write_imported_run(out, recipe, sizes, written, ledger, folder, parameters, write_weights)


class _Vocabulary(NamedTuple):
    """A vocab.json."""

    ids: list[int]
    """Their id for each of ours: the end, the unknown, then the pieces in their order, without <pad>."""
    names: list[str]
    """The pieces, from our id 2 on."""


class _Marian(Folder):
    """The folder of a Marian model."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "marian")
        self.config = _DEFAULTS | self.config
        self.about = self.json("tokenizer_config.json") if (path / "tokenizer_config.json").exists() else {}

    def model_section(self) -> dict[str, Any]:
        """Return the recipe's [model]; refuse settings that our transformer does not have."""
        config = self.config
        names = ("d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads", "encoder_ffn_dim")
        width, layers, decoder_layers, heads, feed = map(self._number, names)
        able: dict[str, tuple[Any, ...]] = {"activation_function": tuple(_SAME), "scale_embedding": (True,)}
        able |= {"decoder_attention_heads": (heads,), "decoder_ffn_dim": (feed,), "forced_bos_token_id": (None,)}
        able |= dict.fromkeys(("normalize_before", "normalize_embedding", "add_final_layer_norm"), (False,))
        for key, values in able.items():
            if config[key] not in values:
                expected = " or ".join(map(json.dumps, values))
                raise InputError(
                    f"{self.path / 'config.json'} has {key}={json.dumps(config[key])}, which transformer here cannot "
                    f"be. Expected {expected}."
                )
        if width % heads:
            raise self.damaged("config.json", f"d_model={width} does not divide by encoder_attention_heads={heads}")
        drops = {name: config[name] for name in ("dropout", "attention_dropout", "activation_dropout")}
        if not all(isinstance(drop, int | float) and 0 <= drop < 1 for drop in drops.values()):
            raise self.damaged("config.json", f"dropout, attention_dropout, activation_dropout: {[*drops.values()]}")
        section: dict[str, Any] = {
            "layers": layers,
            "width": width,
            "heads": heads,
            "context": self._number("max_position_embeddings"),
        }
        section |= {"decoder_layers": 0 if decoder_layers == layers else decoder_layers}
        section |= {"feed": 0 if feed == 4 * width else feed, "norm": "post", "position": "sinusoidal"}
        section |= {"activation": _SAME[config["activation_function"]], "tied": self._tied(), "output_bias": True}
        return section | {name: float(drop) for name, drop in drops.items()}

    def _tied(self) -> str:
        if not self.config["tie_word_embeddings"]:
            return "none"
        return "all" if self.config["share_encoder_decoder_embeddings"] else "target"

    def _number(self, key: str) -> int:
        value = self.config[key]
        if type(value) is not int or value < 1:
            raise self.damaged("config.json", f"{key} is {value!r}, not a whole number of 1 or more")
        return value

    def decode_section(self) -> dict[str, Any]:
        """Return the recipe's [decode]: the beam that the folder asks for."""
        there = (self.path / "generation_config.json").exists()
        settings = self.config | (self.json("generation_config.json") if there else {})
        beam, longest = settings.get("num_beams"), settings.get("max_length")
        section = {"beam": beam} if type(beam) is int and beam > 0 else {}
        return section | ({"max_tokens": longest} if type(longest) is int and longest > 0 else {})

    # The tokens

    def vocabularies(self) -> tuple[_Vocabulary, _Vocabulary | None]:
        """Read the vocabulary of the targets, and the sources' own if there are two."""
        first = self._vocabulary("vocab.json")
        if not self.about.get("separate_vocabs"):
            return first, None
        if self.config["share_encoder_decoder_embeddings"]:
            raise self.damaged("tokenizer_config.json", "it has two vocabularies, and config.json one table of vectors")
        return self._vocabulary("target_vocab.json"), first

    def _vocabulary(self, name: str) -> _Vocabulary:
        vocab = self.json(name)
        ids = sorted(vocab.values()) if all(type(i) is int and i >= 0 for i in vocab.values()) else [0, 0]
        if len(set(ids)) < len(ids):
            raise self.damaged(name, "its ids are not whole numbers, or two tokens share one")
        unknown, pad = self.about.get("unk_token", UNKNOWN), self.about.get("pad_token", PAD)
        names = {i: piece for piece, i in vocab.items()}
        end = self._end()
        if unknown not in vocab or end not in names:
            missing = f"no {unknown}" if end in names else f"no token with the id {end}, eos_token_id in config.json"
            raise self.damaged(name, f"it has {missing}")
        text = [i for i in ids if i not in (end, vocab[unknown], vocab.get(pad))]
        return _Vocabulary([end, vocab[unknown], *text], [names[i] for i in text])

    def _end(self) -> int:
        found = self.config["eos_token_id"]
        end = found[0] if isinstance(found, list) and len(found) == 1 else found
        if type(end) is not int:
            raise self.damaged("config.json", f"eos_token_id is {found!r}")
        return end

    def spm(self, name: str) -> bytes:
        """Read a SentencePiece model and check it."""
        try:
            model = (self.path / name).read_bytes()
            processor(model)
        except FileNotFoundError:
            raise InputError(f"{self.path} holds no {name}. Expected a folder that MarianTokenizer wrote.") from None
        except (OSError, ValueError) as error:
            raise self.damaged(name, str(error)) from None
        self.read.append(self.path / name)
        return model

    # The weights

    def tensors(
        self, config: Transformer.Config, sizes: Sizes, target: _Vocabulary, source: _Vocabulary | None
    ) -> dict[str, Tensor]:
        """Return the weights of a Transformer."""
        weights, order = self._own_weights(config), _order(config.width)
        with torch.device("meta"):
            shapes = {name: tensor.shape for name, tensor in Transformer(config, sizes).state_dict().items()}
        written = [*target.ids, self.config["decoder_start_token_id"]]
        rows = {"vectors.weight": written, "source_vectors.weight": source.ids if source else written}
        found = {"bias": (self._rows(weights, "final_logits_bias", target.ids), "stays")}
        for ours, theirs in _tables(config).items():
            found[ours] = self._rows(weights, theirs, rows.get(ours, target.ids)), "reads"
        for ours, names, side in _layers(config):
            found[ours] = torch.cat([self._taken(weights, name) for name in names]), side
        self._check_left(weights, config.width)
        if wrong := next((name for name, (tensor, _) in found.items() if tensor.shape != shapes[name]), None):
            expected = list(shapes[wrong])
            raise self.damaged(WEIGHTS, f"{wrong} would be {list(found[wrong][0].shape)}, by config.json {expected}")
        tensors = {name: _moved(tensor, side, order).float().contiguous() for name, (tensor, side) in found.items()}
        if config.tied == "all":
            tensors["source_vectors.weight"] = tensors["vectors.weight"].clone()
        return tensors

    def _own_weights(self, config: Transformer.Config) -> dict[str, Tensor]:
        """Read all tensors by their names; of tables that are tied, one."""
        weights = self.weights()
        try:
            check_finite(weights)
        except ValueError as error:
            raise self.damaged(WEIGHTS, str(error)) from None
        tables = ["model.shared.weight", *(f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder"))]
        found = {name: weights.pop(name) for name in [*tables, "lm_head.weight"] if name in weights}
        for theirs in _tables(config).values():
            tied = tables if self.config["share_encoder_decoder_embeddings"] else []
            same = next((name for name in (theirs, *tied, "lm_head.weight") if name in found), None)
            if same is not None:
                weights[theirs] = found[same]
        return weights

    def _taken(self, weights: dict[str, Tensor], name: str) -> Tensor:
        if name not in weights:
            raise self.damaged(WEIGHTS, f"{name} is missing")
        tensor = weights.pop(name)
        if not tensor.dim():
            raise self.damaged(WEIGHTS, f"{name} is a single number")
        return tensor

    def _rows(self, weights: dict[str, Tensor], name: str, ids: list[int]) -> Tensor:
        """The rows of these ids of a table, or the numbers of these ids of a bias."""
        table = self._taken(weights, name)
        table = table.flatten() if name == "final_logits_bias" else table
        if not all(type(i) is int and 0 <= i < len(table) for i in ids):
            raise self.damaged(WEIGHTS, f"{name} is for {len(table):,} tokens, and the largest id is {max(ids):,}")
        return table[ids]

    def _check_left(self, weights: dict[str, Tensor], width: int) -> None:
        """Refuse tensors that no part of the network has read; the places' own are checked against their equation."""
        for side in ("encoder", "decoder"):
            table = weights.pop(f"model.{side}.embed_positions.weight", None)
            if table is None:
                continue
            ours = sinusoids(len(table), width)
            if (
                table.dim() != 2
                or table.shape[1] != width
                or not torch.allclose(table[:, _order(width)].double(), ours, atol=1e-3)
            ):
                raise self.damaged(WEIGHTS, f"the {side}'s embed_positions are not sines and cosines of the places")
        if weights:
            raise self.damaged(WEIGHTS, f"it holds {min(weights)}, which a Marian model has not")
