"""Where encoders disagree: one right and the other wrong, one alone right or wrong, all wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from tasks.diagnosis.contrasts import mean_slices
from tasks.diagnosis.subject import Slice, Subject

SHOWN = 5


def disagreement(subject: Subject) -> Iterator[Slice]:
    """Shares of all queries, with examples; a query that is tied is neither right nor wrong.

    Per encoder: right where another one is wrong (a row for each other), alone right, alone wrong, and wrong
    together with all others. One encoder has nothing to disagree with: only what it misses.
    """
    if subject.protocol.direction not in ("t2i", "i2t"):
        return
    names = subject.encoders
    right = np.stack([outcomes.rank_worst == 1 for outcomes in subject.outcomes.values()])
    wrong = np.stack([outcomes.rank_best > 1 for outcomes in subject.outcomes.values()])
    depth = np.stack([outcomes.rank_best for outcomes in subject.outcomes.values()]).astype(np.int64)
    shares: dict[tuple[str, str, str], NDArray[np.bool_]] = {}
    worst: dict[tuple[str, str, str], NDArray[np.int64]] = {}
    for a, b in permutations(range(len(names)), 2):
        key = (names[a], "right where wrong", names[b])
        shares[key], worst[key] = right[a] & wrong[b], depth[b]
    all_wrong: NDArray[np.bool_] = np.all(wrong, axis=0)
    for at, name in enumerate(names):
        shares[name, "missed by all", ""], worst[name, "missed by all", ""] = all_wrong, depth.min(axis=0)
        if len(names) > 1:
            others = np.arange(len(names)) != at
            alone_right, alone_wrong = (name, "alone right", ""), (name, "alone wrong", "")
            shares[alone_right] = np.logical_and(right[at], np.all(wrong[others], axis=0))
            shares[alone_wrong] = np.logical_and(wrong[at], np.all(right[others], axis=0))
            worst[alone_right], worst[alone_wrong] = depth[others].min(axis=0), depth[at]
    details = {key: {"examples": _examples(subject, which, worst[key])} for key, which in shares.items()}
    yield from mean_slices(subject, "disagreement", shares, metric="share of queries", details=details)


def _examples(subject: Subject, which: NDArray[np.bool_], depth: NDArray[np.int64]) -> list[str]:
    """Query ids, the clearest first: those missed by the most places."""
    places = np.flatnonzero(which)
    order = np.argsort(-depth[places], kind="stable")[:SHOWN]
    return [str(subject.queries.query_ids[place]) for place in places[order]]
