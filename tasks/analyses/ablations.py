"""The cost of storing, computing or comparing vectors differently: other forms, precisions and devices.

Each form of the stored vectors is scored by ``tasks.ranking`` and compared with them query by query. The detail holds
the difference with its paired interval, the bytes per item and the share of tied queries; and the number of all
queries, if a sample was scored. A form with parameters from vectors (means, axes, ranges) is fitted on one half of the
images and tested with the queries of the other. Quantised forms are scored as float32 numbers with the same ranking, so
no time was measured that applies to integer arithmetic. Torch is loaded when the first form is scored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import permutations
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from capim.store.schema import Batch
from capim.store.schema import Slice as SliceRow
from capim.store.types import Corpus, EncoderSpec
from capim.tasks.analyses import transforms
from capim.tasks.analyses.analysis import (
    R1,
    AnalysisInput,
    Matrix,
    SingleVectors,
    Slice,
    as_change,
    paired_differences,
    slice_rows,
)
from capim.tasks.analyses.transforms import BYTES, QUANTISED, ROUNDED, Change
from capim.tasks.analyses.vectors import chosen
from capim.tasks.ranking.layout import IndexSpace, layout_of
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import drawn_clusters
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.intervals import Interval
from capim.tasks.statistics.slices import part_means

MOST_QUERIES = 5000
FEWEST_COMPONENTS = 8  # of a shortened form
_BLOCK_BYTES = 64 << 20  # of scores in a lower precision

Parameters = TypeVar("Parameters")

FITTED_ON = "the half of the images, and their captions, that the query does not belong to"


class Scored(NamedTuple):
    """The outcome of some vectors under one protocol.

    ``hits``: expected hit at 1 of every query, equal scores in random order. ``tied``: True if the best relevant item
    of a query is tied with an irrelevant one.
    """

    hits: NDArray[np.float64]
    tied: NDArray[np.bool_]


def cross_fitted(
    task: RetrievalTask, second_half: NDArray[np.bool_], score: Callable[[bool, RetrievalTask], Scored]
) -> Scored:
    """Return the outcome of all queries of a task, each half with parameters from the other half of the images.

    Both halves search the whole gallery, so that the outcome can be compared with that of the stored vectors.

    Args:
        task: The task; its clusters are images of the corpus.
        second_half: Mask of the corpus' images in the second half (``AnalysisInput.second_half``).
        score: ``score(half, task)`` scores the queries of one half (``True``: the second).
    """
    of_query = second_half[task.clusters]
    hits, tied = np.empty(len(of_query)), np.empty(len(of_query), dtype=np.bool_)
    for half in (False, True):
        kept = np.flatnonzero(of_query == half)
        if len(kept):
            scored = score(half, task.of_queries(kept))
            hits[kept], tied[kept] = scored.hits, scored.tied
    return Scored(hits, tied)


@dataclass(frozen=True, kw_only=True)
class VectorForm:
    """One form of an encoder's vectors: the names of its slice, its size, and a function that makes and scores it.

    ``fitted``: True if parameters of the form come from vectors: those of the half of the images without the query.
    """

    analysis: str
    feature: str = ""
    level_name: str
    bytes_per_item: float
    score: Callable[[], Scored]
    fitted: bool = False


def vector_forms(data: AnalysisInput) -> Iterator[Slice]:
    """Yield a slice per form of every encoder with one stored vector per item.

    For text to image, over a sample of the queries of large corpora. Corpora of pairs or quadruples are left out,
    because their galleries hold near copies.
    """
    if len(data.corpus.quadruples) or len(data.corpus.pairs) or data.clusters.n_occupied < 2:
        return
    task = sample_queries(data.task, MOST_QUERIES, seed=data.resampling.seed)
    clusters = Clusters.of(task.clusters, drawn_clusters(data.corpus, data.protocol), task.weights)
    for encoder, _, vectors in data.with_single_vectors():
        rows, found = [], []
        for form in single_forms(data, vectors, task, storage=data.specs[encoder].storage):  # each holds its vectors
            scored = form.score()
            found.append(scored.hits)
            detail = {
                "bytes_per_item": form.bytes_per_item,
                "tie_share": float(scored.tied.mean()),
                "n_tied": int(scored.tied.sum()),
                "n_all_queries": len(data.task.queries),
                **({"fitted_on": FITTED_ON} if form.fitted else {}),
            }
            about = encoder, form.analysis, form.feature, R1.name
            rows.append((partial(Slice, *about, level_name=form.level_name), detail))
        hits = np.stack(found)
        means = part_means(hits, np.ones((1, len(task.queries)), dtype=bool), clusters, data.resampling)
        changes = paired_differences(hits, clusters, [(at, 0) for at in range(len(hits))], data.resampling)
        for at, ((figure, detail), change) in enumerate(zip(rows, changes, strict=True)):
            yield figure(means.interval(at, 0), *means.counts(at, 0), detail=detail | as_change(change))


def sample_queries(task: RetrievalTask, n: int, *, seed: int) -> RetrievalTask:
    """Return the task with at most ``n`` of its queries, drawn without replacement; gallery and weights stay."""
    return task.of_queries(chosen(len(task.queries), n, seed))


def renumbered(task: RetrievalTask) -> RetrievalTask:
    """Return the task for vectors of its queries only, in their order."""
    space = IndexSpace("caption", task.query_ords)
    return replace(task, query_space=space, queries=np.arange(len(task.queries), dtype=np.int32))


def single_forms(
    data: AnalysisInput, vectors: SingleVectors, task: RetrievalTask, *, storage: str
) -> Iterator[VectorForm]:
    """Yield normalisation, precision, truncation and projection of single vectors; the first form is the stored one.

    Rounding to a finer type than ``storage`` is left out: the store does not hold the difference.
    """
    images, captions = vectors.images, vectors.captions
    dim, all_queries = images.shape[1], renumbered(task)
    queries = captions[task.query_ords]
    second_half = data.second_half[layout_of(data.corpus).caption_images]

    def each(change: Callable[[Matrix], Matrix]) -> Callable[[], Scored]:
        return lambda: single_hits(change(images), change(queries), all_queries)

    def fitted(change_of: Callable[[bool], Change]) -> Callable[[], Scored]:
        return lambda: cross_fitted(
            task,
            data.second_half,
            lambda half, part: single_hits(*change_of(half)(images, captions[part.query_ords]), renumbered(part)),
        )

    def from_other(fit: Callable[[Matrix, Matrix], Parameters]) -> Callable[[bool], Parameters]:
        """Return parameters fitted on the images and captions outside a half, for either half; computed once."""
        return cache(lambda half: fit(images[data.second_half != half], captions[second_half != half]))

    axes, reach = from_other(transforms.principal_axes), from_other(transforms.reach)

    def projected(half: bool, n: int) -> Change:
        return transforms.both(lambda rows: transforms.normalised(rows @ axes(half)[:, :n]))

    def quantised(half: bool, kind: str) -> Change:
        return transforms.both(partial(transforms.quantised, kind=kind, reach=reach(half)))

    normalisation = partial(VectorForm, analysis="normalisation", bytes_per_item=dim * BYTES[storage])
    yield normalisation(level_name="L2", score=partial(single_hits, images, queries, all_queries))
    as_encoded = images * vectors.image_norms[:, None], queries * vectors.caption_norms[task.query_ords][:, None]
    yield normalisation(level_name="none", score=partial(single_hits, *as_encoded, all_queries))
    for name, fit in (("centred per modality", transforms.centring), ("whitened", transforms.whitening)):
        yield normalisation(level_name=name, score=fitted(from_other(fit)), fitted=True)
    for kind, size in BYTES.items():
        precision = partial(VectorForm, analysis="precision", level_name=kind, bytes_per_item=dim * size)
        if kind in QUANTISED:
            yield precision(feature="stored in", score=fitted(partial(quantised, kind=kind)), fitted=kind != "binary")
        elif size <= BYTES[storage]:
            yield precision(feature="stored in", score=each(partial(transforms.stored, kind=kind)))
        if kind in ROUNDED:
            yield precision(feature="scored in", score=partial(hits_scored_in, kind, images, queries, all_queries))
    for kept in (dim, *(dim // part for part in (2, 4, 8) if dim // part >= FEWEST_COMPONENTS)):
        shortened = partial(VectorForm, level_name=f"{kept} components", bytes_per_item=kept * BYTES[storage])
        yield shortened(analysis="truncation", score=each(partial(transforms.truncated, dim=kept)))
        yield shortened(analysis="pca", score=fitted(partial(projected, n=kept)), fitted=True)


def single_hits(images: Matrix, queries: Matrix, task: RetrievalTask) -> Scored:
    """Return the outcome of single vectors."""
    from capim.tasks.ranking.cosine import dense_part

    return _scored(lambda: dense_part(images, queries, [task], top=1).outcomes())


def hits_scored_in(kind: str, images: Matrix, captions: Matrix, task: RetrievalTask) -> Scored:
    """Return the outcome of single vectors kept, like their scores, in a lower precision (``docs/protocols.md``).

    ``kind`` is ``float32``, ``bfloat16`` or ``float16``. The vectors are rounded and multiplied, products are summed in
    float32 as in hardware, and the sum is rounded again: the result of a matrix product in that type.
    """
    from capim.tasks.ranking.ranker import ScoreRows, retrieval_outcomes, rows_of_table

    def rows() -> Iterator[ScoreRows]:
        sides = [transforms.rounded(vectors, kind) for vectors in (captions, images)]
        queries, items = sides if task.protocol.direction == "t2i" else sides[::-1]
        step = max(1, _BLOCK_BYTES // (4 * len(items)))
        for start in range(0, len(queries), step):
            scores = transforms.rounded(queries[start : start + step] @ items.T, kind)
            yield from rows_of_table(scores, queries_from=start)

    return _scored(lambda: retrieval_outcomes(rows(), [task], top=1))


def _scored(score: Callable[[], dict[str, Outcomes]]) -> Scored:
    [outcomes] = score().values()
    return Scored(R1.per_query(outcomes), outcomes.tied)


def forward_precision(data: AnalysisInput) -> Iterator[Slice]:
    """Yield ``R@1`` of encoders that differ only in the precision of the forward pass, coarser minus finer.

    That precision is part of an encoder's specification, so each is an encoder with separate vectors. The
    difference has the number of queries with a different first item in its detail.
    """
    values = data.values(R1)
    specs = {name: spec for name, spec in data.specs.items() if name in data.outcomes}
    for finer, coarser in differing_in_precision(specs):
        pair = data.encoders.index(coarser), data.encoders.index(finer)
        [difference] = paired_differences(values, data.clusters, [pair], data.resampling)
        lists = [data.outcomes[name].top_ords for name in (coarser, finer)]
        firsts = [ords[:, 0] for ords in lists if ords is not None]
        differs = int((firsts[0] != firsts[1]).sum()) if len(firsts) == 2 else None
        detail = {"first_item_differs": differs}
        yield Slice(coarser, "forward precision", f"minus {finer}", R1.name, difference, *data.counts, detail=detail)


def differing_in_precision(specs: Mapping[str, EncoderSpec]) -> list[tuple[str, str]]:
    """Return pairs of encoders that differ only in the precision of the forward pass, the finer one first.

    Examples:
        >>> of = dict(adapter="a", checkpoint="c", revision="r", dim=2)
        >>> differing_in_precision({"half": EncoderSpec(name="half", precision="bfloat16", **of),
        ...     "full": EncoderSpec(name="full", precision="float32", **of)})
        [('full', 'half')]
    """
    order = {name: ROUNDED.index(spec.precision) for name, spec in specs.items()}
    rest = {name: {**spec.identity(), "precision": ""} for name, spec in specs.items()}
    return [(a, b) for a, b in permutations(specs, 2) if order[a] < order[b] and rest[a] == rest[b]]


def device_rows(batches: Iterable[Batch], *, corpus: Corpus, run: str) -> list[SliceRow]:
    """Return items per second of the forward pass per encoder, modality and device: rows of analysis ``hardware``.

    The value is the median over batches without warm-up, the ends are the quartiles. An encoder that ran on only one
    device has no rows.
    """
    rates: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for row in batches:
        if row.forward_seconds and not row.warmup:
            devices = rates.setdefault((row.encoder, row.encoder_fingerprint, row.modality), {})
            devices.setdefault(row.device, []).append(row.n_items / row.forward_seconds)
    rows: list[SliceRow] = []
    for (encoder, fingerprint, modality), devices in rates.items():
        slices = []
        for device, per_second in devices.items():
            low, median, high = np.quantile(per_second, (0.25, 0.5, 0.75)).tolist()
            quartiles = "quartiles over batches, not a confidence interval"
            interval, n = Interval(value=median, low=low, high=high, reason=quartiles), len(per_second)
            about = encoder, "hardware", modality, "items per second"
            slices.append(Slice(*about, interval, n, n, level_name=device, detail={"batches": n}))
        if len(devices) > 1:
            protocol, fingerprints = f"encode/{modality}", {encoder: fingerprint}
            rows += slice_rows(slices, corpus=corpus, protocol=protocol, fingerprints=fingerprints, run=run)
    return rows
