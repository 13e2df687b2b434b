"""The undisturbed workspaces that faults begin from and are held against."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.fault import expect
from tests.faults.process import Capim, Failed

SUITE = """
name = "faults"
encoders = ["tiny-clip", "tiny-colpali"]
replicates = 200
batch_size = 8
device = "cpu"
[[corpus]]
name = "few"
reader = "shapes"
n_scenes = 10
[[corpus]]
name = "quads"
reader = "shapes-winoground"
n_quadruples = 6
"""
CORPORA = ("few", "quads")

Figures = dict[tuple[str, str, str, str], dict[str, Any]]


@dataclass(frozen=True)
class Ground:
    """Workspaces ``embedded`` and ``whole`` after ``capim embed`` and ``capim run``, and the figures of the latter."""

    folder: Path
    figures: Figures

    @property
    def suite(self) -> Path:
        """The suite file of all runs."""
        return self.folder / "suite.toml"

    def refuse_difference(self, workspace: str | Path, capim: Capim) -> None:
        """Run the suite again; then the store is clean and every figure is the undisturbed run's."""
        capim("run", str(self.suite), "--workspace", str(workspace), "--quiet").must(0)
        refuse_damage(capim, workspace)
        refuse_other_figures(self.figures, figures(capim, workspace))


def prepare(folder: Path) -> Ground:
    """The ground in this folder."""
    capim = Capim(folder / "said")
    (folder / "suite.toml").write_text(SUITE)
    capim("embed", str(folder / "suite.toml"), "--workspace", str(folder / "embedded"), "--quiet").must(0)
    shutil.copytree(folder / "embedded", folder / "whole")
    capim("run", str(folder / "suite.toml"), "--workspace", str(folder / "whole"), "--quiet").must(0)
    refuse_damage(capim, folder / "whole")
    return Ground(folder, figures(capim, folder / "whole"))


def refuse_damage(capim: Capim, workspace: str | Path) -> None:
    """``capim store verify`` finds all sound."""
    done = capim("store", "verify", "--workspace", str(workspace), "--format", "json").must(0, 1)
    wrong = [f for f in json.loads(done.out) if f["state"] != "sound"]
    expect(not wrong and done.code == 0, f"the store is not clean: {wrong}")


def figures(capim: Capim, workspace: str | Path) -> Figures:
    """All rows of ``capim results`` of the suite's corpora, without which run made them and when."""
    words = ("results", "--workspace", str(workspace), "--format", "json", "--corpus", ",".join(CORPORA))
    rows = json.loads(capim(*words).must(0).out)
    found = {(row["encoder"], row["corpus"], row["protocol"], row["metric"]): row for row in rows}
    expect(len(found) == len(rows), f"{len(rows)} rows of results of which only {len(found)} are different")
    return {key: {k: v for k, v in row.items() if k not in ("run", "created")} for key, row in found.items()}


def refuse_other_figures(expected: Figures, found: Figures) -> None:
    """The same rows, equal to the last digit in value and interval and all else but run and time."""
    missing, more = expected.keys() - found.keys(), found.keys() - expected.keys()
    expect(not missing and not more, f"results missing: {sorted(missing)[:3]}, results too many: {sorted(more)[:3]}")
    other = [(key, expected[key], found[key]) for key in expected if expected[key] != found[key]]
    for key, before, after in other:
        columns = {c: (before[c], after[c]) for c in before if before[c] != after[c]}
        raise Failed(f"{len(other)} of {len(expected)} rows differ, first {key}: {columns}")
