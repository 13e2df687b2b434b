"""Whether a disk has room for a long encode, before it begins."""

from __future__ import annotations

import shutil
from pathlib import Path

from store.errors import WorkError
from store.tables.connection import Connection
from store.types import EncoderSpec

ROW_OVERHEAD = 120  # bytes of id, hashes and figures beside the vectors
MARGIN = 1.3  # new files beside the old ones while a set is compacted, and what else is written


def bytes_needed(spec: EncoderSpec, n_items: int, vectors_per_item: float = 1.0) -> int:
    """Disk that a set takes while it is written and sealed: rows × bytes × 1.3.

    Args:
        spec: Whose vectors.
        n_items: Rows to come.
        vectors_per_item: Mean number of vectors of an item, for a multi-vector encoder.

    Examples:
        >>> spec = EncoderSpec(name="e", adapter="a", checkpoint="c", revision="r", dim=1024)
        >>> bytes_needed(spec, 1000)
        2818400
    """
    component = 2 if spec.storage == "float16" else 4
    return int(n_items * (spec.dim * component * vectors_per_item + ROW_OVERHEAD) * MARGIN)


def refuse_lack_of_room(connection: Connection, needed: int, what: str) -> None:
    """Raises :class:`WorkError` if the store's disk has less free than needed; object storage is not asked."""
    if not connection.is_local:
        return
    folder = Path(connection.uri)
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise WorkError(
            f"{what} needs about {needed / 1e9:.2f} GB, {connection.uri} has {free / 1e9:.2f} GB free. "
            "Free space (`capim store compact`, `capim store drop`), or name a store on another disk"
        )
