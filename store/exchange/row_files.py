"""Rows of analysis tables in files: .parquet, .csv (lists as JSON), .json (an array of objects)."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from store.errors import RequestError
from store.exchange.embedding_files import replacing
from store.tables.schemas import ANALYSES

SUFFIXES = (".parquet", ".csv", ".json")


def write_row_file(path: Path, rows: pa.Table) -> None:
    """Writes rows by the file's suffix; the file is there whole or not at all."""
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


def read_row_file(path: Path, table: str) -> pa.Table:
    """Rows for an analysis table.

    Raises:
        RequestError: The file is not there, not what its suffix says, or a value does not fit its column.
    """
    if table not in ANALYSES:
        raise RequestError(f"there is no table {table!r}; known are {', '.join(ANALYSES)}")
    if path.suffix not in SUFFIXES:
        raise RequestError(f"{path}: suffix {path.suffix!r} is unknown; known are {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise RequestError(f"{path}: there is no such file")
    schema = ANALYSES[table]
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            return pq.read_table(path)
        records = json.loads(path.read_text(encoding="utf-8")) if path.suffix == ".json" else _csv_records(path, schema)
        names = {name for record in records for name in record}
        unknown = sorted(names - set(schema.names))
        if unknown:
            raise RequestError(f"{path}: table {table!r} has no column {', '.join(map(repr, unknown))}")
        chosen = pa.schema([field.with_nullable(True) for field in schema if field.name in names])
        parsers = {field.name: _parser(field.type) for field in chosen}
        typed = [
            {name: parsers[name](value) for name, value in record.items() if value is not None} for record in records
        ]
        return pa.Table.from_pylist(typed, schema=chosen)
    except RequestError:
        raise
    except (ValueError, TypeError, AttributeError, OSError, pa.ArrowException) as fault:
        raise RequestError(f"{path} cannot be read as rows of {table!r}: {fault}") from fault


def _plain(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as JSON knows them: times in ISO 8601."""
    return [
        {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
        for row in rows.to_pylist()
    ]


def _cell(value: object) -> object:
    """A CSV cell: null is empty, lists are JSON."""
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, list) else value


def _csv_records(path: Path, schema: pa.Schema) -> list[dict[str, str | None]]:
    """Rows of a CSV file; an empty cell is a null, except in a column of required texts."""
    texts = {field.name for field in schema if field.type == pa.string() and not field.nullable}
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [{name: cell if cell or name in texts else None for name, cell in row.items()} for row in rows]


def _parser(kind: pa.DataType) -> Callable[[Any], Any]:
    """From a JSON value or a CSV cell to what Arrow takes for this type."""
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat
    if pa.types.is_list(kind):
        return lambda value: json.loads(value) if isinstance(value, str) else value
    if pa.types.is_boolean(kind):
        return lambda value: value if isinstance(value, bool) else {"True": True, "False": False}[value]
    if pa.types.is_integer(kind):
        return int
    if pa.types.is_floating(kind):
        return float
    return lambda value: value
