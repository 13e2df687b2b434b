"""Where memory is limited, a report is drawn as ever, and a paper says what it needs."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from capim.reports.drawing import NO_CHARTS
from capim.tasks.corpora.readers.shapes import read_shapes
from tests.command import command
from tests.random_store import OTHER, SPECS, random_store

ROOT = Path(__file__).parents[2]
LIMIT = 8_000_000  # kilobytes: enough for Arrow and torch, too few for V8


@pytest.mark.slow  # processes of their own, under a limit
def test_where_memory_is_limited_a_report_is_whole_and_a_paper_says_what_it_needs(tmp_path: Path) -> None:
    random_store(tmp_path / "store", read_shapes(n_scenes=24), (SPECS[0], OTHER), signal=5.0)
    command("evaluate --replicates 100", tmp_path)

    def limited(*words: str) -> subprocess.CompletedProcess[str]:
        line = shlex.join([sys.executable, "-m", "capim", *words, "--workspace", str(tmp_path)])
        shell = ["bash", "-c", f"ulimit -v {LIMIT}; exec {line}"]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(shell, env=env, capture_output=True, text=True, check=False)

    made = limited("report")
    assert made.returncode == 0, made.stderr
    assert [*Path(made.stdout.strip()).parent.glob("figures/*.svg")]
    paper = limited("export", "paper", "--to", str(tmp_path / "paper"))
    assert paper.returncode == 1
    assert NO_CHARTS in " ".join(paper.stderr.split())
