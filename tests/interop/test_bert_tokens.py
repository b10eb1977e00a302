"""Tokens of BERT and RoBERTa: those of transformers, whatever the text, in and out."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, BertTokenizer, RobertaTokenizer

from segue.errors import InputError
from segue.interop.huggingface.bert_tokens import MARKS, Style, Tokens, read_tokens, their_ids, write_tokens
from segue.interop.huggingface.folder import Folder
from segue.tokens.file_format import KINDS, Kind
from segue.tokens.tokenizer import Config, Tokenizer, _of

TEXTS = [
    "Paris is the capital of France, isn't it? A naïve café, 20 % off.",
    "Η Αθήνα είναι η πρωτεύουσα. Привет, мир! Grüße aus Köln; ÅNGSTRÖM.",
    "北京是中国的首都。東京は日本の首都です。 서울은 대한민국의 수도",
    "def f(x):\n\treturn x['a'] + 1  # 😀 naïve\u0301",
]
SPECIAL = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SETTINGS: dict[str, dict[str, Any]] = {
    "uncased": {"do_lower_case": True},
    "cased": {"do_lower_case": False},
    "accents kept": {"do_lower_case": True, "strip_accents": False},
    "accents stripped": {"do_lower_case": False, "strip_accents": True},
    "chinese in words": {"do_lower_case": False, "tokenize_chinese_chars": False},
}
LETTERS = sorted(set("".join(TEXTS)) | set("[]< >_-\u00a0\u200b\u3000\x00\ufffd"))
ANY_TEXT = st.text(st.sampled_from(LETTERS), max_size=40) | st.text(max_size=20)


@cache
def wordpieces() -> dict[str, int]:
    library = Library(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=False)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=500, special_tokens=SPECIAL, show_progress=False)
    library.train_from_iterator([*TEXTS, *(text.lower() for text in TEXTS)], trainer)
    return {piece: i for i, piece in enumerate(sorted(library.get_vocab(), key=library.get_vocab().__getitem__))}


@cache
def merges() -> tuple[dict[str, int], list[tuple[str, str]]]:
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(
        **{"vocab_size": 400, "special_tokens": special, "show_progress": False},
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    library.train_from_iterator(TEXTS, trainer)
    model = json.loads(library.to_str())["model"]
    return model["vocab"] | {"<mask>": len(model["vocab"])}, [tuple(pair) for pair in model["merges"]]


def read_from(path: Path, name: str, form: str = "tokenizer.json") -> tuple[Any, Tokens, Tokenizer]:
    """Their tokenizer, saved in one of two forms and read from there, and ours."""
    style: Style = "roberta" if name.startswith("roberta") else "bert"
    (path / "config.json").write_text(json.dumps({"model_type": style}))
    if style == "roberta":
        vocab, pairs = merges()
        about = {"add_prefix_space": "blank" in name}
        RobertaTokenizer(vocab=vocab, merges=pairs, **about).save_pretrained(path)
        older = {"vocab.json": json.dumps(vocab), "merges.txt": "\n".join(["#version: 0.2", *map(" ".join, pairs)])}
    else:
        vocab, about = wordpieces(), SETTINGS[name]
        BertTokenizer(vocab=vocab, **about).save_pretrained(path)
        older = {"vocab.txt": "\n".join(vocab) + "\n"}
    if form == "older files":
        (path / "tokenizer.json").unlink()
        for file, content in older.items():
            (path / file).write_text(content, encoding="utf-8")
        (path / "tokenizer_config.json").write_text(json.dumps(about))
    tokens = read_tokens(Folder(path, style), style)
    return AutoTokenizer.from_pretrained(path), tokens, _of(tokens.content)


@pytest.mark.parametrize("form", ["tokenizer.json", "older files"])
@pytest.mark.parametrize("name", [*SETTINGS, "roberta"])
def test_the_same_tokens_for_any_text(name: str, form: str, tmp_path: Path) -> None:
    theirs, tokens, ours = read_from(tmp_path, name, form)

    @settings(max_examples=25, deadline=None, database=None, derandomize=True)
    @given(ANY_TEXT)
    def same(text: str) -> None:
        found = [tokens.ids[i] for i in ours.encode(text).tolist()]
        assert found == theirs(text, add_special_tokens=False)["input_ids"]

    for text in TEXTS:
        same.hypothesis.inner_test(text)  # type: ignore[attr-defined]
    same()


def test_ids_are_in_the_order_of_a_run(tmp_path: Path) -> None:
    theirs, tokens, ours = read_from(tmp_path, "uncased")
    special = ["[SEP]", "[UNK]", "[CLS]", "[MASK]"]
    names = theirs.convert_ids_to_tokens(tokens.ids)
    assert [*names[:2], *names[-len(MARKS) :]] == special
    assert sorted(tokens.ids) == list(range(len(theirs))) and tokens.ids[2:-2] == sorted(tokens.ids[2:-2])
    assert ours.vocab_size == len(theirs) - len(MARKS) and ours.kind == "wordpiece" and not ours.lossless
    # Specials are ids that no text makes, spelt out or not.
    made = set(ours.encode(" ".join(SPECIAL)).tolist())
    assert not made & {tokens.ids.index(theirs.convert_tokens_to_ids(name)) for name in ("[PAD]", "[unused0]", "[SEP]")}


@pytest.mark.parametrize("name", ["roberta", "roberta with a blank"])
def test_rows_are_fed_as_their_tokenizer_feeds_them(name: str, tmp_path: Path) -> None:
    theirs, tokens, ours = read_from(tmp_path, name)
    for text in TEXTS:
        found = [tokens.ids[i] for i in ours.encode(ours.row(text)).tolist()]
        assert found == theirs(text, add_special_tokens=False)["input_ids"]
    assert ours.row("a") == (" a" if "blank" in name else "a")


DAMAGES: dict[str, tuple[Any, str]] = {
    "another model": (lambda f: f["model"].update(type="WordLevel", vocab=[]), "neither WordPiece nor BPE"),
    "prefix": (lambda f: f["model"].update(continuing_subword_prefix="@@"), 'continuing_subword_prefix="@@"'),
    "long words": (lambda f: f["model"].update(max_input_chars_per_word=50), "max_input_chars_per_word=50"),
    "normaliser": (lambda f: f.update(normalizer={"type": "Lowercase"}), "changes the text in another way"),
    "split": (lambda f: f.update(pre_tokenizer={"type": "Whitespace"}), "splits words otherwise"),
    "shared id": (lambda f: f["model"]["vocab"].update({"q": 7, "r": 7}), "two tokens share one"),
    "no start": (
        lambda f: (f["model"]["vocab"].pop("[CLS]"), f.update(added_tokens=[])),
        "no token [CLS], which frames every text",
    ),
    "added": (lambda f: f.update(added_tokens=[3]), "no content and id"),
    "values": (lambda f: f["normalizer"].update(clean_text="yes"), "cannot be read"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_other_tokens_are_refused(tmp_path: Path, damage: str) -> None:
    BertTokenizer(vocab=wordpieces()).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    file = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    change, message = DAMAGES[damage]
    change(file)
    (tmp_path / "tokenizer.json").write_text(json.dumps(file), encoding="utf-8")
    with pytest.raises(InputError, match=message.replace("[", r"\[")):
        read_tokens(Folder(tmp_path, "bert"), "bert")


def test_a_folder_without_tokens_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(InputError, match=r"vocab\.txt cannot be used: it is missing"):
        read_tokens(Folder(tmp_path, "bert"), "bert")


@pytest.mark.parametrize("style", ["bert", "roberta"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "sentencepiece"])
def test_tokens_of_a_run_go_out(kind: Kind, style: Style, tmp_path: Path) -> None:
    size = {"bpe": 300, "unigram": 300, "wordpiece": 200}.get(kind, 0)
    ours = Tokenizer.train(Config(kind=kind, vocab_size=size, min_count=1), TEXTS)
    for rows in (False, True):
        content, about = write_tokens(ours, style, 2 if style == "roberta" else 1, 64, rows)
        (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")
        theirs, order = AutoTokenizer.from_pretrained(tmp_path), their_ids(ours, style)
        start, stop = ours.vocab_size, ours.stop
        for text in [*TEXTS, "x"]:
            ids = ours.encode(ours.row(text) if rows else text).tolist()
            assert [order[i] for i in theirs(text)["input_ids"]] == [start, *ids, stop]
        pair = theirs(TEXTS[0], "x")
        middle = [stop] * (2 if style == "roberta" else 1)
        first, second = (ours.encode(ours.row(text) if rows else text).tolist() for text in (TEXTS[0], "x"))
        assert [order[i] for i in pair["input_ids"]] == [start, *first, *middle, *second, stop]
        if style == "bert":
            assert pair["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
        assert order[theirs.mask_token_id] == ours.vocab_size + 1 and order[theirs.pad_token_id] == -1
