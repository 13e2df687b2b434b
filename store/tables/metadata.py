"""Tables about the whole store: encoders, the image index, sealed sets, corpora, formats.

Every change is one merge on the declared primary key: a row is stored once, however many processes write it.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from capim.store.errors import RequestError, WorkError, did_you_mean, without_credentials
from capim.store.keys import is_fingerprint, spec_from_json, spec_to_json
from capim.store.schema import FORMAT, texts
from capim.store.tables import rows as table_rows
from capim.store.tables.connection import Connection, storage_faults
from capim.store.tables.rows import now, one_of, quoted
from capim.store.tables.schemas import METADATA_TABLES
from capim.store.types import EncoderSpec, IndexedImage

log = logging.getLogger(__name__)

_BATCH = 1024  # images: with thumbnails of 5 kB, about 5 MB


def write(connection: Connection, table: str, rows: Iterable[dict[str, object]], *, update: bool) -> None:
    """Writes rows; ``update`` says whether rows with the same primary key are replaced or stay."""
    schema = METADATA_TABLES[table]
    table_rows.merge(connection, table, schema, pa.Table.from_pylist(list(rows), schema=schema), update=update)


def read(connection: Connection, table: str, condition: str | None = None) -> pa.Table:
    """Rows that meet an SQL condition; an empty table if nothing was ever written."""
    rows = table_rows.read(connection, table, METADATA_TABLES[table], condition)
    for row in rows.to_pylist() if table == "encoders" else ():
        if not is_spec_of(**row):
            raise WorkError(
                f"table 'encoders': another spec stands beside name {row['name']!r}, fingerprint "
                f"{row['fingerprint']!r}",
                remedy="Run `capim store repair encoders`, then the same `capim run`, which registers the encoder "
                "again",
            )
    return rows


# --- encoders ---------------------------------------------------------------------------------------------------
def is_spec_of(*, name: str, fingerprint: str, spec: str, **_: object) -> bool:
    """Whether a spec, as JSON, has this name and fingerprint: a model is loaded with what it says."""
    try:
        stored = spec_from_json(spec)
        return (stored.name, stored.fingerprint) == (name, fingerprint)
    except (TypeError, ValueError):  # not JSON, or not the fields of a spec
        return False


def write_encoder(connection: Connection, spec: EncoderSpec) -> None:
    """Registers a spec; from then on its name means this spec."""
    namesakes = read(connection, "encoders", f"name = {quoted(spec.name)}").to_pylist()
    newest = max(namesakes, key=lambda row: row["written"], default=None)
    if newest is not None and newest["spec"] == spec_to_json(spec):
        return
    others = {row["fingerprint"] for row in namesakes} - {spec.fingerprint}
    if others:
        log.warning(
            "encoder name %r now means %s (revision %s); embeddings that were made under this name before are kept and "
            "can be read by fingerprint: %s",
            spec.name,
            spec.fingerprint,
            spec.revision,
            ", ".join(sorted(others)),
        )
    row = {"name": spec.name, "fingerprint": spec.fingerprint, "spec": spec_to_json(spec), "written": now()}
    write(connection, "encoders", [row], update=True)


def encoder(connection: Connection, name_or_fingerprint: str) -> EncoderSpec:
    """The spec with a fingerprint, or the one last registered under a name."""
    column = "fingerprint" if is_fingerprint(name_or_fingerprint) else "name"
    rows = read(connection, "encoders", f"{column} = {quoted(name_or_fingerprint)}").to_pylist()
    if not rows:
        names = sorted(set(texts(read(connection, "encoders").column("name"))))
        raise RequestError(
            f"encoder {name_or_fingerprint!r} is not in the store {connection.uri}; "
            f"{did_you_mean(name_or_fingerprint, names)}it holds {', '.join(names) or 'none'}. "
            "Run `capim embed` with this encoder first, or `capim import`"
        )
    return spec_from_json(max(rows, key=lambda row: row["written"])["spec"])


# --- image index ----------------------------------------------------------------------------------------------
def indexed_images(connection: Connection, shas: Sequence[str]) -> dict[str, str | None]:
    """The image hashes that are in the index, each with the reason why the image cannot be decoded, or None."""
    table = connection.find("image_index")
    if table is None or not shas:
        return {}
    # One pass over two narrow columns: a corpus looks up all of its images at once.
    with storage_faults("reading table 'image_index'"):
        rows = table.to_table(columns=["sha", "reason"])
    chosen = rows.filter(pc.is_in(rows.column("sha"), value_set=pa.array(shas, pa.string())))
    return dict(zip(chosen.column("sha").to_pylist(), chosen.column("reason").to_pylist(), strict=True))


def thumbnails(connection: Connection, shas: Sequence[str]) -> dict[str, bytes]:
    """Thumbnails by image hash, as encoded bytes; hashes without a thumbnail are left out."""
    table = connection.find("image_index")
    pictures: dict[str, bytes] = {}
    if table is None:
        return pictures
    unique = sorted(set(shas))
    for start in range(0, len(unique), _BATCH):
        with storage_faults("reading table 'image_index'"):
            condition = one_of("sha", unique[start : start + _BATCH]) + " AND thumbnail IS NOT NULL"
            rows = table.to_table(columns=["sha", "thumbnail"], filter=condition)
        pictures |= zip(rows.column("sha").to_pylist(), rows.column("thumbnail").to_pylist(), strict=True)
    return pictures


def write_image_index(connection: Connection, images: Iterable[IndexedImage]) -> None:
    """Adds the images whose hash is new, in batches of bounded size."""
    remaining = iter(images)
    while batch := list(islice(remaining, _BATCH)):
        unique = {image.sha: image._asdict() for image in batch}
        write(connection, "image_index", unique.values(), update=False)


# --- The format of a store: written when the store is made, checked whenever it is opened.


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
