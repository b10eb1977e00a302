"""T5 (Raffel et al. 2020) in folders of transformers, both ways: version 1.0 (ReLU, tied) and 1.1 (gated, untied).

    ids          there <pad> is 0, </s> 1, <unk> 2, and the sentinels <extra_id_99> … <extra_id_0> are the last tokens;
                 here STOP is 0, UNK 1, and the marks start (their <pad>), span0 … span99 stand behind the vocabulary
    spare rows   their tables have more rows than there are tokens (32,128 for 32,100). No text can have these, so that
                 they have no logits here; an imported run keeps them for the way back (origin.py)
    q, k, v      there three matrices, here one; so k and v of the attention to the source
    the bias     there a table in the first layer of each side, here `positions` and `source_positions`
    the head     where it is tied, scores are divided by sqrt(D); in transformers 5 scale_decoder_outputs says so

Their tokens are a unigram model with ▁ for blanks (tokens/sentencepiece.py). Of other runs the tokens go out as they
are, framed as theirs: text </s>.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor

from segue.data.atomic import atomic_folder
from segue.data.files import describe_file
from segue.data.ledger import Ledger
from segue.errors import InputError
from segue.interop.huggingface.bert_tokens import added_token, free_name, their_model
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
from segue.layers.position import BUCKETS, FARTHEST
from segue.models.base import Sizes
from segue.models.network import check_finite
from segue.models.t5 import EPS, T5
from segue.recipe import load_recipe
from segue.runs import folder as files
from segue.runs.run import load
from segue.tokens import file_format
from segue.tokens.file_format import STOP, UNK
from segue.tokens.sentencepiece import SentencePieces, content_of_unigram
from segue.tokens.tokenizer import Tokenizer

SHARED, HEAD = "shared.weight", "lm_head.weight"
TABLES = (SHARED, HEAD, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
"""Names of token tables; the last two are the first again, in older files."""
_DEFAULTS: dict[str, Any] = {
    **{"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8, "dropout_rate": 0.1},
    **{"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "layer_norm_epsilon": 1e-6},
    **{"feed_forward_proj": "relu", "pad_token_id": 0, "eos_token_id": 1, "num_decoder_layers": None},
}
_FEEDS = {"relu": False, "gated-gelu": True}
_SPECIAL = {"pad": "<pad>", "stop": "</s>", "unk": "<unk>"}
_KEYS = {"pad": "pad_token", "stop": "eos_token", "unk": "unk_token"}


def _sentinel(i: int) -> str:
    return f"<extra_id_{i}>"


# The weights


def weight_names(config: T5.Config) -> dict[str, tuple[str, ...]]:
    """Map our names to theirs, of which ours is these one after the other; without the token tables."""
    names: dict[str, tuple[str, ...]] = {}
    for side, layers in (("encoder", config.layers), ("decoder", config.decoder_layers or config.layers)):
        for i in range(layers):
            ours, theirs = f"{side}.{i}", f"{side}.block.{i}.layer"
            own, feed = f"{theirs}.0.SelfAttention", f"{theirs}.{2 if side == 'decoder' else 1}"
            names |= {
                f"{ours}.norm_attention.weight": (f"{theirs}.0.layer_norm.weight",),
                f"{ours}.attention.qkv.weight": tuple(f"{own}.{part}.weight" for part in "qkv"),
                f"{ours}.attention.out.weight": (f"{own}.o.weight",),
                f"{ours}.norm_feed.weight": (f"{feed}.layer_norm.weight",),
                f"{ours}.feed.down.weight": (f"{feed}.DenseReluDense.wo.weight",),
            }
            wide = {"gate": "wi_0", "up": "wi_1"} if config.gated else {"up": "wi"}
            names |= {f"{ours}.feed.{o}.weight": (f"{feed}.DenseReluDense.{t}.weight",) for o, t in wide.items()}
            if side == "decoder":
                cross = f"{theirs}.1.EncDecAttention"
                names |= {
                    f"{ours}.norm_cross.weight": (f"{theirs}.1.layer_norm.weight",),
                    f"{ours}.cross.q.weight": (f"{cross}.q.weight",),
                    f"{ours}.cross.kv.weight": tuple(f"{cross}.{part}.weight" for part in "kv"),
                    f"{ours}.cross.out.weight": (f"{cross}.o.weight",),
                }
        bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        names["source_positions.table.weight" if side == "encoder" else "positions.table.weight"] = (bias,)
        names["norm_encoder.weight" if side == "encoder" else "norm.weight"] = (f"{side}.final_layer_norm.weight",)
    return names


def _their_weights(model: T5) -> dict[str, Tensor]:
    """Return their tensors but for the token tables."""
    ours = model.state_dict()
    tensors: dict[str, Tensor] = {}
    for name, theirs in weight_names(model.config).items():
        tensors |= dict(zip(theirs, ours[name].chunk(len(theirs)), strict=True))
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


# Export


def export_t5(run: Path, folder: Path) -> list[str]:
    """Write a t5 run as a folder for transformers (T5ForConditionalGeneration); return notes for the user.

    An existing folder is not overwritten.
    """
    if folder.exists():
        raise InputError(f"{folder} exists already; nothing is overwritten. Choose another name.")
    files.check_run(run)
    loaded = load(run, "cpu")
    model, tokenizer = loaded.model, loaded.tokenizer
    assert isinstance(model, T5)
    origin = origin_of(run)
    if origin is not None:
        return _back(folder, model, origin)
    _write(folder, model, tokenizer)
    return []


def _back(folder: Path, model: T5, origin: Origin) -> list[str]:
    """Write a run that was imported as it came."""
    tensors = _their_weights(model)
    for name in TABLES:
        if name in origin.types or (name == HEAD and _own_head(model)):
            table = model.vectors.weight if name != HEAD or model.head is None else model.head.weight
            left = origin.rest.get(name, origin.rest[SHARED])
            tensors[name] = rows_back(table.detach(), origin.ids, left)
    if HEAD in tensors and HEAD not in origin.types:
        origin = origin._replace(types=origin.types | {HEAD: origin.types[SHARED]})
    return write_back(folder, origin, origin.config, tensors)


def _own_head(model: T5) -> bool:
    """Whether the output weights differ from the token vectors."""
    return model.head is not None and not torch.equal(model.head.weight, model.vectors.weight)


def _write(folder: Path, model: T5, tokenizer: Tokenizer) -> None:
    """Write all files of the folder, or none."""
    sizes = model.sizes
    spans = [sizes.mark(name) for name in model.sentinels(model.config)]
    order = [sizes.start, STOP, UNK, *range(UNK + 1, sizes.vocab_size), *reversed(spans)]
    content, about = _their_tokenizer(tokenizer, order, spans)
    tensors = _their_weights(model) | {SHARED: model.vectors.weight.detach()[order].contiguous()}
    if model.head is not None:
        tensors[HEAD] = model.head.weight.detach()[order].contiguous()
    special = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    with atomic_folder(folder) as beside:
        files.write_json(beside / "config.json", _their_config(model.config, len(order)) | special)
        files.write_json(beside / "generation_config.json", special)
        files.write_json(beside / "tokenizer.json", content)
        files.write_json(beside / "tokenizer_config.json", about)
        files.write_atomic(beside / WEIGHTS, save(tensors, {"format": "pt"}))


def _their_config(config: T5.Config, vocab_size: int) -> dict[str, Any]:
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "torch_dtype": "float32",
        "is_encoder_decoder": True,
        "vocab_size": vocab_size,
        "d_model": config.width,
        "d_kv": config.of_head,
        "d_ff": config.feed or 4 * config.width,
        "num_layers": config.layers,
        "num_decoder_layers": config.decoder_layers or config.layers,
        "num_heads": config.heads,
        "relative_attention_num_buckets": BUCKETS,
        "relative_attention_max_distance": FARTHEST,
        "dropout_rate": config.dropout,
        "layer_norm_epsilon": EPS,
        "feed_forward_proj": "gated-gelu" if config.gated else "relu",
        "tie_word_embeddings": config.tied,
    }


def _their_tokenizer(tokenizer: Tokenizer, order: list[int], spans: list[int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make tokenizer.json and tokenizer_config.json: the same tokens with their ids, and texts that end with </s>."""
    if isinstance(tokenizer, SentencePieces) and not tokenizer.unigram:
        raise InputError("SentencePiece's own files have no form in tokenizer.json. Export the run with --to zip.")
    _, names, _ = file_format.read(tokenizer.content)
    special = {role: free_name(name, names) for role, name in _SPECIAL.items()}
    own = {order[0]: special["pad"], STOP: special["stop"], UNK: special["unk"]}
    own |= {mark: free_name(_sentinel(i), names) for i, mark in enumerate(spans)}
    named = [own.get(i) or names[i] for i in order]
    if isinstance(tokenizer, SentencePieces):
        scores = dict(tokenizer.unigram["model"]["vocab"])
        vocab = [[name, scores.get(name, 0.0)] for name in named]
        content = tokenizer.content | tokenizer.unigram
        content |= {"model": tokenizer.unigram["model"] | {"vocab": vocab, "unk_id": named.index(special["unk"])}}
    else:
        content = tokenizer.content | {"model": their_model(tokenizer.content["model"], named, order, special["unk"])}
    stop, text = {"SpecialToken": {"id": special["stop"], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 0}}
    known = {special["stop"]: {"id": special["stop"], "ids": [1], "tokens": [special["stop"]]}}
    frame = {"single": [text, stop], "pair": [text, stop, second, stop], "special_tokens": known}
    content["post_processor"] = {"type": "TemplateProcessing"} | frame
    content["added_tokens"] = [added_token(named.index(name), name) for name in own.values()]
    if tokenizer.kind in ("bpe", "unigram", "word"):  # a sentinel takes the blank that belongs to its first token
        for one in content["added_tokens"][len(special) :]:
            one["lstrip"] = True
    content["added_tokens"].sort(key=lambda one: one["id"])
    about: dict[str, Any] = {key: special[role] for role, key in _KEYS.items()}
    about |= {"additional_special_tokens": [own[mark] for mark in spans], "clean_up_tokenization_spaces": False}
    about |= {"model_input_names": ["input_ids", "attention_mask"], "tokenizer_class": "PreTrainedTokenizerFast"}
    return content, about


# Import


def import_t5(folder: Path, out: Path) -> list[str]:
    """Make a run folder from a T5 of transformers, whole or not at all; return notes for the user."""
    check_free(out)
    check_folder(folder)
    theirs = _T5Folder(folder)
    tokens = theirs.t5_tokens()
    raw = theirs.weights()
    config = T5.Config(**theirs.model_section(raw, tokens.spans))
    sizes = Sizes(len(tokens.ids) - 1 - tokens.spans, marks=T5.marks(config), stopped=True)
    tensors = theirs.tensors(config, sizes, raw, tokens.ids)
    recipe = load_recipe(
        "t5",
        base={
            "data": {"path": str(folder / "config.json"), "validation": 0.0, "test": 0.0},
            "tokens": {"kind": "sentencepiece", "vocab_size": max(258, sizes.vocab_size)},
            "batches": {"length": 512, "noise": "none"},
            "model": dataclasses.asdict(config),
        },
    )
    rest = {name: rows_left(raw[name], tokens.ids) for name in TABLES if name in raw}
    origin = origin_from(folder, tokens.ids, rest, raw)
    ledger = Ledger(files=[describe_file(path) for path in theirs.read])
    for note in theirs.notes:
        ledger.note(note, str(folder))

    def write_weights(out: Path) -> None:
        files.write_atomic(out / WEIGHTS, save(tensors))
        keep(out, origin)

    parameters = sum(tensor.numel() for tensor in tensors.values())
    return write_imported_run(out, recipe, sizes, tokens.content, ledger, folder, parameters, write_weights)


class _Tokens(NamedTuple):
    """The tokens of a folder, as a run has them."""

    content: dict[str, Any]
    """What tokenizer.json of the run holds."""
    ids: list[int]
    """Their id of each of our ids, the vocabulary's and then the marks'."""
    spans: int
    """Sentinels."""


class _T5Folder(Folder):
    """The folder of a T5."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "t5")
        self.config = _DEFAULTS | self.config

    # config.json

    def model_section(self, raw: dict[str, Tensor], spans: int) -> dict[str, Any]:
        """Return the recipe's [model]; refuse settings that our t5 does not have."""
        config = self.config
        width, feed = self._number("d_model"), self._number("d_ff")
        able: dict[str, tuple[Any, ...]] = {"feed_forward_proj": tuple(_FEEDS), "layer_norm_epsilon": (EPS,)}
        able |= {"relative_attention_num_buckets": (BUCKETS,), "relative_attention_max_distance": (FARTHEST,)}
        for key, values in able.items():
            if config[key] not in values:
                expected = " or ".join(map(json.dumps, values))
                raise InputError(
                    f"{self.path / 'config.json'} has {key}={json.dumps(config[key])}, which t5 here cannot be. "
                    f"Expected {expected}."
                )
        drop = config["dropout_rate"]
        if not isinstance(drop, int | float) or not 0 <= drop < 1:
            raise self.damaged("config.json", f"dropout_rate is {drop!r}, not a share")
        layers = self._number("num_layers")
        decoder = layers if config["num_decoder_layers"] is None else self._number("num_decoder_layers")
        section: dict[str, Any] = {"layers": layers, "decoder_layers": 0 if decoder == layers else decoder}
        section |= {"width": width, "heads": self._number("num_heads"), "head_width": self._number("d_kv")}
        section |= {"feed": 0 if feed == 4 * width else feed, "gated": _FEEDS[config["feed_forward_proj"]]}
        return section | {"tied": self._tied(raw), "spans": spans, "dropout": float(drop)}

    def _number(self, key: str) -> int:
        value = self.config[key]
        if type(value) is not int or value < 1:
            raise self.damaged("config.json", f"{key} is {value!r}, not a whole number of 1 or more")
        return value

    def _tied(self, raw: dict[str, Tensor]) -> bool:
        """Whether the output weights are the token vectors, and scores are divided."""
        scaled = self.config.get("scale_decoder_outputs", self.config.get("tie_word_embeddings", True) is not False)
        own = HEAD in raw and not torch.equal(raw[HEAD], raw.get(SHARED, raw[HEAD]))
        if scaled and own:
            raise self.damaged(WEIGHTS, "it has output weights of its own (lm_head), and by config.json they are tied")
        if not scaled and not own:
            self.notes.append("its output weights are the token vectors, undivided: from here on they learn apart")
        return bool(scaled)

    # The weights

    def tensors(self, config: T5.Config, sizes: Sizes, raw: dict[str, Tensor], ids: list[int]) -> dict[str, Tensor]:
        """Return the weights of a T5."""
        try:
            check_finite(raw)
        except ValueError as error:
            raise self.damaged(WEIGHTS, str(error)) from None
        with torch.device("meta"):
            shapes = {name: tensor.shape for name, tensor in T5(config, sizes).state_dict().items()}
        names = weight_names(config)
        known = {one for theirs in names.values() for one in theirs} | set(TABLES)
        if missing := next((name for name in (*sorted(known - set(TABLES)), SHARED) if name not in raw), None):
            raise self.damaged(WEIGHTS, f"{missing} is missing")
        if strange := sorted(raw.keys() - known):
            raise self.damaged(WEIGHTS, f"it holds {strange[0]}, which a T5 has not")
        tensors = {ours: torch.cat([raw[name] for name in theirs]) for ours, theirs in names.items()}
        tables = {"vectors.weight": raw[SHARED]}
        if not config.tied:
            tables["head.weight"] = raw.get(HEAD, raw[SHARED])
        for ours, table in tables.items():
            if len(table) <= max(ids):
                raise self.damaged(WEIGHTS, f"a table has {len(table):,} rows, and the tokens go up to {max(ids):,}")
            tensors[ours] = table[ids]
        if wrong := next((name for name, tensor in tensors.items() if tensor.shape != shapes[name]), None):
            found, expected = list(tensors[wrong].shape), list(shapes[wrong])
            raise self.damaged(WEIGHTS, f"{wrong} would be {found}, by config.json {expected}")
        return {name: tensor.float().contiguous() for name, tensor in tensors.items()}

    # The tokens

    def t5_tokens(self) -> _Tokens:
        """Read tokenizer.json; SentencePiece's file alone has no sentinels."""
        path = self.path / "tokenizer.json"
        if not path.exists():
            raise InputError(
                f'{self.path} holds no tokenizer.json. Where transformers is installed, write it: python -c "from '
                f"transformers import AutoTokenizer as T; T.from_pretrained('{self.path}')"
                f".save_pretrained('{self.path}')\""
            )
        file = self.json("tokenizer.json")
        model = file.get("model")
        if not isinstance(model, dict) or model.get("type") != "Unigram" or not isinstance(model.get("vocab"), list):
            raise InputError(f"{path} is not T5's: its model is not a unigram model. Other tokens are not read.")
        try:
            scores = {str(name): float(score) for name, score in model["vocab"]}
            id_of = {str(name): i for i, (name, _) in enumerate(model["vocab"])}
            id_of |= {str(one["content"]): int(one["id"]) for one in file.get("added_tokens") or []}
        except (TypeError, KeyError, ValueError):
            raise self.damaged("tokenizer.json", "its vocabulary is not a list of pieces and scores") from None
        return self._in_our_order(file, id_of, scores)

    def _in_our_order(self, file: dict[str, Any], id_of: dict[str, int], scores: dict[str, float]) -> _Tokens:
        spans = next(i for i in range(len(id_of) + 1) if _sentinel(i) not in id_of)
        special = {role: id_of.get(name, NONE) for role, name in self._special().items()}
        if lacking := [self._special()[role] for role, i in special.items() if i == NONE]:
            raise self.damaged("tokenizer.json", f"it has no token {lacking[0]}")
        if not spans:
            raise self.damaged("tokenizer.json", f"it has no token {_sentinel(0)}, the first sentinel")
        marks = [special["pad"], *(id_of[_sentinel(i)] for i in range(spans))]
        own = {special["stop"], special["unk"], *marks}
        text = sorted((i, name) for name, i in id_of.items() if i not in own)
        ids = [special["stop"], special["unk"], *(i for i, _ in text), *marks]
        if len(set(ids)) < len(ids):
            raise self.damaged("tokenizer.json", "two of its tokens share an id")
        if more := [name for _, name in text if name not in scores]:
            self.notes.append(f"{len(more):,} tokens that were added are cut as any text is: {', '.join(more[:3])}")
        pieces = [[name, scores[name]] for _, name in text if name in scores]
        unknown = self._special()["unk"]
        model = file["model"] | {"vocab": [[unknown, scores.get(unknown, 0.0)], *pieces], "unk_id": 0}
        unigram = {key: file.get(key) for key in ("normalizer", "pre_tokenizer", "decoder")} | {"model": model}
        content = content_of_unigram([name for _, name in text], unigram)
        try:
            SentencePieces(content)
        except ValueError as error:
            raise self.damaged("tokenizer.json", str(error)) from None
        return _Tokens(content, ids, spans)

    def _special(self) -> dict[str, str]:
        """Return the name of each special token: as tokenizer_config.json has it, or as it mostly is."""
        about, names = self.about_tokens(), dict(_SPECIAL)
        for role, key in _KEYS.items():
            found = about.get(key)
            name = found.get("content") if isinstance(found, dict) else found
            names[role] = name if isinstance(name, str) else names[role]
        return names
