"""The cells in which a reading from outside saw 0.3.0 err, and some that no method was tuned to.

What was seen then stands beside each row as its peer (rates in %, from 150 to 4,000 data sets).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from capim.tasks.statistics.chance import FirstHits, labels_p
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.decision import ALPHA, decide
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import interval_of
from capim.tasks.statistics.pairs import Comparison, Scale, compare_encoders
from tests.benchmarks.made import unit
from tests.benchmarks.rows import Row
from tests.benchmarks.simulations.shares import Rate, coverage_of, percent, significant

SEED = 63
SHARE = Scale(share=True, span=1.0)
Draw = Callable[[np.random.Generator], NDArray[np.float64]]
"""Values of encoders, shape ``(n_encoders, n_queries)``."""


def rows(n: int) -> list[Row]:
    """Rows of RESULTS.md, from ``n`` data sets each; a fifth of it for labels, whose test takes a second."""
    return [
        *reciprocal_ranks(n),
        *differences(n),
        *labels(max(n // 5, 50)),
        *strata(n),
        *sizes_that_inform(n),
        *dependent(n),
    ]


def reciprocal_ranks(n: int) -> list[Row]:
    """A weak MRR (.07 and others), which has an interval only where enough is found."""
    found = []
    for chance, images, captions, old in (
        (0.0165, 10, 1, "74.5"), (0.0165, 30, 1, "87.7"), (0.0165, 10, 5, "86.1"),
        (0.0165, 300, 1, ""), (0.2, 40, 3, ""),
    ):  # fmt: skip
        rng, clusters = np.random.default_rng((SEED, images, captions)), Clusters.of(np.repeat(range(images), captions))
        truth = float(-chance * np.log(chance) / (1 - chance))  # of a geometric rank
        drawn = (1.0 / rng.geometric(chance, clusters.n_queries) for _ in range(n))
        rate = coverage_of((interval_of(each, clusters, Resampling(), bounds=(0.0, 1.0)) for each in drawn), truth)
        name = f"MRR {truth:.2f}, {images} images of {captions}: coverage where it is shown"
        note = f"shown in {100 * rate.n / n:.0f} % of {n:,}"
        found.append(_row(name, rate if rate.n >= 50 else None, ">= 93" if rate.n > n / 2 else "", old, note))
    return found


def _together(shares: Sequence[float], n_images: int, captions: int = 1) -> Draw:
    """Encoders of these shares that find an image with a difficulty in common, half of the time."""

    def draw(rng: np.random.Generator) -> NDArray[np.float64]:
        common = np.repeat(rng.random(n_images), captions)
        own = rng.random((len(shares), len(common)))
        ease = np.where(rng.random(own.shape) < 0.5, common, own)
        return np.asarray(ease < np.array(shares)[:, None]).astype(np.float64)

    return draw


def _only_loses(n_lost: int, n_images: int, captions: int = 1) -> Draw:
    def draw(rng: np.random.Generator) -> NDArray[np.float64]:
        lost = np.repeat(rng.random(n_images) < n_lost / n_images, captions)
        return np.stack([np.ones(len(lost)), 1.0 - lost])

    return draw


def differences(n: int) -> list[Row]:
    """The interval that holds for all pairs together, and "could be up to x worse" where a pair is undecided."""
    found = []
    for what, shares, images, draw, old in (
        ("5 encoders .995 to .97", (0.995, 0.99, 0.985, 0.98, 0.97), 200, None, "74.3"),
        ("5 encoders .999 to .995", (0.999, 0.998, 0.997, 0.996, 0.995), 1_000, None, "79.3"),
        ("5 encoders .02 to .004", (0.02, 0.016, 0.012, 0.008, 0.004), 200, None, "76.0"),
        ("5 encoders .8 to .7", (0.8, 0.78, 0.75, 0.72, 0.7), 200, None, "92.8 to 95.0"),
        ("3 encoders .9 to .6", (0.9, 0.8, 0.6), 60, None, ""),
        ("one loses 3 and wins none", (1.0, 0.97), 100, _only_loses(3, 100), "80 to 82"),
        ("one loses 5 and wins none", (1.0, 0.995), 1_000, _only_loses(5, 1_000), "87 to 88"),
    ):
        rng, clusters = np.random.default_rng((SEED, images, len(what))), Clusters.of(range(images))
        drawn = draw or _together(shares, images)
        covered = sum(all(_holds(pair, shares) for pair in _pairs(drawn(rng), clusters, at)) for at in range(n))
        name = f"simultaneous interval of all pairs: coverage, {what}, {images:,} images"
        found.append(_row(name, Rate(covered / n, n), ">= 93" if n >= 500 else "", old))
    for n_lost, images, captions, old in ((3, 100, 1, "80.8"), (3, 300, 5, "80.9")):
        rng, clusters = np.random.default_rng((SEED, images)), Clusters.of(np.repeat(range(images), captions))
        drawn, undecided, true = _only_loses(n_lost, images, captions), 0, 0
        for at in range(n):
            [pair] = _pairs(drawn(rng)[::-1], clusters, at)
            said = decide(pair.simultaneous, p_equivalent=None, margin=None)
            if said.state == "undecided" and said.worse_by is not None:
                undecided, true = undecided + 1, true + (said.worse_by >= n_lost / images)
        name = f"“could be up to x worse” is true, one loses {n_lost} of {images} x {captions}"
        note = f"undecided in {100 * undecided / n:.0f} %"
        found.append(_row(name, Rate(true / max(undecided, 1), undecided), ">= 95", old, note))
    return found


def _pairs(values: NDArray[np.float64], clusters: Clusters, seed: int) -> list[Comparison]:
    named = {str(at): row for at, row in enumerate(values)}
    return compare_encoders(named, clusters, Resampling(permutations=999, seed=seed), SHARE)


def _holds(pair: Comparison, shares: Sequence[float]) -> bool:
    low, high = pair.simultaneous or ((0.0, 0.0) if pair.flip_test.p is None else (-1.0, 1.0))
    truth = shares[int(pair.a)] - shares[int(pair.b)]
    return pair.flip_test.p is None or low <= truth <= high  # of encoders that never differ nothing is claimed


def labels(n: int) -> list[Row]:
    """Guessers that give each image the class of the nearest random vector: called better than or below chance."""
    found = []
    for what, sizes, cosine, balanced, old in (
        ("classes of 400 to 25", (400, 200, 100, 50, 25), 0.5, False, "better 27, below 40"),
        ("classes of 400 to 25", (400, 200, 100, 50, 25), 0.9, False, "better 25, below 59"),
        ("class-balanced, 9 x 200 and 3", (*[200] * 9, 3), 0.5, True, "better 17"),
        ("10 classes of 30", (30,) * 10, 0.5, False, "10.4"),
    ):
        rng, label = np.random.default_rng((SEED, len(sizes), int(10 * cosine))), np.repeat(range(len(sizes)), sizes)
        weights = 1 / np.array(sizes, dtype=np.float64)[label] if balanced else None
        clusters, wrong = Clusters.of(np.arange(len(label)), len(label), weights), 0
        agrees = np.diag([True] * len(sizes) + [False])
        for _ in range(n):
            centre = rng.normal(size=64)
            images, names = (
                np.sqrt(cosine) * centre + np.sqrt(1 - cosine) * rng.normal(size=(of, 64))
                for of in (len(label), len(sizes))
            )
            first = (images @ (names / np.linalg.norm(names, axis=1, keepdims=True)).T).argmax(axis=1)
            _, p = labels_p(FirstHits(label, first, agrees, of_images=False), clusters)
            wrong += significant(p)
        name = f"guessers, {what}, mean cosine {cosine}: better than or below chance"
        found.append(_row(name, Rate(wrong / n, n), "<= 6.5" if n >= 200 else "", old))
    return found


def dependent(n: int) -> list[Row]:
    """Two equally noisy encoders called different where queries are gallery items, or share them: no test knows of it.

    The noise of an encoder is that of its vectors: all queries that meet a noisy item win or lose together.
    """
    found = []
    for what, asked, items, classes, old in (
        ("image to image, 10 classes of 30", None, 300, 10, "7.7 to 10.7"),
        ("60 judged queries that ask for 12 topics, 100 documents", 60, 100, 12, "11.8"),
        ("60 judged queries that ask for 12 topics, 400 documents", 60, 400, 12, "7.2"),
    ):
        rng, wrong = np.random.default_rng((SEED, items)), 0
        label = np.arange(items) % classes
        of_query = label if asked is None else np.arange(asked) % classes
        clusters = Clusters.of(range(len(of_query)))
        for at in range(n):
            centres = rng.normal(size=(classes, 16))
            documents = centres[label] + rng.normal(size=(items, 16))
            queries = None if asked is None else centres[of_query] + 0.1 * rng.normal(size=(asked, 16))
            hits = []
            for _ in range(2):
                seen = unit(documents + rng.normal(size=documents.shape))
                scores = (seen if queries is None else unit(queries + 0.1 * rng.normal(size=queries.shape))) @ seen.T
                if queries is None:
                    np.fill_diagonal(scores, -1.0)
                hits.append((label[scores.argmax(axis=1)] == of_query).astype(np.float64))
            [pair] = _pairs(np.stack(hits), clusters, at)
            wrong += significant(pair.flip_test.p)
        name = f"two equally noisy encoders called different, {what}"
        found.append(_row(name, Rate(wrong / n, n), "", old, "said in the report, not promised"))
    return found


def strata(n: int) -> list[Row]:
    """Called equivalent at the margin by a mean over categories that differs in one of them only."""
    sizes, margin = np.array([250, 150, 600, 400, 200, 450, 180]), 0.01
    category = np.repeat(range(7), sizes)
    clusters = Clusters.of(np.arange(len(category)), weights=1 / sizes[category])
    rng, called = np.random.default_rng(SEED), np.zeros(2, dtype=int)
    for at in range(n):
        won = (category == 0) & (rng.random(len(category)) < 7 * margin)
        [pair] = _pairs(np.stack([np.ones(len(won)), 1.0 - won]), clusters, at)
        p = pair.p_equivalent or 0.0
        found = decide(pair.simultaneous, p_equivalent=p, margin=margin)
        called += p < ALPHA, found.state == "equivalent"
    name = "called equivalent at the margin, the difference in one of seven categories"
    note = f"by the betting bound alone {100 * called[0] / n:.1f} %"
    return [_row(name, Rate(called[1] / n, n), "<= 5", "bound 10.7, decision 0 to .9", note)]


def sizes_that_inform(n: int) -> list[Row]:
    """Coverage of a share where harder images have more captions, and where few images have half of them."""
    found = []
    for what, images, sizes, old in (
        ("harder images have more captions", 60, (1, 9), "97.0"),
        ("harder images have more captions", 400, (1, 9), "93.2"),
        ("every tenth image has 12", 100, (1, 12), ""),
    ):
        rng, intervals = np.random.default_rng((SEED, images, sizes[1])), []
        rates = (0.95, 0.8) if "harder" in what else (0.7, 0.7)
        large_share = 0.5 if "harder" in what else 0.1
        weights = np.array([(1 - large_share) * sizes[0], large_share * sizes[1]])
        truth = float(weights @ rates / weights.sum())
        for _ in range(n):
            large = rng.random(images) < large_share
            clusters = Clusters.of(np.repeat(range(images), np.where(large, sizes[1], sizes[0])))
            rate = np.where(large, rates[1], rates[0])
            ease = rng.beta(2 * rate, 2 * (1 - rate))[clusters.labels]
            hits = (rng.random(clusters.n_queries) < ease).astype(np.float64)
            intervals.append(interval_of(hits, clusters, Resampling(), bounds=(0.0, 1.0), share=True))
        covered, name = coverage_of(intervals, truth), f"95 % interval of a share: coverage, {what}, {images} images"
        found.append(_row(name, covered, ">= 93", old, f"shown in {100 * covered.n / n:.0f} %"))
    return found


def _row(name: str, rate: Rate | None, bar: str, old: str, note: str = "") -> Row:
    peer = f"0.3.0: {old} %" if old else ""
    return Row(name, None, "%", "", peer, note) if rate is None else percent(name, rate, bar, peer, note)
