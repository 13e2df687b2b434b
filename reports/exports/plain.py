"""Result rows with all columns as CSV, JSON with a schema, or Parquet; and CSV and JSON files of any rows."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet

from capim.reports.rows.report_data import ReportData
from capim.store.files import json_value, write_csv
from capim.store.schema import RESULTS

SCHEMA_ID = "capim-results/1"


def results_table(data: ReportData) -> pa.Table:
    """The results as a table of ``schema.RESULTS``."""
    return pa.Table.from_pylist([dict(row) for row in data.results], schema=RESULTS)


def csv_files(data: ReportData, name: str) -> dict[str, bytes]:
    """One CSV; nulls are empty."""
    return {name: csv_bytes(results_table(data).to_pylist())}


def parquet_files(data: ReportData, name: str) -> dict[str, bytes]:
    """One Parquet file with the store's own types."""
    target = io.BytesIO()
    pyarrow.parquet.write_table(results_table(data), target)
    return {name: target.getvalue()}


def json_files(data: ReportData, name: str) -> dict[str, bytes]:
    """The rows, and beside them their JSON Schema (draft 2020-12)."""
    stem = name.removesuffix(".json")
    document = {
        "$schema": f"./{stem}.schema.json",
        "format": SCHEMA_ID,
        "digest": data.digest,
        "results": data.results,
    }
    return {name: json_bytes(document), f"{stem}.schema.json": json_bytes(json_schema(RESULTS))}


def json_bytes(value: object) -> bytes:
    """A document as indented JSON."""
    return (json.dumps(json_value(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def json_schema(rows: pa.Schema) -> dict[str, object]:
    """The JSON Schema of a document of result rows.

    Examples:
        >>> schema = json_schema(pa.schema([pa.field("value", pa.float64())]))
        >>> schema["properties"]["results"]["items"]["properties"]
        {'value': {'type': ['number', 'null']}}
    """
    item = row_schema(rows)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA_ID,
        "type": "object",
        "properties": {
            "$schema": {"type": "string"},
            "format": {"const": SCHEMA_ID},
            "digest": {"type": "string"},
            "results": {"type": "array", "items": item},
        },
        "required": ["format", "digest", "results"],
    }


def row_schema(rows: pa.Schema, *, without: Sequence[str] = ()) -> dict[str, object]:
    """The JSON Schema of one stored row."""
    fields = [field for field in rows if field.name not in without]
    return {
        "type": "object",
        "properties": {field.name: _type(field) for field in fields},
        "required": [field.name for field in fields],
        "additionalProperties": False,
    }


def _type(field: pa.Field) -> dict[str, object]:
    kinds = (
        (pa.types.is_timestamp, {"type": "string", "format": "date-time"}),
        (pa.types.is_integer, {"type": "integer"}),
        (pa.types.is_floating, {"type": "number"}),
        (pa.types.is_boolean, {"type": "boolean"}),
        (pa.types.is_string, {"type": "string"}),
    )
    kind: dict[str, object] = next(dict(kind) for fits, kind in kinds if fits(field.type))
    return {**kind, "type": [kind["type"], "null"]} if field.nullable else kind


def csv_bytes(rows: Sequence[Mapping[str, object]]) -> bytes:
    """Rows with the same keys as CSV with a header."""
    target = io.StringIO()
    write_csv(rows, list(rows[0]), target)
    return target.getvalue().encode()
