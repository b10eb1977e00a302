from __future__ import annotations

import math
from collections import Counter
from itertools import groupby, islice, pairwise, product

import numpy as np
import pytest

from segue.data import tones
from segue.data.tones import PITCHES, SENTENCE, SPELLINGS, WORDS


def spoken(target: str) -> str:
    """How a sentence sounds: the first spelling of each word."""
    ways = {way: word for word, spellings in SPELLINGS.items() for way in spellings}
    return " ".join(ways.get(word, word) for word in target.split(" "))


def test_the_probabilities_sum_to_one_and_the_letters_suit_tones() -> None:
    assert math.isclose(sum(p for p, _ in SENTENCE), 1)
    assert {len(names) for _, names in SENTENCE} == {2, 3, 4, 5}
    words = [word for words in WORDS.values() for word in words]
    assert len(set(words)) == len(words) == 24
    assert not any(one == other for word in words for one, other in pairwise(word))
    assert min(PITCHES.values()) > 200 and 2 * max(PITCHES.values()) * (1 + tones.BEND) < 3400
    ordered = sorted(PITCHES.values())
    bent = [(low * (1 + tones.BEND), high * (1 - tones.BEND)) for low, high in pairwise(ordered)]
    assert all(low < high for low, high in bent)


def test_the_entropy_of_the_text_given_the_sound_by_brute_force() -> None:
    """Every text of the grammar with its probability: given the sound, the entropy is that of the spellings."""
    joint: Counter[tuple[str, str]] = Counter()
    for p, names in SENTENCE:
        for words in product(*(WORDS[name] for name in names)):
            ways = [SPELLINGS.get(word, (word,)) for word in words]
            chance = p / math.prod(len(WORDS[name]) for name in names) / math.prod(map(len, ways))
            for text in product(*ways):
                joint[" ".join(words), " ".join(text)] += chance  # type: ignore[assignment]
    sounds: Counter[str] = Counter()
    for (sound, _), chance in joint.items():
        sounds[sound] += chance
    assert math.isclose(sum(sounds.values()), 1)
    entropy = -sum(p * math.log2(p / sounds[sound]) for (sound, _), p in joint.items())
    size = sum(p * (len(text.encode()) + 1) for (_, text), p in joint.items())
    found = tones.best(tones.examples(0))
    assert found["bits_per_byte"] == pytest.approx(entropy / size, rel=0.05)  # 4000 sentences of them
    assert (found["wer"], found["cer"], found["exact"]) == (0, 0, 1)


def test_the_best_score_is_the_probability_of_these_very_targets() -> None:
    examples = list(islice(tones.examples(3), 200))
    bits = sum(math.log2(1 + len(example.also)) for example in examples)  # all spellings are equally likely
    size = sum(len(example.target.encode()) + 1 for example in examples)
    assert tones.best(examples)["bits_per_byte"] == pytest.approx(bits / size)
    drawn = Counter(word for example in examples for word in example.target.split(" "))
    for spellings in SPELLINGS.values():
        assert min(drawn[way] for way in spellings) > 0.25 * sum(drawn[way] for way in spellings)


def test_other_spellings_sound_the_same_and_are_never_the_target() -> None:
    for example in islice(tones.examples(0), 100):
        ways = {example.target, *example.also}
        assert len(ways) == 1 + len(example.also) <= 8
        assert {spoken(way) for way in ways} == {spoken(example.target)}


def test_sound_and_text_are_functions_of_seed_and_number() -> None:
    examples = list(tones.examples(0))
    assert examples[:200] == list(islice(tones.examples(0), 200)) and len(examples) == tones.SENTENCES
    assert [example.text for example in examples[:2]] == ["tones:1", "tones:2"]
    assert [e.target for e in examples[:20]] != [e.target for e in islice(tones.examples(1), 20)]
    later, first = tones.sound(0, 7, 8000), tones.sound(0, 1, 8000)
    np.testing.assert_array_equal(tones.sound(0, 1, 8000), first)
    np.testing.assert_array_equal(tones.sound(0, 7, 8000), later)
    assert len(tones.sound(1, 1, 8000)) != len(first)


@pytest.mark.parametrize("rate", [8000, 16000])
def test_a_peak_finder_reads_every_sound(rate: int) -> None:
    """So that the best score can be reached: the loudest frequency of each 10 ms, and runs of the same letter."""
    for example in islice(tones.examples(0), 12):
        assert heard(tones.sound(0, example.line, rate), rate) == spoken(example.target)


def heard(samples: np.ndarray, rate: int) -> str:
    assert samples.dtype == np.float32 and 0.4 < len(samples) / rate < 2.5 and np.abs(samples).max() <= 1
    width, size = rate // 50, rate // 4
    windows = np.lib.stride_tricks.sliding_window_view(samples, width)[:: rate // 200]
    power = np.abs(np.fft.rfft(windows * np.hanning(width), size)) ** 2
    low = slice(round(280 * size / rate), round(1700 * size / rate))
    hertz = (power[:, low].argmax(1) + low.start) * rate / size
    loud = power.max(1) > 0.05 * power.max()
    letters, pitches = list(PITCHES), np.array(list(PITCHES.values()))
    nearest = np.abs(np.log(hertz[:, None] / pitches)).argmin(1)
    signs = "".join(letters[i] if on else " " for i, on in zip(nearest, loud, strict=True))
    runs = [(sign, len(list(run))) for sign, run in groupby(signs)]
    long = [sign for sign, length in runs if length >= (6 if sign == " " else 3)]
    return "".join(sign for sign, _ in groupby(long)).strip()
