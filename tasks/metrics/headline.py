"""The headline of a corpus: the figures that stand for it in planned tests and in the ranking over several corpora.

All other figures of a corpus are exploratory (``docs/protocols.md`` §6).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from capim.tasks.protocols import ALL_NEGATIVES, MAIN, Kind, Protocol


class Figure(NamedTuple):
    """One metric under one protocol."""

    protocol: str
    metric: str


RSUM = Figure("+".join(MAIN), "RSUM")


def headline_of(protocols: Iterable[Protocol]) -> tuple[Figure, ...]:
    """The figures of a corpus that was evaluated by these protocols; their mean is the headline.

    The first that it has of

    1. quadruples: the group score of all, or of each tag where only these were evaluated;
    2. pairs: the accuracy, as the mean over categories, or of each category;
    3. judged documents: the metric that the corpus names, else nDCG@10;
    4. captions in several languages or by several translators: R@1 of each part, in the directions that were evaluated;
    5. retrieval: R@1 under ``t2i/all`` and ``i2t/any``, or under the one that was evaluated;
    6. R@1 under the first other protocol of each direction, by name.

    Examples:
        >>> retrieval = list(map(Protocol.of, ("t2i/all", "t2i/first", "i2t/any")))
        >>> headline_of(retrieval)
        (Figure(protocol='t2i/all', metric='R@1'), Figure(protocol='i2t/any', metric='R@1'))
        >>> headline_of([*retrieval, Protocol.of("winoground"), Protocol.of("winoground/Object")])
        (Figure(protocol='winoground', metric='winoground_group'),)
    """
    of_kind: dict[Kind, list[Protocol]] = {}
    for protocol in sorted(protocols, key=lambda p: p.id):
        if not protocol.orientation:
            of_kind.setdefault(protocol.kind, []).append(protocol)
    quadruples, pairs, judged, retrieval = (
        of_kind.get(kind, []) for kind in ("quadruples", "pairs", "judged", "retrieval")
    )
    first = {protocol.direction: protocol for protocol in reversed(retrieval)}
    candidates = (
        ("winoground_group", [p for p in quadruples if not p.name] or quadruples),
        ("pair_accuracy", [p for p in pairs if p.name == "macro"]),
        ("pair_accuracy", [p for p in pairs if p.name not in ("micro", ALL_NEGATIVES)] or pairs[:1]),
        (judged[0].main_metric or "nDCG@10" if judged else "", judged[:1]),
        ("R@1", sorted((p for p in retrieval if p.is_of_language), key=lambda p: p.direction == "i2t")),
        ("R@1", [p for id_ in MAIN for p in retrieval if p.id == id_]),
        ("R@1", [first[direction] for direction in ("t2i", "i2t") if direction in first]),
    )
    return next((tuple(Figure(p.id, metric) for p in found) for metric, found in candidates if found), ())


def planned_figures(protocols: Iterable[Protocol]) -> frozenset[Figure]:
    """The figures by which encoders are compared on purpose: the headline and RSUM.

    Of captions by language and translator these are the means over languages, not the figures of every language; the
    figures of the reference language are planned too.
    ``protocols`` are all that fit the corpus, whether they were evaluated or not: what is planned does not depend on
    what was looked at.
    """
    by_id = {protocol.id: protocol for protocol in protocols}
    headline = set[Figure]()
    for figure in headline_of(by_id.values()):
        protocol = by_id[figure.protocol]
        if protocol.is_of_language:
            headline |= {Figure(protocol.mean_over_languages.id, figure.metric)}
            headline |= {Figure(id_, figure.metric) for id_ in MAIN if id_ in by_id}
        else:
            headline.add(figure)
    return frozenset({*headline, *([RSUM] if by_id.keys() >= set(MAIN) else ())})
