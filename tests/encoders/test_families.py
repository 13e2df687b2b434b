"""Every family, loaded offline by its real name from a cache, passes the conformance suite.

Their weights are random, so the check of matching pairs is left out here; the trained models pass it in
test_conformance.py.
"""

from __future__ import annotations

import pytest

from tasks.encoders.conformance.suite import CHECKS, check_encoder
from tests.encoders.families.table import CASES


@pytest.mark.parametrize("name", CASES)
def test_family_passes_the_suite(name, family) -> None:
    results = list(check_encoder(family(name), trust_remote_code=CASES[name].remote_code))
    assert {v.check for v in results} >= {"loads offline", "no missing weights", *CHECKS}
    faults = [v for v in results if v.result == "fail" and v.check != "matching pairs"]
    assert not faults
