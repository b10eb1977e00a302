"""The tasks: what is asked of a model, from its data to its figures. One file each; `task` gives the one of a name."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from segue.models.base import TaskName

if TYPE_CHECKING:
    from segue.tasks.base import Task

_SHARED = ("__init__", "base", "denoising", "labels", "media_sources")


def names() -> list[TaskName]:
    """List every task: the names of the files in this folder."""
    found: list[Any] = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in _SHARED)
    return found


def task(name: TaskName) -> Task:
    """Return the task with this name."""
    found: Task = import_module(f"segue.tasks.{name}").TASK
    return found


def of_shape(shape: str) -> TaskName:
    """Return the default task for data of this shape: the first that reads it."""
    return next(task(name).name for name in names() if task(name).reads == shape)
