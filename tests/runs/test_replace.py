"""--overwrite and --resume without --out: an old run is never lost before the new one is whole, nor a run begun by
mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.cli import main
from segue.errors import InputError
from segue.runs import replace, resume

TEXT = "the cows eat grass and hay\n" * 30


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text(TEXT)

    def made(order: int, out: str | None = "x", **more: Any) -> Any:
        return segue.train("ngram", "book.txt", out, {"model.order": order, "data.validation": 0}, **more)

    return made


def order(run: str) -> int:
    return int(segue.load(run).recipe.model.order)


def test_a_new_run_takes_the_place_of_the_old_one(train: Callable[..., Any]) -> None:
    train(2)
    with pytest.raises(InputError, match="--overwrite"):
        train(3)
    train(3, overwrite=True)
    assert order("x") == 3 and sorted(path.name for path in Path().iterdir()) == ["book.txt", "x"]


def test_without_out_the_default_folder_is_replaced(train: Callable[..., Any]) -> None:
    train(2, None)
    train(3, None, overwrite=True)
    assert [path.name for path in Path("runs").iterdir()] == ["ngram-book"] and order("runs/ngram-book") == 3


def test_an_old_run_stays_if_the_new_one_cannot_begin(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    train(2)
    before = {path: path.read_bytes() for path in Path("x").iterdir()}
    with pytest.raises(InputError, match="nosuch"):
        segue.train("ngram", "nosuch.txt", "x", overwrite=True)

    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(resume, "to_toml", full)
    with pytest.raises(OSError, match="No space"):
        train(3, overwrite=True)
    assert {path: path.read_bytes() for path in Path("x").iterdir()} == before
    assert sorted(path.name for path in Path().iterdir()) == ["book.txt", "x"]


def test_after_a_kill_both_are_there_and_a_resume_ends_it(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    train(2)

    def killed(*given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("segue.runs.train.finish", killed)
        with pytest.raises(KeyboardInterrupt):
            train(3, overwrite=True)
        assert order(".x.replaced") == 2 and not Path("x/result.json").exists()
        with pytest.raises(KeyboardInterrupt):  # again: the unfinished one is given up, the old one stays
            train(4, overwrite=True)
        assert order(".x.replaced") == 2
    segue.train(None, out="x", resume=True)
    assert order("x") == 4 and not Path(".x.replaced").exists()


@pytest.mark.parametrize("strange", ["notes.txt", "src", ".git"])
def test_nothing_is_removed_that_no_run_makes(train: Callable[..., Any], strange: str) -> None:
    train(2)
    (Path("x") / strange).mkdir()
    with pytest.raises(InputError, match=strange):
        train(3, overwrite=True)
    assert order("x") == 2 and (Path("x") / strange).is_dir()


def test_only_a_run_folder_is_replaced(train: Callable[..., Any]) -> None:
    Path("mine").mkdir()
    Path("mine/a.txt").write_text("mine")
    with pytest.raises(InputError, match="not a run"):
        train(3, "mine", overwrite=True)
    with pytest.raises(InputError, match="not a run"):
        train(3, "book.txt", overwrite=True)
    train(2)
    Path("link").symlink_to("x")
    with pytest.raises(InputError, match="not a run"):
        train(3, "link", overwrite=True)
    assert Path("mine/a.txt").read_text() == "mine" and order("x") == 2
    Path("empty").mkdir()
    assert train(3, "empty", overwrite=True).recipe.model.order == 3


def test_a_run_that_is_finished_removes_nothing_else_beside_it(train: Callable[..., Any]) -> None:
    train(2, ".x.replaced")
    Path(".x.replaced/notes.txt").write_text("mine")
    replace.forget(Path("x"))
    assert Path(".x.replaced/notes.txt").exists() and order(".x.replaced") == 2
    Path(".x.replaced/notes.txt").unlink()
    replace.forget(Path("x"))
    assert not Path(".x.replaced").exists()


def test_resuming_without_a_folder_asks_which(train: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "ngram", "--resume"]) == 2
    assert "No run in runs/ is unfinished" in capsys.readouterr().err
    for name, size in (("a", 2), ("b", 3)):
        train(size, f"runs/{name}")
        Path(f"runs/{name}/result.json").unlink()
    assert main(["train", "ngram", "--resume"]) == 2
    said = capsys.readouterr().err
    assert "segue train --out runs/a --resume" in said and "segue train --out runs/b --resume" in said
    segue.train(None, out="runs/b", resume=True)
    assert main(["train", "rnn_lm", "--resume"]) == 2  # the one that is left is of another model
    assert "segue train --out runs/a --resume" in capsys.readouterr().err
    assert main(["train", "--resume"]) == 0
    assert "Going on with runs/a." in capsys.readouterr().err and Path("runs/a/result.json").exists()
    assert sorted(path.name for path in Path("runs").iterdir()) == ["a", "b"]
    assert main(["train", "--resume", "--overwrite"]) == 2
