"""Packages beside capim on the path of this process."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from capim.reports.write import SECTIONS
from capim.store.plugins import PluginTable
from capim.tasks import protocols
from capim.tasks.analyses.table import ANALYSES
from capim.tasks.corpora import CORPORA
from capim.tasks.encoders import ADAPTERS, catalog
from capim.tasks.metrics import METRICS

TABLES: tuple[PluginTable, ...] = (ADAPTERS, ANALYSES, CORPORA, METRICS, SECTIONS, protocols.PROTOCOLS)
Packages = Callable[..., None]


def forget(*modules: str) -> None:
    """Let the tables look for packages again, and import these modules anew."""
    for table in TABLES:
        vars(table).pop("plugins", None)
        table._added.clear()
        table._usable = None
    catalog.cache_clear()
    protocols._parsed.cache_clear()
    for module in modules:
        sys.modules.pop(module, None)
    importlib.invalidate_caches()


@contextmanager
def on_the_path(site: Path) -> Iterator[Packages]:
    """Gives what installs a package: its name, version, entry points by group, and the sources of its modules."""
    modules = set[str]()
    site.mkdir()

    def install(name: str, version: str, points: dict[str, str], **sources: str) -> None:
        info = site / f"{name.replace('-', '_')}.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text("".join(f"[{group}]\n{lines}\n" for group, lines in points.items()))
        for module, source in sources.items():
            (site / f"{module}.py").write_text(source)
        modules.update(sources)
        forget(*modules)

    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(site))
        patched.setattr(sys, "dont_write_bytecode", True)
        yield install
    forget(*modules)


@pytest.fixture
def packages(tmp_path: Path) -> Iterator[Packages]:
    """Installs packages for one test."""
    with on_the_path(tmp_path / "site") as install:
        yield install
