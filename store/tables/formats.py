"""The format of a store: written when the store is made, checked whenever it is opened."""

from __future__ import annotations

import logging
import unicodedata
from contextlib import suppress
from pathlib import Path

from capim.store.errors import RequestError, WorkError, without_credentials
from capim.store.schema import FORMAT
from capim.store.tables.connection import Connection
from capim.store.tables.metadata import read, write
from capim.store.tables.rows import now

log = logging.getLogger(__name__)

SCHEMES = ("s3", "s3+ddb", "gs", "az", "abfss", "oss", "cos", "file", "memory")  # of addresses that Lance opens


def check_address(connection: Connection) -> None:
    """Raises :class:`RequestError` unless a store may be at this path or address."""
    scheme, _, rest = connection.uri.partition("://")
    if not connection.is_local:
        if scheme not in SCHEMES or not rest.strip("/"):
            known = ", ".join(f"{one}://" for one in SCHEMES)
            raise RequestError(f"store {connection.uri}: expected a folder, or an address of {known} with its bucket")
        return
    if control := sorted({c for c in connection.uri if unicodedata.category(c) == "Cc"}):
        raise RequestError(f"store {connection.uri}: the path has a control character ({control[0]!r})")
    place = Path(connection.uri)
    with suppress(PermissionError):  # what may not be looked at fails when it is opened
        if files := [one for one in (place, *place.parents) if one.exists() and not one.is_dir()]:
            raise RequestError(f"store {place}: {files[0]} is a file, not a folder; give another --workspace")


def open_format(connection: Connection, *, create: bool) -> None:
    """Checks the format of a store; writes it for a new one.

    Raises:
        RequestError: There is no store and ``create`` is false, none can be there, or it has another format.
    """
    check_address(connection)
    try:
        if connection.find("formats") is None and not create:
            raise RequestError(
                f"there is no store at {connection.uri}. Give another workspace (--workspace, $CAPIM_WORKSPACE), "
                "or make a store with `capim demo` or `capim run`"
            )
        formats = {int(row["format"]) for row in read(connection, "formats").to_pylist()}
    except WorkError as fault:
        folder = connection.folder("formats")
        can_be_read = folder.parent.is_dir() if folder is not None else "capim store repair" in fault.remedy
        if not can_be_read:
            raise
        # all but this table may still be read
        remedy = fault.remedy or "Run `capim store repair formats`"
        log.warning(
            "the format of store %s is unknown: %s. %s", without_credentials(connection.uri), fault.problem, remedy
        )
        return
    if not formats:
        write(connection, "formats", [{"format": FORMAT, "written": now()}], update=False)
    elif formats != {FORMAT}:
        raise RequestError(
            f"store {connection.uri} has format {max(formats)}, this release of capim reads format {FORMAT}. "
            "Open it with the release that wrote it, or give another workspace (--workspace)"
        )
