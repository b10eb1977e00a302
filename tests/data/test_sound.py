from __future__ import annotations

import io
import struct
import tracemalloc
import wave

import numpy as np
import pytest
from scipy.signal import resample_poly

from segue.data.sound import MOST_SECONDS, read_wav, resample, samples_of
from segue.errors import BadSourceError

RATE = 8000


def chunk(name: bytes, content: bytes, said: int | None = None) -> bytes:
    length = len(content) if said is None else said
    return struct.pack("<4sI", name, length) + content + b"\0" * (len(content) % 2)


def form(code: int, channels: int, bits: int, rate: int = RATE, block: int | None = None) -> bytes:
    block = channels * ((bits + 7) // 8) if block is None else block
    return chunk(b"fmt ", struct.pack("<HHIIHH", code, channels, rate, rate * block, block, bits))


def riff(*chunks: bytes, kind: bytes = b"RIFF", said: int | None = None) -> bytes:
    body = b"WAVE" + b"".join(chunks)
    return struct.pack("<4sI", kind, len(body) if said is None else said) + body


def read(data: bytes) -> tuple[np.ndarray, int]:
    return read_wav(io.BytesIO(data), len(data))


SOUND = np.array([0.0, 0.5, -0.25, 0.75, -1.0], np.float64)
CODED = {
    (1, 8): (SOUND * 128 + 128).astype("u1").tobytes(),
    (1, 16): (SOUND * 2**15).astype("<i2").tobytes(),
    (1, 24): b"".join(int(x * 2**23).to_bytes(3, "little", signed=True) for x in SOUND),
    (1, 32): (SOUND * 2**31).astype("<i4").tobytes(),
    (3, 32): SOUND.astype("<f4").tobytes(),
    (3, 64): SOUND.astype("<f8").tobytes(),
}
WHOLE = riff(form(1, 1, 16), chunk(b"data", CODED[1, 16]))


@pytest.mark.parametrize("code, bits", CODED)
def test_every_coding_gives_the_same_samples(code: int, bits: int) -> None:
    samples, rate = read(riff(form(code, 1, bits), chunk(b"data", CODED[code, bits])))
    assert samples.dtype == np.float32 and rate == RATE
    np.testing.assert_array_equal(samples, SOUND)


def test_a_file_of_the_standard_library_is_read() -> None:
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setparams((2, 2, 44100, 0, "NONE", ""))
        written.writeframes((np.stack([SOUND, SOUND / 2], 1) * 2**15).astype("<i2").tobytes())
    samples, rate = read(file.getvalue())
    assert rate == 44100
    np.testing.assert_allclose(samples, SOUND * 0.75, atol=1e-7)  # the mean of both channels


def test_chunks_may_come_in_any_order_with_others_between_and_odd_lengths() -> None:
    samples = chunk(b"data", CODED[1, 24])  # 15 bytes and one of padding
    for chunks in (
        (chunk(b"LIST", b"INFOabc"), form(1, 1, 24), chunk(b"fact", b"abc"), samples, chunk(b"LIST", b"xyz")),
        (samples, chunk(b"odd ", b"a"), form(1, 1, 24)),
    ):
        np.testing.assert_array_equal(read(riff(*chunks))[0], SOUND)


def test_the_extensible_format_names_its_coding_further_on() -> None:
    head = struct.pack("<HHIIHHHHI", 0xFFFE, 1, RATE, RATE * 4, 4, 32, 22, 32, 4)
    for code in (1, 3):
        coded = struct.pack("<H", code) + bytes.fromhex("000000001000800000aa00389b71")
        data = riff(chunk(b"fmt ", head + coded), chunk(b"data", CODED[code, 32]))
        np.testing.assert_array_equal(read(data)[0], SOUND)


@pytest.mark.parametrize("said", [0, 0xFFFFFFFF])
def test_a_streamed_file_goes_to_its_end(said: int) -> None:
    data = riff(form(1, 1, 16), chunk(b"data", CODED[1, 16], said), said=said)
    np.testing.assert_array_equal(read(data)[0], SOUND)


def test_rf64_has_its_size_in_a_chunk_of_its_own_or_goes_to_its_end() -> None:
    samples = chunk(b"data", CODED[1, 16], 0xFFFFFFFF)
    sizes = chunk(b"ds64", struct.pack("<QQQI", 0, len(CODED[1, 16]), 0, 0))
    after = chunk(b"LIST", b"INFO")
    with_size = riff(sizes, form(1, 1, 16), samples, after, kind=b"RF64", said=0xFFFFFFFF)
    without = riff(form(1, 1, 16), samples, kind=b"RF64", said=0xFFFFFFFF)
    for data in (with_size, without):
        np.testing.assert_array_equal(read(data)[0], SOUND)


def test_long_files_are_read_in_blocks_and_loud_floats_are_scaled_to_one() -> None:
    wide = np.random.default_rng(0).uniform(-8, 8, (70_000, 9)).astype("<f8")  # 5 MB, more than a block
    samples, _ = read(riff(form(3, 9, 64), chunk(b"data", wide.tobytes())))
    means = wide.mean(1)
    np.testing.assert_allclose(samples, means / np.abs(means).max(), atol=1e-6)


BAD = {
    "is empty": b"",
    "seems to be MP3": b"ID3\x04\x00\x00\x00\x00\x00\x00",
    "seems to be FLAC": b"fLaC\x00\x00\x00\x22" + bytes(30),
    "seems to be Ogg": b"OggS\x00\x02" + bytes(30),
    "seems to be PNG": b"\x89PNG\r\n\x1a\n" + bytes(30),
    "seems to be text. Convert it": "grüße an alle, die zuhören".encode(),
    "another RIFF file (AVI)": b"RIFF\x10\x00\x00\x00AVI LIST" + bytes(30),
    "is no wav file. Convert": bytes(100),
    "less than the header": WHOLE[:10],
    "has no chunk 'fmt '": WHOLE[:12],
    "has no chunk 'data'": WHOLE[:36],
    "its header says 10 bytes of sound, and the file has 7": WHOLE[:-3],
    "4,000,000,000 bytes of sound, and the file has 10": riff(form(1, 1, 16), chunk(b"data", CODED[1, 16], 4 * 10**9)),
    "has no samples": riff(form(1, 1, 16), chunk(b"data", b""), chunk(b"LIST", b"INFO")),
    "has 0 samples a second": riff(form(1, 1, 16, rate=0), chunk(b"data", CODED[1, 16])),
    "has 4,294,967,295 samples": riff(chunk(b"fmt ", struct.pack("<HHIIHH", 1, 1, 2**32 - 1, 0, 2, 16)), WHOLE[36:]),
    "is coded as A-law": riff(form(6, 1, 8), chunk(b"data", bytes(9))),
    "is coded as µ-law": riff(form(7, 1, 8), chunk(b"data", bytes(9))),
    "is coded as ADPCM": riff(form(2, 1, 4), chunk(b"data", bytes(9))),
    "is coded as format 1234": riff(form(1234, 1, 8), chunk(b"data", bytes(9))),
    "has samples of 64 bits": riff(form(1, 1, 64), chunk(b"data", bytes(16))),
    "0 channels": riff(form(1, 0, 16, block=2), chunk(b"data", CODED[1, 16])),
    "wrong header: 2 channels": riff(form(1, 2, 16, block=2), chunk(b"data", CODED[1, 16])),
    "not numbers": riff(form(3, 1, 32), chunk(b"data", np.array([0, np.nan, 1], "<f4").tobytes())),
    "infinite": riff(form(3, 1, 64), chunk(b"data", np.array([0, 1e300, 1], "<f8").tobytes())),
    "is silent": riff(form(1, 1, 8), chunk(b"data", bytes([128]) * 100)),
    "is 1,801 seconds long": riff(form(1, 1, 8, rate=1000), chunk(b"data", bytes((MOST_SECONDS + 1) * 1000))),
}


@pytest.mark.parametrize("said", BAD)
def test_a_bad_file_is_refused_with_what_is_wrong(said: str) -> None:
    with pytest.raises(BadSourceError) as caught:
        read(BAD[said])
    assert said in str(caught.value) and str(caught.value).startswith(("is ", "has "))


def test_any_cut_or_changed_header_is_read_or_refused_with_little_memory() -> None:
    rng = np.random.default_rng(0)
    tracemalloc.start()
    for case in range(600):
        data = bytearray(WHOLE[: 1 + case % len(WHOLE)] if case < 200 else WHOLE)
        for _ in range(case % 4 if case >= 200 else 0):
            data[int(rng.integers(len(WHOLE) - len(CODED[1, 16])))] = int(rng.integers(256))
        try:
            read(bytes(data))
        except BadSourceError:
            continue
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_a_file_of_empty_chunks_alone_is_refused_soon() -> None:
    with pytest.raises(BadSourceError, match="no chunk 'fmt '"):
        read(riff(bytes(4_000_000)))


# Resampling


@pytest.mark.parametrize("rate, wanted", [(44100, 16000), (8000, 16000), (48000, 8000), (11025, 8000)])
def test_resampling_agrees_with_scipys_machinery_and_the_textbooks_filter(rate: int, wanted: int) -> None:
    common = int(np.gcd(rate, wanted))
    up, down = wanted // common, rate // common
    slow = max(up, down)
    taps = np.arange(-32 * slow, 32 * slow + 1) / slow
    kept = 1 - 72 / (2.285 * 64 * np.pi) / 2
    kernel = kept * np.sinc(kept * taps) * np.kaiser(len(taps), 0.1102 * (80 - 8.7)) * min(1, up / down)
    kernel[[0, -1]] = 0  # they would count only where a sample and an output meet
    x = np.random.default_rng(1).standard_normal(3001)
    expected = resample_poly(x, up, down, window=kernel / up)  # which multiplies by `up`
    found = resample(x.astype(np.float32), rate, wanted)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)


def tone(hertz: float, rate: int, seconds: float = 0.5) -> np.ndarray:
    return np.sin(2 * np.pi * hertz * np.arange(round(rate * seconds)) / rate).astype(np.float32)


@pytest.mark.parametrize("rate, wanted", [(44100, 16000), (16000, 8000), (8000, 22050), (96000, 16000), (8001, 8000)])
def test_a_tone_keeps_its_pitch_and_loudness_and_what_is_too_high_is_gone(rate: int, wanted: int) -> None:
    lower = min(rate, wanted) / 2
    inner = slice(wanted // 20, -wanted // 20)  # the ends ring
    for share in (0.05, 0.4, 0.83):
        found, expected = resample(tone(share * lower, rate), rate, wanted), tone(share * lower, wanted)
        assert len(found) == len(expected)
        assert np.abs(found - expected)[inner].max() < 1e-3
    if wanted < 0.9 * rate:
        for hertz in (1.01 * lower, 0.99 * rate / 2):
            assert np.abs(resample(tone(hertz, rate), rate, wanted))[inner].max() < 1e-3  # 60 dB


def test_a_file_is_read_at_the_rate_that_is_wanted_even_of_one_sample() -> None:
    assert len(samples_of(io.BytesIO(WHOLE), len(WHOLE), RATE)) == 5
    assert len(samples_of(io.BytesIO(WHOLE), len(WHOLE), 16000)) == 10
    assert len(resample(np.ones(1, np.float32), 48000, 16000)) == 1
    tiny = riff(form(3, 1, 32, 96000), chunk(b"data", np.array([0, 1e-45], "<f4").tobytes()))
    with pytest.raises(BadSourceError, match="is silent at 16,000"):
        samples_of(io.BytesIO(tiny), len(tiny), 16000)
