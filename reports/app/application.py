"""The application of ``capim serve``: a table of pages over one store."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from capim.reports.app.pages import compare, grid, match, plane, queries, query, runs, search
from capim.reports.app.rendering import STATIC, View, media_type, rendered, style
from capim.reports.app.safety import MOST_BYTES, OnlyThisBrowser
from capim.reports.app.services import Services
from capim.reports.app.state import State, Statement, state_of
from capim.store import EmbeddingStore
from capim.store.errors import RequestError, WorkError, without_credentials


def create_app(store: EmbeddingStore, *, token: str, services: Services, judgements: Path | None = None) -> Starlette:
    """The application over a store.

    Args:
        store: Read only.
        token: A request without it, in the address or in the cookie, is refused.
        services: Computations that reports may not import.
        judgements: The user's file to which "also right" adds lines; None: there is no such button.
    """
    app = Starlette(
        routes=[
            Route("/", grid.page),
            Route("/queries", queries.page),
            Route("/query/{id:path}", query.page),
            Route("/judge", query.judge, methods=["POST"]),
            Route("/compare", compare.page),
            Route("/compare/points", compare.points),
            Route("/match", match.page),
            Route("/match.png", match.picture),
            Route("/search", search.page),
            Route("/search", search.upload, methods=["POST"]),
            Route("/search/column", search.column),
            Route("/map", plane.page),
            Route("/map/figure", plane.figure),
            Route("/map/item", plane.item),
            Route("/runs", runs.page),
            Route("/picture/{sha}", _picture),
            Route("/style.css", _style),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(OnlyThisBrowser, token=token)],
        exception_handlers={
            RequestError: partial(_problem, title="This cannot be shown", status=400),
            WorkError: partial(_problem, title="The store could not be read", status=500),
            404: _nowhere,
        },
        max_body_size=MOST_BYTES,
    )
    app.state.capim = State(store, services, judgements)
    return app


def _picture(request: Request) -> Response:
    sha = request.path_params["sha"]
    found = state_of(request).store.thumbnails([sha]).get(sha)
    if found is None:
        return PlainTextResponse("no thumbnail of this image\n", status_code=404)
    kept = {"Cache-Control": "private, max-age=86400, immutable"}  # the address is the hash of the image
    return Response(found, media_type=media_type(found), headers=kept)


def _style(_: Request) -> Response:
    return Response(style(), media_type="text/css")


def _nowhere(request: Request, _: Exception) -> Response:
    reason = f"{request.url.path} is none of the pages above"
    return _problem(request, reason, title="There is no such page", status=404)


def _problem(request: Request, fault: Exception | str, *, title: str, status: int) -> Response:
    lines = without_credentials(str(fault)).splitlines()
    view = View(template="problem.html", title=title, statement=Statement(sql="SELECT 1"), values={"lines": lines})
    return HTMLResponse(rendered(request, view), status_code=status)
