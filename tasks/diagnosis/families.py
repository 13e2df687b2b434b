"""Confusable families: images that an encoder takes for one another, both ways, and the groups that they form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from store.types import Corpus
from tasks.diagnosis.contrasts import mean_slices
from tasks.diagnosis.subject import Slice, Subject
from tasks.scoring.outcomes import Outcomes

MOST = 20  # pairs and families listed per encoder


class Confusion(NamedTuple):
    """Two images (``first < second``) and how often each one's queries put the other first."""

    first: int
    second: int
    first_for_second: int
    second_for_first: int


def families(subject: Subject) -> Iterator[Slice]:
    """Share of queries that a mutual confusion decides; the pairs and the families in the detail.

    A query of image A confuses A with B if the first item of its list is B (or a caption of B) and wrong. A pair
    counts where it happens both ways: B for A and A for B. A family is what such pairs connect.
    """
    if subject.protocol.direction not in ("t2i", "i2t"):
        return
    ids = subject.corpus.images["id"].to_pylist()
    shares, details = {}, {}
    for encoder, outcomes in subject.outcomes.items():
        if outcomes.top_ords is None:
            continue
        found = first_images(outcomes, subject.corpus)
        pairs = mutual_confusions(outcomes.clusters, found, len(ids))
        mutual = {(p.first, p.second) for p in pairs}
        inside = [
            (min(own, other), max(own, other)) in mutual
            for own, other in zip(outcomes.clusters.tolist(), found.tolist(), strict=True)
        ]
        key = (encoder, "confused with each other", "")
        shares[key] = np.array(inside)
        details[key] = {
            "pairs": [
                {"a": ids[p.first], "b": ids[p.second], "a_for_b": p.first_for_second, "b_for_a": p.second_for_first}
                for p in pairs[:MOST]
            ],
            "families": [[ids[image] for image in family] for family in connected(pairs)[:MOST]],
        }
    yield from mean_slices(subject, "families", shares, metric="share of queries", details=details)


def first_images(outcomes: Outcomes, corpus: Corpus) -> NDArray[np.int64]:
    """The image that each query wrongly finds first (that of the caption it finds); -1 where it is right or tied."""
    if outcomes.top_ords is None:
        raise ValueError(f"outcomes of {outcomes.protocol.id!r} have no result lists")
    first = outcomes.top_ords[:, 0].astype(np.int64)
    if outcomes.protocol.direction == "i2t":
        place = {name: at for at, name in enumerate(corpus.images["id"].to_pylist())}
        image_of = np.array([place.get(name, -1) for name in corpus.captions["image_id"].to_pylist()])
        first = image_of[first]
    return np.where(outcomes.rank_best > 1, first, -1)


def mutual_confusions(own: NDArray[np.int32], found: NDArray[np.int64], n_images: int) -> list[Confusion]:
    """The pairs confused both ways, those first that are confused most often both ways.

    Args:
        own: The image of each query.
        found: The image that it wrongly found, or -1.
        n_images: Of the corpus.

    Examples:
        Image 0 is taken for 1 twice, 1 for 0 once; 2 is taken for 0, but not 0 for 2.

        >>> mutual_confusions(np.int32([0, 0, 1, 2, 2]), np.array([1, 1, 0, 0, -1]), 3)
        [Confusion(first=0, second=1, first_for_second=1, second_for_first=2)]
    """
    wrong = (found >= 0) & (found != own)
    edges, counts = np.unique(own[wrong].astype(np.int64) * n_images + found[wrong], return_counts=True)
    times = dict(zip(edges.tolist(), counts.tolist(), strict=True))
    pairs = []
    for edge, there in times.items():
        a, b = divmod(edge, n_images)
        back = times.get(b * n_images + a, 0)
        if a < b and back:
            pairs.append(Confusion(a, b, back, there))
    return sorted(pairs, key=lambda p: (-min(p[2:]), -sum(p[2:]), p.first, p.second))


def connected(pairs: list[Confusion]) -> list[list[int]]:
    """The groups that some pairs connect, the largest first.

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
