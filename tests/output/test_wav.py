"""Sounds that we write are read back by Python's own reader."""

from __future__ import annotations

import io
import wave

import numpy as np

from segue.output.wav import wav


def levels(content: bytes) -> tuple[np.ndarray, int]:
    with wave.open(io.BytesIO(content)) as file:
        assert file.getnchannels() == 1 and file.getsampwidth() == 2
        return np.frombuffer(file.readframes(file.getnframes()), "<i2"), file.getframerate()


def test_python_reads_back_what_was_written() -> None:
    samples = np.sin(np.arange(1001, dtype=np.float32) / 7) * np.float32(0.9)
    found, rate = levels(wav(samples, 8000))
    assert rate == 8000 and found.shape == samples.shape
    assert np.abs(found / 32768 - samples).max() <= 0.5 / 32768 + 1e-7  # rounded to the nearest level


def test_loud_samples_are_clipped_and_do_not_wrap_around() -> None:
    found, _ = levels(wav(np.array([-3.0, -1.0, 0.0, 1.0, 3.0]), 16000))
    assert found.tolist() == [-32768, -32768, 0, 32767, 32767]


def test_a_sound_without_samples_is_a_file_too() -> None:
    assert levels(wav(np.zeros(0, np.float32), 16000))[0].size == 0
