"""What every test may ask for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before any model library is imported: no hub, no telemetry, no spinning threads beside each other.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real photographs, captions and hit lists beside the checkout; see shared/data/README.md."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here: real data for tests lies beside the checkout")
    return folder
