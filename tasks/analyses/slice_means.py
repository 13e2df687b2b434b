"""Slices that are means over queries: with and without a feature, over parts of the queries, or over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capim.tasks.analyses.analysis_input import AnalysisInput
from capim.tasks.analyses.slices import Slice
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.decision import adjusted
from capim.tasks.statistics.intervals import Interval, in_agreement, paired_intervals
from capim.tasks.statistics.resampling import Resampling
from capim.tasks.statistics.slices import label_tests, part_means


class QueryValues(NamedTuple):
    """One value per query, shape ``(n_queries,)``, whose mean is a slice; the mean of bools is a share.

    A query with NaN leaves the mean and its counts.
    """

    encoder: str
    feature: str
    values: NDArray[np.float64] | NDArray[np.bool_]
    detail: Mapping[str, object] | None = None
    level_name: str = ""


def contrast_slices(
    data: AnalysisInput, analysis: str, features: Mapping[str, NDArray[np.bool_]], *, among: NDArray[np.bool_]
) -> Iterator[Slice]:
    """``data.metric`` with each feature, without it, and the difference, over the queries ``among`` which it is known.

    The p-values of the differences are adjusted (Holm) over the features of an encoder. A feature that all or none of
    the queries have gives no slice. ``features``: name -> which queries have it, shape ``(n_queries,)``.
    """
    features = {name: has & among for name, has in features.items()}
    features = {name: has for name, has in features.items() if has.any() and (among & ~has).any()}
    if not features:
        return
    has_it, n = np.stack(list(features.values())), len(features)
    parts = np.concatenate([has_it, among & ~has_it])
    values = data.values(data.metric)
    share = data.is_share(data.metric)
    means = part_means(values, parts, data.clusters, data.resampling, share=share)
    for row, encoder in enumerate(data.encoders):
        compared = among & ~np.isnan(values[row])
        counts = int(compared.sum()), int(np.unique(data.queries.clusters[compared]).size)
        [tests] = label_tests(values[row : row + 1], has_it, compared, data.clusters)
        small = [means.too_small(row, at, n + at) is not None or np.isnan(tests[at]) for at in range(n)]
        p_values = adjusted([None if small[at] else float(tests[at]) for at in range(n)])
        for at, feature in enumerate(features):
            make = partial(data.slice, encoder, analysis, feature, data.metric)
            yield make(means.interval(row, at), level_name="with", counts=means.counts(row, at))
            yield make(means.interval(row, n + at), level_name="without", counts=means.counts(row, n + at))
            p = None if small[at] else float(tests[at])
            difference = in_agreement(means.difference(row, at, n + at), p, level=data.resampling.level)
            yield make(difference, level_name="difference", counts=counts, p_adjusted=p_values[at])


def part_slices(
    data: AnalysisInput,
    analysis: str,
    parts: Mapping[tuple[str, str], NDArray[np.bool_]],
    *,
    metric: str,
    values: Mapping[str, NDArray[np.float64]] | None = None,
    details: Mapping[tuple[str, str], Mapping[str, object]] | None = None,
) -> Iterator[Slice]:
    """The mean of a metric over each part of the queries, for every encoder.

    The keys of ``parts`` and ``details`` are feature and level name; a part without a query gives no slice. ``values``
    (encoder -> one value per query) replace the metric of all encoders, and ``metric`` is then their name.
    """
    parts = {name: inside for name, inside in parts.items() if inside.any()}
    if not parts:
        return
    table = data.values(metric) if values is None else np.stack(list(values.values()))
    share = values is None and data.is_share(metric)
    means = part_means(table, np.stack(list(parts.values())), data.clusters, data.resampling, share=share)
    for row, encoder in enumerate(data.encoders if values is None else values):
        for part, (feature, level_name) in enumerate(parts):
            yield data.slice(
                encoder,
                analysis,
                feature,
                metric,
                means.interval(row, part),
                level_name=level_name,
                counts=means.counts(row, part),
                detail=(details or {}).get((feature, level_name)),
            )


def mean_slices(
    data: AnalysisInput, analysis: str, rows: Sequence[QueryValues], *, metric: str, share: bool = False
) -> Iterator[Slice]:
    """The mean of the given values over all queries, one slice per row; ``share``: the values are hits and misses."""
    if not rows:
        return
    table = np.stack([np.asarray(row.values, dtype=np.float64) for row in rows])
    means = part_means(table, np.ones((1, len(data.queries)), dtype=bool), data.clusters, data.resampling, share=share)
    for at, (encoder, feature, _, detail, level_name) in enumerate(rows):
        interval = means.interval(at, 0)
        counts = means.counts(at, 0)
        yield data.slice(
            encoder, analysis, feature, metric, interval, level_name=level_name, counts=counts, detail=detail
        )


def paired_difference(values: NDArray[np.float64], clusters: Clusters, resampling: Resampling) -> Interval:
    """The mean of the first row minus that of the second, with its paired percentile interval.

    ``values`` hold one value per query, shape ``(2, n_queries)``.
    """
    [interval] = paired_intervals(values, clusters, [(0, 1)], replace(resampling, method="percentile"))
    return interval
