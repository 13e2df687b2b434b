"""A store that looks like an encoded benchmark, made without a model: COCO's own captions, planted vectors.

All encoders see the same hidden images and the same ambiguous captions, each through independent noise, so that
recalls, the agreement between encoders and the spread over queries look like those of real encoders.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store import EmbeddingStore, EncoderSpec
from capim.store.schema import StoredImage
from capim.store.types import Corpus, Modality, digest16
from tests.benchmarks.made import BOTH, as_block, karpathy, unit
from tests.reports.large import MODELS, noisy_jpeg
from tests.reports.stand_in import SCHEMAS, StandIn, batches, spec

HIDDEN = 64
ASPECTS = 16  # of an image, that its patches and a caption's tokens are about
TOKENS = (12, 28)  # fewest and most vectors of a caption
MULTI = next(name for name in MODELS if "colpali" in name)


def plant(folder: Path, *, n_images: int, encoders: list[str], n_patches: int) -> None:
    """Makes a store of sealed sets."""
    corpus = karpathy(n_images)
    shas = [digest16([corpus.name, id_]) * 2 for id_ in corpus.images["id"].to_pylist()]
    at = corpus.images.schema.get_field_index("sha")
    corpus = replace(corpus, images=corpus.images.set_column(at, "sha", pa.array(shas)))
    store = EmbeddingStore.open(folder, create=True)
    store.write_corpus(corpus)
    rng = np.random.default_rng(0)
    store.write_images(StoredImage(item=sha, sha=sha, width=213, height=160, thumbnail=noisy_jpeg(rng)) for sha in shas)
    hidden = Hidden(corpus)
    for name in encoders:
        model = spec(name, dim=MODELS[name][0], vectors="multi" if name == MULTI else "single")
        store.write_encoder(model)
        record = StandIn(specs={name: model}, contents={corpus.name: corpus})
        batches(record, name, corpus.name, seconds_per_item=MODELS[name][2], n=n_images // 32)
        store.write_rows("batches", pa.Table.from_pylist(record.tables["batches"], schema=SCHEMAS["batches"]))
        for modality in BOTH:
            key = store.key(encoder=name, corpus=corpus.name, modality=modality)
            start = 0
            for values, offsets, n in hidden.blocks(model, modality, n_patches):
                ords = np.arange(start, start := start + n, dtype=np.int32)
                store.put(key, model, as_block(ords, values, offsets))
            store.seal(key)


class Hidden:
    """Latent vectors of the images of a corpus and of its captions, before any encoder."""

    def __init__(self, corpus: Corpus) -> None:
        rng = np.random.default_rng(0)
        place = {id_: ord_ for ord_, id_ in enumerate(corpus.images["id"].to_pylist())}
        image_of = [place[id_] for id_ in corpus.captions["image_id"].to_pylist()]
        n = len(place)
        topics = rng.standard_normal((n // 20 + 1, HIDDEN), dtype=np.float32)
        self.images = topics[rng.integers(len(topics), size=n)] + rng.standard_normal((n, HIDDEN), dtype=np.float32)
        vague = rng.gamma(4.0, 0.25, size=(len(image_of), 1)).astype(np.float32)  # some captions are vague
        noise = rng.standard_normal((len(image_of), HIDDEN), dtype=np.float32)
        self.captions = self.images[image_of] + 0.75 * vague * noise

    def blocks(
        self, model: EncoderSpec, modality: Modality, n_patches: int
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64] | None, int]]:
        """Unit vectors, offsets of many per item, and items, block by block, as this encoder would give them."""
        rng = np.random.default_rng([len(model.name), model.dim, modality == "image"])
        seen = self.images if modality == "image" else self.captions
        blur = 0.55 * (1.3 - MODELS[model.name][1])
        views = np.random.default_rng(model.dim).standard_normal((ASPECTS, HIDDEN, model.dim), dtype=np.float32)
        multi = model.vectors == "multi"
        step = 4096 if not multi else (64 if modality == "image" else 512)
        for start in range(0, len(seen), step):
            part = seen[start : start + step]
            n = len(part)
            part = part + blur * rng.standard_normal(part.shape, dtype=np.float32)
            if not multi:
                yield unit(part @ views[0]), None, n
                continue
            counts = np.full(n, n_patches) if modality == "image" else rng.integers(*TOKENS, size=n, endpoint=True)
            owner = np.repeat(np.arange(n), counts)
            aspects = rng.integers(ASPECTS, size=len(owner))
            values = np.einsum("nh,ahd->nad", part, views, optimize=True)[owner, aspects]
            values += 4.0 * rng.standard_normal(values.shape, dtype=np.float32)
            yield unit(values), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), n
