"""Writes files to a folder, or to an object storage address such as ``s3://bucket/reports/run``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow.fs

from capim.store.errors import WorkError
from capim.store.files import replacing


def write_files(target: str | Path, files: Mapping[str, str | bytes], *, replace_folder: str = "") -> None:
    """Writes files below a target; a reader sees each file old or new, never a part of it.

    Args:
        target: A folder, made if need be, or an address; credentials and the endpoint of object storage come from the
            usual environment variables.
        files: Relative name to contents.
        replace_folder: A folder below the target from which all files are removed that are not among ``files``.

    Raises:
        WorkError: The disk is full, the folder cannot be written, or the address does not answer.
    """
    try:
        local = "://" not in str(target)
        system, root = _opened(str(target))
        for name, contents in files.items():
            path = f"{root}/{name}"
            data = contents.encode() if isinstance(contents, str) else contents
            if local:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                with replacing(Path(path)) as temporary:
                    temporary.write_bytes(data)
            else:
                with system.open_output_stream(path) as stream:  # an object appears when it is complete
                    stream.write(data)
        if replace_folder:
            folder = pyarrow.fs.FileSelector(f"{root}/{replace_folder}", allow_not_found=True)
            for old in system.get_file_info(folder):
                if f"{replace_folder}/{old.base_name}" not in files:
                    system.delete_file(old.path)
    except (OSError, WorkError) as fault:
        raise WorkError(
            f"cannot write to {target}: {fault}; no result is lost; make the target writable and repeat the command"
        ) from fault


def folders_of(target: str) -> list[str]:
    """The folders of runs below the reports of a workspace, by name, which sorts by time; empty if there are none."""
    system, root = _opened(target)
    found = system.get_file_info(pyarrow.fs.FileSelector(root, allow_not_found=True))
    return sorted(one.base_name for one in found if re.match(r"\d{8}T\d{6}-", one.base_name))


def remove_folder(target: str) -> None:
    """Removes a folder with everything in it."""
    system, root = _opened(target)
    system.delete_dir(root)


def _opened(target: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """The file system of a folder or an address, and the path there."""
    local = pyarrow.fs.LocalFileSystem(), target
    return pyarrow.fs.FileSystem.from_uri(target) if "://" in target else local
