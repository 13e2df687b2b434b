"""Charts: one Vega-Lite specification each, drawn twice.

Altair checks the specification when it is built; vl-convert draws it as SVG without a browser, for paper and for
the first paint; vega-embed, inlined once, makes the same specification interactive in the page. Text and rules
take ``currentColor``, so that one specification serves light and dark alike; the colours of the marks reach 3:1
on both backgrounds and differ in shape and label as well.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import altair as alt
import vl_convert
import xxhash

from capim.reports import format as show
from capim.reports.drawing import can_draw
from capim.reports.elements.page import Chart, Table
from capim.reports.rows.report_data import ends
from capim.store.errors import RequestError
from capim.store.files import json_value
from capim.store.schema import FIGURE, Result, Slice

# Okabe and Ito's palette (2008) without the yellow and the black, which fail on one of the two grounds,
# and with four more hues that stay apart from it under deuteranopia and protanopia.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#7A5FD0", "#B8860B", "#3FA7D6", "#A0522D", "#808890")
STAR = "M0,-1L.25,-.35L1,-.3L.4,.15L.6,.9L0,.5L-.6,.9L-.4,.15L-1,-.3L-.25,-.35Z"
TRIANGLES = ("triangle-down", "triangle-right", "triangle-left")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", *TRIANGLES, STAR)
STYLE = Path(__file__).parents[1] / "templates" / "charts.json"
SCRIPTS = Path("~/.cache/capim/scripts")
WIDTH = 640
ENCODER = "encoder"  # the field of a point that names its encoder
Point: TypeAlias = dict[str, Any]
"""The data of one value of a chart: field to value."""


def by_name(names: Sequence[str], everyone: Sequence[str], **options: Any) -> tuple[alt.Color, alt.Shape]:
    """Colour and shape of every encoder of a chart; the same in all charts that are given the same ``everyone``.

    The legend stands above the picture, to fit narrow screens.
    """
    options["legend"] = alt.Legend(title=None, orient="top", direction="horizontal", columns=4, symbolOpacity=1)

    def scale(kinds: Sequence[str]) -> alt.Scale:
        return alt.Scale(domain=list(names), range=[kinds[everyone.index(name) % len(kinds)] for name in names])

    colour = alt.Color(f"{ENCODER}:N", scale=scale(PALETTE), **options)
    return colour, alt.Shape(f"{ENCODER}:N", scale=scale(SHAPES), **options)


def tooltips(*fields: str) -> list[alt.Tooltip]:
    """One line of the tooltip for the encoder, and one for every other field of the data."""
    return [alt.Tooltip(f"{field}:N") for field in (ENCODER, *fields)]


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


def finish(chart: alt.TopLevelMixin, *, name: str, title: str, alt_text: str, data: Table, note: str = "") -> Chart:
    """A chart in the style of the report, with its static picture."""
    # the tests check charts: for each of every report, it would take a sixth of the time
    spec = {key: value for key, value in chart.to_dict(validate=False).items() if key != "$schema"}
    spec["config"] = _style()
    spec["background"] = None
    spec["padding"] = {"left": 16, "top": 5, "bottom": 5, "right": 5}
    return Chart(
        id=name,
        title=title,
        alt=alt_text,
        spec=json.dumps(json_value(spec), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False),
        svg=_draw(spec, prefix=name) if can_draw() else "",
        data=data,
        points=_points(spec),
        note=note,
    )


def _points(spec: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The data of encoders in a specification: that of the whole, or of its layers, which share it."""
    parts = (spec, *spec.get("layer", ()))
    found = (part.get("data", {}).get("values", [{}]) for part in parts)
    return next((tuple(values) for values in found if ENCODER in values[0]), ())


def _draw(spec: Mapping[str, Any], *, prefix: str) -> str:
    """The SVG of a specification, with ids that depend on nothing but itself.

    vl-convert numbers clip paths and gradients through the life of the process; two equal charts would differ.
    """
    svg: str = vl_convert.vegalite_to_svg(dict(spec), allowed_base_urls=[])
    order: dict[str, str] = {}
    for name in re.findall(r'id="([^"]+)"', svg):
        order.setdefault(name, f"{prefix}-mark-{len(order)}")
    for name, stable in order.items():
        svg = svg.replace(f'id="{name}"', f'id="{stable}"').replace(f"url(#{name})", f"url(#{stable})")
    return svg


@cache
def _style() -> dict[str, Any]:
    """What all charts share: fonts, sizes and colours, as Vega-Lite's ``config``."""
    return {**json.loads(STYLE.read_text("utf-8")), "range": {"category": list(PALETTE)}}


@cache
def script() -> str:
    """Vega, Vega-Lite and vega-embed as one script that asks the network for nothing.

    Bundling takes a second and a half of a processor; the script is the same for a version of vl-convert, and is kept
    beside other caches, under its own digest: one that was cut short or changed is not read.
    """
    folder, name = SCRIPTS.expanduser(), f"vega-{version('vl-convert-python')}"
    for kept in sorted(folder.glob(f"{name}-*.js")):
        with suppress(OSError):
            text = kept.read_bytes()
            if kept.stem == f"{name}-{xxhash.xxh3_128_hexdigest(text)}":
                return text.decode()
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    with suppress(OSError):  # a full disk, a home that is not writable
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}-{xxhash.xxh3_128_hexdigest(bundle.encode())}.js").write_bytes(bundle.encode())
    return bundle


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
    look = {"height": 20 * len(points), "width": 420, "size": 60, "color": alt.value(PALETTE[0])}
    made = strips(points, axis, row="label", zero=figure == "difference", **look)
    return made.properties(title=title).configure_axisY(labelLimit=400)
