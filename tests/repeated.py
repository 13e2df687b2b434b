"""Corpora of every kind with an image that repeats another and two that nothing names, and what holds of their figures.

Equal bytes are one photograph, and so one cluster; an image that nothing names is searched, and never drawn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from capim.store.schema import COMPOSED, REVISITED, SIMILARITY, SUBSET, Result, texts
from capim.store.types import Corpus
from capim.tasks.corpora.build import CaptionRow, ImageRow, RelevanceRow, build_corpus
from capim.tasks.corpora.images.source import photograph_key
from capim.tasks.corpora.readers.pages import read_pages
from capim.tasks.corpora.readers.shapes import (
    read_shapes,
    read_shapes_labels,
    read_shapes_multilingual,
    read_shapes_winoground,
)
from capim.tasks.metrics import Metric
from capim.tasks.metrics.retrieval import RECALLS
from capim.tasks.metrics.table import RSUM
from capim.tasks.protocols import MAIN
from capim.tasks.ranking.evaluate import evaluate
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import drawn_clusters, drawn_images, select_protocols
from capim.tasks.results.combined import (
    combined_figures,
    language_rows,
    language_values,
    part_of,
    rsum_row,
    rsum_values,
)
from capim.tasks.results.comparison import compared_figures, compared_metrics, encoder_key, figure_rows
from capim.tasks.results.suite import cluster_photographs, photographs_of
from capim.tasks.results.summary import Evaluated, Source, result_rows
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import ClusteredValues, cluster_robust_error
from tests.results.thirty import thirty_images

SOURCE = Source(evaluation="x", encoder="x", encoder_fingerprint="x", corpus="x", corpus_fingerprint="x", run="x")
QUICK = Resampling(replicates=50, permutations=99)
ENCODERS = ("one", "two")
DIM = 8
FIRST = 5  # protocols of a corpus that are looked at, and as many of the last: some have over a hundred
N = 20  # images that ask, or are asked for


def image_queries() -> Corpus:
    """Texts that change images, with hard subsets; images that search images; and rated pairs."""
    ids = [f"i{k}" for k in range(N)]
    changes = [CaptionRow(f"t{k}", None, f"darker {k}", query_group=ids[k]) for k in range(N)]
    relevance = [RelevanceRow(COMPOSED, "t2i", f"t{k}", ids[k - 3]) for k in range(N)]
    relevance += [RelevanceRow(SUBSET, "t2i", f"t{k}", ids[k - at]) for k in range(N) for at in range(1, 5)]
    relevance += [RelevanceRow(SIMILARITY, "i2i", ids[k], ids[k - 1], 7 * k % 11) for k in range(1, N, 2)]
    relevance += [RelevanceRow(REVISITED, "i2i", ids[k], ids[10 + k % 9], 1 + k % 2) for k in (*range(9), N - 1)]
    return build_corpus("queries", [ImageRow(id_) for id_ in ids], changes, source=None, relevance=relevance)


KINDS: Mapping[str, Callable[[], Corpus]] = {
    "captions": lambda: read_shapes(n_scenes=N),
    "languages": lambda: read_shapes_multilingual(n_scenes=N),
    "labels": lambda: read_shapes_labels(n_scenes=N),
    "judged": lambda: read_pages(n_reports=3),
    "quadruples": lambda: read_shapes_winoground(n_quadruples=N),
    "pairs": thirty_images,
    "image queries": image_queries,
}
"""A small corpus of every kind."""


def repeated(corpus: Corpus) -> Corpus:
    """The corpus with two more images, its second and its last, that nothing names; its last own repeats its first."""
    rows = corpus.images.to_pylist()
    rows[-1]["sha"] = rows[0]["sha"] = "the same bytes"
    bare = [rows[0] | {"id": name, "key": name, "sha": name, "objects": None} for name in ("bare", "bare, too")]
    images = pa.Table.from_pylist([rows[0], bare[0], *rows[1:], bare[1]], schema=corpus.images.schema)
    return replace(corpus, images=images, source=None)


def photographs(corpus: Corpus) -> NDArray[np.int64]:
    """The number of the photograph that each image shows: of images with equal bytes, or of boxes of one file, one."""
    shown = np.arange(len(corpus.images))
    for column in (corpus.images["sha"].to_pylist(), map(photograph_key, texts(corpus.images["key"]))):
        first: dict[Any, int] = {}
        for at, value in enumerate(column):
            if value is not None:
                shown[shown == shown[at]] = shown[first.setdefault(value, at)]
    return shown


def vectors_of(corpus: Corpus, seed: int) -> dict[str, Any]:
    """Random unit vectors; of equal bytes the same."""
    counts = {"images": len(corpus.images), "captions": len(corpus.captions)}
    sides = {side: np.random.default_rng(seed).normal(size=(n, DIM)) for side, n in counts.items()}
    shas = corpus.images["sha"].to_pylist()
    sides["images"] = sides["images"][[at if sha is None else shas.index(sha) for at, sha in enumerate(shas)]]
    return {side: (of / np.linalg.norm(of, axis=1, keepdims=True)).astype(np.float32) for side, of in sides.items()}


def outcomes_of(corpus: Corpus, *ids: str) -> dict[str, dict[str, Outcomes]]:
    """Protocol -> encoder -> outcomes, of two encoders."""
    protocols = select_protocols(corpus, ids, vectors="single")
    found = {name: evaluate(corpus, protocols, **vectors_of(corpus, seed)) for seed, name in enumerate(ENCODERS)}
    return {each.id: {name: of[each.id] for name, of in found.items()} for each in protocols}


def clusters_of(corpus: Corpus, outcomes: Outcomes) -> NDArray[np.integer]:
    """The cluster of each query: its photograph, or the first of its group or of the quadruples that share one."""
    by_image = outcomes.protocol.kind not in ("judged", "quadruples")
    return photographs(corpus)[outcomes.clusters] if by_image else outcomes.clusters


def assert_figures(corpus: Corpus) -> None:
    """Every figure has numpy's value and error over the clusters that equal bytes leave, and so has its difference."""
    every = [*outcomes_of(corpus).items()]
    by_protocol = dict(every[:FIRST] + every[FIRST:][-FIRST:])
    rows: dict[tuple[str, str], dict[str, Result]] = defaultdict(dict)
    compared, combined = [], {}
    for name in ENCODERS:
        results, combined[name] = combined_of(corpus, {id_: of[name] for id_, of in by_protocol.items()})
        for outcomes in (encoders[name] for encoders in by_protocol.values()):
            each = Evaluated.of(outcomes, corpus, SOURCE)
            photographed = cluster_photographs(corpus, photographs_of(corpus), outcomes.protocol)
            assert len(photographed) == each.clusters.n_clusters, outcomes.protocol
            results += (made := result_rows([each], QUICK))
            for row, (metric, sample) in zip(made, each.samples, strict=True):
                assert_mean(row, metric, sample, outcomes, clusters_of(corpus, outcomes))
        for row in results:
            rows[row.protocol, row.metric][name] = row
    for encoders in by_protocol.values():
        keys = {encoder_key(name, name): outcomes for name, outcomes in encoders.items()}
        frame = drawn_clusters(corpus, encoders["one"].protocol)
        compared += compared_figures(keys, compared_metrics(encoders.values()), frame)
    compared += combined_figures({encoder_key(name, name): values for name, values in combined.items()})
    differences = figure_rows(compared, corpus="c", corpus_fingerprint="g", run="r", resampling=QUICK)
    with_value = {figure for figure, of in rows.items() if of["one"].value is not None}
    assert {(pair.protocol, pair.metric) for pair in differences} >= with_value
    for pair in differences:
        one, two = (rows[pair.protocol, pair.metric][name] for name in ENCODERS)
        assert pair.n_clusters == one.n_clusters, pair
        if pair.difference is not None:
            assert one.value is not None and two.value is not None
            assert pair.difference == pytest.approx(one.value - two.value, abs=1e-9), pair


def assert_mean(
    row: Result, metric: Metric, sample: ClusteredValues, outcomes: Outcomes, clusters: NDArray[np.integer]
) -> None:
    """The number of clusters of a figure; and of a mean the value and its error, written out."""
    known = ~np.isnan(values := metric.per_query(outcomes))
    values, clusters, weights = values[known], clusters[known], outcomes.weights[known]
    mean, names = np.average(values, weights=weights), np.unique(clusters)
    assert row.n_clusters == len(names), row
    if metric.reduce == "mean":
        assert row.value == pytest.approx(mean, abs=1e-12), row
        off = np.array([(weights * (values - mean))[clusters == name].sum() for name in names])
        error = np.sqrt(len(names) / max(1, len(names) - 1) * np.square(off).sum()) / weights.sum()
        if len(names) > 1:
            assert cluster_robust_error(*sample) == pytest.approx(error, abs=1e-12), row


def combined_of(corpus: Corpus, outcomes: Mapping[str, Outcomes]) -> tuple[list[Result], dict[Any, Any]]:
    """The results of one encoder by RSUM and by means over languages, checked against numpy, and their values."""
    rows, values = list[Result](), dict[Any, Any]()
    if outcomes.keys() >= set(MAIN):
        both, frame = [outcomes[id_] for id_ in MAIN], drawn_images(corpus)
        values |= rsum_values(both, drawn=frame)
        rows.append(rsum_row(both[0], both[1], SOURCE, drawn=frame, resampling=QUICK))
        recalls = [np.average(metric.per_query(each), weights=each.weights) for each in both for metric in RECALLS]
        assert rows[0].value == pytest.approx(100 * np.sum(recalls)) == values[RSUM][0].mean()
        assert rows[0].n_clusters == len({*clusters_of(corpus, both[0]), *clusters_of(corpus, both[1])})
    of_languages = [each for each in outcomes.values() if each.protocol.is_of_language]
    if of_languages:
        reference = corpus.languages_reference
        parts = [part_of(each, drawn=drawn_clusters(corpus, each.protocol)) for each in of_languages]
        values |= language_values(parts, reference=reference)
        rows += language_rows(parts, SOURCE, reference=reference, resampling=QUICK)
    return rows, values
