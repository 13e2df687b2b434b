"""p-values of results against their chance value, by guesses with the same weights as the images.

In retrieval and choices, each image is guessed correctly with its own chance. For labels, the encoder's predictions
are fixed and the labels are permuted among the images: an encoder that assigns one class to many images is correct as
often as the class is frequent, whatever the images show (Cohen 1960, A coefficient of agreement for nominal scales).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.intervals import DUST, no_interval

DRAWS = 20_000
_LEAST_DRAWS, _CELLS = 1_000, 2 * 10**7  # for labels: fewer draws if there are more images
_SEEN = 10  # number of equally extreme draws from which their share is the p-value
_CHANCE = 8  # the stream of random numbers of guesses, independent of the seed


def chance_p(value: float, chance: ArrayLike, clusters: Clusters) -> float | None:
    """Return the two-sided p-value of a mean of values in 0..1 against chance: twice the smaller tail.

    An image is guessed as a whole: among all means of values in 0..1 with these expectations, those of hits and misses
    have the longest tails, however the captions of an image depend on each other (Hoeffding 1956, On the distribution
    of the number of successes in independent trials). The weighted share of guessed images is binomial if all images
    have the same weight and chance; otherwise it is simulated, because a few heavy images give it longer tails.

    Args:
        value: The observed mean.
        chance: Expected value of guessing, one for all queries or one per query, shape ``(n_queries,)``.
        clusters: Clusters of the queries.

    Returns:
        The p-value; None if results over these images have no interval, or if any scores have the chance value.

    Examples:
        Eight of ten where one in two is chance, ``2 * (45 + 10 + 1) / 1024``:

        >>> round(chance_p(0.8, 0.5, Clusters.of(range(10))) or 0, 6)
        0.109375
        >>> chance_p(0.0, 0.001, Clusters.of(range(50))), chance_p(1.0, 0.5, Clusters.of([0, 0]))
        (1.0, None)
    """
    from scipy.special import betainc, betaincc

    of_queries = np.broadcast_to(np.asarray(chance, dtype=np.float64), clusters.n_queries)
    if no_interval(clusters) is not None or not 0 < clusters.mean(of_queries) < 1:
        return None
    asked = clusters.sizes > 0
    shares, n = clusters.shares[asked], clusters.n_occupied
    guesses = clusters.sums(of_queries[None])[asked, 0] / clusters.totals[asked]
    if max(np.ptp(shares), np.ptp(guesses)) > DUST:
        alike = np.stack([shares, np.clip(guesses, 0, 1)]).round(12)  # images that can be drawn together
        (shares, guesses), counts = np.unique(alike, axis=1, return_counts=True)
        return drawn_p(value, np.random.default_rng(_CHANCE).binomial(counts, guesses, (DRAWS, len(counts))) @ shares)
    hits = min(max(value, 0.0), 1.0) * n
    above = betainc(hits, n - hits + 1, guesses[0]) if hits > 0 else 1.0
    below = betaincc(hits + 1, n - hits, guesses[0]) if hits < n else 1.0
    return min(1.0, 2 * float(min(above, below)))


def drawn_p(value: float, drawn: NDArray[np.float64]) -> float:
    """Return twice the smaller share of draws that are at least as extreme as a value; the value counts as one draw.

    With fewer than ten such draws, the share is the tail of a Pearson type III distribution with the moments of the
    draws (Berry and Mielke 1983, Moment approximations as an alternative to the F test in analysis of variance).

    Examples:
        >>> draws = np.random.default_rng(0).normal(size=20_000)
        >>> [round(drawn_p(value, draws), 3) for value in (0.0, 1.96)], 1e-10 < drawn_p(6.0, draws) < 1e-8
        ([0.996, 0.049], True)
    """
    from scipy.stats import pearson3, skew

    if (spread := float(drawn.std())) <= DUST:
        return 1.0
    tails = []
    for sign in (1, -1):
        extreme = int((sign * (drawn - value) >= -DUST).sum())
        tails.append((extreme + 1) / (len(drawn) + 1))
        if extreme < _SEEN:
            skewed = max(0.0, sign * float(skew(drawn)))
            tails.append(float(pearson3.sf(sign * (value - drawn.mean()) / spread, skewed)))
    return max(float(np.finfo(float).tiny), min(1.0, 2 * min(tails)))


class FirstHits(NamedTuple):
    """The labels of queries, and whether an encoder's first hits have them.

    Attributes:
        label: Index of each query's set of labels, shape ``(n_queries,)``.
        first: Column of ``agrees`` for each query's first hit, shape ``(n_queries,)``. If images search images:
            position of the first hit among the queries, or ``n_queries`` if it is not one of them.
        agrees: True if a first hit is correct for a set of labels, shape ``(n_sets + 1, n_columns)``; if images search
            images, with one column per set. The last row and column are for no label.
        of_images: True if first hits are images, and their labels are permuted too.
    """

    label: NDArray[np.int64]
    first: NDArray[np.int64]
    agrees: NDArray[np.bool_]
    of_images: bool


def labels_p(hits: FirstHits, clusters: Clusters) -> tuple[float, float | None]:
    """Return the share of correct first hits expected by chance, and the two-sided p-value of the observed one.

    Labels keep their weights and are permuted among photographs with the same number of images. Each of
    several orders of the labels is combined with each of as many orders of the first hits; any two draws are
    independent.

    Examples:
        Always the first class, which three of four images have: as accurate as chance.

        >>> always = FirstHits(np.array([0, 0, 0, 1]), np.zeros(4, int), np.eye(3, dtype=bool), of_images=False)
        >>> labels_p(always, Clusters.of(range(4)))
        (0.75, 1.0)
    """
    n, weights, (label, first, agrees, of_images) = clusters.n_queries, clusters.weights, hits
    heavy, none = np.bincount(label, weights / weights.sum(), len(agrees)), len(agrees) - 1
    if of_images:
        expected = (n * (heavy @ agrees @ heavy) - 1) / max(n - 1, 1) * (first < n).mean()
    else:
        expected = heavy @ agrees @ np.bincount(first, minlength=agrees.shape[1]) / n
    if no_interval(clusters) is not None:
        return float(expected), None
    each = agrees * (heavy / np.maximum(np.bincount(label, minlength=len(agrees)), 1))[:, None]
    side = int(np.sqrt(min(DRAWS, max(_LEAST_DRAWS, _CELLS // n))))
    orders = _orders(clusters, 2 * side)
    others = first[orders[:side]]
    if of_images:  # as positions in the permuted order
        others = np.stack([np.append(np.argsort(to), n)[of] for to, of in zip(orders, others, strict=False)])

    def shares(own: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.float64]:
        column = np.append(own, none)[others] if of_images else others
        found: NDArray[np.float64] = each.ravel().take(own * each.shape[1] + column).sum(axis=-1)
        return found

    drawn = np.concatenate([shares(label[to], others) for to in orders[side:]])
    return float(expected), drawn_p(float(shares(label, first)), drawn)


def _orders(clusters: Clusters, n_orders: int) -> NDArray[np.int64]:
    """Return random orders of the queries, shape ``(n_orders, n_queries)``: clusters of equal size are exchanged."""
    rng, at = np.random.default_rng(_CHANCE), np.argsort(clusters.labels, kind="stable")
    sizes = clusters.sizes[clusters.labels[at]]
    orders = np.empty((n_orders, len(at)), dtype=np.int64)
    for size in np.unique(sizes):
        together = at[sizes == size].reshape(-1, size)
        orders[:, together.ravel()] = [rng.permutation(together).ravel() for _ in range(n_orders)]
    return orders
