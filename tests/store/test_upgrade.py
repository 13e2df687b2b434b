"""Stores of earlier formats: refused with the command, upgraded without a model, the same vectors and outcomes."""

from __future__ import annotations

import json
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from capim.store import EmbeddingStore
from capim.store.connection import Connection
from capim.store.schema import FORMAT, TABLES, texts
from capim.store.upkeep.inventory import upgrade_store
from tests.command import command
from tests.random_store import rows_of
from tests.store import golden
from tests.store.test_crashes import Killed, dies

FIRST = golden.STORES / "release-0.3.0.tar.xz"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    shutil.unpack_archive(FIRST, tmp_path)
    return tmp_path


GONE = ("formats", "image_hashes", "metrics", "pair_facts", "uses")  # tables that older formats had


def table(workspace: Path, name: str) -> pa.Table:
    opened = Connection(str(workspace / "store")).find(name)
    assert opened is not None
    return opened.to_table()


def test_an_upgraded_store_has_its_vectors_outcomes_and_figures(workspace: Path) -> None:
    names = {*Connection(str(workspace / "store")).names()} - {*GONE, "runs", "derived"}
    kept = {name: table(workspace, name) for name in names}
    written = json.loads((workspace / golden.FIGURES).read_text())
    refused = command("results", workspace, code=2).err
    assert f"reads format {FORMAT}: run `capim store upgrade` (nothing is encoded again)" in refused
    assert "uses: merged into other tables" in command("store upgrade", workspace).out
    assert golden.figures(workspace) == written
    for name, rows in kept.items():
        now_stored = table(workspace, name)
        same = [column for column in rows.column_names if column in now_stored.column_names]
        assert (found := now_stored.select(same)).equals(rows.select(same).cast(found.schema)), name
        gone = {"comparisons": {"p_mcnemar", "adjustment", "cohen_h", "odds_ratio"}, "results": {"robust_error"}}
        assert {*rows.column_names} - {*same} == gone.get(name, set())
    keys = {*texts(table(workspace, "derived")["key"])}
    assert {*texts(kept["outcomes"]["evaluation"])} <= keys
    used = [{*row.keys} for row in EmbeddingStore.open(workspace / "store").runs()]
    assert all(used)
    assert set().union(*used) <= keys
    assert "nothing to do" in command("store upgrade", workspace).out
    assert "0 damaged or lost" in command("store verify", workspace).err
    evaluate, *others = golden.COMMANDS
    assert "0 protocols scored" in command(evaluate.removesuffix(" --quiet"), workspace).err
    for words in others:
        command(words, workspace)
    assert len(table(workspace, "outcomes")) == len(kept["outcomes"])
    assert [row["value"] for row in golden.figures(workspace)] == pytest.approx([row["value"] for row in written])


def test_the_store_of_the_last_release_is_read_as_it_is_and_its_values_are_computed_again(tmp_path: Path) -> None:
    shutil.unpack_archive(golden.STORES / "release-0.4.0.tar.xz", tmp_path)
    written = json.loads((tmp_path / golden.FIGURES).read_text())
    assert "nothing to do" in command("store upgrade", tmp_path).out
    assert golden.figures(tmp_path) == written
    assert "0 damaged or lost" in command("store verify --recompute", tmp_path).err
    for words in golden.COMMANDS:
        command(words, tmp_path)
    assert golden.figures(tmp_path) == written


@pytest.mark.parametrize("moment", ["capim.store.upkeep.inventory.delete", "capim.store.upkeep.inventory.register"])
def test_an_upgrade_that_was_killed_at_its_end_is_finished_by_the_next(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    dies(monkeypatch, moment, lambda: [*upgrade_store(str(workspace / "store"))])
    assert "run `capim store upgrade`" in command("results", workspace, code=2).err
    command("store upgrade", workspace)
    assert "0 damaged or lost" in command("store verify", workspace).err


def test_an_upgrade_that_was_killed_while_it_wrote_the_ledger_hides_no_row(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, committed, n_before = json.loads((workspace / golden.FIGURES).read_text()), Connection.committed, count()

    def killed(connection: Connection, name: str, *how: Any) -> None:
        if name == "derived" and next(n_before):  # the first one removes entries of format 7
            raise Killed
        committed(connection, name, *how)

    with monkeypatch.context() as killing, pytest.raises(Killed):
        killing.setattr(Connection, "committed", killed)
        list(upgrade_store(str(workspace / "store")))
    command("store upgrade", workspace)
    assert golden.figures(workspace) == written


def test_of_a_ranking_by_two_statistics_the_macro_mean_is_left(workspace: Path) -> None:
    connection, old = Connection(str(workspace / "store")), pa.field("statistic", pa.string(), nullable=False)
    [row] = rows_of("rankings", {"ranking": "r", "derived": "key", "n_corpora": 3}).to_pylist()
    schema = TABLES["rankings"].columns.append(old)
    both = [{**row, "statistic": statistic} for statistic in ("macro mean", "borda")]
    connection.create("rankings", schema, pa.Table.from_pylist(both, schema=schema))
    assert "rankings: columns changed (statistic; 1 rows)" in command("store upgrade", workspace).out
    assert table(workspace, "rankings").to_pylist() == [row]


@pytest.mark.parametrize("written", [6, 9, FORMAT + 1])
def test_a_format_that_cannot_be_upgraded_is_refused_and_left_alone(tmp_path: Path, written: int) -> None:
    connection = Connection(str(tmp_path / "store"))
    schema = TABLES["encoders"].keyed_columns.with_metadata({"capim.format": str(written)})
    connection.create("encoders", schema)
    before = sorted(path.name for path in (tmp_path / "store").rglob("*"))
    assert f"has format {written}" in command("store upgrade", tmp_path, code=2).err
    assert sorted(path.name for path in (tmp_path / "store").rglob("*")) == before
