"""Reading sound: hours of wav files a minute, on one core, as log-mels; transformers.audio_utils in the same run.

    [SEGUE_DATA=…] python benchmarks/sound_reading.py [PAIRS]

Each case is files in a folder: clips and a long file at 8 kHz, and stereo at 44.1 kHz that is resampled to 16 kHz. The
clips are those of the Free Spoken Digit Dataset (SEGUE_DATA/fsdd); without it noise of the same lengths. The peer reads
with the standard library's `wave`, and computes the same frames; where the rate differs, it resamples with scipy. Both
are timed in seconds of the processor (they use one thread), in turn; the medians of the pairs are printed. The limit is
the arithmetic of the FFTs and mel filters alone, at the speed of this core's matrix products.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is loaded

import statistics
import sys
import tempfile
import time
import wave
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BAR = 10.0
"""Hours of sound at 8 kHz a minute."""
PEER_SECONDS = 120.0
"""Of each case the peer reads no more sound than this: it is slow."""


class Case(NamedTuple):
    """Files, and the rate at which they are read."""

    name: str
    paths: list[Path]
    seconds: list[float]
    rate: int


def clips() -> list[NDArray[np.int16]]:
    if "SEGUE_DATA" in os.environ:
        with np.load(Path(os.environ["SEGUE_DATA"]) / "fsdd" / "fsdd.npz") as data:
            return [part.astype(np.int16) for part in np.split(data["audio"], data["offsets"][1:-1])]
    draw = np.random.default_rng(0)
    return [draw.integers(-3000, 3000, int(draw.integers(2000, 5000))).astype(np.int16) for _ in range(2000)]


def write(path: Path, samples: NDArray[np.int16], rate: int) -> float:
    """Write (samples,) or (samples, channels); return the seconds."""
    with wave.open(str(path), "wb") as file:
        file.setparams((samples[0].size, 2, rate, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    return len(samples) / rate


def cases(folder: Path) -> list[Case]:
    parts = clips()
    draw = np.random.default_rng(1)
    long = draw.integers(-3000, 3000, 8000 * 600).astype(np.int16)
    stereo = draw.integers(-3000, 3000, (44100 * 60, 2)).astype(np.int16)
    short = [folder / f"{number}.wav" for number in range(len(parts))]
    return [
        Case("clips, 8 kHz", short, [write(path, part, 8000) for path, part in zip(short, parts, strict=True)], 8000),
        Case("10 minutes, 8 kHz", [folder / "long.wav"], [write(folder / "long.wav", long, 8000)], 8000),
        Case("stereo, 44.1 to 16 kHz", [folder / "stereo.wav"], [write(folder / "stereo.wav", stereo, 44100)], 16000),
    ]


def ours(path: Path, rate: int) -> NDArray[np.float32]:
    from segue.batches.log_mel import log_mel
    from segue.data.sound import samples_of

    with path.open("rb") as file:
        return log_mel(samples_of(file, path.stat().st_size, rate), rate)


@cache
def peer_filters(rate: int, size: int) -> NDArray[np.float64]:
    from transformers import audio_utils

    return np.asarray(audio_utils.mel_filter_bank(size // 2 + 1, 80, 0, rate / 2, rate, mel_scale="slaney"))


def theirs(path: Path, rate: int) -> NDArray[np.float32]:
    from scipy.signal import resample_poly
    from transformers import audio_utils

    from segue.batches.log_mel import FLOOR

    with wave.open(str(path), "rb") as file:
        data = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels())
        found = file.getframerate()
    samples = data.mean(1) / 2**15
    if found != rate:
        common = int(np.gcd(rate, found))
        samples = resample_poly(samples, rate // common, found // common)
    samples /= np.sqrt((samples**2).mean())
    window, size = rate // 40, 1 << (rate // 40 - 1).bit_length()
    made = audio_utils.spectrogram(
        samples,
        audio_utils.window_function(window, "hann"),
        window,
        rate // 100,
        size,
        power=2.0,
        mel_filters=peer_filters(rate, size),
        mel_floor=FLOOR,
        log_mel="log",
    ).T
    made -= made.mean(0)
    return np.asarray(made / made.std(), np.float32)


def hours_a_minute(case: Case, read: Callable[[Path, int], object], most: float = float("inf")) -> float:
    """Read the case's files, up to so many seconds of sound; long files are read whole."""
    heard, begun = 0.0, time.process_time()
    for path, seconds in zip(case.paths, case.seconds, strict=True):
        read(path, case.rate)
        heard += seconds
        if heard > most:
            break
    return heard / 60 / (time.process_time() - begun)


def limit(rate: int) -> float:
    """Hours a minute if nothing took time but the arithmetic: 5/2 n log2 n of a real FFT, and the triangles' sums."""
    a = np.ones((512, 512), np.float32)
    begun = time.process_time()
    for _ in range(50):
        a @ a
    flops = 50 * 2 * 512**3 / (time.process_time() - begun)
    size = 1 << (rate // 40 - 1).bit_length()
    frame = 2.5 * size * np.log2(size) + rate / 40 + 3 * size / 2 + 4 * size / 2
    return float(flops / (100 * frame) / 60)


def main(pairs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(Path(folder)):
            found = [(hours_a_minute(case, ours), hours_a_minute(case, theirs, PEER_SECONDS)) for _ in range(pairs)]
            us, them = (statistics.median(side) for side in zip(*found, strict=True))
            bar = f" (at least {BAR:.0f})" if case.rate == 8000 else ""
            difference = np.abs(ours(case.paths[0], case.rate) - theirs(case.paths[0], case.rate)).max()
            agrees = f"; largest difference of a number {difference:.1g}" if case.rate == 8000 else ""  # same filters
            print(
                f"{case.name}: {us:.0f} hours a minute{bar}, transformers {them:.1f}: {us / them:.0f} times; "
                f"the FFTs' arithmetic {limit(case.rate):,.0f}{agrees}"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
