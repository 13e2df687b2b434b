"""Reading a corpus' own files, with errors that name the file, the place in it, and what was expected there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any

from store.errors import RequestError


def require_folder(path: str | Path, what: str) -> Path:
    """The folder, made absolute; raises ``RequestError`` where it is not there."""
    folder = Path(path).expanduser().absolute()
    if not folder.is_dir():
        kind = "is a file, not a folder" if folder.exists() else "does not exist"
        raise RequestError(f"{what} {folder} {kind}; check the path")
    return folder


def require_file(path: str | Path, what: str) -> Path:
    """The file, made absolute; raises ``RequestError`` where it is not there."""
    file = Path(path).expanduser().absolute()
    if not file.is_file():
        kind = "is a folder, not a file" if file.exists() else "does not exist"
        raise RequestError(f"{what} {file} {kind}; check the path")
    return file


def first_existing(given: str | Path | None, folder: Path, *patterns: str) -> Path | None:
    """The given file (which must exist), else the first match of the patterns in the folder, else None.

    Raises:
        RequestError: A pattern matches several files, so that it is not clear which is meant.
    """
    if given is not None:
        return require_file(given, "file")
    for pattern in patterns:
        found = sorted(folder.glob(pattern))
        if len(found) > 1:
            raise RequestError(
                f"{folder}: several files match {pattern} ({found[0].name}, {found[1].name} …); name the one meant"
            )
        if found:
            return found[0]
    return None


def corpus_name(path: Path) -> str:
    """A corpus name from a file's or folder's name: anything but ASCII letters, digits, ``._-`` becomes ``-``.

    Examples:
        >>> corpus_name(Path("data/my photos (2024).toml"))
        'my-photos-2024'
    """
    stem = path.stem if path.suffix in {".toml", ".json", ".jsonl", ".csv", ".tsv", ".parquet", ".tar"} else path.name
    words = "".join(c if c.isascii() and (c.isalnum() or c in "._") else " " for c in stem).split()
    return "-".join(words) or "corpus"


def read_json(file: Path) -> Any:
    """What a JSON file holds; raises ``RequestError`` with line and column where it is not JSON."""
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise RequestError(f"{file}: not JSON at line {error.lineno}, column {error.colno}: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{file}: not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    except RecursionError as error:
        raise RequestError(f"{file}: lists or objects within one another, deeper than any corpus has them") from error
    except OSError as error:
        raise RequestError(f"{file}: cannot be read ({error.strerror})") from error


def read_json_lines(file: Path) -> Iterator[dict[str, Any]]:
    """One object per line, empty lines passed over; raises ``RequestError`` with the line that is none."""
    try:
        with file.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except json.JSONDecodeError as error:
                    raise RequestError(f"{file}: line {number} is not JSON: {error.msg}") from error
                if not isinstance(row, dict):
                    raise RequestError(f"{file}: line {number} holds {type(row).__name__}, expected an object")
                yield row
    except UnicodeDecodeError as error:
        raise RequestError(f"{file}: not UTF-8 text (byte {error.start}); save it as UTF-8") from error


def field(entry: object, key: str, kind: type | UnionType, where: object) -> Any:
    """The value of a key, checked to be of a kind; raises ``RequestError`` that says where and what was there."""
    if not isinstance(entry, dict):
        raise RequestError(f"{where}: expected an object with {key!r}, got {type(entry).__name__}")
    if key not in entry:
        raise RequestError(f"{where}: no {key!r}; it has {', '.join(sorted(map(repr, entry))[:8]) or 'nothing'}")
    value = entry[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        expected = getattr(kind, "__name__", str(kind))
        raise RequestError(f"{where}: {key!r} is {value!r:.60}, expected {expected}")
    return value
