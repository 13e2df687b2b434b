"""A writer to be killed: fills two sets (dense, multi-vector) block by block in a random order, then seals them.

Run as ``python writer.py STORE N_ITEMS SEED [PAUSE]``; a pause of so many seconds between blocks keeps a writer at
work long enough to be killed, however slow the machine is in killing it. What an item's vectors are depends on nothing
but its position, so any two stores that this has filled must be equal to the last bit. Prints ``writing`` before its
first block.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pyarrow as pa

from capim.store import Block, Corpus, Embeddings, EmbeddingStore, EncoderSpec, SetKey
from capim.store.schema import CAPTIONS, IMAGES

SPECS = (
    EncoderSpec(name="dense", adapter="none", checkpoint="none", revision="r1", dim=64),
    EncoderSpec(name="late", adapter="none", checkpoint="none", revision="r1", dim=32, vectors="multi"),
)
BLOCK = 16
_POOL = np.random.default_rng(7).standard_normal((997, 64)).astype(np.float32)


def corpus(n_items: int) -> Corpus:
    rows = [
        {"id": f"i{i}", "key": "", "sha": None, "width": None, "height": None, "objects": None} for i in range(n_items)
    ]
    return Corpus(name="crash", images=pa.Table.from_pylist(rows, schema=IMAGES), captions=CAPTIONS.empty_table())


def key_of(spec: EncoderSpec, of: Corpus) -> SetKey:
    return SetKey(
        corpus=of.name,
        corpus_fingerprint=of.fingerprint,
        modality="image",
        encoder=spec.name,
        encoder_fingerprint=spec.fingerprint,
        vectors=spec.vectors,
    )


def block(ords: np.ndarray, spec: EncoderSpec, batch_id: str) -> Block:
    counts = 1 + ords % 5 if spec.vectors == "multi" else np.ones(len(ords), int)
    rows = np.concatenate(
        [(position * 31 + np.arange(count)) % len(_POOL) for position, count in zip(ords, counts, strict=True)]
    )
    values = _POOL[rows, : spec.dim]
    values = values / np.linalg.norm(values, axis=1, keepdims=True)
    embeddings = Embeddings(
        values=values,
        norms=np.ones(len(ords), np.float32),
        n_tokens=ords.astype(np.int32),
        truncated=np.zeros(len(ords), bool),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64) if spec.vectors == "multi" else None,
    )
    ids = [f"i{position}" for position in ords]
    return Block(ords=ords, ids=ids, embeddings=embeddings, input_shas=[""] * len(ords), batch_id=batch_id)


def fill(uri: str, n_items: int, seed: int, pause: float = 0.0) -> None:
    store = EmbeddingStore.open(uri, create=True)
    images = corpus(n_items)
    store.write_corpus(images)
    generator = np.random.default_rng(seed)
    orders = []
    for spec in SPECS:
        store.write_encoder(spec)
        orders.append(generator.permutation(store.missing(key_of(spec, images), n_items)))
    print("writing", flush=True)
    for start in range(0, max(map(len, orders)), BLOCK):
        for spec, order in zip(SPECS, orders, strict=True):
            chosen = order[start : start + BLOCK]
            if len(chosen):
                store.put(key_of(spec, images), spec, block(chosen, spec, f"{seed}-{start}"))
        time.sleep(pause)
    for spec in SPECS:
        store.seal(key_of(spec, images), n_items=n_items)


if __name__ == "__main__":
    fill(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *map(float, sys.argv[4:]))
