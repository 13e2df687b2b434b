"""Other forms of the stored vectors: their accuracy and cost, computed from the store alone.

Each form is scored like the stored vectors, by ``tasks.scoring``, and compared with them query by query: the detail
holds the difference with its paired interval, the bytes per item, the seconds of scoring and the share of tied
queries. Quantised forms are scored as float32 numbers that rank the same way, so their seconds say nothing about
integer arithmetic. Torch is loaded when the first form is scored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from store.ragged import Ragged
from tasks.diagnosis.ablations import transforms
from tasks.diagnosis.ablations.low_precision import Scored, hits_scored_in
from tasks.diagnosis.ablations.transforms import BYTES, QUANTISED, ROUNDED
from tasks.diagnosis.analysis_input import METRIC, AnalysisInput
from tasks.diagnosis.slice_means import paired_difference
from tasks.diagnosis.slices import Slice
from tasks.diagnosis.vectors import LateInteractionVectors, Matrix, SingleVectors
from tasks.metrics import METRICS
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.tasks import RetrievalTask
from tasks.statistics.clusters import Clusters
from tasks.statistics.slices import part_means

POOLING_FACTORS = (1, 2, 3, 4, 6)
SINGLE_QUERIES = 5000  # at most, for single vectors
LATE_QUERIES = 400  # at most, for late interaction, whose scores cost thousands of times more than a dot product
FEWEST_COMPONENTS = 8  # of a shortened form


@dataclass(frozen=True, kw_only=True)
class Form:
    """One form of an encoder's vectors: the names of its slice, its size, and how it is made and scored."""

    analysis: str
    feature: str = ""
    level_name: str
    bytes_per_item: float
    score: Callable[[], Scored]


def vector_forms(data: AnalysisInput) -> Iterator[Slice]:
    """A slice per form of every encoder with stored vectors.

    For text to image, over a sample of the queries of large corpora; not for corpora of pairs or quadruples, whose
    galleries hold near copies.
    """
    if len(data.corpus.quadruples) or len(data.corpus.pairs):
        return
    for encoder in data.encoders:
        vectors = data.vectors(encoder)
        if vectors is None:
            continue
        storage = data.specs[encoder].storage
        if isinstance(vectors, LateInteractionVectors):
            task = sample_queries(restricted(data.task, vectors.images.ords), LATE_QUERIES, seed=data.resampling.seed)
            forms = late_forms(vectors, task, storage=storage)
        else:
            task = sample_queries(data.task, SINGLE_QUERIES, seed=data.resampling.seed)
            forms = single_forms(vectors, task, storage=storage)
        n_searched = len(task.galleries[0])
        metric = METRIC if n_searched == len(data.task.galleries[0]) else f"{METRIC} among {n_searched:,} images"
        clusters = Clusters.of(task.clusters, data.clusters.n_clusters, task.weights)
        stored: Scored | None = None
        for form in forms:
            scored = form.score()
            stored = stored or scored
            yield _slice(data, encoder, form, scored, stored, clusters, metric)


def restricted(task: RetrievalTask, images: NDArray[np.int32]) -> RetrievalTask:
    """The task of searching only some images, numbered from 0, with the queries whose relevant images are all there.

    ``task`` is text to image with one gallery; ``images`` are ords, ascending.
    """
    missing = np.add.reduceat(~np.isin(task.relevant, images), task.offsets[:-1])
    kept = _with_queries(task, np.flatnonzero(missing == 0))
    relevant = np.searchsorted(images, kept.relevant).astype(np.int32)
    return replace(kept, galleries=(np.arange(len(images), dtype=np.int32),), relevant=relevant)


def sample_queries(task: RetrievalTask, n: int, *, seed: int) -> RetrievalTask:
    """The task with at most ``n`` of its queries, drawn without replacement; gallery and weights stay."""
    if len(task.queries) <= n:
        return task
    return _with_queries(task, np.sort(np.random.default_rng(seed).choice(len(task.queries), n, replace=False)))


def renumbered(task: RetrievalTask) -> RetrievalTask:
    """The task for vectors of its queries alone, in their order."""
    return replace(task, queries=np.arange(len(task.queries), dtype=np.int32))


def _with_queries(task: RetrievalTask, kept: NDArray[np.intp]) -> RetrievalTask:
    relevant = [task.relevant[task.offsets[query] : task.offsets[query + 1]] for query in kept]
    return replace(
        task,
        query_ids=task.query_ids[kept],
        queries=task.queries[kept],
        clusters=task.clusters[kept],
        gallery_of=task.gallery_of[kept],
        offsets=np.concatenate([[0], np.cumsum(task.n_relevant[kept])]),
        relevant=np.concatenate(relevant),
        weights=task.weights[kept],
    )


def single_forms(vectors: SingleVectors, task: RetrievalTask, *, storage: str) -> Iterator[Form]:
    """Normalisation, precision, truncation and projection of single vectors; the first form is the stored one.

    Rounding to a finer type than ``storage`` is left out: the store does not hold what it would keep.
    """
    images, captions, queries = vectors.images, vectors.captions, vectors.captions[task.queries]
    dim, renumbered_task = images.shape[1], renumbered(task)

    def each(change: Callable[[Matrix], Matrix]) -> Callable[[], Scored]:
        return lambda: single_hits(change(images), change(queries), renumbered_task)

    def both(change: Callable[[Matrix, Matrix], tuple[Matrix, Matrix]]) -> Callable[[], Scored]:
        def score() -> Scored:
            changed_images, changed_captions = change(images, captions)
            return single_hits(changed_images, changed_captions[task.queries], renumbered_task)

        return score

    def unnormalised(images: Matrix, captions: Matrix) -> tuple[Matrix, Matrix]:
        return images * vectors.image_norms[:, None], captions * vectors.caption_norms[:, None]

    normalisation = partial(Form, analysis="normalisation", bytes_per_item=dim * BYTES[storage])
    yield normalisation(level_name="L2", score=partial(single_hits, images, queries, renumbered_task))
    yield normalisation(level_name="none", score=both(unnormalised))
    yield normalisation(level_name="centred per modality", score=both(transforms.centred))
    yield normalisation(level_name="whitened", score=both(transforms.whitened))
    changes = _precisions(transforms.reach(images, captions), storage, stored=transforms.stored)
    for kind, size in BYTES.items():
        precision = partial(Form, analysis="precision", level_name=kind, bytes_per_item=dim * size)
        if kind in changes:
            yield precision(feature="stored in", score=each(changes[kind]))
        if kind in ROUNDED:
            yield precision(feature="scored in", score=partial(hits_scored_in, kind, images, queries, renumbered_task))
    axes = cache(partial(transforms.principal_axes, images, captions))

    def projected(vectors: Matrix, n: int) -> Matrix:
        return transforms.normalised(vectors @ axes()[:, :n])

    for kept in (dim, *(dim // part for part in (2, 4, 8) if dim // part >= FEWEST_COMPONENTS)):
        shortened = partial(Form, level_name=f"{kept} components", bytes_per_item=kept * BYTES[storage])
        yield shortened(analysis="truncation", score=each(partial(transforms.truncated, dim=kept)))
        yield shortened(analysis="pca", score=each(partial(projected, n=kept)))


def late_forms(vectors: LateInteractionVectors, task: RetrievalTask, *, storage: str) -> Iterator[Form]:
    """Pooled images, and quantisation of all vectors, of late interaction; the first form is the stored one."""
    images, queries, renumbered_task = vectors.images, vectors.captions.take(task.queries), renumbered(task)
    trees = transforms.token_trees(images)
    for factor in POOLING_FACTORS:
        pooled = transforms.pooled(images, trees, factor)
        yield Form(
            analysis="pooling",
            level_name=f"1 of {factor}",
            bytes_per_item=pooled.values.size / len(pooled) * BYTES[storage],
            score=partial(late_hits, pooled, queries, renumbered_task),
        )

    def each(change: Callable[[Matrix], Matrix]) -> Callable[[], Scored]:
        return lambda: late_hits(
            images.with_values(change(images.values)), queries.with_values(change(queries.values)), renumbered_task
        )

    reach = transforms.reach(images.values, vectors.captions.values)
    for kind, change in _precisions(reach, storage, stored=transforms.rounded).items():
        size = images.values.size / len(images) * BYTES[kind]
        yield Form(analysis="quantisation", level_name=kind, bytes_per_item=size, score=each(change))


def _precisions(
    reach: NDArray[np.float32], storage: str, *, stored: Callable[..., Matrix]
) -> dict[str, Callable[[Matrix], Matrix]]:
    """Type -> rounding (by ``stored``) or quantisation to it, of the types that are not finer than the stored one."""
    changes: dict[str, Callable[[Matrix], Matrix]] = {
        kind: partial(stored, kind=kind) for kind in ROUNDED if BYTES[kind] <= BYTES[storage]
    }
    return changes | {kind: partial(transforms.quantised, kind=kind, reach=reach) for kind in QUANTISED}


def single_hits(images: Matrix, queries: Matrix, task: RetrievalTask) -> Scored:
    """The outcome of single vectors; the seconds are of scoring alone."""
    from tasks.scoring.dense import score_dense

    return _scored(partial(score_dense, images, queries, [task], top=1))


def late_hits(images: Ragged, queries: Ragged, task: RetrievalTask) -> Scored:
    """The outcome of late-interaction vectors, numbered from 0; the seconds are of scoring alone."""
    from tasks.scoring.late_interaction.maxsim import score_maxsim

    images, queries = (replace(side, ords=np.arange(len(side), dtype=np.int32)) for side in (images, queries))
    return _scored(partial(score_maxsim, lambda: [images], lambda: [queries], [task], top=1))


def _scored(score: Callable[[], dict[str, Outcomes]]) -> Scored:
    started = time.perf_counter()
    [outcomes] = score().values()
    seconds = time.perf_counter() - started
    return Scored(METRICS[METRIC].per_query(outcomes), outcomes.tied, seconds)


def _slice(
    data: AnalysisInput, encoder: str, form: Form, scored: Scored, stored: Scored, clusters: Clusters, metric: str
) -> Slice:
    both = np.stack([scored.hits, stored.hits])
    means = part_means(both, np.ones((1, len(scored.hits)), dtype=bool), clusters, data.resampling)
    change = paired_difference(both, clusters, data.resampling)
    return data.slice(
        encoder,
        form.analysis,
        form.feature,
        metric,
        means.interval(0, 0),
        level_name=form.level_name,
        counts=(len(scored.hits), clusters.n_occupied),
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
