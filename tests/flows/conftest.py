"""A store like the demo's, for commands that read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.cli import main

CORPORA = "shapes,shapes-winoground,shapes-multilingual"


@pytest.fixture(scope="session")
def small_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with the corpora of the demo, of twelve images each, and two of its encoders; not to be changed."""
    folder = tmp_path_factory.mktemp("small-demo") / "workspace"
    words = ["run", "--corpora", CORPORA, "--sample", "12", "--encoders", "tiny-clip,tiny-colpali"]
    assert main([*words, "--replicates", "100", "--device", "cpu", "--quiet", "--workspace", str(folder)]) == 0
    return folder
