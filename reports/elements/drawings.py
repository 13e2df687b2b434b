"""Drawings of a report as SVG: intervals one below the other, and points over a cost; one width, fit for a phone.

Texts and rules are ``currentColor``; the contenders are drawn in one colour, all others in grey, and every mark has its
label next to it. A class next to every colour lets a page exchange it.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from capim.reports.elements.page import CONTENDERS, Kind
from capim.reports.format import number

WIDTH = 340  # pixels
_LINE = 18  # pixels, of a row
_LEFT, _RIGHT = 128, 286  # of the plot of a row: names are on its left, values on its right
_LETTERS = 19  # of a name next to a plot
_LETTER = 5.2  # pixels, of a letter of size 10
_COLOURS = {"best": "#11633a", "equal": "#11633a", "open": "#11633a"}
_GREY = "#7d8781"
_HEIGHT, _BOTTOM, _TOP = 230, 196, 12  # of a plot of points
_HEIGHT_OF = re.compile(r'<svg[^>]* height="(\d+)"')
LIGHT_INK, DARK_INK = "#18201c", "#e7ece8"


class Marked(NamedTuple):
    """A value with its interval to be drawn: its name, its standing, and its text; ``cost`` where it has one."""

    name: str
    kind: Kind
    value: float
    low: float
    high: float
    text: str
    cost: float = 0.0


def forest(rows: Sequence[Marked], unit: str) -> str:
    """Return the values of one result with their intervals, a row each, on one axis."""
    low, high = min(row.low for row in rows), max(row.high for row in rows)
    rim = 0.03 * (high - low) or 1.0
    start, end = low - rim, high + rim

    def x(value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (value - start) / (end - start)

    bottom = _LINE * len(rows) + 4
    parts = [_line(_LEFT, bottom, _RIGHT, bottom, opacity=0.5)]
    for tick in ticks(start, end):
        parts.append(_line(x(tick), 0, x(tick), bottom, opacity=0.15))
        if x(tick) < WIDTH - _LETTER * len(unit) - 12:  # else it would run into the unit
            parts.append(_text(x(tick), bottom + 13, f"{tick:g}", anchor="middle", size=10, opacity=0.75))
    for at, row in enumerate(rows):
        y = _LINE * at + 11
        parts.append(_text(_LEFT - 8, y + 4, _short(row.name), anchor="end", bold=row.kind in CONTENDERS))
        parts += _mark(x(row.low), y, x(row.high), y, x(row.value), y, row.kind)
        parts.append(_text(WIDTH, y + 4, row.text, anchor="end", bold=row.kind in CONTENDERS))
    parts.append(_text(WIDTH, bottom + 13, unit, anchor="end", size=10, opacity=0.75))
    return _drawing(parts, bottom + 18)


def over_cost(points: Sequence[Marked], cost: str, unit: str) -> str:
    """Return values over a cost on a logarithmic axis, each with its name next to it."""
    costs, values = [math.log10(point.cost) for point in points], [end for p in points for end in (p.low, p.high)]
    wide, high = (max(costs) - min(costs)) or 1.0, (max(values) - min(values)) or 1.0

    def x(value: float) -> float:
        return 34 + (WIDTH - 196) * (math.log10(value) - min(costs)) / wide

    def y(value: float) -> float:
        return _BOTTOM - 8 - (_BOTTOM - _TOP - 16) * (value - min(values)) / high

    parts = [_line(24, _BOTTOM, WIDTH, _BOTTOM, opacity=0.5)]
    for tick in ticks(min(values), max(values)):
        parts.append(_line(24, y(tick), WIDTH, y(tick), opacity=0.12))
        parts.append(_text(20, y(tick) + 3, f"{tick:g}", anchor="end", size=10, opacity=0.75))
    free, marks = -math.inf, list[str]()  # below every label
    for point in sorted(points, key=lambda each: y(each.value)):
        at = x(point.cost)
        marks += _mark(at, y(point.low), at, y(point.high), at, y(point.value), point.kind)
        label = max(free + 12, y(point.value) + 4)  # below the label of the point above it
        parts.append(_text(at + 9, label, f"{_short(point.name)} {point.text}", bold=point.kind in CONTENDERS, size=11))
        free = label
    ends = dict.fromkeys(end(point.cost for point in points) for end in (min, max))
    parts += [_text(x(end), _BOTTOM + 13, _plain(end), anchor="middle", size=10, opacity=0.75) for end in ends]
    parts.append(_text(WIDTH, _BOTTOM + 27, f"{cost} (logarithmic); up: {unit}", anchor="end", size=10, opacity=0.75))
    return _drawing([*marks, *parts], max(_HEIGHT, free + 8))


def heat(rows: Sequence[str], columns: Sequence[str], fractions: Mapping[tuple[str, str], float]) -> str:
    """Return fractions by row and column as shaded cells with their percent; a pair without one is empty."""
    top, wide, parts = 70, (WIDTH - _LEFT) / len(columns), list[str]()
    for at, name in enumerate(columns):
        place = f"translate({_LEFT + wide * (at + 0.5):.1f} {top - 6}) rotate(-40)"
        parts.append(f'<g transform="{place}">{_text(0, 0, _short(name))}</g>')
    for line, row in enumerate(rows):
        y = top + _LINE * line
        parts.append(_text(_LEFT - 8, y + 13, _short(row), anchor="end"))
        for at, column in enumerate(columns):
            if (value := fractions.get((row, column))) is not None:
                x, ink = _LEFT + wide * at, "#fff" if value > 0.55 else "currentColor"
                place = f'x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_LINE}"'
                text = _text(x + wide / 2, y + 13, number(100 * value, 0), anchor="middle")
                parts.append(f'<rect {place} fill="#11633a" opacity="{value:.2f}"/><g fill="{ink}">{text}</g>')
    return _drawing(parts, top + _LINE * len(rows))


def stacked(drawings: Iterable[tuple[str, str]]) -> str:
    """Return drawings one below the other, each under its title."""
    parts, y = list[str](), 0
    for title, svg in drawings:
        parts.append(_text(0, y + 12, title, bold=True))
        parts.append(f'<svg y="{y + 20}"{svg.removeprefix("<svg")}')
        y += 32 + int(_HEIGHT_OF.findall(svg)[0])
    return _drawing(parts, y)


def inked(svg: str, ink: str = LIGHT_INK) -> str:
    """Return a drawing for a light ground or a dark one, where no page gives it its colours."""
    ground, green = ("#fff", "#11633a") if ink == LIGHT_INK else ("#0d1117", "#7fd6a0")
    colours = {"currentColor": ink, "var(--bg,#fff)": ground, "#11633a": green}
    return re.sub("|".join(map(re.escape, colours)), lambda found: colours[found[0]], svg)


def ticks(start: float, end: float) -> list[float]:
    """Return two to five round numbers within an axis.

    Examples:
        >>> ticks(81.3, 90.2), ticks(0.0, 1.0)
        ([82.0, 84.0, 86.0, 88.0, 90.0], [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    """
    rough = (end - start) / 4 or 1.0
    power = 10 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough * 0.8)
    first = math.ceil(start / step - 1e-9)
    return [round(at * step, 10) + 0.0 for at in range(first, math.floor(end / step + 1e-9) + 1)]


def _plain(cost: float) -> str:
    return number(cost, 0 if cost >= 10 else 1)


def _short(name: str) -> str:
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"


def _mark(x1: float, y1: float, x2: float, y2: float, x: float, y: float, kind: Kind) -> list[str]:
    colour = _COLOURS.get(kind, _GREY)
    inside = "var(--bg,#fff)" if kind == "open" else colour
    line = f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    dot = f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{inside}"'
    return [f'{line} stroke="{colour}" stroke-width="1.6"/>', f'{dot} stroke="{colour}" stroke-width="1.6"/>']


def _line(x1: float, y1: float, x2: float, y2: float, *, opacity: float) -> str:
    place = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {place} stroke="currentColor" opacity="{opacity:g}"/>'


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, bold: bool = False, opacity: float = 1.0
) -> str:
    look = ' font-weight="600"' * bold + f' opacity="{opacity:g}"' * (opacity < 1)
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f"<text {place}{look}>{html.escape(text)}</text>"


def _drawing(parts: Iterable[str], height: float) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}"'
    font = 'font-family="system-ui,-apple-system,Segoe UI,Roboto,Liberation Sans,sans-serif" fill="currentColor"'
    return f'{head} height="{height:.0f}" {font}>{"".join(parts)}</svg>'
