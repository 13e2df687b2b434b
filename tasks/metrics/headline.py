"""The headline of a corpus: the figures that stand for it in planned tests and in the ranking over several corpora.

All other figures of a corpus are exploratory (``docs/protocols.md`` §6).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from capim.store.types import Direction, EvalProtocol
from capim.tasks.metrics.crosslingual import language_part
from capim.tasks.scoring.protocols.layout import is_judged

DIRECTIONS = ("t2i/all", "i2t/any")
"""The two protocols of the literature, whose recalls add up to RSUM."""


class Figure(NamedTuple):
    """One metric under one protocol."""

    protocol: str
    metric: str


RSUM = Figure("+".join(DIRECTIONS), "RSUM")


def headline_of(protocols: Iterable[EvalProtocol]) -> tuple[Figure, ...]:
    """The figures of a corpus that was evaluated by these protocols; their mean is the headline.

    The first that it has of

    1. quadruples: the group score of all, or of each tag where only these were evaluated;
    2. pairs: the accuracy, as the mean over categories, or of each category;
    3. judged documents: the metric that the corpus names, else nDCG@10;
    4. captions in several languages or by several translators: R@1 of each part, in the directions that were evaluated;
    5. retrieval: R@1 under ``t2i/all`` and ``i2t/any``, or under the one that was evaluated;
    6. R@1 under the first other protocol of each direction, by name.

    Examples:
        >>> def protocols(direction, *ids):
        ...     return [EvalProtocol(id=id_, direction=direction, title="") for id_ in ids]
        >>> retrieval = [*protocols("t2i", "t2i/all", "t2i/first"), *protocols("i2t", "i2t/any")]
        >>> headline_of(retrieval)
        (Figure(protocol='t2i/all', metric='R@1'), Figure(protocol='i2t/any', metric='R@1'))
        >>> headline_of([*retrieval, *protocols("quadruples", "winoground", "winoground/Object")])
        (Figure(protocol='winoground', metric='winoground_group'),)
    """
    ids: dict[Direction, list[str]] = {"quadruples": [], "pairs": [], "t2i": [], "i2t": []}
    judged = []
    for protocol in sorted(protocols, key=lambda p: p.id):
        if is_judged(protocol):
            judged.append(protocol)
            continue
        if "@" not in protocol.id:  # an orientation of late interaction
            ids[protocol.direction].append(protocol.id)
    retrieval = [*ids["t2i"], *ids["i2t"]]
    candidates = (
        ("winoground_group", [p for p in ids["quadruples"] if p == "winoground"]),
        ("winoground_group", ids["quadruples"]),
        ("pair_accuracy", [p for p in ids["pairs"] if p.endswith("/macro")]),
        ("pair_accuracy", [p for p in ids["pairs"] if not p.endswith(("/micro", "/all-negatives"))]),
        ("pair_accuracy", ids["pairs"][:1]),
        (judged[0].main_metric or "nDCG@10" if judged else "", [p.id for p in judged[:1]]),
        ("R@1", [p for p in retrieval if p.count("/") == 2]),
        ("R@1", [p for p in DIRECTIONS if p in retrieval]),
        ("R@1", [*ids["t2i"][:1], *ids["i2t"][:1]]),
    )
    return next((tuple(Figure(p, metric) for p in found) for metric, found in candidates if found), ())


def planned_figures(protocols: Iterable[EvalProtocol]) -> frozenset[Figure]:
    """The figures by which encoders are compared on purpose: the headline and RSUM.

    Of captions by language and translator these are the means over languages, not the figures of every language; the
    figures of the reference language are planned too.
    ``protocols`` are all that fit the corpus, whether they were evaluated or not: what is planned does not depend on
    what was looked at.
    """
    by_id = {protocol.id: protocol for protocol in protocols}
    spoken = {name: protocol.direction for name, protocol in by_id.items() if language_part(protocol) is not None}
    headline = {
        Figure(f"{spoken[figure.protocol]}/*/*", figure.metric) if figure.protocol in spoken else figure
        for figure in headline_of(by_id.values())
    }
    if any("*" in figure.protocol for figure in headline):
        headline |= {Figure(protocol, "R@1") for protocol in DIRECTIONS if protocol in by_id}
    return frozenset({*headline, *([RSUM] if by_id.keys() >= set(DIRECTIONS) else ())})
