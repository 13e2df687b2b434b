"""Stores of earlier formats: refused with the command, upgraded without a model, the same vectors and outcomes."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

from capim.store import EmbeddingStore
from capim.store.connection import Connection
from capim.store.errors import RequestError
from capim.store.inventory import upgrade_store
from capim.store.rows import now, register
from capim.store.schema import FORMAT, texts
from tests.command import command
from tests.store import golden
from tests.store.test_crashes import dies

GOLDEN = sorted(golden.STORES.glob("format-*.tar.xz"))
RELEASES = sorted(golden.STORES.glob("release-*.tar.xz"))


@pytest.fixture(params=GOLDEN, ids=lambda file: file.name.partition(".")[0])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def table(workspace: Path, name: str) -> pa.Table:
    opened = Connection(str(workspace / "store")).find(name)
    assert opened is not None
    return opened.to_table()


def test_an_upgraded_store_has_its_vectors_and_outcomes_and_makes_its_figures_again(workspace: Path) -> None:
    kept = {name: table(workspace, name) for name in Connection(str(workspace / "store")).names()}
    gone = {"formats", "timings", "uses", "derived"}
    kept = {name: rows for name, rows in kept.items() if "derived" not in rows.column_names and name not in gone}
    refused = command("results", workspace, code=2).err
    assert (
        f"this release of capim reads format {FORMAT}: run `capim store upgrade` (nothing is encoded again)" in refused
    )
    assert "results: removed; the next run makes it again" in command("store upgrade", workspace).out
    assert "0 damaged or lost" in command("store verify", workspace).err
    for name, rows in kept.items():
        assert table(workspace, name).select(rows.column_names).equals(rows), name
    assert {*texts(kept["outcomes"]["evaluation"])} <= {*texts(table(workspace, "derived")["key"])}
    assert "nothing to do" in command("store upgrade", workspace).out
    command("evaluate --replicates 100 --protocols t2i/all --device cpu", workspace)
    results = command("results --format json", workspace).rows
    assert {row["encoder"] for row in results} == {"one", "other"}
    assert len(EmbeddingStore.open(workspace / "store").rows("outcomes")) == len(kept["outcomes"])


@pytest.mark.parametrize("moment", ["capim.store.inventory.delete", "capim.store.inventory.register"])
def test_an_upgrade_that_was_killed_at_its_end_is_finished_by_the_next(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    dies(monkeypatch, moment, lambda: [*upgrade_store(str(workspace / "store"))])
    assert "run `capim store upgrade`" in command("results", workspace, code=2).err
    command("store upgrade", workspace)
    assert "0 damaged or lost" in command("store verify", workspace).err


def test_a_column_that_this_format_does_not_have_is_removed_and_the_rows_stay(workspace: Path) -> None:
    before = table(workspace, "sets")
    connection = Connection(str(workspace / "store"))
    stored = connection.find("sets")
    assert stored is not None
    stored.add_columns(pa.schema([pa.field("cost", pa.float64())]))
    assert "sets: columns changed (cost; 4 rows)" in command("store upgrade", workspace).out
    assert table(workspace, "sets").select(before.column_names).equals(before)
    assert "cost" not in table(workspace, "sets").column_names
    assert "0 damaged or lost" in command("store verify", workspace).err


@pytest.mark.parametrize(("written", "words"), [(4, "has format 4"), (FORMAT + 1, f"has format {FORMAT + 1}")])
def test_a_format_that_cannot_be_upgraded_is_refused_and_left_alone(tmp_path: Path, written: int, words: str) -> None:
    connection = Connection(str(tmp_path / "store"))
    register(connection, "formats", [{"format": written, "written": now()}])
    before = sorted(path.name for path in (tmp_path / "store").rglob("*"))
    assert words in command("store upgrade", tmp_path, code=2).err
    assert sorted(path.name for path in (tmp_path / "store").rglob("*")) == before
    with pytest.raises(RequestError, match=words):
        EmbeddingStore.open(tmp_path / "store")


@pytest.mark.parametrize("release", RELEASES, ids=lambda file: file.name.removesuffix(".tar.xz"))
def test_a_store_of_a_release_is_read_with_the_figures_of_that_release(release: Path, tmp_path: Path) -> None:
    with tarfile.open(release) as archive:
        archive.extractall(tmp_path, filter="data")
    written = json.loads((tmp_path / golden.FIGURES).read_text())
    if "the next run makes it again" not in command("store upgrade", tmp_path).out:
        assert golden.figures(tmp_path) == written
    keys = {*table(tmp_path, "derived")["key"].to_pylist()}
    used = [{*row["uses"]} for row in EmbeddingStore.open(tmp_path / "store").runs()]
    assert all(used)
    assert set().union(*used) <= keys
    assert "0 damaged or lost" in command("store verify", tmp_path).err
    n_outcomes = len(table(tmp_path, "outcomes"))
    evaluate, *others = golden.COMMANDS
    assert "0 protocols scored" in command(evaluate.removesuffix(" --quiet"), tmp_path).err
    for words in others:
        command(words, tmp_path)
    assert len(table(tmp_path, "outcomes")) == n_outcomes
    values = [[row["value"] for row in rows] for rows in (golden.figures(tmp_path), written)]
    assert values[0] == pytest.approx(values[1])
