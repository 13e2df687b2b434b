"""Confusable images: pairs of images that an encoder takes for each other, and the groups that such pairs form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from capim.tasks.diagnosis.analysis_input import AnalysisInput
from capim.tasks.diagnosis.slice_means import QueryValues, mean_slices
from capim.tasks.diagnosis.slices import Slice
from capim.tasks.scoring.protocols.layout import layout_of

N_LISTED = 20  # pairs and groups per encoder


class Confusion(NamedTuple):
    """Two images (``first < second``) and how often the queries of each have the other in first place."""

    first: int
    second: int
    first_for_second: int
    second_for_first: int


def confusable_images(data: AnalysisInput) -> Iterator[Slice]:
    """Share of queries that fail by a mutual confusion; the pairs and groups of images are in the detail.

    A query of image A confuses A with B if the first item of its list is wrong and is B (or a caption of B). A pair
    counts if it is confused both ways. Pairs that share images form a group.
    """
    ids = data.corpus.images["id"].to_pylist()
    rows = []
    for encoder, outcomes, top_ords in data.with_lists():
        first = top_ords[:, 0].astype(np.int64)
        if data.protocol.direction == "i2t":
            first = layout_of(data.corpus).caption_images.astype(np.int64)[first]
        first = np.where(outcomes.rank_best > 1, first, -1)
        pairs = mutual_confusions(outcomes.clusters, first, len(ids))
        mutual = {(p.first, p.second) for p in pairs}
        confused = [
            (min(own, other), max(own, other)) in mutual
            for own, other in zip(outcomes.clusters.tolist(), first.tolist(), strict=True)
        ]
        detail = {
            "pairs": [
                {"a": ids[p.first], "b": ids[p.second], "a_for_b": p.first_for_second, "b_for_a": p.second_for_first}
                for p in pairs[:N_LISTED]
            ],
            "families": [[ids[image] for image in group] for group in connected(pairs)[:N_LISTED]],
        }
        rows.append(QueryValues(encoder, "confused with each other", np.array(confused), detail))
    yield from mean_slices(data, "families", rows, metric="share of queries")


def mutual_confusions(own: NDArray[np.int32], first: NDArray[np.int64], n_images: int) -> list[Confusion]:
    """The pairs confused both ways, the most frequently confused first.

    ``own`` is the image of each query, ``first`` the wrong image in first place, or -1.

    Examples:
        Image 0 is taken for 1 twice, 1 for 0 once; 2 is taken for 0, but not 0 for 2.

        >>> mutual_confusions(np.int32([0, 0, 1, 2, 2]), np.array([1, 1, 0, 0, -1]), 3)
        [Confusion(first=0, second=1, first_for_second=1, second_for_first=2)]
    """
    wrong = (first >= 0) & (first != own)
    edges, counts = np.unique(own[wrong].astype(np.int64) * n_images + first[wrong], return_counts=True)
    times = {divmod(edge, n_images): n for edge, n in zip(edges.tolist(), counts.tolist(), strict=True)}
    pairs = [Confusion(a, b, times[b, a], n) for (a, b), n in times.items() if a < b and (b, a) in times]
    return sorted(pairs, key=lambda p: (-min(p[2:]), -sum(p[2:]), p.first, p.second))


def connected(pairs: list[Confusion]) -> list[list[int]]:
    """The groups of images that the pairs connect, the largest first.

    Examples:
        >>> connected([Confusion(0, 1, 1, 1), Confusion(4, 5, 1, 1), Confusion(1, 3, 1, 1)])
        [[0, 1, 3], [4, 5]]
    """
    if not pairs:
        return []
    images, ends = np.unique([(p.first, p.second) for p in pairs], return_inverse=True)
    a, b = ends.reshape(-1, 2).T
    graph = sparse.coo_matrix((np.ones(len(a)), (a, b)), shape=(len(images), len(images)))
    n_groups, label = connected_components(graph, directed=False)
    groups = [images[label == group].tolist() for group in range(n_groups)]
    return sorted(groups, key=lambda group: (-len(group), group))
