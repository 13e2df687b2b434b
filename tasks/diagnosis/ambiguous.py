"""Ambiguous misses: misses that may be no mistake of the encoder (``docs/protocols.md`` §5b).

==============  =====================================================================================
``annotation``  the item in first place is right by another annotation (``tasks.diagnosis.content.also_right``)
``agreement``   most encoders have the same wrong item in first place. A suspicion: encoders that were
                trained alike make the same mistakes
==============  =====================================================================================

A miss has the best relevant item strictly below the first place; a tie is no miss. Nothing is dropped: R@1 stays what
it is, and beside it stands the mean over the queries that are no ambiguous misses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from capim.tasks.diagnosis.analysis_input import METRIC, AnalysisInput
from capim.tasks.diagnosis.content.also_right import first_is_right
from capim.tasks.diagnosis.slice_means import QueryValues, mean_slices
from capim.tasks.diagnosis.slices import Slice

ANALYSIS = "ambiguous"
WITHOUT = "R@1 without ambiguous misses"
SHARE = "share of misses"
CAUSES = ("annotation", "agreement")
FEWEST = 3  # encoders that agree; so many are needed for a suspicion at all
MOST = 2 / 3  # of the encoders with result lists


def ambiguous(data: AnalysisInput) -> Iterator[Slice]:
    """R@1 of all queries and without the ambiguous misses, by cause and by either, and their share of the misses.

    The share of ``annotation`` and ``agreement`` has the ids of the queries in its detail, and the sources of each.
    An encoder without result lists has no rows, and fewer than ``FEWEST`` encoders have none of ``agreement``.
    """
    known = with_lists_only(data)
    causes, sources = causes_of(known) if known is not None else ({}, {})
    if known is None or not causes:
        return
    hits = known.values(METRIC)
    rows = [QueryValues(name, "all queries", hits[at]) for at, name in enumerate(known.encoders)]
    yield from mean_slices(known, ANALYSIS, rows, metric=METRIC, share=True)
    kept, shares = [], []
    for cause, marked in {**causes, "either": np.any(list(causes.values()), axis=0)}.items():
        for at, (name, outcomes) in enumerate(known.outcomes.items()):
            missed = outcomes.rank_best > 1
            detail: dict[str, object] = {"ambiguous": int(marked[at].sum()), "misses": int(missed.sum())}
            if cause in CAUSES:
                detail["queries"] = [str(query) for query in outcomes.query_ids[marked[at]]]
            if cause == "annotation":
                says = sources[name].items()
                detail["sources"] = [
                    ", ".join(source for source, right in says if right[query]) for query in np.flatnonzero(marked[at])
                ]
            if not marked[at].all():
                kept.append(QueryValues(name, cause, np.where(marked[at], np.nan, hits[at])))
            if missed.any():
                shares.append(QueryValues(name, cause, np.where(missed, marked[at], np.nan), detail))
    yield from mean_slices(known, ANALYSIS, kept, metric=WITHOUT, share=True)
    yield from mean_slices(known, ANALYSIS, shares, metric=SHARE, share=True)


def without_ambiguous(data: AnalysisInput) -> AnalysisInput | None:
    """The same input with R@1 over the queries that are no ambiguous misses, for analyses by part of the queries.

    None where the metric is another one, or no cause can be known.
    """
    known = with_lists_only(data)
    if known is None or data.given is not None or data.metric != METRIC or not (causes := causes_of(known)[0]):
        return None
    marked = np.any(list(causes.values()), axis=0)
    values = np.where(marked, np.nan, known.values(METRIC))
    return replace(known, metric=WITHOUT, given=dict(zip(known.encoders, values, strict=True)))


def with_lists_only(data: AnalysisInput) -> AnalysisInput | None:
    """The input of the encoders with result lists under a retrieval protocol; None without any."""
    outcomes = {name: found for name, found, _ in data.with_lists()}
    return replace(data, outcomes=outcomes) if outcomes and data.protocol.direction in ("t2i", "i2t") else None


def causes_of(
    data: AnalysisInput,
) -> tuple[dict[str, NDArray[np.bool_]], dict[str, dict[str, NDArray[np.bool_]]]]:
    """Cause -> which misses it marks, shape ``(n_encoders, n_queries)``; encoder -> source -> where it says so.

    A cause is absent where it cannot be known: no other annotation, or fewer than ``FEWEST`` encoders.
    """
    missed = np.stack([outcomes.rank_best > 1 for outcomes in data.outcomes.values()])
    sources = {name: first_is_right(outcomes, data.corpus) for name, outcomes in data.outcomes.items()}
    causes = {}
    if all(sources.values()):
        causes["annotation"] = missed & np.stack([np.any(list(by.values()), axis=0) for by in sources.values()])
    if len(missed) >= FEWEST:
        first = np.stack([top_ords[:, 0] for _, _, top_ords in data.with_lists()])
        causes["agreement"] = missed & (agreeing(first) >= max(FEWEST, MOST * len(first)))
    return causes, sources


def agreeing(first: NDArray[np.integer]) -> NDArray[np.int64]:
    """How many encoders have the same item in first place, the encoder itself included; the shape of ``first``.

    ``first`` holds the items, shape ``(n_encoders, n_queries)``.

    Examples:
        >>> agreeing(np.array([[7, 1], [7, 2], [3, 1], [7, 5]])).tolist()
        [[3, 2], [3, 1], [1, 2], [3, 1]]
    """
    return np.stack([(first == row).sum(axis=0) for row in first])
