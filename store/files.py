"""Writing a file so that a reader sees either the old or the new contents, never a part."""

from __future__ import annotations

import csv
import json
import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO
from urllib.parse import unquote, urlencode, urlsplit
from zipfile import BadZipFile

import pyarrow as pa
import pyarrow.fs

from capim.store.errors import RequestError, WorkError, csv_text, unknown

NOT_ITS_FORMAT = (
    ArithmeticError, AttributeError, EOFError, LookupError, NotImplementedError, OSError, RecursionError, TypeError,
    ValueError,
)  # fmt: skip
"""Exceptions of libraries and of capim for a file with other contents than its suffix says."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise a library's error about a file as :class:`RequestError`: the contents do not match the suffix."""
    try:
        yield
    except RequestError:
        raise
    except (*NOT_ITS_FORMAT, csv.Error, pa.ArrowException, BadZipFile) as fault:
        raise RequestError(f"{path} cannot be read as {path.suffix}: {fault}") from fault


def is_vector(value: object) -> bool:
    """True if a value read from JSON is a non-empty list of numbers."""
    return isinstance(value, list) and bool(value) and all(type(one) in (int, float) for one in value)


def existing_file(path: Path, what: str = "") -> Path:
    """Return the path of a file; raise :class:`RequestError` for a folder, pipe or device, or if it does not exist."""
    if path.is_file():
        return path
    if path.exists():
        reason = f"is {'a folder' if path.is_dir() else 'a pipe or device'}, not a file"
    else:
        reason = "does not exist" if what else "no such file"
    raise RequestError(f"{what} {path} {reason}; check the path" if what else f"{path}: {reason}")


SCHEMES = ("s3", "s3+ddb", "gs", "az", "abfss", "oss", "cos", "memory")  # of the URIs that Lance opens


def resolved_address(given: str, folder: Path = Path()) -> str:
    """Return a folder or URI in the one form that Lance, Arrow and ``pathlib`` agree on.

    A ``file:`` URI becomes its path. A path with ``..`` or a colon, which Arrow reads as a scheme, becomes absolute.

    Args:
        given: The user's input.
        folder: Base of relative paths.

    Raises:
        ValueError: If it is empty, or a URI without its bucket or of an unknown scheme; says what it should be.

    Examples:
        >>> resolved_address("s3://bucket/team"), resolved_address("file:///data/x"), resolved_address("workspace")
        ('s3://bucket/team', '/data/x', 'workspace')
    """
    scheme, _, rest = given.partition(":")
    if not given.strip():
        raise ValueError("a folder, or a URI such as s3://bucket/path")
    if scheme == "file" and rest.startswith("/"):
        split = urlsplit(given)
        if split.netloc not in ("", "localhost"):
            raise ValueError(f"a folder of this machine: file:///{split.netloc}{split.path}")
        given = unquote(split.path)
    elif scheme in SCHEMES and rest.startswith("/") and not rest.startswith("//"):
        raise ValueError(f"a URI with two slashes, {scheme}:/{rest}")
    elif rest.startswith("//"):
        if scheme not in SCHEMES or not rest.strip("/"):
            raise ValueError(f"a folder, or a URI of {', '.join(f'{each}://' for each in SCHEMES)} with its bucket")
        return given
    path = folder / given
    return str(path.resolve() if ":" in given or ".." in path.parts else path)


def file_system(address: str, endpoint: str = "") -> tuple[pyarrow.fs.FileSystem, str]:
    """Return the file system of a folder or of a URI in object storage, and the path there.

    ``endpoint`` is the URL of a server that speaks S3, if neither Amazon's nor that of the environment.
    """
    if "://" not in address:
        return pyarrow.fs.LocalFileSystem(), address
    if not address.startswith("s3://"):
        return pyarrow.fs.FileSystem.from_uri(address)
    options = {"allow_delayed_open": "true"}  # a small file is one request
    if endpoint:
        server = urlsplit(endpoint)  # without a user, or the user's name would be taken for the host
        options |= {"scheme": server.scheme, "endpoint_override": server.netloc.rpartition("@")[2]}
    return pyarrow.fs.FileSystem.from_uri(f"{address}?{urlencode(options)}")


def sync(folder: Path) -> None:
    """Write every file below a folder from memory to the disk (fsync), so that a power cut leaves it complete."""
    for path in (*folder.rglob("*"), folder, folder.parent):
        with suppress(FileNotFoundError):  # another process has just replaced it
            opened = os.open(path, os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file next to ``path``: it replaces ``path`` if the block succeeds, else it is removed.

    Raises:
        RequestError: If the folder of ``path`` does not exist.
        WorkError: If the file cannot be written.
    """
    if not path.parent.is_dir():
        raise RequestError(f"{path}: folder {path.parent} does not exist")
    if path.is_dir():
        raise RequestError(f"{path}: a folder, not a file; give the name of a file in it")
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as fault:
        raise WorkError(f"writing {path} failed: {fault}") from fault
    finally:
        temporary.unlink(missing_ok=True)


SUFFIXES = (".parquet", ".csv", ".json")


def write_row_file(path: Path, rows: pa.Table) -> None:
    """Write rows in the format of the file's suffix; the file is complete or does not exist."""
    if path.suffix not in SUFFIXES:
        raise RequestError(unknown(f"{path}: suffix", path.suffix, SUFFIXES))
    with replacing(path) as temporary:
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            pq.write_table(rows, temporary, compression="zstd")
        elif path.suffix == ".json":
            with temporary.open("w", encoding="utf-8") as file:
                write_json(rows.to_pylist(), file)
        else:
            with temporary.open("w", newline="", encoding="utf-8") as file:
                write_csv(rows.to_pylist(), rows.column_names, file)


def write_json(rows: Sequence[Mapping[str, Any]], out: TextIO) -> None:
    """Write rows as an array of objects; times in ISO 8601, bytes as their number, not-a-number and infinity null."""
    json.dump(json_value(rows), out, indent=1, ensure_ascii=False, allow_nan=False, default=_text)
    out.write("\n")


def json_value(value: Any) -> Any:
    """Return a value for JSON: times as ISO text, not-a-number and infinity as null, in lists and objects too.

    Examples:
        >>> json_value({"score": float("nan"), "range": [0.5, float("inf")]})
        {'score': None, 'range': [0.5, None]}
    """
    if value is None or isinstance(value, (str, int)):  # most are
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):  # DuckDB's sum of whole numbers
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: json_value(each) for key, each in value.items()}
    return [json_value(each) for each in value] if isinstance(value, (list, tuple)) else value


def write_csv(rows: Sequence[Mapping[str, Any]], names: Sequence[str], out: TextIO) -> None:
    """Write rows under a header; null is empty, lists and objects are JSON, times are ISO 8601, without formulas.

    Every CSV for people is written here, or by the script of a report's page, which does the same.
    """
    # a writer quotes only the characters of its own line end: with "\n", a cell "a\r=x" would become two lines
    lines = SimpleNamespace(write=lambda line: out.write(line.removesuffix("\r\n") + "\n"))
    writer = csv.writer(lines, lineterminator="\r\n")
    writer.writerow(map(csv_text, names))
    writer.writerows([_cell(row[name]) for name in names] for row in rows)


def _text(value: object) -> str:
    return f"<{len(value)} bytes>" if isinstance(value, bytes) else str(value)


def _cell(value: object) -> object:
    if isinstance(value, (list, dict)):
        return json.dumps(json_value(value), ensure_ascii=False, allow_nan=False, default=_text)
    if isinstance(value, str):
        return csv_text(value)
    return value.isoformat() if isinstance(value, datetime) else value
