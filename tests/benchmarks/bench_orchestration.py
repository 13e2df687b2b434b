"""What a Prefect server adds to a run: the demo's suite as plain functions, and as runs on a warm server.

Both run in this process, in turns, each on a new workspace; the server has the settings of ``deployments/server.env``.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

from prefect.settings import PREFECT_API_URL, temporary_settings

from capim.flows.benchmark import benchmark
from capim.flows.config import RunConfig
from capim.flows.execution import start
from capim.flows.steps import demo_configs
from tests.benchmarks.rows import Row, timed
from tests.deployments.conftest import installation_at


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` has one turn of a small run."""
    os.environ.pop("PREFECT_API_URL", None)
    plain, served = [], []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "prefect"
        home.mkdir()
        installation = installation_at(home, home)
        installation.start_server()
        try:
            with temporary_settings({PREFECT_API_URL: installation.api}):
                _seconds(Path(folder) / "warm", small=True)
            for turn in range(1 if quick else 2):
                plain.append(_seconds(Path(folder) / f"plain-{turn}", small=quick))
                with temporary_settings({PREFECT_API_URL: installation.api}):
                    served.append(_seconds(Path(folder) / f"served-{turn}", small=quick))
        finally:
            installation.stop_server()
    added = statistics.median(one - other for one, other in zip(served, plain, strict=True))
    shown = ", ".join(f"{one:.1f} and {other:.1f} s" for one, other in zip(plain, served, strict=True))
    note = f"{'one small run' if quick else 'the demo'}, plain and served: {shown}; median of {len(plain)} turns"
    return [
        Row("time added to the demo's suite by a Prefect server", added, "s", "<= 5", "plain mode", note),
        Row("share of the demo's suite added by a Prefect server", added / statistics.median(plain), ""),
    ]


def _seconds(workspace: Path, *, small: bool) -> float:
    """Of the demo's suite, or of a small run, in a new workspace."""
    little = RunConfig(workspace=str(workspace), corpora=("shapes",), encoders=("tiny-clip",), device="cpu")
    configs = [little] if small else demo_configs(str(workspace))[0]

    def runs() -> None:
        for config in configs:
            start(benchmark, config, report="run" if config is configs[-1] else "none")

    return timed(runs)
