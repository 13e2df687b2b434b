"""`capim store` and the commands that only read: nothing is dropped without --yes, and no store is made by a typo."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from capim.flows.cli import main
from capim.flows.config import run_config
from capim.flows.execution import prune
from capim.store import EmbeddingStore, EncoderSpec
from capim.tasks.results.summary import result_rows
from capim.tasks.runtime import results

ROOT = Path(__file__).resolve().parents[2]
PAUSED_RUN = """
import pathlib, sys, time
from capim.flows.cli import main
from capim.tasks.runtime import results

place, rows = pathlib.Path(sys.argv[1]), results.result_rows

def after_a_pause(*args, **kwargs):
    (place / "paused").touch()
    while not (place / "go").exists():
        time.sleep(0.02)
    return rows(*args, **kwargs)

results.result_rows = after_a_pause
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("command", [["report"], ["compare"], ["evaluate"], ["results"], ["store", "info"]])
def test_a_command_that_reads_makes_no_store(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--workspace", str(tmp_path / "typo")]) == 2
    assert "there is no store at" in capsys.readouterr().err
    assert not (tmp_path / "typo").exists()


def test_drop_lists_first_and_drops_with_yes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = EmbeddingStore.open(tmp_path / "store", create=True)
    store.write_encoder(EncoderSpec(name="old", adapter="a", checkpoint="c", revision="r1", dim=4))
    drop = ["store", "drop", "--encoder", "old", "--workspace", str(tmp_path)]
    assert main(drop) == 0
    assert "nothing was changed: add --yes" in capsys.readouterr().err
    assert store.encoder("old").dim == 4
    assert main([*drop, "--yes"]) == 0
    assert "dropped" in capsys.readouterr().err
    assert store.encoders().num_rows == 0


def test_after_a_drop_everything_else_goes_on(
    small_demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results are kept, and nothing that reads them needs the vectors or the corpus again."""
    workspace = tmp_path / "workspace"
    shutil.copytree(small_demo / "store", workspace / "store")
    quick = ["--quiet", "--replicates", "100", "--permutations", "1000"]
    some = ["compare", *quick, "--corpora", "shapes-sample12"]
    rest = ["results"], ["compare", *quick, "--analyses", "complexity"], ["report", "--quiet"]
    export = ["export", "results", "--to", str(tmp_path / "results.csv")]
    for dropped, commands in (
        (["--encoder", "tiny-clip"], (some, *rest)),
        (["--corpus", "shapes-winoground-sample12"], (*rest, export)),
    ):
        for command in (["store", "drop", *dropped, "--yes"], *commands):
            assert main([*command, "--workspace", str(workspace)]) == 0, (command, capsys.readouterr().err)
        page = max((workspace / "reports").glob("*/report.html")).read_text("utf-8")
        assert ("on corpus shapes-winoground-sample12, which was dropped" in page) == ("--corpus" in dropped)


@pytest.fixture
def embedded(tmp_path: Path) -> Path:
    """A workspace with the embeddings of one encoder on a small corpus, and nothing that was computed from them."""
    words = ["embed", "--corpora", "shapes", "--sample", "12", "--encoders", "tiny-clip", "--device", "cpu", "--quiet"]
    assert main([*words, "--workspace", str(tmp_path / "w")]) == 0
    return tmp_path / "w"


def outcomes_are_complete(workspace: Path) -> bool:
    """Whether every result of one protocol has the outcome of each of its queries."""
    store = EmbeddingStore.open(workspace / "store")
    n_outcomes = store.counts("outcomes", "evaluation")
    recalls = [row for row in store.rows("results").to_pylist() if row["metric"] == "R@1"]
    return len(recalls) > 1 and all(n_outcomes.get(row["evaluation"], 0) == row["n_queries"] for row in recalls)


def test_prune_leaves_the_outcomes_of_a_step_that_is_at_work(embedded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It removed what had no results yet, and the step ended with results without outcomes."""
    config, removed = run_config({"workspace": str(embedded)}), []

    def after_a_prune(*args: Any) -> pa.Table:
        removed.append(prune.fn(config, keep=1).rows.get("outcomes", 0))
        return result_rows(*args)

    monkeypatch.setattr(results, "result_rows", after_a_prune)
    assert main(["evaluate", "--replicates", "100", "--quiet", "--workspace", str(embedded)]) == 0
    assert removed
    assert not any(removed)
    assert outcomes_are_complete(embedded)


def test_prune_leaves_the_outcomes_of_a_run_in_another_process(
    embedded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate = ["evaluate", "--replicates", "100", "--quiet", "--workspace", str(embedded)]
    command = [sys.executable, "-c", PAUSED_RUN, str(tmp_path), *evaluate]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as run:
        while not (tmp_path / "paused").exists() and run.poll() is None:
            time.sleep(0.02)
        assert main(["store", "prune", "--keep", "1", "--yes", "--workspace", str(embedded)]) == 0
        (tmp_path / "go").touch()
        _, errors = run.communicate(timeout=120)
    assert run.returncode == 0, errors
    assert outcomes_are_complete(embedded)
    assert "-evaluate-" in capsys.readouterr().err, "it says which run is not over"
    assert main(["store", "prune", "--keep", "1", "--yes", "--workspace", str(embedded)]) == 0
    assert "is running" not in capsys.readouterr().err
    assert outcomes_are_complete(embedded)


@pytest.fixture
def no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No command waits for another process to write what is missing."""
    monkeypatch.setattr("capim.store.digests._PAUSES", (0.0,))


@pytest.mark.usefixtures("no_other_process")
@pytest.mark.parametrize("bytes_changed", [False, True])
def test_a_table_without_its_record_stops_who_reads_figures_until_it_is_accepted(
    small_demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, bytes_changed: bool
) -> None:
    """`results` printed .9877, and `store verify` said that nothing was damaged."""
    shutil.copytree(small_demo / "store", tmp_path / "store")
    place = ["--workspace", str(tmp_path)]
    shutil.rmtree(tmp_path / "store" / "digests" / "results")
    if bytes_changed:
        value = EmbeddingStore.open(small_demo / "store").rows("results", metric="R@1")["value"][0].as_py()
        for file in (tmp_path / "store" / "results.lance" / "data").iterdir():
            file.write_bytes(file.read_bytes().replace(struct.pack("<d", value), struct.pack("<d", 0.9877)))
    missing = f"{tmp_path}/store/digests/results is missing"
    for command in (["results"], ["evaluate", "--quiet"], ["compare", "--quiet"], ["report", "--quiet"], ["results"]):
        assert main([*command, *place]) == 1
        out, err = capsys.readouterr()
        assert missing in err
        assert "0.9877" not in out
    assert main(["store", "verify", *place]) == 1
    assert missing in capsys.readouterr().out.replace("\n", "")
    assert main(["store", "repair", "--all", *place]) == 1
    assert "capim store repair results --accept" in capsys.readouterr().err
    assert main(["store", "repair", "results", "--accept", *place]) == 0
    assert "recorded as right" in capsys.readouterr().err
    assert main(["store", "verify", *place]) == 0
    assert main(["results", *place]) == 0


@pytest.mark.usefixtures("no_other_process")
@pytest.mark.parametrize("table", ["results", "outcomes", "sets", "formats", "corpora"])
def test_a_table_that_was_removed_or_cannot_be_opened_is_damage(
    small_demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], table: str
) -> None:
    """Of a removed table nothing was checked, so that nothing was damaged."""
    for number, part in enumerate(("", "_versions")):
        workspace = tmp_path / str(number)
        shutil.copytree(small_demo / "store", workspace / "store")
        shutil.rmtree(workspace / "store" / f"{table}.lance" / part)
        capsys.readouterr()
        assert main(["store", "verify", "--format", "json", "--workspace", str(workspace)]) == 1
        found = {row["what"]: row for row in json.loads(capsys.readouterr().out)}
        assert found[table]["state"] == "damaged"
        assert "is missing" in found[table]["detail"]
        assert main(["store", "repair", "--all", "--workspace", str(workspace)]) == 0
        assert main(["store", "verify", "--workspace", str(workspace)]) == 0
