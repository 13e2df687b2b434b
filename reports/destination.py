"""Where a report goes: a folder, or an object storage address such as ``s3://bucket/reports/run``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow.fs

from store.errors import WorkError

FIGURES = "figures"


def is_address(target: str | Path) -> bool:
    """Whether a target is an address rather than a path.

    Examples:
        >>> is_address("s3://bucket/reports"), is_address("workspace/reports")
        (True, False)
    """
    return "://" in str(target)


def write_files(target: str | Path, files: Mapping[str, str]) -> None:
    """Writes text files below a target, each whole or not at all; figures that are not among them are removed.

    Args:
        target: A folder, made if need be, or an address; credentials and the endpoint of object storage come from the
            usual environment variables.
        files: Relative name to text.

    Raises:
        WorkError: The disk is full, the folder cannot be written, or the address does not answer.
    """
    try:
        if is_address(target):
            _put(str(target), files)
        else:
            _write(Path(target), files)
    except OSError as fault:
        raise WorkError(
            f"writing the report to {target} failed: {fault}. The store has everything that it says: mend that and "
            "run `capim report`"
        ) from fault


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = place.with_name(f"{place.name}.new")
        fresh.write_text(text, "utf-8")
        fresh.replace(place)
    if (folder / FIGURES).is_dir():
        for old in (folder / FIGURES).iterdir():
            if f"{FIGURES}/{old.name}" not in files:
                old.unlink()


def _put(address: str, files: Mapping[str, str]) -> None:
    """Objects are put whole: a reader sees the old or the new one."""
    system, root = pyarrow.fs.FileSystem.from_uri(address)
    for name, text in files.items():
        with system.open_output_stream(f"{root}/{name}") as stream:
            stream.write(text.encode())
    found = system.get_file_info(pyarrow.fs.FileSelector(f"{root}/{FIGURES}", allow_not_found=True))
    for old in found:
        if f"{FIGURES}/{old.base_name}" not in files:
            system.delete_file(old.path)
