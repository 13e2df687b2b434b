"""A Parquet file for Embedding Atlas (github.com/apple/embedding-atlas): the items of one encoder as points of a plane.

| column | contents |
|---|---|
| ``id``, ``text``, ``language`` | of the item; the text of an image is all its captions, one a line |
| ``image`` | images only: its thumbnail, ``{bytes, path}`` |
| ``x``, ``y`` | ``tasks.results.projection`` |
| ``neighbors`` | ``{ids, distances}``: rows of the file and 1 - cosine, nearest first, exact |
| ``PROTOCOL ENCODER rank`` | of the item as a query: the rank of its first relevant item, ties won; null: no query |
| ``PROTOCOL ENCODER hit`` | whether that is 1 even if ties are lost |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.files import replacing
from capim.store.planes import Method
from capim.store.schema import texts
from capim.store.types import Modality
from capim.tasks.results.projection import project
from capim.tasks.runtime.stored import newest_evaluations
from capim.tasks.scoring.neighbours import nearest_neighbours

NEIGHBOURS = 15  # as many as Embedding Atlas itself looks for
QUERIES: Mapping[Modality, str] = {"image": "i2t/", "caption": "t2i/"}  # how ids of protocols with such queries begin
HEADLINE: Mapping[Modality, str] = {"image": "i2t/any", "caption": "t2i/all"}
PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_ROWS = 1000  # whose thumbnails are in memory at once


def export_atlas(
    store: EmbeddingStore,
    path: Path,
    *,
    encoders: Sequence[str],
    corpus: str,
    modality: Modality,
    protocols: Sequence[str] = (),
    projection: Method = "pca",
) -> int:
    """Writes the file; returns its rows.

    Args:
        path: A file that ends with ``.parquet``.
        encoders: The first gives points and neighbours; what each found is in columns.
        corpus: Name or fingerprint.
        modality: The items: ``image`` or ``caption``.
        protocols: Whose outcomes to show; by default ``i2t/any`` of images, ``t2i/all`` of captions.

    Raises:
        RequestError: The suffix is another one, there are no vectors, or the encoder has several for each item.
    """
    if path.suffix != ".parquet":
        raise RequestError(f"embedding-atlas writes a .parquet file, got {str(path)!r}; end it with .parquet")
    vectors = store.vectors(encoder=encoders[0], corpus=corpus, modality=modality)
    items = store.items(corpus, modality)
    columns: dict[str, Any] = {"id": items["id"]}
    if modality == "caption":
        columns |= {"text": items["text"], "language": items["language"]}
    else:
        columns["text"] = _captions_of(store.items(corpus, "caption"), texts(items["id"]))
    plane = project(vectors.matrix, projection)
    columns |= {"x": plane.points[:, 0], "y": plane.points[:, 1]}
    nearest = nearest_neighbours(vectors.matrix, NEIGHBOURS)
    columns["neighbors"] = pa.StructArray.from_arrays(
        [_lists(nearest.positions), _lists(1 - nearest.scores)], names=["ids", "distances"]
    )
    wanted = {
        "encoder_fingerprint": [store.encoder(encoder).fingerprint for encoder in encoders],
        "corpus_fingerprint": [store.key(encoder=encoders[0], corpus=corpus, modality=modality).corpus_fingerprint],
        "protocol": list(protocols or [HEADLINE[modality]]),
    }
    for row in newest_evaluations(store, wanted):
        outcomes = store.rows("outcomes", evaluation=row["evaluation"])
        label = f"{row['protocol']} {row['encoder']}"
        columns |= _found(outcomes, label, len(items)) if row["protocol"].startswith(QUERIES[modality]) else {}
    table = pa.table(columns)
    with replacing(path) as temporary:
        _write(temporary, table, items["sha"].to_pylist() if modality == "image" else [], store)
    return len(table)


def _captions_of(captions: pa.Table, images: Sequence[str]) -> list[str]:
    found: dict[str, list[str]] = defaultdict(list)
    for image, text in zip(captions["image_id"].to_pylist(), captions["text"].to_pylist(), strict=True):
        if image is not None and text:
            found[image].append(text)
    return ["\n".join(found[image]) for image in images]


def _lists(values: NDArray[Any]) -> pa.Array:
    """A list for each row of a matrix."""
    offsets = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.ravel()))


def _found(outcomes: pa.Table, label: str, n_items: int) -> dict[str, pa.Array]:
    """Rank and hit of each item; null where it was no query."""
    ords, best, worst = (outcomes[name].to_numpy() for name in ("query_ord", "rank_best", "rank_worst"))
    rank, hit, absent = np.zeros(n_items, np.int32), np.zeros(n_items, np.bool_), np.ones(n_items, np.bool_)
    rank[ords], hit[ords], absent[ords] = best, worst == 1, False
    return {f"{label} {name}": pa.array(values, mask=absent) for name, values in (("rank", rank), ("hit", hit))}


def _write(path: Path, table: pa.Table, shas: Sequence[str | None], store: EmbeddingStore) -> None:
    """The table, with the thumbnails of its images if there are any, some rows at a time."""
    writer: pq.ParquetWriter | None = None
    try:
        for start in range(0, len(table), _ROWS):
            part = table.slice(start, _ROWS)
            if shas:
                pictures = store.thumbnails([sha for sha in shas[start : start + _ROWS] if sha])
                cells = [
                    {"bytes": pictures[sha], "path": None} if sha in pictures else None
                    for sha in shas[start : start + _ROWS]
                ]
                part = part.append_column("image", pa.array(cells, PICTURE))
            writer = writer or pq.ParquetWriter(path, part.schema, compression="zstd")
            writer.write_table(part)
    finally:
        if writer is not None:
            writer.close()
