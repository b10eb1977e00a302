"""Log-mel frames of sound: what a recogniser reads, 80 numbers each 10 ms.

    frames       windows of 25 ms (Hann), 10 ms apart, the first and the last centred on the sound's ends
    power        |FFT|², over the smallest power of two that holds a window
    mel          80 triangles, evenly apart on Slaney's mel scale: linear below 1000 Hz, logarithmic above
    log          the natural logarithm; what is more than some 60 dB below a tone as loud as the sound is raised to that
    normalised   less each filter's mean over time, shrunk towards the mean of all; over the deviation of all

Loudness does not matter: samples are divided by their root mean square before the floor, and a factor that is left is
a summand of the logarithm, which the mean takes away. So it does with the microphone, a factor for each filter. But the
mean of a short sound is mostly what was said, one vowel perhaps: of S frames, S / (S + 50) of it is taken away. Means
and deviation are those of loud frames, so that silence before and after what was said does not matter either.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from segue.data.sound import product

Floats = NDArray[np.float32]

MELS = 80
STEP = 0.01
WINDOW = 0.025
FLOOR = 1e-2
QUIET = 0.007
"""A frame with less than this share of the loudest frame's power, 22 dB below it, is not loud."""
SHRINKS = 50
"""Loud frames of a sound of which half of each filter's mean is taken away."""
_BLOCK = 1 << 17
"""Samples in the windows that are transformed at a time: they stay in the processor's cache."""


def log_mel(samples: Floats, rate: int) -> Floats:
    """Compute the normalised log-mels (S, 80) of a sound that is not silent."""
    scaled = samples - samples.mean(dtype=np.float64).astype(np.float32)  # a constant is no sound
    scaled /= np.abs(scaled).max()  # before squares, since those of small numbers would be 0
    logs = log_power(scaled / np.sqrt(np.square(scaled).mean()), rate)
    powers_S = np.exp(logs).sum(1)
    loud = logs[powers_S >= powers_S.max() * QUIET]
    means_M = loud.mean(0, dtype=np.float64)
    share = len(loud) / (len(loud) + SHRINKS)
    means_M = share * means_M + (1 - share) * means_M.mean()
    deviation = float(np.sqrt(np.square(loud - means_M).mean()))
    logs -= means_M
    logs /= max(deviation, 1e-5)
    return logs


def log_power(samples: Floats, rate: int) -> Floats:
    """Compute the logarithm of the power in each mel filter, (S, 80): block by block, to bound the memory."""
    window, step = round(rate * WINDOW), round(rate * STEP)
    size = 1 << (window - 1).bit_length()
    padded = _reflected(samples, window // 2)
    frames = sliding_window_view(padded, window)[::step]
    hann, mel = _hann(window), _mel_filters(rate, size)
    logs = np.empty((len(frames), MELS), np.float32)
    rows = min(len(frames), max(1, _BLOCK // size))
    block = np.zeros((rows, size), np.float32)
    for first in range(0, len(frames), rows):
        part = frames[first : first + rows]
        np.multiply(part, hann, out=block[: len(part), :window])
        spectrum = np.fft.rfft(block[: len(part)])
        power = np.square(spectrum.real) + np.square(spectrum.imag)
        logs[first : first + rows] = product(power.astype(np.float32, copy=False), mel)
    np.maximum(logs, FLOOR, out=logs)
    return np.log(logs, out=logs)


def _reflected(samples: Floats, count: int) -> Floats:
    """Mirror so many samples at each end; np.pad, which is slow, knows how to in sounds that have no more."""
    if len(samples) <= count:
        return np.pad(samples, count, mode="reflect")
    return np.concatenate((samples[count:0:-1], samples, samples[-2 : -count - 2 : -1]))


@lru_cache(maxsize=4)
def _hann(window: int) -> Floats:
    """Make the periodic Hann window: its first number is 0, its last is not."""
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)).astype(np.float32)


@lru_cache(maxsize=4)
def _mel_filters(rate: int, size: int) -> Floats:
    """Make the triangles (frequencies, 80): each rises from the middle of the one before, and falls to that after."""
    middles = _hertz(np.linspace(0, _mel(rate / 2), MELS + 2))
    bins = np.linspace(0, rate / 2, size // 2 + 1)[:, None]
    rising = (bins - middles[:-2]) / np.diff(middles[:-1])
    falling = (middles[2:] - bins) / np.diff(middles[1:])
    return np.maximum(np.minimum(rising, falling), 0).astype(np.float32)


# Slaney's scale (Auditory Toolbox, 1998): 15 mels to 1000 Hz, and then 27 for each factor of 6.4.


def _mel(hertz: float) -> float:
    return hertz * 3 / 200 if hertz < 1000 else float(15 + 27 * np.log(hertz / 1000) / np.log(6.4))


def _hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * np.log(6.4) / 27))
