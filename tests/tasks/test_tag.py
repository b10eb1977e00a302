"""Tag: words, tags and letters on disk and in batches, what is predicted, and the figures on made-up answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from segue.batches.batch import IGNORE
from segue.batches.batches import Config as Batches
from segue.batches.codec import Codec, Sizes
from segue.batches.encode import encode
from segue.batches.store import columns_of
from segue.data.config import Config as Data
from segue.data.corpus import Corpus
from segue.data.example import Example
from segue.data.iob import spans
from segue.errors import InputError
from segue.inference.decode_settings import Config as Decode
from segue.inference.evaluation import Evaluation
from segue.inference.opened import Opened
from segue.models.window_tagger import WindowTagger
from segue.tasks.base import HeldOut, Task
from segue.tasks.tag import TASK, Entity, Tag, Tags
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer


def codec_of(text: str, *tags: str) -> Codec:
    tokenizer = Tokenizer.train(Tokens(kind="space", min_count=1), [text])
    return Codec(tokenizer, tags, Data(), Sizes(tokenizer.vocab_size, len(tags)))


def test_tags_are_ignored_where_there_is_no_word() -> None:
    columns = columns_of(text=[np.array([5, 6]), np.array([7])], tags=[np.array([1, 0]), np.array([2])])
    batch = TASK.collate(columns, 9999)
    assert batch.targets.tolist() == [[1, 0], [2, IGNORE]]
    assert batch.mask_BT.tolist() == [[True, True], [True, False]]
    assert batch.count == 3


def test_without_tags_nothing_is_predicted() -> None:
    """As where a model is asked: the same tokens, every target IGNORE."""
    text = [np.array([5, 6]), np.array([7])]
    asked, told = TASK.collate(columns_of(text=text), 9), TASK.collate(columns_of(text=text, tags=[[1, 0], [2]]), 9)
    assert asked.tokens_BT.tolist() == told.tokens_BT.tolist() and asked.mask_BT.tolist() == told.mask_BT.tolist()
    assert asked.targets.shape == told.targets.shape and (asked.targets == IGNORE).all() and asked.count == 0


def test_tags_on_disk(tmp_path: Path) -> None:
    rows = [Example(words=("the", "cow"), tags=("D", "N")), Example(words=("eats", "", "zebra"), tags=("V", "D", "N"))]
    codec = codec_of("the cow eats", "D", "N", "V")
    encoded = encode(rows, lambda group: TASK.encode(group, codec), codec.tokenizer, tmp_path, limit=2)
    columns = encoded.store.columns
    assert [columns["tags"].row(i).tolist() for i in range(2)] == [[0, 1], [2, 0, 1]]
    assert [len(columns["text"].row(i)) for i in range(2)] == [2, 3]
    assert columns["text"].row(1).tolist()[2] == codec.tokenizer.unk
    assert encoded.cut == 1
    assert encoded.tokens == 5
    assert encoded.unknown == int((columns["text"].flat == codec.tokenizer.unk).sum())


def test_rows_are_the_same_ids_with_and_without_tags() -> None:
    rows = [Example(words=("the", "Cow"), tags=("D", "N")), Example(words=("eats",), tags=("V",))]
    codec = codec_of("the cow eats", "D", "N", "V")
    told, asked = TASK.encode(rows, codec), TASK.encode(rows, codec, labelled=False)
    assert set(told) - set(asked) == {"tags"}
    for name, column in asked.items():
        assert column.flat.tolist() == told[name].flat.tolist() and column.ends.tolist() == told[name].ends.tolist()


def test_an_unknown_tag_is_refused_with_its_place() -> None:
    row = Example(words=("a", "b"), tags=("good", "bda"), path="tags.conll", line=9)
    with pytest.raises(InputError) as caught:
        TASK.encode([row], codec_of("a b", "bad", "good"))
    message = str(caught.value)
    assert message.startswith("tags.conll:9: ") and "'bda'" in message and "Did you mean '" in message


def test_tags_are_sorted(tmp_path: Path) -> None:
    (tmp_path / "tags.conll").write_text("a\tN\nb\tD\n\na\tV\nb\tD\n")
    corpus = Corpus(Data(path=str(tmp_path / "tags.conll"), validation=0.0), TASK.shape)
    assert TASK.labels(corpus, corpus.config) == ("D", "N", "V")


# Predicting

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven"]
NAMES = ("a", "b", "c")


def opened(limit: int = 100) -> Opened:
    torch.manual_seed(0)
    codec = codec_of(" ".join(WORDS), *NAMES)
    return Opened(
        WindowTagger(WindowTagger.Config(embedding=5, width=6), codec.sizes).train(), codec, Decode(), limit, TASK
    )


def sentences(*texts: str) -> list[Example]:
    return [Example(text=text, words=tuple(text.split())) for text in texts]


def test_one_tag_a_word_in_order() -> None:
    one, draw = opened(), np.random.default_rng(0)
    rows = sentences(*(" ".join(draw.choice(WORDS, draw.integers(1, 7))) for _ in range(130)))
    answers = list(TASK.predict(one, rows))
    assert [len(answer.tags) for answer in answers] == [len(row.words) for row in rows]
    for row, answer in list(zip(rows, answers, strict=True))[::17]:
        (alone,) = TASK.predict(one, [row])
        assert alone.tags == answer.tags  # padding and neighbours change nothing
    assert {tag for answer in answers for tag in answer.tags} <= set(NAMES)


def test_long_and_empty_sentences() -> None:
    one = opened(limit=4)
    rows = sentences("one two three four five six", "")
    assert [len(answer.tags) for answer in TASK.predict(one, rows)] == [4, 0]
    assert [TASK.cut(one, row) for row in rows] == [2, 0]


def test_a_prediction_is_a_line_and_an_object() -> None:
    one = Tags(("the", "cow"), ("D", "N"), (0.75, 0.5))
    assert one.line() == "the/D cow/N" and one.entities == ()
    assert one.json() == {"words": ["the", "cow"], "tags": ["D", "N"], "probabilities": [0.75, 0.5]}
    assert "probabilities" not in Tags(("the",), ("D",)).json()


def test_spans_are_entities_with_their_places_in_the_text() -> None:
    text = "  (EU) rejects New York's  call."
    words = TASK.asked(text, Data()).words
    assert words == ("(", "EU", ")", "rejects", "New", "York", "'s", "call", ".")
    tags = ("O", "S-ORG", "O", "O", "B-LOC", "E-LOC", "O", "O", "O")
    one = Tags(words, tags, (1.0, 0.5, 1.0, 1.0, 0.5, 0.25, 1.0, 1.0, 1.0), text=text, of_spans=True)
    assert one.line() == "( [ORG EU] ) rejects [LOC New York] 's call ."
    assert [(e.text, e.type, e.probability) for e in one.entities] == [("EU", "ORG", 0.5), ("New York", "LOC", 0.125)]
    assert [text[e.start : e.end] for e in one.entities] == ["EU", "New York"]
    assert one.json()["entities"][0] == {"text": "EU", "type": "ORG", "start": 3, "end": 5, "probability": 0.5}
    assert one.json()["words"] == list(words) and one.json()["tags"] == list(tags)


def test_words_of_a_file_have_places_in_the_words_with_blanks_between() -> None:
    one = Tags(("New", "York", "won"), ("B-X", "I-X"), (0.5, 0.5), of_spans=True)
    assert one.entities == (Entity("New York", "X", 0, 8, 0.25),)
    assert one.line() == "[X New York] won"  # the last word was not read


def test_a_tagger_of_spans_predicts_entities() -> None:
    codec = codec_of("zero one", "B-X", "I-X", "O")
    model = WindowTagger(WindowTagger.Config(embedding=5, width=6), codec.sizes)
    (one,) = TASK.predict(Opened(model, codec, Decode(), 100, TASK), [TASK.asked("zero, one!", Data())])
    assert one.words == ("zero", ",", "one", "!") and one.of_spans
    assert {(e.type, e.start, e.end) for e in one.entities} == {
        (kind, "zero, one!".find(one.words[a]), "zero, one!".find(one.words[b - 1]) + len(one.words[b - 1]))
        for kind, a, b in spans(one.tags)
    }


# Figures


class Told(Tag):
    """Has its answers beforehand."""

    def __init__(self, answers: Iterable[Tags]) -> None:
        self.answers = answers

    def predict(self, opened: Opened, examples: Iterable[Example]) -> Iterator[Tags]:
        return iter(self.answers)

    def of(self, rows: list[Example], labels: tuple[str, ...]) -> Evaluation:
        return self.judged(Opened(None, codec_of("a", *labels), Decode(), 1000, self), rows)


def tagged(truth: list[str], guess: list[str], labels: tuple[str, ...] = ("O", "B-X", "I-X", "B-Y")) -> Evaluation:
    """One sentence a string, its tags between blanks."""
    rows = [
        Example(words=tuple("w" * len(tags.split())), tags=tuple(tags.split()), path="a.conll", line=i + 1)
        for i, tags in enumerate(truth)
    ]
    return Told(Tags(row.words, tuple(tags.split())) for row, tags in zip(rows, guess, strict=True)).of(rows, labels)


def test_the_tags_of_words_are_counted_one_by_one() -> None:
    rows = [Example(words=("a", "b", "c"), tags=("DET", "NOUN", "NOUN"))]
    answers = [Tags(rows[0].words, ("DET", "DET", "NOUN"), (0.9, 0.7, 0.5))]
    evaluation = Told(answers).of(rows, ("DET", "NOUN"))
    assert evaluation.result["confusion"] == [[1, 0], [1, 1]]
    assert evaluation.result["calibration_error"] == pytest.approx((0.1 + 0.7 + 0.5) / 3)
    assert evaluation.examples[0]["surest error"] == "b: DET for NOUN"


def test_tags_by_hand() -> None:
    """6 of 8 words right; of three true spans (X 0-2, Y 3, X 0) two are found, and one is made up."""
    evaluation = tagged(["B-X I-X O B-Y", "B-X O O O"], ["B-X I-X O O", "B-X O O B-Y"])
    result = evaluation.result
    assert (result["task"], result["figure"], result["sentences"], result["words"]) == ("tag", "span_f1", 2, 8)
    assert result["accuracy"] == pytest.approx(6 / 8)
    assert result["span_f1"] == evaluation.value == pytest.approx(2 * 2 / (3 + 3))
    assert result["precision"] == result["recall"] == pytest.approx(2 / 3)
    np.testing.assert_array_equal(evaluation.pieces_NK, [[2, 3], [2, 3]])
    assert evaluation.examples[0] == {"true spans": "[X w w] w [Y w]", "predicted spans": "[X w w] w w"}
    assert "confusion" not in result  # the tags of a span are not judged one by one


def conlleval_counts(truth: list[str], guess: list[str]) -> dict[str, list[int]]:
    """Count right, predicted and true chunks by type as conlleval.pl does: word by word, with its rules for where a
    chunk starts and ends."""
    counts: dict[str, list[int]] = {}
    for true_tags, guess_tags in zip(truth, guess, strict=True):
        before, inside = ["O", "O"], False
        for pair in [*zip(guess_tags.split(), true_tags.split(), strict=True), ("O", "O")]:
            ends = [_ends(a, b) for a, b in zip(before, pair, strict=True)]
            begins = [_begins(a, b) for a, b in zip(before, pair, strict=True)]
            if inside and (ends[0] or ends[1]):
                if ends[0] and ends[1]:
                    counts[before[1][2:]][0] += 1
                inside = False
            for column, (tag, new) in enumerate(zip(pair, begins, strict=True), 1):
                if new:
                    counts.setdefault(tag[2:], [0, 0, 0])[column] += 1
            if begins[0] and begins[1] and pair[0][2:] == pair[1][2:]:
                inside = True
            before = list(pair)
    return counts


def _ends(before: str, tag: str) -> bool:
    if before == "O":
        return False
    return before[0] in "ES" or tag[0] in "BSO" or before[2:] != tag[2:]


def _begins(before: str, tag: str) -> bool:
    if tag == "O":
        return False
    return tag[0] in "BS" or before == "O" or before[0] in "ES" or before[2:] != tag[2:]


LABELS = ("O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in "XY"))


PAIRS = st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS))


@given(st.lists(st.lists(PAIRS, min_size=1, max_size=6), max_size=6))
def test_spans_are_counted_as_conlleval_counts_them(sentences: list[list[tuple[str, str]]]) -> None:
    """Type by type, whatever the tags, and F1 over all of them."""
    truth, guess = ([" ".join(pair[of] for pair in sentence) for sentence in sentences] for of in (0, 1))
    result = tagged([*truth, "B-X"], [*guess, "O"], LABELS).result
    counts = conlleval_counts([*truth, "B-X"], [*guess, "O"])
    rows = {one["type"]: one for one in result["by_type"]}
    assert {kind: [one["right"], one["predicted"], one["true"]] for kind, one in rows.items()} == {
        kind: counts.get(kind, [0, 0, 0]) for kind in "XY"
    }
    right, predicted, true = map(sum, zip(*counts.values(), strict=True))
    assert result["span_f1"] == pytest.approx(2 * right / (predicted + true))
    assert result["precision"] == pytest.approx(right / max(1, predicted))
    assert result["recall"] == pytest.approx(right / true)


def test_span_f1_has_an_interval_of_the_text() -> None:
    """Sentences are the pieces: about the jackknife's standard error, of names of which half are found."""
    guess = np.random.default_rng(0).permutation(["B-X", "O"] * 100).tolist()
    evaluation = tagged(["B-X"] * 200, guess)
    low, high = evaluation.result["span_f1_ci"]
    left_out = [2 * (100 - found) / (199 + 100 - found) for found in (1, 0) for _ in range(100)]
    error = float(np.sqrt(199 / 200 * ((np.array(left_out) - np.mean(left_out)) ** 2).sum()))
    assert evaluation.value == pytest.approx(2 / 3)
    assert 0.5 * 3.92 * error < high - low < 1.5 * 3.92 * error and 0 < low < 2 / 3 < high < 1


def test_words_that_were_not_read_are_wrong() -> None:
    """A sentence cut at the limit: what has no tag counts as an error, and as outside any span."""
    result = tagged(["B-X I-X O O"], ["B-X I-X"]).result
    assert result["accuracy"] == pytest.approx(2 / 4) and result["span_f1"] == 1.0
    assert tagged(["O O B-X"], ["O O"]).result["span_f1"] == 0.0


def test_parts_of_speech_are_judged_by_accuracy() -> None:
    result = tagged(["DET NOUN", "NOUN"], ["DET DET", "NOUN"], ("DET", "NOUN")).result
    assert "span_f1" not in result and "by_type" not in result
    assert (result["figure"], result["accuracy"]) == ("accuracy", pytest.approx(2 / 3))


def test_a_text_without_any_span_is_judged_by_accuracy() -> None:
    result = tagged(["O O"], ["O B-X"]).result
    assert (result["figure"], result["accuracy"]) == ("accuracy", 0.5)


def test_errors_are_sentences_whose_spans_differ() -> None:
    """I-X at the beginning of a span is read as B-X: another tag, but no error."""
    assert tagged(["B-X I-X O"], ["I-X I-X O"]).examples == []


# Validation


def held_out(tmp_path: Path, *names: str) -> tuple[Opened, HeldOut]:
    rows = [Example(words=("one", "two", "six"), tags=(names[0], names[1], names[-1]))] * 5
    codec = codec_of("one two six", *names)
    encoded = encode(rows, lambda group: TASK.encode(group, codec), codec.tokenizer, tmp_path)
    model = WindowTagger(WindowTagger.Config(embedding=5, width=6), codec.sizes).eval()
    return Opened(model, codec, Decode(), 100, TASK), HeldOut(encoded.store, 0.0)


def test_validation_of_spans_has_their_f1(tmp_path: Path) -> None:
    """The same as an evaluation of the same rows; loss and accuracy are those of any tags."""
    opened, data = held_out(tmp_path, "B-X", "I-X", "O")
    values = TASK.validate(opened, data, Batches(size=2, length=9), 10**9)
    rows = [Example(words=("one", "two", "six"), tags=("B-X", "I-X", "O"))] * 5
    result = TASK.judged(opened, rows).result
    assert values["span_f1"] == pytest.approx(result["span_f1"])
    plain = Task.validate(TASK, opened, data, Batches(size=2, length=9), 10**9)
    assert {name: values[name] for name in plain} == pytest.approx(plain) and set(values) - set(plain) == {"span_f1"}
    assert result["accuracy"] == pytest.approx(plain["accuracy"])


def test_validation_of_parts_of_speech_has_none(tmp_path: Path) -> None:
    assert set(TASK.validate(*held_out(tmp_path, "DET", "NOUN"), Batches(size=9, length=9), 10**9)) == {
        "loss",
        "accuracy",
    }


def test_the_best_spans_are_kept_not_the_best_words() -> None:
    """Most words are O: a model may gain words and lose names."""
    better = {"loss": 0.4, "accuracy": 0.90, "span_f1": 0.6}
    assert TASK.worth(better) > TASK.worth({"loss": 0.3, "accuracy": 0.95, "span_f1": 0.5})
    assert TASK.worth(better) > TASK.worth({"loss": 0.4, "accuracy": 0.89, "span_f1": 0.6})
    assert TASK.worth({"loss": 0.4, "accuracy": 0.9}) > TASK.worth({"loss": 0.3, "accuracy": 0.8})
    assert TASK.worth({"loss": 0.4, "accuracy": 0.1}) > TASK.worth({"loss": np.nan, "accuracy": 0.8, "span_f1": 0.9})


def test_a_tag_that_training_never_saw_is_named_too() -> None:
    with pytest.raises(InputError, match=r"a\.conll:2: the label 'B-Z' was never seen in training"):
        tagged(["O O", "O B-Z"], ["O O", "O O"])


@pytest.mark.parametrize(("guess", "low", "high"), [("bad", 0.88, 1), ("good", 0, 0.12)], ids=["all", "none"])
def test_all_or_none_right_is_no_certainty(guess: str, low: float, high: float) -> None:
    """The exact interval of 30 of 30 is 0.884 to 1."""
    evaluation = tagged(["bad bad"] * 30, [f"{guess} {guess}"] * 30, ("bad", "fair", "good"))
    assert evaluation.result["accuracy_ci"] == pytest.approx([low, high], abs=0.01)
