"""The chart of a notebook, by Altair; what a page or a paper shows is drawn by ``drawings``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from capim.reports.rows.report_data import ends
from capim.store.errors import RequestError
from capim.store.schema import ENCODERS, FIGURE

COLOUR = "#0072B2"
_NAMES = (*ENCODERS, *FIGURE)


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
    lines = alt.Y("label:N", sort=[point["label"] for point in points], title=None)
    base = alt.Chart(alt.Data(values=points)).encode(y=lines, color=alt.value(COLOUR))
    axis = alt.X("ci_low:Q", title=figure, scale=alt.Scale(zero=False))
    layers = [base.mark_rule(strokeWidth=2, opacity=0.75).encode(x=axis, x2="ci_high:Q")]
    layers.append(base.mark_point(filled=True, size=60, opacity=1).encode(x="value:Q"))
    if figure == "difference":
        layers.insert(0, alt.Chart(alt.Data(values=[{"zero": 0}])).mark_rule(opacity=0.5).encode(x="zero:Q"))
    made = alt.layer(*layers).properties(width=420, height=20 * len(points), title=title)
    return made.configure_axisY(labelLimit=400)
