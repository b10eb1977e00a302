from __future__ import annotations

import numpy as np
import pytest
from transformers import audio_utils

from segue.batches.log_mel import FLOOR, MELS, SHRINKS, STEP, _mel_filters, log_mel, log_power


def noise(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)


def theirs(samples: np.ndarray, rate: int) -> np.ndarray:
    window = rate // 40
    size = 1 << (window - 1).bit_length()
    filters = audio_utils.mel_filter_bank(size // 2 + 1, MELS, 0, rate / 2, rate, mel_scale="slaney")
    hann = audio_utils.window_function(window, "hann", periodic=True)
    made = audio_utils.spectrogram(
        samples, hann, window, rate // 100, size, power=2.0, mel_filters=filters, mel_floor=FLOOR, log_mel="log"
    )
    return np.asarray(made.T)


@pytest.mark.parametrize("rate", [8000, 16000, 44000])
@pytest.mark.parametrize("count", [1, 100, 201, 3333, 60_000])
def test_log_mels_are_those_of_transformers(rate: int, count: int) -> None:
    """The longest is of several blocks; the shortest is less than the padding at its ends."""
    samples = noise(count)
    found = log_power(samples, rate)
    assert found.dtype == np.float32 and found.shape == (1 + count // (rate // 100), MELS)
    np.testing.assert_allclose(found, theirs(samples, rate), atol=1e-4)


@pytest.mark.parametrize("rate", [4000, 5120, 8000, 10240, 11025, 16000, 22050, 44100, 192_000])
def test_no_mel_filter_is_empty(rate: int) -> None:
    window = round(rate / 40)
    assert (_mel_filters(rate, 1 << (window - 1).bit_length()).max(0) > 0).all()


def test_loudness_and_silence_do_not_matter_and_frames_are_normalised() -> None:
    samples = noise(8000)
    frames = log_mel(samples, 8000)
    assert abs(frames.mean()) < 1e-5 and abs(frames.std() - 1) < 1e-5
    logs, share = log_power(samples, 8000), len(frames) / (len(frames) + SHRINKS)
    kept_M = (1 - share) * (logs.mean(0) - logs.mean()) / (logs - logs.mean()).std()  # what shrinking leaves
    assert np.corrcoef(frames.mean(0), kept_M)[0, 1] > 0.999
    for factor in (1e-30, 0.01, 3.0):
        np.testing.assert_allclose(log_mel(samples * np.float32(factor), 8000), frames, atol=1e-4)
    np.testing.assert_allclose(log_mel(samples + np.float32(0.5), 8000)[1:-1], frames[1:-1], atol=0.02)
    among_silence = log_mel(np.pad(samples, 8000), 8000)
    np.testing.assert_allclose(among_silence[103:-103], frames[3:-3], atol=0.1)
    assert among_silence[:98].max() < frames.mean()


def test_the_microphone_does_not_matter_in_a_long_sound() -> None:
    """One that halves what is high: a factor of each filter's power."""
    samples = noise(16000) * np.linspace(0.1, 1, 16000, dtype=np.float32)
    heard = np.convolve(samples, [0.75, 0.25], "same").astype(np.float32)
    assert np.abs(log_power(heard, 8000) - log_power(samples, 8000)).mean() > 0.3
    long_heard, long = (np.tile(one, 20) for one in (heard, samples))
    assert np.abs(log_mel(long_heard, 8000) - log_mel(long, 8000)).mean() < 0.02


def test_a_tone_stands_at_its_time_and_its_pitch() -> None:
    rate, hertz = 8000, 1000.0
    samples = np.zeros(rate, np.float32)
    samples[4000:6000] = np.sin(2 * np.pi * hertz * np.arange(2000) / rate)
    frames = log_mel(samples, rate)
    loud = np.flatnonzero(frames.max(1) > 1)
    assert abs(STEP * loud[0] - 0.5) <= 0.015 and abs(STEP * loud[-1] - 0.75) <= 0.015
    middles = np.linspace(0, 15 + 27 * np.log(4) / np.log(6.4), MELS + 2)[1:-1]  # in mels; 1000 Hz are 15
    assert frames[60].argmax() == np.abs(middles - 15).argmin()


def test_memory_does_not_grow_with_the_windows() -> None:
    import tracemalloc

    samples = noise(1_600_000)
    tracemalloc.start()
    frames = log_power(samples, 16000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < samples.nbytes + frames.nbytes + 2**22  # all windows together would be 2.5 times the samples
