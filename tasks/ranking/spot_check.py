"""Outcomes of some queries compared with their definition: exact scores in float64, counted without any ranker."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from capim.store.vectors import Ragged
from capim.tasks.ranking.apart import sides_of
from capim.tasks.ranking.cosine import VectorRows
from capim.tasks.ranking.maxsim_products import Blocks
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.tasks import ChoiceTask, RetrievalTask, ScoringTask, query_columns

_SLACK = 2e-6  # of a score in float32, which is summed in another order on every device
_ROWS = 4096  # whose vectors are in memory at once


def wrong_outcomes(
    task: ScoringTask,
    outcomes: Outcomes,
    images: VectorRows | Blocks,
    captions: VectorRows | Blocks,
    chosen: NDArray[np.intp],
) -> Iterator[str]:
    """What is wrong with stored outcomes of a task, one text for each query.

    Args:
        task: What it says of its queries is compared for all of them.
        chosen: Positions of the queries in the task whose scores, ranks and best lists are computed again.
    """
    place = {query: row for row, query in enumerate(outcomes.query_ids)}
    missing = [query for query in task.query_ids if query not in place]
    if missing or len(place) != len(task.query_ids):
        yield f"{len(place)} outcomes are stored, of {len(task.query_ids)} queries; missing are {missing[:3]}"
        return
    rows = np.array([place[query] for query in task.query_ids])
    for name, values in query_columns(task).items():
        if name not in ("protocol", "query_ids"):
            stored = getattr(outcomes, name)[rows]
            for at in np.flatnonzero(stored != values)[:3]:
                yield f"query {task.query_ids[at]!r}: {name} is stored as {stored[at]}, computed as {values[at]}"
    if isinstance(task, ChoiceTask):
        yield from _wrong_choices(task, outcomes, images, captions, chosen, rows[chosen])
    else:
        yield from _wrong_ranks(task, outcomes, images, captions, chosen, rows[chosen])


def _wrong_ranks(
    task: RetrievalTask,
    outcomes: Outcomes,
    images: VectorRows | Blocks,
    captions: VectorRows | Blocks,
    chosen: NDArray[np.intp],
    rows: NDArray[np.intp],
) -> Iterator[str]:
    some, ords = task.of_queries(chosen), None
    if task.is_apart and not callable(images) and not callable(captions):
        some, captions, images, ords = sides_of(some, images, captions)
    to_images = task.is_apart or task.protocol.direction == "t2i"
    for number, gallery in enumerate(some.galleries):
        within = np.flatnonzero(some.gallery_of == number)
        if not len(within):
            continue
        asked, shown = (some.queries[within], gallery) if to_images else (gallery, some.queries[within])
        scores = _scores(images, captions, asked, shown, orientation=task.protocol.orientation)
        for at, of_query in zip(within, scores if to_images else scores.T, strict=True):
            searched = np.ones(len(gallery), dtype=np.bool_)
            if some.excluded is not None:
                searched = ~np.isin(gallery, some.excluded[some.excluded[:, 0] == at, 1])
            relevant = np.isin(gallery[searched], some.relevant[some.offsets[at] : some.offsets[at + 1]])
            items = (gallery if ords is None else ords[gallery])[searched]
            for what in _wrong(outcomes, rows[at], items, of_query[searched], relevant):
                yield f"query {some.query_ids[at]!r}: {what}"


def _wrong(
    outcomes: Outcomes,
    row: int,
    gallery: NDArray[np.int32],
    scores: NDArray[np.float64],
    relevant: NDArray[np.bool_],
) -> Iterator[str]:
    """What of the outcomes of a query no scores give that differ from these by rounding."""
    slack = _SLACK * max(1.0, float(np.abs(scores).max()))
    own, others = np.sort(scores[relevant])[::-1], np.sort(scores[~relevant])
    places = np.arange(1, len(own) + 1) + len(others)
    least = places - np.searchsorted(others, own + slack, side="right")
    most = places - np.searchsorted(others, own - slack, side="left")
    best, worst = (
        getattr(outcomes, f"relevant_rank_{end}")[outcomes.offsets[row] : outcomes.offsets[row + 1]]
        for end in ("best", "worst")
    )
    ends = [int(outcomes.rank_best[row]), int(outcomes.rank_worst[row])]
    if (least > best).any() or (best > worst).any() or (worst > most).any() or ends != [best[0], worst[0]]:
        of_others = f", and of all relevant items {best.tolist()[:5]}, computed {least.tolist()[:5]}"
        first = [int(least[0]), int(most[0])]
        yield f"ranks {ends} are stored, computed {first}{of_others if len(own) > 1 else ''}"
    if not abs(outcomes.best_score[row] - own[0]) <= slack:
        yield f"the best relevant score is stored as {outcomes.best_score[row]}, computed as {own[0]:.7f}"
    if outcomes.top_ords is not None and outcomes.top_scores is not None:
        listed = outcomes.top_ords[row] >= 0
        items, stored = outcomes.top_ords[row][listed], outcomes.top_scores[row][listed]
        if not np.isin(items, gallery).all():
            yield "its list has items that are not in its gallery"
            return
        expected = np.sort(scores)[::-1][: len(items)]
        for computed in (scores[np.searchsorted(gallery, items)], expected):
            if not (np.abs(computed - stored) <= slack).all():
                off = int(np.argmin(np.abs(computed - stored) <= slack))
                yield f"place {off + 1} of its list is stored with score {stored[off]}, computed {computed[off]:.7f}"
                return


def _wrong_choices(
    task: ChoiceTask,
    outcomes: Outcomes,
    images: VectorRows | Blocks,
    captions: VectorRows | Blocks,
    chosen: NDArray[np.intp],
    rows: NDArray[np.intp],
) -> Iterator[str]:
    if outcomes.scores is None:
        return
    (of_captions, row), (of_images, column) = (
        np.unique(np.maximum(ords[chosen], 0), return_inverse=True) for ords in (task.captions, task.images)
    )
    table = _scores(images, captions, of_captions, of_images)
    row, column = row.reshape(len(chosen), -1), column.reshape(len(chosen), -1)
    for at, each in enumerate(chosen):
        computed = np.where(task.captions[each][:, None] >= 0, table[np.ix_(row[at], column[at])], np.nan).ravel()
        stored = outcomes.scores[rows[at]]
        if not np.allclose(stored, computed, rtol=_SLACK, atol=_SLACK, equal_nan=True):
            yield f"query {task.query_ids[each]!r}: scores {stored.tolist()} are stored, computed {computed.tolist()}"


def _scores(
    images: VectorRows | Blocks,
    captions: VectorRows | Blocks,
    caption_ords: NDArray[np.int32],
    image_ords: NDArray[np.int32],
    orientation: str = "",
) -> NDArray[np.float64]:
    """The scores of captions (rows) with images; of multi-vectors, those of the fewer items are in memory."""
    table = np.empty((len(caption_ords), len(image_ords)))
    if not callable(images) and not callable(captions):
        for top in range(0, len(caption_ords), _ROWS):
            rows = captions[caption_ords[top : top + _ROWS]].astype(np.float64)
            for left in range(0, len(image_ords), _ROWS):
                columns = images[image_ords[left : left + _ROWS]].astype(np.float64)
                table[top : top + _ROWS, left : left + _ROWS] = rows @ columns.T
        return table
    if not callable(images) or not callable(captions):
        raise TypeError("images and captions must be of one kind")
    few_captions = len(caption_ords) <= len(image_ords)
    few, many = (captions, images) if few_captions else (images, captions)
    few_ords, many_ords = (caption_ords, image_ords) if few_captions else (image_ords, caption_ords)
    of_few = Ragged.concatenate(few(few_ords))
    vectors, starts = of_few.values.astype(np.float64), of_few.offsets[:-1]
    by_item = table.T if few_captions else table
    for at, item in enumerate(item for block in many(many_ords) for item in block):
        products = vectors @ item.astype(np.float64).T
        if few_captions != (orientation == "image-as-query"):
            by_item[at] = np.add.reduceat(products.max(axis=1), starts)
        else:
            by_item[at] = np.maximum.reduceat(products, starts, axis=0).sum(axis=1)
        if orientation == "transposed-per-token":
            by_item[at] /= of_few.counts if few_captions else len(item)
    return table
