"""Time from stored embeddings to the report: nine encoders on COCO's 25,010 captions and 5,000 images.

The store is planted (``tests.benchmarks.planted``) in a process of its own and not timed; then ``capim evaluate``,
``compare``, ``analyse`` and ``report`` run as a user would run them, with stopwatches in them: all protocols, CxC and
ECCV Caption among them, 10,000 replicates, all pairs of encoders, every diagnosis. No model is loaded.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.schema import TOP
from capim.store.types import EncoderSpec, Modality
from capim.store.vectors import Ragged
from capim.tasks.ranking.maxsim import score_maxsim
from capim.tasks.ranking.protocols import build_tasks, select_protocols
from tests.benchmarks.commands import Stepwise, capim
from tests.benchmarks.made import BOTH, karpathy
from tests.benchmarks.own_process import alone
from tests.benchmarks.planted import MULTI, Hidden, plant
from tests.benchmarks.rows import Row, timed
from tests.reports.large import MODELS
from tests.reports.stand_in import spec

COMMANDS = ("evaluate", "compare", "analyse", "report")
# vectors per image of the late-interaction encoder: ColPali's 1,030 pooled about thirtyfold; the full size is a row
PATCHES = 32
FULL_PATCHES = 1030


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` takes 200 images and three encoders."""
    n_images = 200 if quick else 5000
    encoders = [*MODELS][4:7] if quick else [*MODELS]
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        how = {"n_images": n_images, "encoders": encoders, "n_patches": PATCHES, "pictures": True}
        alone(plant, workspace / "store", **how)
        done = {name: capim(name, "--workspace", workspace) for name in COMMANDS}
        store = EmbeddingStore.open(workspace / "store")
        recalls = store.rows("results", metric="R@1", protocol="t2i/all")["value"]
        results = cast("list[float]", recalls.to_pylist())
        counts = {table: store.rows(table).num_rows for table in ("results", "comparisons", "slices")}
        n_protocols = len(set(store.rows("results")["protocol"].to_pylist()))
    total = sum(each.taken.seconds for each in done.values())
    processor = sum(each.taken.processor for each in done.values())
    peak = max(each.taken.peak_gib for each in done.values())
    what = f"{len(encoders)} encoders, one of them {PATCHES} vectors per image and 12 to 28 per caption"
    written = ", ".join(f"{n:,} {table}" for table, n in counts.items())
    return [
        Row("evaluate, compare, analyse and report: time", total / 60, "minutes", "<= 15",
            note=f"{what}; {n_protocols} protocols; {written}; R@1 {min(results):.3f} to {max(results):.3f}"),
        Row("evaluate, compare, analyse and report: CPU time", processor / 60, "minutes"),
        Row("evaluate, compare, analyse and report: peak memory", peak, "GiB", "<= 4",
            note=", ".join(f"{name} {each.taken.peak_gib:.2f}" for name, each in done.items())),
        *steps(done, total),
        *full_late_interaction(quick),
    ]  # fmt: skip


def steps(done: dict[str, Stepwise], total: float) -> list[Row]:
    """Where the time goes, the longest step first."""
    rows = []
    for command, each in done.items():
        for step, taken in each.seconds.items():
            note = f"{taken / total:.1%} of the time; {each.processor[step]:.1f} s of CPU time"
            rows.append((taken, Row(f"{command}: {step}", taken, "s", note=note)))
    return [row for taken, row in sorted(rows, key=lambda entry: -entry[0]) if taken >= 0.001 * total]


def full_late_interaction(quick: bool) -> list[Row]:
    """What scoring ColPali's full 1,030 vectors per image would take, from a part of the pairs."""
    corpus = karpathy(40 if quick else 300)
    model = spec(MULTI, dim=MODELS[MULTI][0], vectors="multi")
    n_images, n_captions = corpus.images.num_rows, corpus.captions.num_rows
    hidden = Hidden(corpus)
    made = {modality: list(blocks_of(hidden, model, modality)) for modality in BOTH}
    tasks = build_tasks(corpus, select_protocols(corpus, vectors="multi"))
    top = max(1, TOP * n_images // 5000)  # the same share of the images as in full, so that as many pairs are decided
    images, captions = (partial(iter, made[modality]) for modality in BOTH)
    seconds = timed(lambda: score_maxsim(images, captions, tasks, top=top)) * (25_010 / n_captions) * (5000 / n_images)
    n_vectors = sum(len(block.values) for block in made["caption"]) / n_captions
    work = 2e-12 * 25_010 * n_vectors * 5000 * FULL_PATCHES * 128
    note = f"two passes (t2i, i2t) of {work:.0f} TFLOP each, scaled from {n_captions:,} captions x {n_images} images"
    return [Row("MaxSim at ColPali's full size, estimated", seconds / 60, "minutes", note=note)]


def blocks_of(hidden: Hidden, model: EncoderSpec, modality: Modality) -> Iterator[Ragged]:
    """The multi-vectors of one modality as a store yields them."""
    start = 0
    for values, offsets, n in hidden.blocks(model, modality, FULL_PATCHES):
        ords = np.arange(start, start + n, dtype=np.int32)
        yield Ragged(values=values.astype(np.float16), offsets=cast("NDArray[np.int64]", offsets), ords=ords)
        start += n
