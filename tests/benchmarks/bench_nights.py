"""A year of nightly runs in one workspace: its size, its files and the time of a run, as figures and as a chart.

Every night the whole pipeline runs and finds what it had. Every week the vectors of one encoder come in a new revision
and are evaluated, and `capim store prune --keep 30` runs, as the weekly deployment does. ``nights.svg`` beside this
file is the chart of the last full run.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.benchmarks.rows import Row

NIGHTS, WEEK, KEEP = 365, 7, 30
CHART = Path(__file__).with_name("nights.svg")


class Night(NamedTuple):
    """A workspace after a night: processor seconds of the run, MB and files of the store, MB of the reports."""

    night: int
    seconds: float
    megabytes: float
    files: int
    reports: float


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` takes ten nights and draws nothing."""
    with tempfile.TemporaryDirectory() as folder:
        nights = list(simulated(Path(folder), 10 if quick else NIGHTS))
    part = max(1, len(nights) // 12)
    first, last = nights[1 : 1 + part], nights[-part:]  # the first night encodes

    def grown(name: str) -> tuple[float, float]:
        before, after = (float(np.median([getattr(night, name) for night in nights])) for nights in (first, last))
        return before, after / before

    if not quick:
        CHART.write_text(drawn(nights), encoding="utf-8")
    note = f"median of the last {part} nights over the first {part}, of {len(nights)}; prune --keep {KEEP} every week"
    rows = []
    for name, title, unit in (
        ("seconds", "processor time of a run", "s"),
        ("megabytes", "size of the store", "MB"),
        ("files", "files of the store", ""),
        ("reports", "size of the reports", "MB"),
    ):
        before, ratio = grown(name)
        bar = "<= 1.2" if name in ("seconds", "megabytes") and not quick else ""
        rows.append(
            Row(f"a year of nights: growth of {title}", ratio, "times", bar, "", f"first {before:.4g} {unit}; {note}")
        )
    return rows


def simulated(folder: Path, nights: int) -> Iterator[Night]:
    """The nights, one after the other, in a workspace below a folder."""
    from flows.benchmark import benchmark
    from flows.config import run_config
    from flows.evaluate import evaluate
    from flows.runs import prune
    from store import EmbeddingStore
    from store.maintenance.inventory import disk_bytes
    from tests.imported import import_embeddings

    common: dict[str, Any] = {
        "workspace": str(folder),
        "replicates": 100,
        "permutations": 1000,
        "device": "cpu",
        "sample": 12,
    }
    common |= {"protocols": ("t2i/all", "i2t/any"), "analyses": ("complexity",)}
    nightly = run_config({**common, "corpora": ("shapes",), "encoders": ("tiny-clip",)})
    partner = run_config({**common, "corpora": ("shapes",), "encoders": ("partner",)})
    for night in range(nights):
        if night % WEEK == 1:
            store = EmbeddingStore.open(nightly.store_uri)
            corpus = store.corpora().to_pylist()[0]
            for modality, n in (("images", corpus["n_images"]), ("captions", corpus["n_captions"])):
                vectors = np.random.default_rng(night).standard_normal((n, 64)).astype(np.float32)
                np.save(folder / f"{modality}.npy", vectors)
            import_embeddings(
                store,
                encoder="partner",
                corpus=corpus["fingerprint"],
                revision=str(night),
                images=folder / "images.npy",
                captions=folder / "captions.npy",
            )
            evaluate.fn(partner)
        begun = time.process_time()
        benchmark.fn(nightly)
        seconds = time.process_time() - begun
        if night % WEEK == WEEK - 1:
            prune.fn(nightly, keep=KEEP)
        place = folder / "store"
        n_files = sum(path.is_file() for path in place.rglob("*"))
        reports = disk_bytes(folder / "reports") / 1e6
        yield Night(night, seconds, disk_bytes(place) / 1e6, n_files, reports)
        if sys.stderr.isatty() or night % 30 == 0:
            sys.stderr.write(f"night {night}: {seconds:.1f} s, {disk_bytes(place) / 1e6:.1f} MB, {n_files} files\n")


def drawn(nights: list[Night]) -> str:
    """The chart as SVG: one panel per figure over the nights."""
    import altair as alt
    import vl_convert

    titles = {
        "seconds": "processor s per run",
        "megabytes": "store, MB",
        "files": "store, files",
        "reports": "reports, MB",
    }
    rows = [
        {"night": n.night, "figure": titles[k], "value": v}
        for n in nights[1:]
        for k, v in n._asdict().items()
        if k in titles
    ]
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(strokeWidth=1.2)
        .encode(x=alt.X("night:Q", title="night"), y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=True)))
        .properties(width=260, height=120)
        .facet(facet=alt.Facet("figure:N", title=None), columns=2)
        .resolve_scale(y="independent")
    )
    return str(vl_convert.vegalite_to_svg(json.loads(chart.to_json())))


if __name__ == "__main__":
    for row in run(quick="--quick" in sys.argv):
        print(f"{row.name:60s} {row.value:6.2f} {row.bar:8s} {row.note}")
