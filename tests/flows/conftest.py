"""Stores like the demo's, for commands that read them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import command

CORPORA = "shapes,shapes-winoground,shapes-multilingual"
EVERY = "tiny-clip,tiny-clip-plain,tiny-colpali"
QUICK = "--sample 12 --replicates 100 --device cpu --quiet"
RUN = f"run --corpora {CORPORA} --encoders tiny-clip,tiny-colpali {QUICK}"
Made = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def small_demo(made_once: Made) -> Path:
    """A workspace with the corpora of the demo, of twelve images each, and two of its encoders; not to be changed."""
    return made_once("small-demo", lambda workspace: command(RUN, workspace))


@pytest.fixture
def own_demo(small_demo: Path, tmp_path: Path) -> Path:
    """A copy of ``small_demo`` to change."""
    return Path(shutil.copytree(small_demo, tmp_path / "workspace", symlinks=True))


@pytest.fixture(scope="session")
def three_encoders(made_once: Made) -> Path:
    """A workspace with two corpora of the demo, of twelve images each, and its three encoders; not to be changed."""
    words = f"run --corpora shapes,shapes-winoground --encoders {EVERY} {QUICK}"
    return made_once("three-encoders", lambda workspace: command(words, workspace))
