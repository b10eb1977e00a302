"""Sentences that break classifiers: what is made, and what models of known skill get of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import segue
from segue import tasks
from segue.cli import main
from segue.errors import InputError
from segue.runs.experiments.challenge import TEMPLATES, WORDS, challenge
from segue.tasks.classify import Label

GOOD = {word for good, _ in WORDS.values() for word in good}
BAD = {word for _, bad in WORDS.values() for word in bad}


def made_run(
    says: Callable[[str], float], labels: Sequence[str] = ("neg", "pos"), known: Callable[[str], bool] = lambda w: True
) -> Any:
    """What a challenge asks of a run; `says` gives a text the probability of the last label."""

    def predict(texts: Iterable[str]) -> Iterator[Label]:
        for text in texts:
            p = says(text)
            yield Label("", labels, probabilities=(1 - p, *[0.0] * (len(labels) - 2), p))

    return SimpleNamespace(
        path=Path("runs/made"),
        task=tasks.task("classify"),
        sizes=SimpleNamespace(label="class"),
        tokenizer=SimpleNamespace(kind="word", row=lambda text: text),
        recipe=SimpleNamespace(name="made", data=SimpleNamespace(pairs=False)),
        labels=tuple(labels),
        unknown=lambda text: [word for word in re.findall(r"[\w']+", text) if not known(word)],
        predict=predict,
    )


def adds(text: str) -> float:
    """A bag of words: as many good ones as bad ones is a tie."""
    words = re.findall(r"\w+", text.lower())
    return 0.5 + 0.1 * (sum(word in GOOD for word in words) - sum(word in BAD for word in words))


def shares(result: dict[str, Any]) -> dict[str, float]:
    return {kind["kind"]: kind["accuracy"] for kind in result["kinds"]}


def test_a_bag_of_words_cannot_negate_and_does_not_see_order() -> None:
    result = challenge(made_run(adds))
    assert shares(result) == {
        "plain": 1.0,
        "intensifiers": 1.0,
        "negation": 0.0,
        "contrast": 0.0,
        "double negation": 1.0,
        "word order": 0.5,
    }
    assert "fails negation, contrast and word order" in result["verdict"]
    assert "100 % of the plain sentences" in result["verdict"]


def test_one_label_for_all_is_half_right_and_fails() -> None:
    result = challenge(made_run(lambda text: 0.9))
    assert set(shares(result).values()) == {0.5}
    assert "fails even plain sentences" in result["verdict"]


def test_the_sentences_of_the_lecture_are_among_them() -> None:
    seen: list[str] = []
    challenge(made_run(lambda text: seen.append(text) or 0.5))  # type: ignore[func-returns-value]
    assert "I don't love this movie." in seen
    assert "There's nothing I don't love about this movie." in seen
    assert len(seen) == len(set(seen))
    assert not any("{" in text for text in seen)


def test_the_same_words_in_another_order_have_the_other_label() -> None:
    seen: list[str] = []
    run = made_run(lambda text: seen.append(text) or 0.9)  # type: ignore[func-returns-value]
    size = next(kind["sentences"] for kind in challenge(run)["kinds"] if kind["kind"] == "word order")
    bags = Counter(tuple(sorted(re.findall(r"\w+", text))) for text in seen[-size:])
    assert set(bags.values()) == {2}


def test_only_words_that_the_run_knows_are_used() -> None:
    seen: list[str] = []
    known = {"love", "hate", "good", "poor", "book"}
    opinion = GOOD | BAD | {"movie", "film"}
    run = made_run(lambda text: seen.append(text) or 0.5, known=lambda w: w in known or w not in opinion)  # type: ignore[func-returns-value]
    result = challenge(run)
    assert {word for text in seen for word in re.findall(r"\w+", text) if word in opinion} == known - {"book"}
    assert result["unknown"] == []


def test_a_run_without_words_of_opinion_is_told_so() -> None:
    with pytest.raises(InputError, match="vocabulary of runs/made has no positive or no negative"):
        challenge(made_run(adds, known=lambda word: word not in BAD))


def test_sentences_are_written_as_the_run_reads() -> None:
    seen: list[str] = []
    run = made_run(lambda text: seen.append(text) or 0.5, known=lambda w: w == w.lower() and w != "don't")  # type: ignore[func-returns-value]
    challenge(run)
    assert "i do n't love this movie ." in seen


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (("neg", "pos"), ("pos", "neg")),
        (("Negative", "Positive"), ("Positive", "Negative")),
        (("0", "1"), ("1", "0")),
        (("bad", "so-so", "good"), ("good", "bad")),
    ],
)
def test_the_labels_are_told_by_their_names(labels: tuple[str, ...], expected: tuple[str, str]) -> None:
    result = challenge(made_run(adds, labels))
    assert (result["positive"], result["negative"]) == expected


def test_labels_that_do_not_tell_are_asked_for() -> None:
    stars = ("0", "1", "2", "3", "4")
    with pytest.raises(InputError, match=r"names do not tell: 0, 1, 2, 3, 4\. Say --positive"):
        challenge(made_run(adds, stars))
    result = challenge(made_run(adds, stars), positive="4", negative="0")
    assert shares(result)["plain"] == 1.0
    assert challenge(made_run(adds, ("x", "y")), positive="y")["negative"] == "x"
    with pytest.raises(InputError, match="no label '5'"):
        challenge(made_run(adds, stars), "5", "0")
    with pytest.raises(InputError, match="Expected two"):
        challenge(made_run(adds, stars), "4", "4")


def test_only_single_texts_with_one_label_each() -> None:
    for part, value in (("task", tasks.task("tag")), ("sizes", SimpleNamespace(label="number"))):
        run = made_run(adds)
        setattr(run, part, value)
        with pytest.raises(InputError, match="does not give single texts one label each"):
            challenge(run)


def test_a_trained_bag_of_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"pos\tthe movie is {word}" for word in sorted(GOOD)] + [
        f"neg\tthe movie is {word}" for word in sorted(BAD)
    ]
    data = tmp_path / "opinions.tsv"
    data.write_text("\n".join(lines * 5) + "\n")
    run = segue.train("naive_bayes", str(data), out=tmp_path / "run", settings=["data.validation=0.1", "model.words=1"])
    found = shares(challenge(run))
    assert found["plain"] == 1.0 and found["word order"] == 0.5 and found["negation"] == 0.0
    assert main(["challenge", str(tmp_path / "run")]) == 0
    assert "fails negation" in " ".join(capsys.readouterr().out.split())


def test_every_kind_has_a_template() -> None:
    assert all(templates for templates in TEMPLATES.values()) and next(iter(TEMPLATES)) == "plain"
