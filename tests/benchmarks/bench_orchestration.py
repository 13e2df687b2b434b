"""What orchestration costs: the pipeline as ``capim run`` calls it, compared with the same functions called one by one.

Both run in this process, in turns, each on a new workspace; so does the pipeline as runs on a Prefect server.
Run alone: ``python -m tests.benchmarks.bench_orchestration``.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.benchmark import benchmark
from flows.config import RunConfig
from flows.embed import encode_settings
from flows.execution import call, start
from flows.request import check_request
from tasks.compare import compare_corpus
from tasks.diagnose import diagnose_corpus
from tasks.discover import find_evaluations, find_sets
from tasks.embed import embed_corpora
from tasks.publish import publish_report
from tasks.register import register_corpus
from tasks.runtime.open_corpora import OpenCorpora
from tasks.runtime.shards import EncodeWork
from tasks.score import score
from tests.benchmarks.rows import Row
from tests.deployments.conftest import installation_at


def run(quick: bool = False) -> list[Row]:
    """Seconds that plain mode and a server add to a run, and the share of the measured run that this is."""
    os.environ.pop("PREFECT_API_URL", None)
    turns = 1 if quick else 3
    bare, plain, served = [], [], []
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder) / "prefect") as api:
        _timed_bare(Path(folder) / "warm")
        _timed_with_server(Path(folder) / "warm-served", api)
        for turn in range(turns):
            bare.append(_timed_bare(Path(folder) / f"bare-{turn}"))
            plain.append(_timed_plain(Path(folder) / f"plain-{turn}"))
            served.append(_timed_with_server(Path(folder) / f"served-{turn}", api))
    without = statistics.median(bare)
    added = statistics.median(p - b for p, b in zip(plain, bare, strict=True))
    by_server = statistics.median(s - p for s, p in zip(served, plain, strict=True))
    imports = statistics.median(_import_seconds() for _ in range(turns))
    calls = 100 if quick else 1000
    measured = f"a run of {without:.1f} s without orchestration; median of {turns} turns"
    peer = "the same functions called one by one"
    return [
        Row("time added to a run by plain mode and the import of Prefect", added + imports, "s", "", peer, measured),
        Row("share of the run added by plain mode and the import of Prefect", (added + imports) / without, "",
            "<= 0.10", peer, f"{added:+.2f} s for the calls, {imports:.2f} s to import Prefect in a new process"),
        Row("time of one task call, plain mode", 1e6 * _call_seconds(calls), "µs", "", "", f"mean of {calls} calls"),
        Row("time added to a run by a Prefect server", by_server, "s", "", "plain mode", f"median of {turns} turns"),
        Row("share of the run added by a Prefect server", by_server / statistics.median(plain), ""),
    ]  # fmt: skip


def _config(workspace: Path) -> RunConfig:
    return RunConfig(workspace=str(workspace), corpora=("shapes",), encoders=("tiny-clip",), device="cpu")


def _timed_plain(workspace: Path) -> float:
    begun = time.perf_counter()
    start(benchmark, _config(workspace))
    return time.perf_counter() - begun


def _timed_with_server(workspace: Path, api: str) -> float:
    with temporary_settings({PREFECT_API_URL: api}):
        return _timed_plain(workspace)


@contextmanager
def _server(home: Path) -> Iterator[str]:
    """A Prefect server for this benchmark; gives the address of its API."""
    home.mkdir()
    installation = installation_at(home, home)
    installation.start_server()
    try:
        yield installation.api
    finally:
        installation.stop_server()


def _timed_bare(workspace: Path) -> float:
    config = _config(workspace)
    uri = config.store_uri
    begun = time.perf_counter()
    opened = OpenCorpora()
    specs = check_request(config, opened).encoders
    corpora = tuple(register_corpus.fn(what, opened, store_uri=uri, sample=None, seed=0) for what in config.corpora)
    for spec in specs:
        settings = encode_settings(config, spec)
        embed_corpora.fn(
            EncodeWork(spec=spec, corpora=corpora, opened=opened, store_uri=uri, settings=settings, run="bare")
        )
    statistic: dict[str, Any] = {"store_uri": uri, "resampling": config.resampling, "run": "bare"}
    for pair in find_sets.fn(uri, corpora=config.corpora, encoders=config.encoders):
        score.fn(pair, protocols=(), device="cpu", **statistic)
    evaluations = find_evaluations.fn(uri)
    compare_corpus.fn(evaluations, protocols=sorted(evaluations[0].evaluations), **statistic)
    diagnose_corpus.fn(evaluations, **statistic)
    publish_report.fn(store_uri=uri, reports_uri=config.reports_uri, run="bare")
    return time.perf_counter() - begun


def _import_seconds() -> float:
    words = [
        sys.executable,
        "-c",
        "import time; b = time.perf_counter(); import prefect; print(time.perf_counter() - b)",
    ]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def _call_seconds(calls: int) -> float:
    from prefect import task

    step = task(_nothing)
    begun = time.perf_counter()
    for _ in range(calls):
        call(step)
    return (time.perf_counter() - begun) / calls


def _nothing() -> None:
    """A step that costs nothing itself."""


if __name__ == "__main__":
    for row in run(quick="--quick" in sys.argv):
        print(row)
