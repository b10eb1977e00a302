"""Frozen beside fine-tuned: the lecture's table, and which data it is of."""

from __future__ import annotations

import pytest

from segue.look.page.frozen import LECTURE, LECTURE_TASKS, Both, frozen_and_tuned, lecture_task
from segue.look.page.weight_change import weight_change_view


@pytest.mark.parametrize(
    ("path", "task"),
    [
        ("sst2.train.tsv.xz", "SST-2"),
        ("glue/SST-2/train.tsv", "SST-2"),
        ("data/STS-B/dev.tsv.xz", "STS-B"),
        ("mrpc.tsv", "MRPC"),
        ("reviews.tsv", ""),
        ("dinner.tsv", ""),
    ],
)
def test_data_are_known_by_the_name_of_a_file_or_folder(path: str, task: str) -> None:
    assert lecture_task(path) == task


def test_the_lecture_says_that_tuning_helps_bert_and_not_elmo() -> None:
    for name, wins in (("ELMo", 1), ("BERT base", 6)):
        pairs = list(zip(*LECTURE[name], strict=True))
        assert len(pairs) == len(LECTURE_TASKS)
        assert sum(tuned > frozen for frozen, tuned in pairs if frozen and tuned) == wins


def test_the_table_has_ours_and_the_lectures_rows() -> None:
    ours = [Both("runs/<b>", 0.8, 0.85, "yes (p = 0.010)"), Both("runs/c", 0.7, 0.6, "no (p = 0.200)")]
    page = frozen_and_tuned(ours, "accuracy", "SST-2")
    assert "runs/&lt;b&gt;" in page and "85.0 %" in page and "p = 0.010" in page
    assert "Fine-tuning is better with 1 of 2." in page
    assert "the lecture’s BERT base on SST-2" in page and "93.5" in page and "–" in page
    assert "lecture" not in frozen_and_tuned(ours, "accuracy")
    assert "better with 1 of 2" in frozen_and_tuned(ours, "mean squared error")


def test_bars_of_changes_have_a_row_for_each_part() -> None:
    parts = [{"part": "vectors", "change": 0.01}, {"part": "layer 1 attention", "change": 0.2}]
    view = weight_change_view("mine", {"run": "runs/bert", "all": 0.1, "parts": parts})
    assert view.rows == ("vectors", "layer 1 attention") and view.values_PRC.ravel().tolist() == [0.01, 0.2]
    assert "runs/bert" in view.title and "0.1000" in view.note
    assert "layer 1 attention" in view.terminal()
