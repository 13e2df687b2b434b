"""A year of nightly runs in one workspace: how its size and the time of a run grow.

Every night the whole pipeline runs and finds what it had. Every week the vectors of one encoder come in a new revision
and are evaluated, and `capim store prune --keep 30` runs, as the weekly deployment does.

A processor that others share is slower at some hours than at others. So one night of every week is followed by the same
run in a copy of the workspace as it was after the second night, and the growth of the time is the ratio of the two. It
is a night in which nothing changes, as in the copy: the first night after a prune writes the report again.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.rows import Row, both_clocks

NIGHTS, WEEK, KEEP = 365, 7, 30


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` takes ten nights."""
    with tempfile.TemporaryDirectory() as folder:
        sizes, growths = simulated(Path(folder), 10 if quick else NIGHTS)
    part = max(1, len(sizes) // 12)
    first, last = (float(np.median(some)) for some in (sizes[1:][:part], sizes[-part:]))
    pairs = growths[-max(1, part // 3) :]
    of, bar = f"of {len(sizes)} nights; prune --keep {KEEP} every week", "" if quick else "<= 1.2"
    time = f"the same run in the workspace of the second night, in turns: median of the last {len(pairs)} pairs {of}"
    size = f"first {first:.4g} MB; median of the last {part} over the first {part}, {of}"
    start = "a year of nights: growth of"
    return [
        Row(f"{start} processor time of a run", float(np.median(pairs)), "times", bar, note=time),
        Row(f"{start} size of the store", last / first, "times", bar, note=size),
    ]


def simulated(parent: Path, nights: int) -> tuple[list[float], list[float]]:
    """Megabytes of the store after every night, in a workspace of a folder; and what a run took in some nights.

    In processor time, relative to the workspace of the second night.
    """
    from capim.flows.benchmark import benchmark, evaluate
    from capim.flows.config import run_config
    from capim.flows.execution import prune
    from capim.store import EmbeddingStore
    from capim.store.upkeep.inventory import disk_bytes
    from tests.imported import import_embeddings

    def night_run(workspace: Path) -> float:
        config = run_config({**common, "workspace": str(workspace), "corpora": ("shapes",), "encoders": ("tiny-clip",)})
        gc.collect()  # else a night now and then pays for the objects of all of them
        return both_clocks(lambda: benchmark.fn(config))[1]

    folder, newborn, copy = (parent / name for name in ("year", "first", "copy"))
    common: dict[str, Any] = {"replicates": 100, "permutations": 1000, "device": "cpu", "sample": 12}
    common |= {"protocols": ("t2i/all", "i2t/any"), "analyses": ("complexity",)}
    partner = run_config({**common, "workspace": str(folder), "corpora": ("shapes",), "encoders": ("partner",)})
    sizes, growths = [], []
    for night in range(nights):
        if night % WEEK == 1:
            store = EmbeddingStore.open(partner.store_uri)
            corpus = store.corpora()[0]
            files = {modality: folder / f"{modality}.npy" for modality in ("images", "captions")}
            for modality, file in files.items():
                shape = (getattr(corpus, f"n_{modality}"), 64)
                np.save(file, np.random.default_rng(night).standard_normal(shape).astype(np.float32))
            whose = {"encoder": "partner", "corpus": corpus.fingerprint, "revision": str(night)}
            import_embeddings(store, **whose, **files)
            evaluate.fn(partner)
        seconds = night_run(folder)
        if night == 1:  # with both encoders
            shutil.copytree(folder, newborn)
        elif night % WEEK == WEEK - 2:
            shutil.copytree(newborn, copy)
            growths.append(seconds / night_run(copy))
            shutil.rmtree(copy)
        if night % WEEK == WEEK - 1:
            prune.fn(partner.workspace, keep=KEEP)
        sizes.append(disk_bytes(folder / "store") / 1e6)
    return sizes, growths
