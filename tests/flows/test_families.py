"""p-values are adjusted over the pairs of one request; a later one for some encoders leaves an earlier one whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from capim.store import EmbeddingStore
from capim.store.schema import Comparison
from tests.command import command

PAIR = "tiny-clip,tiny-colpali"
SHAPES = "--corpora shapes-sample12"
QUICK = f"{SHAPES} --replicates 100 --quiet"


def _compared(workspace: Path, words: str = "") -> list[dict[str, Any]]:
    """The comparisons in a report with these options."""
    folder = command(f"report {SHAPES} --markdown whole {words}", workspace).page.parent
    text = (folder / "report.md").read_text("utf-8")
    compared = json.loads((folder / "results.json").read_text("utf-8"))["comparisons"]
    return [{**row, "page": text} for row in compared]


def test_a_request_for_some_encoders_and_the_comparison_of_all_are_never_mixed(
    three_encoders: Path, tmp_path: Path
) -> None:
    workspace = shutil.copytree(three_encoders, tmp_path / "workspace", symlinks=True)
    of_all = {row["comparison"]: row for row in _compared(workspace)}
    restricted = _compared(workspace, f"--encoders {PAIR}")
    assert {row["comparison"] for row in restricted} < of_all.keys()
    family = "adjusted over the pairs of all 3 encoders that were compared; this report shows 2 of them"
    assert family in restricted[0]["page"]

    said = command(f"compare --encoders {PAIR} {QUICK}", workspace).err
    assert "adjusted only over the pairs of tiny-clip and tiny-colpali" in said
    assert {row["comparison"]: row["p_adjusted"] for row in _compared(workspace)} == {
        key: row["p_adjusted"] for key, row in of_all.items()
    }, "the comparison of all encoders is as it was"
    requested = _compared(workspace, f"--encoders {PAIR}")
    assert len({row["run"] for row in requested}) == 1
    tested = [row for row in requested if row["p_adjusted"] is not None]  # others have no interval, and no claim
    assert all(row["p_adjusted"] == row["p_sign_flip"] for row in tested), "one pair: nothing to adjust for"
    assert tested
    assert "this report shows" not in requested[0]["page"]

    store = EmbeddingStore.open(workspace / "store")
    stored = store.rows("comparisons")
    command(f"compare {QUICK}", workspace)
    assert store.rows("comparisons").equals(stored), "the comparison of all was stored"
    assert {row.comparison for row in store.current(Comparison, corpus="shapes-sample12")} == of_all.keys()
