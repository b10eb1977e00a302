"""Export a run as one file, to move it to another machine: a plain zip of a finished run's files.

Checkpoints are left out: they are only needed to resume training. The same run always gives the same bytes.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

from segue.data.atomic import atomic_file, atomic_folder, of_process
from segue.errors import InputError
from segue.runs.folder import check_run

FILES = (
    *("recipe.toml", "environment.json", "ledger.json", "tokenizer.json", "speller.json", "config.json"),
    *("model.safetensors", "train_hashes.safetensors", "metrics.jsonl", "result.json", "report.html"),
)
OPTIONAL = {"speller.json", "train_hashes.safetensors", "report.html"}


def export_zip(run: Path, path: Path) -> None:
    """Write the run as a zip file; never overwrite an existing file."""
    check_run(run)
    if path.exists():
        raise InputError(f"{path} exists already; nothing is overwritten. Choose another name.")
    missing = [name for name in FILES if name not in OPTIONAL and not (run / name).is_file()]
    if missing:
        raise InputError(f"The run in {run} is not whole: {', '.join(missing)} missing. Go on with it by --resume.")
    with atomic_file(path, of_process(path)) as beside, zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in FILES:
            if (run / name).is_file():
                # No date, so that two exports of one run have the same bytes.
                archive.writestr(zipfile.ZipInfo(name), (run / name).read_bytes(), zipfile.ZIP_DEFLATED)


def import_zip(path: Path, out: Path) -> None:
    """Unpack an exported run into a new folder; refuse an incomplete one, and leave nothing behind."""
    if not path.is_file():
        raise InputError(f"There is no file {path}. Expected what `segue export RUN --to zip PATH` wrote.")
    if out.exists():
        raise InputError(f"{out} exists already; nothing is overwritten. Choose another --out.")
    with atomic_folder(out) as beside:
        _unpack(path, beside)
        check_run(beside)


def _unpack(path: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
            # Allow only the names of a run's files: an archive must not choose where it is written.
            strange = sorted(names - set(FILES))
            missing = sorted(set(FILES) - OPTIONAL - names)
            if strange or missing:
                found = f"it holds {strange[0]}" if strange else f"{missing[0]} is missing"
                raise InputError(f"{path} is not an exported run: {found}.")
            for name in sorted(names):
                (folder / name).write_bytes(archive.read(name))
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise InputError(f"{path} is damaged or no zip file: {error}. Export the run again.") from None
