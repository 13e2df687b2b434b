"""Pages that are open while another process writes, compacts and drops; and clicks at random, which change nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from capim.store import EmbeddingStore
from capim.store.removal import compact_store, drop
from capim.tasks.corpora.readers.shapes import read_shapes
from tests.faults.clicking import click, digest
from tests.random_store import OTHER, random_store
from tests.reports.app.asked import B, asking
from tests.reports.app.evaluated import evaluate

WRITER = """
import sys, time
from capim.store import EmbeddingStore
from capim.store.removal import compact_store
from capim.store.removal import drop
ends = time.monotonic() + float(sys.argv[2])
store = EmbeddingStore.open(sys.argv[1])
rows = store.rows("outcomes", encoder=sys.argv[3], corpus="shapes")
print("ready", flush=True)
while time.monotonic() < ends:
    store.write_rows("outcomes", rows, replace="evaluation")
    compact_store(store)
drop(store, encoder=sys.argv[3], dry_run=False)
"""


@pytest.fixture
def own(asked: EmbeddingStore, tmp_path: Path) -> EmbeddingStore:
    """A copy that a test may change."""
    shutil.copytree(asked.uri, tmp_path / "store")
    return EmbeddingStore.open(tmp_path / "store")


def test_clicking_at_random_changes_nothing_and_meets_no_fault(own: EmbeddingStore) -> None:
    before = digest(Path(own.uri))
    with asking(own) as client:
        clicked = click(client, seconds=4, seed=0)
    assert clicked.faults == []
    assert clicked.n_pages > 5
    assert digest(Path(own.uri)) == before


def test_a_view_is_right_after_a_run_a_compaction_and_a_drop(own: EmbeddingStore) -> None:
    corpus = read_shapes(n_scenes=12)
    other = EmbeddingStore.open(own.uri)  # as another process has it
    missed = f"/queries?corpus=shapes&protocol=t2i/all&wrong={B}"
    with asking(own) as client:
        first = client.get(missed).text
        assert "other" not in client.get("/").text
        random_store(Path(own.uri), corpus, [OTHER])
        evaluate(other, corpus, [OTHER], run="second")
        assert "other" in client.get("/").text
        assert client.get(f"{missed}&right=other").status_code == 200
        compact_store(other)
        assert client.get(missed).text.count("<tr>") == first.count("<tr>")
        drop(other, encoder=B, dry_run=False)  # its embeddings; its outcomes are kept
        assert client.get(missed).text.count("<tr>") == first.count("<tr>")
        for page in (f"/search?corpus=shapes&text=x&encoders={B}", f"/map?corpus=shapes&encoders={B}"):
            gone = client.get(page)
            assert gone.status_code == 400
            assert f"{B}&#39; is unknown" in gone.text
        assert f'value="{B}"' not in client.get("/search").text
        drop(other, corpus="shapes", dry_run=False)
        for page in ("/", missed, "/map", "/search"):
            gone = client.get(page)
            assert gone.status_code == 400, page
            assert "dropped" in gone.text or "no embeddings" in gone.text
        assert client.get("/runs").status_code == 200


def test_pages_are_right_while_another_process_writes_and_compacts(own: EmbeddingStore) -> None:
    seconds = 3.0
    command = [sys.executable, "-c", WRITER, own.uri, str(seconds), B]
    with asking(own) as client, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        clicked = click(client, seconds=seconds, seed=1)
        assert writer.wait(60) == 0
    assert [fault for fault in clicked.faults if f"'{B}' is unknown" not in fault] == []  # the drop at the end
