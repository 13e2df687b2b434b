"""The stand-in reads like the store: the same report comes out of a real one, opened anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from capim.reports import write_report
from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from tests.reports.stand_in import StandIn, written


@pytest.fixture
def real_store(demo_store: StandIn, tmp_path: Path) -> EmbeddingStore:
    """The demo's rows in a LanceDB store, without embeddings."""
    return written(demo_store, tmp_path / "store")


def test_a_report_is_made_again_to_the_same_bytes_from_a_store_opened_anew(
    real_store: EmbeddingStore, tmp_path: Path
) -> None:
    first = Path(write_report(real_store, tmp_path / "first")).parent
    second = Path(write_report(EmbeddingStore.open(real_store.uri), tmp_path / "second")).parent
    for name in ("report.html", "report.md", "results.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_the_real_store_and_the_stand_in_give_the_same_sections(
    real_store: EmbeddingStore, demo_store: StandIn, tmp_path: Path
) -> None:
    demo_store.sets.clear()
    demo_store.uri = real_store.uri
    ours = Path(write_report(demo_store, tmp_path / "stand-in")).with_name("report.md").read_text("utf-8")
    theirs = Path(write_report(real_store, tmp_path / "real")).with_name("report.md").read_text("utf-8")
    assert theirs == ours


def test_an_empty_real_store_says_what_to_run(tmp_path: Path) -> None:
    store = EmbeddingStore.open(tmp_path / "store", create=True)
    with pytest.raises(RequestError, match="capim run"):
        write_report(store, tmp_path / "report")
    assert not (tmp_path / "report").exists()
