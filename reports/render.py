"""Renders a report as one HTML file, and as markdown with its pictures next to it.

Jinja2 with autoescape and StrictUndefined: text from a corpus is escaped in both formats, and a misspelt name in a
template is an error. The page makes no network request, and its content security policy allows none.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from capim.reports.elements.drawings import DARK_INK, inked
from capim.reports.elements.page import Block, Board, Case, Chart, Gallery, Hit, Kind, Picker, Report, Table
from capim.reports.elements.tables import T
from capim.reports.exports.tabular import csv_bytes
from capim.store.errors import plain
from capim.tasks.metrics.judgements import Judgement

TEMPLATES = Path(__file__).parent / "templates"
SHORT = ("sure", "languages")  # sections of markdown next to a page, after its first screen
MOST_TASKS = 6  # of a table in markdown, next to the encoder and the mean
MOST_LINES = 100  # of markdown next to a page
LONGEST_ALT = 400
PRINTED_CASES = 3  # of a gallery, in markdown
MARKS: dict[Kind, str] = {
    "best": "●",
    "equal": "●",
    "open": "○",
    "worse": "▾",
    "chance": "×",
    "untested": "",
    "none": "",
}


def render_html(report: Report, *, saved: bool = False) -> str:
    """Return the page as one HTML file that needs no network; without its script all but the failures reads the same.

    ``saved``: of `capim serve`, without links to its pages.
    """
    script = _script_text((TEMPLATES / "page.js").read_text("utf-8"))
    template = html_templates().get_template("report.html")
    return template.render(
        **values_of(report),
        saved=saved,
        pictures=json.dumps(dict(report.thumbnails)),
        style=Markup((TEMPLATES / "page.css").read_text("utf-8")),  # noqa: S704 - our own file
        script=script,
        policy=_policy(script),
    )


def render_first_screen(report: Report) -> str:
    """Return only the first screen, without scripts and links into the page: for notebooks and mail."""
    style = Markup((TEMPLATES / "page.css").read_text("utf-8"))  # noqa: S704 - our own file
    return html_templates().get_template("first.html").render(report=report, style=style)


def values_of(report: Report) -> dict[str, object]:
    """Return the variables of a report that the templates of a page use."""
    board = report.board
    data = json.dumps(board.script if board else {}, ensure_ascii=False, separators=(",", ":"))
    return {
        "report": report,
        "opening": next((block for block in _blocks(report, Gallery) if block.first), None),
        "languages": any(section.id == "languages" for section in report.sections),
        "board_data": data,
        "exports": json.dumps(dict(report.exports)),
    }


def _tile(case: Case, gallery: str, only: str = "") -> Markup:
    """Return a case as a tile of the wall, with the first wrong result of every encoder, or only of one."""
    made = html_templates().get_template("tile.html").render(case=case, gallery=gallery, only=only)
    return Markup(made)  # noqa: S704 - escaped by the template


def _view(case: Case) -> str:
    """Return a case with all its answers; a result that can be judged has a line for a file of judgements."""

    def judgement(hit: Hit) -> str:
        if not hit.item or hit.right or not case.asked:
            return ""
        line = dict(zip(Judgement._fields, (*case.asked, hit.item), strict=True))
        return csv_bytes([line]).decode().partition("\n")[2].removesuffix("\n")

    return html_templates().get_template("case.html").render(case=case, judgement=judgement)


def _packed(gallery: Gallery) -> str:
    """Return the cases of a gallery as its script reads them: id, what filters match, and their two views."""
    cases = [
        {"id": case.id, "tags": case.tags, "text": case.words, "tile": _tile(case, gallery.id), "view": _view(case)}
        for case in gallery.cases
    ]
    return _zipped({"cases": cases, "totals": gallery.totals, "serve": gallery.serve})


def _packed_views(picker: Picker, table: Callable[[Table], str]) -> str:
    """Return the tables of a picker, by what its box calls them."""
    return _zipped({f"{corpus}: {label}": _named(table(each)) for corpus, label, each in picker.views})


def _zipped(data: object) -> str:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def render_markdown(report: Report, *, page: str = "") -> str:
    """GitHub-flavoured markdown; :func:`figure_files` gives its pictures and their data in ``figures/``.

    ``page`` is the file with everything. Next to one, markdown has the first screen and the languages, and links to all
    other sections; without one, everything.
    """
    values = {"report": report, "page": page, "short": SHORT, "most_lines": MOST_LINES, "printed_cases": PRINTED_CASES}
    text = _markdown().get_template("report.md").render(values, columns=_columns(report.board), marks=MARKS)
    lines = _trimmed(text).splitlines()
    if page and len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 2], "", f"[The rest]({page}) is in the page."]
    return "\n".join(lines) + "\n"


def board_markdown(board: Board) -> str:
    """Return only the first screen, as markdown."""
    text = '{% import "board.md" as parts %}{{ parts.opening(board) }}{{ parts.table(board, columns, marks) }}'
    template = _markdown().from_string(text)
    return _trimmed(template.render(board=board, columns=_columns(board), marks=MARKS))


def _columns(board: Board | None) -> list[int]:
    """Return the places of the tasks that markdown shows: all, if there are few; else the first of every corpus."""
    columns = board.columns if board else ()
    places = [*range(len(columns))]
    if len(places) > MOST_TASKS:
        places = [at for at in places if at == 0 or columns[at].corpus != columns[at - 1].corpus]
    return places[:MOST_TASKS]


def _trimmed(text: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def figure_files(report: Report) -> dict[str, str | bytes]:
    """Return file name below ``figures/`` -> its contents.

    Every chart for a light and a dark background, and the pictures of the cases that markdown shows.
    """
    files: dict[str, str | bytes] = {}
    for key in sorted(_pictures(report)):
        files[f"{key}.jpg"] = base64.b64decode(report.thumbnails[key].partition(",")[2])
    for chart in _blocks(report, Chart):
        files[f"{chart.id}.svg"] = inked(chart.svg)
        files[f"{chart.id}-dark.svg"] = inked(chart.svg, DARK_INK)
    return files


def _pictures(report: Report) -> set[str]:
    shown = [case for block in _blocks(report, Gallery) for case in block.cases[:PRINTED_CASES]]
    hits = [hit for case in shown for hit in (*case.expected, *(h for answer in case.answers for h in answer.hits[:1]))]
    return {hit.thumbnail for hit in hits if hit.thumbnail}


def _blocks(report: Report, kind: type[T]) -> list[T]:
    blocks: Iterator[Block] = (block for section in report.sections for block in section.blocks)
    return [block for block in blocks if isinstance(block, kind)]


def _script_text(source: str) -> Markup:
    """Return our own JavaScript, unable to end its element early."""
    return Markup(source.replace("</script", r"<\/script").replace("<!--", r"<\!--"))  # noqa: S704 - no corpus text in it


def _policy(script: str) -> str:
    """Only our own script may run, and nothing may be fetched.

    Inline styles are those of the page's own style element.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def escape_markdown(value: object) -> str:
    r"""Return text as GitHub's markdown shows it literally, on one line.

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
    """Return the chart as GitHub shows it, with a picture for dark mode."""
    words = " ".join(chart.alt.split())
    alt = html.escape(words if len(words) <= LONGEST_ALT else f"{words[:LONGEST_ALT]}…")
    return Markup(  # noqa: S704 - escaped just above; ids are our own
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="figures/{chart.id}-dark.svg">'
        f'<img alt="{alt}" src="figures/{chart.id}.svg"></picture>'
    )


def _says(board: Board) -> Markup:
    """Return the recommendation with the names of encoders in bold."""
    pieces = [(escape_markdown(f"x{text}x")[1:-1], name) for text, name in board.says]  # blanks at its ends are kept
    return Markup("".join(f"**{text}**" if name else text for text, name in pieces))  # noqa: S704 - escaped just above


def _environment(**options: Any) -> jinja2.Environment:
    """Return our templates, with every text escaped; a misspelt name in a template is an error."""
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


def _named(page: str) -> str:
    """Return a page with control characters that reorder or hide text replaced by their names, but not in addresses."""

    def shown(text: str) -> str:
        return _HIDDEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", text)

    if not _HIDDEN.search(page):
        return page
    parts = _SOURCE.split(page)
    parts[::2] = [shown(text) for text in parts[::2]]
    parts[1::2] = [_SAID.sub(lambda found: shown(found[0]), tag) for tag in parts[1::2]]
    return "".join(parts)


class _Page(jinja2.Template):
    def render(self, *args: Any, **kwargs: Any) -> str:
        return _named(super().render(*args, **kwargs))


@cache
def html_templates() -> jinja2.Environment:
    """Return the templates of pages."""
    templates = _environment()
    templates.template_class = _Page
    templates.filters["markup"] = Markup
    templates.filters["embedded_json"] = lambda text: Markup(text.replace("<", "\\u003c"))  # noqa: S704
    templates.globals |= {
        "tile": _tile,
        "packed": _packed,
        "packed_views": _packed_views,
        "judgements": ",".join(Judgement._fields),
    }
    return templates


@cache
def _markdown() -> jinja2.Environment:
    """Return the templates of markdown: they escape what no macro or filter made, before autoescape could."""

    def escaped(value: object) -> Markup:
        return value if isinstance(value, Markup) else Markup(escape_markdown(value))  # noqa: S704

    templates = _environment(finalize=escaped)
    templates.filters["picture"] = _picture
    templates.filters["says"] = _says
    templates.filters["figure_path"] = lambda name, kind: Markup(f"figures/{name}.{kind}")  # noqa: S704
    return templates
