"""Rows of two common forms: a feature that queries have or lack, and parts that queries fall into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from tasks.diagnosis.subject import Slice, Subject
from tasks.statistics.multiplicity import adjusted
from tasks.statistics.slices import PartMeans, part_means


def contrast_slices(
    subject: Subject,
    analysis: str,
    features: Mapping[str, NDArray[np.bool_]],
    *,
    metric: str,
    among: NDArray[np.bool_] | None = None,
) -> Iterator[Slice]:
    """With a feature, without it, and the difference, with p adjusted (Holm) over the features of an encoder.

    Args:
        subject: Encoders and queries.
        analysis: Name for the rows.
        features: Name -> which queries have it, shape ``(n_queries,)``.
        metric: Key of ``METRICS``.
        among: Queries of which it is known whether they have the features; the others count nowhere.
    """
    known = np.ones(len(subject.queries), dtype=bool) if among is None else among
    having = {name: has & known for name, has in features.items()}
    features = {name: has for name, has in having.items() if has.any() and (known & ~has).any()}
    if not features:
        return
    has_it = np.stack(list(features.values()))
    n = len(features)
    means = _means(subject, np.concatenate([has_it, known & ~has_it]), metric)
    for row, encoder in enumerate(subject.encoders):
        p_values = adjusted([means.p_value(row, at, n + at) for at in range(n)])
        for at, feature in enumerate(features):
            for level_name, part in (("with", at), ("without", n + at)):
                yield _slice(means, encoder, row, part, analysis, feature, level_name, metric)
            yield Slice(
                encoder=encoder,
                analysis=analysis,
                feature=feature,
                level_name="difference",
                metric=metric,
                interval=means.difference(row, at, n + at),
                n_queries=int(means.n_queries[at] + means.n_queries[n + at]),
                n_clusters=int(np.unique(subject.queries.clusters[known]).size),
                p_adjusted=p_values[at],
            )


def part_slices(
    subject: Subject,
    analysis: str,
    parts: Mapping[tuple[str, str], NDArray[np.bool_]],
    *,
    metric: str,
    details: Mapping[tuple[str, str], Mapping[str, object]] | None = None,
) -> Iterator[Slice]:
    """One row per encoder and part.

    Args:
        subject: Encoders and queries.
        analysis: Name for the rows.
        parts: Feature and level name -> which queries are in it. Parts without a query give no row.
        metric: Key of ``METRICS``.
        details: What to add to the rows of a part.
    """
    parts = {name: inside for name, inside in parts.items() if inside.any()}
    if not parts:
        return
    means = _means(subject, np.stack(list(parts.values())), metric)
    for row, encoder in enumerate(subject.encoders):
        for part, (feature, level_name) in enumerate(parts):
            detail = (details or {}).get((feature, level_name))
            yield _slice(means, encoder, row, part, analysis, feature, level_name, metric, detail)


def _means(subject: Subject, parts: NDArray[np.bool_], metric: str) -> PartMeans:
    return part_means(subject.values(metric), parts, subject.clusters, subject.resampling)


def _slice(
    means: PartMeans,
    encoder: str,
    row: int,
    part: int,
    analysis: str,
    feature: str,
    level_name: str,
    metric: str,
    detail: Mapping[str, object] | None = None,
) -> Slice:
    return Slice(
        encoder=encoder,
        analysis=analysis,
        feature=feature,
        level_name=level_name,
        metric=metric,
        interval=means.interval(row, part),
        n_queries=int(means.n_queries[part]),
        n_clusters=int(means.n_clusters[part]),
        detail=detail,
    )


def mean_slices(
    subject: Subject,
    analysis: str,
    rows: Mapping[tuple[str, str, str], NDArray[np.float64] | NDArray[np.bool_]],
    *,
    metric: str,
    details: Mapping[tuple[str, str, str], Mapping[str, object]] | None = None,
) -> Iterator[Slice]:
    """Means of given per-query values over all queries, with their intervals.

    Args:
        subject: Encoders and queries.
        analysis: Name for the rows.
        rows: Encoder, feature and level name -> a value of every query, shape ``(n_queries,)``; shares are of bools.
        metric: What the values are.
        details: What to add to a row.
    """
    if not rows:
        return
    means = part_means(
        np.stack([np.asarray(values, dtype=np.float64) for values in rows.values()]),
        np.ones((1, len(subject.queries)), dtype=bool),
        subject.clusters,
        subject.resampling,
    )
    for row, (encoder, feature, level_name) in enumerate(rows):
        detail = (details or {}).get((encoder, feature, level_name))
        yield _slice(means, encoder, row, 0, analysis, feature, level_name, metric, detail)
