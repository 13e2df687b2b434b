"""A metric or statistic whose code changes gets another version, so that stored figures are computed anew."""

from __future__ import annotations

import functools
import json

import pytest

from tests.metrics.code_digests import RECORD, today

TODAY = functools.cache(today)
RECORDED = json.loads(RECORD.read_text())
WHERE = {"statistics": "VERSION in tasks/statistics/__init__.py"}


def test_the_record_is_of_todays_metrics() -> None:
    assert RECORDED.keys() == TODAY().keys(), "run `python -m tests.metrics.code_digests`"


@pytest.mark.parametrize("name", RECORDED)
def test_code_that_changed_has_another_version(name: str) -> None:
    recorded, now = RECORDED[name], TODAY()[name]
    assert now == recorded, (
        f"the code of {name} differs from what was recorded for version {recorded['version']}. If any figure can "
        f"differ, raise {WHERE.get(name, f'`version` of {name} where its Metric is made (tasks/metrics/)')}, now "
        f"{now['version']}, and name old and new values in docs/corrected_values.md. Then "
        "`python -m tests.metrics.code_digests`"
    )
