"""The chart of a notebook: figures or differences with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from capim.reports.elements.charts import PALETTE, intervals
from capim.store.errors import RequestError

_NAMES = ("encoder", "encoder_a", "encoder_b", "corpus", "protocol", "metric")


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
        | {end: row[figure] if row[end] is None or row[end] != row[end] else row[end] for end in ("ci_low", "ci_high")}
        for row in known
    ]
    labels = list(dict.fromkeys(point["label"] for point in points))
    base = alt.Chart(alt.Data(values=points), width=420, title=title).encode(
        y=alt.Y("label:N", sort=labels, title=None, axis=alt.Axis(labelLimit=400)), color=alt.value(PALETTE[0])
    )
    zero = [alt.Chart(alt.Data(values=[{}])).mark_rule(color="#808890").encode(x=alt.datum(0))]
    axis = alt.X("ci_low:Q", title=figure, scale=alt.Scale(zero=False))
    return alt.layer(*(zero if figure == "difference" else []), *intervals(base, axis, size=60))
