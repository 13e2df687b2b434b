"""p-values are adjusted over the pairs of one request; a later one for some encoders leaves an earlier one whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from capim.flows.cli import main
from capim.store import EmbeddingStore

pytestmark = pytest.mark.slow

EVERY = "tiny-clip,tiny-clip-plain,tiny-colpali"
PAIR = "tiny-clip,tiny-colpali"


def _compared(workspace: Path, *words: str) -> list[dict[str, Any]]:
    """The comparisons in a report with these options."""
    before = {*(workspace / "reports").iterdir()}
    assert main(["report", *words, "--workspace", str(workspace)]) == 0
    [new] = {*(workspace / "reports").iterdir()} - before
    document = json.loads((new / "results.json").read_text("utf-8"))
    compared = document["comparisons"]
    assert isinstance(compared, list)
    return [{**row, "page": (new / "report.md").read_text("utf-8")} for row in compared]


def test_a_request_for_some_encoders_and_the_comparison_of_all_are_never_mixed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> None:
        assert main([*words, "--replicates", "100", "--workspace", str(tmp_path), "--quiet"]) == 0

    run("run", "--corpora", "shapes", "--sample", "12", "--encoders", EVERY, "--analyses", "complexity")
    of_all = {row["comparison"]: row for row in _compared(tmp_path)}
    restricted = _compared(tmp_path, "--encoders", PAIR)
    assert {row["comparison"] for row in restricted} < of_all.keys()
    assert (
        "adjusted over the pairs of all 3 encoders that were compared, of which this report shows 2"
        in (restricted[0]["page"])
    )

    capsys.readouterr()
    run("compare", "--encoders", PAIR, "--analyses", "complexity")
    assert "adjusted over the pairs of tiny-clip and tiny-colpali alone" in capsys.readouterr().err
    assert {row["comparison"]: row["p_adjusted"] for row in _compared(tmp_path)} == {
        key: row["p_adjusted"] for key, row in of_all.items()
    }, "the comparison of all encoders is as it was"
    requested = _compared(tmp_path, "--encoders", PAIR)
    assert len({row["run"] for row in requested}) == 1
    assert all(row["p_adjusted"] == row["p_sign_flip"] for row in requested), "one pair: nothing to adjust for"
    assert "of which this report shows" not in requested[0]["page"]

    store = EmbeddingStore.open(tmp_path / "store")
    stored = store.rows("comparisons")
    run("compare", "--analyses", "complexity")
    assert store.rows("comparisons").equals(stored), "the comparison of all was stored"
    assert {row["comparison"] for row in store.current("comparisons")} == of_all.keys()
