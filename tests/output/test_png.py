"""Pictures that we write are read back by pillow, to the bit."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from segue.output.png import data_uri, png


@pytest.mark.parametrize("shape", [(1, 1), (1, 1, 3), (5, 7), (7, 5, 3), (64, 64, 3), (80, 301)])
def test_pillow_reads_back_what_was_written(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    with Image.open(io.BytesIO(png(pixels))) as image:
        assert image.format == "PNG" and image.mode == ("RGB" if len(shape) == 3 else "L")
        assert (np.asarray(image) == pixels).all()


def test_a_view_with_strides_is_written_as_it_is_seen() -> None:
    pixels = np.arange(8 * 6 * 3, dtype=np.uint8).reshape(8, 6, 3)[::-2, ::-1]
    with Image.open(io.BytesIO(png(pixels))) as image:
        assert (np.asarray(image) == pixels).all()


@pytest.mark.parametrize("wrong", [np.zeros((4, 4)), np.zeros((4, 4, 4), np.uint8), np.zeros(4, np.uint8)])
def test_what_is_no_picture_is_refused(wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match="a picture is uint8"):
        png(wrong)


def test_an_address_holds_the_whole_file() -> None:
    content = bytes(range(256))
    address = data_uri(content, "image/png")
    assert address.startswith("data:image/png;base64,")
    assert base64.b64decode(address.partition(",")[2]) == content
