"""Where training begins: on which device and threads, with whose weights, and what of them stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from segue.errors import InputError


def pick_device(device: str) -> str:
    """The device to work on; `auto` takes a GPU where there is one."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise InputError(f"--device {device} is not known. Expected auto, cpu, cuda or, for one of several, cuda:1.")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise InputError(f"There is no device {device} on this machine. Leave --device out, or say --device cpu.")
    return device


def set_threads(threads: int) -> int:
    """Takes this many CPU threads, 0 for torch's own choice; returns how many there are."""
    import torch

    if threads < 0:
        raise InputError(f"--threads {threads} is not possible: expected 1 or more, or 0 for as many as torch takes.")
    if threads:
        torch.set_num_threads(threads)
    return torch.get_num_threads()


def freeze(model: Any, names: str) -> None:
    """train.freeze: parameters whose names begin so stay as they are."""
    prefixes = tuple(name.strip() for name in names.split(",") if name.strip())
    known = [name for name, _ in model.named_parameters()]
    for prefix in prefixes:
        if not any(name.startswith(prefix) for name in known):
            raise InputError(f"train.freeze={prefix} names no parameter. There are: {', '.join(known)}.")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not (prefixes and name.startswith(prefixes)))


def take_weights(model: Any, init: str) -> None:
    """train.init: another run's weights; only the head may differ in shape, and is then begun anew."""
    if not init:
        return
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        old, new = load_file(Path(init) / "model.safetensors"), model.state_dict()
    except (OSError, SafetensorError) as error:
        raise InputError(f"train.init={init} cannot be used: its model.safetensors is damaged ({error}).") from None
    for name in sorted(old.keys() | new.keys()):
        if name in old and name in new and old[name].shape == new[name].shape:
            new[name].copy_(old[name])
        elif not name.startswith("head."):
            shapes = [list(side[name].shape) if name in side else "absent" for side in (old, new)]
            raise InputError(
                f"train.init={init} does not fit: {name} is {shapes[0]} there and {shapes[1]} here. "
                "Everything but the head must match: give the same model section."
            )
