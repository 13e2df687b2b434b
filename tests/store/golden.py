"""``python -m tests.store.golden``: the store that a release adds to ``tests/golden/stores``, with its figures."""

from __future__ import annotations

import json
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from capim.tasks.corpora.readers.shapes import read_shapes
from tests.command import command, json_rows
from tests.random_store import OTHER, SPECS, random_store

STORES = Path(__file__).parents[1] / "golden" / "stores"
FIGURES = "figures.json"
COMMANDS = (
    "evaluate --replicates 100 --protocols t2i/all,i2t/any --quiet",
    "compare --permutations 1000 --replicates 100 --protocols t2i/all --quiet",
    "analyse --analyses complexity,errors --protocols t2i/all --quiet",
)


def figures(workspace: Path) -> list[dict[str, object]]:
    """The stored results, without what depends on the time and the machine."""
    return [{name: row[name] for name in ("encoder", "protocol", "metric", "value", "ci_low", "ci_high")}
            for row in json_rows("results", workspace)]  # fmt: skip


def main() -> None:
    """Two encoders with one vector per item and one with several, on six rendered scenes."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        random_store(workspace / "store", read_shapes(n_scenes=6), (*SPECS, OTHER))
        for words in COMMANDS:
            command(words, workspace)
        (workspace / FIGURES).write_text(json.dumps(figures(workspace), indent=1))
        with tarfile.open(STORES / f"release-{version('capim')}.tar.xz", "w:xz") as archive:
            for name in ("store", FIGURES):
                archive.add(workspace / name, name)


if __name__ == "__main__":
    main()
