"""From a view to a response: a page, the same page as one file, its rows as CSV, or their SQL."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from capim.reports.app.state import Statement, state_of
from capim.reports.render import TEMPLATES, html_templates
from capim.store.errors import RequestError
from capim.store.files import write_csv
from capim.store.types import digest16

STATIC = Path(__file__).parent / "static"
PAGES = (
    ("/", "Grid"),
    ("/queries", "Queries"),
    ("/compare", "Compare"),
    ("/search", "Search"),
    ("/map", "Map"),
    ("/runs", "Runs"),
)
"""The pages of the navigation bar: path and title."""


@dataclass(frozen=True, kw_only=True)
class View:
    """What one page shows.

    Attributes:
        template: File below ``templates/app/``.
        title: Heading and title of the window.
        values: What the template reads.
        statement: Gives the rows of the view, for CSV and SQL; None where no SELECT does.
        table: The rows, where a statement does not give them.
    """

    template: str
    title: str
    statement: Statement | None = None
    table: pa.Table | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


def respond(request: Request, view: View) -> Response:
    """The view in the form that the address asks for: ``as=csv``, ``as=sql``, ``as=html`` (one file), else a page."""
    form = request.query_params.get("as", "")
    if form == "sql" and view.statement is not None:
        return PlainTextResponse(view.statement.text + "\n")
    table = view.table
    if form == "csv" and table is None and view.statement is not None:
        table = state_of(request).rows(view.statement)
    if form == "csv" and table is not None:
        return PlainTextResponse(as_csv(table), media_type="text/csv")
    if form not in ("", "html"):
        raise RequestError(f"as={form}: expected csv, sql or html")
    page = rendered(request, view, saved=form == "html")
    named = {"Content-Disposition": f'attachment; filename="capim-{digest16(str(request.url.query))}.html"'}
    return HTMLResponse(page, headers=named if form == "html" else None)


def rendered(request: Request, view: View, *, saved: bool = False) -> str:
    """The page; ``saved``: with its styles and pictures inside, and without scripts."""

    def picture(sha: str | None) -> str:
        """Where the browser finds the thumbnail with this hash; empty where there is none."""
        if not sha or not saved:
            return f"/picture/{sha}" if sha else ""
        found = state_of(request).store.thumbnails([sha]).get(sha)
        return "" if found is None else f"data:{media_type(found)};base64,{base64.b64encode(found).decode()}"

    return (
        html_templates()
        .get_template(f"app/{view.template}")
        .render(
            view=view,
            saved=saved,
            picture=picture,
            style=Markup(style()) if saved else "",  # noqa: S704 - our own files
            pages=PAGES,
            path=request.url.path,
            here=address(request),
            address=lambda **changed: address(request, **changed),
            link=link,
            store=state_of(request).store.uri,
            **view.values,
        )
    )


def address(request: Request, **changed: object) -> str:
    """The address of this view with some of its parameters changed; None or an empty text leaves one out."""
    given = {key: request.query_params.getlist(key) for key in request.query_params if key not in ("as", "page")}
    given |= {key: [] if value in (None, "") else [str(value)] for key, value in changed.items()}
    query = urlencode([(key, value) for key, values in given.items() for value in values if value], safe="/*,: ")
    return request.url.path + (f"?{query}" if query else "")


def link(path: str, **parameters: object) -> str:
    """An address of the application; empty parameters are left out."""
    given = [(key, str(value)) for key, value in parameters.items() if value not in (None, "", ())]
    query = urlencode(given, safe="/*,:")
    return quote(path) + (f"?{query}" if query else "")


def as_csv(rows: pa.Table) -> str:
    """Rows as CSV with a line of headings."""
    target = io.StringIO()
    write_csv(rows.to_pylist(), rows.column_names, target)
    return target.getvalue()


def media_type(picture: bytes) -> str:
    """The type of a stored thumbnail: JPEG or PNG."""
    return "image/png" if picture.startswith(b"\x89PNG") else "image/jpeg"


@cache
def style() -> str:
    """The style of a report, and what the pages add."""
    return (TEMPLATES / "page.css").read_text("utf-8") + (STATIC / "app.css").read_text("utf-8")
