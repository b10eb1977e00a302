"""Layers that read frames: against torch's convolutions and plain loops, masks, padding, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from segue.batches.codec import Sizes
from segue.layers.sources import PictureStem, SoundStem, check_source, stem

D = 6


def sound() -> SoundStem:
    torch.manual_seed(0)
    return SoundStem(5, D).double()


def picture(patch: int, side: int = 12) -> PictureStem:
    torch.manual_seed(0)
    return PictureStem(side * side * 3, D, patch).double()


def pixels(rows: int, frames: int, side: int = 12) -> Tensor:
    return torch.randint(0, 256, (rows, frames, side * side * 3), dtype=torch.uint8)


def loop(conv: nn.Conv1d, x_FC: Tensor) -> Tensor:
    """Every second place, each from the frame itself, the one before and the one after; 0 beyond the ends."""
    around = torch.cat([x_FC.new_zeros(1, x_FC.shape[1]), x_FC, x_FC.new_zeros(1, x_FC.shape[1])])
    places = range(0, len(x_FC), 2)
    return torch.stack([torch.einsum("dck,kc->d", conv.weight, around[i : i + 3]) + conv.bias for i in places]).relu()


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 8, 9])
def test_sound_is_read_by_two_convolutions_whatever_stands_beside_it(length: int) -> None:
    layer = sound()
    frames = torch.randn(2, 9, 5, dtype=torch.float64)
    mask_BF = torch.arange(9) < torch.tensor([[length], [9]])
    expected = layer.norm(layer.linear(loop(layer.second, loop(layer.first, frames[0, :length]))))
    alone = layer(frames[:1, :length], None)[0]
    together = layer(frames, mask_BF)[0][layer.mask(mask_BF)[0]]
    assert len(expected) == -(-length // 4)
    torch.testing.assert_close(alone, expected)
    torch.testing.assert_close(together, expected)


def test_a_patch_is_what_a_convolution_of_its_size_and_stride_reads() -> None:
    layer, frames = picture(4), pixels(2, 1)
    assert isinstance(layer.read, nn.Linear)
    conv = nn.Conv2d(3, D, 4, stride=4).double()
    with torch.no_grad():
        conv.weight.copy_(layer.read.weight.view(D, 4, 4, 3).permute(0, 3, 1, 2))
        conv.bias.copy_(layer.read.bias)  # type: ignore[union-attr]
    planes = frames.view(2, 12, 12, 3).permute(0, 3, 1, 2).double() / 127.5 - 1
    content = layer.norm(conv(planes).flatten(2).mT).view(2, 3, 3, D)
    expected = content + layer.rows.weight[:, None] + layer.columns.weight[None] + layer.frames.weight[0]
    torch.testing.assert_close(layer(frames, None), expected.flatten(1, 2), rtol=0, atol=1e-6)


@pytest.mark.parametrize("patch", [0, 4])
def test_a_still_picture_beside_a_moving_one_is_read_as_alone(patch: int) -> None:
    layer, frames = picture(patch), pixels(2, 3)
    mask_BF = torch.tensor([[True, False, False], [True, True, True]])
    places = layer.grid**2
    together, mask_BS = layer(frames, mask_BF), layer.mask(mask_BF)
    assert mask_BS.sum(1).tolist() == [places, 3 * places] and together.shape == (2, 3 * places, D)
    torch.testing.assert_close(together[:1, :places], layer(frames[:1, :1], None))
    torch.testing.assert_close(together[1:], layer(frames[1:], None))


def test_convolutions_see_the_frames_beside_each_and_patches_do_not() -> None:
    frames = pixels(1, 3)
    changed = frames.clone()
    changed[0, 2] = 0
    for patch, seen in ((0, [False, True]), (4, [False, False])):
        layer = picture(patch)
        differ = (layer(frames, None) - layer(changed, None)).view(3, -1).abs().amax(1) > 1e-9
        assert differ.tolist() == [*seen, True]


def test_a_still_picture_is_read_as_the_only_frame_of_a_moving_one() -> None:
    layer, frames = picture(0), pixels(2, 1)
    assert layer.across is not None
    planes = layer.read(frames.view(2, 12, 12, 3).permute(0, 3, 1, 2).double() / 127.5 - 1)
    content = layer.norm(layer.across(planes[:, :, None]).flatten(2).mT)
    plane = (layer.rows.weight[:, None] + layer.columns.weight[None]).flatten(0, 1) + layer.frames.weight[0]
    torch.testing.assert_close(layer(frames, None), content + plane, rtol=0, atol=1e-6)


def test_the_frames_of_a_long_moving_picture_share_the_last_vector() -> None:
    layer = picture(6)
    still = pixels(1, 1).expand(-1, 18, -1)
    found = layer(still, None).view(18, 4, D)
    torch.testing.assert_close(found[15], found[17])
    assert not torch.allclose(found[14], found[15])


@pytest.mark.parametrize("side", [3, 12, 17])
def test_convolutions_make_a_place_of_each_8_pixels(side: int) -> None:
    layer = picture(0, side)
    assert layer.grid == -(-side // 8)
    assert layer(pixels(1, 1, side), None).shape == (1, layer.grid**2, D)


@pytest.mark.parametrize("source", ["sound", "picture"])
def test_half_precision_reads_about_the_same(source: str) -> None:
    layer = (sound() if source == "sound" else picture(4)).float()
    frames = torch.randn(1, 8, 5) if source == "sound" else pixels(1, 1)
    exact = layer(frames, None)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(layer(frames, None).float(), exact, rtol=0, atol=0.1)
    torch.testing.assert_close(layer.bfloat16()(frames, None).float(), exact, rtol=0, atol=0.1)


def test_text_has_no_such_layer() -> None:
    assert stem(Sizes(5), D, 8) is None
    assert isinstance(stem(Sizes(5, source="sound", frame=5), D, 8), SoundStem)
    assert isinstance(stem(Sizes(5, source="picture", frame=192), D, 8), PictureStem)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("picture", 64, 7), "patch = 7 does not divide data.pixels = 64: 2, 4, 8, 16, 32, 64 do"),
        (("picture", 4, 8), "patch = 8 does not divide data.pixels = 4: 2, 4 do"),
        (("picture", 64, 8, 0.3), "ctc = 0.3 is for sound, and a source is a picture"),
        (("text", 64, 8, 0.3), "ctc = 0.3 is for sound, and a source is text"),
    ],
)
def test_what_a_model_cannot_read_is_refused(given: tuple, said: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match=said):
        check_source(*given)
