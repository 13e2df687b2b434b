"""Late interaction at full size with fewer float32 products, for the same outcomes to the last digit.

Products in bfloat16 take a third of the time of float32, or less, where the processor has instructions for them. Their
scores, with a bound of their error, decide how most pairs compare with a relevant item and with the end of a list. The
pairs that they leave open are computed in float32; the others keep an approximate score that no rank and no list shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from capim.store.ragged import Ragged
from capim.tasks.scoring.late_interaction.multivectors import Blocks
from capim.tasks.scoring.late_interaction.products import rough_scores, scores_by_image
from capim.tasks.scoring.protocols.tasks import RetrievalTask
from capim.tasks.scoring.ranks.both_ways import BothWays
from capim.tasks.scoring.ranks.top_k import reached_by
from capim.tasks.scoring.resources import Resources
from capim.tasks.scoring.threads import Advance

_LEAST_IMAGES, _LEAST_PATCHES = 1000, 128  # with fewer, lists hold much of the gallery, or products are too small
_BFLOAT16, _FLOAT32 = 2.0**-9, 2.0**-24  # largest relative errors of one rounding
_CELLS = 1 << 22  # of the table that are looked at together


def pays(ranking: BothWays, images: Blocks, n_images: int, device: str) -> bool:
    """Whether screening ``n_images`` at a time is faster than products in float32 alone; the outcomes are the same."""
    if device != "cpu" or n_images < _LEAST_IMAGES or not ranking.accumulators.keys() <= {"t2i", "transposed"}:
        return False
    capabilities, block = torch.cpu.get_capabilities(), next(iter(images()))
    fast = capabilities.get("avx512_bf16") or capabilities.get("amx_bf16")
    return bool(fast) and len(block.values) >= _LEAST_PATCHES * len(block)


class RoughScores(NamedTuple):
    """Scores from products in bfloat16, and what bounds their errors.

    Attributes:
        table: float32, shape ``(n_captions, n_images)``.
        exact: Which of them were computed in float32 since.
        of_captions: Sums over the tokens of each caption, shape ``(n_captions, 3)``: norms, norms of what rounding took
            away, and a float32 rounding error for every addition.
        of_images: The largest of each image, shape ``(n_images, 3)``: norm of a patch, rounded or not, norm of what
            rounding took away from one, and sum of the negative cosines of any caption, as a positive number.
    """

    table: NDArray[np.float32]
    exact: NDArray[np.bool_]
    of_captions: NDArray[np.float32]
    of_images: NDArray[np.float32]

    def errors(self, captions: NDArray[np.integer], images: NDArray[np.integer]) -> NDArray[np.float32]:
        """How far a score can be from that of :func:`maxsim_scores`, shape ``(len(captions), len(images))``.

        For a token ``t`` and a patch ``p``, rounded to ``t'`` and ``p'``: ``|tp - t'p'| <= |t - t'||p'| + |t||p - p'|``
        (Cauchy and Schwarz), and the largest of several moves by no more than the largest error.
        """
        norms, lost, additions = self.of_captions[captions].T[:, :, None]
        norm, lost_of_patch, negative = self.of_images[images].T[:, None, :]
        pairs = np.ix_(captions, images)
        rounded = 1.01 * _BFLOAT16 * (np.abs(self.table[pairs]) + 2 * negative)
        errors: NDArray[np.float32] = lost * norm + norms * lost_of_patch + additions * norm + rounded
        errors[self.exact[pairs]] = 0
        return errors


def screened_scores(
    images: Blocks,
    captions: Ragged,
    ranking: BothWays,
    *,
    n_images: int,
    first: int = 0,
    resources: Resources,
    advance: Advance,
) -> NDArray[np.float32]:
    """A table like that of :func:`maxsim_scores`, exact wherever the ranks and lists of ``ranking`` depend on it.

    ``ranking`` knows the scores of all relevant pairs (:meth:`BothWays.know`).
    """
    table, of_images = rough_scores(
        images, captions, n_images=n_images, first=first, resources=resources, advance=lambda done: advance(done / 2)
    )
    rough = RoughScores(table, np.zeros(table.shape, dtype=np.bool_), _of_captions(captions), of_images)
    for leaders in (True, False):  # exact, they reach more than their bounds do, which leaves half as many pairs open
        chosen = np.zeros(table.shape, dtype=np.bool_)
        for task in ranking.tasks:
            _choose(rough, task, ranking.known[task.protocol.id], chosen, first, ranking.top, leaders=leaders)
        chosen &= ~rough.exact
        _compute(rough, chosen, images, captions, resources.device)
        advance(1 / 4)
    return table


def _compute(rough: RoughScores, chosen: NDArray[np.bool_], images: Blocks, captions: Ragged, device: str) -> None:
    """Put the float32 scores of the chosen pairs into the table."""
    vectors = (image for block in images() for image in block)
    of_images = (np.flatnonzero(of_image) for of_image in chosen.T)
    for position, scores in enumerate(scores_by_image(vectors, captions, of_images, device)):
        rough.table[chosen[:, position], position] = scores
    rough.exact[chosen] = True


def _of_captions(captions: Ragged) -> NDArray[np.float32]:
    """See :class:`RoughScores`."""
    values = captions.values
    lost = np.linalg.norm(values - torch.from_numpy(values).bfloat16().float().numpy(), axis=1)
    norms = np.linalg.norm(values, axis=1)
    additions = _FLOAT32 * (2 * values.shape[1] + 4 * np.repeat(captions.counts, captions.counts)) * norms
    return np.add.reduceat(np.stack([norms, lost, additions], axis=1), captions.offsets[:-1]).astype(np.float32)


def _choose(
    rough: RoughScores,
    task: RetrievalTask,
    known: NDArray[np.float32],
    chosen: NDArray[np.bool_],
    first: int,
    top: int,
    *,
    leaders: bool,
) -> None:
    """Mark the best pairs of every query, or all that may be level with a relevant item or in a list."""
    to_images = task.protocol.direction == "t2i"
    n_images = rough.table.shape[1]
    for number, gallery in enumerate(task.galleries):
        items, rows = gallery, np.flatnonzero(task.gallery_of == number)
        if to_images:
            items = items[(items >= first) & (items < first + n_images)] - first
        else:
            rows = rows[(task.queries[rows] >= first) & (task.queries[rows] < first + n_images)]
        n_best = min(top, len(items))
        for some in _runs(rows, len(items)):
            queries = task.queries[some] - (0 if to_images else first)
            pairs = (queries, items) if to_images else (items, queries)
            scores = rough.table[np.ix_(*pairs)]
            if leaders:
                of_rows = scores if to_images else scores.T
                found = of_rows >= reached_by(of_rows, n_best)
            else:
                errors = rough.errors(*pairs)
                if not to_images:
                    scores, errors = scores.T, errors.T
                found = scores + errors >= reached_by(scores - errors, n_best)
                counts = task.n_relevant[some]
                for place in range(counts.max()):
                    of_query = known[task.offsets[some] + np.minimum(place, counts - 1)]
                    found |= np.abs(scores - of_query[:, None]) <= errors
            chosen[np.ix_(*pairs)] |= found if to_images else found.T


def _runs(rows: NDArray[np.integer], width: int) -> Iterator[NDArray[np.integer]]:
    step = max(1, _CELLS // max(1, width))
    return (rows[start : start + step] for start in range(0, len(rows) if width else 0, step))
