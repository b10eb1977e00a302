"""What went wrong, said at the command line: messages that no test can bring about by a command."""

from __future__ import annotations

from typing import Any

import pytest

from segue import errors
from segue.errors import InputError, closest, exit_code


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


# One line that fits


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize(
    "name", ["x" * 5_000, "word " * 2_000, "a\nb" * 3_000, "\x1b[31m" * 1_000, "\udcff" * 500], ids=range(5)
)
def test_a_message_is_one_line_that_fits(name: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(errors, "_width", lambda: columns)
    assert exit_code(InputError(f"There is no file {name}. Check the path."), []) == 2
    said = capsys.readouterr().err
    assert said.startswith("segue: There is no file ") and said.endswith("\n") and said.count("\n") == 1
    assert len(said) <= 4 * columns + 1 and "\x1b" not in said
    if " " not in name:
        assert said.endswith(". Check the path.\n")  # what to do is never cut


def test_a_short_message_is_said_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code(InputError("Whole."), [])
    assert capsys.readouterr().err == "segue: Whole.\n"


@pytest.mark.parametrize(
    ("error", "found", "advice"),
    [
        (MemoryError(), "The memory of this machine is full. ", False),
        (MemoryError("Unable to allocate 7.45 GiB for an array"), "full: 7.45 GiB more were asked for. ", False),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "The memory of this machine is full. ", True),
    ],
)
def test_batches_are_advised_where_a_network_filled_the_memory(
    error: Exception, found: str, advice: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(error, []) == 1
    said = capsys.readouterr().err
    assert found in said and ("batches.size" in said) == advice


def test_an_interruption_that_a_library_has_wrapped_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    """numba makes an error of its own of Ctrl-C while it compiles."""
    try:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise RuntimeError("Failed in nopython mode") from None
    except RuntimeError as error:
        assert exit_code(error, []) == 1
    assert capsys.readouterr().err == "segue: Interrupted.\n"


def test_letters_in_another_order_are_the_nearest_word() -> None:
    assert closest("gtp", ["gpu", "gpt", "gtx"]) == "gpt"
    assert closest("ngran", ["ngram", "grammar"]) == "ngram" and closest("zzz", ["ngram"]) == ""
