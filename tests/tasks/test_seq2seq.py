"""Sequence to sequence: pairs on disk and in batches, what is written, and the figures on made-up answers."""

from __future__ import annotations

import base64
import io
import wave
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from segue.batches.batch import IGNORE
from segue.batches.batches import Config as Layout
from segue.batches.codec import Codec, Sizes
from segue.batches.encode import encode
from segue.batches.frames import frame_count
from segue.batches.state import State
from segue.batches.store import columns_of
from segue.data.config import Config as Data
from segue.data.example import Example
from segue.data.media import decoded
from segue.errors import InputError
from segue.inference.decode_settings import Config as Decode
from segue.inference.evaluation import Evaluation, compare
from segue.inference.opened import Opened
from segue.look.source_picture import MOST_PLAYED
from segue.models.rnn_seq2seq import RnnSeq2seq
from segue.recipe import load_recipe
from segue.tasks.seq2seq import BEAM, TASK, Seq2seq, Translation
from segue.tokens.tokenizer import Config as Tokens
from segue.tokens.tokenizer import Tokenizer

STOP = 0


def test_targets_are_shifted_by_one_and_end_with_stop() -> None:
    columns = columns_of(source=[np.array([5, 6]), np.array([7])], text=[np.array([2]), np.array([3, 4])])
    batch = TASK.collate(columns, 9999)
    assert batch.tokens_BT.tolist() == [[STOP, 2, 0], [STOP, 3, 4]]
    assert batch.targets.tolist() == [[2, STOP, IGNORE], [3, 4, STOP]]
    assert batch.source.tolist() == [[5, 6], [7, 0]]
    assert batch.source_mask.tolist() == [[True, True], [True, False]]
    assert batch.mask_BT.tolist() == [[True, True, False], [True, True, True]]
    assert batch.count == 5


def test_a_batch_becomes_tensors_with_the_same_values() -> None:
    batch = TASK.collate(columns_of(source=[np.array([5, 6])], text=[np.array([2])]), 9999)
    moved = batch.to("cpu")
    for name in ("tokens_BT", "targets", "mask_BT", "source", "source_mask"):
        assert getattr(moved, name).tolist() == getattr(batch, name).tolist()
    assert moved.fresh_B is None
    assert moved.count == batch.count


def test_a_translation_that_is_cut_does_not_end_there() -> None:
    columns = columns_of(source=[[6, 7], [8, 9, 10, 11], [12]], text=[[6, 7, 8], [9], [10, 11, 12, 13]])
    batch = TASK.collate(columns, 2)
    assert batch.source[batch.source_mask].tolist() == [6, 7, 8, 9, 12]
    assert batch.tokens_BT.tolist() == [[STOP, 6, 7], [STOP, 9, 0], [STOP, 10, 11]]
    assert batch.targets.tolist() == [[6, 7, 8], [9, STOP, IGNORE], [10, 11, 12]]


def test_translations_on_disk(tmp_path: Path) -> None:
    rows = [Example("the cow", target="die Kuh"), Example("grass", target="Gras")]
    tokenizer = Tokenizer.train(Tokens(kind="char"), [row.text + row.target for row in rows])
    codec = Codec(tokenizer, (), Data(), Sizes(tokenizer.vocab_size))
    encoded = encode(rows, lambda group: TASK.encode(group, codec), tokenizer, tmp_path, limit=5)
    for name, texts in {"source": [r.text for r in rows], "text": [r.target for r in rows]}.items():
        column = encoded.store.columns[name]
        assert [column.row(i).tolist() for i in range(2)] == [tokenizer.encode(text).tolist() for text in texts]
    assert encoded.tokens == sum(len(row.text) + len(row.target) for row in rows)
    # Beyond 5: two of each side of the first row; the store keeps them, batches leave them out.
    assert encoded.cut == 4
    asked = TASK.encode(rows, codec, labelled=False)
    assert set(asked) == {"source"} and asked["source"].flat.tolist() == encoded.store.columns["source"].flat.tolist()


def test_validation_reads_the_first_rows_sorted_by_length(tmp_path: Path) -> None:
    rows = [Example(text, target="ab") for text in ("abc", "a", "ab", "b", "aabb")]
    tokenizer = Tokenizer.train(Tokens(kind="char"), ["abc"])
    codec = Codec(tokenizer, (), Data(), Sizes(tokenizer.vocab_size))
    store = encode(rows, lambda group: TASK.encode(group, codec), tokenizer, tmp_path).store
    for limit, found in ((12, [1, 3, 2, 0]), (11, [1, 3, 2, 0]), (9, [1, 2, 0]), (99, [1, 3, 2, 0, 4])):
        assert TASK.to_validate(store, Layout(length=9), limit).tolist() == found  # each has 3 predictions


# Writing

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven"]


def opened(make: Any, limit: int = 100, **decode: Any) -> Opened:
    tokenizer = Tokenizer.train(Tokens(kind="char"), [" ".join(WORDS)])
    codec = Codec(tokenizer, (), Data(), Sizes(tokenizer.vocab_size))
    return Opened(make(codec.sizes), codec, Decode(**{"beam": 1, "max_tokens": 20} | decode), limit, TASK)


def examples(*texts: str) -> list[Example]:
    return [Example(text=text) for text in texts]


@dataclass(frozen=True)
class Copied(State):
    """How far each row has copied its source."""

    source_BS: Tensor
    place_B: Tensor

    @property
    def rows(self) -> Tensor:
        return torch.arange(len(self.place_B))

    def join(self, others: Any) -> Copied:
        raise NotImplementedError

    def select(self, rows: Tensor, same_text: bool = False) -> Copied:
        return Copied(self.source_BS[rows], self.place_B[rows])


class Copier:
    """Writes the source again, then STOP, each with probability 0.9 (the rest is spread evenly)."""

    unwritten = (1,)

    def __init__(self, sizes: Sizes) -> None:
        self.vocab_size = sizes.vocab_size

    def start(self, rows: int, capacity: int, source: Tensor, source_mask: Tensor) -> Copied:
        ended = torch.cat([source.masked_fill(~source_mask, 0), torch.zeros(rows, 1, dtype=torch.long)], 1)
        return Copied(ended, torch.full((rows,), -1))

    def step(self, tokens_BT: Tensor, mask_BT: Tensor, state: Copied) -> tuple[Tensor, Copied]:
        place_B = state.place_B + mask_BT.sum(1)
        right_B = state.source_BS.gather(1, place_B.clamp(max=state.source_BS.shape[1] - 1)[:, None])
        p_BV = torch.full((len(tokens_BT), self.vocab_size), 0.1 / (self.vocab_size - 1)).scatter(1, right_B, 0.9)
        return p_BV.log(), Copied(state.source_BS, place_B)


@pytest.mark.parametrize("beam", [1, 3])
def test_translations_come_back_as_text(beam: int) -> None:
    one = opened(Copier, beam=beam, max_tokens=60)
    draw = np.random.default_rng(0)
    rows = [" ".join(draw.choice(WORDS, draw.integers(1, 7))) for _ in range(70)]
    answers = list(TASK.predict(one, examples(*rows)))
    assert [answer.text for answer in answers] == rows
    for text, answer in zip(rows, answers, strict=True):
        assert answer.logprob == pytest.approx((len(text) + 1) * np.log(0.9), rel=1e-4)


def test_a_source_beyond_the_limit_is_cut() -> None:
    one = opened(Copier, limit=5)
    assert [answer.text for answer in TASK.predict(one, examples("three five"))] == ["three"]
    assert TASK.cut(one, Example(text="three five")) == 5


def test_unknown_is_never_written() -> None:
    """Where the likeliest token is UNK, the next one is taken."""

    class Unsure(Copier):
        def step(self, tokens_BT: Tensor, mask_BT: Tensor, state: Copied) -> tuple[Tensor, Copied]:
            logits, state = super().step(tokens_BT, mask_BT, state)
            logits[:, 1] = 5.0
            return logits, state

    (answer,) = TASK.predict(opened(Unsure), examples("two"))
    assert answer.text == "two"


def test_a_blank_source_has_a_blank_translation() -> None:
    class Talker(Copier):
        def step(self, tokens_BT: Tensor, mask_BT: Tensor, state: Copied) -> tuple[Tensor, Copied]:
            logits, state = super().step(tokens_BT, mask_BT, state)
            return logits[:, [1, 0, *range(2, self.vocab_size)]], state  # it writes UNK where it should end

    answers = list(TASK.predict(opened(Talker, max_tokens=5), examples("", "six", "  ")))
    assert [answer.text == "" for answer in answers] == [True, False, True]


def test_a_translation_is_drawn_without_a_beam() -> None:
    """What a row draws goes by the seed and its place in the file, not by the rows beside it."""
    warm = {"max_tokens": 60, "beam": 0, "temperature": 2.0}
    one, again, other = (opened(Copier, seed=seed, **warm) for seed in (1, 1, 2))
    rows = examples("one two", "seven", "six six six", "four", "five three")
    texts = [[answer.text for answer in TASK.predict(way, rows)] for way in (one, again, other)]
    assert texts[0] == texts[1] != texts[2]
    assert [answer.text for answer in TASK.predict(one, rows[:2])] == texts[0][:2]
    (several, _) = TASK.predict(opened(Copier, seed=1, n_best=4, **warm), rows[:2])
    scores = [text.score for text in several.best]
    assert len({text.text for text in several.best}) > 1 and scores == sorted(scores, reverse=True)
    assert (several.text, several.logprob) == (several.best[0].text, several.best[0].logprob)


def test_a_recipe_has_a_beam_unless_it_draws() -> None:
    for decode, beam in (({}, BEAM), ({"beam": 2}, 2), ({"temperature": 0.5}, None)):
        values: dict[str, dict[str, Any]] = {"decode": dict(decode), "data": {}}
        TASK.defaults(values, RnnSeq2seq)
        assert values["decode"].get("beam") == beam and values["decode"]["empty"] is False
        assert values["data"] == {}


def test_summaries_of_functions_are_ranked_by_rouge() -> None:
    for asked, metric in (({}, "rougeL"), ({"metric": "chrf"}, "chrf")):
        data = {"path": "docstrings", **asked}
        values: dict[str, dict[str, Any]] = {"decode": {}, "data": data, "batches": {}, "tokens": {}}
        TASK.defaults(values, RnnSeq2seq)
        assert values["data"]["metric"] == metric


def test_a_result_names_what_matters_of_the_decoding() -> None:
    said = {"beam": 3, "length_penalty": 0.6, "max_tokens": 20, "length_ratio": 3.0}
    assert TASK.decoding(opened(Copier, beam=3)) == said
    assert TASK.decoding(opened(Copier, beam=3, n_best=2)) == said | {"n_best": 2}


def test_the_n_best_are_ranked() -> None:
    (answer,) = TASK.predict(opened(Copier, beam=4, n_best=3), examples("two"))
    assert len(answer.best) == 3 and answer.best[0].text == answer.text == "two"
    scores = [one.score for one in answer.best]
    assert scores == sorted(scores, reverse=True)
    assert answer.line() == "\n".join(f"{i}\t{one.score:.4f}\t{one.text}" for i, one in enumerate(answer.best, 1))
    assert answer.json()["best"][0] == {"translation": "two", "logprob": answer.logprob, "score": scores[0]}


@pytest.mark.parametrize("values", [{"beam": 1}, {"beam": 3}, {"beam": 0, "seed": 4}])
def test_a_prefix_is_kept(values: dict[str, int]) -> None:
    one = opened(Copier, prefix="th", **values)
    for answer in TASK.predict(one, examples("three", "the six", "")):
        assert answer.text.startswith("th") or not answer.text
    (answer,) = TASK.predict(opened(Copier, prefix="se", beam=2), examples("seven"))
    assert answer.text == "seven"
    assert answer.logprob == pytest.approx(4 * np.log(0.9), rel=1e-4)  # ven and STOP


def test_a_prefix_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(InputError, match=r"decode\.prefix holds '7'"):
        list(TASK.predict(opened(Copier, prefix="7"), examples("seven")))


def test_a_short_source_has_no_endless_target() -> None:
    class Endless(Copier):
        def step(self, tokens_BT: Tensor, mask_BT: Tensor, state: Copied) -> tuple[Tensor, Copied]:
            logits, state = super().step(tokens_BT, mask_BT, state)
            logits[:, STOP] = -np.inf
            return logits, state

    for beam in (1, 3):
        short, long = TASK.predict(opened(Endless, beam=beam, max_tokens=300), examples("six", "six six six"))
        assert (len(short.text), len(long.text)) == (3 * 3 + 20, 11 * 3 + 20)
        (free,) = TASK.predict(opened(Endless, beam=beam, max_tokens=70, length_ratio=0), examples("six"))
        assert len(free.text) == 70


@given(st.lists(st.sampled_from(["", " ", "one", "two six", "three four five seven"]), max_size=40), st.integers(1, 9))
@settings(max_examples=10, deadline=None)
def test_answers_come_in_the_order_of_their_sources(rows: list[str], first: int) -> None:
    """However windows and batches fall; blank lines stay blank."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("segue.tasks.seq2seq._ROWS", first)
        patch.setattr("segue.tasks.seq2seq._TOKENS", 50)
        answers = [answer.text for answer in TASK.predict(opened(Copier, beam=2, max_tokens=60), examples(*rows))]
    assert answers == [row.strip() for row in rows]


def test_a_file_of_any_size_is_read_a_window_at_a_time() -> None:
    read = 0

    def endless() -> Iterator[Example]:
        nonlocal read
        while True:
            read += 1
            yield Example(text="two")

    answers = TASK.predict(opened(Copier), endless())
    for answer, _ in zip(answers, range(200), strict=False):
        assert answer.text == "two"
    assert read < 500


def test_a_prediction_is_a_line_and_an_object() -> None:
    one = Translation("die Kuh", -1.5)
    assert one.line() == "die Kuh" and one.json() == {"translation": "die Kuh", "logprob": -1.5}


# Scoring a given translation


def elman(sizes: Sizes) -> RnnSeq2seq:
    torch.manual_seed(0)
    return RnnSeq2seq(
        RnnSeq2seq.Config(cell="elman", width=6, attention="none", bidirectional=False, tied="none"), sizes
    ).double()


def by_hand(one: Opened, source: str, target: str) -> list[float]:
    """log p of each token of the target, and of STOP, from the equations and the weights alone."""
    weights = {name: value.numpy() for name, value in one.model.state_dict().items()}

    def cell(part: str, x: Any, h: Any) -> Any:
        named = {key: weights[f"{part}.core.{key}_l0"] for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        return np.tanh(named["weight_ih"] @ x + named["bias_ih"] + named["weight_hh"] @ h + named["bias_hh"])

    h = np.zeros(6)
    for token in one.codec.tokenizer.encode(source):
        h = cell("encoder", weights["source_vectors.weight"][token], h)
    logps, before = [], STOP
    for token in [*one.codec.tokenizer.encode(target).tolist(), STOP]:
        h = cell("decoder", weights["vectors.weight"][before], h)
        p = np.exp(weights["head.weight"] @ h + weights["head.bias"])
        logps.append(float(np.log(p[token] / p.sum())))
        before = token
    return logps


def test_a_given_translation_is_scored_as_by_hand() -> None:
    one = opened(elman)
    (line,) = TASK.scored(one, [Example(text="one two", target="seven")])
    expected = by_hand(one, "one two", "seven")
    assert line.tokens == [*"seven", ""] and line.bytes == 6
    assert line.logprobs == pytest.approx(expected, abs=1e-10)
    assert line.logprob == pytest.approx(sum(expected)) and line.bits == pytest.approx(-sum(expected) / np.log(2))
    assert line.token_bits == pytest.approx([-p / np.log(2) for p in expected])
    assert line.perplexity == pytest.approx(np.exp(-np.mean(expected)))


def test_references_have_the_perplexity_of_all_their_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever rows are scored together, and however long a reference is: none is cut."""
    one = opened(elman, limit=4)
    rows = [Example(text=source, target=target) for source, target in (("one", "two seven"), ("six", ""), ("two", "1"))]
    expected = [by_hand(one, row.text, row.target) for row in rows]
    everything = [p for row in expected for p in row]
    for cells in (1, 1 << 25):
        monkeypatch.setattr("segue.tasks.seq2seq._CELLS", cells)
        found = list(TASK.target_logprobs(one, rows))
        assert [len(row) for row in found] == [10, 1, 2]
        assert np.concatenate(found) == pytest.approx(everything, abs=1e-10)
        result = TASK.judged(one, rows).result
        assert result["perplexity"] == pytest.approx(np.exp(-np.mean(everything)))


# Figures


class Told(Seq2seq):
    """Has its answers beforehand."""

    def __init__(self, written: list[str]) -> None:
        self.written = written

    def predict(self, opened: Opened, examples: Iterable[Example]) -> Iterator[Translation]:
        return (Translation(text, 0.0) for text in self.written)

    def target_logprobs(self, opened: Opened, rows: Iterable[Example]) -> Iterator[Any]:
        return (np.log([0.5, 0.125]) for _ in rows)


def translated(written: list[str], references: list[str], metric: Any = "bleu", words: int = 2) -> Evaluation:
    rows = [Example(text=" ".join(["source"] * (i % words + 1)), target=t) for i, t in enumerate(references)]
    one = opened(lambda sizes: None, 1000)
    return Told(written).judged(one._replace(codec=one.codec._replace(data=Data(metric=metric))), rows)


WRITTEN = ["the old cow eats the green grass", "my dog sees a red ball", "a king", "the cat naps well"]
REFERENCES = ["the old cow eats green grass", "my dog sees the red ball", "a wise king runs", "the cat naps well"]


def test_translations_are_sacrebleus() -> None:
    result = translated(WRITTEN, REFERENCES).result
    assert result["bleu"] == pytest.approx(sacrebleu.corpus_bleu(WRITTEN, [REFERENCES]).score)
    assert result["chrf"] == pytest.approx(sacrebleu.corpus_chrf(WRITTEN, [REFERENCES]).score)
    assert (result["task"], result["figure"], result["sentences"], result["exact"]) == ("seq2seq", "bleu", 4, 0.75)
    for part in ("BLEU|", "chrF2|", "version:", "tok:13a"):
        assert part in result["signature"]
    assert result["perplexity"] == pytest.approx(4)  # 1 / sqrt(1/2 · 1/8)
    low, high = result["bleu_ci"]
    assert low <= result["bleu"] <= high


def test_translations_are_shown_right_or_wrong() -> None:
    shown = translated(WRITTEN, REFERENCES).examples
    assert shown[3] == {"source": "source source", "reference": REFERENCES[3], "output": WRITTEN[3]}
    assert len(shown) == 4


def test_other_right_targets_count_as_right() -> None:
    rows = [Example("x", target="a red ball", also=("one red ball",)), Example("y", target="a cow", also=("one cow",))]
    result = Told(["one red ball", "cow"]).judged(opened(lambda sizes: None), rows).result
    assert result["exact"] == 1.0 and result["wer"] == 1 / 5  # "cow" is near to both, and is held against the target
    assert result["bleu"] == sacrebleu.corpus_bleu(["one red ball", "cow"], [["one red ball", "a cow"]]).score


def test_an_output_is_compared_with_the_nearest_right_target() -> None:
    row = Example("x", target="jon finds grey keys", also=("john finds gray keys", "jon finds gray keys"))
    found = Told(["jon finds gray drums"]).judged(opened(lambda sizes: None), [row])
    assert found.result["wer"] == 1 / 4 and found.examples[0]["nearest"] == "jon finds gray keys"


def heard(written: list[str], source: Any = "sound", name: str = "tones") -> Evaluation:
    """Answers to the first sounds of `tones`, or pictures of `shapes`."""
    rows = [Example(f"{name}:{number}", target="ada sings") for number in range(len(written))]
    one = opened(lambda sizes: None, 1000)
    sizes = replace(one.codec.sizes, source=source, frame=80)
    codec = one.codec._replace(sizes=sizes, data=Data(metric="wer", source=source, rate=8000, pixels=16))
    return Told(written).judged(one._replace(codec=codec), rows)


def test_errors_of_sounds_are_shown_first_with_what_was_heard() -> None:
    evaluation = heard(["ada sings"] * 70 + ["ada naps"])
    first, second = evaluation.examples[:2]
    assert (first["source"], first["output"]) == ("tones:70", "ada naps") and second["source"] == "tones:0"
    seconds = len(decoded("tones:70", Data(source="sound", rate=8000))) / 8000
    assert first["seconds"] == f"{seconds:.2f}"
    content = base64.b64decode(first["sound"].removeprefix("data:audio/wav;base64,"))
    with wave.open(io.BytesIO(content)) as file:
        assert (file.getframerate(), file.getsampwidth(), file.getnframes()) == (8000, 2, round(seconds * 8000))
    assert len(evaluation.examples) == 20
    assert all(one["picture"].startswith("data:image/png") for one in evaluation.examples)
    assert sum(len(one.get("sound", "")) for one in evaluation.examples) <= MOST_PLAYED
    ranges = evaluation.result["by_length"]
    assert {row["unit"] for row in ranges} == {"seconds"} and sum(row["rows"] for row in ranges) == 71
    assert 0.3 < ranges[0]["from"] <= seconds <= ranges[-1]["to"] < 4


def test_pictures_are_shown_and_have_no_length() -> None:
    evaluation = heard(["ada sings", "a red circle"], "picture", "shapes")
    assert evaluation.examples[0]["source"] == "shapes:1"
    assert not {"sound", "seconds"} & evaluation.examples[0].keys() and "picture" in evaluation.examples[0]
    assert evaluation.lengths_N is None and "by_length" not in evaluation.result


def test_few_pictures_are_read_together_however_many_patches_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture is one frame and many places: memory is that of the places."""
    monkeypatch.setattr("segue.tasks.seq2seq._TOKENS", 2 * 2 * 64)
    monkeypatch.setattr("segue.tasks.seq2seq._PLACES", 2 * 64)
    read: list[tuple[int, int]] = []

    class Counted(RnnSeq2seq):
        def encoded(self, source: Tensor, source_mask_BS: Tensor | None) -> Any:
            read.append(tuple(source.shape[:2]))  # type: ignore[arg-type]
            return super().encoded(source, source_mask_BS)

    one = opened(lambda sizes: None, beam=2, max_tokens=2)
    sizes = replace(one.codec.sizes, source="picture", frame=3 * 16 * 16)
    codec = one.codec._replace(sizes=sizes, data=Data(source="picture", pixels=16))
    model = Counted(Counted.Config(width=8, layers=1, patch=2), sizes).eval()
    rows = [Example(f"shapes:{number}", target="one") for number in range(1, 8)]
    with torch.inference_mode():
        assert len(list(TASK.predict(one._replace(codec=codec, model=model), rows))) == len(rows)
        assert len(list(TASK.target_logprobs(one._replace(codec=codec, model=model), rows))) == len(rows)
    assert sum(count for count, _ in read) == 2 * len(rows)
    assert all(count * frames <= max(2, frames) for count, frames in read)


def test_word_errors_are_counted() -> None:
    result = translated(WRITTEN, REFERENCES, "wer").result
    assert result["wer"] == 4 / 20 and result["edits"] == {"substitutions": 1, "deletions": 2, "insertions": 1}
    assert result["confusions"] == [("the", "a", 1)]
    assert translated(WRITTEN, REFERENCES, "cer").result["confusions"] == [("the", "a", 1)]
    assert not {"edits", "confusions"} & translated(WRITTEN, REFERENCES).result.keys()


def test_bits_per_byte_of_targets() -> None:
    """Of two tokens of 1 and 3 bits a target, and its bytes with the end."""
    targets = ["zero", "one two"]
    found = Told(targets).judged(opened(lambda sizes: None), [Example("x", target=target) for target in targets])
    assert found.result["bits_per_byte"] == pytest.approx(8 / (5 + 8))
    # Characters that no token spells have no bits.
    assert "bits_per_byte" not in translated(["Kühe"], ["Kühe"]).result


def test_compare_translations() -> None:
    gap = compare([translated(REFERENCES, REFERENCES)], [translated(WRITTEN, REFERENCES)])
    expected = sacrebleu.corpus_bleu(WRITTEN, [REFERENCES]).score
    assert gap.difference == pytest.approx(100 - expected)
    assert compare([translated(WRITTEN, REFERENCES)], [translated(REFERENCES, REFERENCES)]).difference < 0


@pytest.mark.parametrize("name", TASK.metrics)
def test_data_metric_names_the_figure_that_ranks(name: str) -> None:
    evaluation = translated(WRITTEN * 10, REFERENCES * 10, name)
    assert evaluation.figure == name and list(evaluation.result)[:3] == ["task", "figure", name]
    assert evaluation.value == evaluation.result[name]
    low, high = evaluation.result[f"{name}_ci"]
    assert low <= evaluation.value <= high
    by_bleu = translated(WRITTEN * 10, REFERENCES * 10).result
    assert {key: evaluation.result[key] for key in TASK.metrics} == pytest.approx({k: by_bleu[k] for k in TASK.metrics})
    # The tokens of these tests do not know all letters of the targets, so that they have no bits per byte.
    assert TASK.shown(name)[0] == name and set(TASK.shown(name)) <= {*evaluation.result, "bits_per_byte"}


def test_figures_by_length_of_the_source() -> None:
    """Here every source of three words is translated badly."""
    written = [REFERENCES[0], REFERENCES[0], WRITTEN[2]] * 25
    found = translated(written, [REFERENCES[0]] * 75, words=3).result["by_length"]
    assert [(row["from"], row["to"], row["mean"], row["rows"]) for row in found] == [
        (n, n, float(n), 25) for n in (1, 2, 3)
    ]
    short, middle, long = (row["bleu"] for row in found)
    assert short == middle == pytest.approx(100) and long < 10
    assert found[0]["bleu_ci"] == pytest.approx([100, 100])
    assert "by_length" not in translated(written, [REFERENCES[0]] * 75, words=1).result


def test_a_metric_is_of_pairs_alone() -> None:
    with pytest.raises(InputError, match=r"data.metric=chrf is not for this model: .* bits per byte"):
        load_recipe("ngram", ["data.metric=chrf"])
    with pytest.raises(InputError, match=r"data\.metric"):
        load_recipe("rnn_seq2seq", ["data.metric=blue"])
    assert load_recipe("rnn_seq2seq", ["data.metric=rougeL"]).data.metric == "rougeL"


def test_token_batches_count_the_squares_of_pictures(tmp_path: Path) -> None:
    """A still picture of 16 x 16 pixels counts as 4 tokens beside the 4 of its target, and is padded to no more."""
    data, tokenizer = Data(source="picture", pixels=16), Tokenizer.train(Tokens(kind="char"), ["abc"])
    codec = Codec(tokenizer, (), data, Sizes(tokenizer.vocab_size, source="picture", frame=3 * 16 * 16))
    rows = (Example(f"shapes:{number}", target="abc") for number in range(40))
    stills = [row for row in rows if frame_count(row.text, data) == 1]
    store = encode(stills, lambda group: TASK.encode(group, codec), tokenizer, tmp_path).store
    found = TASK.batches(store, Layout(64, 100, tokens=80), 0, codec=codec)
    batches = [batch for step in range(found.per_epoch) for batch in found.at(step)]
    assert sum(len(batch.source) for batch in batches) == len(stills) > 20
    assert {batch.source.shape[1:] for batch in batches} == {(1, 3 * 16 * 16)}
    assert 5 < max(len(batch.source) for batch in batches) <= 80 / (4 + 4)
