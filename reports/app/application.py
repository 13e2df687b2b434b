"""The application of ``capim serve``: a table of pages over one store, who may see them, and one view as one file."""

from __future__ import annotations

import html
import secrets
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Match, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from capim.reports.app import figures, items, queries
from capim.reports.app.state import (
    PAGES,
    STATIC,
    Services,
    State,
    Statement,
    View,
    media_type,
    rendered,
    state_of,
    style,
)
from capim.reports.render import TEMPLATES
from capim.store import EmbeddingStore
from capim.store.errors import RequestError, WorkError, unknown, without_credentials

HOSTS = frozenset({"127.0.0.1", "localhost"})
MOST_BYTES = 20 * 2**20  # of the body of a request: a picture to search for
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",  # with no-referrer a browser sends our own forms with the origin null
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_COOKIE_SECONDS = 365 * 86400  # of the token: a saved address works as long as the workspace keeps its token
_LONGEST = 2000  # characters of an address that one is led back to
HEALTH = "/health"  # health check of the server, without a token
HEIGHT = 640  # of a frame in a notebook, in pixels


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
            Route("/", figures.grid),
            Route("/queries", queries.listed),
            Route("/query/{id:path}", queries.query),
            Route("/judge", queries.judge, methods=["POST"]),
            Route("/match", queries.match),
            Route("/match.png", queries.match_picture),
            Route("/search", items.search),
            Route("/search", items.upload, methods=["POST"]),
            Route("/search/column", items.column),
            Route("/runs", figures.runs),
            Route("/picture/{sha}", _picture),
            Route("/style.css", _style),
            Route(HEALTH, _health),
            Route("/page.js", _script),
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
    if found is None:  # an empty picture, where a browser would draw a broken one
        return Response('<svg xmlns="http://www.w3.org/2000/svg"/>', media_type="image/svg+xml")
    kept = {"Cache-Control": "private, max-age=86400, immutable"}  # the address is the hash of the image
    return Response(found, media_type=media_type(found), headers=kept)


def _health(request: Request) -> Response:
    state_of(request).store.connection.names()  # a store that cannot be read is an error
    return PlainTextResponse("ok\n")


def _style(_: Request) -> Response:
    return Response(style(), media_type="text/css")


def _script(_: Request) -> Response:
    return FileResponse(TEMPLATES / "page.js", media_type="text/javascript")


def _nowhere(request: Request, _: Exception) -> Response:
    reason = f"{request.url.path} is not one of the pages above"
    return _problem(request, reason, title="There is no such page", status=404)


def _problem(request: Request, fault: Exception | str, *, title: str, status: int) -> Response:
    lines = without_credentials(str(fault)).splitlines()
    view = View(template="problem.html", title=title, statement=Statement(sql="SELECT 1"), values={"lines": lines})
    return HTMLResponse(rendered(request, view), status_code=status)


class OnlyThisBrowser:
    """ASGI middleware that refuses every request but those of a browser on this machine that knows the token.

    A request must name this machine as its host (a foreign name that leads here is refused), come from no other
    origin, and carry the token: in the address once, from then on in a cookie. Scripts and styles come from our own
    files only, so that text of a corpus runs nowhere even if it were not escaped.
    """

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self.app = app
        self.token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or refuse it with 403."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._answer_itself(scope)
        await (self.app if refused is None else refused)(scope, receive, sent)
        return None

    def _answer_itself(self, scope: Scope) -> Response | None:
        """The refusal of a request, or the redirection that moves its token to a cookie; None to pass it on."""
        headers, request = Headers(scope=scope), Request(scope)
        if request.url.path == HEALTH and scope["method"] == "GET":  # says nothing of the store
            return None
        host = headers.get("host", "")
        try:
            address = urlsplit(f"//{host}")
            name, port = address.hostname, address.port or 80
        except ValueError:  # "[", "127.0.0.1:abc"
            name, port = None, 0
        if name not in HOSTS:
            return _refusal(f"host {host!r}: these pages are for this machine only, at 127.0.0.1 or localhost")
        embedded = headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate"
        if embedded or headers.get("origin") not in (None, f"http://{host}"):
            return _refusal("the request comes from a page of another site")
        cookie = f"capim-{port}"  # a browser sends the cookies of all ports of a host
        given = request.query_params.get("token")
        if given is not None and secrets.compare_digest(given.encode(), self.token.encode()):
            rest = urlencode([(key, value) for key, value in parse_qsl(request.url.query) if key != "token"])
            moved = RedirectResponse("/" + request.url.path.lstrip("/") + (f"?{rest}" if rest else ""), status_code=303)
            if not rest and request.url.path == "/" and (back := request.cookies.get(f"{cookie}-back")):
                moved = RedirectResponse("/" + unquote(back).lstrip("/\\"), status_code=303)
                moved.delete_cookie(f"{cookie}-back", path="/")
            moved.set_cookie(cookie, self.token, max_age=_COOKIE_SECONDS, httponly=True, samesite="lax", path="/")
            return moved
        if not secrets.compare_digest(request.cookies.get(cookie, "").encode(), self.token.encode()):
            refused = _refusal("open the address that `capim serve` printed; it leads back to this page")
            if headers.get("sec-fetch-dest", "document") == "document" and scope["method"] == "GET":
                here = quote(f"{request.url.path}?{request.url.query}".rstrip("?"), safe="/")
                refused.set_cookie(
                    f"{cookie}-back", here[:_LONGEST], max_age=600, httponly=True, samesite="lax", path="/"
                )
            return refused
        return None


def _refusal(reason: str) -> Response:
    return PlainTextResponse(f"capim: {reason}\n", status_code=403)


class _NotedParams(QueryParams):
    """Parameters of an address that note the names that a page looks up."""

    def __init__(self, query: bytes) -> None:
        super().__init__(query)
        self.names: dict[str, None] = {}

    def __getitem__(self, key: str) -> str:
        self.names[key] = None
        return super().__getitem__(key)

    def getlist(self, key: str) -> list[str]:
        """Return all values of a name."""
        self.names[key] = None
        return super().getlist(key)


class _NotedRequest(Request):
    @cached_property
    def query_params(self) -> _NotedParams:
        return _NotedParams(self.scope["query_string"])


class Shown:
    """A view as it was when it was made; a notebook displays it, without scripts.

    Attributes:
        html: One file, with styles and pictures inside.
    """

    def __init__(self, html: str) -> None:
        self.html = html

    def _repr_html_(self) -> str:
        """A frame of its own, in which nothing of the page can reach the notebook."""
        style = f"width:100%;height:{HEIGHT}px;border:1px solid #8884"
        return (
            f'<iframe sandbox="allow-scripts" srcdoc="{html.escape(self.html)}" style="{style}" title="capim"></iframe>'
        )

    def save(self, path: str | Path) -> Path:
        """Write the file; returns its path."""
        Path(path).write_text(self.html, encoding="utf-8")
        return Path(path)


def show(store: EmbeddingStore, services: Services, address: str, /, **parameters: object) -> Shown:
    """The view of an address of `capim serve`: ``queries``, ``/queries?wrong=a``, or copied from the browser.

    Args:
        store: The store.
        services: As for :func:`reports.app.application.create_app`.
        address: A page, with or without parameters; host and token are left out.
        parameters: More parameters; of several names one list.

    Raises:
        RequestError: There is no such page, or a parameter is wrong or one that the page does not look up.
    """
    split = urlsplit(address)
    given = dict(parse_qsl(split.query))
    for name, value in parameters.items():
        given[name] = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    given = {name: value for name, value in given.items() if name not in ("token", "as")} | {"as": "html"}
    called = {title.lower(): page for page, title in PAGES.items()}
    path = called.get(split.path.lower(), "/" + split.path.strip("/"))
    app = create_app(store, token="", services=services)
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": path, "root_path": "", "headers": [], "app": app}
    scope |= {"query_string": urlencode(given).encode(), "scheme": "http", "server": ("localhost", 80)}
    for route in app.routes:
        match, found = route.matches(scope)
        if match is Match.FULL and isinstance(route, Route):
            request = _NotedRequest({**scope, **found})
            response: Response = route.endpoint(request)
            known = sorted({*request.query_params.names} - {"as", "token"})
            if faults := [unknown(f"parameter of {path}", name, known) for name in parameters if name not in known]:
                raise RequestError(faults)
            return Shown(bytes(response.body).decode())
    raise RequestError(unknown("page", path, PAGES))
