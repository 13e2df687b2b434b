"""Small tables keyed by what they describe: encoders, indexed_images images, sealed sets.

Every change is one merge on the declared primary key, so that a row is there once whoever else writes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from store.errors import RequestError
from store.keys import is_fingerprint, spec_from_json, spec_to_json
from store.tables.connection import Connection, retrying, storage_faults
from store.tables.evolution import completed, stored_columns, widen
from store.tables.schemas import ENCODERS, IMAGE_INDEX, REGISTERS, primary_key
from store.types import EncoderSpec, IndexedImage

log = logging.getLogger(__name__)

_SURVEY_BATCH = 1024  # rows: with thumbnails of 5 kB, about 5 MB


def upsert(connection: Connection, table: str, schema: pa.Schema, rows: pa.Table) -> None:
    """Writes rows, replacing those with the same primary key."""

    def merge() -> None:
        found = connection.find(table)
        current = connection.create(table, schema) if found is None else widen(found, schema)
        current.merge_insert(primary_key(schema)).when_matched_update_all().when_not_matched_insert_all().execute(rows)

    retrying(f"writing table {table!r}", merge)


def insert(connection: Connection, table: str, schema: pa.Schema, rows: pa.Table) -> None:
    """Writes those rows whose primary key is new."""

    def merge() -> None:
        found = connection.find(table)
        current = connection.create(table, schema) if found is None else widen(found, schema)
        current.merge_insert(primary_key(schema)).when_not_matched_insert_all().execute(rows)

    retrying(f"writing table {table!r}", merge)


def read(connection: Connection, table: str, condition: str | None = None) -> pa.Table:
    """Rows of a register that meet an SQL condition; an empty table if nothing was ever written."""
    schema = REGISTERS[table]
    found = connection.find(table)
    if found is None:
        return schema.empty_table()
    with storage_faults(f"reading table {table!r}"):
        return completed(found.to_table(columns=stored_columns(found, schema), filter=condition), schema)


def forget(connection: Connection, register: str, column: str, values: Sequence[str]) -> None:
    """Deletes the rows whose column holds one of these texts."""

    def delete() -> None:
        table = connection.find(register)
        if table is not None and values:
            table.delete(one_of(column, values))

    retrying(f"writing table {register!r}", delete)


def quoted(text: str) -> str:
    """A text as an SQL literal.

    Examples:
        >>> quoted("it's")
        "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def one_of(column: str, values: Sequence[str]) -> str:
    """The SQL condition that a column holds one of these texts; the column's name may be an SQL word.

    Examples:
        >>> one_of("set_name", ["a", "b"])
        "`set` IN ('a', 'b')"
    """
    return f"`{column}` IN ({', '.join(map(quoted, values))})" if values else "false"


def now() -> datetime:
    """The time in UTC, as every table keeps it."""
    return datetime.now(UTC)


# --- encoders ---------------------------------------------------------------------------------------------------
def write_encoder(connection: Connection, spec: EncoderSpec) -> None:
    """Registers a spec under its name; from then on the name stands for it."""
    known = read(connection, "encoders", f"name = {quoted(spec.name)}").to_pylist()
    others = {row["fingerprint"] for row in known} - {spec.fingerprint}
    newest = max(known, key=lambda row: row["written"], default=None)
    if newest is not None and newest["fingerprint"] == spec.fingerprint:
        return
    if others:
        log.warning(
            "encoder name %r now stands for %s (revision %s); embeddings made under this name before are kept and "
            "found by fingerprint: %s",
            spec.name,
            spec.fingerprint,
            spec.revision,
            ", ".join(sorted(others)),
        )
    row = {"name": spec.name, "fingerprint": spec.fingerprint, "spec": spec_to_json(spec), "written": now()}
    upsert(connection, "encoders", ENCODERS, pa.Table.from_pylist([row], schema=ENCODERS))


def encoder(connection: Connection, name_or_fingerprint: str) -> EncoderSpec:
    """The spec of a fingerprint, or the one last registered under a name."""
    column = "fingerprint" if is_fingerprint(name_or_fingerprint) else "name"
    rows = read(connection, "encoders", f"{column} = {quoted(name_or_fingerprint)}").to_pylist()
    if not rows:
        known = sorted(set(read(connection, "encoders").column("name").to_pylist()))
        raise RequestError(
            f"encoder {name_or_fingerprint!r} is not in the store {connection.uri}; "
            f"it holds {', '.join(known) or 'none'}. Run `capim embed` with it first"
        )
    return spec_from_json(max(rows, key=lambda row: row["written"])["spec"])


# --- image index ----------------------------------------------------------------------------------------------
def indexed_images(connection: Connection, shas: Sequence[str]) -> dict[str, str | None]:
    """Of these image hashes, the known ones: None where it decodes, else the reason why not."""
    table = connection.find("image_index")
    if table is None or not shas:
        return {}
    # One pass over two narrow columns: a corpus asks for all of its images at once.
    with storage_faults("reading table 'image_index'"):
        rows = table.to_table(columns=["sha", "reason"])
    asked = rows.filter(pc.is_in(rows.column("sha"), value_set=pa.array(shas, pa.string())))
    return dict(zip(asked.column("sha").to_pylist(), asked.column("reason").to_pylist(), strict=True))


def thumbnails(connection: Connection, shas: Sequence[str]) -> dict[str, bytes]:
    """Thumbnails of these image hashes, as encoded bytes; hashes without one are left out."""
    table = connection.find("image_index")
    found: dict[str, bytes] = {}
    if table is None:
        return found
    unique = sorted(set(shas))
    for start in range(0, len(unique), _SURVEY_BATCH):
        with storage_faults("reading table 'image_index'"):
            condition = one_of("sha", unique[start : start + _SURVEY_BATCH]) + " AND thumbnail IS NOT NULL"
            rows = table.to_table(columns=["sha", "thumbnail"], filter=condition)
        found |= zip(rows.column("sha").to_pylist(), rows.column("thumbnail").to_pylist(), strict=True)
    return found


def write_image_index(connection: Connection, rows: Iterable[IndexedImage]) -> None:
    """Keeps what is new among these, in bounded batches."""
    remaining = iter(rows)
    while batch := list(islice(remaining, _SURVEY_BATCH)):
        unique = {row[0]: IndexedImage(*row) for row in batch}
        table = pa.Table.from_pylist([row._asdict() for row in unique.values()], schema=IMAGE_INDEX)
        insert(connection, "image_index", IMAGE_INDEX, table)
