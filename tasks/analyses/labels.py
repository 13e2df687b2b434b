"""Labelled images: results by class, and confusions between classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from capim.store.schema import LABEL
from capim.tasks.analyses.analysis import AnalysisInput, QueryValues, Slice, mean_slices, part_slices

CONFUSIONS = 10  # of an encoder, those with most images


def classes(data: AnalysisInput) -> Iterator[Slice]:
    """Yield the metric per class of the image, and each encoder's most frequent confusions between classes."""
    labels = _labels(data)
    names = sorted({label for of_query in labels for label in of_query})
    parts = {(name, ""): np.array([name in of_query for of_query in labels]) for name in names}
    yield from part_slices(data, "class", parts, metric=data.metric)
    groups = data.corpus.captions["query_group"].to_pylist()
    rows = []
    for encoder, outcomes, top_ords in data.with_lists():
        if outcomes.protocol.sides[1] != "caption":
            continue
        given = [groups[first] for first in top_ords[:, 0].tolist()]
        pairs = [
            (of_query[0], answer) if missed else None
            for of_query, answer, missed in zip(labels, given, outcomes.missed, strict=True)
        ]
        for pair, _ in Counter(filter(None, pairs)).most_common(CONFUSIONS):
            rows.append(QueryValues(encoder, pair[0], np.array([each == pair for each in pairs]), level_name=pair[1]))
    yield from mean_slices(data, "confusion", rows, metric="share of images", share=True)


def _labels(data: AnalysisInput) -> list[list[str]]:
    """Return the labels of the image of every query."""
    groups = dict(zip(*(data.corpus.captions[name].to_pylist() for name in ("id", "query_group")), strict=True))
    found: dict[str, list[str]] = {}
    for row in data.corpus.relevance.to_pylist():
        if row["ground_truth"] == LABEL:
            found.setdefault(row["query_id"], []).append(groups[row["item_id"]])
    return [found[query] for query in data.queries.query_ids]
