"""Rows of analyses in files: .parquet, .csv (lists as JSON), .json (an array of objects)."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa

from store.errors import RequestError
from store.files import replacing

SUFFIXES = (".parquet", ".csv", ".json")


def write_row_file(path: Path, rows: pa.Table) -> None:
    """Writes rows in the format of the file's suffix; the file is complete or does not exist."""
    if path.suffix not in SUFFIXES:
        raise RequestError(f"{path}: suffix {path.suffix!r} is unknown; known are {', '.join(SUFFIXES)}")
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
    """Writes rows as an array of objects; times in ISO 8601, bytes as their number."""
    json.dump(rows, out, indent=1, ensure_ascii=False, default=_text)
    out.write("\n")


def write_csv(rows: Sequence[Mapping[str, Any]], names: Sequence[str], out: TextIO) -> None:
    """Writes rows under a header; null is empty, lists and objects are JSON, times are ISO 8601."""
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return f"<{len(value)} bytes>" if isinstance(value, bytes) else str(value)


def _cell(value: object) -> object:
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False, default=_text)
    return value.isoformat() if isinstance(value, datetime) else value
