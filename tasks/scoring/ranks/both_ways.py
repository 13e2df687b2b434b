"""Blocks of scores of captions with images, read both ways: captions search images, and images search captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from capim.store.schema import TOP
from capim.tasks.scoring.outcomes import Outcomes
from capim.tasks.scoring.protocols.builders import RetrievalTask, ScoringTask
from capim.tasks.scoring.ranks.accumulator import OutcomeAccumulator, PartOutcomes


class BothWays:
    """The outcomes of the retrieval tasks of one corpus while blocks of scores come in.

    Attributes:
        accumulators: What fills in the outcomes of the tasks that read the scores in one way: ``t2i`` where captions
            search images, else the orientation of the score (``protocols.orientations``).
        tasks: The retrieval tasks.
        top: Length of the lists.
        known: Protocol id -> the scores of the relevant pairs that :meth:`know` was given, NaN where it was not.
    """

    def __init__(self, tasks: Sequence[ScoringTask], *, top: int = TOP) -> None:
        self.tasks = [task for task in tasks if isinstance(task, RetrievalTask)]
        self.top = top
        self.known: dict[str, NDArray[np.float32]] = {}
        self._accumulate(None)

    @property
    def to_images(self) -> OutcomeAccumulator | None:
        """Of the tasks in which captions search images; None if there are none."""
        return self.accumulators.get("t2i")

    @property
    def to_captions(self) -> OutcomeAccumulator | None:
        """Of the tasks in which images search captions by the transposed scores; None if there are none."""
        return self.accumulators.get("transposed")

    @property
    def reads_both_ways(self) -> bool:
        """Whether some tasks search images and others captions, by the same score."""
        return self.to_images is not None and self.to_captions is not None

    def pairs(self, part: range) -> NDArray[np.int64]:
        """Captions and images of which scores must be known if no block holds all pairs: shape ``(n, 2)``, sorted.

        ``part``: the images of all blocks that will be added.
        """
        found = []
        for task in self.tasks:
            captions, images = _pairs(task)
            needed = (
                np.ones(len(images), bool)
                if task.protocol.direction == "t2i"
                else (images >= part.start) & (images < part.stop)
            )
            found.append((captions[needed] << 32) | images[needed])
        codes = np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)
        self._codes = codes
        return np.stack([codes >> 32, codes & 0xFFFFFFFF], axis=1)

    def know(self, scores: NDArray[np.float32]) -> None:
        """Give the scores of :meth:`pairs`, before the first block."""
        known = {}
        for task in self.tasks:
            captions, images = _pairs(task)
            codes = (captions << 32) | images
            at = np.searchsorted(self._codes, codes).clip(max=len(self._codes) - 1)
            known[task.protocol.id] = np.where(self._codes[at] == codes, scores[at], np.float32(np.nan))
        self.known = known
        self._accumulate(known)

    def part(self) -> dict[str, PartOutcomes]:
        """Protocol id -> what the blocks that were added contribute."""
        return {id_: part for each in self.accumulators.values() for id_, part in each.part().items()}

    def merge(self, part: Mapping[str, PartOutcomes]) -> None:
        """Add what other blocks contribute."""
        for each in self.accumulators.values():
            each.merge(part)

    def outcomes(self) -> dict[str, Outcomes]:
        """Protocol id -> outcomes of the retrieval tasks, once every pair was added."""
        return {id_: outcomes for each in self.accumulators.values() for id_, outcomes in each.outcomes().items()}

    def _accumulate(self, known: Mapping[str, NDArray[np.float32]] | None) -> None:
        by_way: dict[str, list[RetrievalTask]] = {}
        for task in self.tasks:
            way = "t2i" if task.protocol.direction == "t2i" else task.protocol.orientation or "transposed"
            by_way.setdefault(way, []).append(task)
        self.accumulators = {way: OutcomeAccumulator(tasks, top=self.top, known=known) for way, tasks in by_way.items()}


def _pairs(task: RetrievalTask) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The caption and the image of every relevant pair of a task, in its order."""
    queries, items = task.queries[task.query_of_relevant].astype(np.int64), task.relevant.astype(np.int64)
    return (queries, items) if task.protocol.direction == "t2i" else (items, queries)
