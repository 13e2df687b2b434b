"""Writes files to a folder, or to an object storage address such as ``s3://bucket/reports/run``."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import pyarrow.fs

from capim.store.errors import WorkError
from capim.store.files import file_system, replacing
from capim.store.types import digest16


def write_files(target: str | Path, files: Mapping[str, str | bytes], *, replace_folder: str = "") -> None:
    """Write files below a target; a reader sees each file old or new, never a part of it.

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
        system, root = file_system(str(target))
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
                # hidden is what another process that writes the same report has not finished
                if f"{replace_folder}/{old.base_name}" not in files and not old.base_name.startswith("."):
                    with suppress(FileNotFoundError):  # the other process has removed it
                        system.delete_file(old.path)
    except (OSError, WorkError) as fault:
        raise WorkError(
            f"cannot write to {target}: {fault}; no result is lost; make the target writable and repeat the command"
        ) from fault


PAGES = "pages"  # folder of the reports, each under the digest of its contents; the folders of runs point there
_POINTER = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=../{folder}/report.html">\n'


@cache
def version_of_pages() -> str:
    """Return a digest of the code that makes reports, its templates and styles, and the release."""
    code = sorted(path for path in Path(__file__).parent.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return digest16([version("capim"), *(sha256(path.read_bytes()).hexdigest() for path in code)])


def has_file(target: str) -> bool:
    """True if there is a file at this path or address."""
    system, path = file_system(target)
    return bool(system.get_file_info(path).type == pyarrow.fs.FileType.File)


def point(reports: str, name: str, folder: str) -> str:
    """Make ``name`` below ``reports`` an alias of another folder there; return where its files can be read.

    A symbolic link; where there are none, as in object storage, a page that leads to ``report.html`` of the folder.
    """
    if "://" not in reports:
        temporary = Path(reports) / f".{name}.{os.getpid()}-{threading.get_ident()}.new"  # no other process has it
        with suppress(OSError):
            temporary.symlink_to(folder, target_is_directory=True)
            temporary.replace(Path(reports) / name)
            return f"{reports}/{name}"
        with suppress(OSError):  # a folder was in its place
            temporary.unlink()
    write_files(f"{reports}/{name}", {"report.html": _POINTER.format(folder=folder)})
    return f"{reports}/{folder}"


def unused_pages(reports: str, kept: Collection[str]) -> list[str]:
    """Return the pages, below ``reports``, to which none of the kept folders of runs points."""
    system, root = file_system(reports)
    pages = system.get_file_info(pyarrow.fs.FileSelector(f"{root}/{PAGES}", allow_not_found=True))
    used = {_page_of(reports, name) for name in kept}
    return sorted(f"{PAGES}/{one.base_name}" for one in pages if f"{PAGES}/{one.base_name}" not in used)


def _page_of(reports: str, name: str) -> str:
    """Return the folder that a run's folder points to; empty if it points nowhere."""
    if "://" not in reports and (link := Path(reports) / name).is_symlink():
        return str(link.readlink())
    system, root = file_system(reports)
    try:
        with system.open_input_file(f"{root}/{name}/report.html") as file:
            found = re.search(rf"url=\.\./({PAGES}/\w+)/", file.read(len(_POINTER) + 99).decode(errors="replace"))
    except OSError:
        return ""
    return found[1] if found else ""


def folders_of(target: str) -> list[str]:
    """Return the folders of runs below the reports of a workspace, by name, which sorts by time; empty without any."""
    system, root = file_system(target)
    found = system.get_file_info(pyarrow.fs.FileSelector(root, allow_not_found=True))
    return sorted(one.base_name for one in found if re.match(r"\d{8}T\d{6}-", one.base_name))


def remove_folder(target: str) -> None:
    """Remove a folder with everything in it; for a link, only the link."""
    if "://" not in target and Path(target).is_symlink():
        Path(target).unlink()
        return
    system, root = file_system(target)
    system.delete_dir(root)
