"""Every adapter has the form that capim calls, and every family, loaded offline, passes the conformance suite.

Rows of the catalog whose model is in a package are found by themselves. Families by their real names are loaded from a
cache of checkpoints in miniature, whose weights are random; neither can be required to match pairs, so that check is
left out here. The trained models pass it in test_conformance.py.
"""

from __future__ import annotations

import inspect

import pytest

from capim.store.types import EncoderSpec
from capim.tasks.encoders import ADAPTERS, catalog, conformance
from capim.tasks.encoders.adapters import load_function
from capim.tasks.encoders.conformance import CHECKS, check_encoder
from tests.encoders.families.table import CASES

IN_PACKAGES = {name: entry for name, entry in catalog().items() if entry.checkpoint == entry.adapter}
TRIED = {"module", "http", "mteb", *(c.adapter for c in CASES.values()), *(e.adapter for e in IN_PACKAGES.values())}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long caption is long for a miniature, and a miniature may stay in memory."""
    monkeypatch.setattr(conformance, "LONG", conformance.LONG[: len(conformance.LONG) // 8])
    monkeypatch.setattr("gc.collect", lambda: 0)


def faults_of(spec: EncoderSpec, *, remote_code: bool = False) -> list[str]:
    results = list(check_encoder(spec, trust_remote_code=remote_code))
    if not ADAPTERS[spec.adapter].unverified:
        assert next(v.result for v in results if v.check == "no missing weights") == "pass"
    assert {v.check for v in results} >= {"loads offline", "no missing weights", *CHECKS}
    return [f"{v.check}: {v.detail}" for v in results if v.result == "fail" and v.check != "matching pairs"]


@pytest.mark.slow  # a whole suite of checks for every family
@pytest.mark.parametrize("name", CASES)
def test_family_passes_the_suite(name, family) -> None:
    assert not faults_of(family(name), remote_code=CASES[name].remote_code)


@pytest.mark.parametrize("name", IN_PACKAGES)
def test_a_model_in_a_package_passes_the_suite(name) -> None:
    assert not faults_of(IN_PACKAGES[name].spec)


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_loads_by_keywords_and_some_model_of_it_is_tried(name) -> None:
    parameters = inspect.signature(load_function(name)).parameters.values()
    assert [p.name for p in parameters] == ["spec", "device", "trust_remote_code"]
    assert [p.kind for p in parameters][1:] == [inspect.Parameter.KEYWORD_ONLY] * 2
    assert ADAPTERS[name].title
    assert name in TRIED or ADAPTERS[name].release, "no checkpoint in miniature: add a case to families/table.py"
