"""Settings and fixtures of all tests."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from tests.shared_data import SHARED_DATA

# Set before any model library is imported: no hub, no telemetry, no threads that wait actively.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER" in os.environ:  # one process per core already
    os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")

gc.disable()  # until everything is collected: what is imported stays
settings.register_profile("capim", deadline=None)  # a slower machine is no fault
settings.load_profile("capim")

NEEDS_DATA = "needs the real data in ../shared/data"

ONE_SERVER = ("test_installation.py", "test_task_runners.py")
"""Files of tests/deployments whose tests share one Prefect server: one process runs them all, and first, because
together they take longest."""
LONG = (
    *("test_browser.py", "test_readme.py", "test_first_hour.py", "test_tiny_checkpoints.py"),
    *("test_weights.py", "test_families.py", "test_plan.py", "test_own_metric.py", "test_store_commands.py"),
    *("test_documents.py", "test_spine.py", "test_object_storage_run.py", "test_once.py", "test_damage.py"),
    *("test_sixty_ways.py", "test_dense.py", "test_core_installation.py", "test_ranking.py", "test_validity.py"),
)
"""Further files that take over 20 seconds, the longest first: one that begins last leaves the other process idle."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first; otherwise the order is as collected."""
    order = [*ONE_SERVER, *LONG]
    items.sort(key=lambda item: order.index(item.path.name) if item.path.name in order else len(order))


def pytest_collection_finish() -> None:
    """What is imported by now stays: the garbage collector need not go through all of it again and again."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 20, 20)


class _ByFile(LoadFileScheduling):  # type: ignore[misc]
    """As ``--dist loadfile``, and the files of ONE_SERVER count as one file."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "one server" if file.endswith(ONE_SERVER) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByFile | None:
    return _ByFile(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """A function that gives a folder of this name, a copy of what one of the processes of the session has filled."""
    parallel = "PYTEST_XDIST_WORKER" in os.environ
    shared = tmp_path_factory.getbasetemp().parent if parallel else tmp_path_factory.mktemp("made-once")

    def made(name: str, fill: Callable[[Path], object]) -> Path:
        first = shared / f"{name}-made-once"
        with FileLock(shared / f"{name}.lock"):
            if not first.is_dir():
                building = shared / f"{name}-building"
                shutil.rmtree(building, ignore_errors=True)
                fill(building)
                building.rename(first)
        return Path(shutil.copytree(first, tmp_path_factory.mktemp(name) / name, symlinks=True))

    return made


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real photographs, captions and hit lists beside the checkout; see shared/data/README.md."""
    if not SHARED_DATA.is_dir():
        pytest.skip(NEEDS_DATA)
    return SHARED_DATA


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
    """Count, below everything else, the tests that were skipped because the real data are missing."""
    yield
    skipped = sum(NEEDS_DATA in str(report.longrepr) for report in terminalreporter.getreports("skipped"))
    if skipped:
        terminalreporter.write_line(f"{skipped} tests need the real data in {SHARED_DATA}, which is not here: skipped")
