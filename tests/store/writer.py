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

from capim.store import EmbeddingStore
from tests.store.toy import make_block, make_corpus, make_key, make_spec

SPECS = (make_spec(name="dense", dim=64), make_spec(name="late", dim=32, vectors="multi"))
BLOCK = 16


def fill(uri: str, n_items: int, seed: int, pause: float = 0.0) -> None:
    store = EmbeddingStore.open(uri, create=True)
    corpus = make_corpus(n_items, name="crash")
    store.write_corpus(corpus)
    generator = np.random.default_rng(seed)
    orders = []
    for spec in SPECS:
        store.write_encoder(spec)
        orders.append(generator.permutation(store.missing(make_key(corpus, spec))))
    print("writing", flush=True)
    for start in range(0, max(map(len, orders)), BLOCK):
        for spec, order in zip(SPECS, orders, strict=True):
            if len(chosen := order[start : start + BLOCK]):
                store.put(make_key(corpus, spec), spec, make_block(spec, chosen, batch_id=f"{seed}-{start}"))
        time.sleep(pause)
    for spec in SPECS:
        store.seal(make_key(corpus, spec))


if __name__ == "__main__":
    fill(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *map(float, sys.argv[4:]))
