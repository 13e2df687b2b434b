"""One view of the pages as one HTML file, without a server: what a notebook shows."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from capim.reports.app.application import create_app
from capim.reports.app.services import Services
from capim.store import EmbeddingStore
from capim.store.errors import RequestError, unknown

HEIGHT = 640  # of a frame in a notebook, in pixels


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
        return f'<iframe sandbox="" srcdoc="{html.escape(self.html)}" style="{style}" title="capim"></iframe>'

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
        RequestError: There is no such page, or a parameter is wrong.
    """
    split = urlsplit(address)
    given = dict(parse_qsl(split.query))
    given |= {name: _text(value) for name, value in parameters.items()}
    given = {name: value for name, value in given.items() if name not in ("token", "as")} | {"as": "html"}
    path = "/" + split.path.strip("/")
    app = create_app(store, token="", services=services)
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": path, "root_path": "", "headers": [], "app": app}
    scope |= {"query_string": urlencode(given).encode(), "scheme": "http", "server": ("localhost", 80)}
    for route in app.routes:
        match, found = route.matches(scope)
        if match is Match.FULL and isinstance(route, Route):
            response: Response = route.endpoint(Request({**scope, **found}))
            return Shown(bytes(response.body).decode())
    pages = [route.path for route in app.routes if isinstance(route, Route) and route.path.count("/") == 1]
    raise RequestError(unknown("page", path, dict.fromkeys(pages)))


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
