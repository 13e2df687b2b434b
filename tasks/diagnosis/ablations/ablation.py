"""What it would cost to store or compare vectors otherwise: every row is made from the store alone.

Each variant is scored as the stored vectors are, by ``tasks.scoring``, and compared query by query with them: the
detail holds the difference with its paired interval, the bytes of one item, the seconds of scoring and the share of
queries in a tie. Quantised forms are scored as float32 numbers that rank the same way, so their seconds are no
promise of what integer code would take. Torch is loaded when the first variant is scored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from store.types import EncoderSpec
from tasks.diagnosis.ablations import variants
from tasks.diagnosis.ablations.embedded import Multi, Ragged, Single
from tasks.diagnosis.ablations.low_precision import Scored, hits_scored_in
from tasks.diagnosis.ablations.variants import BYTES, ROUNDED, Matrix
from tasks.diagnosis.subject import Slice, Subject
from tasks.metrics import METRICS
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.selection import build_task
from tasks.scoring.protocols.tasks import RetrievalTask
from tasks.statistics.bootstrap import paired_intervals
from tasks.statistics.clusters import Clusters
from tasks.statistics.slices import part_means

METRIC = "R@1"
POOLED = (2, 3, 4, 6)
SINGLE_QUERIES = 5000  # asked of single vectors: every form is a product with the whole gallery
MULTI_QUERIES = 400  # asked of multi-vectors, whose scores cost thousands of times more than a dot product
FEWEST = 8  # components that a shortened form keeps at least
_QUANTISED = ("int8", "binary")


class Form(NamedTuple):
    """One other form of an encoder's vectors; ``score`` makes it and asks it what is asked of the stored ones."""

    analysis: str
    feature: str
    level_name: str
    bytes_per_item: float
    score: Callable[[RetrievalTask], Scored]


def ablations(subject: Subject) -> Iterator[Slice]:
    """Rows of every form of every encoder whose vectors are stored.

    Text to image, asked of a sample of the queries (all, in small corpora); not on corpora made of quadruples or
    pairs, whose galleries hold near copies.
    """
    corpus = subject.corpus
    made_of_choices = len(corpus.quadruples) or len(corpus.pairs)
    if subject.protocol.direction != "t2i" or made_of_choices:
        return
    judgement = build_task(corpus, subject.protocol)
    if not isinstance(judgement, RetrievalTask):
        return
    seed = subject.resampling.seed
    for encoder in subject.encoders:
        vectors, spec = subject.embedded(encoder), subject.specs[encoder]
        stored_in = spec.storage if isinstance(spec, EncoderSpec) else "float16"
        if isinstance(vectors, Multi):
            asked = sampled(among(judgement, vectors.image_ords), MULTI_QUERIES, seed=seed)
            stored = multi_hits(vectors.images, vectors.captions, asked)
            forms = multi_forms(vectors, storage=stored_in)
        elif isinstance(vectors, Single):
            asked = sampled(judgement, SINGLE_QUERIES, seed=seed)
            stored = dense_hits(vectors.images.matrix, vectors.captions.matrix, asked)
            forms = dense_forms(vectors, storage=stored_in)
        else:
            continue
        whole = len(asked.galleries[0]) == len(judgement.galleries[0])
        metric = METRIC if whole else f"{METRIC} among {len(asked.galleries[0]):,} images"
        clusters = Clusters.of(asked.clusters, subject.clusters.n_clusters, asked.weights)
        for form in forms:
            yield _row(subject, encoder, form, form.score(asked), stored, clusters, metric)


def among(judgement: RetrievalTask, images: NDArray[np.int32]) -> RetrievalTask:
    """The queries whose relevant images are all among some images, and these as the gallery, numbered from 0.

    Args:
        judgement: Text to image, of one gallery.
        images: Their ords, ascending.
    """
    inside = np.isin(judgement.relevant, images)
    lost = np.add.reduceat(~inside, judgement.offsets[:-1]) > 0
    kept = _queries(judgement, np.flatnonzero(~lost))
    return replace(
        kept,
        galleries=(np.arange(len(images), dtype=np.int32),),
        relevant=np.searchsorted(images, kept.relevant).astype(np.int32),
    )


def sampled(judgement: RetrievalTask, n: int, *, seed: int) -> RetrievalTask:
    """The judgement with at most ``n`` of its queries, drawn without replacement; all of the gallery stays.

    Weights stay as they are.
    """
    if len(judgement.queries) <= n:
        return judgement
    return _queries(judgement, np.sort(np.random.default_rng(seed).choice(len(judgement.queries), n, replace=False)))


def _queries(judgement: RetrievalTask, kept: NDArray[np.intp]) -> RetrievalTask:
    """Some of the queries, by position."""
    lists = [judgement.relevant[judgement.offsets[q] : judgement.offsets[q + 1]] for q in kept]
    return replace(
        judgement,
        query_ids=judgement.query_ids[kept],
        queries=judgement.queries[kept],
        clusters=judgement.clusters[kept],
        gallery_of=judgement.gallery_of[kept],
        offsets=np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64),
        relevant=np.concatenate(lists),
        weights=judgement.weights[kept],
    )


def renumbered(judgement: RetrievalTask) -> RetrievalTask:
    """The judgement for a matrix that holds the vectors of its queries alone, in their order."""
    return replace(judgement, queries=np.arange(len(judgement.queries), dtype=np.int32))


def dense_forms(vectors: Single, *, storage: str) -> Iterator[Form]:
    """Precision, normalisation, truncation and projection of single vectors.

    A form finer than ``storage`` cannot be had from the store, so it is left out.
    """
    images, captions = vectors.images.matrix, vectors.captions.matrix
    dim = images.shape[1]
    half = dim * BYTES["float16"]
    reach = np.maximum(np.abs(images).max(axis=0), np.abs(captions).max(axis=0))

    def each(change: Callable[[Matrix], Matrix]) -> Callable[[RetrievalTask], Scored]:
        return lambda asked: dense_hits(change(images), change(captions[asked.queries]), renumbered(asked))

    def together(change: Callable[[Matrix, Matrix], tuple[Matrix, Matrix]]) -> Callable[[RetrievalTask], Scored]:
        return lambda asked: dense_hits(*change(images, captions), asked)

    def scored_in(kind: str) -> Callable[[RetrievalTask], Scored]:
        return lambda asked: hits_scored_in(kind, images, captions[asked.queries], renumbered(asked))

    for kind in ROUNDED:
        size = dim * BYTES[kind]
        if BYTES[kind] <= BYTES[storage]:
            yield Form("precision", "stored in", kind, size, each(partial(variants.rounded, kind=kind)))
        yield Form("precision", "scored in", kind, size, scored_in(kind))
    for kind in _QUANTISED:
        change = partial(variants.quantised, kind=kind, reach=reach)
        yield Form("precision", "stored in", kind, dim * BYTES[kind], each(change))
    yield Form("normalisation", "", "L2", half, each(lambda vectors: vectors))
    norms = vectors.images.norms[:, None], vectors.captions.norms[:, None]
    yield Form("normalisation", "", "none", half, together(lambda i, c: (i * norms[0], c * norms[1])))
    yield Form("normalisation", "", "centred per modality", half, together(variants.centred))
    yield Form("normalisation", "", "whitened", half, together(variants.whitened))
    axes = cache(partial(variants.principal_axes, images, captions))

    def projected(kept: int) -> Callable[[Matrix], Matrix]:
        return lambda vectors: variants.normalised(vectors @ axes()[:, :kept])

    for kept in (dim, *(dim // part for part in (2, 4, 8) if dim // part >= FEWEST)):
        name, size = f"{kept} components", kept * BYTES["float16"]
        yield Form("truncation", "", name, size, each(partial(variants.truncated, dim=kept)))
        yield Form("pca", "", name, size, each(projected(kept)))


def multi_forms(vectors: Multi, *, storage: str) -> Iterator[Form]:
    """Quantisation of all vectors, and pooling of the images', of late-interaction encoders."""
    images, captions = vectors.images, vectors.captions
    n, dim = len(images.offsets) - 1, images.values.shape[1]
    reach = np.maximum(np.abs(images.values).max(axis=0), np.abs(captions.values).max(axis=0))

    def each(change: Callable[[Matrix], Matrix]) -> Callable[[RetrievalTask], Scored]:
        return lambda judgement: multi_hits(
            images.with_values(change(images.values)), captions.with_values(change(captions.values)), judgement
        )

    per_image = len(images.values) / n * dim
    for kind in (kind for kind in ROUNDED if BYTES[kind] <= BYTES[storage]):
        change = partial(variants.rounded, kind=kind)
        yield Form("quantisation", "", kind, per_image * BYTES[kind], each(change))
    for kind in _QUANTISED:
        change = partial(variants.quantised, kind=kind, reach=reach)
        yield Form("quantisation", "", kind, per_image * BYTES[kind], each(change))
    trees = variants.token_trees(images)
    for factor in (1, *POOLED):
        merged = variants.pooled(images, trees, factor)
        size = len(merged.values) / n * dim * BYTES["float16"]
        yield Form("pooling", "", f"1 of {factor}", size, partial(multi_hits, merged, captions))


def dense_hits(images: Matrix, captions: Matrix, judgement: RetrievalTask) -> Scored:
    """What single vectors get; the seconds are of scoring alone."""
    from tasks.scoring.dense import score_dense

    started = time.perf_counter()
    found = score_dense(images, captions, [judgement], top=1)
    return _scored(found[judgement.protocol.id], time.perf_counter() - started)


def multi_hits(images: Ragged, captions: Ragged, judgement: RetrievalTask) -> Scored:
    """What multi-vectors get for captions as queries; the seconds are of scoring alone."""
    from tasks.scoring.late_interaction.maxsim import score_maxsim

    asked = captions.take(judgement.queries)
    started = time.perf_counter()
    found = score_maxsim(images.blocks, asked.blocks, [renumbered(judgement)], top=1)
    return _scored(found[judgement.protocol.id], time.perf_counter() - started)


def _scored(outcomes: Outcomes, seconds: float) -> Scored:
    return Scored(METRICS[METRIC].per_query(outcomes), outcomes.tied, seconds)


def _row(
    subject: Subject, encoder: str, form: Form, scored: Scored, stored: Scored, clusters: Clusters, metric: str
) -> Slice:
    percentile = replace(subject.resampling, method="percentile")
    both = np.stack([scored.hits, stored.hits])
    everything = np.ones((1, len(scored.hits)), dtype=bool)
    means = part_means(both, everything, clusters, percentile)
    [change] = paired_intervals(both, clusters, [(0, 1)], percentile)
    return Slice(
        encoder=encoder,
        analysis=form.analysis,
        feature=form.feature,
        level_name=form.level_name,
        metric=metric,
        interval=means.interval(0, 0),
        n_queries=len(scored.hits),
        n_clusters=clusters.n_occupied,
        detail={
            "bytes_per_item": form.bytes_per_item,
            "seconds": scored.seconds,
            "tie_share": float(scored.tied.mean()),
            "n_tied": int(scored.tied.sum()),
            "change": change.value,
            "change_low": change.low,
            "change_high": change.high,
        },
    )
