"""Figures by gallery size: a corpus' own images, and more and more images that are relevant to nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capim.store.values import Ragged
from capim.tasks.scoring.dense import VectorRows, dense_part
from capim.tasks.scoring.late_interaction.maxsim import maxsim_part
from capim.tasks.scoring.late_interaction.multivectors import Blocks
from capim.tasks.scoring.outcomes import Outcomes
from capim.tasks.scoring.protocols.builders import RetrievalTask
from capim.tasks.scoring.ranks.both_ways import BothWays
from capim.tasks.scoring.resources import ON_CPU, Resources

TIMES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Side(NamedTuple):
    """The vectors of one set of images, and how many there are."""

    vectors: VectorRows | Blocks
    n: int


def by_gallery_size(
    own: Side,
    distractors: Sequence[Side],
    captions: VectorRows | Blocks,
    task: RetrievalTask,
    *,
    seed: int,
    resources: Resources = ON_CPU,
) -> Iterator[tuple[int, Outcomes]]:
    """The outcomes of a task whose captions search ``own``, then 2, 5, 10 … times as many images, then all.

    Each image is scored once: its scores add to the counts of the galleries that hold it. The distractors come in an
    order drawn with ``seed``, so that each gallery holds the smaller ones, and no rank improves from one to the next.

    Yields:
        The number of images added to the task's gallery, from 0, and the outcomes.
    """
    total = own.n + sum(side.n for side in distractors)
    rows = _Rows([own, *distractors], np.random.default_rng(seed).permutation(total - own.n))
    added = np.arange(own.n, total, dtype=np.int32)
    whole = replace(task, galleries=tuple(np.concatenate([items, added]) for items in task.galleries))
    merged = BothWays([whole])
    ends = [own.n * times for times in TIMES if own.n * times < total]
    for start, end in zip([0, *ends], [*ends, total], strict=True):
        if callable(captions):
            part = maxsim_part(rows.blocks, captions, [whole], range(start, end), resources=resources)
        else:
            part = dense_part(rows, captions, [whole], range(start, end), resources=resources)
        merged.merge(part.part())
        [outcomes] = deepcopy(merged.outcomes()).values()  # its lists are those that the next images are merged into
        yield end - own.n, replace(outcomes, n_gallery=(outcomes.n_gallery - (total - end)).astype(np.int32))


class _Rows:
    """The vectors of several sides as one, the first in its order and the others in a drawn one."""

    dtype = np.dtype(np.float32)

    def __init__(self, sides: Sequence[Side], order: NDArray[np.int64]) -> None:
        self._sides = sides
        self._starts = np.cumsum([0, *(side.n for side in sides)])
        self._place = np.concatenate([np.arange(sides[0].n), sides[0].n + order])

    @property
    def shape(self) -> tuple[int, int]:
        first: Any = self._sides[0].vectors
        return len(self._place), int(first.shape[1])

    def __len__(self) -> int:
        return len(self._place)

    def __getitem__(self, rows: Any, /) -> NDArray[np.float32]:
        places = self._place[rows]
        found = np.empty((len(places), self.shape[1]), np.float32)
        for number, (side, start) in enumerate(zip(self._sides, self._starts[:-1], strict=True)):
            inside = np.flatnonzero((places >= start) & (places < self._starts[number + 1]))
            if len(inside) and not callable(side.vectors):
                found[inside] = side.vectors[places[inside] - start]
        return found

    def blocks(self, ords: NDArray[np.int32] | None = None) -> Iterator[Ragged]:
        """The multi-vectors of some items, in blocks of one side each."""
        wanted = np.arange(len(self), dtype=np.int32) if ords is None else ords
        side_of = np.searchsorted(self._starts, self._place[wanted], side="right") - 1
        for run in np.split(np.arange(len(wanted)), np.flatnonzero(np.diff(side_of)) + 1):
            vectors, start = self._sides[side_of[run[0]]].vectors, self._starts[side_of[run[0]]]
            if callable(vectors):
                done = 0
                for block in vectors((self._place[wanted[run]] - start).astype(np.int32)):
                    yield replace(block, ords=wanted[run][done : done + len(block)])
                    done += len(block)
