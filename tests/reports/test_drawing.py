"""Where memory is limited, a report comes without charts, and says so."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from capim.reports.drawing import NO_CHARTS
from capim.store import EmbeddingStore
from capim.tasks.corpora.readers.shapes import read_shapes
from tests.command import command
from tests.random_store import OTHER, SPECS, random_store

ROOT = Path(__file__).parents[2]
LIMIT = 8_000_000  # kilobytes: enough for Arrow and torch, too few for V8


@pytest.mark.slow  # a process of its own, under a limit
def test_a_report_that_may_not_reserve_memory_has_no_charts_and_the_record_of_its_run_says_so(tmp_path: Path) -> None:
    random_store(tmp_path / "store", read_shapes(n_scenes=24), (SPECS[0], OTHER), signal=5.0)
    command("evaluate --replicates 100", tmp_path)
    command("analyse --analyses complexity --replicates 100", tmp_path)
    words = shlex.join([sys.executable, "-m", "capim", "report", "--workspace", str(tmp_path)])
    done = subprocess.run(
        ["bash", "-c", f"ulimit -v {LIMIT}; exec {words}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    page = Path(done.stdout.strip())
    assert NO_CHARTS in page.read_text()
    assert not [*page.parent.glob("figures/*.svg")]
    rows = EmbeddingStore.open(tmp_path / "store").rows("runs").sort_by("started").to_pylist()
    assert (rows[-1]["state"], rows[-1]["message"]) == ("completed", f"the report is {NO_CHARTS}")
    whole = command("report", tmp_path).page  # the page without charts does not stand for it
    assert NO_CHARTS not in whole.read_text()
    assert [*whole.parent.glob("figures/*.svg")]
