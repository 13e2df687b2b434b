"""The format of a store: written when the store is made, checked whenever it is opened."""

from __future__ import annotations

import logging

from store.errors import RequestError, WorkError, without_credentials
from store.schema import FORMAT
from store.tables.connection import Connection
from store.tables.metadata import read, write
from store.tables.rows import now

log = logging.getLogger(__name__)


def open_format(connection: Connection, *, create: bool) -> None:
    """Checks the format of a store; writes it for a new one.

    Raises:
        RequestError: There is no store and ``create`` is false, or the store has another format.
    """
    try:
        if connection.find("formats") is None and not create:
            raise RequestError(
                f"there is no store at {connection.uri}. Give another workspace (--workspace, $CAPIM_WORKSPACE), "
                "or make a store with `capim demo` or `capim run`"
            )
        formats = {int(row["format"]) for row in read(connection, "formats").to_pylist()}
    except WorkError as fault:
        folder = connection.folder("formats")
        if folder is not None and not folder.is_dir():  # the store's place is a file, say
            raise
        if folder is None and connection.find("formats") is None:  # raises where nothing can be read
            raise
        # all else can still be read
        uri = without_credentials(connection.uri)
        log.warning("the format of store %s is unknown: %s. Run `capim store repair formats`", uri, fault)
        return
    if not formats:
        write(connection, "formats", [{"format": FORMAT, "written": now()}], update=False)
    elif formats != {FORMAT}:
        raise RequestError(
            f"store {connection.uri} has format {max(formats)}, this release of capim reads format {FORMAT}. "
            "Open it with the release that wrote it, or give another workspace (--workspace)"
        )
