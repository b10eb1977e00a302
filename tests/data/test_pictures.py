"""Pictures are read in every mode, scaled to a square; bad files are refused before they can do harm."""

from __future__ import annotations

import io
import struct
import sys
import warnings
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

from segue.data.pictures import MOST_FRAMES, MOST_IN_FILE, pixels_of
from segue.errors import BadSourceError, InputError
from segue.output.png import png
from segue.output.wav import wav

GREY = (100, 100, 100)


def saved(image: Image.Image, form: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def read(content: bytes, side: int = 16) -> np.ndarray:
    found = pixels_of(io.BytesIO(content), len(content), side)
    assert found.dtype == np.uint8 and found.shape[1:] == (side, side, 3)
    return found


def fault(content: bytes) -> str:
    with pytest.raises(BadSourceError) as error:
        read(content)
    return str(error.value)


def noise(height: int, width: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


# What is read


def test_a_picture_of_the_asked_size_is_read_to_the_bit() -> None:
    image = noise(16, 16)
    assert (read(saved(image, "PNG")) == np.asarray(image)).all()


def test_a_wide_picture_keeps_its_proportions_and_lies_in_the_middle_on_white() -> None:
    [found] = read(saved(Image.new("RGB", (400, 200), (255, 0, 0)), "PNG"))
    assert (found[:4] == 255).all() and (found[12:] == 255).all()
    assert (found[4:12] == (255, 0, 0)).all()


def test_small_pictures_are_scaled_up() -> None:
    [found] = read(saved(Image.new("RGB", (4, 8), (0, 0, 255)), "PNG"))
    assert (found[:, 4:12] == (0, 0, 255)).all() and (found[:, :4] == 255).all() and (found[:, 12:] == 255).all()


def test_a_large_picture_is_averaged_when_it_is_scaled_down() -> None:
    """A board of black and white pixels becomes grey; taking every n-th pixel would not."""
    board = (np.indices((256, 256)).sum(0) % 2 * 255).astype(np.uint8)
    for form in ("PNG", "GIF"):
        [found] = read(saved(Image.fromarray(board), form))
        assert np.abs(found.astype(int) - 127).max() < 12


MODES = {
    "L": Image.new("L", (8, 8), 100),
    "RGB": Image.new("RGB", (8, 8), GREY),
    "P": Image.new("RGB", (8, 8), GREY).quantize(4),
    "LA": Image.new("LA", (8, 8), (100, 255)),
    "RGBA": Image.new("RGBA", (8, 8), (*GREY, 255)),
    "half transparent": Image.new("RGBA", (8, 8), (0, 0, 0, 155)),
    "16 bit": Image.fromarray(np.full((8, 8), 100 * 257, np.uint16)),
}


@pytest.mark.parametrize("name", MODES)
def test_every_mode_shows_the_same_grey(name: str) -> None:
    """255 - 155 is the grey of black that hides so much of white."""
    assert np.abs(read(saved(MODES[name], "PNG")).astype(int) - 100).max() <= 1


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpegs_of_every_mode(mode: str) -> None:
    content = saved(Image.new("RGB", (200, 200), GREY).convert(mode), "JPEG", quality=95)
    assert np.abs(read(content).astype(int) - 100).max() <= 3


def test_what_is_transparent_is_white() -> None:
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([255, 0, 0, 0, 0, 255])
    for content in (saved(Image.new("RGBA", (8, 8), (9, 9, 9, 0)), "PNG"), saved(palette, "GIF", transparency=1)):
        assert (read(content) == 255).all()


def test_a_photo_is_turned_as_the_camera_says() -> None:
    """Orientation 6: what is left in the file is above."""
    image = Image.new("RGB", (64, 64), (255, 0, 0))
    image.paste((0, 0, 255), (32, 0, 64, 64))
    exif = Image.Exif()
    exif[0x0112] = 6
    for form in ("JPEG", "PNG"):
        [found] = read(saved(image, form, exif=exif.tobytes()))
        assert (found[:7].argmax(-1) == 0).all() and (found[9:].argmax(-1) == 2).all()


def test_damaged_metadata_of_a_camera_do_no_harm() -> None:
    assert (read(saved(Image.new("RGB", (16, 16), GREY), "PNG", exif=b"Exif\0\0MM\0*\xff\xff\xff")) == 100).all()


# What moves


def moving(count: int, form: str = "GIF") -> bytes:
    """Frame n is grey of value n."""
    first, *others = [Image.new("L", (8, 8), n) for n in range(count)]
    return saved(first, form, save_all=True, append_images=others, duration=100)


@pytest.mark.parametrize("form", ["GIF", "PNG"])
def test_a_moving_picture_has_its_frames_in_order(form: str) -> None:
    assert read(moving(5, form))[:, 8, 8, 0].tolist() == [0, 1, 2, 3, 4]


def test_of_many_frames_a_few_are_chosen_evenly() -> None:
    chosen = read(moving(46))[:, 8, 8, 0]
    assert len(chosen) == MOST_FRAMES and chosen.tolist() == [3 * n for n in range(16)]


def test_a_frame_that_changes_a_part_is_drawn_upon_the_one_before() -> None:
    below = Image.new("RGB", (16, 16), (255, 0, 0))
    above = below.copy()
    above.paste((0, 0, 255), (0, 0, 8, 16))
    content = saved(below, "GIF", save_all=True, append_images=[above], disposal=1)
    _, found = read(content)
    assert (found[:, :8] == (0, 0, 255)).all() and (found[:, 8:] == (255, 0, 0)).all()


# What is refused


OTHER_KINDS = {
    b"%PDF-1.7 ": "a PDF",
    wav(np.zeros(8), 8000): "WAV sound",
    b"RIFF\0\0\0\0WEBPVP8 ": "a WebP picture",
    b"\0\0\0 ftypheic": "a HEIC picture",
    b"\0\0\0 ftypisom": "an MP4 video",
    b"\n<!DOCTYPE html><html>": "an HTML page",
    b"<svg xmlns=": "an SVG drawing",
    "die Äpfel sind rot\n".encode(): "text",
    b"\x07\x00\xfe\xff" * 16: "no picture",
}


@pytest.mark.parametrize("content", OTHER_KINDS, ids=OTHER_KINDS.get)
def test_another_kind_is_named(content: bytes) -> None:
    assert fault(content) == f"is {OTHER_KINDS[content]}; PNG, JPEG and GIF can be read"


def test_an_empty_file_is_said_to_be_empty() -> None:
    assert fault(b"") == "is empty"


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF"])
def test_a_truncated_file_is_refused_wherever_it_is_cut(form: str) -> None:
    content = saved(noise(20, 30), form)
    for cut in (8, 40, len(content) // 2, len(content) - 40):
        assert fault(content[:cut]).startswith("is a truncated")


def test_a_moving_picture_that_lacks_frames_is_refused() -> None:
    for content in (moving(9), moving(9, "PNG")):
        assert fault(content[: len(content) * 2 // 3]).startswith("is a truncated")


@pytest.mark.parametrize("size", [(1, 1), (3, 50), (50, 3)])
def test_too_few_pixels(size: tuple[int, int]) -> None:
    found = fault(png(np.zeros((size[1], size[0], 3), np.uint8)))
    assert found == f"has {size[0]} x {size[1]} pixels: nothing can be seen"


def promising(width: int, height: int) -> bytes:
    """A PNG whose header promises so many pixels; there is one row."""
    header = b"IHDR" + struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(bytes(3 * 20_000 + 1))
    chunks = (struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in (header, data))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def gif(frames: int, width: int = 8, reach: int = 8) -> bytes:
    """A GIF of tiny frames, each of which says that it reaches so far."""
    head = b"GIF89a" + struct.pack("<HHB2x", width, width, 0)
    return head + frames * (b"," + struct.pack("<4HB", 0, 0, reach, reach, 0) + b"\2\1\x44\0") + b";"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (promising(20_000, 20_000), "has 20,000 x 20,000 pixels, more than 64 million: scale it down"),
        (promising(9_500, 9_500), "has 9,500 x 9,500 pixels, more than 64 million: scale it down"),  # pillow warns
        (promising(2**31 - 1, 2**31 - 1), "has 2,147,483,647 x 2,147,483,647 pixels, more than 64 million"),
        (gif(1, reach=65_535), "has 65,535 x 65,535 pixels, more than 64 million"),
        (gif(20, width=7_900), "has 7,900 x 7,900 pixels in 20 frames, more than 512 million: scale it down"),
        (gif(10 * MOST_IN_FILE), "has more than 1,000 frames: cut it into pieces"),
    ],
    ids=["many pixels", "a warning of pillow", "gigabytes", "a GIF beyond its screen", "a large GIF", "many frames"],
)
def test_a_header_that_promises_too_much_is_refused_before_anything_is_decoded(
    content: bytes, said: str, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    def decode(*_: Any) -> None:
        raise AssertionError("nothing may be decoded")

    monkeypatch.setattr(ImageFile.ImageFile, "load", decode)
    assert fault(content).startswith(said)
    assert not recwarn.list


def test_a_gif_is_not_read_beyond_the_most_frames() -> None:
    content = gif(10 * MOST_IN_FILE)
    file = io.BytesIO(content)
    with pytest.raises(BadSourceError):
        pixels_of(file, len(content), 16)
    assert file.tell() < len(content) / 9


def test_a_file_of_gigabytes_is_not_opened() -> None:
    with pytest.raises(BadSourceError, match="has 5,000 MB, more than 256"):
        pixels_of(io.BytesIO(), 5_000_000_000, 16)


def test_pillow_does_not_warn() -> None:
    """It would of a PNG that says it is moving and has 0 frames; the still picture in it is read."""
    content = png(np.full((16, 16, 3), 100, np.uint8))
    control = b"acTL" + struct.pack(">2I", 0, 0)
    after = len(b"\x89PNG\r\n\x1a\n") + 4 + 4 + 13 + 4  # the header's length, name, data and checksum
    chunk = struct.pack(">I", 8) + control + struct.pack(">I", zlib.crc32(control))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (read(content[:after] + chunk + content[after:]) == 100).all()


def test_a_fault_of_the_disk_is_no_fault_of_the_picture() -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > 100:
                raise OSError(5, "Input/output error")
            return super().read(size)

    content = saved(noise(64, 64), "PNG")
    with pytest.raises(OSError, match="Input/output error"):
        pixels_of(Broken(content), len(content), 16)


def test_without_pillow_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    content = saved(noise(8, 8), "PNG")
    for name in ("PIL", "PIL.Image"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"needs pillow.*pip install '\.\[pictures\]'"):
        read(content)
