"""The nine made-up models of ``tests.reports.large`` in a store on disk.

Outcomes with lists of the top hundred for every caption and
model, all rows of a report, some thumbnails, and the vectors of the first model, drawn at random from a few thousand.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from capim.store import EmbeddingStore
from capim.store.schema import StoredImage
from tests.benchmarks.made import BOTH, dense_blocks
from tests.reports.large import coco
from tests.reports.stand_in import SCHEMAS

CAPTIONS = 5  # of an image
AT_ONCE = 10_000  # vectors in memory


def make(folder: Path, n_queries: int) -> None:
    """The store, written with the store's own writers."""
    made = coco(n_images=n_queries // CAPTIONS, n_languages=3, n_pictures=200)
    store = EmbeddingStore.open(folder, create=True)
    for corpus in made.contents.values():
        store.write_corpus(corpus)
    for spec in made.specs.values():
        store.write_encoder(spec)
    store.write_images(
        StoredImage(item=sha, sha=sha, width=213, height=160, thumbnail=bytes_) for sha, bytes_ in made.pictures.items()
    )
    for table, rows in made.tables.items():
        if rows:
            own = {"pid": 1} if table == "runs" else {}  # which no report shows
            store.write_rows(table, pa.Table.from_pylist([{**own, **row} for row in rows], schema=SCHEMAS[table]))
    for evaluation in sorted(made.arrow):
        store.write_rows("outcomes", made.arrow.pop(evaluation))
    spec = next(iter(made.specs.values()))
    for modality in BOTH:
        key = store.key(encoder=spec.name, corpus="coco-karpathy", modality=modality)
        for block in dense_blocks(len(store.items("coco-karpathy", modality)), spec.dim, AT_ONCE):
            store.put(key, spec, block)
        store.seal(key)
