"""The distinct galleries of several tasks, each with all queries that search it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capim.tasks.scoring.protocols.builders import RetrievalTask

_LARGE_GALLERY = 12  # times the length of a list: the best of a smaller gallery are too rarely among the best of all


@dataclass(frozen=True, kw_only=True, eq=False)
class Queries:
    """The queries of one task that search one gallery, ordered by ord."""

    task: int  # position among the tasks
    rows: NDArray[np.int64]  # positions among the queries of the task
    ords: NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Gallery:
    """One gallery and all queries that search it."""

    items: NDArray[np.int32]
    queries: tuple[Queries, ...]

    @property
    def is_run(self) -> bool:
        """Whether the gallery is a run of items without gaps."""
        return bool(self.items[-1] - self.items[0] + 1 == len(self.items))

    def is_large(self, top: int) -> bool:
        """Whether its best items are usually among the best of all."""
        return len(self.items) >= _LARGE_GALLERY * top

    def within(self, first: int, stop: int) -> Gallery:
        """The part of the gallery in a window, with ords counted from its start; the same queries."""
        part = self.items[slice(*np.searchsorted(self.items, (first, stop)))]
        return Gallery(items=part - np.int32(first) if first else part, queries=self.queries)

    def members(self, n_items: int) -> NDArray[np.bool_]:
        """Which items are in the gallery, shape ``(n_items,)``."""
        members = np.zeros(n_items, dtype=np.bool_)
        members[self.items] = True
        return members

    def queries_between(self, start: int, stop: int) -> list[Queries]:
        """The queries with ords in ``[start, stop)``, per task; tasks without any are left out."""
        found = []
        for queries in self.queries:
            part = slice(*np.searchsorted(queries.ords, (start, stop)))
            if part.start < part.stop:
                found.append(Queries(task=queries.task, rows=queries.rows[part], ords=queries.ords[part]))
        return found


def galleries_of(tasks: Sequence[RetrievalTask]) -> list[Gallery]:
    """Every gallery with its queries; equal galleries of different tasks are one."""
    found: dict[bytes, tuple[NDArray[np.int32], list[Queries]]] = {}
    for number, task in enumerate(tasks):
        for index, items in enumerate(task.galleries):
            rows = np.flatnonzero(task.gallery_of == index)
            rows = rows[np.argsort(task.queries[rows], kind="stable")]
            queries = Queries(task=number, rows=rows, ords=task.queries[rows])
            found.setdefault(items.tobytes(), (items, []))[1].append(queries)
    return [Gallery(items=items, queries=tuple(queries)) for items, queries in found.values()]
