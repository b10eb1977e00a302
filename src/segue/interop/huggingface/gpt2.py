"""GPT-2's weights and config in Hugging Face's format (its folder and tokenizer: folder.py).

The networks are the same. Rows of the tokens' vectors E change places, since the ids differ:

    in       STOP takes the row of the end, UNK the mean of all rows, the others follow in their order
    out      of a run that came in (origin.py): every row where it came from, UNK left out
             of others: the text's rows, then UNK where the tokens are closed, then STOP; of open tokens no text needs
             UNK

STOP is a mean too if eos_token_id is no row of theirs. Why the mean: the logit of UNK is then the mean of the V true
logits l, and sum of e^l >= V e^(mean of l) (Jensen), so that p(UNK) <= 1 / (V + 1) whatever the state. Logits of true
tokens are the same on both sides; a log p is lower here by at most log(1 + 1/V), 0.00002 at GPT-2's V. (A row of zeros
would take all where the true logits are below 0.)

Matrices stand there as input x output and are transposed. A text that spells <|endoftext|> is text here, and an end
there. In training every text begins with STOP here; GPT-2's own tokenizer adds nothing, and neither is a prompt of an
imported run fed anything more (decode.start=false). The tokenizer that is written of other runs adds it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from segue.data.files import describe_file
from segue.data.ledger import Ledger
from segue.errors import InputError
from segue.interop.huggingface.folder import WEIGHTS, ByteLevelBpe, Folder, check_folder, order_of, write_folder
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
from segue.models.gpt import Gpt
from segue.models.network import check_finite
from segue.recipe import load_recipe
from segue.runs import folder as files
from segue.runs.run import Run, load
from segue.tokens import file_format

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
"""Defaults of the keys of config.json."""
_PARTS = {
    "norm_attention": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "norm_feed": "ln_2",
    "feed.up": "mlp.c_fc",
    "feed.down": "mlp.c_proj",
}
"""Names of the parts of a layer: ours, theirs."""
_TABLES = {"vectors.weight": "wte.weight", "head.weight": "lm_head.weight"}
"""Tables with a row for each token."""
_MASKS = re.compile(r"h\.\d+\.attn\.(masked_)?bias")
"""Constants that older files keep among the weights."""


def _names(layers: int, tied: bool) -> dict[str, str]:
    """Map our tensor names to theirs (without the prefix `transformer.` that may stand before them)."""
    names = {"vectors.weight": "wte.weight", "positions.table.weight": "wpe.weight"}
    for kind in ("weight", "bias"):
        names[f"norm.{kind}"] = f"ln_f.{kind}"
        for i in range(layers):
            names |= {f"blocks.{i}.{ours}.{kind}": f"h.{i}.{theirs}.{kind}" for ours, theirs in _PARTS.items()}
    return names if tied else names | {"head.weight": "lm_head.weight"}


def _turned(name: str, tensor: Tensor) -> Tensor:
    """Transpose the matrices of layers; return other tensors unchanged."""
    return tensor.T if name.startswith("blocks.") and tensor.dim() == 2 else tensor


# Export


def export_gpt2(run: Path, folder: Path) -> list[str]:
    """Write a gpt run as a folder for transformers (GPT2LMHeadModel); return notes for the user.

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
    origin = origin_of(run)
    if origin is not None and origin.config.get("model_type") == "gpt2":
        return _export_back(loaded, folder, origin)
    order = order_of(tokenizer)
    tensors, weights = {}, loaded.model.state_dict()
    for ours, theirs in _names(config.layers, config.tied).items():
        tensor = weights[ours]
        tensor = tensor[order] if ours in _TABLES else _turned(ours, tensor)
        tensors[theirs if theirs.startswith("lm_head.") else f"transformer.{theirs}"] = tensor.contiguous()
    write_folder(folder, _their_config(config, len(order)), tensors, tokenizer, config.context)
    if tokenizer.kind == "bpe":
        return []
    return [f"Its tokens are of kind {tokenizer.kind}: transformers reads them, `segue import` reads GPT-2's alone."]


def _export_back(run: Run, folder: Path, origin: Origin) -> list[str]:
    """Write an imported model, or one that was trained on from it, with the ids and files that it came with."""
    config, weights, theirs = run.model.config, run.model.state_dict(), _Gpt2(run.path / files.ORIGIN)
    names = {name: ours for ours, name in _names(config.layers, config.tied).items()}
    before = theirs.model_section()
    if not config.tied:  # perhaps only since it is trained here
        origin = origin._replace(types={"lm_head.weight": "float32"} | origin.types)
    elif not (before["tied"] and "lm_head.weight" in origin.rest):  # theirs may have a copy of the tied table
        names["lm_head.weight"] = "vectors.weight"
    tensors, table = dict(origin.rest), next((n for n in origin.rest if n.endswith("wte.weight")), "")
    for name in origin.types:
        ours = names.get(name.removeprefix("transformer."), "")
        if ours in _TABLES:
            left = origin.rest.get(name if name in origin.rest else table, weights[ours][:0])
            tensors[name] = rows_back(weights[ours], origin.ids, left)
        elif ours:
            tensors[name] = _turned(ours, weights[ours])
    now = origin.config
    if any(value != vars(config)[key] for key, value in before.items()):
        now |= {key: value for key, value in _their_config(config, 0).items() if key in _DEFAULTS}
    notes = write_back(folder, origin, now, tensors)
    if run.recipe.decode.start and not theirs.added_before(theirs.tokens()):
        notes.append("Trained here, it saw the start mark before each text; its tokenizer, as it came, adds none.")
    return notes


def _inexpressible(config: Gpt.Config) -> str:
    """Return the first setting that Hugging Face's GPT-2 cannot express, or ""."""
    for name, own, means in (
        ("norm", "pre", "normalises before each part of a layer"),
        ("residual", True, "adds what goes into each part of a layer to what comes out"),
        ("position", "learned", "has a learned vector for each place"),
        ("attention", "scaled", "divides the scores of queries and keys by sqrt(d_k)"),
        ("mix_heads", True, "mixes the heads by a matrix"),
    ):
        if (value := vars(config)[name]) != own:
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


# Import


def import_gpt2(folder: Path, out: Path) -> list[str]:
    """Make a run folder from a GPT-2 of transformers, whole or not at all; return notes for the user."""
    check_free(out)
    check_folder(folder)
    theirs = _Gpt2(folder)
    read = theirs.own_tokens()
    config, raw = theirs.model_section(), theirs.weights()
    weights = theirs.own_weights(raw)
    rows = len(weights["wte.weight"]) if "wte.weight" in weights else 0
    end = theirs.end(rows)
    text = [i for i in sorted(read.ids) if i != end]
    if not rows or (text and text[-1] >= rows):
        largest = f"{read.path.name} gives the id {max(text):,}"
        raise theirs.damaged(WEIGHTS, f"it has vectors for {rows:,} tokens, and {largest}")
    ids = [end, NONE, *text]
    if nameless := rows - len({end, *text} - {NONE}):
        theirs.notes.append(f"{nameless:,} rows without a token are left out here, and kept for export")
    recipe = load_recipe(
        "gpt",
        base={
            "data": {"path": str(folder / "config.json"), "validation": 0.0, "test": 0.0},
            "tokens": {"kind": "bpe", "vocab_size": len(ids)},
            "batches": {"length": min(128, config["context"])},
            "model": config,
            "decode": {"start": theirs.starts(read, end)},
        },
    )
    sizes = Sizes(len(ids))
    tensors = theirs.tensors(recipe.model, sizes, weights, ids)
    content = file_format.write("bpe", [read.ids[i] for i in text], read.split, merges=read.merges)
    theirs.check_tokens(content, read)
    origin = origin_from(folder, ids, _rest(raw, ids, recipe.model.tied), raw)
    ledger = Ledger(files=[describe_file(path) for path in theirs.read])
    for note in theirs.notes:
        ledger.note(note, str(folder))
    parameters = sum(tensor.numel() for tensor in tensors.values())

    def write_weights(out: Path) -> None:
        files.write_atomic(out / WEIGHTS, save(tensors))
        keep(out, origin)

    return write_imported_run(out, recipe, sizes, content, ledger, folder, parameters, write_weights)


def _rest(raw: dict[str, Tensor], ids: list[int], tied: bool) -> dict[str, Tensor]:
    """Return their tensors that have no place here: rows without a token, masks, and a head where it is tied and yet
    differs from the vectors."""
    names = {name.removeprefix("transformer."): name for name in raw}
    tables = [names[name] for name in _TABLES.values() if name in names and not (tied and name == "lm_head.weight")]
    rest = {name: rows_left(raw[name], ids) for name in tables}
    if tied and "lm_head.weight" in raw and not torch.equal(raw["lm_head.weight"], raw[names["wte.weight"]]):
        rest["lm_head.weight"] = raw["lm_head.weight"]
    return rest | {whole: raw[whole] for name, whole in names.items() if _MASKS.fullmatch(name)}


class _Gpt2(Folder):
    """The folder of a GPT-2."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "gpt2")
        self.config = _DEFAULTS | {"n_positions": self.config.get("n_ctx", 1024)} | self.config

    def model_section(self) -> dict[str, Any]:
        """Return the recipe's [model]; refuse settings that our gpt does not have."""
        config = self.config
        width, layers, heads, context = (self._number(key) for key in ("n_embd", "n_layer", "n_head", "n_positions"))
        fixed = ("layer_norm_epsilon", "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "add_cross_attention")
        able: dict[str, tuple[Any, ...]] = {key: (_DEFAULTS[key],) for key in fixed}
        able |= {"activation_function": tuple(_SAME), "n_inner": (None, 4 * width)}
        for key, values in able.items():
            if config[key] not in values:
                expected = " or ".join(map(json.dumps, values))
                raise InputError(
                    f"{self.path / 'config.json'} has {key}={json.dumps(config[key])}, which gpt here cannot be. "
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

    def own_tokens(self) -> ByteLevelBpe:
        """Read the tokenizer; refuse one that puts a blank before every text."""
        if self.about_tokens().get("add_prefix_space"):
            raise InputError(
                f"{self.path / 'tokenizer_config.json'} has add_prefix_space=true, so that every text gets a blank in "
                "front, which a gpt here cannot do. Expected false."
            )
        return self.tokens()

    def end(self, rows: int) -> int:
        """Return the id that ends a text, which here begins one in training; NONE if no row of theirs is it."""
        found = self.config["eos_token_id"]
        end = found[0] if isinstance(found, list) and len(found) == 1 else found
        if type(end) is not int or not 0 <= end < max(rows, 1):
            said = f"eos_token_id={json.dumps(found)} is no row of its {rows:,} vectors"
            self.notes.append(f"{said}: no token of its own ends a text, STOP is the mean of all rows")
            return NONE
        if (begin := self.config["bos_token_id"]) not in (end, None):
            self.notes.append(f"the start mark is token {end} here, the one that ends a text, and not {begin}")
        return end

    def starts(self, tokens: ByteLevelBpe, end: int) -> bool:
        """Whether the start mark is fed before a prompt, as their tokenizer does (decode.start)."""
        before = self.added_before(tokens)
        if before not in ([], [end]):
            self.notes.append(f"its tokenizer begins a text with {before}; here it begins with {end}")
        return bool(before)

    def own_weights(self, raw: dict[str, Tensor]) -> dict[str, Tensor]:
        """Name all tensors without the prefix `transformer.`, and check them."""
        weights = {name.removeprefix("transformer."): tensor for name, tensor in raw.items()}
        try:
            check_finite(weights)
        except ValueError as error:
            raise self.damaged(WEIGHTS, str(error)) from None
        if flat := next((n for n, tensor in weights.items() if not tensor.dim() and not _MASKS.fullmatch(n)), None):
            raise self.damaged(WEIGHTS, f"{flat} is a single number")
        return weights

    def tensors(
        self, config: Gpt.Config, sizes: Sizes, weights: dict[str, Tensor], ids: list[int]
    ) -> dict[str, Tensor]:
        """Return the weights of a Gpt; `ids` are theirs of each of ours."""
        names = _names(config.layers, config.tied)
        known = {*names.values(), "lm_head.weight"}
        if strange := sorted(name for name in weights if name not in known and not _MASKS.fullmatch(name)):
            raise self.damaged(WEIGHTS, f"it holds {strange[0]}, which a GPT-2 of {config.layers} layers has not")
        with torch.device("meta"):
            shapes = {name: tensor.shape for name, tensor in Gpt(config, sizes).state_dict().items()}
        tensors = {}
        for ours, theirs in names.items():
            if theirs not in weights:
                raise self.damaged(WEIGHTS, f"{theirs} is missing")
            found = weights[theirs]
            tensor = _turned(ours, found).float()
            if ours in _TABLES and len(tensor) == len(weights["wte.weight"]):
                tensor = _our_rows(tensor, ids)
            if tensor.shape != shapes[ours]:
                raise self.damaged(WEIGHTS, f"{theirs} is {list(found.shape)}, which does not fit config.json")
            tensors[ours] = tensor.contiguous()
        return tensors


def _our_rows(table_VD: Tensor, ids: list[int]) -> Tensor:
    """Take our rows from their table: by their ids, and the mean of all where they have none."""
    known = table_VD[[i for i in ids if i != NONE]]
    rows_VD = table_VD[ids]
    rows_VD[torch.tensor(ids) == NONE] = known.double().mean(0).float()
    return rows_VD
