"""Accuracy over speed, with the frontier of encoders that no other one beats in both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from reports import format as show
from reports.elements import charts
from reports.elements.cells import result_cell
from reports.elements.page import Cell, Chart, Column, Table
from reports.rows.report_data import Evidence, Row
from reports.rows.speed import Rate, Speed, image_rate


def pareto(points: list[tuple[float, float]]) -> list[bool]:
    """Whether no other point is at least as high in both and higher in one.

    Examples:
        >>> pareto([(1.0, 5.0), (2.0, 3.0), (1.5, 2.0)])
        [True, True, False]
    """
    return [not any(x >= px and y >= py and (x, y) != (px, py) for x, y in points) for px, py in points]


def label_places(points: Sequence[tuple[float, float]]) -> list[str]:
    """Where the name of each point stands so that close neighbours do not cover each other's.

    Args:
        points: Speed (drawn on a logarithmic axis) and accuracy.

    Returns:
        ``"right above"``, ``"right below"``, ``"left above"`` or ``"left below"``: to the left in the last
        third of the picture; below for the lower of two points closer than a line of text.

    Examples:
        >>> label_places([(10.0, 0.5), (10.5, 0.499), (1.0, 0.3)])
        ['left above', 'left below', 'right above']
    """
    speed = [math.log(x) for x, _ in points]
    across = (max(speed) - min(speed)) or 1.0
    height = (max(y for _, y in points) - min(y for _, y in points)) or 1.0
    places = []
    for i, (_, y) in enumerate(points):
        close = any(
            y < other and (other - y) / height < 0.09 and abs(speed[i] - speed[j]) / across < 0.3
            for j, (_, other) in enumerate(points)
        )
        side = "left" if (speed[i] - min(speed)) / across > 0.67 else "right"
        places.append(f"{side} {'below' if close else 'above'}")
    return places


def middle_half(rate: Rate) -> str:
    """The middle half of the batches' rates; whole numbers from a hundred on; empty where one batch was timed."""
    if rate.lower == rate.upper:
        return ""
    return show.span(rate.lower, rate.upper, 0 if rate.lower >= 100 else 1)


def rate_cell(speed: Speed | None) -> Cell:
    """Images per second with the middle half of the batches."""
    if speed is None:
        return Cell(text=show.ABSENT, mark="muted", title="no batch was timed beyond the warm-up")
    rate = speed.stages["forward"]
    return Cell(
        text=show.significant(rate.median),
        note=middle_half(rate),
        title=f"{speed.device}, {speed.precision}, batch size {speed.batch_size}; "
        f"middle half of {speed.n_batches} batches",
        sort=show.exact(rate.median),
    )


def accuracy_over_speed(evidence: Evidence, corpus: str, protocol: str, metric: str) -> Chart | None:
    """The chart of a corpus; None unless at least two encoders have both figures."""
    rates = image_rate(evidence, corpus)
    rows = [r for r in evidence.ranked(corpus, protocol, metric) if r["encoder"] in rates and r["value"] is not None]
    if len(rows) < 2:
        return None
    points = _points(rows, rates)
    on_frontier = [p["encoder"] for p in points if p["frontier"]]
    alt_text = [
        f"Scatter plot of {metric} under {protocol} over images per second for {show.count(len(rows), 'encoder')}.",
        *(f"{p['encoder']}: {p['text']} at {p['speed']}." for p in points),
        f"No other encoder is both faster and better than {show.listing(on_frontier, 'or')}.",
    ]
    data = Table(
        id=f"speed-{corpus}-data",
        caption=f"Accuracy and speed on {corpus}",
        columns=(
            Column(heading="Encoder"),
            Column(heading=f"{metric} ({protocol})", numeric=True),
            Column(heading="images/s", numeric=True),
            Column(heading="on the frontier"),
        ),
        rows=tuple(
            (
                Cell(text=p["encoder"]),
                result_cell(evidence.figures[corpus, protocol, metric, p["encoder"]]),
                rate_cell(rates[p["encoder"]]),
                Cell(text="yes" if p["frontier"] else "no"),
            )
            for p in points
        ),
    )
    devices = sorted({rates[p["encoder"]].device for p in points})
    return charts.finish(
        _picture(points, f"{metric}, {protocol}, percent", metric, evidence.encoder_names()),
        name=f"speed-{corpus}",
        title=f"Accuracy over speed, {corpus}",
        alt_text=" ".join(alt_text),
        data=data,
        note=f"Dashed: the frontier; further up and further right is better. Measured on {show.listing(devices)}.",
    )


def _points(rows: list[Row], rates: dict[str, Speed]) -> list[dict[str, Any]]:
    medians = [rates[r["encoder"]].stages["forward"].median for r in rows]
    places = [(rate, r["value"]) for rate, r in zip(medians, rows, strict=True)]
    frontier, labels = pareto(places), label_places(places)
    return [
        {
            "encoder": r["encoder"],
            "rate": rate,
            "value": 100 * r["value"],
            "ci_low": 100 * (r["value"] if r["ci_low"] is None else r["ci_low"]),
            "ci_high": 100 * (r["value"] if r["ci_high"] is None else r["ci_high"]),
            "text": f"{show.percent(r['value'])} % ({show.percent_range(r['ci_low'], r['ci_high'])})",
            "speed": f"{show.significant(rate)} images/s",
            "frontier": on_it,
            "label": label,
        }
        for r, rate, on_it, label in zip(rows, medians, frontier, labels, strict=True)
    ]


def _picture(points: list[dict[str, Any]], y_title: str, metric: str, everyone: list[str]) -> alt.LayerChart:
    names = [p["encoder"] for p in points]
    tooltips = (("encoder", "encoder"), ("text", metric), ("speed", "speed"))
    base = alt.Chart(charts.values(points)).encode(
        x=alt.X(
            "rate:Q",
            title="images per second (forward pass, logarithmic)",
            scale=alt.Scale(type="log", nice=False, padding=40),
        ),
        tooltip=[alt.Tooltip(f"{field}:N", title=title) for field, title in tooltips],
    )
    colour = alt.Color("encoder:N", scale=charts.colours(names, everyone), legend=None)
    shape = alt.Shape("encoder:N", scale=charts.shapes(names, everyone), legend=None)
    y = alt.Y("ci_low:Q", title=y_title, scale=alt.Scale(zero=False))
    return alt.layer(
        base.transform_filter("datum.frontier")
        .mark_line(interpolate="step-before", strokeDash=[4, 4], color="currentColor", opacity=0.5)
        .encode(y="value:Q"),
        base.mark_rule(strokeWidth=2, opacity=0.75).encode(y=y, y2="ci_high:Q", color=colour),
        base.mark_point(filled=True, size=110, opacity=1).encode(y="value:Q", color=colour, shape=shape),
        *(
            base.transform_filter(f"datum.label == '{side} {level}'")
            .mark_text(align=align, dx=9 if align == "left" else -9, dy=-9 if level == "above" else 12)
            .encode(y="value:Q", text="encoder:N")
            for side, align in (("right", "left"), ("left", "right"))
            for level in ("above", "below")
            if any(p["label"] == f"{side} {level}" for p in points)
        ),
    ).properties(width=charts.WIDTH, height=320)
