"""What went wrong, said at the command line: messages that no test can bring about by a command."""

from __future__ import annotations

import pytest

from segue.errors import exit_code


class OutOfMemoryError(RuntimeError):
    """As torch's."""


FULL = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 10.25 GiB is "
    "free. Including non-PyTorch memory, this process has 129.55 GiB memory in use."
)


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (FULL, "full: 20.00 GiB more were asked for, and of its 139.80 GiB only 10.25 GiB were free. Turn"),
        ("CUDA error: out of memory", "The GPU's memory is full. Turn"),
    ],
)
def test_a_gpu_that_is_full_is_said(message: str, found: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(OutOfMemoryError(message), []) == 1
    said = capsys.readouterr().err
    assert found in said
    for knob in ("batches.size", "batches.length", "model.width", "batches.accumulate"):
        assert knob in said
