"""Who may use the pages: a browser on this machine that knows the token, and no page of another site.

A request must name this machine as its host (a foreign name that leads here is refused), come from no other origin, and
carry the token: in the address once, from then on in a cookie. Scripts and styles come from our own files only, so that
text of a corpus runs nowhere even if it were not escaped.
"""

from __future__ import annotations

import secrets
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


class OnlyThisBrowser:
    """ASGI middleware that refuses every request but those of a browser on this machine that knows the token."""

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
        host = headers.get("host", "")
        if (urlsplit(f"//{host}").hostname or "") not in HOSTS:
            return _refusal(f"host {host!r}: these pages are for this machine only, at 127.0.0.1 or localhost")
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            return _refusal("the request comes from a page of another site")
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return _refusal("the request comes from a page of another site")
        cookie = f"capim-{urlsplit(f'//{host}').port or 80}"  # a browser sends the cookies of all ports of a host
        given = request.query_params.get("token")
        if given is not None and secrets.compare_digest(given.encode(), self.token.encode()):
            rest = urlencode([(key, value) for key, value in parse_qsl(request.url.query) if key != "token"])
            moved = RedirectResponse("/" + request.url.path.lstrip("/") + (f"?{rest}" if rest else ""), status_code=303)
            moved.set_cookie(cookie, self.token, httponly=True, samesite="lax", path="/")
            return moved
        if not secrets.compare_digest(request.cookies.get(cookie, "").encode(), self.token.encode()):
            return _refusal("open the address that `capim serve` printed: it carries the token of these pages")
        return None


def _refusal(reason: str) -> Response:
    return PlainTextResponse(f"capim: {reason}\n", status_code=403)
