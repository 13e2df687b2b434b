"""A store that looks like an encoded benchmark, made without a model: COCO's own captions, planted vectors.

All encoders see the same hidden images and the same ambiguous captions, each through independent noise, so that
recalls, the agreement between encoders and the spread over queries look like those of real encoders. Run with a folder
and a JSON object of :func:`plant`'s arguments it prints the cost of writing.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store import Block, Embeddings, EmbeddingStore, EncoderSpec, SetKey
from capim.store.schema import BATCHES
from capim.store.types import Corpus, IndexedImage, Modality, digest16
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.corpora.readers.karpathy import read_coco_karpathy
from capim.tasks.corpora.subset import sample_corpus
from tests.reports.large import MODELS, noisy_jpeg
from tests.reports.stand_in import StandIn, batches, spec
from tests.shared_data import SHARED_DATA

SPLIT = SHARED_DATA / "coco_karpathy" / "test_5k.json"
HIDDEN = 64
ASPECTS = 16  # of an image, that its patches and a caption's tokens are about
TOKENS = (12, 28)  # fewest and most vectors of a caption
MULTI = next(name for name in MODELS if "colpali" in name)


def karpathy(limit: int | None = None) -> Corpus:
    """The Karpathy test split by ids, with both extra ground truths; its shape alone without the data."""
    if SPLIT.is_file():
        corpus = read_coco_karpathy(SPLIT)
        return corpus if limit is None else sample_corpus(corpus, limit, seed=0)
    images = [ImageRow(id=f"{i}") for i in range(limit or 5000)]
    rows = [CaptionRow(id=f"{i.id}-{k}", image_id=i.id, text="x") for i in images for k in range(5)]
    return build_corpus("coco-karpathy-shape", images, rows, source=None)


def plant(folder: Path, *, n_images: int, encoders: list[str], n_patches: int, pictures: bool) -> dict[str, float]:
    """Makes a store of sealed sets; returns the wall-clock and CPU seconds of writing, the bytes and the peak GiB."""
    corpus = karpathy(n_images)
    shas = [digest16([corpus.name, id_]) * 2 for id_ in corpus.images["id"].to_pylist()]
    at = corpus.images.schema.get_field_index("sha")
    corpus = replace(corpus, images=corpus.images.set_column(at, "sha", pa.array(shas)))
    store = EmbeddingStore.open(folder, create=True)
    store.write_corpus(corpus)
    rng = np.random.default_rng(0)
    if pictures:
        store.write_image_index(IndexedImage(sha, 213, 160, noisy_jpeg(rng), None) for sha in shas)
    hidden = Hidden(corpus)
    taken = {"seconds": 0.0, "processor": 0.0}
    for name in encoders:
        model = spec(name, dim=MODELS[name][0], vectors="multi" if name == MULTI else "single")
        store.write_encoder(model)
        record = StandIn(specs={name: model})
        batches(record, name, corpus.name, seconds_per_item=MODELS[name][2], n=n_images // 32)
        store.write_rows("batches", pa.Table.from_pylist(record.tables["batches"], schema=BATCHES))
        modalities: tuple[Modality, ...] = ("image", "caption")
        for modality in modalities:
            _fill(store, corpus, model, modality, hidden.blocks(model, modality, n_patches), taken)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return taken | {"bytes": size, "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}


def _fill(
    store: EmbeddingStore,
    corpus: Corpus,
    model: EncoderSpec,
    modality: Modality,
    made: Iterator[tuple[NDArray[np.float32], NDArray[np.int64] | None, int]],
    taken: dict[str, float],
) -> None:
    """Puts and seals one set; only that is timed."""
    key = SetKey(
        corpus=corpus.name,
        corpus_fingerprint=corpus.fingerprint,
        modality=modality,
        encoder=model.name,
        encoder_fingerprint=model.fingerprint,
        vectors=model.vectors,
    )
    items = corpus.images if modality == "image" else corpus.captions
    ids = cast("list[str]", items["id"].to_pylist())
    start = 0
    for values, offsets, n in made:
        embeddings = Embeddings(
            values=values,
            norms=np.ones(n, np.float32),
            n_tokens=np.full(n, 16, np.int32),
            truncated=np.zeros(n, bool),
            offsets=offsets,
        )
        ords = np.arange(start, start + n, dtype=np.int32)
        chosen = ids[start : start + n]
        block = Block(
            ords=ords, ids=chosen, embeddings=embeddings, input_shas=["0123456789abcdef" * 2] * n, batch_id="planted"
        )
        begun, busy = time.perf_counter(), time.process_time()
        store.put(key, model, block)
        taken["seconds"] += time.perf_counter() - begun
        taken["processor"] += time.process_time() - busy
        start += n
    begun, busy = time.perf_counter(), time.process_time()
    store.seal(key, n_items=len(ids))
    taken["seconds"] += time.perf_counter() - begun
    taken["processor"] += time.process_time() - busy


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
                yield _unit(part @ views[0]), None, n
                continue
            counts = np.full(n, n_patches) if modality == "image" else rng.integers(*TOKENS, size=n, endpoint=True)
            owner = np.repeat(np.arange(n), counts)
            aspects = rng.integers(ASPECTS, size=len(owner))
            values = np.einsum("nh,ahd->nad", part, views, optimize=True)[owner, aspects]
            values += 4.0 * rng.standard_normal(values.shape, dtype=np.float32)
            yield _unit(values), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), n


def _unit(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return values / np.linalg.norm(values, axis=1, keepdims=True)


if __name__ == "__main__":
    print(json.dumps(plant(Path(sys.argv[1]), **json.loads(sys.argv[2]))))
