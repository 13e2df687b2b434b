"""Rows of analyses in files: .parquet, .csv (lists as JSON), .json (an array of objects)."""

from __future__ import annotations

import csv
import json
from datetime import datetime
from pathlib import Path
from typing import Any

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
            temporary.write_text(json.dumps(_plain(rows), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        else:
            with temporary.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(rows.column_names)
                writer.writerows([_cell(value) for value in row.values()] for row in _plain(rows))


def _plain(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows with times as text in ISO 8601."""
    return [
        {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
        for row in rows.to_pylist()
    ]


def _cell(value: object) -> object:
    """A CSV cell: null is empty, lists are JSON."""
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, list) else value
