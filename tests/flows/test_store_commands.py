"""`capim store`: what goes on after a drop, a prune during a step, and damage that the commands name."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from capim.store import EmbeddingStore
from capim.store.schema import Result
from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.results import figures
from capim.tasks.results.summary import result_rows
from tests.command import command
from tests.flows.conftest import Made
from tests.random_store import random_store
from tests.reports.pages import readable

pytestmark = pytest.mark.slow  # whole suites of commands

EVALUATE = "evaluate --quiet --replicates 100"


def test_after_a_drop_everything_else_goes_on(own_demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are kept, and nothing that reads them needs the vectors or the corpus again."""
    monkeypatch.setattr("capim.reports.write.figure_files", lambda _: {})
    few = "--quiet --replicates 100 --permutations 1000"
    compare = f"compare {few}"
    rest = ["results", compare, f"analyse --analyses errors {few}", "report --quiet"]
    for dropped, commands in (
        ("--encoder tiny-clip", [f"{compare} --corpora shapes-sample12", *rest]),
        ("--corpus shapes-winoground-sample12", [*rest, f"export results --to {tmp_path}/results.csv"]),
    ):
        for words in (f"store drop {dropped} --yes", *commands):
            command(words, own_demo)
        page = readable(max((own_demo / "reports").glob("*/report.html")).read_text("utf-8"))
        told = "on corpus shapes-winoground-sample12, which was dropped" in page
        assert told == dropped.startswith("--corpus")


@pytest.fixture
def embedded(tmp_path: Path) -> Path:
    """A workspace with the embeddings of one encoder on a small corpus, and nothing that was computed from them."""
    command("embed --corpora shapes --sample 12 --encoders tiny-clip --device cpu --quiet", tmp_path / "w")
    return tmp_path / "w"


def outcomes_are_complete(workspace: Path) -> bool:
    """Whether every result of one protocol has the outcome of each of its queries."""
    store = EmbeddingStore.open(workspace / "store")
    n_outcomes = store.counts("outcomes", "evaluation")
    recalls = [row for row in store.all(Result) if row.metric == "R@1"]
    return len(recalls) > 1 and all(n_outcomes.get(row.evaluation, 0) == row.n_queries for row in recalls)


def test_prune_leaves_the_outcomes_of_a_step_that_is_at_work(embedded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It removed what had no results yet, and the step ended with results without outcomes."""
    said = []

    def after_a_prune(*args: Any) -> list[Result]:
        said.append(command("store prune --keep 1 --yes", embedded).err)
        return result_rows(*args)

    monkeypatch.setattr(figures, "result_rows", after_a_prune)
    command("evaluate --replicates 100 --quiet", embedded)
    assert said
    assert all("-evaluate-" in pruned and "is running" in pruned for pruned in said), "it says which run is not over"
    assert outcomes_are_complete(embedded)
    assert "is running" not in command("store prune --keep 1 --yes", embedded).err
    assert outcomes_are_complete(embedded)


@pytest.fixture
def damaged(made_once: Made, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace to damage; no command waits for another process to write what is missing."""

    def fill(workspace: Path) -> None:
        random_store(workspace / "store", read_shapes(n_scenes=12))
        command(f"{EVALUATE} --protocols t2i/all --device cpu", workspace)

    monkeypatch.setattr("capim.store.rows._PAUSES", (0.0,))
    return made_once("to-damage", fill)


def test_a_changed_figure_stops_who_reads_figures_until_it_is_dropped_and_made_again(damaged: Path) -> None:
    """`results` printed .9877, and `store verify` said that nothing was damaged."""
    value = EmbeddingStore.open(damaged / "store").rows("results", metric="R@1")["value"][0].as_py()
    for file in (damaged / "store" / "results.lance" / "data").iterdir():
        file.write_bytes(file.read_bytes().replace(struct.pack("<d", value), struct.pack("<d", 0.9877)))
    for words in ("results", EVALUATE, "compare --quiet", "report --quiet", f"export results --to {damaged}/f.csv"):
        out, err = command(words, damaged, code=1)
        assert "table 'results' is damaged" in err, words
        assert "capim store verify --drop" in err
        assert "0.9877" not in out
    assert "derivations" in command("store verify", damaged, code=1).out
    assert "damaged rows are removed" in command("store verify --drop", damaged).err
    command(EVALUATE, damaged)
    command("store verify", damaged)
    assert value in {row["value"] for row in command("results --format json --metric R@1", damaged).rows}


@pytest.mark.parametrize("table", ["results", "outcomes", "sets", "encoders", "corpora"])
def test_a_table_that_cannot_be_opened_is_damage(damaged: Path, table: str) -> None:
    """Nothing of it was checked, so that nothing was damaged. A table that is removed: tests/store/test_damage.py."""
    shutil.rmtree(damaged / "store" / f"{table}.lance" / "_versions")
    found = {row["what"]: row for row in command("store verify --format json", damaged, code=1).rows}
    assert found[table]["state"] == "damaged"
    command("store verify --drop", damaged)
    command("store verify", damaged)
