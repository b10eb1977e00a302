"""Read sound: wav files (RIFF), as samples of one channel in -1 … 1, resampled to the rate that is wanted.

The standard library's `wave` knows no float. Here: PCM of 8, 16, 24 and 32 bits, float of 32 and 64, any number of
channels (their mean is taken), chunks in any order, RF64, and streamed files, which do not say how long they are. No
more memory is taken than the file has bytes for, whatever its header says.
"""

from __future__ import annotations

import struct
from fractions import Fraction
from functools import lru_cache
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from segue.errors import BadSourceError

Samples = NDArray[np.float32]

LEAST_RATE, MOST_RATE = 1000, 768_000
MOST_SECONDS = 1800
MOST_SAMPLES = 1 << 27
"""Samples of one channel, 512 MB: half an hour at 74 kHz."""
_MOST_CHUNKS = 1000
_BLOCK = 1 << 22
"""Bytes that are converted at a time."""
_UNKNOWN = 0xFFFFFFFF
"""The size that a streamed file gives, and RF64, which has the real one in its chunk ds64."""
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_CODECS = {
    0x02: "ADPCM",
    0x06: "A-law",
    0x07: "µ-law",
    0x11: "IMA ADPCM",
    0x31: "GSM 6.10",
    0x50: "MPEG",
    0x55: "MP3",
    0xFF: "AAC",
    0x161: "Windows Media Audio",
}
_OTHERS = {
    b"ID3": "MP3",
    b"\xff\xfb": "MP3",
    b"\xff\xf3": "MP3",
    b"\xff\xf2": "MP3",
    b"fLaC": "FLAC",
    b"OggS": "Ogg",
    b"FORM": "AIFF",
    b"RIFX": "a big-endian wav (RIFX)",
    b".snd": "AU",
    b"caff": "CAF",
    b"\x1aE\xdf\xa3": "WebM or Matroska",
    b"\x89PNG": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"GIF8": "GIF",
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "gzip",
}
"""How other files begin."""


class _Format(NamedTuple):
    """What the chunk `fmt ` says."""

    floats: bool
    width: int
    """Bytes of one sample."""
    channels: int
    rate: int


def samples_of(file: BinaryIO, size: int, rate: int) -> Samples:
    """Read a wav file of `size` bytes at this rate."""
    samples, found = read_wav(file, size)
    made = resample(samples, found, rate)
    if not made.any():
        raise BadSourceError(f"is silent at {rate:,} samples a second")
    return made


def length_of(file: BinaryIO, size: int) -> tuple[int, int]:
    """Return how many samples of one channel a wav file of `size` bytes has, and how many a second, by its header."""
    _check_kind(file.read(16), size)
    chunks = _chunks(file, size)
    form = _format(file, chunks)
    return chunks[b"data"][1] // (form.width * form.channels), form.rate


def read_wav(file: BinaryIO, size: int) -> tuple[Samples, int]:
    """Read a wav file of `size` bytes: the mean of its channels, in -1 … 1, and its samples a second."""
    _check_kind(file.read(16), size)
    chunks = _chunks(file, size)
    form = _format(file, chunks)
    begin, length = chunks[b"data"]
    if length > size - begin:
        raise BadSourceError(
            f"is cut off: its header says {length:,} bytes of sound, and the file has {size - begin:,}. Copy it again"
        )
    samples = _decoded(file, begin, length, form)
    low, high = float(samples.min()), float(samples.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise BadSourceError("has samples that are not numbers, or infinite")
    if low == high:
        raise BadSourceError("is silent: all its samples are equal")
    peak = max(-low, high)
    return samples / np.float32(peak) if peak > 1 else samples, form.rate  # float files may go beyond 1


def _check_kind(head: bytes, size: int) -> None:
    """Refuse what is no wav file, and name what it seems to be."""
    if not size or not head:
        raise BadSourceError("is empty")
    if head[:4] in (b"RIFF", b"RF64", b"BW64"):
        if len(head) < 12:
            raise BadSourceError(f"is cut off: it has {size} bytes, less than the header of a wav file")
        if head[8:12] == b"WAVE":
            return
        kind = f"another RIFF file ({head[8:12].decode('latin-1').strip()})"
    else:
        kind = next((name for begin, name in _OTHERS.items() if head.startswith(begin)), "")
        kind = kind or ("MP4" if head[4:8] == b"ftyp" else "text" if _is_text(head) else "")
    raise BadSourceError(f"is no wav file{f' but seems to be {kind}' if kind else ''}. Convert it to wav")


def _is_text(head: bytes) -> bool:
    text = head.decode("utf-8", "ignore")
    whole = len(text.encode()) > len(head) - 4  # a letter may be cut at the end
    return whole and all(sign.isprintable() or sign.isspace() for sign in text)


def _chunks(file: BinaryIO, size: int) -> dict[bytes, tuple[int, int]]:
    """Find the chunks up to `fmt ` and `data`: where each begins, and its bytes."""
    found: dict[bytes, tuple[int, int]] = {}
    file.seek(4)
    whole = int.from_bytes(file.read(4), "little")
    place = 12
    for _ in range(_MOST_CHUNKS):
        if place + 8 > size or (b"fmt " in found and b"data" in found):
            break
        file.seek(place)
        name, length = struct.unpack("<4sI", file.read(8))
        place += 8
        if name == b"data":
            length = _data_bytes(file, found, length, size - place, whole + 8 == size)
        found.setdefault(name, (place, length))
        place += length + length % 2  # a chunk of odd length is followed by a byte of padding
    for wanted in (b"fmt ", b"data"):
        if wanted not in found:
            raise BadSourceError(f"has no chunk '{wanted.decode()}', which each wav file has. Convert it again")
    return found


def _data_bytes(file: BinaryIO, found: dict[bytes, tuple[int, int]], said: int, left: int, finished: bool) -> int:
    """Return the bytes of sound: what the header says, or all that is left where it could not say it."""
    if said == _UNKNOWN and b"ds64" in found and found[b"ds64"][1] >= 16:
        file.seek(found[b"ds64"][0] + 8)
        return int.from_bytes(file.read(8), "little")
    return left if said == _UNKNOWN or (said == 0 and not finished) else said


def _format(file: BinaryIO, chunks: dict[bytes, tuple[int, int]]) -> _Format:
    file.seek(chunks[b"fmt "][0])
    head = file.read(min(chunks[b"fmt "][1], 40))
    if len(head) < 16:
        raise BadSourceError("is cut off: its header does not say how it is coded. Copy it again")
    code, channels, rate, _, block, bits = struct.unpack("<HHIIHH", head[:16])
    if code == _EXTENSIBLE and len(head) >= 26:
        code = int.from_bytes(head[24:26], "little")
    width = (bits + 7) // 8
    if code not in (_PCM, _FLOAT):
        raise BadSourceError(f"is coded as {_CODECS.get(code, f'format {code}')}; expected PCM or float. Convert it")
    if width not in ((4, 8) if code == _FLOAT else (1, 2, 3, 4)):
        raise BadSourceError(f"has samples of {bits} bits; expected 8, 16, 24 or 32, or 32 or 64 of float. Convert it")
    if not channels or block != channels * width:
        raise BadSourceError(f"has a wrong header: {channels} channels of {bits} bits, {block} bytes. Convert it again")
    if not LEAST_RATE <= rate <= MOST_RATE:
        raise BadSourceError(f"has {rate:,} samples a second; expected {LEAST_RATE:,} to {MOST_RATE:,}. Convert it")
    return _Format(code == _FLOAT, width, channels, rate)


def _decoded(file: BinaryIO, begin: int, length: int, form: _Format) -> Samples:
    """Read all samples, in blocks: more channels or bits need no more memory."""
    frame = form.width * form.channels
    count = length // frame
    if not count:
        raise BadSourceError("has no samples")
    most = min(MOST_SECONDS * form.rate, MOST_SAMPLES)
    if count > most:
        raise BadSourceError(
            f"is {count / form.rate:,.0f} seconds long; expected {most // form.rate:,} at the most. Cut it into pieces"
        )
    file.seek(begin)
    step = max(1, _BLOCK // frame)
    if count <= step:
        return _mono(file.read(count * frame), form)
    samples = np.empty(count, np.float32)
    for first in range(0, count, step):
        samples[first : first + step] = _mono(file.read(min(step, count - first) * frame), form)
    return samples


def _mono(data: bytes, form: _Format) -> Samples:
    values = _floats(data, form) if form.floats else _integers(data, form.width)
    if form.channels == 1:
        return values
    weights = np.full(form.channels, 1 / form.channels, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # the caller looks for what is not finite
        return values.reshape(-1, form.channels) @ weights  # 40 times as fast as mean(1)


def _floats(data: bytes, form: _Format) -> Samples:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.frombuffer(data, f"<f{form.width}").astype(np.float32)


def _integers(data: bytes, width: int) -> Samples:
    if width == 1:  # only samples of 8 bits are unsigned
        return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / np.float32(128)
    if width == 3:  # the three bytes are the upper ones of four
        padded = np.zeros((len(data) // 3, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        data, width = padded.tobytes(), 4
    return np.frombuffer(data, f"<i{width}").astype(np.float32) * np.float32(2.0 ** (1 - 8 * width))


# Resampling. A sound without frequencies above half of the lower rate is its samples, each with a sinc around it:
#
#     y[m] = sum over n of x[n] h(m rate / wanted - n)        h(t) = c sinc(c t) kaiser(t)
#
# c, a little less than wanted / rate where that is below 1, is the share of frequencies that is kept. After `up`
# outputs and `down` inputs the same fractions come again. So outputs are computed in groups of neighbours, whose h are
# the columns of one matrix: a group needs few more inputs than one output.

_ZEROS = 32
"""Zeros of the sinc on each side, in samples of the lower rate."""
_BETA = 7.857
"""Kaiser's formula for 80 dB: 0.1102 (80 - 8.7)."""
_KEPT = 1 - 72 / (2.285 * 2 * _ZEROS * np.pi) / 2
"""The middle of the transition, which ends at half of the lower rate, in shares of it (Kaiser: (80 - 8) / 2.285 N)."""
_MOST_PHASES = 20_000
_WINDOWS = 1 << 18
"""Numbers in the windows of inputs that are multiplied at a time: they stay in the processor's cache."""
_TOGETHER = 8
"""Rows of one product."""


class _Filters(NamedTuple):
    """Matrices for one ratio of rates."""

    outputs: int
    inputs: int
    """Numbers after which the fractions come again."""
    reach: int
    """Inputs that an output needs on each side."""
    groups: list[tuple[int, int, Samples]]
    """The first output of each group, its first input, and the matrix (inputs, outputs)."""


def resample(samples: Samples, rate: int, wanted: int) -> Samples:
    """Compute the samples of the same sound at another rate; beyond its ends it is silent."""
    if rate == wanted:
        return samples
    up, down = _ratio(rate, wanted)
    length = -(-len(samples) * up // down)
    plan = _filters(up, down)
    periods = -(-length // plan.outputs)
    span = max(first + len(matrix) for _, first, matrix in plan.groups)
    padded = np.zeros((periods - 1) * plan.inputs + max(span, plan.reach - 1 + len(samples)), np.float32)
    padded[plan.reach - 1 : plan.reach - 1 + len(samples)] = samples
    made = np.empty((periods, plan.outputs), np.float32)
    for output, first, matrix in plan.groups:
        windows = sliding_window_view(padded[first:], len(matrix))[:: plan.inputs]
        step = max(1, _WINDOWS // len(matrix))
        for row in range(0, periods, step):
            rows = slice(row, min(row + step, periods))
            made[rows, output : output + matrix.shape[1]] = product(np.ascontiguousarray(windows[rows]), matrix)
    return made.reshape(-1)[:length]


def product(rows: Samples, matrix: Samples) -> Samples:
    """Multiply a few rows at a time by a matrix, so few that BLAS does not divide them among threads.

    Threads save nothing in small products, and on a busy machine they wait for each other, twenty times as long.
    """
    whole = len(rows) // _TOGETHER * _TOGETHER
    made = np.empty((len(rows), matrix.shape[1]), np.float32)
    parts = rows[:whole].reshape(-1, _TOGETHER, rows.shape[1])
    np.matmul(parts, matrix, out=made[:whole].reshape(-1, _TOGETHER, matrix.shape[1]))
    np.matmul(rows[whole:], matrix, out=made[whole:])
    return made


def _ratio(rate: int, wanted: int) -> tuple[int, int]:
    """Return `up` outputs for `down` inputs: exact for usual rates, else a fraction within 0.005 % of it."""
    low, high = sorted((rate, wanted))
    near = Fraction(low, high).limit_denominator(_MOST_PHASES)
    up, down = (near.numerator, near.denominator) if wanted < rate else (near.denominator, near.numerator)
    return up, down


@lru_cache(maxsize=8)
def _filters(up: int, down: int) -> _Filters:
    share = min(1.0, up / down)
    reach = int(np.ceil(_ZEROS / share))
    size = max(1, round(2 * reach * up / down))  # then half of the inputs of a group belong to each of its outputs
    repeated = -(-size // up)
    outputs = up * repeated
    groups = []
    for output in range(0, outputs, size):
        times = np.arange(output, min(output + size, outputs)) * down
        first, last = int(times[0]) // up, int(times[-1]) // up
        inputs = np.arange(first - reach + 1, last + reach + 1)
        distance = times[None, :] / up - inputs[:, None]
        groups.append((output, first, _windowed_sinc(distance, share).astype(np.float32)))
    return _Filters(outputs, down * repeated, reach, groups)


def _windowed_sinc(distance: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    inside = np.maximum(1 - (distance * share / _ZEROS) ** 2, 0)
    kaiser = np.i0(_BETA * np.sqrt(inside)) / np.i0(_BETA) * (inside > 1e-9)  # 0 at its ends, however they are rounded
    cutoff = share * _KEPT
    return np.asarray(cutoff * np.sinc(cutoff * distance) * kaiser)
