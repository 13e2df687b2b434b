"""Two racing writers, killed again and again, leave what an uninterrupted writer leaves."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pytest

from capim.store import EmbeddingStore
from capim.store.row_types import rows_in
from capim.store.rows import delete
from capim.store.schema import LedgerEntry, Result
from capim.store.upkeep.inventory import info
from capim.store.upkeep.removal import drop_set
from tests.random_store import rows_of
from tests.store.toy import fill, make_corpus, make_spec, states

WRITER = Path(__file__).with_name("writer.py")
ROOT = Path(__file__).resolve().parents[2]


def start(uri: Path | str, n_items: int, seed: int, pause: float = 0.0) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(WRITER), str(uri), str(n_items), str(seed), str(pause)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def same_contents(left: EmbeddingStore, right: EmbeddingStore) -> bool:
    """Whether two stores hold the same sets with the same bits in the same order."""
    dense = [s.vectors(encoder="dense", corpus="crash", modality="image").matrix.tobytes() for s in (left, right)]
    late = [
        b"".join(block.values.tobytes() for block in s.multivectors(encoder="late", corpus="crash", modality="image"))
        for s in (left, right)
    ]
    digests = [sorted(sealed.digest for sealed in s.sealed_sets()) for s in (left, right)]
    return dense[0] == dense[1] and late[0] == late[1] and digests[0] == digests[1]


@pytest.mark.slow
def test_killed_writers_lose_and_double_nothing(tmp_path):
    n_items, moments = 2400, random.Random(1)
    for number in range(3):
        pair = [start(tmp_path / "torn", n_items, seed=2 * number + which, pause=0.02) for which in range(2)]
        for writer in pair:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "writing\n"
        for writer in pair:
            time.sleep(moments.uniform(0, 0.25))
            writer.send_signal(signal.SIGKILL)
        for writer in pair:
            with writer:  # closes its pipes
                assert writer.wait() == -signal.SIGKILL, "it was still at work"
    for writer in [start(tmp_path / folder, n_items, seed=99) for folder in ("torn", "whole")]:
        _, errors = writer.communicate()
        assert writer.returncode == 0, errors
    torn, whole = EmbeddingStore.open(tmp_path / "torn"), EmbeddingStore.open(tmp_path / "whole")
    assert same_contents(torn, whole)
    for sealed in torn.sealed_sets():
        rows = torn.connection.find(sealed.key.table, version=sealed.tag)
        assert rows is not None
        assert np.array_equal(np.sort(rows.to_table(columns=["ord"]).column("ord").to_numpy()), np.arange(n_items))
    assert states(torn) == {"sound"}


def test_what_is_left_of_a_table_without_a_version_is_no_damage(store):
    """A process was killed while it removed the files, or before the first version was there."""
    key = fill(store, make_corpus(20), make_spec())
    store.write_rows("results", rows_of("results", {"image_tag": "", "caption_tag": ""}))
    delete(store.connection, "sets", "set_name", [key.table])
    for name in (key.table, "results"):
        shutil.rmtree(store.connection.folder(name) / "_versions")
    assert states(store) == {"sound", "incomplete"}
    fresh = EmbeddingStore.open(store.uri)
    assert len(info(fresh).sets) == fresh.rows("results").num_rows == 0
    fill(fresh, make_corpus(20), make_spec())
    fresh.write_rows("results", rows_of("results", {"image_tag": "", "caption_tag": ""}))
    assert states(store) == {"sound"}


class Killed(BaseException):
    """What ends a process; nobody catches it."""


def dies(monkeypatch: pytest.MonkeyPatch, moment: str, work: Callable[[], object]) -> None:
    """Work during which the process is killed when it calls a function."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as killing, pytest.raises(Killed):
        killing.setattr(moment, die)
        work()


@pytest.mark.parametrize(
    "moment",
    ["lance.fragment.write_fragments", "lance.LanceDataset.commit", "capim.store.connection.Connection.committed"],
)
def test_a_table_that_was_being_made_or_dropped_by_a_killed_process_is_no_damage(store, monkeypatch, moment):
    dies(monkeypatch, moment, lambda: store.write_corpus(make_corpus(3)))
    assert states(store) <= {"sound", "incomplete"}
    key = fill(EmbeddingStore.open(store.uri), make_corpus(20), make_spec())
    assert states(store) == {"sound"}
    dies(monkeypatch, "capim.store.connection.Connection.remove", lambda: drop_set(store, key))
    assert states(store) == {"sound", "incomplete"}
    fresh = EmbeddingStore.open(store.uri)
    drop_set(fresh, key)
    fill(fresh, make_corpus(20), make_spec())
    assert states(store) == {"sound"}


def test_a_table_that_another_process_created_and_filled_in_the_meantime_keeps_its_rows(store, monkeypatch):
    """With ``mode="create"``, Lance made an empty second version of it."""
    rows, commit = rows_of("results", {"result": "1"}), lance.LanceDataset.commit

    def commit_second(*given: Any, **named: Any) -> lance.LanceDataset:
        monkeypatch.undo()
        EmbeddingStore.open(store.uri).write_rows("results", rows)
        return commit(*given, **named)

    monkeypatch.setattr(lance.LanceDataset, "commit", commit_second)
    store.write_rows("results", rows_of("results", {"result": "2"}))
    assert store.rows("results")["result"].to_pylist() == ["1", "2"]


def test_two_processes_that_derive_the_same_at_once_and_their_reader_see_no_damage(store):
    def write(run: str) -> None:
        own = EmbeddingStore.open(store.uri)
        for n in range(6):
            own.write_rows("outcomes", rows_of("outcomes", *({"evaluation": f"e{n}", "query_id": id_} for id_ in "ab")))
            rows = rows_of("results", *({"result": f"{n}{each}", "derived": f"d{n}", "run": run} for each in "ab"))
            entries = rows_in(LedgerEntry, rows_of("derived", {"key": f"d{n}", "run": run}))
            own.write_derived("results", rows_in(Result, rows), entries)

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(write, run) for run in ("one", "other")]
        while not all(each.done() for each in writers):
            for name in ("results", "outcomes"):
                assert EmbeddingStore.open(store.uri).rows(name).num_rows % 2 == 0
    for each in writers:
        each.result()
    assert store.rows("results").num_rows == store.rows("outcomes").num_rows == 12
    assert states(store) <= {"sound", "incomplete"}


def test_rows_whose_entry_was_not_written_are_not_read_and_are_written_again(store, monkeypatch):
    rows = rows_in(Result, rows_of("results", {"derived": "d"}))
    entries = rows_in(LedgerEntry, rows_of("derived", {"key": "d"}))
    moment = "capim.store.embedding_store.EmbeddingStore._list"
    dies(monkeypatch, moment, lambda: store.write_derived("results", rows, entries))
    fresh = EmbeddingStore.open(store.uri)
    assert fresh.rows("results").num_rows == 0
    fresh.write_derived("results", rows, entries)
    assert fresh.rows("results").num_rows == EmbeddingStore.open(store.uri).rows("results").num_rows == 1
