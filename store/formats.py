"""Which format a store was written in, and what to do about an older or newer one.

Added columns do not change the format (``store.evolution`` takes care of them); it is raised when something is
renamed, removed, or means something else.
"""

from __future__ import annotations

import pyarrow as pa

from store.connection import Connection
from store.errors import RequestError
from store.registers import insert, now, read
from store.schema import FORMAT
from store.tables import FORMATS, FORMATS_TABLE


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
        row = {"format": FORMAT, "written": now(), "by": "capim"}
        insert(connection, FORMATS_TABLE, FORMATS, pa.Table.from_pylist([row], schema=FORMATS))
    stored = max(read(connection, FORMATS_TABLE).column("format").to_pylist(), default=FORMAT)
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
