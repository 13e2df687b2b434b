"""Stored results in words: a value with its unit, its interval, a difference, and what a test says of it.

Units, decimals and names are those of the metric (``store.types.MetricFacts``, of a row ``ReportData.metric``).
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from capim.reports import format as show
from capim.reports.elements.page import Kind
from capim.reports.rows import standing
from capim.reports.rows.report_data import Figure, ReportData, detail_of
from capim.reports.rows.standing import Task, decision_of, planned
from capim.store.schema import Comparison, Result, Slice
from capim.store.types import MetricFacts
from capim.tasks.metrics.table import facts_of
from capim.tasks.protocols import Protocol
from capim.tasks.statistics.decision import ON_COMMON, images_needed, unequal_weights


def value(metric: MetricFacts, number: float | None) -> str:
    """Return a value as displayed: percent, a rank, points, or a number in its own unit."""
    return show.percent(number) if metric.unit == "percent" else show.number(number, metric.decimals)


def interval(metric: MetricFacts, row: Result | Slice | Comparison) -> str:
    """Return the interval of a row in the unit of its metric; empty without one."""
    return span(metric, row.ci_low, row.ci_high)


def span(metric: MetricFacts, low: float | None, high: float | None) -> str:
    """Return two values as displayed with a dash between them; empty where one is missing."""
    return show.percent_range(low, high) if metric.unit == "percent" else show.span(low, high, metric.decimals)


def difference(metric: MetricFacts, size: float | None, decimals: int = 1) -> str:
    """Return a difference of two values: percentage points with so many decimals, or a number in the metric's unit."""
    if metric.unit == "percent":
        return show.points(size, decimals)
    text = show.number(size, metric.decimals)
    return f"+{text}" if metric.unit == "own" and size is not None and size > 0 else text


def described(metric: MetricFacts) -> str:
    """Return the name of a metric in a caption; of a user's metric, the first line of its docstring and its name."""
    return f"{metric.title.rstrip('.')} ({metric.name})" if metric.has_table else metric.label


def figure(metric: MetricFacts, row: Result | None) -> str:
    """Return a value with its interval in one line."""
    if row is None:
        return show.ABSENT
    sign = show.PERCENT if metric.unit == "percent" else ""
    return show.bracketed(f"{value(metric, row.value)}{sign}", interval(metric, row))


def against_published(row: Slice) -> str:
    """Return how a result compares with the published one, with both and the source; empty if none is published.

    ``row`` is of the analysis ``reference`` (``tasks.reference.published``).
    """
    detail, metric = detail_of(row), facts_of(row.metric)
    if metric is None or detail.get("published") is None:
        return ""
    there, source = detail.get("published_protocol") or row.protocol, detail.get("source") or row.feature
    under = "" if there == row.protocol else f" under {there}"
    here = show.bracketed(value(metric, row.value), interval(metric, row))
    reason = f" ({row.reason})" if row.reason else ""
    return f"published {value(metric, detail['published'])}{under} ({source}), here {here}: {row.level_name}{reason}"


def ties(metric: MetricFacts, row: Result) -> str:
    """Return the value with ties all lost and all won; empty where ties change nothing."""
    lost, won = row.value_ties_lost, row.value_ties_won
    return "" if lost is None or won is None or lost == won else span(metric, min(lost, won), max(lost, won))


def verdict(metric: MetricFacts, row: Comparison | None, *, unit: bool = True) -> str:
    """Return the verdict of one comparison's tests on its first encoder, with the size that matters.

    Without ``unit``, the place says that sizes are in percentage points.
    """
    found = decision_of(row)
    if row is None or found is None:
        return "not tested"
    few = " (few images)" if found.few_images else ""
    if found.state == "equivalent":
        return f"equivalent{few}"
    if found.state == "undecided":
        size = "" if found.worse_by is None else _amount(metric, found.worse_by, unit=unit)
        if not size.partition(" ")[0].strip("0."):  # an interval that ends at 0 bounds nothing: few images differ
            return "undecided"
        return f"undecided: up to {size} worse"
    common = "".join(f", {r}" for r in (row.reason or "").split("; ") if r.startswith(ON_COMMON.partition("{")[0]))
    return f"{_amount(metric, abs(row.difference or 0.0), unit=unit)} {found.state}{common}{few}"


def standing_of(data: ReportData, figure: Figure, encoder: str, *, unit: bool = True) -> tuple[Kind, str]:
    """Return what the tests say of an encoder on a task, and the same in words; these are empty without a value."""
    kind, best = standing.stand(data, *figure, encoder)
    if kind in ("none", "best"):
        return kind, "highest" * (kind == "best")
    if kind == "chance":
        return kind, standing.at_chance(data, *figure, encoder)
    return kind, verdict(data.metric(figure[2]), data.comparison(*figure, encoder, best), unit=unit)


def settled(compared: Iterable[tuple[MetricFacts, Comparison]]) -> str:
    """Return how many images would settle those comparisons that are undecided, as a sentence; empty if there is none.

    About the one that takes most, and about differences that it is not expected to see: 2 points, and 1 point.
    """
    open_ = [
        (100 * row.detectable_effect, row)
        for metric, row in compared
        if metric.unit == "percent" and row.detectable_effect is not None
        if (found := decision_of(row)) is not None and found.state == "undecided"
    ]
    if not open_:
        return ""
    detectable, row = max(open_, key=itemgetter(0))
    needed = [(size, images_needed(row.n_clusters, detectable, size)) for size in (2, 1) if size < detectable]
    if not needed:
        return ""
    units = "queries" if Protocol.of(row.protocol).kind == "judged" else "images"
    (size, n), *more = needed
    first = f"About {n:,} {units} like these would settle a difference of {show.count(size, 'point')}"
    return ", ".join([first, *(f"about {n:,} one of {show.count(size, 'point')}" for size, n in more)]) + "."


def budgets(data: ReportData) -> list[str]:
    """Return which statements share which budget of errors, in a line, and where it does not hold; none without any."""
    figures, corpora = planned(data.comparisons), {row.corpus for row in data.comparisons}
    n_chance = sum(row.against_chance is not None for row in data.results)
    parts = []
    if figures:
        over = show.count(len(figures), "planned result") + f" of {show.count(len(corpora), 'corpus', 'corpora')}"
        parts += [f"better and worse, over all pairs of {over}", "equivalent, over the pairs of each result"]
    if data.rankings:
        parts.append("ranks over corpora, of each kind" + " (few images)" * standing.rests_on_few(data.rankings))
    if n_chance:
        parts.append(f"better than and below chance, over {show.count(n_chance, 'result')}")
    lines = (
        [f"Family-wise error rate of 5% each for: {'; '.join(parts)}. Everything else is exploratory."] if parts else []
    )
    rows = (data.comparisons[places[0]] for places in figures.values())
    if shared := sorted({row.corpus for row in rows if Protocol.of(row.protocol).shares_items}):
        why = "queries share right items or are searched themselves, and the tests take them for independent"
        lines.append(f"{show.listing(shared)}: a false better or worse is likelier than that, because {why}.")
    return lines


def weights(data: ReportData, tasks: Iterable[Task]) -> list[str]:
    """Return a line on a corpus with images of very different weights: for the result in which the fewest count."""
    rows = (row for task in tasks for row in data.ranked(*task[:3])[:1])
    known = [(row.n_effective, row) for row in rows if row.n_effective]
    n_effective, worst = min(known, key=lambda each: each[0] / each[1].n_clusters, default=(0.0, None))
    if worst is None:
        return []
    said = unequal_weights(worst.n_clusters, n_effective, worst.largest_share or 0.0)
    return [f"{worst.corpus}: {said}."] if said else []


def _amount(metric: MetricFacts, size: float, *, unit: bool = True) -> str:
    """Return a size of a difference with its unit.

    Examples:
        >>> percent, rank = (MetricFacts(name="m", title="", unit=unit) for unit in ("percent", "rank"))
        >>> _amount(percent, 0.01), _amount(percent, 0.043), _amount(rank, 2.0)
        ('1.0 point', '4.3 points', '2.0')
    """
    text = difference(metric, size).removeprefix("+")
    return text + (" point" if text == "1.0" else " points") * (unit and metric.unit in ("percent", "points"))


def margin(metric: MetricFacts, size: float | None) -> str:
    """Return a margin with its unit, without needless decimals; empty without a margin.

    Examples:
        >>> percent, points = (MetricFacts(name="m", title="", unit=unit) for unit in ("percent", "points"))
        >>> [margin(percent, size) for size in (0.01, 0.005, None)], margin(points, 6.0)
        (['1 point', '0.5 points', ''], '6 points')
    """
    if size is None:
        return ""
    text = f"{round(100 * size if metric.unit == 'percent' else size, 2):g}"
    return f"{text} {'point' if text == '1' else 'points'}" if metric.unit in ("percent", "points") else text
