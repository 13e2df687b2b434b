"""Which format a store was written in, and what to do about an older or newer one.

Added columns do not change the format (``store.tables.evolution`` takes care of them); it is raised when something is
renamed, removed, or means something else.
"""

from __future__ import annotations

import logging

import pyarrow as pa

from store.errors import RequestError, WorkError
from store.keys import SET_PREFIXES
from store.schema import FORMAT
from store.tables.connection import Connection
from store.tables.metadata import insert, now, read
from store.tables.schemas import FORMATS, FORMATS_TABLE

log = logging.getLogger(__name__)


def open_format(connection: Connection, *, create: bool) -> None:
    """Returns if the store can be used as it is; writes the format of a new one.

    Raises:
        RequestError: There is no store here, or one that this release cannot read.
    """
    if connection.find(FORMATS_TABLE) is None:
        if not create:
            raise RequestError(
                f"there is no store at {connection.uri}. Name another workspace (--workspace, $CAPIM_WORKSPACE), "
                "or make one with `capim demo` or `capim run`"
            )
        _write_format(connection, FORMAT)
    stored = _stored_format(connection)
    if stored > FORMAT:
        raise RequestError(
            f"store {connection.uri} has format {stored}, this release reads {FORMAT}. Install a newer capim"
        )
    if stored < FORMAT:
        raise RequestError(
            f"store {connection.uri} has format {stored}, this release reads {FORMAT}. To migrate: with the release "
            "that made it, `capim export` every embedding set and table; with this one, `capim import` them into a "
            "new workspace. Nothing is encoded again"
        )


def _stored_format(connection: Connection) -> int:
    """The format that the store says it has, or where that cannot be read, what its embedding sets say."""
    try:
        known: list[int] = read(connection, FORMATS_TABLE).column("format").to_pylist()
    except WorkError as fault:
        log.warning("%s. What the embedding sets say is taken; `capim store repair %s` mends it", fault, FORMATS_TABLE)
        return _format_of_sets(connection)
    if not known:  # mended: the rows that could not be read are gone
        known = [_format_of_sets(connection)]
        _write_format(connection, known[0])
    return max(known)


def _format_of_sets(connection: Connection) -> int:
    tables = (connection.find(name) for name in connection.names() if name.startswith(SET_PREFIXES))
    said = ((table.schema.metadata or {}).get(b"capim.format") for table in tables if table is not None)
    return max((int(number) for number in said if number), default=FORMAT)


def _write_format(connection: Connection, number: int) -> None:
    row = {"format": number, "written": now(), "written_by": "capim"}
    insert(connection, FORMATS_TABLE, FORMATS, pa.Table.from_pylist([row], schema=FORMATS))
