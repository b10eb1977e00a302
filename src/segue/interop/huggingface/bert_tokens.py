"""The tokens of BERT and RoBERTa in folders of transformers, read and written.

In: tokenizer.json, or vocab.txt (BERT: one piece a line), or vocab.json with merges.txt (RoBERTa). The pieces are the
same; ids take the order that every run has, and `Tokens.ids` says which was theirs:

    here     STOP          UNK              the text's in their order, [PAD] and     start         mask
                                            [unused1] among them: no text has these
    BERT     [SEP]         [UNK]                                                     [CLS]         [MASK]
    RoBERTa  </s>          <unk>                                                     <s>           <mask>

A text that spells [MASK] is text here; there it is the mask. Out: the ids as BERT's or RoBERTa's have them, with one
for padding, which no text has.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

from segue.errors import InputError
from segue.interop.huggingface.folder import PREPEND, Folder
from segue.interop.huggingface.origin import NONE
from segue.tokens import file_format, learn
from segue.tokens.file_format import STOP, UNK, Kind
from segue.tokens.tokenizer import Tokenizer

Style = Literal["bert", "roberta"]
MARKS = ("start", "mask")
PAD = NONE
"""In place of an id of ours, in `their_ids`: none here is for padding."""
_KEYS = {"start": "cls_token", "stop": "sep_token", "unk": "unk_token", "mask": "mask_token", "pad": "pad_token"}
"""What a special token is for, and its key in tokenizer_config.json."""
_NAMES: dict[Style, dict[str, str]] = {
    "bert": {"start": "[CLS]", "stop": "[SEP]", "unk": "[UNK]", "mask": "[MASK]", "pad": "[PAD]"},
    "roberta": {"start": "<s>", "stop": "</s>", "unk": "<unk>", "mask": "<mask>", "pad": "<pad>"},
}
_SAID = {"do_lower_case": "lowercase", "strip_accents": "strip_accents"}
_SAID |= {"tokenize_chinese_chars": "handle_chinese_chars"}
"""Keys of tokenizer_config.json, and of the normaliser."""
_MODEL = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}


class Tokens(NamedTuple):
    """The tokens of a folder, as a run has them."""

    kind: Kind
    content: dict[str, Any]
    """What tokenizer.json of the run holds."""
    ids: list[int]
    """Their id of each of our ids, the vocabulary's and then the marks'; -1: none there."""


# Reading


def read_tokens(folder: Folder, style: Style) -> Tokens:
    """Read the tokenizer of a folder, whichever of the two kinds it is."""
    about = folder.about_tokens()
    names = _special_names(folder, about, style)
    if _has_wordpieces(folder):
        path, pieces, normalizer = _read_wordpieces(folder, about, names["unk"])
        ids, texts = _in_our_order(folder, path, pieces, names)
        content = file_format.write("wordpiece", texts, normalizer=normalizer)
        _check(folder, path, content)
        return Tokens("wordpiece", content, ids)
    read = folder.tokens(row_blank=bool(about.get("add_prefix_space")))
    ids, texts = _in_our_order(folder, read.path, read.ids, names)
    content = file_format.write("bpe", texts, read.split, merges=read.merges, row_blank=read.row_blank)
    folder.check_tokens(content, read)
    return Tokens("bpe", content, ids)


def _special_names(folder: Folder, about: dict[str, Any], style: Style) -> dict[str, str]:
    """Return the name of each special token: as the files have it, or as it mostly is."""
    older = folder.path / "special_tokens_map.json"
    said = (folder.json(older.name) if older.exists() else {}) | about
    names = dict(_NAMES[style])
    for role, key in _KEYS.items():
        found = said.get(key)
        name = found.get("content") if isinstance(found, dict) else found
        names[role] = name if isinstance(name, str) else names[role]
    return names


def _in_our_order(
    folder: Folder, path: Path, pieces: dict[int, str], names: dict[str, str]
) -> tuple[list[int], list[str]]:
    """Return their ids in our order, and the pieces from our id 2 on."""
    id_of = {piece: i for i, piece in pieces.items()}
    special = {role: id_of.get(names[role], NONE) for role in ("stop", "unk", *MARKS)}
    for role in ("start", "stop"):
        if special[role] == NONE:
            raise folder.damaged(path.name, f"it has no token {names[role]}, which frames every text")
    found = [i for i in special.values() if i != NONE]
    if len(set(found)) < len(found):
        raise folder.damaged(path.name, f"two of {', '.join(names.values())} are the same token")
    if special["mask"] == NONE:
        folder.notes.append(f"it has no token {names['mask']}: the mask begins as zeros, and fill cannot be trusted")
    text = [i for i in sorted(pieces) if i not in found]
    ids = [special["stop"], special["unk"], *text, *(special[mark] for mark in MARKS)]
    return ids, [pieces[i] for i in text]


def _has_wordpieces(folder: Folder) -> bool:
    if not (folder.path / "tokenizer.json").exists():
        return not (folder.path / "vocab.json").exists()
    model = folder.json("tokenizer.json").get("model")
    return isinstance(model, dict) and "merges" not in model


def _read_wordpieces(folder: Folder, about: dict[str, Any], unk: str) -> tuple[Path, dict[int, str], dict[str, Any]]:
    """Return the file, the piece of each id and the settings of the normaliser, on which tokenizer_config.json has the
    last word, as in transformers."""
    said = {ours: about[theirs] for theirs, ours in _SAID.items() if theirs in about}
    if (folder.path / "tokenizer.json").exists():
        pieces, normalizer = _from_tokenizer(folder, unk)
        return folder.path / "tokenizer.json", pieces, normalizer | said
    path = folder.path / "vocab.txt"
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise folder.damaged(path.name, f"it is missing or no text ({error}), and there is no tokenizer.json") from None
    folder.read.append(path)
    vocab = {piece: i for i, piece in enumerate(lines[:-1] if lines[-1] == "" else lines)}
    return path, {i: piece for piece, i in vocab.items()}, file_format.BERT | {"lowercase": True} | said


def _from_tokenizer(folder: Folder, unk: str) -> tuple[dict[int, str], dict[str, Any]]:
    """Read tokenizer.json; refuse what wordpiece tokens cannot be here."""
    file, path = folder.json("tokenizer.json"), folder.path / "tokenizer.json"
    model, normalizer, cut = (file.get(key) for key in ("model", "normalizer", "pre_tokenizer"))
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise _other(path, "its model is neither WordPiece nor BPE")
    for key, value in (_MODEL | {"unk_token": unk}).items():
        if model.get(key, value) != value:
            raise _other(path, f"it has {key}={json.dumps(model[key])}, where {json.dumps(value)} was expected")
    if not isinstance(normalizer, dict) or normalizer.get("type") != "BertNormalizer":
        raise _other(path, "it changes the text in another way before it cuts it (normalizer)")
    if not isinstance(cut, dict) or cut.get("type") != "BertPreTokenizer":
        raise _other(path, "it splits words otherwise (pre_tokenizer)")
    try:
        more = {token["content"]: token["id"] for token in file.get("added_tokens") or []}
    except (TypeError, KeyError):
        raise folder.damaged(path.name, "its added_tokens have no content and id") from None
    vocab = more | model["vocab"]
    if not all(type(i) is int and i >= 0 for i in vocab.values()) or len(set(vocab.values())) < len(vocab):
        raise folder.damaged(path.name, "its ids are not whole numbers, or two tokens share one")
    if added := [name for name in more if name not in model["vocab"]]:
        folder.notes.append(f"{len(added):,} tokens that were added are cut as any text is: {', '.join(added[:3])}")
    return {i: piece for piece, i in vocab.items()}, {
        key: normalizer.get(key, value) for key, value in file_format.BERT.items()
    }


def _other(path: Path, reason: str) -> InputError:
    return InputError(f"{path} is not BERT's WordPiece: {reason}. Other tokens are not read.")


def _check(folder: Folder, path: Path, content: dict[str, Any]) -> None:
    """Refuse what would make the run's tokenizer fail later."""
    try:
        file_format.read(content)
        learn.library(content)
    except Exception as error:  # the library raises bare Exception
        raise folder.damaged(path.name, f"its vocabulary or its settings cannot be read ({error})") from None


# Writing


def their_ids(tokenizer: Tokenizer, style: Style) -> list[int]:
    """Return our id of each of their ids, marks after the vocabulary; PAD: the one for padding, which none here has."""
    text, (start, mask) = range(2, tokenizer.vocab_size), (tokenizer.vocab_size, tokenizer.vocab_size + 1)
    if style == "bert":
        return [PAD, UNK, start, STOP, mask, *text]
    return [start, PAD, STOP, UNK, *text, mask]


def write_tokens(
    tokenizer: Tokenizer, style: Style, separators: int, longest: int, rows: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make tokenizer.json and tokenizer_config.json; `rows`: texts get a blank in front where those of a run do."""
    if tokenizer.kind == "sentencepiece":
        raise InputError("SentencePiece tokens have no form in tokenizer.json. Export the run with --to zip.")
    _, names, _ = file_format.read(tokenizer.content)
    special = {role: free_name(name, names) for role, name in _NAMES[style].items()}
    order = their_ids(tokenizer, style)
    own = {STOP: special["stop"], UNK: special["unk"], PAD: special["pad"]}
    own |= {tokenizer.vocab_size: special["start"], tokenizer.vocab_size + 1: special["mask"]}
    named = [own.get(i) or names[i] for i in order]
    model = their_model(tokenizer.content["model"], named, order, special["unk"])
    content = tokenizer.content | {"model": model, "post_processor": _template(named, special, separators)}
    content["added_tokens"] = [added_token(named.index(name), name) for name in special.values()]
    if tokenizer.kind in ("bpe", "unigram", "word"):  # a mask takes the blank that belongs to its token
        content["added_tokens"][list(special).index("mask")]["lstrip"] = True
    if rows and tokenizer.row("a") != "a" and tokenizer.kind != "wordpiece":
        content["normalizer"] = PREPEND
    inputs = ["input_ids", *(["token_type_ids"] if style == "bert" else []), "attention_mask"]
    about: dict[str, Any] = {key: special[role] for role, key in _KEYS.items()} | {"model_input_names": inputs}
    about |= {"model_max_length": longest, "clean_up_tokenization_spaces": False}
    return content, about | {"tokenizer_class": "PreTrainedTokenizerFast"}


def their_model(ours: dict[str, Any], named: list[str], order: list[int], unk: str) -> dict[str, Any]:
    """Return the model of tokenizer.json with these names, in their order."""
    if isinstance(ours["vocab"], list):
        scores = dict(enumerate(score for _, score in ours["vocab"]))
        vocab = [[name, scores.get(i, 0.0)] for name, i in zip(named, order, strict=True)]
        return ours | {"vocab": vocab, "unk_id": order.index(UNK)}
    vocab_of = {name: place for place, name in enumerate(named)}
    return ours | {"vocab": vocab_of, "unk_token": unk if ours.get("unk_token") else None}


def free_name(name: str, names: list[str]) -> str:
    """Return a name that no token of the text has."""
    while name in names:
        name = f"<{name}>"
    return name


def added_token(i: int, name: str) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": i, "content": name, "special": True} | flags


def _template(named: list[str], special: dict[str, str], separators: int) -> dict[str, Any]:
    """Make the frame: start A STOP, and for a pair STOP ... B STOP after it."""
    start, stop = special["start"], special["stop"]

    def token(name: str, kind: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": name, "type_id": kind}}

    first: list[dict[str, Any]] = [token(start, 0), {"Sequence": {"id": "A", "type_id": 0}}, token(stop, 0)]
    between = [token(stop, 0)] * (separators - 1)
    second = [*first, *between, {"Sequence": {"id": "B", "type_id": 1}}, token(stop, 1)]
    known = {name: {"id": name, "ids": [named.index(name)], "tokens": [name]} for name in (start, stop)}
    return {"type": "TemplateProcessing", "single": first, "pair": second, "special_tokens": known}
