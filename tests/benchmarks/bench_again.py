"""What is asked for again: runs that change nothing, an encoder more, a newer metric, two encoders compared.

Every run is a process of its own, imports included. Ratios are of processor time, of runs made one after the other.
"""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from capim.store.upkeep.inventory import disk_bytes
from tests.benchmarks.commands import watched
from tests.benchmarks.own_process import command_of
from tests.benchmarks.rows import Row

CAPIM = [sys.executable, "-c", "import capim; capim.main()"]
SCENES, COCO = 200, 5_000  # of five captions each


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` takes three encoders and few queries, and no demo."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [] if quick else _demo(Path(folder) / "demo")
        rows += _encoders(Path(folder) / "encoders", 3 if quick else 9, 10 if quick else SCENES)
        return rows if quick else [*rows, _coco(Path(folder) / "coco"), _object_storage(Path(folder) / "suite.toml")]


def _demo(workspace: Path) -> list[Row]:
    demo = [*CAPIM, "demo", "--quiet", "--workspace", str(workspace)]
    folders = workspace, workspace / "store" / "runs.lance"
    first, before = watched(demo), [disk_bytes(folder) / 1000 for folder in folders]
    again, after = watched(demo), [disk_bytes(folder) / 1000 for folder in folders]
    seconds = f"the first run takes {first.processor:.3g} s of processor time, the second {again.processor:.3g} s"
    written, of_runs = (now - earlier for now, earlier in zip(after, before, strict=True))
    commits = f"{written:.1f} kB with them; four commits of {of_runs / 4:.1f} kB miss the bar before 0.4.0, <= 20"
    return [
        Row("demo, unchanged: share of the first run", again.processor / first.processor, "", "<= 0.05", note=seconds),
        Row("demo, unchanged", again.seconds, "s", "<= 3"),
        Row("demo, unchanged: written but for the start and end of runs", written - of_runs, "kB", "<= 1", "", commits),
    ]


def _encoders(place: Path, n: int, scenes: int) -> list[Row]:
    watched(command_of(make, place / "ten", 0, n + 1, scenes))
    watched(command_of(make, place / "nine", 0, n, scenes))
    at_once = watched(command_of(benchmarked, place / "ten"))
    nothing = watched(command_of(benchmarked, place / "ten"))
    metric = watched(command_of(benchmarked, place / "ten", newer="MRR"))
    watched(command_of(benchmarked, place / "nine"))
    watched(command_of(make, place / "nine", n, n + 1, scenes))
    one_more = watched(command_of(benchmarked, place / "nine"))
    shutil.rmtree(place / "nine" / "reports", ignore_errors=True)
    pair = ["--encoders", "encoder-0,encoder-1", "--protocols", "t2i/all", "--quiet"]
    compared = watched([*CAPIM, "compare", *pair, "--replicates", "2000", "--workspace", str(place / "ten")])
    of_all = f"of the {at_once.processor:.3g} s of processor time of all {n + 1} at once; {5 * scenes:,} queries"
    subject = f"{n} encoders, {5 * scenes:,} queries"
    return [
        Row(f"{subject}: a run that changes nothing", nothing.seconds, "s", "<= 3"),
        Row(f"one encoder added to {n}", one_more.processor / at_once.processor, "", "<= 0.15", note=of_all),
        Row(f"a newer metric, {n + 1} encoders", metric.processor / at_once.processor, "", note=of_all),
        Row(f"compare two encoders, {5 * scenes:,} queries", compared.seconds, "s", "<= 3", note="one protocol"),
    ]


def _coco(place: Path) -> Row:
    """Nine encoders of COCO's size, in which nothing changed."""
    watched(command_of(make, place, 0, 9, COCO))
    first, again = (watched(command_of(benchmarked, place)) for _ in range(2))
    note = f"the first run takes {first.processor:.3g} s of processor time, the second {again.processor:.3g} s"
    return Row(f"9 encoders, {5 * COCO:,} queries: a run that changes nothing", again.seconds, "s", "<= 5", note=note)


def _object_storage(suite: Path) -> Row:
    """The requests of a run that changes nothing, counted by the server."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication

    from tests.deployments.object_storage import WORKSPACE, bucket, run_at_once

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    suite.write_text(
        'encoders = ["tiny-clip", "tiny-clip-plain"]\nreplicates = 200\ndevice = "cpu"\n'
        '[[corpus]]\nname = "few"\nreader = "shapes"\nn_scenes = 40\n'
    )
    n_requests, answer = Counter[str](), DomainDispatcherApplication.__call__

    def counted(app: Any, *asked: Any) -> Any:
        n_requests["all"] += 1
        return answer(app, *asked)

    with bucket() as reach, patch.object(DomainDispatcherApplication, "__call__", counted):
        run_at_once([["run", str(suite), "--workspace", WORKSPACE, "--quiet"]], reach, seconds=600)
        note = f"moto; the first run makes {n_requests.pop('all'):,}"
        run_at_once([["run", str(suite), "--workspace", WORKSPACE, "--quiet"]], reach, seconds=600)
    return Row(
        "object storage, 2 encoders, 200 queries, unchanged: requests", n_requests["all"], "", "<= 160", note=note
    )


def make(workspace: Path, first: int, end: int, scenes: int) -> None:
    """A store with the embedding sets of encoders of these numbers, random vectors; others that it has stay."""
    from capim.tasks.corpora.readers.shapes import read_shapes
    from tests.random_store import SPECS, random_store

    specs = [replace(SPECS[0], name=f"encoder-{n}", checkpoint=f"me/{n}", dim=64 + n) for n in range(first, end)]
    random_store(workspace / "store", read_shapes(n_scenes=scenes), specs)


def benchmarked(workspace: Path, newer: str = "") -> None:
    """One run over all that is stored, with its report, without Prefect as `capim run` is without a server.

    ``newer``: by a newer version of this metric.
    """
    from capim.tasks.prefects import leave_prefect_out

    leave_prefect_out()
    from capim.flows.benchmark import benchmark
    from capim.flows.config import run_config
    from capim.flows.execution import start
    from capim.tasks.metrics import METRICS

    if newer:
        METRICS[newer] = replace(METRICS[newer], version="newer")
    start(benchmark, run_config({"workspace": str(workspace), "replicates": 2000, "device": "cpu"}))
