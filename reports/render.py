"""Renders a report as one HTML file, and as markdown with its pictures beside it.

Jinja2 with autoescape and StrictUndefined: text from a corpus is escaped in both formats, and a misspelt name in a
template is an error. The page makes no network request, and its content security policy allows none.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from capim.reports.elements import charts
from capim.reports.elements.page import Block, Board, Cell, Chart, Gallery, Report, Table
from capim.reports.elements.tables import T
from capim.reports.exports.tabular import csv_bytes
from capim.store.errors import plain

TEMPLATES = Path(__file__).parent / "templates"
IN_THE_PAGE = (  # sections that markdown can do without: those before the gap always, then as many as are too long
    *("slices", "ablations", "throughput", "differences"),
    *("directions", "multilingual", "compositional", "provenance", "skipped", "gate"),
    *("ranking", "leaderboard", "failures"),
)
ALWAYS_IN_THE_PAGE = 4
MOST_ROWS = (40, 20, 10, 5)  # of a table in markdown, from the most to the fewest
MOST_BYTES = 29_500  # of markdown beside a page
LONGEST_ALT = 400
ONLY_DRAWN = ("ci_low", "ci_high", "text", "words", "speed", "method", "order")  # fields of a point of a chart
LIGHT_INK, DARK_INK = "#1c211e", "#e5e9e4"


MADE_WHEN_SEEN = (Table, Board, Chart, Gallery)
PRINTED_CASES = 3  # of a gallery, in markdown
DETAILS = frozenset(IN_THE_PAGE) - {"failures", "ranking", "gate"}
"""Sections that are not printed: their tables are for looking things up."""


def render_html(report: Report) -> str:
    """The page as one HTML file that needs no network: a shell, and blocks that are made when they are seen."""
    script = _script_text((TEMPLATES / "page.js").read_text("utf-8"))
    template = html_templates().get_template("report.html")
    return template.render(
        report=report,
        details=DETAILS,
        packs=packs(report),
        pictures=json.dumps(dict(report.thumbnails)),
        style=Markup((TEMPLATES / "page.css").read_text("utf-8")),  # noqa: S704 - our own file
        library=_library() if _blocks(report, Chart) else "",
        script=script,
        policy=_policy(script),
    )


def packs(report: Report) -> dict[str, str]:
    """Section to its tables, charts and galleries, packed."""
    return {s.id: _pack([packed(b) for b in s.blocks if isinstance(b, MADE_WHEN_SEEN)]) for s in report.sections}


def packed(value: Any) -> Any:
    """A block as plain values: fields without a value are left out, a cell is a list without its empty end."""
    if isinstance(value, Cell):
        bar = value.bar and [value.bar.low, value.bar.high, value.bar.point, value.bar.chance]
        cell: list[Any] = [value.text, value.note, value.state, value.title, value.sort, value.mark, value.link, bar]
        while len(cell) > 1 and not cell[-1]:
            cell.pop()
        return cell[0] if len(cell) == 1 else [part or 0 for part in cell]
    if is_dataclass(value):
        kind = {"kind": value.kind} if isinstance(value, MADE_WHEN_SEEN) else {}
        found = ((each.name, packed(getattr(value, each.name))) for each in fields(value) if each.name != "points")
        return kind | {name: part for name, part in found if part not in ("", (), [], {}, None, False)}
    if isinstance(value, list | tuple):
        return [packed(part) for part in value]
    return {name: packed(part) for name, part in value.items()} if isinstance(value, Mapping) else value


def _pack(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


@cache
def _library() -> str:
    """Vega for the page, packed: it is unpacked for the first chart that a reader points at."""
    return _pack(charts.script())


def render_markdown(report: Report, *, page: str = "") -> str:
    """GitHub-flavoured markdown; :func:`figure_files` gives its pictures and their data in ``figures/``.

    ``page`` is the file with everything. Beside one, markdown is short: rows of long tables and whole sections become
    links to it, until it has no more than ``MOST_BYTES``, with the first screen and five rows of every table at least.
    """
    if not page:
        return _markdown_of(report, page="", most_rows=sys.maxsize, left_out=())
    for n_sections, most_rows in _lengths():
        text = _markdown_of(report, page=page, most_rows=most_rows, left_out=IN_THE_PAGE[:n_sections])
        if len(text.encode()) <= MOST_BYTES:
            break
    return text


def _lengths() -> Iterator[tuple[int, int]]:
    """Numbers of sections left out and of rows kept, from the longest text to the shortest."""
    yield from ((ALWAYS_IN_THE_PAGE, rows) for rows in MOST_ROWS[:-1])
    yield from ((n, MOST_ROWS[-2]) for n in range(ALWAYS_IN_THE_PAGE + 1, len(IN_THE_PAGE) + 1))
    yield len(IN_THE_PAGE), MOST_ROWS[-1]


def _markdown_of(report: Report, *, page: str, most_rows: int, left_out: Sequence[str]) -> str:
    every = [*_blocks(report, Table), *(board.table for board in _blocks(report, Board))]
    cut = {t.id: len(t.rows) - most_rows for t in every if len(t.rows) > most_rows}
    values = {"report": report, "page": page, "most_rows": most_rows, "cut": cut, "left_out": left_out}
    text = _markdown().get_template("report.md").render(values, printed_cases=PRINTED_CASES)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def figure_files(report: Report) -> dict[str, str | bytes]:
    """File name below ``figures/`` to its contents.

    Every chart for a light and a dark background, its data as CSV, and the pictures of the cases that markdown shows.
    """
    files: dict[str, str | bytes] = {}
    for key in sorted(_pictures(report)):
        files[f"{key}.jpg"] = base64.b64decode(report.thumbnails[key].partition(",")[2])
    for chart in _blocks(report, Chart):
        files[f"{chart.id}.svg"] = chart.svg.replace("currentColor", LIGHT_INK)
        files[f"{chart.id}-dark.svg"] = chart.svg.replace("currentColor", DARK_INK)
        files[f"{chart.id}.csv"] = csv_bytes([_long(point) for point in chart.points])
    return files


def _pictures(report: Report) -> set[str]:
    shown = [case for block in _blocks(report, Gallery) for case in block.cases[:PRINTED_CASES]]
    hits = [hit for case in shown for hit in (*case.expected, *(h for answer in case.answers for h in answer.hits[:1]))]
    return {hit.thumbnail for hit in hits if hit.thumbnail}


def _blocks(report: Report, kind: type[T]) -> list[T]:
    blocks: Iterator[Block] = (block for section in report.sections for block in section.blocks)
    return [block for block in blocks if isinstance(block, kind)]


def _long(point: Mapping[str, object]) -> dict[str, str]:
    """A value of a chart as a row: what it is of, then the value, the ends of its interval, and its unit."""
    low, high = point["ci_low"], point["ci_high"]  # equal where there is no interval
    ends = {"low": "", "high": ""} if low == high else {"low": low, "high": high}
    last = {"value": point["value"], **ends, "unit": point["unit"]}
    row = {name: part for name, part in point.items() if name not in (*last, *ONLY_DRAWN)} | last
    return {name: f"{part:.10g}" if isinstance(part, float) else str(part) for name, part in row.items()}


def _script_text(source: str) -> Markup:
    """Our own JavaScript, unable to end its element early."""
    return Markup(source.replace("</script", r"<\/script").replace("<!--", r"<\!--"))  # noqa: S704 - no corpus text in it


def _policy(script: str) -> str:
    """Only our own script may run, and nothing may be fetched.

    Vega is unpacked and compiles the expressions of our own specifications, which needs ``unsafe-eval``; text from a
    corpus reaches it as data alone. Inline styles hold the positions of interval bars.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}' 'unsafe-eval'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def escape_markdown(value: object) -> str:
    r"""Text as GitHub's markdown shows it literally, on one line.

    Examples:
        >>> escape_markdown("a|b <script> *c* [d](e) #1")
        'a\\|b &lt;script&gt; \\*c\\* \\[d\\](e) \\#1'
        >>> escape_markdown("two\nlines at t2i/all, 46.3 (45.5–47.1)")
        'two lines at t2i/all, 46.3 (45.5–47.1)'
    """
    text = plain(" ".join(str(value).split()))
    text = re.sub(r"([\\`*_\[\]#|~$!])", r"\\\1", text)
    text = html.escape(text, quote=False).replace("://", "&#58;//")
    return re.sub(r"(?<!\w)@(?=\w)", "&#64;", text)


def _picture(chart: Chart) -> Markup:
    """The chart as GitHub shows it, with a picture for dark mode."""
    words = " ".join(chart.alt.split())
    alt = html.escape(words if len(words) <= LONGEST_ALT else f"{words[:LONGEST_ALT]}…")
    return Markup(  # noqa: S704 - escaped just above; ids are our own
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="figures/{chart.id}-dark.svg">'
        f'<img alt="{alt}" src="figures/{chart.id}.svg"></picture>'
    )


def _environment(**options: Any) -> jinja2.Environment:
    """Our templates, with every text escaped; a misspelt name in a template is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **options,
    )


_HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
_SOURCE = re.compile(r"(<script\b.*?</script>|<[^>]*>)", re.DOTALL)  # tags, and what no reader sees


_SAID = re.compile(r'\b(?:title|alt|aria-label)="[^"]*"')  # attributes that are read as text


def _named(text: str) -> str:
    return _HIDDEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", text)


class _Page(jinja2.Template):
    """A page in whose texts the characters that turn or hide others are named."""

    def render(self, *args: Any, **kwargs: Any) -> str:
        """The page; ids in links and forms stay as they are."""
        page = super().render(*args, **kwargs)
        if not _HIDDEN.search(page):
            return page
        parts = _SOURCE.split(page)
        parts[::2] = [_named(text) for text in parts[::2]]
        parts[1::2] = [_SAID.sub(lambda found: _named(found[0]), tag) for tag in parts[1::2]]
        return "".join(parts)


@cache
def html_templates() -> jinja2.Environment:
    """Templates of pages."""
    templates = _environment()
    templates.template_class = _Page
    templates.filters["markup"] = Markup
    templates.filters["embedded_json"] = lambda text: Markup(text.replace("<", "\\u003c"))  # noqa: S704
    return templates


@cache
def _markdown() -> jinja2.Environment:
    """Every expression that no macro or filter made is escaped as markdown, before autoescape could."""

    def escaped(value: object) -> Markup:
        return value if isinstance(value, Markup) else Markup(escape_markdown(value))  # noqa: S704

    templates = _environment(finalize=escaped)
    templates.filters["picture"] = _picture
    templates.filters["figure_path"] = lambda name, kind: Markup(f"figures/{name}.{kind}")  # noqa: S704
    return templates
