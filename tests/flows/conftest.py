"""A store like the demo's, for commands that read it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from capim.flows.cli import main

CORPORA = "shapes,shapes-winoground,shapes-multilingual"
WORDS = (
    *("run", "--corpora", CORPORA, "--sample", "12", "--encoders", "tiny-clip,tiny-colpali"),
    *("--replicates", "100", "--device", "cpu", "--quiet", "--workspace"),
)


@pytest.fixture(scope="session")
def small_demo(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A workspace with the corpora of the demo, of twelve images each, and two of its encoders; not to be changed."""

    def fill(workspace: Path) -> None:
        assert main([*WORDS, str(workspace)]) == 0

    return made_once("small-demo", fill)
