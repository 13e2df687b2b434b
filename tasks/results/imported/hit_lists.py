"""Outcomes of models without embeddings, from lists of the queries that have a hit among the first 1, 5 and 10 items.

For each query such lists give only whether a relevant item is among the first 1, 5 or 10. Its rank is known as a range
(1, 2-5, 6-10, beyond 10), which is stored: ``rank_best`` and ``rank_worst`` are the ends of the range. R@1, R@5 and
R@10 are exact, because no range crosses a listed cutoff. Other metrics (MRR, median rank, nDCG) are undetermined and
left out (``tasks.metrics.metrics_of``); ``best_score`` is NaN, and there are no result lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capim.store.errors import RequestError
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.results.imported.columns import last_ranks, outcomes_of_ranges

HitLists: TypeAlias = Mapping[int, ArrayLike]
"""Cutoff k -> positions of the queries, in the order of the protocol, with a relevant item among the first k."""

PROTOCOL_OF = {"ir": "t2i/all", "tr": "i2t/any"}
"""Image retrieval (ir) and text retrieval (tr): the names of the two directions in the files of ALBEF and TCL."""

_FILE = re.compile(r"(?P<model>.+)_(?P<task>ir|tr)(?P<cutoff>[1-9][0-9]*)_rank_index\.npy")


def read_hit_lists(folder: str | Path) -> dict[str, dict[str, dict[int, NDArray[np.int64]]]]:
    """All hit lists of a folder: model -> protocol id -> cutoff -> positions.

    Files are named ``MODEL_ir1_rank_index.npy`` (text to image) or ``MODEL_tr1_rank_index.npy`` (image to text),
    with any cutoff; each holds a one-dimensional array of integers.

    Raises:
        RequestError: The folder does not exist, has no such file, or one that cannot be read; all faults together.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a folder; name the folder of the *_rank_index.npy files")
    models: dict[str, dict[str, dict[int, NDArray[np.int64]]]] = {}
    faults = []
    for path in sorted(folder.iterdir()):
        name = _FILE.fullmatch(path.name)
        if name is None:
            continue
        try:
            positions = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            faults.append(f"{path} cannot be read as a NumPy array: {error}")
            continue
        lists = models.setdefault(name["model"], {}).setdefault(PROTOCOL_OF[name["task"]], {})
        lists[int(name["cutoff"])] = positions
    if not models and not faults:
        faults.append(f"{folder} has no file like MODEL_ir1_rank_index.npy or MODEL_tr1_rank_index.npy")
    if faults:
        raise RequestError(faults)
    return models


def outcomes_of_hits(hits: HitLists, task: RetrievalTask) -> Outcomes:
    """The outcomes that hit lists determine, with ranks as ranges.

    Args:
        hits: Cutoff -> positions of the queries that hit, in the order of the task's queries; not sorted, without
            repetition. A hit at 1 is a hit at 5.

    Raises:
        RequestError: Lists that contradict each other or the task; all faults together.
    """
    worst = last_ranks(task)
    hit_at_cutoff = _hits_at_cutoffs(hits, len(task.queries), worst)
    low = np.ones(len(task.queries), dtype=np.int32)
    high = worst.copy()
    for cutoff, hit in hit_at_cutoff.items():  # ascending: a miss raises the lower end
        low[~hit] = cutoff + 1
    for cutoff, hit in reversed(hit_at_cutoff.items()):
        high[hit] = np.minimum(cutoff, worst)[hit]
    return outcomes_of_ranges(task, low, high)


def _hits_at_cutoffs(hits: HitLists, n_queries: int, worst: NDArray[np.int32]) -> dict[int, NDArray[np.bool_]]:
    """Cutoff -> whether each query hits, cutoffs ascending."""
    faults = [] if hits else ["no hit list: expected at least the list of the queries that hit at 1"]
    hit_at: dict[int, NDArray[np.bool_]] = {}
    for cutoff in sorted(hits):
        positions = np.asarray(hits[cutoff])
        if cutoff < 1 or positions.ndim != 1 or not (np.issubdtype(positions.dtype, np.integer) or not positions.size):
            faults.append(
                f"hits at {cutoff}: expected a one-dimensional array of integers, "
                f"got {positions.dtype} of shape {positions.shape}"
            )
            continue
        positions = positions.astype(np.int64)
        hit = np.zeros(n_queries, dtype=bool)
        inside = (positions >= 0) & (positions < n_queries)
        if not inside.all():
            faults.append(
                f"hits at {cutoff}: position {int(positions[~inside][0])} is outside 0..{n_queries - 1}, the positions "
                f"of the {n_queries} queries; the lists may be of another direction or corpus"
            )
        hit[positions[inside]] = True
        if hit.sum() != inside.sum():
            faults.append(f"hits at {cutoff}: {int(inside.sum() - hit.sum())} positions are listed more than once")
        impossible = int((~hit & (worst <= cutoff)).sum())
        if impossible:
            faults.append(
                f"hits at {cutoff}: {impossible} queries are missing, but every order of so small a gallery hits"
            )
        for smaller, before in hit_at.items():
            lost = np.flatnonzero(before & ~hit)
            if len(lost):
                faults.append(f"{len(lost)} queries hit at {smaller} but not at {cutoff}, first query {int(lost[0])}")
        hit_at[cutoff] = hit
    if faults:
        raise RequestError(faults)
    return hit_at
