"""Time from stored embeddings to the report: nine encoders on COCO's 25,010 captions and 5,000 images.

The store is planted (``tests.benchmarks.planted``) in a process of its own and not timed; then ``capim evaluate``,
``compare``, ``analyse`` and ``report`` run as a user would run them: all protocols, CxC and ECCV Caption among them,
10,000 replicates, all pairs of encoders, every diagnosis. No model is loaded.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import cast

from capim.store import EmbeddingStore
from tests.benchmarks.commands import capim
from tests.benchmarks.own_process import alone
from tests.benchmarks.planted import plant
from tests.benchmarks.rows import Row
from tests.reports.large import MODELS

COMMANDS = ("evaluate", "compare", "analyse", "report")
# vectors per image of the late-interaction encoder: ColPali's 1,030 pooled about thirtyfold; all are in bench_maxsim
PATCHES = 32


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` takes 200 images and three encoders."""
    n_images = 200 if quick else 5000
    encoders = [*MODELS][4:7] if quick else [*MODELS]
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        how = {"n_images": n_images, "encoders": encoders, "n_patches": PATCHES}
        alone(plant, workspace / "store", **how)
        done = {name: capim(name, "--workspace", workspace) for name in COMMANDS}
        store = EmbeddingStore.open(workspace / "store")
        recalls = store.rows("results", metric="R@1", protocol="t2i/all")["value"]
        results = cast("list[float]", recalls.to_pylist())
        counts = {table: store.rows(table).num_rows for table in ("results", "comparisons", "slices")}
        n_protocols = len(set(store.rows("results")["protocol"].to_pylist()))
    seconds = {name: each.seconds for name, each in done.items()}
    total = sum(seconds.values())
    processor = sum(each.processor for each in done.values())
    peak = max(each.peak_gib for each in done.values())
    what = f"{len(encoders)} encoders, one of them {PATCHES} vectors per image and 12 to 28 per caption"
    written = ", ".join(f"{n:,} {table}" for table, n in counts.items())
    return [
        Row("evaluate, compare, analyse and report: time", total / 60, "minutes", "<= 15",
            note=f"{what}; {n_protocols} protocols; {written}; R@1 {min(results):.3f} to {max(results):.3f}"),
        Row("evaluate, compare, analyse and report: CPU time", processor / 60, "minutes",
            note=", ".join(f"{name} {of:.0f} s by the clock" for name, of in seconds.items())),
        Row("evaluate, compare, analyse and report: peak memory", peak, "GiB", "<= 4",
            note=", ".join(f"{name} {each.peak_gib:.2f}" for name, each in done.items())),
    ]  # fmt: skip
