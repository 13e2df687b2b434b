"""Whether the disk has enough space for an embedding set before it is encoded."""

from __future__ import annotations

import shutil
from pathlib import Path

from capim.store.embedding_store import EmbeddingStore
from capim.store.errors import WorkError
from capim.store.types import EncoderSpec

_ROW_BYTES = 120  # id, hashes and figures beside the vectors
_MARGIN = 1.3  # new files beside the old ones while a set is compacted, and what else is written


def bytes_needed(spec: EncoderSpec, n_items: int, vectors_per_item: float = 1.0) -> int:
    """Disk space in bytes that a set of ``n_items`` rows takes while it is written and sealed: rows × bytes × 1.3.

    Examples:
        >>> spec = EncoderSpec(name="e", adapter="a", checkpoint="c", revision="r", dim=1024)
        >>> bytes_needed(spec, 1000)
        5480800
    """
    component = 2 if spec.storage == "float16" else 4
    return int(n_items * (spec.dim * component * vectors_per_item + _ROW_BYTES) * _MARGIN)


def check_disk_space(store: EmbeddingStore, spec: EncoderSpec, n_items: int, *, vectors_per_item: float = 1.0) -> int:
    """The :func:`bytes_needed`; raises :class:`WorkError` if the disk has less free. Object storage has no limit."""
    needed = bytes_needed(spec, n_items, vectors_per_item)
    if store.connection.is_local:
        free = shutil.disk_usage(Path(store.uri)).free
        if free < needed:
            raise WorkError(
                f"{n_items} items by {spec.name!r} need about {needed / 1e9:.2f} GB, {store.uri} has "
                f"{free / 1e9:.2f} GB free",
                remedy="Free space (`capim store compact`, `capim store drop`), or give a workspace on another disk",
            )
    return needed
