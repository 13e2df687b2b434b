"""The pages of `capim serve` on 100,000 made-up queries by nine encoders: seconds per page, and memory of the server.

A page is asked for by HTTP from a `capim serve` of its own; the first answer after the start is a row of its own, since
it reads what later ones keep.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil

from tests.benchmarks.large_store import make
from tests.benchmarks.own_process import REPOSITORY, alone
from tests.benchmarks.rows import Row
from tests.reports.large import MODELS

A, B = list(MODELS)[:2]
QUERIES = "/queries?corpus=coco-karpathy&protocol=t2i/all"
PAGES = {
    "grid": "/",
    "grid of two encoders": f"/?encoders={A},{B}",
    "queries": QUERIES,
    "queries, missed by one and found by another": f"{QUERIES}&wrong={A}&right={B}",
    "queries with a text": f"{QUERIES}&text=77",
    "queries by rank": f"{QUERIES}&of={A}&low=10&high=20&sort=rank",
    "queries by rank gap": f"{QUERIES}&wrong={A}&right={B}&sort=gap",
    "queries, page 1,500": f"{QUERIES}&page=1500",
    "search, more like this": f"/search?corpus=coco-karpathy&like=caption:5&encoders={A}",
    "runs": "/runs",
}
SLOW = {"search, more like this"}  # reads all vectors of the gallery: no bar


def run(quick: bool = False) -> list[Row]:
    """Seconds of each page, the second time, and the peak memory of the server; ``quick``: 2,000 queries."""
    n = 2000 if quick else 100_000
    with tempfile.TemporaryDirectory() as folder:
        alone(make, Path(folder) / "store", n)
        command = [sys.executable, "-m", "capim.flows.cli", "serve", "--workspace", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as server:
            try:
                assert server.stdout is not None
                return measured(server.stdout.readline().strip(), psutil.Process(server.pid), n)
            finally:
                server.terminate()


def measured(address: str, server: psutil.Process, n: int) -> list[Row]:
    """The rows of all pages of one server."""
    rows: list[Row] = []
    note = f"{n:,} queries × {len(MODELS)} encoders"
    split = urlsplit(address)
    peak = 0
    with httpx.Client(base_url=f"http://{split.netloc}", follow_redirects=True, timeout=120) as client:
        for name, page in PAGES.items():
            taken: list[float] = []
            for _ in range(3):
                started = time.perf_counter()
                answer = client.get(page if rows or taken else f"/?{split.query}")
                taken.append(time.perf_counter() - started)
                peak = max(peak, server.memory_info().rss)
                if answer.status_code != 200:
                    raise RuntimeError(f"{page}: {answer.status_code} {answer.text[-500:]}")
            bar = "" if name in SLOW else "<= 1"
            rows.append(Row(f"serve, {name}", sorted(taken)[1], "s", bar, note=f"{note}; first time {taken[0]:.2f} s"))
    return [*rows, Row("serve: peak memory", peak / 2**30, "GiB", "<= 1", note=f"{note}, all pages above")]
