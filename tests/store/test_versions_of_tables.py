"""What versions of tables take: old ones are freed at once, and readers lose nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pyarrow as pa
import pytest

from capim.store import EmbeddingStore
from capim.store.connection import drop_old_versions
from capim.store.schema import ANALYSES
from capim.store.upkeep.inventory import disk_bytes
from capim.store.upkeep.removal import compact_store
from tests.random_store import BEGUN, rows_of


def result(run: str, day: int = 0, **changes: Any) -> dict[str, Any]:
    """A row of ``results`` as a run writes it on a day."""
    row = {"result": "r0", "encoder": "a", "encoder_fingerprint": "a0", "corpus": "c", "corpus_fingerprint": "c0"}
    return {**row, "value": 0.5, "run": run, "created": BEGUN + timedelta(days=day), **changes}


def write(store: EmbeddingStore, row: dict[str, Any]) -> None:
    assert store.write_rows("results", rows_of("results", row), replace="result") == 1


def test_compacting_frees_old_versions_of_analyses_at_once(store: EmbeddingStore) -> None:
    for day in range(12):
        write(store, result("again", day, value=day / 100))
    folder = store.connection.folder("results")
    assert folder is not None
    before, before_all = disk_bytes(folder), disk_bytes(folder.parent)
    freed = compact_store(store)
    assert disk_bytes(folder) < before / 5
    assert disk_bytes(folder.parent) == before_all - freed
    assert store.rows("results")["value"].to_pylist() == [0.11]


def test_a_read_of_a_version_that_was_just_compacted_is_repeated(
    store: EmbeddingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, result("first"))
    write(store, result("second", 1, value=0.6))
    old = store.connection.find("results")
    write(store, result("third", 2, value=0.7))
    compact_store(store)
    latest = store.connection.find
    handed_out: list[Any] = []
    monkeypatch.setattr(store.connection, "find", lambda name: handed_out.pop() if handed_out else latest(name))
    for read in (lambda: store.rows("results"), lambda: store.sql("SELECT value FROM all_results")):
        handed_out.append(old)
        assert read()["value"].to_pylist() == [0.7]
        assert not handed_out


def test_old_versions_that_another_process_removes_at_the_same_time_are_no_fault() -> None:
    class Table:
        uri, said = "s3://bucket/weights.lance", ["Not found: weights.lance/_versions/3.manifest"]

        def cleanup_old_versions(self, *_: Any, **__: Any) -> Any:
            if self.said:
                raise OSError(self.said.pop())
            self.done = True

    table = Table()
    drop_old_versions(cast("Any", table))
    assert table.done


def test_twenty_records_of_runs_take_less_than_a_megabyte(store: EmbeddingStore) -> None:
    row = {field.name: "x" * 300 for field in ANALYSES["runs"].columns if field.type == pa.string()}
    before = disk_bytes(store.connection.folder("runs").parent)  # type: ignore[union-attr]
    for number in range(20):
        for state in ("running", "completed"):
            rows = rows_of("runs", {**row, "run": f"run{number}", "state": state})
            store.write_rows("runs", rows, replace="run")
    assert store.rows("runs").num_rows == 20
    assert disk_bytes(store.connection.folder("runs").parent) - before < 400_000  # type: ignore[union-attr]
    assert ANALYSES["runs"].keyed_columns.field("run").metadata
