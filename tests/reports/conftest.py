"""The stand-in stores, as fixtures."""

from __future__ import annotations

import pytest

from tests.reports.stand_in import StandIn, demo


@pytest.fixture
def demo_store() -> StandIn:
    """Three encoders, two corpora, like the demo's store."""
    return demo()
