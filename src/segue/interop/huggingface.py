"""GPT-2's weights in Hugging Face's format, out and in: a folder with config.json, model.safetensors, tokenizer.json.

The networks are the same; the ids are not. There the text's tokens come first, and <|endoftext|>, which begins and ends
a text, is the last; here STOP is 0, UNK 1, and text begins at 2. So rows of E change places:

    in       STOP takes the row of the end, UNK the mean of all rows, the others follow in their order
    out      the text's rows, then UNK where the tokens are closed, then STOP; of open tokens no text needs UNK

Why the mean: the logit of UNK is then the mean of the V true logits l, and sum of e^l >= V e^(mean of l) (Jensen), so
that p(UNK) <= 1 / (V + 1) whatever the state. Logits of true tokens are the same on both sides; a log p is lower here
by at most log(1 + 1/V), 0.00002 at GPT-2's V. (A row of zeros would take all where the true logits are below 0.)

Matrices stand there as input x output and are transposed. The tokens are byte-level BPE on both sides, split alike but
for letters that are newer than the Unicode of this Python. A text that spells <|endoftext|> is text here, and an end
there. Every text begins with STOP here; GPT-2's own tokenizer leaves it out, the one that is written puts it there.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from segue.data.files import describe_file
from segue.data.ledger import Ledger
from segue.errors import InputError
from segue.models.base import Sizes
from segue.models.gpt import Gpt
from segue.recipe import load_recipe, to_toml
from segue.runs import folder as files
from segue.runs.run import load
from segue.tokens import file_format, learn
from segue.tokens.file_format import RESERVED, STOP, UNK
from segue.tokens.split import unicode_pattern
from segue.tokens.tokenizer import Tokenizer

END = "<|endoftext|>"
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_CONVERT = (
    "from transformers import AutoModelForCausalLM as M, AutoTokenizer as T; "
    "M.from_pretrained('{0}').save_pretrained('{0}-safe'); T.from_pretrained('{0}').save_pretrained('{0}-safe')"
)
_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu"}
_SAME = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu"}
_DEFAULTS: dict[str, Any] = {
    "n_positions": 1024,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_inner": None,
    "activation_function": "gelu_new",
    "resid_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "bos_token_id": 50256,
    "eos_token_id": 50256,
}
"""What a key of config.json is where it is left out."""
_PARTS = {
    "norm_attention": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "norm_feed": "ln_2",
    "feed.up": "mlp.c_fc",
    "feed.down": "mlp.c_proj",
}
"""The parts of a layer, here and there."""
_MASKS = re.compile(r"h\.\d+\.attn\.(masked_)?bias")
"""Constants that older files keep among the weights."""


def _names(layers: int, tied: bool) -> dict[str, str]:
    """What each tensor is called, here and there (without the `transformer.` that may stand before it)."""
    names = {"vectors.weight": "wte.weight", "positions.table.weight": "wpe.weight"}
    for kind in ("weight", "bias"):
        names[f"norm.{kind}"] = f"ln_f.{kind}"
        for i in range(layers):
            names |= {f"blocks.{i}.{ours}.{kind}": f"h.{i}.{theirs}.{kind}" for ours, theirs in _PARTS.items()}
    return names if tied else names | {"head.weight": "lm_head.weight"}


def _turned(name: str, tensor: Tensor) -> Tensor:
    """A matrix of a layer, transposed; all else as it is."""
    return tensor.T if name.startswith("blocks.") and tensor.dim() == 2 else tensor


@contextmanager
def _whole(place: Path) -> Iterator[Path]:
    """A folder to write into, which stands in its place only when all is written; else nothing is left."""
    beside = place.with_name(f".{place.name}.{os.getpid()}.writing")
    made = files.missing(place.parent)
    try:
        beside.mkdir(parents=True)
        yield beside
        beside.replace(place)
    except BaseException:
        files.undo(beside, [beside, *made])
        raise


# Out


def export_huggingface(run: Path, folder: Path) -> list[str]:
    """Writes a gpt run as a folder for transformers (GPT2LMHeadModel); returns what its owner should know.

    An existing folder is not overwritten.
    """
    if folder.exists():
        raise InputError(f"{folder} exists already; nothing is overwritten. Choose another name.")
    files.check_run(run)
    loaded = load(run, "cpu")
    if not isinstance(loaded.model, Gpt):
        raise InputError(f"The run in {run} is a {loaded.recipe.kind}. Only a gpt has the form of GPT-2.")
    config, tokenizer = loaded.model.config, loaded.tokenizer
    if reason := _inexpressible(config):
        raise InputError(f"The run in {run} has {reason}, so it is no GPT-2. Export it with --to zip.")
    order = [*range(2, tokenizer.vocab_size), *([UNK] if tokenizer.closed else []), STOP]
    tensors, weights = {}, loaded.model.state_dict()
    for ours, theirs in _names(config.layers, config.tied).items():
        tensor = weights[ours]
        tensor = tensor[order] if ours in ("vectors.weight", "head.weight") else _turned(ours, tensor)
        tensors[theirs if theirs.startswith("lm_head.") else f"transformer.{theirs}"] = tensor.contiguous()
    written, end = _their_tokenizer(tokenizer, order)
    about = {"bos_token": end, "eos_token": end, "model_max_length": config.context}
    about |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    # Others would be named too, and GPT-2 adds the vector of token 0 to every place where it is given type 0.
    about["model_input_names"] = ["input_ids", "attention_mask"]
    last = len(order) - 1
    ends = {"bos_token_id": last, "eos_token_id": last}
    generation = ends | ({"suppress_tokens": [order.index(UNK)]} if tokenizer.closed else {})
    with _whole(folder) as beside:
        files.write_json(beside / "config.json", _their_config(config, len(order)) | ends)
        files.write_json(beside / "generation_config.json", generation)
        files.write_json(beside / "tokenizer.json", written)
        files.write_json(beside / "tokenizer_config.json", about)
        files.write_atomic(beside / _WEIGHTS, save(tensors, {"format": "pt"}))
    if tokenizer.kind == "bpe":
        return []
    return [f"Its tokens are of kind {tokenizer.kind}: transformers reads them, `segue import` reads GPT-2's alone."]


def _inexpressible(config: Gpt.Config) -> str:
    """What GPT-2 there cannot be told to be."""
    for name, own, means in (
        ("norm", "pre", "normalises before each part of a layer"),
        ("residual", True, "adds what goes into each part of a layer to what comes out"),
        ("position", "learned", "has a learned vector for each place"),
    ):
        if (value := getattr(config, name)) != own:
            return f"model.{name}={str(value).lower()}, where GPT-2 {means}"
    if config.heads * config.head_width != config.width:
        together = config.heads * config.head_width
        return f"heads that are together {together:,} wide, where GPT-2's are as wide as the layer, {config.width:,}"
    return ""


def _their_config(config: Gpt.Config, vocab_size: int) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "torch_dtype": "float32",
        "vocab_size": vocab_size,
        "n_positions": config.context,
        "n_embd": config.width,
        "n_layer": config.layers,
        "n_head": config.heads,
        "activation_function": _ACTIVATIONS[config.activation],
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), config.dropout),
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": config.tied,
    }


def _their_tokenizer(tokenizer: Tokenizer, order: list[int]) -> tuple[dict[str, Any], str]:
    """tokenizer.json with the ids in that order, and the name of the end, which stands before every text."""
    _, names, _ = file_format.read(tokenizer.content)
    end = RESERVED[STOP] if END in names else END
    names[STOP] = end
    model = dict(tokenizer.content["model"])
    if isinstance(model["vocab"], list):
        model["vocab"] = [[names[i], model["vocab"][i][1]] for i in order]
        model["unk_id"] = None
    else:
        model["vocab"] = {names[i]: place for place, i in enumerate(order)}
    last = len(order) - 1
    added = {"id": last, "content": end, "special": True, "normalized": False}
    added |= dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    one: list[dict[str, Any]] = [{"SpecialToken": {"id": end, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    two = [*one, {"Sequence": {"id": "B", "type_id": 0}}]
    special = {end: {"id": end, "ids": [last], "tokens": [end]}}
    before = {"type": "TemplateProcessing", "single": one, "pair": two, "special_tokens": special}
    return tokenizer.content | {"model": model, "added_tokens": [added], "post_processor": before}, end


# In


def import_huggingface(folder: Path, out: Path) -> list[str]:
    """Makes a run folder of a GPT-2 for transformers; returns what its owner should know. Nothing is half written."""
    if out.exists():
        raise InputError(f"{out} exists already; nothing is overwritten. Choose another --out.")
    _check_folder(folder)
    theirs = _Theirs(folder)
    read = theirs.tokens()
    config, weights = theirs.model_section(), theirs.weights()
    rows = len(weights["wte.weight"]) if "wte.weight" in weights else 0
    end = theirs.end(rows)
    ids = [i for i in sorted(read.ids) if i != end]
    if ids and ids[-1] >= rows:
        raise theirs.damaged(
            _WEIGHTS, f"it has vectors for {rows:,} tokens, and {read.path.name} gives the id {ids[-1]:,}"
        )
    if nameless := rows - len(ids) - 1:
        theirs.notes.append(f"{nameless:,} rows without a token are left out")
    recipe = load_recipe(
        "gpt",
        base={
            "data": {"path": str(folder / "config.json"), "validation": 0.0, "test": 0.0},
            "tokens": {"kind": "bpe", "vocab_size": len(ids) + 2},
            "batches": {"length": min(128, config["context"])},
            "model": config,
        },
    )
    sizes = Sizes(len(ids) + 2)
    tensors = theirs.tensors(recipe.model, sizes, weights, torch.tensor([end, *ids]))
    content = file_format.write("bpe", [read.ids[i] for i in ids], read.split, merges=read.merges)
    theirs.check_tokens(content, read)
    ledger = Ledger(files=[describe_file(path) for path in theirs.read])
    for note in theirs.notes:
        ledger.note(note, str(folder))
    about = {"kind": "gpt", "format": files.FORMAT, "imported": str(folder)}
    about |= {"config": dataclasses.asdict(recipe.model)}
    result = {"model": recipe.name, "parameters": sum(tensor.numel() for tensor in tensors.values())}
    with _whole(out) as beside:
        files.write_atomic(beside / "recipe.toml", to_toml(recipe))
        files.write_json(beside / "environment.json", files.environment("cpu", 0, 0))
        files.write_json(beside / "ledger.json", {**ledger.to_dict(), "summary": ledger.summary()})
        files.write_atomic(beside / "tokenizer.json", json.dumps(content, ensure_ascii=False) + "\n")
        files.write_json(beside / "config.json", about | {"sizes": dataclasses.asdict(sizes), "labels": []})
        files.write_atomic(beside / _WEIGHTS, save(tensors))
        (beside / "metrics.jsonl").touch()
        result |= {"train_seconds": 0.0, "steps": 0, "epochs": 0.0, "tokens_per_second": 0.0}
        files.write_json(beside / "result.json", result)
    return ledger.summary()


def _check_folder(folder: Path) -> None:
    """A folder for transformers, with weights that can be read without running anything."""
    if folder.is_file() and folder.suffix in PICKLED:
        raise _pickled(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder. Expected one with config.json, {_WEIGHTS} and a tokenizer.")
    if (folder / "recipe.toml").exists():
        raise InputError(f"{folder} is a run folder already: use it as it is. Expected one that transformers wrote.")
    if not (folder / _WEIGHTS).exists() and not (folder / _INDEX).exists():
        if found := sorted(path for path in folder.iterdir() if path.suffix in PICKLED):
            raise _pickled(found[0])
        raise InputError(
            f"{folder} holds no {_WEIGHTS}. Expected the folder of a GPT-2, as `save_pretrained` writes it."
        )


def _pickled(path: Path) -> InputError:
    return InputError(
        f"{path} is a pickle file, which can run anything when it is opened; it is not read here. Where you trust it, "
        f'convert it: python -c "{_CONVERT.format(path.parent)}" and import {path.parent}-safe'
    )


class _Tokens(NamedTuple):
    """A byte-level BPE: its file, the name of each id, the merges, and the pattern that words are split by."""

    path: Path
    ids: dict[int, str]
    merges: list[list[str]]
    split: str


class _Theirs:
    """A folder of a GPT-2 for transformers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.read: list[Path] = []
        self.notes: list[str] = []
        config = self._json("config.json")
        if config.get("model_type") != "gpt2":
            found = config.get("model_type")
            raise InputError(f"{folder / 'config.json'} has model_type={found}. Expected gpt2: no other is read.")
        self.config = _DEFAULTS | {"n_positions": config.get("n_ctx", 1024)} | config

    def damaged(self, name: str, reason: str) -> InputError:
        return InputError(f"{self.folder / name} cannot be used: {reason}. Fetch or write the folder again.")

    def _json(self, name: str) -> dict[str, Any]:
        try:
            content = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"{self.folder} holds no {name}. Expected the folder of a GPT-2.") from None
        except (OSError, ValueError, RecursionError) as error:
            raise self.damaged(name, f"it is no JSON ({error})") from None
        if not isinstance(content, dict):
            raise self.damaged(name, "it holds no keys")
        self.read.append(self.folder / name)
        return content

    # The network

    def model_section(self) -> dict[str, Any]:
        """The recipe's [model]; what our gpt is not is refused."""
        config = self.config
        width, layers, heads, context = (self._number(key) for key in ("n_embd", "n_layer", "n_head", "n_positions"))
        fixed = ("layer_norm_epsilon", "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "add_cross_attention")
        able: dict[str, tuple[Any, ...]] = {key: (_DEFAULTS[key],) for key in fixed}
        able |= {"activation_function": tuple(_SAME), "n_inner": (None, 4 * width)}
        for key, values in able.items():
            if config[key] not in values:
                expected = " or ".join(map(json.dumps, values))
                raise InputError(
                    f"{self.folder / 'config.json'} has {key}={json.dumps(config[key])}, which gpt here cannot be. "
                    f"Expected {expected}."
                )
        if width % heads:
            raise self.damaged("config.json", f"n_embd={width} does not divide by n_head={heads}")
        drops = [config[key] for key in ("resid_pdrop", "embd_pdrop", "attn_pdrop")]
        if not all(isinstance(drop, int | float) and 0 <= drop < 1 for drop in drops):
            raise self.damaged("config.json", f"resid_pdrop, embd_pdrop and attn_pdrop are {drops}")
        if len(set(drops)) > 1:
            self.notes.append(f"dropout is {drops[0]} everywhere; it was {drops[1]} of sums, {drops[2]} of attention")
        section = {"layers": layers, "width": width, "heads": heads, "context": context, "dropout": float(drops[0])}
        activation, tied = _SAME[config["activation_function"]], bool(config["tie_word_embeddings"])
        return section | {"activation": activation, "tied": tied}

    def _number(self, key: str) -> int:
        value = self.config[key]
        if type(value) is not int or value < 1:
            raise self.damaged("config.json", f"{key} is {value!r}, not a whole number of 1 or more")
        return value

    def end(self, rows: int) -> int:
        """The id that ends a text, and begins it here."""
        found = self.config["eos_token_id"]
        end = found[0] if isinstance(found, list) and len(found) == 1 else found
        if type(end) is not int or not 0 <= end < max(rows, 1):
            raise self.damaged("config.json", f"eos_token_id is {found}, and there are vectors for {rows:,} tokens")
        if (begin := self.config["bos_token_id"]) not in (end, None):
            self.notes.append(f"a text begins with token {end} here, the one that ends it, and not with {begin}")
        return end

    def weights(self) -> dict[str, Tensor]:
        """All tensors by their names, without `transformer.`."""
        names = [_WEIGHTS]
        if not (self.folder / _WEIGHTS).exists():
            parts = self._json(_INDEX).get("weight_map")
            names = sorted(set(parts.values())) if isinstance(parts, dict) else []
            if not names or any(not isinstance(name, str) or Path(name).name != name for name in names):
                raise self.damaged(_INDEX, "it names no files of this folder")
        weights: dict[str, Tensor] = {}
        for name in names:
            try:
                weights |= load_file(self.folder / name)
            except (OSError, SafetensorError) as error:
                raise self.damaged(name, f"it is missing or no safetensors file ({error})") from None
            self.read.append(self.folder / name)
        return {name.removeprefix("transformer."): tensor for name, tensor in weights.items()}

    def tensors(self, config: Gpt.Config, sizes: Sizes, weights: dict[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
        """The weights of a Gpt; `rows` are those of the tokens, the end first."""
        names = _names(config.layers, config.tied)
        known = {*names.values(), "lm_head.weight"}
        if strange := sorted(name for name in weights if name not in known and not _MASKS.fullmatch(name)):
            raise self.damaged(_WEIGHTS, f"it holds {strange[0]}, which a GPT-2 of {config.layers} layers has not")
        with torch.device("meta"):
            shapes = {name: tensor.shape for name, tensor in Gpt(config, sizes).state_dict().items()}
        tensors = {}
        for ours, theirs in names.items():
            if theirs not in weights:
                raise self.damaged(_WEIGHTS, f"{theirs} is missing")
            found = weights[theirs]
            tensor = _turned(ours, found).float()
            if ours in ("vectors.weight", "head.weight") and len(tensor) == len(weights["wte.weight"]):
                tensor = _with_unk(tensor[rows])
            if tensor.shape != shapes[ours]:
                raise self.damaged(_WEIGHTS, f"{theirs} is {list(found.shape)}, which does not fit config.json")
            tensors[ours] = tensor.contiguous()
        return tensors

    # The tokens

    def tokens(self) -> _Tokens:
        """The tokenizer, of tokenizer.json or of the two files that were there before it."""
        if (self.folder / "tokenizer.json").exists():
            return self._tokenizer()
        vocab, path = self._json("vocab.json"), self.folder / "merges.txt"
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise self.damaged("merges.txt", f"it cannot be read ({error})") from None
        self.read.append(path)
        merges = [line.rstrip("\r").split(" ") for line in lines if line.strip() and not line.startswith("#version")]
        return self._checked(_Tokens(self.folder / "vocab.json", {}, merges, unicode_pattern()), vocab, [])

    def _tokenizer(self) -> _Tokens:
        file, path = self._json("tokenizer.json"), self.folder / "tokenizer.json"
        model, added = file.get("model"), file.get("added_tokens") or []
        if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict) or not model.get("merges"):
            raise self._other(path, "its model is not BPE")
        for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"):
            if model.get(key):
                raise self._other(path, f"it has {key}={json.dumps(model[key])}")
        if file.get("normalizer"):
            raise self._other(path, "it changes the text before it cuts it (normalizer)")
        split = _split_of(file.get("pre_tokenizer"))
        if not split:
            raise self._other(path, "it splits words otherwise (pre_tokenizer)")
        merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        return self._checked(_Tokens(path, {}, merges, split), model["vocab"], added)

    def _other(self, path: Path, reason: str) -> InputError:
        return InputError(f"{path} is not GPT-2's byte-level BPE: {reason}. Other tokens are not read.")

    def _checked(self, tokens: _Tokens, vocab: dict[str, Any], added: Any) -> _Tokens:
        """With the names of its ids, special ones among them, each spelt in letters that stand for bytes."""
        try:
            more = {token["content"]: token["id"] for token in added}
            spelt = {name: "".join(learn.byte_names()[byte] for byte in name.encode()) for name in more}
        except (TypeError, KeyError, AttributeError):
            raise self.damaged(tokens.path.name, "its added_tokens have no content and id") from None
        ids = [*vocab.values(), *(i for name, i in more.items() if name not in vocab)]
        names = [*vocab, *(spelt[name] for name in more if name not in vocab)]
        if not all(type(i) is int and i >= 0 for i in ids) or len(set(ids)) < len(ids) or len(set(names)) < len(names):
            raise self.damaged(tokens.path.name, "its ids are not whole numbers, or two tokens share one")
        tokens.ids.update(zip(ids, names, strict=True))
        return tokens

    def check_tokens(self, content: dict[str, Any], tokens: _Tokens) -> None:
        """What would make the tokenizer of the run fail later."""
        letters = learn.byte_names()
        names = set(content["model"]["vocab"]) - set(RESERVED)
        if missing := [letter for letter in letters if letter not in names]:
            raise self.damaged(tokens.path.name, f"{len(missing)} of the 256 bytes have no token")
        if strange := next((name for name in sorted(names) if not set(name) <= set(letters)), None):
            raise self._other(tokens.path, f"its token {strange!r} is not spelt in letters that stand for bytes")
        try:
            learn.library(content)
        except Exception as error:  # the library raises bare Exception
            raise self.damaged(tokens.path.name, f"the tokenizers library refuses it ({error})") from None


def _with_unk(rows_VD: Tensor) -> Tensor:
    """The rows of the tokens, the end first, and their mean as UNK in the second place."""
    mean_1D = rows_VD.double().mean(0, keepdim=True).float()
    return torch.cat([rows_VD[:1], mean_1D, rows_VD[1:]])


def _split_of(pre_tokenizer: Any) -> str:
    """The pattern of GPT-2's split, or of the same written out as a run's tokenizer has it; nothing if another."""
    if not isinstance(pre_tokenizer, dict):
        return ""
    if pre_tokenizer.get("type") == "ByteLevel" and pre_tokenizer.get("use_regex", True):
        return "" if pre_tokenizer.get("add_prefix_space", True) else unicode_pattern()
    inner = pre_tokenizer.get("pretokenizers")
    try:
        regex: str = inner[0]["pattern"]["Regex"]  # type: ignore[index]
        file_format.read(file_format.write("bpe", [], regex) | {"pre_tokenizer": pre_tokenizer})
    except (TypeError, KeyError, IndexError, ValueError):
        return ""
    return regex
