"""--overwrite: a new run takes the place of an old one, which is kept beside it until the new one is finished.

Only folders that hold a run and nothing else are replaced. The old run is renamed to .NAME.replaced when the new one
begins, comes back if the new one cannot begin, and is removed when the new one is finished. After a kill both are
there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from segue.errors import InputError
from segue.runs import folder as files
from segue.training.log import Progress


def check_replaceable(path: Path) -> None:
    """Refuse to replace a folder that is not a run's, or that holds what no run makes."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if path.is_symlink() or not (path / "recipe.toml").is_file():
        raise InputError(f"{path} is not a run folder, and only a run can be replaced. Choose another --out.")
    strange = sorted(name for name in files.entries(path) if not files.is_own(name))
    if strange:
        raise InputError(
            f"{path} holds {', '.join(strange[:3])}, which no run makes, so that it is not replaced. Move it away, or "
            "choose another --out."
        )


@contextmanager
def replacing(path: Path, progress: Progress) -> Iterator[None]:
    """Set the run in `path` aside while a new one is made there; put it back if the new one did not even begin."""
    if not (path / "recipe.toml").exists():
        yield
        return
    aside = _aside(path)
    with files.locked(path):  # nobody writes to it
        check_replaceable(path)
        if aside.exists():  # the new run of an earlier --overwrite was not finished: that one is given up
            check_replaceable(aside)
            _remove(path)
        else:
            path.rename(aside)
    progress(f"The old run is in {aside} until the new one is finished.", 0.0)
    try:
        yield
    except BaseException:
        if not (path / "recipe.toml").exists():
            with suppress(OSError):  # someone else may have put something there: then the old run stays aside
                (path / ".lock").unlink(missing_ok=True)
                if path.exists():
                    path.rmdir()
                aside.rename(path)
        raise


def forget(path: Path) -> None:
    """Remove the run that the finished run in `path` replaced, if there is one and nothing else is in its folder."""
    aside = _aside(path)
    if (aside / "recipe.toml").exists():
        with suppress(InputError):
            check_replaceable(aside)
            _remove(aside)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.replaced")


def _remove(path: Path) -> None:
    """Remove a run folder; its recipe last, so that what a kill leaves is a run folder still."""
    for name in sorted(files.entries(path), key=lambda name: name == "recipe.toml"):
        files.remove(path / name)
    path.rmdir()
