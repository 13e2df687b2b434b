"""Stored rows as table cells: a figure with its interval, its ties and the reason where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from reports import format as show
from reports.elements.page import Bar, Cell, Column, HeadingGroup, Mark
from reports.rows.report_data import Row

UNITS = frozenset(  # metrics of analyses that are no fractions
    {"skewness", "score margin", "negative log likelihood", "mean cosine", "distance of the centres"}
)
RANKS = frozenset({"median_rank", "mean_rank"})  # metrics that are ranks, not fractions
POINTS = frozenset({"RSUM"})  # in points 0..600 as stored

METRIC_TITLES = {
    "median_rank": "median rank",
    "mean_rank": "mean rank",
    "winoground_text": "text",
    "winoground_image": "image",
    "winoground_group": "group",
    "pair_accuracy": "accuracy",
    "consistency_nDCG@20": "nDCG@20",
    "consistency_RBO": "RBO",
    "negative log likelihood": "negative log-likelihood",
}


def metric_title(metric: str) -> str:
    """The name of a metric in a heading."""
    return METRIC_TITLES.get(metric, metric)


def value_text(metric: str, value: float | None) -> str:
    """A figure as read: percent, or a rank, or points."""
    return show.number(value) if metric in RANKS | POINTS else show.percent(value)


def range_text(metric: str, low: float | None, high: float | None) -> str:
    """An interval in the unit of its metric."""
    return show.span(low, high) if metric in RANKS | POINTS else show.percent_range(low, high)


def result_cell(row: Row | None, *, mark: Mark = "", axis: tuple[float, float] | None = None) -> Cell:
    """One result as a cell.

    Args:
        row: ``schema.RESULTS``, or None where there is no such row.
        mark: How it stands out.
        axis: Ends of the axis on which to draw the interval; no picture without one.
    """
    if row is None:
        return Cell(text=show.ABSENT, mark="muted", title="not evaluated")
    metric, value = row["metric"], row["value"]
    if value is None:
        return Cell(text=show.ABSENT, mark="muted", title=row["reason"] or "no value")
    interval = range_text(metric, row["ci_low"], row["ci_high"])
    ties = tie_range(row)
    about = [f"{metric} = {show.exact(value)}"]
    if interval:
        about.append(f"{show.percent(row['level'], 0)} % interval {interval} ({row['interval_method']})")
    about.append(f"{show.count(row['n_queries'], 'query', 'queries')} in {show.count(row['n_clusters'], 'cluster')}")
    if row.get("wilson_low") is not None:
        about.append(f"Wilson {range_text(metric, row['wilson_low'], row['wilson_high'])}")
    if ties:
        about.append(f"{ties} if ties are all lost or all won; {show.percent(row['tie_share'])} % of queries tie")
    return Cell(
        text=value_text(metric, value),
        note=interval,
        title=", ".join(about),
        sort=show.exact(value),
        mark=mark,
        bar=interval_bar(row, axis) if axis else None,
    )


def is_best(encoder: str, ranked: Sequence[Row]) -> bool:
    """Whether an encoder has the best value of a metric; several may have it."""
    value = next((r["value"] for r in ranked if r["encoder"] == encoder), None)
    return value is not None and value == ranked[0]["value"]


def tie_cell(row: Row | None) -> Cell:
    """How much ties matter: the share of tied queries, and the figure with all of them lost and all won."""
    if row is None or row["value"] is None:
        return Cell(text=show.ABSENT, mark="muted")
    return Cell(
        text=show.percent(row["tie_share"]), note=tie_range(row), sort=show.exact(row["tie_share"]), mark="muted"
    )


def tie_range(row: Row) -> str:
    """The figure with ties all lost and all won; empty where they change nothing."""
    low, high = row["value_ties_lost"], row["value_ties_won"]
    return (
        "" if low is None or high is None or low == high else range_text(row["metric"], min(low, high), max(low, high))
    )


def interval_bar(row: Row, axis: tuple[float, float]) -> Bar | None:
    """The interval as places on an axis; None without an interval."""
    low, high, value, chance = row["ci_low"], row["ci_high"], row["value"], row["chance"]
    start, end = axis
    if low is None or high is None or value is None or end <= start:
        return None

    def place(x: float) -> str:
        return f"{100 * min(1.0, max(0.0, (x - start) / (end - start))):.2f}%"

    return Bar(
        low=place(low),
        width=f"{max(0.0, 100 * (min(high, end) - max(low, start)) / (end - start)):.2f}%",
        point=place(value),
        chance=place(chance) if chance is not None and start <= chance <= end else "",
    )


def axis_of(rows: Sequence[Row]) -> tuple[float, float]:
    """An axis from the lowest end of the rows' intervals to the highest, with a little room on both sides."""
    ends = [x for r in rows for x in (r["ci_low"], r["ci_high"], r["value"]) if x is not None]
    room = 0.04 * (max(ends) - min(ends)) if ends else 0.0
    return (min(ends) - room, max(ends) + room) if ends else (0.0, 1.0)


def heading_groups(columns: tuple[Column, ...]) -> tuple[HeadingGroup, ...]:
    """The upper line of headings; empty if no column has a group.

    Examples:
        >>> heading_groups((Column(heading="a"), Column(heading="b", group="x"), Column(heading="c", group="x")))
        (HeadingGroup(text='', span='1'), HeadingGroup(text='x', span='2'))
    """
    if not any(column.group for column in columns):
        return ()
    return tuple(
        HeadingGroup(text=group, span=str(len(list(members))))
        for group, members in groupby(columns, key=lambda column: column.group)
    )


def heat(value: float | None, low: float, high: float) -> str:
    """A shade from ``"0"`` to ``"8"`` for a value between two ends; empty for none.

    Examples:
        >>> heat(0.0, 0.0, 1.0), heat(0.5, 0.0, 1.0), heat(1.0, 0.0, 1.0), heat(None, 0.0, 1.0), heat(3.0, 3.0, 3.0)
        ('0', '4', '8', '', '4')
    """
    if value is None:
        return ""
    if high <= low:
        return "4"
    return str(min(8, max(0, int(9 * (value - low) / (high - low)))))
