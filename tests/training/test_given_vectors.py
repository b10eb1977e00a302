"""model.embeddings in every model with vectors of tokens: where they go, how they are spread, still or learnt."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import segue
from segue.batches.batch import Batch
from segue.errors import InputError
from segue.layers.word_features import WordFeatures
from segue.models import kinds, model_class
from segue.models.base import Sizes
from segue.recipe import load_recipe
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer
from segue.training.setup import take_vectors

NEW = [f"word{i}" for i in range(60)]
"""Words that the file has no vector for."""
GIVEN = {"Apple": 0, "apple": 1, "house": 2, "tree": 3}
WORDS = ["house", "Apple", "Tree", *NEW]
"""In the text, which knows no "apple" and "tree" only with a capital."""
WIDTH = 8
VECTORS = 0.5 * np.random.default_rng(0).normal(size=(len(GIVEN), WIDTH)).astype(np.float32)


class Case(NamedTuple):
    kind: str
    config: dict[str, Any]
    key: str
    """The setting that gives the vectors their width."""
    tables: tuple[str, ...]
    """Their tables, and, put together by commas, what train.freeze names."""


WIDE, TAGGER = {"embedding": WIDTH}, ("word.vectors", "word.folded")
CASES = [
    *(Case(kind, WIDE, "embedding", ("vectors",)) for kind in ("cbow", "deep_cbow", "dan", "cnn_classifier")),
    Case("rnn_classifier", WIDE, "embedding", ("vectors",)),
    Case("neural_lm", WIDE, "embedding", ("vectors",)),
    Case("rnn_lm", {**WIDE, "width": 12}, "embedding", ("vectors",)),
    Case("rnn_lm", {"embedding": 0, "width": WIDTH, "tied": True}, "width", ("vectors",)),
    Case("gpt", {"width": WIDTH}, "width", ("vectors",)),
    Case("gpt", {"width": WIDTH, "tied": False, "context": len(WORDS) + 2}, "width", ("vectors",)),
    Case("window_tagger", WIDE, "embedding", ("word.vectors",)),
    Case("cnn_tagger", WIDE, "embedding", TAGGER),
    Case("rnn_tagger", WIDE, "embedding", TAGGER),
    Case("rnn_tagger", {**WIDE, "word": WordFeatures(folded=False)}, "embedding", TAGGER[:1]),
    Case("rnn_seq2seq", {"width": WIDTH}, "width", ("vectors",)),
    Case("rnn_seq2seq", {"width": WIDTH, "tied": "none"}, "width", ("vectors", "source_vectors")),
]
PREDICTS_TOKENS = {"neural_lm", "rnn_lm", "gpt", "rnn_seq2seq"}


def named(case: Case) -> str:
    return "-".join([case.kind, *(key for key in case.config if key not in ("embedding", "width"))])


@pytest.fixture(params=CASES, ids=named)
def case(request: Any) -> Case:
    found: Case = request.param
    return found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("given") / "vectors.txt"
    rows = (" ".join([word, *map(repr, VECTORS[place].tolist())]) for word, place in GIVEN.items())
    path.write_text("\n".join([f"{len(GIVEN)} {WIDTH}", *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(Tokens(kind="space"), [" ".join(WORDS)])


def begun(case: Case, tokenizer: Tokenizer, file: Path | str = "") -> tuple[Any, dict[str, Tensor]]:
    """A model, and all that it begins with."""
    config = model_class(case.kind).Config(**case.config, embeddings=str(file))
    torch.manual_seed(0)
    model = model_class(case.kind)(config, Sizes(tokenizer.vocab_size, 3))
    take_vectors(model, config, tokenizer)
    return model, {name: tensor.clone() for name, tensor in model.state_dict().items()}


def ids(tokenizer: Tokenizer, *words: str) -> list[int]:
    return [int(i) for i in tokenizer.encode_words(words)[0]]


def test_tokens_with_a_vector_begin_with_it(case: Case, file: Path, tokenizer: Tokenizer) -> None:
    """Up to one number for all in models that predict tokens; a folded table is filled by the small letters."""
    _, weights = begun(case, tokenizer, file)
    for table in case.tables:
        found = weights[table + ".weight"][ids(tokenizer, "house", "Apple", "Tree")]
        expected = torch.from_numpy(VECTORS[[2, 1 if table == "word.folded" else 0, 3]])
        factor = found.norm() / expected.norm()
        torch.testing.assert_close(found, factor * expected)
        assert case.kind in PREDICTS_TOKENS or factor == pytest.approx(1)


def test_the_others_are_spread_alike(case: Case, file: Path, tokenizer: Tokenizer) -> None:
    """As the vectors, or, where tokens are predicted, as the model's own, which then stay as they were drawn."""
    _, drawn = begun(case, tokenizer)
    _, weights = begun(case, tokenizer, file)
    new, known = ids(tokenizer, *NEW), ids(tokenizer, "house", "Apple", "Tree")
    for table in case.tables:
        before, after = drawn[table + ".weight"], weights[table + ".weight"]
        assert after[new].std() / after[known].std() == pytest.approx(1, abs=0.4)
        factor = 1 if case.kind in PREDICTS_TOKENS else after[new].std() / before[new].std()
        torch.testing.assert_close(after[new], factor * before[new])


def test_nothing_else_is_touched(case: Case, file: Path, tokenizer: Tokenizer) -> None:
    """Not the places of a GPT, nor a tagger's letters, whatever the size of their tables."""
    model, drawn = begun(case, tokenizer)
    _, weights = begun(case, tokenizer, file)
    filled = {name + ".weight" for name in case.tables}
    same = {id(parameter) for name, parameter in model.named_parameters() if name in filled}
    shared = {name for name, p in model.named_parameters(remove_duplicate=False) if id(p) in same}
    moved = {name for name in drawn if not torch.equal(drawn[name], weights[name])}
    assert moved == (filled | shared) & drawn.keys() | ({"fixed_vectors"} & drawn.keys())


def test_a_wrong_width_names_the_key_that_sets_it(case: Case, file: Path, tokenizer: Tokenizer) -> None:
    other = {key: 2 * WIDTH if key == case.key else value for key, value in case.config.items()}
    with pytest.raises(
        InputError, match=rf"of {WIDTH} numbers, the model of {2 * WIDTH}. Set model.{case.key}={WIDTH}"
    ):
        begun(case._replace(config=other), tokenizer, file)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_tied_gpt_does_not_begin_too_sure(norm: str, file: Path, tokenizer: Tokenizer) -> None:
    """Its first guesses are about even, as they are without given vectors: within 2% of log V."""
    model, _ = begun(Case("gpt", {"width": WIDTH, "norm": norm}, "width", ()), tokenizer, file)
    tokens = torch.tensor([ids(tokenizer, *WORDS[:40])])
    batch = Batch(tokens[:, :-1], tokens[:, 1:], torch.ones(1, 39, dtype=torch.bool))
    (term,) = model.loss(batch).terms
    assert float(term.total.detach() / term.count) == pytest.approx(np.log(tokenizer.vocab_size), rel=0.02)


def test_vectors_that_are_all_alike_leave_numbers(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "flat.txt"
    path.write_text("2 8\nhouse 0 0 0 0 0 0 0 0\ntree 0 0 0 0 0 0 0 0\n")
    _, weights = begun(CASES[6], tokenizer, path)
    assert weights["vectors.weight"].isfinite().all() and not weights["vectors.weight"][ids(tokenizer, "house")].any()


# Whole runs

TAGS = {"house": "N", "Apple": "N", "Tree": "N"}


def rows(task: str) -> list[Any]:
    """Lines that hold the given words, and new ones."""
    draw = np.random.default_rng(0)
    lines = [[*draw.permutation(WORDS[:3]).tolist(), *draw.choice(NEW[:5], 2).tolist()] for _ in range(40)]
    if task == "tag":
        return [(line, [TAGS.get(word, "X") for word in line]) for line in lines]
    texts = [" ".join(line) for line in lines]
    if task == "classify":
        return [("yes" if line[0] == "house" else "no", text) for text, line in zip(texts, lines, strict=True)]
    return list(zip(texts, texts, strict=True)) if task == "seq2seq" else texts


def settings(case: Case) -> dict[str, Any]:
    given = {f"model.{key}": value for key, value in case.config.items() if key != "word"}
    given |= {"model.word.folded": False} if "word" in case.config else {}
    sizes = {"batches.size": 4, "batches.length": 16, "tokens.kind": "space", "tokens.min_count": 1}
    return {**given, **sizes, "train.steps": 2, "train.optimizer.rate": 0.1, "train.optimizer.warmup": 0}


def whole_runs() -> Iterator[Any]:
    """A case of each kind that learns by gradient, and of each way to hold its tables."""
    for one in CASES:
        if one.kind not in ("deep_cbow", "dan", "cbow") and "context" not in one.config:
            yield pytest.param(one, id=named(one))


@pytest.mark.parametrize("case", [*whole_runs()])
def test_frozen_vectors_stay_and_others_are_learnt(case: Case, file: Path, tmp_path: Path) -> None:
    task, given = model_class(case.kind).task, {**settings(case), "model.embeddings": str(file)}
    weights, found = {}, []
    for how in ("frozen", "learnt"):
        frozen = {"train.freeze": ",".join(case.tables)} if how == "frozen" else {}
        run = segue.train(case.kind, rows(task), tmp_path / how, given | frozen, device="cpu")
        weights[how] = load_file(tmp_path / how / "model.safetensors")
        found = ids(run.tokenizer, "house", "Tree")
    for table in case.tables:
        still, learnt = (weights[how][table + ".weight"][found] for how in ("frozen", "learnt"))
        expected = torch.from_numpy(VECTORS[[2, 3]])
        torch.testing.assert_close(still, still.norm() / expected.norm() * expected)
        assert (still - learnt).abs().max() > 0.01
    assert any(not torch.equal(weights["frozen"][name], weights["learnt"][name]) for name in weights["frozen"])


def test_a_run_that_begins_with_vectors_goes_on_bit_for_bit(file: Path, tmp_path: Path) -> None:
    case = Case("rnn_lm", {**WIDE, "width": 12}, "embedding", ("vectors",))
    given = {
        **settings(case),
        "model.embeddings": str(file),
        "model.dropout": 0.2,
        "train.optimizer.schedule": "constant",
    }
    segue.train("rnn_lm", rows("lm"), tmp_path / "whole", given | {"train.steps": 6}, device="cpu")
    segue.train("rnn_lm", rows("lm"), tmp_path / "parts", given | {"train.steps": 3}, device="cpu")
    assert list(tmp_path.glob("parts/checkpoints/step-*3"))
    segue.train("rnn_lm", rows("lm"), tmp_path / "parts", given | {"train.steps": 6}, resume=True, device="cpu")
    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_every_model_with_vectors_of_tokens_takes_them() -> None:
    """Whatever has a table as long as the vocabulary has the key, but for the bag whose vectors are its scores."""
    for kind in set(kinds()) - {"ensemble", "bow"}:
        cls = model_class(kind)
        if hasattr(cls, "fit") or cls.framed:  # a head has the vectors of its body
            continue
        model = cls(cls.Config(), Sizes(977, 3))
        tables = [m for m in model.modules() if isinstance(m, torch.nn.Embedding) and m.num_embeddings == 977]
        keys = {field.name for field in dataclasses.fields(load_recipe(kind).model)}
        assert bool(tables) == ("embeddings" in keys), kind
