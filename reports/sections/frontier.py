"""Accuracy against speed, and what compression costs, with the Pareto frontier of each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from capim.reports import format as show
from capim.reports.elements import charts
from capim.reports.elements.page import Cell, Chart, Table
from capim.reports.elements.tables import absent, numbers, pivot, result_column, texts, value
from capim.reports.rows.names import named, plain_title
from capim.reports.rows.report_data import ReportData, Row, detail_of, goodness
from capim.reports.rows.speed import Rate, Speed, image_rate


def pareto(points: list[tuple[float, float]]) -> list[bool]:
    """Whether no other point is at least as high in both and higher in one.

    Examples:
        >>> pareto([(1.0, 5.0), (2.0, 3.0), (1.5, 2.0)])
        [True, True, False]
    """
    return [not any(x >= px and y >= py and (x, y) != (px, py) for x, y in points) for px, py in points]


def label_positions(points: Sequence[tuple[float, float]]) -> list[str]:
    """The position of the label of each point (speed, accuracy), such that labels of close points do not overlap.

    Left of the point in the last third of the logarithmic speed axis, else right; below it for the lower of two
    points closer than a line of text, else above.

    Examples:
        >>> label_positions([(10.0, 0.5), (10.5, 0.499), (1.0, 0.3)])
        ['left above', 'left below', 'right above']
    """
    speed = [math.log(x) for x, _ in points]
    width = (max(speed) - min(speed)) or 1.0
    height = (max(y for _, y in points) - min(y for _, y in points)) or 1.0
    positions = []
    for i, (_, y) in enumerate(points):
        close = any(
            y < other and (other - y) / height < 0.09 and abs(speed[i] - speed[j]) / width < 0.3
            for j, (_, other) in enumerate(points)
        )
        side = "left" if (speed[i] - min(speed)) / width > 0.67 else "right"
        positions.append(f"{side} {'below' if close else 'above'}")
    return positions


def interquartile(rate: Rate) -> str:
    """The interquartile range of the batches' rates; whole numbers from 100 on; empty if one batch was timed."""
    if rate.lower == rate.upper:
        return ""
    return show.span(rate.lower, rate.upper, 0 if rate.lower >= 100 else 1)


def rate_cell(speed: Speed | None) -> Cell:
    """Images per second with the interquartile range of the batches."""
    if speed is None:
        return absent("no batch was timed apart from the warm-up")
    rate = speed.stages["forward"]
    about = (
        f"{speed.device}, {speed.precision}, batch size {speed.batch_size}; "
        f"interquartile range of {speed.n_batches} batches"
    )
    return value(rate.median, show.significant(rate.median), note=interquartile(rate), title=about)


def accuracy_over_speed(data: ReportData, corpus: str, protocol: str, metric: str) -> Chart | None:
    """The chart of a corpus; None unless at least two encoders have both figures."""
    rates = image_rate(data, corpus)
    rows = [r for r in data.ranked(corpus, protocol, metric) if r["encoder"] in rates and r["value"] is not None]
    if len(rows) < 2:
        return None
    points = _points(rows, rates)
    frontier = {p["encoder"]: p["frontier"] for p in points}
    alt_text = [
        f"{metric}, {plain_title(protocol)}, over images per second for {show.count(len(rows), 'encoder')}.",
        *(f"{p['encoder']}: {p['text']} at {p['speed']}." for p in points),
        f"No other encoder is both faster and better than {show.listing([n for n in frontier if frontier[n]], 'or')}.",
    ]
    table = pivot(
        f"speed-{corpus}-data",
        f"Accuracy and speed on {corpus}",
        frontier,
        texts("Encoder", str),
        result_column(data, corpus, protocol, metric, heading=f"{metric}, {named(protocol)}", plain=True),
        numbers("images/s", lambda name: rate_cell(rates[name])),
        texts("on the frontier", lambda name: "yes" if frontier[name] else "no"),
    )
    devices = sorted({rates[name].device for name in frontier})
    up = "down" if rows[0]["lower_is_better"] else "up"
    return charts.finish(
        _picture(points, f"{metric}, {named(protocol)}, percent", metric, data.encoder_names()),
        name=f"speed-{corpus}",
        title=f"Accuracy against speed, {corpus}",
        alt_text=" ".join(alt_text),
        data=table,
        note=f"Dashed line: Pareto frontier; {up} and to the right is better. Measured on {show.listing(devices)}.",
    )


def _points(rows: list[Row], rates: dict[str, Speed]) -> list[dict[str, Any]]:
    medians = [rates[r["encoder"]].stages["forward"].median for r in rows]
    points = [(rate, r["value"]) for rate, r in zip(medians, rows, strict=True)]
    better = pareto([(rate, goodness(r)) for rate, r in zip(medians, rows, strict=True)])
    return [
        charts.interval_point(
            r, rate=rate, speed=f"{show.significant(rate)} images/s", frontier=on_frontier, label=position
        )
        for r, rate, on_frontier, position in zip(rows, medians, better, label_positions(points), strict=True)
    ]


def _picture(points: list[dict[str, Any]], y_title: str, metric: str, everyone: list[str]) -> alt.LayerChart:
    names = [p["encoder"] for p in points]
    base = alt.Chart(alt.Data(values=points)).encode(
        x=alt.X(
            "rate:Q",
            title="images per second (forward pass, logarithmic)",
            scale=alt.Scale(type="log", nice=False, padding=40),
        ),
        tooltip=[alt.Tooltip("encoder:N"), alt.Tooltip("text:N", title=metric), alt.Tooltip("speed:N")],
    )
    y = alt.Y("ci_low:Q", title=y_title, scale=alt.Scale(zero=False))
    return alt.layer(
        base.transform_filter("datum.frontier")
        .mark_line(interpolate="step-before", strokeDash=[4, 4], color="currentColor", opacity=0.5)
        .encode(y="value:Q"),
        *charts.intervals(
            base.encode(color=charts.colour(names, everyone)), y, size=110, shape=charts.shape(names, everyone)
        ),
        *(
            base.transform_filter(f"datum.label == '{side} {level}'")
            .mark_text(align=align, dx=9 if align == "left" else -9, dy=-9 if level == "above" else 12)
            .encode(y="value:Q", text="encoder:N")
            for side, align in (("right", "left"), ("left", "right"))
            for level in ("above", "below")
            if any(p["label"] == f"{side} {level}" for p in points)
        ),
    ).properties(width=charts.WIDTH, height=320)


def cost_of_compression(table: Table, rows: Sequence[Row], metric: str) -> Chart | None:
    """The change of a metric over bytes per item and over seconds per query, of one encoder's methods.

    ``rows`` are slices of the analysis ``ann``, of which ``table`` is made. None unless two methods were measured.
    """
    points = []
    for r in rows:
        own = detail_of(r)
        if own.get("change") is not None:
            change = {"value": own["change"], "ci_low": own["change_low"], "ci_high": own["change_high"]}
            span = show.percent_range(change["ci_low"], change["ci_high"])
            text = f"{show.points(change['value'])} points" + (f" ({span})" if span else "")
            costs = {"bytes": own["bytes_per_item"], "seconds": own["seconds_per_query"]}
            about = {"name": f"{r['feature']} {r['level_name']}".strip(), **costs, "method": r["feature"]}
            points.append(charts.interval_point({**r, **change}, unit="points", text=text, **about))
    if len(points) < 2:
        return None
    methods = list(dict.fromkeys(p["method"] for p in points))
    y_title = f"change of {metric}, percentage points"
    by_point = (
        f"{p['name']}: {p['text']}, {show.size(p['bytes'])}, {show.significant(p['seconds'])} s" for p in points
    )
    for cost in ("bytes", "seconds"):
        best = pareto([(-p[cost], p["value"]) for p in points])
        for p, on_frontier in zip(points, best, strict=True):
            p[f"frontier_{cost}"] = on_frontier
    return charts.finish(
        alt.hconcat(
            _over_cost(methods, "bytes", "bytes per item", y_title),
            _over_cost(methods, "seconds", "seconds per query", ""),
            data=alt.Data(values=points),
        ),
        name=f"{table.id}-cost",
        title=table.caption,
        alt_text=f"{y_title} over bytes per item and over seconds per query. {'; '.join(by_point)}.",
        data=dataclasses.replace(table, note=""),
        note=f"Dashed lines: Pareto frontiers; up and to the left is better. {table.note}",
    )


def _over_cost(methods: list[str], cost: str, x_title: str, y_title: str) -> alt.LayerChart:
    base = alt.Chart().encode(
        x=alt.X(f"{cost}:Q", title=f"{x_title} (logarithmic)", scale=alt.Scale(type="log", nice=False, padding=15)),
        color=charts.colour(methods, methods, "method", legend=charts.legend()),
        tooltip=charts.tooltips("name", "text"),
    )
    shape = charts.shape(methods, methods, "method", legend=charts.legend())
    return alt.layer(
        alt.Chart()
        .transform_filter(f"datum.frontier_{cost}")
        .mark_line(interpolate="step-after", strokeDash=[4, 4], color="currentColor", opacity=0.5)
        .encode(x=f"{cost}:Q", y="value:Q"),
        *charts.intervals(base, alt.Y("ci_low:Q", title=y_title or None), size=60, opacity=0.6, shape=shape),
    ).properties(width=(charts.WIDTH - 90) // 2, height=300)
