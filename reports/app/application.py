"""The application of ``capim serve``: a table of pages over one store, and who may see them."""

from __future__ import annotations

import secrets
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from capim.reports.app import figures, items, queries
from capim.reports.app.state import STATIC, Services, State, Statement, View, media_type, rendered, state_of, style
from capim.reports.render import TEMPLATES
from capim.store import EmbeddingStore
from capim.store.errors import RequestError, WorkError, without_credentials

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


def create_app(store: EmbeddingStore, *, token: str, services: Services, judgements: Path | None = None) -> Starlette:
    """Return the application over a store.

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
    try:
        state_of(request).snapshot()
    except (RequestError, WorkError):  # whose words name the store, and a token is not asked for here
        return PlainTextResponse("the store cannot be read\n", status_code=503)
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
        """Return the refusal of a request, or the redirection that moves its token to a cookie; None to pass it on."""
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
