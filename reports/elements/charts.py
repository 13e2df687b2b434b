"""Charts by Altair: those of a paper and of a notebook; what a page shows is drawn by ``drawings``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import altair as alt

from capim.reports import format as show
from capim.reports.rows.report_data import ends
from capim.store.errors import RequestError
from capim.store.schema import FIGURE, Result, Slice

COLOUR = "#0072B2"
WIDTH = 640
ENCODER = "encoder"  # the field of a point that names its encoder
Point: TypeAlias = dict[str, Any]
"""The data of one value of a chart: field to value."""


def interval_point(
    row: Result | Slice, *, fraction: bool = True, unit: str = "percent", text: str = "", **fields: Any
) -> Point:
    """The data of one stored value with its interval in a chart; without an interval, both ends are the value.

    A ``fraction`` is drawn in percent or percentage points, its ``unit``; other numbers as they are, in no named unit.
    ``text`` is the value as displayed, by default in percent.
    """
    scale = 100.0 if fraction else 1.0
    value = math.nan if row.value is None else row.value
    low, high = ends(value, row.ci_low, row.ci_high)
    return {
        ENCODER: row.encoder,
        "value": scale * value,
        "ci_low": scale * low,
        "ci_high": scale * high,
        "unit": unit if fraction else "",
        "text": text or f"{show.percent(value)} % ({show.percent_range(row.ci_low, row.ci_high)})",
        **fields,
    }


def intervals(
    base: alt.Chart, axis: alt.X | alt.Y, *, size: int, opacity: float = 0.75, **encodings: Any
) -> tuple[alt.Chart, alt.Chart]:
    """Two layers: a line from ``ci_low`` to ``ci_high`` along the ``axis``, and a point at ``value``.

    ``base`` has the data and all other encodings; ``opacity`` is that of the lines, ``encodings`` are of the points.
    """
    along = "x" if isinstance(axis, alt.X) else "y"
    lines = base.mark_rule(strokeWidth=min(2, size / 22), opacity=opacity)
    return (
        lines.encode(**{along: axis, f"{along}2": "ci_high:Q"}),
        base.mark_point(filled=True, size=size, opacity=1).encode(**{along: "value:Q"}, **encodings),
    )


def strips(
    points: Sequence[Point],
    along: alt.X,
    *,
    height: int,
    width: int = WIDTH,
    row: str = ENCODER,
    order: Sequence[str] = (),
    size: int = 80,
    opacity: float = 0.75,
    zero: bool = False,
    shape: alt.Shape | alt.Undefined = alt.Undefined,
    **encodings: Any,
) -> alt.LayerChart:
    """A row for every point, by default one for each encoder in their order: a dot with its interval.

    Args:
        points: As :func:`interval_point` makes them.
        along: The axis of ``ci_low``.
        height: Of the rows, in pixels.
        width: In pixels.
        row: The field that names the row.
        order: Of the rows; by default that of the points.
        size: Of a dot, in square pixels.
        opacity: Of the intervals.
        zero: Whether to draw a line at zero.
        shape: Of the dots.
        encodings: Of dots and intervals.
    """
    y = alt.Y(f"{row}:N", sort=[*order] or [point[row] for point in points], title=None)
    base = alt.Chart(alt.Data(values=points)).encode(y=y, **encodings)
    layers = [*intervals(base, along, size=size, opacity=opacity, shape=shape)]
    if zero:
        line = alt.Chart(alt.Data(values=[{"zero": 0}])).mark_rule(opacity=0.5)
        layers.insert(0, line.encode(x="zero:Q"))
    return alt.layer(*layers).properties(width=width, height=height)


_NAMES = ("encoder", "encoder_a", "encoder_b", *FIGURE)


def interval_chart(rows: Sequence[Mapping[Any, Any]], *, title: str = "") -> alt.LayerChart:
    """One line per row of results or comparisons: the value or difference with its interval, and a rule at zero.

    Rows without a value are left out. A line is called after the names that differ between the rows.

    Raises:
        RequestError: The rows have no column ``value`` or ``difference``, or no interval.
    """
    figure = next((name for name in ("difference", "value") if rows and name in rows[0]), None)
    if figure is None or not {"ci_low", "ci_high"} <= rows[0].keys():
        raise RequestError("a chart needs rows with value or difference, ci_low and ci_high, as results() or compare()")
    known = [row for row in rows if row[figure] == row[figure] and row[figure] is not None]
    if not known:
        raise RequestError("a chart needs a row with a value; these have none, for the reasons in results(wide=True)")
    varying = [name for name in _NAMES if len({row.get(name) for row in known}) > 1] or ["metric"]
    points = [
        {"label": " · ".join(str(row[name]) for name in varying), "value": row[figure]}
        | dict(zip(("ci_low", "ci_high"), ends(row[figure], row["ci_low"], row["ci_high"]), strict=True))
        for row in known
    ]
    axis = alt.X("ci_low:Q", title=figure, scale=alt.Scale(zero=False))
    look = {"height": 20 * len(points), "width": 420, "size": 60, "color": alt.value(COLOUR)}
    made = strips(points, axis, row="label", zero=figure == "difference", **look)
    return made.properties(title=title).configure_axisY(labelLimit=400)
