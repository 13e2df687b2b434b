"""Every adapter has the form that capim calls, and every family, loaded offline, passes the conformance suite.

Families by their real names are loaded from a cache of checkpoints in miniature. Their weights are random, so that they
cannot be required to match pairs, and that check is left out here. The trained models pass it in test_conformance.py.
"""

from __future__ import annotations

import inspect

import pytest

from capim.tasks.encoders import ADAPTERS, conformance
from capim.tasks.encoders.adapters import load_function
from capim.tasks.encoders.conformance import CHECKS, check_encoder
from tests.encoders.families.table import CASES

TRIED = {"module", "http", "mteb", *(case.adapter for case in CASES.values())}


@pytest.mark.slow  # a whole suite of checks for every family
@pytest.mark.parametrize("name", CASES)
def test_family_passes_the_suite(name, family, monkeypatch) -> None:
    monkeypatch.setattr(conformance, "LONG", conformance.LONG[: len(conformance.LONG) // 8])  # enough for a miniature,
    monkeypatch.setattr("gc.collect", lambda: 0)  # which may stay in memory
    results = {row.check: row for row in check_encoder(family(name), trust_remote_code=CASES[name].remote_code)}
    assert results.keys() >= {"loads offline", "no missing weights", *CHECKS}
    assert results["no missing weights"].result == "pass"
    assert not [row for row in results.values() if row.result == "fail" and row.check != "matching pairs"]


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_loads_by_keywords_and_some_model_of_it_is_tried(name) -> None:
    parameters = inspect.signature(load_function(name)).parameters.values()
    assert [p.name for p in parameters] == ["spec", "device", "trust_remote_code"]
    assert [p.kind for p in parameters][1:] == [inspect.Parameter.KEYWORD_ONLY] * 2
    assert ADAPTERS[name].title
    assert name in TRIED or ADAPTERS[name].release, "no checkpoint in miniature: add a case to families/table.py"
