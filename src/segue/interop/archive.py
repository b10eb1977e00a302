"""Export a run as one file, to move it to another machine: a plain zip of a finished run's files.

Checkpoints are left out: they are only needed to resume training. The same run always gives the same bytes.
"""

from __future__ import annotations

import shutil
import zipfile
import zlib
from pathlib import Path

from segue.data.atomic import atomic_file, atomic_folder, of_process
from segue.errors import InputError
from segue.runs.folder import ORIGIN, ORIGIN_FILES, check_run, check_sums
from segue.runs.run import Run

FROM = tuple(f"{ORIGIN}/{name}" for name in ORIGIN_FILES)
"""What an imported run came with."""
FILES = (
    *("recipe.toml", "environment.json", "ledger.json", "tokenizer.json", "source_tokenizer.json", "speller.json"),
    *("config.json", "model.safetensors", "train_hashes.safetensors", "metrics.jsonl", "result.json", "report.html"),
    *FROM,
)
OPTIONAL = {*FROM, "source_tokenizer.json", "speller.json", "train_hashes.safetensors", "report.html"}


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
        raise InputError(f"There is no file or folder {path}. `segue import --help` says what is read.")
    if out.exists():
        raise InputError(f"{out} exists already; nothing is overwritten. Choose another --out.")
    with atomic_folder(out) as beside:
        _unpack(path, beside)
        try:
            _check(beside)
        except InputError as error:
            raise InputError(str(error).replace(str(beside), str(path))) from None


def _check(run: Path) -> None:
    """Check every file against its sum, and open the run, so that what is imported can be used."""
    config = check_run(run)
    check_sums(run, config, every=True)
    if not config["kind"].endswith(".py"):  # code of the user's own is not run to look at it
        Run.open(run, "cpu")


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
            _check_members(path, archive.infolist(), shutil.disk_usage(folder).free)
            for member in archive.infolist():
                _write(archive, member, folder / member.filename)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise InputError(f"{path} is damaged or no zip file: {error}. Export the run again.") from None


_PACKED = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_PIECE = 1 << 20
_LARGEST = 256 << 20
"""Bytes of a file of a run at the most, but for its weights: such files are read whole."""
WEIGHTS = "model.safetensors"


def _check_members(path: Path, members: list[zipfile.ZipInfo], free: int) -> None:
    """Refuse, by what the archive's directory says, what cannot be unpacked here."""
    if len({member.filename for member in members}) < len(members):
        raise InputError(f"{path} is not an exported run: it holds a file twice.")
    for member in members:
        if member.flag_bits & 1:
            raise InputError(f"{path}: {member.filename} is encrypted. Expected a zip file without a password.")
        if member.compress_type not in _PACKED:
            raise InputError(
                f"{path}: {member.filename} is compressed by method {member.compress_type}, which is not read here. "
                "Expected what `segue export RUN --to zip PATH` wrote."
            )
        if member.file_size > _LARGEST and member.filename != WEIGHTS:
            raise InputError(
                f"{path}: {member.filename} has {member.file_size:,} bytes unpacked, more than the {_LARGEST:,} of any "
                "run. Expected what `segue export RUN --to zip PATH` wrote."
            )
    whole = sum(member.file_size for member in members)
    if whole > free:
        raise InputError(
            f"{path} takes {whole:,} bytes unpacked, and the disk has {free:,} free. Choose another --out."
        )


def _write(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> None:
    """Unpack one file piece by piece; refuse one that is longer than the directory said."""
    left = member.file_size
    path.parent.mkdir(exist_ok=True)
    if member.filename == WEIGHTS:
        with archive.open(member) as packed:
            header = int.from_bytes(packed.read(8), "little")
        if not 2 <= header <= min(left - 8, _LARGEST):  # before a disk is filled with what is no model
            raise ValueError(f"{WEIGHTS} is no safetensors file")
    with archive.open(member) as packed, path.open("wb") as file:
        while piece := packed.read(_PIECE):
            left -= len(piece)
            if left < 0:
                raise ValueError(f"{member.filename} is longer than the archive says")
            file.write(piece)
    if left:
        raise ValueError(f"{member.filename} is shorter than the archive says")
