"""A year of nightly runs in one workspace: its size, its files and the time of a run, as figures and as a chart.

Every night the whole pipeline runs and finds what it had. Every week the vectors of one encoder come in a new revision
and are evaluated, and `capim store prune --keep 30` runs, as the weekly deployment does. ``nights.svg`` beside this
file is the chart of the last full run.

A processor that others share is slower at some hours than at others. So every seventh night is followed by the same run
in a copy of the workspace as it was after the second night, and the growth of the time is the ratio of the two.
"""

from __future__ import annotations

import gc
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.benchmarks.rows import Row

NIGHTS, WEEK, KEEP = 365, 7, 30
A_YEAR = "a year of nights: growth of"
CHART = Path(__file__).with_name("nights.svg")


class Night(NamedTuple):
    """A workspace after a night.

    Attributes:
        night: From 0.
        seconds: Processor time of the run.
        young: Processor time of a run in the workspace as it was after the second night; None where none was made.
        megabytes: Size of the store.
        files: Files of the store.
        reports: Size of the reports in MB.
    """

    night: int
    seconds: float
    young: float | None
    megabytes: float
    files: int
    reports: float


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` takes ten nights and draws nothing."""
    with tempfile.TemporaryDirectory() as folder:
        nights = list(simulated(Path(folder), 10 if quick else NIGHTS))
    part = max(1, len(nights) // 12)
    first, last = nights[1 : 1 + part], nights[-part:]  # the first night encodes
    of = f"of {len(nights)} nights; prune --keep {KEEP} every week"
    if not quick:
        CHART.write_text(drawn(nights), encoding="utf-8")

    def medians(name: str) -> list[float]:
        return [float(np.median([getattr(night, name) for night in some])) for some in (first, last)]

    pairs = [night.seconds / night.young for night in nights if night.young][-max(1, part // 3) :]
    seconds = " and ".join(f"{value:.3g} s" for value in medians("seconds"))
    note = f"the same run in the workspace of the second night, in turns: median of the last {len(pairs)} pairs {of}; "
    note += f"nights alone, median of the first and last {part}: {seconds}"
    rows = [Row(f"{A_YEAR} processor time of a run", float(np.median(pairs)), "times", "<= 1.2", note=note)]
    for name, title, unit in (
        ("megabytes", "size of the store", "MB"),
        ("files", "files of the store", ""),
        ("reports", "size of the reports", "MB"),
    ):
        before, after = medians(name)
        note = f"first {before:.4g} {unit}; median of the last {part} over the first {part}, {of}"
        bar = "<= 1.2" if name == "megabytes" else ""
        rows.append(Row(f"{A_YEAR} {title}", after / before, "times", bar, note=note))
    return [row._replace(bar="") for row in rows] if quick else rows


def simulated(parent: Path, nights: int) -> Iterator[Night]:
    """The nights, one after the other, in a workspace of a folder."""
    from capim.flows.benchmark import benchmark, evaluate
    from capim.flows.config import run_config
    from capim.flows.execution import prune
    from capim.store import EmbeddingStore
    from capim.store.inventory import disk_bytes
    from tests.imported import import_embeddings

    def night_run(workspace: Path) -> float:
        config = run_config({**common, "workspace": str(workspace), "corpora": ("shapes",), "encoders": ("tiny-clip",)})
        gc.collect()  # else a night now and then pays for the objects of all of them
        begun = time.process_time()
        benchmark.fn(config)
        return time.process_time() - begun

    folder, newborn, copy = (parent / name for name in ("year", "first", "copy"))
    common: dict[str, Any] = {"replicates": 100, "permutations": 1000, "device": "cpu", "sample": 12}
    common |= {"protocols": ("t2i/all", "i2t/any"), "analyses": ("complexity",)}
    partner = run_config({**common, "workspace": str(folder), "corpora": ("shapes",), "encoders": ("partner",)})
    for night in range(nights):
        if night % WEEK == 1:
            store = EmbeddingStore.open(partner.store_uri)
            corpus = store.corpora().to_pylist()[0]
            for modality, n in (("images", corpus["n_images"]), ("captions", corpus["n_captions"])):
                vectors = np.random.default_rng(night).standard_normal((n, 64)).astype(np.float32)
                np.save(folder / f"{modality}.npy", vectors)
            files = {name: folder / f"{name}.npy" for name in ("images", "captions")}
            whose = {"encoder": "partner", "corpus": corpus["fingerprint"], "revision": str(night)}
            import_embeddings(store, **whose, **files)
            evaluate.fn(partner)
        seconds, young = night_run(folder), None
        if night == 1:  # with both encoders
            shutil.copytree(folder, newborn)
        elif night and night % WEEK == 0:
            shutil.copytree(newborn, copy)
            young = night_run(copy)
            shutil.rmtree(copy)
        if night % WEEK == WEEK - 1:
            prune.fn(partner, keep=KEEP)
        place = folder / "store"
        n_files = sum(path.is_file() for path in place.rglob("*"))
        reports = disk_bytes(folder / "reports") / 1e6
        yield Night(night, seconds, young, disk_bytes(place) / 1e6, n_files, reports)
        if sys.stderr.isatty() or night % 30 == 0:
            sys.stderr.write(f"night {night}: {seconds:.1f} s, {disk_bytes(place) / 1e6:.1f} MB, {n_files} files\n")


def drawn(nights: list[Night]) -> str:
    """The chart as SVG: one panel per figure over the nights."""
    import altair as alt
    import vl_convert

    titles = {
        "seconds": "processor s per run",
        "young": "the same, workspace of night 2",
        "megabytes": "store, MB",
        "files": "store, files",
        "reports": "reports, MB",
    }
    rows = [
        {"night": night.night, "figure": title, "value": value}
        for night in nights[1:]
        for name, title in titles.items()
        if (value := getattr(night, name)) is not None
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
