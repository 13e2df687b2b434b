"""A seeded share of the random damages of `make faults`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.damages import undergo, undergo_pairs


def test_random_damages_are_found_and_healed_or_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any file of any table; none gives other values in silence, none a traceback."""
    # what is missing is looked for as often, but no other process is about to write it
    monkeypatch.setattr("capim.store.digests._PAUSES", (0.0, 0.0, 0.0))
    assert undergo(6, tmp_path, seed="tests", at_once=5)["found"] > 3


def test_no_pair_of_damages_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data and record, table and record, an older copy of both, tables that were exchanged with their records."""
    monkeypatch.setattr("capim.store.digests._PAUSES", (0.0, 0.0, 0.0))
    assert undergo_pairs(12, tmp_path, seed="tests")["found"] > 9
