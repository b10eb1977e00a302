"""One vocabulary for both sides of pairs, or one for each (tokens.sides)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import segue
from segue.errors import InputError
from segue.interop.archive import export_zip, import_zip
from segue.runs.run import Run

PAIRS = [
    (f"the {word} {number}", f"DER {word.upper()} {number}") for word in ("cow", "dog", "cat") for number in range(9)
]
TINY = {"model.width": 4, "model.tied": "none", "train.steps": 2, "decode.max_tokens": 3, "batches.size": 4}


@pytest.fixture(scope="module")
def each(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("sides") / "run"
    return segue.train("rnn_seq2seq", PAIRS, out, TINY | {"tokens.kind": "char", "tokens.sides": "each"})


def test_each_side_knows_only_its_own_training_text(each: Run) -> None:
    source, target = each.codec.source_tokenizer, each.codec.tokenizer
    letters = [{tokenizer.name(i) for i in range(2, tokenizer.vocab_size)} for tokenizer in (source, target)]
    assert set("thecow") <= letters[0] and not set("DERCOW") & letters[0]
    assert set("DERCOW") <= letters[1] and not set("thecow") & letters[1]
    assert each.sizes.source_vocab_size == each.model.source_vectors.num_embeddings == source.vocab_size
    assert each.sizes.vocab_size == each.model.vectors.num_embeddings == target.vocab_size


def test_both_sides_share_one_tokenizer_unless_told(tmp_path: Path) -> None:
    run = segue.train("rnn_seq2seq", PAIRS, tmp_path / "run", TINY | {"tokens.kind": "word"})
    assert run.codec.source_tokenizer is run.codec.tokenizer and not run.sizes.source_vocab_size
    assert not (run.path / "source_tokenizer.json").exists()


def test_it_goes_into_a_zip_and_serves_as_a_start(each: Run, tmp_path: Path) -> None:
    export_zip(each.path, tmp_path / "run.zip")
    import_zip(tmp_path / "run.zip", tmp_path / "again")
    again = segue.load(tmp_path / "again", "cpu")
    asked = ["the cow 3", "a cat"]
    assert [p.text for p in again.predict(asked)] == [p.text for p in each.predict(asked)]
    tuned = segue.train("rnn_seq2seq", PAIRS, tmp_path / "tuned", TINY | {"train.init": str(each.path)})
    for side in ("tokenizer", "source_tokenizer"):
        assert getattr(tuned.codec, side).content == getattr(each.codec, side).content


def test_a_run_without_its_source_tokenizer_is_refused(each: Run, tmp_path: Path) -> None:
    shutil.copytree(each.path, tmp_path / "run")
    (tmp_path / "run" / "source_tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"source_tokenizer\.json"):
        segue.load(tmp_path / "run", "cpu")


@pytest.mark.parametrize(
    ("model", "settings", "said"),
    [
        ("rnn_seq2seq", {"tokens.sides": "each", "model.embeddings": "v.txt"}, "tokens.sides=each makes two"),
        ("rnn_lm", {"tokens.sides": "each"}, "is for pairs"),
    ],
)
def test_what_cannot_have_two_vocabularies_says_so(
    model: str, settings: dict[str, object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("v.txt").write_text("1 2\nthe 0.5 0.5\n")
    data = PAIRS if model == "rnn_seq2seq" else [text for text, _ in PAIRS]
    with pytest.raises(InputError, match=said):
        segue.train(model, data, tmp_path / "run", {"train.steps": 1, **settings})
