"""Tables that an older release made: read as if they had today's columns, and given them when written to.

A release may add columns. One that may be null is null in older rows; one that may not has a value here that is true of
them. Anything else that changes raises ``schema.FORMAT``, and ``store.tables.formats`` says what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from store.errors import RequestError

if TYPE_CHECKING:
    import lance

TRUE_OF_OLDER_ROWS: dict[str, object] = {
    "put": 0,  # of embedding sets: written before everything that has a number
    "weight": 1.0,  # of outcomes: every query counted alike
}
"""Required column -> its value in rows that were written before it existed."""


def stored_columns(table: lance.LanceDataset, schema: pa.Schema) -> list[str]:
    """Those of the columns that the table has."""
    there = set(table.schema.names)
    return [name for name in schema.names if name in there]


def completed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows as read from a table that may lack columns, with exactly those of the schema."""
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.repeat(pa.scalar(_value(field), field.type), rows.num_rows)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def widen(table: lance.LanceDataset, schema: pa.Schema) -> lance.LanceDataset:
    """The table with every column of the schema, added in one commit if any is missing; rows stay where they are."""
    absent = [field for field in schema if field.name not in table.schema.names]
    for field in absent:
        value = _value(field)
        if value is None:
            table.add_columns(pa.schema([field]))
        else:
            table.add_columns({field.name: f"arrow_cast({value!r}, '{_arrow_name(field.type)}')"})
    return table


def _value(field: pa.Field) -> object:
    if field.nullable:
        return None
    if field.name not in TRUE_OF_OLDER_ROWS:
        raise RequestError(
            f"a table of this store lacks column {field.name!r}, which has no value that is true of older rows: "
            "the store was made by a release that this one cannot read. Make it again, or open it with that release"
        )
    return TRUE_OF_OLDER_ROWS[field.name]


def _arrow_name(kind: pa.DataType) -> str:
    return {pa.int64(): "Int64", pa.float64(): "Float64"}[kind]
