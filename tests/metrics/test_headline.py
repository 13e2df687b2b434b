"""The headline of a corpus, by the protocols that it was evaluated by."""

from __future__ import annotations

import pytest

from capim.tasks.metrics import METRICS
from capim.tasks.metrics.table import RSUM, headline_of
from capim.tasks.protocols import MAIN, Protocol
from capim.tasks.ranking.protocols import PROTOCOLS


@pytest.mark.parametrize(
    ("evaluated", "expected"),
    [
        ("i2t/any t2i/all t2i/first i2t/any@image-as-query", {"t2i/all": "R@1", "i2t/any": "R@1"}),
        ("i2t/any i2t/any5", {"i2t/any": "R@1"}),
        ("t2i/all i2t/any winoground winoground/Object", {"winoground": "winoground_group"}),
        (
            "winoground/Object winoground/Both",
            {"winoground/Object": "winoground_group", "winoground/Both": "winoground_group"},
        ),
        ("t2i/all pairs/colour pairs/shape pairs/macro pairs/micro", {"pairs/macro": "pair_accuracy"}),
        ("aro/order aro/all-negatives", {"aro/order": "pair_accuracy"}),
        ("aro/all-negatives", {"aro/all-negatives": "pair_accuracy"}),
        ("t2i/judged", {"t2i/judged": "nDCG@10"}),
        ("t2i/all t2i/de/google i2t/de/google t2i/first", {"t2i/de/google": "R@1", "i2t/de/google": "R@1"}),
        ("t2i/first t2i/cxc i2t/cxc", {"t2i/cxc": "R@1", "i2t/cxc": "R@1"}),
        ("", {}),
    ],
)
def test_a_corpus_has_the_headline_of_its_kind(evaluated: str, expected: dict[str, str]) -> None:
    assert dict(headline_of(map(Protocol.of, evaluated.split()))) == expected


def test_headlines_are_protocols_and_metrics_of_the_tables() -> None:
    assert set(MAIN) <= set(PROTOCOLS)
    assert {figure.metric for figure in headline_of([rule.protocol for rule in PROTOCOLS.values()])} <= set(METRICS)
    assert RSUM.protocol == "t2i/all+i2t/any"
