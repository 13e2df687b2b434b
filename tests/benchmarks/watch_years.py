"""Years of weekly watches, simulated: how often a year has a false alarm, and how soon a drift is reported.

A model is trained or quantised again every week, so that its outcomes on the same queries differ a little from week to
week. Every query has a margin: how far the right item is ahead. The margin of a week is a fixed part, plus fresh noise
of the week, of which a share belongs to the image and moves all its queries together; the query is a hit where the
margin is positive. Nothing else changes in a year without a change. In a year with a drift the noise is the same, and a
share of the hits, larger by ``drift`` every week and the same for all figures, is lost. The first week is the pinned
baseline, whose noise the comparisons of all weeks have in common.

Every watch is decided by the product's own functions: ``WatchRule.alarm_level``, ``tested_changes``, ``judge_change``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from capim.tasks.reference.changes import FigureChange, WatchRule, judge_change, tested_changes
from capim.tasks.statistics.draws import Resampling
from tests.benchmarks.rows import Row

WEEKS, DAYS = 52, 7.0


@dataclass(frozen=True, kw_only=True)
class Year:
    """The parameters of simulated years.

    Attributes:
        n_images: Clusters.
        n_protocols: Figures over the same images, one query per image each.
        recall: Expected share of hits, the same in every protocol.
        noise: Standard deviation of a week's noise, where margins have the standard deviation 1.
        shared: Share of the variance of the noise that the queries of an image have in common.
        drift: Share of all queries that turn from hits to misses, more every week (0.005: half a point).
        weeks: Watches after the baseline.
        days: Between two watches.
        lucky: Weeks before the first watch of which the best one is pinned as the baseline.
    """

    n_images: int = 1000
    n_protocols: int = 2
    recall: float = 0.5
    noise: float = 0.1
    shared: float = 0.3
    drift: float = 0.0
    weeks: int = WEEKS
    days: float = DAYS
    lucky: int = 1


class Alarms(NamedTuple):
    """The first week with a significant drop, and with a drop that fails the watch; None where there is none."""

    significant: int | None
    failed: int | None


def outcomes(year: Year, rng: np.random.Generator) -> Iterator[NDArray[np.bool_]]:
    """Hits of the baseline and of every week after it, shape ``(n_images, n_protocols)``."""
    shape = (year.n_images, year.n_protocols)
    total = np.sqrt(1 + year.noise**2)
    margins = rng.standard_normal(shape) + scipy.stats.norm.ppf(year.recall) * total
    order = rng.random(shape)  # which queries a drift takes first
    for week in range(year.weeks + year.lucky):
        of_image = rng.standard_normal((year.n_images, 1)) * np.sqrt(year.shared)
        of_query = rng.standard_normal(shape) * np.sqrt(1 - year.shared)
        lost = order < week * year.drift / year.recall
        yield (margins + year.noise * (of_image + of_query) > 0) & ~lost


def watched_year(year: Year, rule: WatchRule, *, seed: int) -> Alarms:
    """One year of watches against its first week; it ends with the first watch that fails."""
    weeks = outcomes(year, np.random.default_rng(seed))
    baseline = max(islice(weeks, year.lucky), key=np.mean)
    level = rule.alarm_level(year.days)
    significant = None
    for week, hits in enumerate(weeks, start=1):
        old, new = baseline.mean(axis=0), hits.mean(axis=0)
        changes = tuple(
            FigureChange(key=("images", str(figure), "R@1", "model"), difference=by, p=None, basis="paired test")
            for figure, by in enumerate(new - old)
        )
        group = changes, baseline.astype(np.float64) - hits
        tested = tested_changes([group], level=level, resampling=Resampling())
        if significant is None and any(change.is_significant(level) and change.worse for change in tested):
            significant = week
        if any(judge_change(change, rule, level) == "fail" for change in tested):
            return Alarms(significant=significant, failed=week)
    return Alarms(significant=significant, failed=None)


def false_alarm_rate(year: Year, n_years: int, *, seed: int) -> float:
    """Share of years with any significant drop, whether it fails or only warns."""
    return float(np.mean([alarms.significant is not None for alarms in _years(year, n_years, seed)]))


def reported_within(year: Year, n_years: int, *, seed: int) -> float:
    """Share of years in which a watch fails before they end."""
    return float(np.mean([alarms.failed is not None for alarms in _years(year, n_years, seed)]))


def rows(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` simulates too few years for the claims."""
    found = []
    for what, year, n_years in (
        ("weekly, 2 figures", Year(), 400),
        ("weekly, 126 figures", Year(n_protocols=126), 200),
        ("weekly, 126 figures with R@1 .95, 300 images", Year(n_images=300, n_protocols=126, recall=0.95), 200),
        ("nightly, 2 figures of 300 images", Year(n_images=300, weeks=365, days=1.0), 100),
        ("weekly, 2 figures of 20 images", Year(n_images=20), 1_000),
        ("weekly, 20 figures of 12 images", Year(n_images=12, n_protocols=20, noise=0.3), 1_000),
        ("weekly, 2 figures, the best of 8 weeks pinned", Year(lucky=8), 400),
        ("weekly, 2 figures of 60 images, the best of 52 weeks pinned", Year(n_images=60, lucky=52), 1_000),
    ):
        n = 4 if quick else n_years
        rate = false_alarm_rate(year, n, seed=11)
        peer = "issue 18: 92 %, with Holm in each protocol" if year.n_protocols == 126 else ""
        note = f"{n} years of {year.weeks} watches, {year.n_images:,} images; all figures one family, pinned baseline"
        found.append(Row(f"watch without a change, {what}: years with any alarm", 100 * rate, "%", "<= 5", peer, note))
    for what, year, bar in (
        ("2 figures of 1,000 images", Year(), ">= 90"),
        ("126 figures of 1,000 images", Year(n_protocols=126), ">= 90"),
        ("2 figures of 300 images", Year(n_images=300), ""),
    ):
        n = 4 if quick else 100
        drifting = replace(year, drift=0.005, weeks=10)
        rate = reported_within(drifting, n, seed=12)
        name = f"watch, 0.5 points down a week, {what}: years that fail within ten weeks"
        found.append(Row(name, 100 * rate, "%", bar, note=f"{n} years; all figures drift"))
    return [row._replace(bar="") for row in found] if quick else found


def _years(year: Year, n_years: int, seed: int) -> list[Alarms]:
    return [watched_year(year, WatchRule(), seed=seed * 100_003 + i) for i in range(n_years)]
