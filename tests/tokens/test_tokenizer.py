"""Tokenizers: exact round trips, bytes that add up, files that the library reads to the same ids."""

from __future__ import annotations

import json
import os
import pydoc_data.topics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.errors import InputError
from segue.tokens import learn
from segue.tokens.file_format import KINDS, RESERVED, Kind
from segue.tokens.tokenizer import REPLACEMENT, Config, Tokenizer

CORPUS = pydoc_data.topics.topics["assignment"].splitlines() + ["Ärger über 42 naïve 🙂 cafés", "日本語の本"] * 2
SPECIAL = ["<stop>", "<unk>", "</s>", "[UNK]", "[CLS]", "<|endoftext|>", "##ing", *RESERVED]
OPEN: list[Kind] = ["byte", "bpe", "unigram"]
LOSSLESS: list[Kind] = [kind for kind in KINDS if kind not in ("wordpiece", "sentencepiece")]
TEXTS = st.lists(st.one_of(st.text(max_size=12), st.sampled_from([*SPECIAL, " ", "\n", " the", "value"]))).map("".join)


def trained(kind: Kind, texts: list[str] = CORPUS, vocab_size: int = 0, min_count: int = 1) -> Tokenizer:
    size = vocab_size or {"bpe": 500, "unigram": 400, "wordpiece": 300, "sentencepiece": 300}.get(kind, 0)
    return Tokenizer.train(Config(kind, size, min_count), texts)


TOKENIZERS = {kind: trained(kind) for kind in KINDS}


def canonical(text: str, kind: Kind) -> str:
    """What `data/` makes of text for space tokens."""
    return " ".join(word for word in text.split(" ") if word) if kind == "space" else text


# What every kind promises


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_in_range_and_text_is_never_stop(kind: Kind) -> None:
    tokenizer = TOKENIZERS[kind]
    for text in [*CORPUS, *SPECIAL, "Ж ж"]:
        ids = tokenizer.encode(text)
        assert ids.dtype == np.int32
        assert ((ids > 0) & (ids < tokenizer.vocab_size)).all()
        assert tokenizer.closed or (ids > 1).all()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "sentencepiece"])
def test_the_library_gives_the_same_ids(kind: Kind, tmp_path: Path) -> None:
    ours = TOKENIZERS[kind]
    ours.save(tmp_path / "tokenizer.json")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))

    @given(TEXTS)
    def same(text: str) -> None:
        assert ours.encode(text).tolist() == theirs.encode(text).ids

    same()
    if ours.lossless:
        assert theirs.decode(ours.encode(CORPUS[0]).tolist()) == CORPUS[0]


@pytest.mark.parametrize("kind", KINDS)
def test_save_and_load_give_the_same(kind: Kind, tmp_path: Path) -> None:
    first = TOKENIZERS[kind]
    first.save(tmp_path / "tokenizer.json")
    second = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (second.kind, second.vocab_size) == (first.kind, first.vocab_size)
    for text in [*CORPUS, *SPECIAL]:
        assert second.encode(text).tolist() == first.encode(text).tolist()
    ids = range(first.vocab_size)
    assert second.decode(ids) == first.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(TEXTS, max_size=5))
def test_many_are_as_one_by_one(kind: Kind, texts: list[str]) -> None:
    tokenizer = TOKENIZERS[kind]
    for stop in (False, True):
        flat, lengths = tokenizer.encode_many(texts, stop)
        rows = [[*tokenizer.encode(text).tolist(), *[tokenizer.stop] * stop] for text in texts]
        assert (flat.dtype, lengths.dtype) == (np.int32, np.int64)
        assert lengths.tolist() == [len(row) for row in rows]
        assert flat.tolist() == [i for row in rows for i in row]


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXTS)
def test_pieces_bytes_and_unknowns_agree(kind: Kind, text: str) -> None:
    tokenizer, text = TOKENIZERS[kind], canonical(text, kind)
    ids, surfaces = tokenizer.pieces(text)
    sizes = tokenizer.byte_lengths(text, ids)
    assert ids.tolist() == tokenizer.encode(text).tolist()
    assert len(ids) == len(surfaces) == len(sizes)
    assert tokenizer.unknown(text, ids) == [s for s, i in zip(surfaces, ids, strict=True) if i == tokenizer.unk]
    if tokenizer.lossless:
        assert "".join(surfaces) == text
        assert sizes.sum() == len(text.encode())
        assert sizes.min(initial=1) > 0


# Round trips


@pytest.mark.parametrize("kind", OPEN)
@given(text=TEXTS)
def test_open_kinds_write_any_text(kind: Kind, text: str) -> None:
    tokenizer = TOKENIZERS[kind]
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", ["char", "space", "word"])
@settings(max_examples=25)
@given(text=TEXTS)
def test_closed_kinds_write_what_they_know(kind: Kind, text: str) -> None:
    text = canonical(text + "x", kind)
    tokenizer = trained(kind, [text])
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", LOSSLESS)
@pytest.mark.parametrize("spelling", SPECIAL)
def test_spellings_of_special_tokens_are_text(kind: Kind, spelling: str) -> None:
    text = f"a {spelling} b {spelling}"
    tokenizer = trained(kind, [text, text])
    ids = tokenizer.encode(text)
    assert (ids > 1).all()
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("kind", KINDS)
def test_stop_is_silent_and_unk_is_seen(kind: Kind) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode("value").tolist()
    assert tokenizer.decode([0, *ids, 0]) == "value"
    assert REPLACEMENT in tokenizer.decode([*ids, 1])


def test_half_a_character_is_counted_exactly_and_shown_once() -> None:
    tokenizer = TOKENIZERS["byte"]
    ids, surfaces = tokenizer.pieces("é!")
    assert ids.tolist() == [0xC3 + 2, 0xA9 + 2, ord("!") + 2]
    assert surfaces == ["", "é", "!"]
    assert tokenizer.byte_lengths("é!", ids).tolist() == [1, 1, 1]
    assert tokenizer.decode(ids[:1]) == REPLACEMENT


# Each kind by hand


def test_characters_come_by_frequency_then_by_code() -> None:
    tokenizer = trained("char", ["bab", "ca"])
    assert tokenizer.vocab_size == 5
    assert tokenizer.encode("abcd\n").tolist() == [2, 3, 4, 1, 1]
    assert tokenizer.unknown("xaé", tokenizer.encode("xaé")) == ["x", "é"]


def test_words_carry_the_blank_before_them() -> None:
    tokenizer = trained("word", ["good is good", "good good"])
    ids, surfaces = tokenizer.pieces("good good bad!")
    assert surfaces == ["good", " good", " bad", "!"]
    assert ids.tolist()[2:] == [1, 1]
    assert tokenizer.unknown("good good bad!", ids) == [" bad", "!"]
    assert tokenizer.decode(ids) == f"good good{REPLACEMENT}{REPLACEMENT}"


def test_space_words_are_what_stands_between_blanks() -> None:
    tokenizer = trained("space", ["the cat's\ttail , the end"])
    ids, surfaces = tokenizer.pieces("the cat's\ttail dog")
    assert surfaces == ["the", " cat's\ttail", " dog"]
    assert tokenizer.byte_lengths("the cat's\ttail dog", ids).tolist() == [3, 11, 4]
    ids, lengths = tokenizer.encode_words(["the", "the end", ",", *RESERVED])
    assert ids.tolist() == [2, 1, *tokenizer.encode(","), 1, 1] and lengths.tolist() == [1] * 5
    assert tokenizer.pieces(" the end")[1] == [" the", " end"]  # a piece of text that goes on
    assert tokenizer.encode("  the   end ").tolist() == tokenizer.encode("the end").tolist()


WORDS = ["value", "value,", "42nd", "naïve", "日本語", ",", "Ж", "don't", "[UNK]"]


@pytest.mark.parametrize("kind", KINDS)
def test_words_given_one_by_one_are_cut_as_within_a_line(kind: Kind) -> None:
    """Together they have the ids of the running text; each begins where its own pieces begin."""
    tokenizer = TOKENIZERS[kind]
    ids, lengths = tokenizer.encode_words(WORDS)
    assert ids.dtype == np.int32 and lengths.min() >= 1 and lengths.sum() == len(ids)
    line = tokenizer.encode("the " + " ".join(WORDS)).tolist()
    assert ids.tolist() == line[len(tokenizer.encode("the")) :]
    for word, end, length in zip(WORDS, np.cumsum(lengths), lengths, strict=True):
        assert tokenizer.encode_words([word])[0].tolist() == ids[end - length : end].tolist()
    if kind in ("bpe", "unigram", "char", "byte"):
        assert [tokenizer.decode(ids[: lengths[0]]), int(lengths.max()) > 1] == [" value", True]


def test_a_word_without_any_piece_is_unknown() -> None:
    """WordPiece has no token for control characters, and a treebank may have a word of them."""
    tokenizer = TOKENIZERS["wordpiece"]
    value = tokenizer.encode("value").tolist()
    ids, lengths = tokenizer.encode_words(["\u200b", "value", "\x07", "\x07"])
    assert ids.tolist() == [tokenizer.unk, *value, tokenizer.unk, tokenizer.unk]
    assert lengths.tolist() == [1, len(value), 1, 1]
    assert [array.tolist() for array in tokenizer.encode_words([])] == [[], []]


def test_wordpiece_marks_the_inside_of_words() -> None:
    tokenizer = trained("wordpiece", ["walking talking walked talked"] * 3, vocab_size=100)
    ids, surfaces = tokenizer.pieces("  talking\nwalked Ж")
    assert "".join(surfaces) == "talkingwalkedЖ"
    assert tokenizer.decode(ids) == f"talking walked {REPLACEMENT}"
    assert not tokenizer.lossless


# Learning


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_subwords_reach_the_exact_size(kind: Kind) -> None:
    texts = list(pydoc_data.topics.topics.values())[:12]
    assert trained(kind, texts, vocab_size=700).vocab_size == 700


def test_wordpiece_keeps_its_size_where_letters_are_many() -> None:
    many = ["".join(map(chr, range(0x4E00, 0x4E00 + 500))) * 2]
    assert trained("wordpiece", many, vocab_size=100).vocab_size <= 100


def test_limits_of_words_and_characters() -> None:
    texts = ["a a a b b c"]
    assert trained("space", texts, vocab_size=4).encode("a b c").tolist() == [2, 3, 1]
    assert trained("space", texts, min_count=3).encode("a b c").tolist() == [2, 1, 1]
    assert trained("char", texts, min_count=3).encode("ab ").tolist() == [3, 1, 2]
    assert Tokenizer.train(Config("word"), ["x y", "x"]).encode("x y").tolist() == [2, 1]


def test_sample_ends_the_reading() -> None:
    def texts() -> object:
        yield "abc"
        yield "def"
        raise AssertionError("read on after the sample")

    assert Tokenizer.train(Config("char", sample=5), texts()).encode("cef").tolist() == [4, 6, 1]  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "byte"])
def test_nothing_to_learn_is_refused(kind: Kind) -> None:
    with pytest.raises(InputError, match="empty"):
        trained(kind, ["", ""])


def test_too_little_to_learn_is_refused() -> None:
    with pytest.raises(InputError, match="min_count"):
        trained("space", ["a b c"], min_count=2)


@pytest.mark.parametrize("kind", OPEN)
@pytest.mark.parametrize("text", [" ", "a", "\0"])
def test_open_kinds_need_little_text(kind: Kind, text: str) -> None:
    tokenizer = trained(kind, [text])
    assert tokenizer.decode(tokenizer.encode("né\0!")) == "né\0!"


@pytest.mark.parametrize("threads", ["true", "false"])
def test_another_process_learns_the_same(threads: str, tmp_path: Path) -> None:
    """The library's hash maps get new keys in every process: nothing of that may be seen in a file."""
    script = (
        "import sys, pydoc_data.topics; from segue.tokens.tokenizer import Config, Tokenizer\n"
        "texts = list(pydoc_data.topics.topics.values())[:6]\n"
        "for kind, size in [('bpe', 500), ('unigram', 400), ('wordpiece', 400), ('sentencepiece', 400), ('word', 0)]:\n"
        "    Tokenizer.train(Config(kind, size), texts).save(f'{sys.argv[1]}/{kind}.json')\n"
    )
    source = Path(__file__).parents[2] / "src"
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        environment = os.environ | {"PYTHONPATH": str(source), "TOKENIZERS_PARALLELISM": threads}
        subprocess.run([sys.executable, "-c", script, str(folder)], env=environment, check=True)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes(), file.name


@pytest.mark.parametrize(
    "config",
    [
        {"kind": "words"},
        {"kind": "bpe", "vocab_size": 257},
        {"kind": "char", "vocab_size": 2},
        {"kind": "byte", "vocab_size": 500},
        {"vocab_size": -1},
        {"min_count": -1},
        {"sample": 0},
    ],
)
def test_impossible_settings_are_refused(config: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"tokens\."):
        Config(**config)  # type: ignore[arg-type]


def test_auto_must_be_chosen_before() -> None:
    with pytest.raises(ValueError, match="auto"):
        Tokenizer.train(Config(), ["a"])


# Files that are not ours


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_refused(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    TOKENIZERS[kind].save(path)
    whole = path.read_text()

    def damage(change: object) -> str:
        file = json.loads(whole)
        change(file)  # type: ignore[operator]
        return json.dumps(file)

    def shift(file: dict) -> None:  # type: ignore[type-arg]
        vocab = file["model"]["vocab"]
        file["model"]["vocab"] = vocab[1:] if isinstance(vocab, list) else {name: i + 1 for name, i in vocab.items()}

    broken = [whole[: len(whole) // 2], "[]", "{}", "", damage(shift)]
    broken.append(damage(lambda file: file.update(added_tokens=[{"id": 0, "content": "<s>"}])))
    broken.append(damage(lambda file: file["model"].update(vocab=None)))
    broken.append(damage(lambda file: file["model"].update(vocab={"a": "b", "c": 1, "d": []})))
    broken.append(damage(lambda file: file["model"].update(type="Other")))
    for content in broken:
        path.write_text(content)
        with pytest.raises(InputError, match=r"tokenizer\.json"):
            Tokenizer.load(path)


def test_damage_inside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    for kind, old, new in [("bpe", '"!": 2', '"語": 2'), ("byte", '"a": ', '"ab": '), ("char", '"e": ', '"ee": ')]:
        TOKENIZERS[kind].save(path)  # type: ignore[index]
        content = path.read_text()
        assert old in content
        path.write_text(content.replace(old, new, 1))
        with pytest.raises(InputError):
            Tokenizer.load(path)


def test_foreign_and_missing_files_are_refused(tmp_path: Path) -> None:
    tokenizers.Tokenizer(tokenizers.models.BPE()).save(str(tmp_path / "foreign.json"))
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    for name in ("foreign.json", "binary.json", "missing.json"):
        with pytest.raises(InputError, match=name):
            Tokenizer.load(tmp_path / name)


# Speed: far below what an idle machine does, so that only a wrong turn fails


@pytest.mark.parametrize(("kind", "least"), [("char", 10), ("byte", 10), ("space", 4), ("word", 1.5), ("bpe", 1)])
def test_encoding_is_fast(kind: Kind, least: float) -> None:
    lines = [" ".join(line.split()) for line in "\n".join(pydoc_data.topics.topics.values()).splitlines()]
    size = sum(len(line.encode()) for line in lines) / 1e6
    tokenizer = TOKENIZERS[kind]
    best = 0.0
    for _ in range(3):
        start = time.perf_counter()
        tokenizer.encode_many(lines, stop=True)
        best = max(best, size / (time.perf_counter() - start))
    assert best > least


def test_words_whatever_their_case() -> None:
    """The first word of the vocabulary, which is the commonest, that is the same in small letters; else unknown."""
    tokenizer = Tokenizer.train(Config(kind="space"), ["the the the The apple Apple Apple US"])
    the, apple, us = (int(tokenizer.encode_words([word])[0][0]) for word in ("the", "Apple", "US"))
    assert tokenizer.fold_words(["THE", "The", "APPLE", "us", "we"]).tolist() == [the, the, apple, us, tokenizer.unk]
    with pytest.raises(TypeError, match="space"):
        Tokenizer.train(Config(kind="char"), ["ab"]).fold_words(["a"])


def test_unigram_tokens_of_a_word_of_all_characters_that_comes_twice() -> None:
    """The library's stack overflows on it, unless the word is cut."""
    word = "".join(map(chr, range(33, 0xD800)))
    assert all(len(part) <= 1000 for part in learn._without_long_words(word))
    assert "".join(learn._without_long_words(f"a b {word} c")) == f"a b {word} c"
    assert list(learn._without_long_words("a b\n\nc")) == ["a b\n\nc"]
    content = learn.vocabulary("unigram", [f"{word}\n\n{word}"], 300, 1)
    assert 258 <= len(content["model"]["vocab"]) <= 300


def test_wordpiece_in_small_letters_reads_any_case_alike() -> None:
    texts = ["The Café is open. THE cafe IS Open."] * 9
    tokenizer = Tokenizer.train(Config(kind="wordpiece", vocab_size=120, min_count=1, lowercase=True), texts)
    assert tokenizer.encode("The CAFÉ").tolist() == tokenizer.encode("the cafe").tolist()
    assert tokenizer.unk not in tokenizer.encode("THE CAFÉ")
    cased = Tokenizer.train(Config(kind="wordpiece", vocab_size=120, min_count=1), texts)
    assert cased.encode("The").tolist() != cased.encode("the").tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_are_of_the_ids_of_a_row(kind: Kind) -> None:
    tokenizer = TOKENIZERS[kind]
    for text in [*CORPUS, "", "  two  blanks \n\n and a line ", "Ж ж"]:
        ids, begins, ends = tokenizer.offsets(text)
        assert (ids == tokenizer.encode(tokenizer.row(text))).all()
        assert len(ids) == len(begins) == len(ends) and ((begins <= ends) & (ends <= len(text))).all()
        assert (np.diff(begins) >= 0).all() and (np.diff(ends) >= 0).all()


@settings(max_examples=50)
@given(TEXTS, st.sampled_from(KINDS))
def test_offsets_leave_out_no_letter(text: str, kind: Kind) -> None:
    """Every letter of the text belongs to a token, of a kind that loses none."""
    tokenizer = TOKENIZERS[kind]
    _, begins, ends = tokenizer.offsets(text)
    covered = {place for begin, end in zip(begins.tolist(), ends.tolist(), strict=True) for place in range(begin, end)}
    if kind in LOSSLESS:
        assert {place for place, letter in enumerate(text) if letter != " "} <= covered
    if kind in ("char", "word", "space"):  # no token shares a character with another
        assert sum((ends - begins).tolist()) == len(covered)


def test_offsets_of_subwords_that_share_a_character() -> None:
    """One letter of two bytes, and one of four: each byte's token has the whole letter."""
    _, begins, ends = TOKENIZERS["byte"].offsets("aé🙂b")
    assert begins.tolist() == [0, 0, 1, 1, 2, 2, 2, 2, 3] and ends.tolist() == [0, 1, 2, 2, 3, 3, 3, 3, 4]


def test_offsets_of_wordpieces_are_of_the_text_before_it_is_changed() -> None:
    """Accents go and letters become small, but places are those of the text; a long text is cut into parts."""
    pieces = Tokenizer.train(Config("wordpiece", 300, 1, lowercase=True), CORPUS)
    text = "NAÏVE  Cafés\x01 value " * 5000
    ids, begins, ends = pieces.offsets(text)
    assert (ids == pieces.encode(pieces.row(text))).all() and text[begins[-1] : ends[-1]].lower() in "value"
    assert {text[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)} <= {
        text[i:j] for i in range(21) for j in range(i, 21)
    }
