"""Write and read folders of Hugging Face's transformers: config.json, model.safetensors and a tokenizer.

The names of each model's weights and settings are in a file of its own (gpt2.py, marian.py). The tokens here are
GPT-2's. Their ids differ: there the text's tokens come first, and <|endoftext|>, which begins and ends a text, is the
last; here STOP is 0, UNK 1, and text begins at 2. So `order` gives our id for each of their ids. The tokens are
byte-level BPE on both sides, with the same split except for letters that are newer than the Unicode of this Python.
"""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from segue.data.atomic import atomic_folder
from segue.errors import InputError
from segue.interop.formats import model_type
from segue.runs import folder as files
from segue.tokens import file_format, learn
from segue.tokens.file_format import RESERVED, STOP, UNK
from segue.tokens.split import unicode_pattern
from segue.tokens.tokenizer import Tokenizer

END = "<|endoftext|>"
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
READ = "a GPT-2, BERT, RoBERTa, T5 or Marian model"
"""The models that are read."""
PREPEND = {"type": "Prepend", "prepend": " "}
"""What puts a blank before every text."""
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
_CONVERT = (
    "from transformers import {1} as M, AutoTokenizer as T; "
    "M.from_pretrained('{0}').save_pretrained('{0}-safe'); T.from_pretrained('{0}').save_pretrained('{0}-safe')"
)


# Writing


def order_of(tokenizer: Tokenizer) -> list[int]:
    """Return our id for each of their ids: the text's tokens, then UNK if the vocabulary is closed, then STOP."""
    return [*range(2, tokenizer.vocab_size), *([UNK] if tokenizer.closed else []), STOP]


def write_folder(
    folder: Path, config: dict[str, Any], tensors: dict[str, Tensor], tokenizer: Tokenizer, longest: int
) -> None:
    """Write all files of the folder, or none; `longest` is the context window."""
    order = order_of(tokenizer)
    written, end = _their_tokenizer(tokenizer, order)
    about = {"bos_token": end, "eos_token": end, "model_max_length": longest}
    about |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    # Without this list token types would be passed too, and GPT-2 would add the vector of token 0 everywhere.
    about["model_input_names"] = ["input_ids", "attention_mask"]
    last = len(order) - 1
    ends = {"bos_token_id": last, "eos_token_id": last}
    generation = ends | ({"suppress_tokens": [order.index(UNK)]} if tokenizer.closed else {})
    with atomic_folder(folder) as beside:
        files.write_json(beside / "config.json", config | ends)
        files.write_json(beside / "generation_config.json", generation)
        files.write_json(beside / "tokenizer.json", written)
        files.write_json(beside / "tokenizer_config.json", about)
        files.write_atomic(beside / WEIGHTS, save(tensors, {"format": "pt"}))


def _their_tokenizer(tokenizer: Tokenizer, order: list[int]) -> tuple[dict[str, Any], str]:
    """Make tokenizer.json with the ids in that order; also return the name of the end token, which begins a text."""
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


# Reading


def check_folder(folder: Path) -> None:
    """Refuse anything but a transformers folder with safetensors: pickle files can run code."""
    if folder.is_file() and folder.suffix in PICKLED:
        raise _pickled(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder. Expected one with config.json, {WEIGHTS} and a tokenizer.")
    if (folder / "recipe.toml").exists():
        raise InputError(f"{folder} is a run folder already: use it as it is. Expected one that transformers wrote.")
    if not (folder / WEIGHTS).exists() and not (folder / INDEX).exists():
        if found := sorted(path for path in folder.iterdir() if path.suffix in PICKLED):
            raise _pickled(found[0])
        raise InputError(f"{folder} holds no {WEIGHTS}. Expected the folder of {READ}, as `save_pretrained` writes it.")


def _pickled(path: Path) -> InputError:
    kinds = {"marian": "Seq2SeqLM", "bert": "PreTraining", "roberta": "PreTraining", "t5": "Seq2SeqLM"}
    opens = f"AutoModelFor{kinds.get(model_type(path.parent), 'CausalLM')}"
    return InputError(
        f"{path} is a pickle file, which can run anything when it is opened; it is not read here. Where you trust it, "
        f'convert it: python -c "{_CONVERT.format(path.parent, opens)}" and import {path.parent}-safe'
    )


class ByteLevelBpe(NamedTuple):
    """A byte-level BPE tokenizer: its file, the name of each id, the merges, the pattern that words are split by."""

    path: Path
    ids: dict[int, str]
    merges: list[list[str]]
    split: str
    row_blank: bool = False
    """Whether every text gets a blank in front."""


class Folder:
    """A folder that transformers wrote."""

    def __init__(self, path: Path, model_type: str) -> None:
        self.path = path
        self.read: list[Path] = []
        """The files that were read, for the ledger."""
        self.notes: list[str] = []
        self.config = self.json("config.json")
        if self.config.get("model_type") != model_type:
            raise InputError(
                f"{path / 'config.json'} has model_type={self.config.get('model_type')}. Expected gpt2, bert, roberta, "
                "t5 or marian: no other is read."
            )

    def damaged(self, name: str, reason: str) -> InputError:
        return InputError(f"{self.path / name} cannot be used: {reason}. Fetch or write the folder again.")

    def json(self, name: str) -> dict[str, Any]:
        try:
            content = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"{self.path} holds no {name}. Expected the folder of {READ}.") from None
        except (OSError, ValueError, RecursionError) as error:
            raise self.damaged(name, f"it is no JSON ({error})") from None
        if not isinstance(content, dict):
            raise self.damaged(name, "it holds no keys")
        if self.path / name not in self.read:
            self.read.append(self.path / name)
        return content

    def weights(self) -> dict[str, Tensor]:
        """Read all tensors by their names, from one file or from several that an index names."""
        names = [WEIGHTS]
        if not (self.path / WEIGHTS).exists():
            parts = self.json(INDEX).get("weight_map")
            found = list(parts.values()) if isinstance(parts, dict) else []
            names = sorted({name for name in found if isinstance(name, str) and Path(name).name == name})
            if not names or any(name not in names for name in found):
                raise self.damaged(INDEX, "it names no files of this folder")
        weights: dict[str, Tensor] = {}
        for name in names:
            try:
                weights |= load_file(self.path / name)
            except (OSError, SafetensorError) as error:
                raise self.damaged(name, f"it is missing or no safetensors file ({error})") from None
            self.read.append(self.path / name)
        return weights

    # The tokenizer

    def tokens(self, row_blank: bool | None = None) -> ByteLevelBpe:
        """Read the tokenizer from tokenizer.json, or from the two older files, vocab.json and merges.txt.

        `row_blank`: whether every text gets a blank in front, of which the older files say nothing; None: refuse it."""
        if (self.path / "tokenizer.json").exists():
            found = self._tokenizer()
            if found.row_blank and row_blank is None:
                raise self._other(
                    found.path, "it splits words otherwise (pre_tokenizer): it puts a blank before every text"
                )
            return found
        vocab, path = self.json("vocab.json"), self.path / "merges.txt"
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise self.damaged("merges.txt", f"it cannot be read ({error})") from None
        self.read.append(path)
        merges = [line.rstrip("\r").split(" ") for line in lines if line.strip() and not line.startswith("#version")]
        found = ByteLevelBpe(self.path / "vocab.json", {}, merges, unicode_pattern(), bool(row_blank))
        return self._checked(found, vocab, [])

    def _tokenizer(self) -> ByteLevelBpe:
        file, path = self.json("tokenizer.json"), self.path / "tokenizer.json"
        model, added = file.get("model"), file.get("added_tokens") or []
        if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict) or not model.get("merges"):
            raise self._other(path, "its model is not BPE")
        for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"):
            if model.get(key):
                raise self._other(path, f"it has {key}={json.dumps(model[key])}")
        cut: Any = file.get("pre_tokenizer")
        normalizer = file.get("normalizer")
        if normalizer not in (None, PREPEND):
            raise self._other(path, "it changes the text before it cuts it (normalizer)")
        split = _split_of(cut)
        if not split:
            raise self._other(path, "it splits words otherwise (pre_tokenizer)")
        merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        blank = normalizer == PREPEND or (cut["type"] == "ByteLevel" and cut.get("add_prefix_space", True))
        return self._checked(ByteLevelBpe(path, {}, merges, split, blank), model["vocab"], added)

    def about_tokens(self) -> dict[str, Any]:
        """Read tokenizer_config.json; {} if there is none."""
        return self.json("tokenizer_config.json") if (self.path / "tokenizer_config.json").exists() else {}

    def added_before(self, tokens: ByteLevelBpe) -> list[int]:
        """Return the ids that their tokenizer adds before a text, by the file that transformers asks: the
        post-processor of tokenizer.json or, where there is no such file, add_bos_token of tokenizer_config.json."""
        if tokens.path.name == "tokenizer.json":
            try:
                return _added_by(self.json("tokenizer.json").get("post_processor"))
            except (TypeError, KeyError, IndexError, ValueError):
                raise self.damaged("tokenizer.json", "its post_processor names no special tokens") from None
        about = self.about_tokens()
        begin = about.get("bos_token", END)
        name = begin.get("content") if isinstance(begin, dict) else begin
        return [i for i, known in tokens.ids.items() if about.get("add_bos_token") and known == name]

    def _other(self, path: Path, reason: str) -> InputError:
        return InputError(f"{path} is not GPT-2's byte-level BPE: {reason}. Other tokens are not read.")

    def _checked(self, tokens: ByteLevelBpe, vocab: dict[str, Any], added: Any) -> ByteLevelBpe:
        """Add the names of the ids, special tokens included, and check that they are spelt in byte letters."""
        try:
            more = {token["content"]: token["id"] for token in added}
            spelt = {name: "".join(learn.byte_names()[byte] for byte in name.encode()) for name in more}
        except (TypeError, KeyError, AttributeError, UnicodeEncodeError):
            raise self.damaged(tokens.path.name, "its added_tokens have no content and id") from None
        ids = [*vocab.values(), *(i for name, i in more.items() if name not in vocab)]
        names = [*vocab, *(spelt[name] for name in more if name not in vocab)]
        if not all(type(i) is int and i >= 0 for i in ids) or len(set(ids)) < len(ids) or len(set(names)) < len(names):
            raise self.damaged(tokens.path.name, "its ids are not whole numbers, or two tokens share one")
        tokens.ids.update(zip(ids, names, strict=True))
        return tokens

    def check_tokens(self, content: dict[str, Any], tokens: ByteLevelBpe) -> None:
        """Refuse what would make the run's tokenizer fail later."""
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


def _added_by(processor: Any) -> list[int]:
    """Return the ids that a post-processor adds before a text."""
    if not processor:
        return []
    if processor["type"] == "Sequence":
        return [i for one in reversed(processor["processors"]) for i in _added_by(one)]
    if processor["type"] in ("RobertaProcessing", "BertProcessing"):
        return [int(processor["cls"][1])]
    if processor["type"] != "TemplateProcessing":
        return []
    before = takewhile(lambda piece: "SpecialToken" in piece, processor["single"])
    return [int(i) for piece in before for i in processor["special_tokens"][piece["SpecialToken"]["id"]]["ids"]]


def _split_of(pre_tokenizer: Any) -> str:
    """Return the pattern of GPT-2's split, or the same as a run's tokenizer writes it; "" for any other."""
    if not isinstance(pre_tokenizer, dict):
        return ""
    if pre_tokenizer.get("type") == "ByteLevel" and pre_tokenizer.get("use_regex", True):
        return unicode_pattern()
    inner = pre_tokenizer.get("pretokenizers")
    try:
        regex: str = inner[0]["pattern"]["Regex"]  # type: ignore[index]
        file_format.read(file_format.write("bpe", [], regex) | {"pre_tokenizer": pre_tokenizer})
    except (TypeError, KeyError, IndexError, ValueError):
        return ""
    return regex
