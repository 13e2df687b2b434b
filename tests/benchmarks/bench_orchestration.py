"""What orchestration costs: the pipeline as ``capim run`` calls it, compared with the same functions called one by one.

Both run in this process, in turns, each on a new workspace. So does the suite of the demo, as plain functions and as
runs on a warm Prefect server with the settings of ``deployments/server.env``; what the client asks of the server is
counted.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import numpy as np
import psutil
import pytest
from numpy.typing import NDArray
from prefect import task
from prefect.settings import PREFECT_API_URL, temporary_settings

from capim.flows.benchmark import benchmark
from capim.flows.config import RunConfig
from capim.flows.embed import check_request, encode_settings
from capim.flows.execution import call, start
from capim.flows.steps import demo_configs
from capim.tasks.compare import compare_corpus
from capim.tasks.embed import embed_corpora, register_corpus
from capim.tasks.evaluate import find_evaluations, find_sets, score
from capim.tasks.report import diagnose_corpus, publish_report
from capim.tasks.runtime.encoding import EncodeWork
from capim.tasks.runtime.open_corpora import OpenCorpora
from tests.benchmarks.commands import as_a_user
from tests.benchmarks.rows import Row, timed
from tests.deployments.conftest import installation_at


def run(quick: bool = False) -> list[Row]:
    """Seconds that plain mode and a server add to a run, and the share of the measured run that this is."""
    os.environ.pop("PREFECT_API_URL", None)
    turns = 1 if quick else 3
    bare, plain = [], []
    with tempfile.TemporaryDirectory() as folder:
        _timed_bare(Path(folder) / "warm")
        for turn in range(turns):
            bare.append(_timed_bare(Path(folder) / f"bare-{turn}"))
            plain.append(_timed_plain([_config(Path(folder) / f"plain-{turn}")]))
    added_by_server = _with_server(quick)
    without = statistics.median(bare)
    added = statistics.median(p - b for p, b in zip(plain, bare, strict=True))
    imports, prefect = (statistics.median(_import_seconds(code) for _ in range(turns)) for code in (_PLAIN, _PREFECT))
    calls = 100 if quick else 1000
    measured = f"a run of {without:.1f} s without orchestration; median of {turns} turns"
    peer = "the same functions called one by one"
    return [
        Row("time added to a run by plain mode and its imports", added + imports, "s", "", peer, measured),
        Row("share of the run added by plain mode and its imports", (added + imports) / without, "", "<= 0.10", peer,
            f"{added:+.2f} s for the calls, {imports:.2f} s for imports in a process; Prefect, which a command that "
            f"no server knows does not import, would take {prefect:.2f} s"),
        Row("time of one task call, plain mode", 1e6 * _call_seconds(calls), "µs", "", "", f"mean of {calls} calls"),
        *added_by_server,
    ]  # fmt: skip


def _with_server(quick: bool) -> list[Row]:
    """What a server adds to the demo's suite: seconds, and what of them is spent on requests and on waits for it."""
    turns = 1 if quick else 2
    plain, served = [], []
    asked = _Asked()
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder) / "prefect") as (api, server):

        def configs(name: str) -> list[RunConfig]:
            place = Path(folder) / name
            return [_config(place)] if quick or name == "warm" else demo_configs(str(place))[0]

        with temporary_settings({PREFECT_API_URL: api}):
            _timed_plain(configs("warm"))

        def taken(name: str) -> NDArray[np.float64]:
            before = _clocks(server)
            _timed_plain(configs(name))
            return _clocks(server) - before

        for turn in range(turns):
            plain.append(taken(f"plain-{turn}"))
            with temporary_settings({PREFECT_API_URL: api}), asked.counting():
                served.append(taken(f"served-{turn}"))
    added = np.median(np.subtract(served, plain), axis=0).tolist()
    suite = "one small run" if quick else "the demo's suite"
    shown = ", ".join(f"{p[0]:.1f} and {s[0]:.1f} s" for p, s in zip(plain, served, strict=True))
    processor = f"processor time added: {added[1]:.1f} s in the run's process, {added[2]:.1f} s in the server"
    own, others = (sum(asked.seconds[where]) / turns for where in ("run", "others"))
    busy = f"{asked.n_busy / turns:.1f} answered 503, after which the client waits {asked.waited / turns:.1f} s"
    return [
        Row("time added to the demo's suite by a Prefect server", added[0], "s", "<= 5", "plain mode",
            f"{suite}, plain and served: {shown}; median of {turns} turns; {processor}"),
        Row("share of the demo's suite added by a Prefect server", added[0] / float(np.median(plain, axis=0)[0]), ""),
        Row("requests of the demo's suite to a Prefect server", sum(map(len, asked.seconds.values())) / turns, "", "",
            "", f"{busy}; requests of the run's thread {own:.1f} s, of others (logs, progress, events) {others:.1f} s"),
    ]  # fmt: skip


def _clocks(server: psutil.Process) -> NDArray[np.float64]:
    """Seconds by the wall, and of the processor by this process and by the server, each with its children."""
    own, theirs = (
        sum(sum(one.cpu_times()[:4]) for one in (process, *process.children(recursive=True)))
        for process in (psutil.Process(), server)
    )
    return np.array([time.perf_counter(), own - theirs, theirs])  # the server is a child of this process


class _Asked:
    """Requests of Prefect's clients in this process: their seconds by thread, and the waits after a busy server."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {"run": [], "others": []}
        self.n_busy, self.waited = 0, 0.0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count while the block runs."""
        send, send_async, sleep = httpx.Client.send, httpx.AsyncClient.send, anyio.sleep

        def note(begun: float, response: httpx.Response) -> httpx.Response:
            where = "run" if threading.current_thread() is threading.main_thread() else "others"
            self.seconds[where].append(time.perf_counter() - begun)
            self.n_busy += response.status_code == httpx.codes.SERVICE_UNAVAILABLE
            return response

        def sending(client: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
            begun = time.perf_counter()
            return note(begun, send(client, request, **options))

        async def sending_async(client: httpx.AsyncClient, request: httpx.Request, **options: Any) -> httpx.Response:
            begun = time.perf_counter()
            return note(begun, await send_async(client, request, **options))

        async def sleeping(seconds: float) -> None:
            self.waited += seconds
            await sleep(seconds)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(httpx.Client, "send", sending)
            patched.setattr(httpx.AsyncClient, "send", sending_async)
            patched.setattr(anyio, "sleep", sleeping)
            yield


def _config(workspace: Path) -> RunConfig:
    return RunConfig(workspace=str(workspace), corpora=("shapes",), encoders=("tiny-clip",), device="cpu")


def _timed_plain(configs: Sequence[RunConfig]) -> float:
    def runs() -> None:
        for config in configs:
            start(benchmark, config, report="run" if config is configs[-1] else "none")

    return timed(runs)


@contextmanager
def _server(home: Path) -> Iterator[tuple[str, psutil.Process]]:
    """A Prefect server for this benchmark; gives the address of its API and its process."""
    home.mkdir()
    installation = installation_at(home, home)
    installation.start_server()
    assert installation.server is not None
    try:
        yield installation.api, psutil.Process(installation.server.pid)
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


_PREFECT = "import prefect"
_PLAIN = """
from capim.tasks.runtime import prefects
prefects.leave_prefect_out()
assert [getattr(prefects, name) for name in ("flow", "Task", "FlowRunContext")] and "prefect" not in sys.modules
"""


def _import_seconds(code: str) -> float:
    clocked = f"import capim, sys, time\nbegun = time.perf_counter()\n{code}\nprint(time.perf_counter() - begun)"
    words = [sys.executable, "-c", clocked]
    return float(subprocess.run(words, check=True, capture_output=True, text=True, env=as_a_user()).stdout)


def _call_seconds(calls: int) -> float:
    @task
    def nothing() -> None:
        """A step that costs nothing itself."""

    return timed(lambda: [call(nothing) for _ in range(calls)]) / calls
