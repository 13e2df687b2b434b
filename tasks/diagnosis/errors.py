"""Every miss gets one kind, the first that applies; hits and misses together are all queries.

======================  ===============================================================================
``tie``                 nothing scores above the best relevant item, but something irrelevant as high
``false negative``      the first item is wrong by this ground truth and right by CxC or ECCV Caption
``near miss``           a relevant item stands at 2 to 10
``hub``                 the first item is a hub (``tasks.diagnosis.hubs``)
``rest``                none of these
======================  ===============================================================================
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from store.types import Corpus
from tasks.diagnosis.contrasts import mean_slices
from tasks.diagnosis.hubs import K, is_hub, k_occurrence
from tasks.diagnosis.subject import Slice, Subject
from tasks.scoring.outcomes import Outcomes

NEAR = 10
SHOWN = 5
Kinds = dict[str, NDArray[np.bool_]]


def errors(subject: Subject) -> Iterator[Slice]:
    """Shares of all queries per kind; in the detail its share of the misses, and the clearest examples."""
    if subject.protocol.direction not in ("t2i", "i2t"):
        return
    shares, details = {}, {}
    positives = extra_positives(subject.corpus, subject.protocol.direction)
    for encoder, outcomes in subject.outcomes.items():
        kinds = miss_kinds(outcomes, subject.corpus, positives)
        n_missed = sum(int(kind.sum()) for name, kind in kinds.items() if name != "hit")
        for name, kind in kinds.items():
            key = (encoder, name, "")
            shares[key] = kind
            if name != "hit":
                share = int(kind.sum()) / n_missed if n_missed else 0.0
                details[key] = {"share_of_misses": share, "examples": _examples(outcomes, kind)}
    yield from mean_slices(subject, "errors", shares, metric="share of queries", details=details)


def miss_kinds(outcomes: Outcomes, corpus: Corpus, positives: NDArray[np.int64] | None) -> Kinds:
    """Kind -> which queries are of it, shape ``(n_queries,)``; every query is of exactly one.

    Kinds that the data cannot tell are absent: ``false negative`` without an extra ground truth, ``hub`` without
    result lists.

    Args:
        outcomes: Of one encoder.
        corpus: That they are of.
        positives: From :func:`extra_positives`.
    """
    n_items = len(corpus.images if outcomes.protocol.direction == "t2i" else corpus.captions)
    left = np.ones(len(outcomes), dtype=bool)
    kinds: Kinds = {}

    def take(name: str, which: NDArray[np.bool_]) -> None:
        nonlocal left
        kinds[name] = which & left
        left = left & ~which

    take("hit", outcomes.rank_worst == 1)
    take("tie", outcomes.rank_best == 1)
    if outcomes.top_ords is not None:
        first = outcomes.top_ords[:, 0].astype(np.int64)
        if positives is not None:
            take("false negative", np.isin(outcomes.query_ords.astype(np.int64) * n_items + first, positives))
    take("near miss", outcomes.rank_best <= NEAR)
    if outcomes.top_ords is not None:
        take("hub", is_hub(k_occurrence(outcomes.top_ords, K, n_items))[first])
    take("rest", left)
    return kinds


def extra_positives(corpus: Corpus, direction: str) -> NDArray[np.int64] | None:
    """The pairs that any extra ground truth calls right, as ``query_ord * n_items + item_ord``, ascending.

    None where the corpus has no extra ground truth for the direction.
    """
    rows = corpus.relevance.filter(pc.equal(corpus.relevance["direction"], direction))
    if not len(rows):
        return None
    queries, items = (corpus.captions, corpus.images) if direction == "t2i" else (corpus.images, corpus.captions)
    pairs = _ords(rows["query_id"], queries) * len(items) + _ords(rows["item_id"], items)
    return np.unique(pairs)


def _ords(ids: pa.ChunkedArray, table: pa.Table) -> NDArray[np.int64]:
    found: NDArray[np.int64] = pc.index_in(ids, table["id"].combine_chunks()).to_numpy().astype(np.int64)
    return found


def _examples(outcomes: Outcomes, kind: NDArray[np.bool_]) -> list[str]:
    """Query ids of a kind, those first whose relevant item stands furthest down."""
    places = np.flatnonzero(kind)
    order = np.argsort(-outcomes.rank_best[places].astype(np.int64), kind="stable")[:SHOWN]
    return [str(outcomes.query_ids[place]) for place in places[order]]
