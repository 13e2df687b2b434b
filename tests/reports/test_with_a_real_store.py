"""The stand-in reads like the store: the same report comes out of a real one, opened anew."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from capim.reports import write_report
from capim.store import EmbeddingStore
from tests.reports.stand_in import SCHEMAS, StandIn


@pytest.fixture
def real_store(demo_store: StandIn, tmp_path: Path) -> EmbeddingStore:
    """The demo's rows in a LanceDB store, without embeddings."""
    store = EmbeddingStore.open(tmp_path / "store", create=True)
    for contents in demo_store.contents.values():
        store.write_corpus(contents)
    for model in demo_store.specs.values():
        store.write_encoder(model)
    for table, rows in demo_store.tables.items():
        if rows:
            store.write_rows(table, pa.Table.from_pylist(rows, schema=SCHEMAS[table]))
    return store


def test_the_real_store_and_the_stand_in_give_the_same_sections(
    real_store: EmbeddingStore, demo_store: StandIn, tmp_path: Path
) -> None:
    demo_store.sets.clear()
    demo_store.uri = real_store.uri
    ours = Path(write_report(demo_store, tmp_path / "stand-in")).with_name("report.md").read_text("utf-8")
    theirs = Path(write_report(real_store, tmp_path / "real")).with_name("report.md").read_text("utf-8")
    assert theirs == ours
