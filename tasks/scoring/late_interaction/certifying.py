"""Screen in bfloat16, score again in float32 what the bound leaves open."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tasks.scoring.late_interaction.multivectors import (
    PATCHES_AT_ONCE,
    Blocks,
    MultiVectorBlock,
    Ragged,
    alike,
    best_patch,
    checked,
    padded,
    stacked,
    summed,
)
from tasks.scoring.late_interaction.opening import mark_open
from tasks.scoring.late_interaction.products import score_table
from tasks.scoring.late_interaction.screening import Bound, Screened, bound_of, screen_of, screened
from tasks.scoring.protocols.orientations import orientation_of
from tasks.scoring.protocols.tasks import ChoiceTask, RetrievalTask, ScoringTask
from tasks.scoring.threads import one_thread_each

_STRIP_PAIRS = 1 << 22


def certified_scores(
    images: Blocks,
    captions: Ragged,
    judgements: Sequence[ScoringTask],
    *,
    n_images: int,
    device: str,
    memory_bytes: int,
    top: int,
) -> tuple[NDArray[np.float32], float]:
    """Scores that rank like float32 under the judgements, and the share of pairs that float32 was needed for.

    Args:
        images: Multi-vectors of all images, for two passes.
        captions: Multi-vectors of all captions.
        judgements: What the scores will be used for: only that is certified.
        n_images: How many images the judgements speak of.
        device: With fast bfloat16.
        memory_bytes: Half of it for scores, a quarter for marks; more goes to temporary files.
        top: Length of the best lists.
    """
    shape = (captions.n, n_images)
    scores = score_table(shape, np.float32, memory_bytes // 2)
    exact = score_table(shape, np.bool_, memory_bytes // 8)
    exact[:] = False
    needed = _needed(judgements, captions.n, n_images)
    bound = _screen(scores, images, captions, needed, device)
    for image, chosen in enumerate(needed):
        exact[chosen, image] = True
    # the likely best first: once they are exact, only what can still reach the last of them is open
    for known in (None, bound):
        marks = score_table(shape, np.bool_, memory_bytes // 8)
        marks[:] = False
        _mark(marks, scores, exact, known, captions.counts, judgements, top)
        marks &= ~exact
        _score_again(scores, images, captions, marks, device)
        exact |= marks
    return scores, float(np.count_nonzero(exact)) / exact.size


def _score_again(
    scores: NDArray[np.float32], images: Blocks, captions: Ragged, marks: NDArray[np.bool_], device: str
) -> None:
    """Replace the scores of marked pairs by exact ones."""
    n_images = scores.shape[1]
    with one_thread_each(device) as each:
        for start, block in checked(images(), "image", captions.values.shape[1], expected=n_images):
            chosen = [np.flatnonzero(marks[:, start + item]) for item in range(min(len(block.ords), n_images - start))]

            def one(
                item: int, block: MultiVectorBlock = block, chosen: list[NDArray[np.int64]] = chosen
            ) -> NDArray[np.float32]:
                return exactly(captions, chosen[item], block, item, device)

            for item, values in enumerate(each(one, range(len(chosen)))):
                scores[chosen[item], start + item] = values


def exactly(
    captions: Ragged, chosen: NDArray[np.int64], block: MultiVectorBlock, item: int, device: str
) -> NDArray[np.float32]:
    """float32 scores of some captions with one image of a block, to the bit those of ``float32_scores``."""
    if not len(chosen):
        return np.empty(0, dtype=np.float32)
    some = captions.only(chosen)
    tokens = padded(torch.from_numpy(some.values).to(device))
    best = best_patch(tokens, stacked(block, [item]).to(device))[0].cpu().numpy()
    return summed(best[: len(some.values)], some.offsets[:-1])


def _screen(
    scores: NDArray[np.float32], images: Blocks, captions: Ragged, needed: Sequence[NDArray[np.int64]], device: str
) -> Bound:
    """Fill in screened scores, exact ones where they are needed in any case; how far the former can be off."""
    screen = screen_of(captions, device)
    magnitudes = np.zeros(captions.n, dtype=np.float32)
    residuals = np.zeros(len(needed), dtype=np.float32)
    largest_norm = 0.0
    with one_thread_each(device) as each:
        for start, block in checked(images(), "image", captions.values.shape[1], expected=len(needed)):
            groups = alike(block, min(len(block.ords), len(needed) - start), most=PATCHES_AT_ONCE)

            def some(
                items: list[int], start: int = start, block: MultiVectorBlock = block
            ) -> tuple[Screened, list[NDArray[np.float32]]]:
                found = screened(screen, stacked(block, items).to(device))
                return found, [exactly(captions, needed[start + item], block, item, device) for item in items]

            for items, (found, exact) in zip(groups, each(some, groups), strict=True):
                ords = [start + item for item in items]
                scores[:, ords] = found.scores.T
                for image, values in zip(ords, exact, strict=True):
                    scores[needed[image], image] = values
                np.maximum(magnitudes, found.magnitudes.max(axis=0), out=magnitudes)
                residuals[ords] = found.residuals
                largest_norm = max(largest_norm, found.norm)
    return bound_of(screen, largest_magnitudes=magnitudes, residuals=residuals, largest_norm=largest_norm)


def _needed(judgements: Sequence[ScoringTask], n_captions: int, n_images: int) -> list[NDArray[np.int64]]:
    """Per image, the captions whose exact score decides something: relevant ones, and all of small sets."""
    pairs = []
    for judgement in judgements:
        if isinstance(judgement, ChoiceTask):
            table = judgement.images[:, None, :].astype(np.int64) * n_captions + judgement.captions[:, :, None]
            pairs.append(table[judgement.captions >= 0].ravel())
            continue
        query = np.repeat(judgement.queries.astype(np.int64), judgement.n_relevant)
        to_images = judgement.protocol.direction == "t2i"
        image, caption = (judgement.relevant, query) if to_images else (query, judgement.relevant)
        pairs.append(image.astype(np.int64) * n_captions + caption)
    image, caption = np.divmod(np.unique(np.concatenate(pairs)), n_captions)
    return np.split(caption, np.searchsorted(image, np.arange(1, n_images)))


def _mark(
    marks: NDArray[np.bool_],
    scores: NDArray[np.float32],
    exact: NDArray[np.bool_],
    bound: Bound | None,
    counts: NDArray[np.int64],
    judgements: Sequence[ScoringTask],
    top: int,
) -> None:
    """Mark open pairs by rows (``t2i``), by columns (``i2t``) and by columns divided by the caption's tokens.

    Without a bound all scores are taken at their word, which marks the pairs that lead so far.
    """
    retrieval = [j for j in judgements if isinstance(j, RetrievalTask)]
    to_images = [j for j in retrieval if j.protocol.direction == "t2i"]
    per_token = [j for j in retrieval if orientation_of(j.protocol) == "transposed-per-token"]
    to_captions = [j for j in retrieval if j not in to_images and j not in per_token]
    n_captions, n_images = scores.shape

    def off(captions: slice, images: slice) -> NDArray[np.float32]:
        if bound is None:
            return np.zeros((1, 1), dtype=np.float32)
        return np.where(exact[captions, images], np.float32(0), bound.at(captions, images))

    step = max(1, _STRIP_PAIRS // n_images)
    for start in range(0, n_captions if to_images else 0, step):
        part = slice(start, start + step)
        mark_open(marks[part], start, scores[part], off(part, slice(None)), to_images, top=top)
    step = max(1, _STRIP_PAIRS // n_captions)
    divisors = counts.astype(np.float32)
    for start in range(0, n_images if to_captions or per_token else 0, step):
        part = slice(start, start + step)
        columns, bounds = np.ascontiguousarray(scores[:, part].T), off(slice(None), part).T
        found = np.zeros(columns.shape, dtype=np.bool_)
        if to_captions:
            mark_open(found, start, columns, bounds, to_captions, top=top)
        if per_token:
            mark_open(found, start, columns / divisors, bounds / divisors, per_token, top=top)
        marks[:, part] |= found.T
