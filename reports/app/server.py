"""The server of `capim serve`, at an address that stays."""

from __future__ import annotations

import json
import os
import secrets
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from capim.store.errors import RequestError

HOST = "127.0.0.1"
_KEPT = "serve.json"  # in the workspace: the token and the port, readable only by this user


class Address(NamedTuple):
    """Token and port, kept between runs of `capim serve` in a workspace, so that cookies and saved URLs stay valid."""

    token: str
    port: int

    @classmethod
    def of(cls, folder: Path | None) -> Address:
        """Return that of a workspace; a new token and any port if none is kept, or if others may have read it."""
        if folder is not None:
            with suppress(OSError, ValueError, KeyError, TypeError):
                file = folder / _KEPT
                if not file.stat().st_mode & 0o077:
                    kept = json.loads(file.read_text("utf-8"))
                    return cls(str(kept["token"]), int(kept["port"]))
        return cls(secrets.token_urlsafe(24), 0)

    @property
    def url(self) -> str:
        """The pages' address without the token, which the browser keeps in a cookie; empty where no port is kept."""
        return f"http://{HOST}:{self.port}" if self.port else ""

    def keep(self, folder: Path | None) -> None:
        """Keep it for the next time, readable only by this user; nothing is kept in a folder that is not writable."""
        if folder is None:
            return
        with suppress(OSError):
            file = folder / _KEPT
            file.unlink(missing_ok=True)
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
                json.dump(self._asdict(), out)


def listening(port: int, *, kept: int = 0) -> socket.socket:
    """Return a socket at a port; without one (0) at the ``kept`` port, and if another program has that, at any.

    Raises:
        RequestError: The port cannot be used.
    """
    if not port and kept:
        with suppress(OSError, OverflowError):
            return socket.create_server((HOST, kept))
    try:
        return socket.create_server((HOST, port))
    except (OSError, OverflowError) as fault:
        raise RequestError(f"port {port} cannot be used ({fault}); give another, or 0 for any free one") from fault


def server_of(app: Any) -> Any:
    """Return the server of an application."""
    import uvicorn  # which a report, which names the address, need not

    quiet: dict[str, Any] = {"log_level": "warning", "access_log": False, "server_header": False}
    return uvicorn.Server(uvicorn.Config(app, limit_concurrency=100, **quiet))  # a browser opens six
