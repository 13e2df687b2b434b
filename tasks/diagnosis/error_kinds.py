"""The kind of every error. Each query has exactly one kind, the first that applies; hits are a kind too.

======================  ===============================================================================
``hit``                 the best relevant item alone is first
``tie``                 nothing scores above the best relevant item, but an irrelevant item scores the same
``false negative``      the first item is right by another annotation (``tasks.diagnosis.content.also_right``)
``near miss``           the best relevant item is at rank 2 to 10
``hub``                 the first item is a hub (``tasks.diagnosis.hubs``)
``rest``                none of these
======================  ===============================================================================
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from capim.store.types import Corpus
from capim.tasks.diagnosis.analysis_input import AnalysisInput
from capim.tasks.diagnosis.content.also_right import first_is_right
from capim.tasks.diagnosis.hubs import K, is_hub, k_occurrence
from capim.tasks.diagnosis.slice_means import QueryValues, mean_slices
from capim.tasks.diagnosis.slices import Slice
from capim.tasks.scoring.outcomes import Outcomes

NEAR = 10
N_EXAMPLES = 5


def error_kinds(data: AnalysisInput) -> Iterator[Slice]:
    """Share of all queries per kind; the detail holds its share of the errors, and the clearest examples."""
    rows = []
    for encoder, outcomes in data.outcomes.items():
        sources = first_is_right(outcomes, data.corpus)
        kinds = kinds_of(outcomes, data.corpus, np.any(list(sources.values()), axis=0) if sources else None)
        rows.append(QueryValues(encoder, "hit", kinds.pop("hit")))
        n_errors = sum(int(kind.sum()) for kind in kinds.values())
        for name, kind in kinds.items():
            share = int(kind.sum()) / n_errors if n_errors else 0.0
            examples = clearest(outcomes, kind, outcomes.rank_best)
            rows.append(QueryValues(encoder, name, kind, {"share_of_misses": share, "examples": examples}))
    yield from mean_slices(data, "errors", rows, metric="share of queries")


def kinds_of(outcomes: Outcomes, corpus: Corpus, first_right: NDArray[np.bool_] | None) -> dict[str, NDArray[np.bool_]]:
    """Kind -> which queries are of it, shape ``(n_queries,)``; every query is of exactly one.

    ``first_right``: whether another annotation calls the first item right; None where the corpus has no other, and
    ``false negative`` is then absent. ``hub`` is absent without result lists.
    """
    n_items = len(corpus.images if outcomes.protocol.direction == "t2i" else corpus.captions)
    tests = {"hit": outcomes.rank_worst == 1, "tie": outcomes.rank_best == 1}
    if first_right is not None:
        tests["false negative"] = first_right
    tests["near miss"] = outcomes.rank_best <= NEAR
    if outcomes.top_ords is not None:
        tests["hub"] = is_hub(k_occurrence(outcomes.top_ords, K, n_items))[outcomes.top_ords[:, 0]]
    tests["rest"] = left = np.ones(len(outcomes), dtype=bool)
    kinds = {}
    for name, applies in tests.items():
        kinds[name] = applies & left
        left = left & ~applies
    return kinds


def clearest(outcomes: Outcomes, chosen: NDArray[np.bool_], rank: NDArray[np.integer]) -> list[str]:
    """Ids of at most ``N_EXAMPLES`` chosen queries, the highest ``rank`` (best rank of a relevant item) first."""
    places = np.flatnonzero(chosen)
    order = np.argsort(-rank[places].astype(np.int64), kind="stable")[:N_EXAMPLES]
    return [str(outcomes.query_ids[place]) for place in places[order]]
