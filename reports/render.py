"""Renders a report as one HTML file, and as markdown with its pictures beside it.

Jinja2 with autoescape and StrictUndefined: text from a corpus is escaped in both formats, and a misspelt name in a
template is an error. The page makes no network request, and its content security policy allows none.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from reports.elements import charts
from reports.elements.gallery import Cases
from reports.elements.page import Chart, Report

TEMPLATES = Path(__file__).parent / "templates"
IN_THE_PAGE = ("slices", "ablations", "throughput")  # sections that markdown only names
LIGHT_INK, DARK_INK = "#1c211e", "#e5e9e4"


def render_html(report: Report) -> str:
    """The page as one HTML file that needs no network."""
    library = _script_text(charts.script()) if any(_charts(report)) else ""
    script = _script_text((TEMPLATES / "page.js").read_text("utf-8"))
    return (
        _html()
        .get_template("report.html")
        .render(
            report=report,
            style=Markup((TEMPLATES / "page.css").read_text("utf-8")),  # noqa: S704 - our own file
            library=library,
            script=script,
            policy=_policy([text for text in (library, script) if text]),
        )
    )


def render_markdown(report: Report, *, page: str = "") -> str:
    """GitHub-flavoured markdown; :func:`figure_files` gives its pictures and their data in ``figures/``.

    ``page`` is the file with everything: folded tables and the sections ``IN_THE_PAGE`` become links to it.
    """
    appendix = IN_THE_PAGE if page else ()
    text = _markdown().get_template("report.md").render(report=report, page=page, appendix=appendix)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def figure_files(report: Report) -> dict[str, str | bytes]:
    """File name below ``figures/`` to its contents.

    Every chart for a light and a dark background, its data as CSV, and the pictures of the cases that markdown shows.
    """
    files: dict[str, str | bytes] = {}
    for key in sorted(_pictures(report)):
        files[f"{key}.jpg"] = base64.b64decode(report.thumbnails[key].partition(",")[2])
    for chart in _charts(report):
        files[f"{chart.id}.svg"] = chart.svg.replace("currentColor", LIGHT_INK)
        files[f"{chart.id}-dark.svg"] = chart.svg.replace("currentColor", DARK_INK)
        rows = [[column.heading for column in chart.data.columns]]
        rows += [[cell.sort or cell.text for cell in row] for row in chart.data.rows]
        files[f"{chart.id}.csv"] = "".join(",".join(map(_csv_field, row)) + "\n" for row in rows)
    return files


def _pictures(report: Report) -> set[str]:
    shown = [case for s in report.sections for block in s.blocks if isinstance(block, Cases) for case in block.cases]
    hits = [hit for case in shown for hit in (*case.expected, *(h for answer in case.answers for h in answer.hits[:1]))]
    return {hit.thumbnail for hit in hits if hit.thumbnail}


def _charts(report: Report) -> Iterator[Chart]:
    for section in report.sections:
        yield from (block for block in section.blocks if isinstance(block, Chart))


def _csv_field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if re.search(r'[",\r\n]', text) else text


def _script_text(source: str) -> Markup:
    """Our own JavaScript, unable to end its element early."""
    return Markup(source.replace("</script", r"<\/script").replace("<!--", r"<\!--"))  # noqa: S704 - no corpus text in it


def _policy(scripts: list[str]) -> str:
    """Only our own scripts may run, and nothing may be fetched.

    Vega compiles the expressions of our own specifications, which needs ``unsafe-eval``; text from a corpus
    reaches it as data alone. Inline styles hold the positions of interval bars.
    """
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts]
    return (
        f"default-src 'none'; script-src {' '.join(hashes)} 'unsafe-eval'; style-src 'unsafe-inline'; "
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
    text = " ".join(str(value).split())
    text = re.sub(r"([\\`*_\[\]#|~$!])", r"\\\1", text)
    text = html.escape(text, quote=False).replace("://", "&#58;//")
    return re.sub(r"(?<!\w)@(?=\w)", "&#64;", text)


def _picture(chart: Chart) -> Markup:
    """The chart as GitHub shows it, with a picture for dark mode."""
    alt = html.escape(" ".join(chart.alt.split()))
    return Markup(  # noqa: S704 - escaped just above; ids are our own
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="figures/{chart.id}-dark.svg">'
        f'<img alt="{alt}" src="figures/{chart.id}.svg"></picture>'
    )


def _environment(**options: Any) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **options,
    )


@cache
def _html() -> jinja2.Environment:
    environment = _environment()
    environment.filters["markup"] = Markup
    environment.filters["embedded_json"] = lambda text: Markup(text.replace("<", "\\u003c"))  # noqa: S704
    return environment


@cache
def _markdown() -> jinja2.Environment:
    """Every expression that no macro or filter made is escaped as markdown, before autoescape could."""

    def escaped(value: object) -> Markup:
        return value if isinstance(value, Markup) else Markup(escape_markdown(value))  # noqa: S704

    environment = _environment(finalize=escaped)
    environment.filters["picture"] = _picture
    environment.filters["figure_path"] = lambda name, kind: Markup(f"figures/{name}.{kind}")  # noqa: S704
    return environment
