"""The machine of a run: its system, cores, memory and GPUs are stored and stand in the report's provenance."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import pytest

from capim.reports.elements.page import Table
from capim.reports.rows.reading import read_report_data
from capim.reports.sections import provenance
from capim.store import EmbeddingStore
from capim.store.schema import Run
from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.references import this_machine
from tests.command import command
from tests.random_store import SPECS, random_store

DRIVER = "#!/bin/sh\nprintf 'NVIDIA H200, 143771 MiB, 570.86.15\\nNVIDIA H200, 143771 MiB, 570.86.15\\n'\n"


@pytest.mark.parametrize(
    ("script", "gpu"), [(DRIVER, "2 x NVIDIA H200, 143771 MiB, driver 570.86.15"), ("#!/bin/sh\nexit 9\n", None)]
)
def test_a_run_stores_its_machine_and_the_report_shows_it(
    script: str, gpu: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("capim.flows.execution.this_machine", this_machine.__wrapped__)
    random_store(tmp_path / "store", read_shapes(n_scenes=6), SPECS[:1])
    command("evaluate --replicates 100 --quiet --device cpu --protocols t2i/all", tmp_path)

    store = EmbeddingStore.open(tmp_path / "store")
    (run,) = store.all(Run)
    found = json.loads(run.machine or "")
    assert (found["system"], found.get("GPU")) == (platform.platform(), gpu)
    assert int(found["cores"]) >= 1
    assert found["memory"].endswith(" GiB")
    tables = provenance.section(read_report_data(store)).blocks
    (table,) = [block for block in tables if isinstance(block, Table) and block.id == "versions"]
    shown = {name.text: value.text for name, value in table.rows}
    assert {name: shown.get(name) for name in ("system", "cores", "memory", "GPU")} == {"GPU": None} | found
