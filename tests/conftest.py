"""Settings and fixtures of all tests."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.shared_data import SHARED_DATA

# Set before any model library is imported: no hub, no telemetry, no threads that wait actively.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")

NEEDS_DATA = "needs the real data in ../shared/data"


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
