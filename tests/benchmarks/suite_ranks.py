"""Rankings over several corpora on simulated suites with a known truth: does every statement hold in 95 % of them?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import ClusteredValues, replicates_of
from capim.tasks.statistics.ranking import LEAST_SAMPLE, Estimand, Standing, rank_over_corpora
from tests.benchmarks.rows import Row

LEVEL = 0.95
_CAPTIONS = 3  # per image


@dataclass(frozen=True, kw_only=True)
class Suite:
    """How a simulated suite is drawn.

    Attributes:
        name: In the table.
        truth: The recall of every encoder on every corpus, shape ``(n_corpora, n_encoders)``.
        n_images: Of every corpus.
        between: Standard deviation between corpora of the recall of an encoder, for corpora that are a sample.
    """

    name: str
    truth: NDArray[np.float64]
    n_images: int = 100
    between: float = 0.0


def equal(n_corpora: int, n_encoders: int, share: float = 0.5) -> NDArray[np.float64]:
    """Encoders that do not differ on any corpus."""
    return np.full((n_corpora, n_encoders), share)


def crossed(n_corpora: int, n_encoders: int) -> NDArray[np.float64]:
    """Half of the encoders are better on the first corpora, the others on the last, and the macro means are equal."""
    sign = np.where(np.arange(n_encoders) % 2, 1.0, -1.0)
    tilt = np.linspace(-1, 1, n_corpora)
    return 0.5 + 0.2 * tilt[:, None] * sign[None, :]


def spread(n_corpora: int, n_encoders: int, step: float = 0.03) -> NDArray[np.float64]:
    """Encoders a step apart, but for the last two, which are equal."""
    shares = 0.5 + step * np.arange(n_encoders)[::-1]
    shares[-1] = shares[-2]
    return np.tile(shares, (n_corpora, 1))


SUITES = (
    Suite(name="equal, 3 corpora of 30 images, 3 encoders", truth=equal(3, 3), n_images=30),
    Suite(name="equal, 3 corpora of 100 images, 17 encoders", truth=equal(3, 17)),
    Suite(name="equal at .02, 3 corpora of 100 images, 8 encoders", truth=equal(3, 8, 0.02)),
    Suite(name="equal at .98, 5 corpora of 100 images, 8 encoders", truth=equal(5, 8, 0.98)),
    Suite(name="better on one corpus and worse on another, 3 corpora, 8 encoders", truth=crossed(3, 8)),
    Suite(name="3 points apart, the last two equal, 5 corpora, 8 encoders", truth=spread(5, 8), n_images=300),
    Suite(name="equal over corpora that differ by 5 points, 5 corpora, 8 encoders", truth=equal(5, 8), between=0.05),
    Suite(name="equal over corpora that differ by 5 points, 12 corpora, 8 encoders", truth=equal(12, 8), between=0.05),
    Suite(name="10 points apart over corpora that differ by 5 points, 8 corpora, 3 encoders",
          truth=spread(8, 3, 0.1), between=0.05),
)  # fmt: skip


def drawn(suite: Suite, rng: np.random.Generator) -> tuple[list[list[ClusteredValues]], NDArray[np.float64]]:
    """The values of one suite, two directions on every corpus, and the true recalls on its corpora.

    Encoders find an image with a probability that they have in common, and captions of an image agree.
    """
    n_encoders = suite.truth.shape[1]
    shares = np.clip(suite.truth + suite.between * rng.standard_normal(suite.truth.shape), 0.0, 1.0)
    images = np.arange(suite.n_images)
    corpora = []
    for share in shares:
        difficulty = rng.random((1, suite.n_images))
        parts = []
        for labels in (np.repeat(images, _CAPTIONS), images):
            own = np.where(rng.random((n_encoders, len(labels))) < 0.5, difficulty[:, labels], rng.random(labels.shape))
            fresh = np.where(rng.random(own.shape) < 0.4, rng.random(own.shape), own)
            hits = (fresh < share[:, None]).astype(np.float64)
            parts.append(ClusteredValues(hits, Clusters.of(labels)))
        corpora.append(parts)
    return corpora, shares


def holds(standings: list[Standing], figures: NDArray[np.float64]) -> bool:
    """Whether the ranks that are left open contain those that ties leave the true figures, of every encoder."""
    best = 1 + (figures[None, :] > figures[:, None] + 1e-9).sum(axis=1)
    worst = len(figures) - (figures[None, :] < figures[:, None] - 1e-9).sum(axis=1)
    return all(
        standing.held is not None and standing.held.best <= first and standing.held.worst >= last
        for standing, first, last in zip(standings, best.tolist(), worst.tolist(), strict=True)
    )


def covered(standings: list[Standing], figures: NDArray[np.float64]) -> float:
    """The share of the encoders with an interval whose interval contains the true figure."""
    inside = [
        standing.figure.low - 1e-9 <= value <= (standing.figure.high or 0.0) + 1e-9
        for standing, value in zip(standings, figures.tolist(), strict=True)
        if standing.figure.low is not None
    ]
    return float(np.mean(inside)) if inside else float("nan")


def judged(
    suite: Suite, *, suites: int, resampling: Resampling, seed: int = 0
) -> Iterator[tuple[Estimand, list[Standing], NDArray[np.float64]]]:
    """The standings of simulated suites by estimand, with the true figures of all encoders."""
    rng = np.random.default_rng(seed)
    for at in range(suites):
        corpora, shares = drawn(suite, rng)
        for key, standings in rank_over_corpora(corpora, replace(resampling, seed=at)).items():
            sampled = key == "corpora like these"
            if sampled and len(corpora) < LEAST_SAMPLE:
                continue
            yield key, standings, (suite.truth if sampled else shares).mean(axis=0)


def holds_in(suite: Suite, *, suites: int, resampling: Resampling) -> dict[Estimand, int]:
    """In how many simulated suites all ranks hold, for each estimand."""
    held: Counter[Estimand] = Counter()
    for key, standings, figures in judged(suite, suites=suites, resampling=resampling):
        held[key] += holds(standings, figures)
    return dict(held)


def false_claims_of_a_bootstrap_of_both(suite: Suite, *, suites: int, seed: int = 0) -> float:
    """How often a bootstrap of corpora and images finds a difference between equal encoders, the largest of all pairs.

    The method that ``corpora like these`` does not use.
    """
    rng = np.random.default_rng(seed)
    claims = 0
    for at in range(suites):
        corpora, _ = drawn(suite, rng)
        resampling = Resampling(replicates=400, seed=at)
        drawn_of = [
            [[replicates_of(row, clusters, resampling) for row in np.asarray(values)] for values, clusters in parts]
            for parts in corpora
        ]
        replicates = np.mean(drawn_of, axis=1)  # of both directions
        n_corpora, n_encoders = suite.truth.shape
        corpus, draw = (rng.integers(0, n, (400, n_corpora)) for n in (n_corpora, 400))
        means = replicates[corpus, :, draw].mean(axis=1)
        first, second = np.triu_indices(n_encoders, 1)
        differences = means[:, first] - means[:, second]
        observed = replicates.mean(axis=(0, 2))
        centred = differences - (observed[first] - observed[second])
        scale = np.maximum(centred.std(axis=0), 1e-12)
        critical = np.quantile(np.abs(centred / scale).max(axis=1), LEVEL)
        claims += bool((np.abs(observed[first] - observed[second]) / scale > critical).any())
    return claims / suites


def rows(quick: bool = False) -> list[Row]:
    """Rows of the group ``validity``: for each kind of suite, how often all ranks hold and how many are left open."""
    suites = 100 if quick else 400
    resampling = Resampling(replicates=400, permutations=1_000, level=LEVEL)
    least = 100 * (LEVEL - 3 * float(np.sqrt(LEVEL * (1 - LEVEL) / suites)))  # three standard errors below 95 %
    found = []
    for suite in SUITES:
        simulated: dict[Estimand, list[tuple[bool, float, float]]] = {}
        for key, standings, figures in judged(suite, suites=suites, resampling=resampling):
            width = float(np.mean([s.held.worst - s.held.best + 1 for s in standings if s.held is not None]))
            simulated.setdefault(key, []).append((holds(standings, figures), width, covered(standings, figures)))
        for estimand, each in simulated.items():
            hold, width, inside = np.array(each, dtype=float).T
            known = inside[np.isfinite(inside)]
            intervals = f", intervals cover {100 * known.mean():.1f} %" if len(known) else ""
            name = f"{suite.name}: {estimand}, all ranks hold"
            note = f"{width.mean():.1f} ranks per encoder{intervals}"
            found.append(Row(name, 100 * float(hold.mean()), "%", f">= {least:.1f}", note=note))
    sampled = next(suite for suite in SUITES if suite.between)
    share = 100 * false_claims_of_a_bootstrap_of_both(sampled, suites=suites)
    found.append(Row(f"{sampled.name}: a bootstrap of corpora and images makes a false claim", share, "%"))
    return found
