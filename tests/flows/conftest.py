"""Stores like the demo's, for commands that read them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from capim.tasks.corpora.readers.shapes import read_shapes_multilingual
from tests.command import command
from tests.random_store import random_store

QUICK = "--replicates 100 --device cpu --quiet"
SMALL = f"--sample 12 {QUICK}"
RUN = f"run {Path(__file__).with_name('demo.toml')} {SMALL} --encoders tiny-clip,tiny-colpali"
Made = Callable[[str, Callable[[Path], object]], Path]


def empty_pages(patch: pytest.MonkeyPatch) -> None:
    """From now on reports have their numbers, on pages where nothing is drawn."""
    patch.setattr("capim.reports.write.report_of", lambda _: SimpleNamespace(board=None))
    patch.setattr("capim.reports.write.figure_files", lambda _: {})
    for name in ("render_markdown", "render_first_screen", "render_html"):
        patch.setattr(f"capim.reports.write.{name}", lambda *_, **__: "")


@pytest.fixture(scope="session")
def small_demo(made_once: Made) -> Path:
    """A workspace with three corpora of twelve images each, and two encoders of the demo; not to be changed."""
    return made_once("small-demo", lambda workspace: command(RUN, workspace))


@pytest.fixture
def own_demo(small_demo: Path, tmp_path: Path) -> Path:
    """A copy of ``small_demo`` to change."""
    return Path(shutil.copytree(small_demo, tmp_path / "workspace", symlinks=True))


@pytest.fixture(scope="session")
def in_languages(made_once: Made) -> Path:
    """A workspace with random vectors, one and many per item, of captions in three languages; not to be changed."""

    def fill(workspace: Path) -> None:
        every = read_shapes_multilingual(n_scenes=10)
        chosen = pc.is_in(every.captions["language"], pa.array(["de", "en", "it"]))
        random_store(workspace / "store", replace(every, captions=every.captions.filter(chosen)))
        command("evaluate --device cpu --replicates 100 --quiet", workspace)

    return made_once("in-languages", fill)
