"""`serve`: the pages of one store in a browser on this machine."""

from __future__ import annotations

import argparse
import secrets
import socket
import sys
import webbrowser
from contextlib import suppress
from pathlib import Path

from capim.flows.commands.workspace import open_store
from capim.flows.terminal.output import link
from capim.flows.terminal.parser import Commands, declare
from capim.store.errors import RequestError

HOST = "127.0.0.1"


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the command that serves pages."""
    parser = declare(commands, common, "serve", serve)
    parser.add_argument("--port", type=int, default=0, metavar="N", help="port (default: any that is free)")
    parser.add_argument("--open", action="store_true", help="open the first page in the browser")


def serve(args: argparse.Namespace) -> None:
    """Look through a store in the browser: results, single queries, what one encoder misses and another finds.

    Prints an address that works on this machine only; it carries a token, so that others on the machine cannot use it.
    The pages read the store and never change it; maps are kept beside it, in maps/. Stop with Ctrl-C.

    Example: capim serve --workspace ./workspace --open
    """
    import uvicorn

    from capim.flows.commands.services import StoreServices
    from capim.reports.app.application import create_app

    store = open_store(args.workspace)
    token = secrets.token_urlsafe(24)
    workspace = None if "://" in store.uri else Path(store.uri).parent
    services = StoreServices(store, maps=workspace and workspace / "maps")
    app = create_app(store, token=token, services=services, judgements=workspace and workspace / "judgements.csv")
    with _listening(args.port) as listener:
        address = f"http://{HOST}:{listener.getsockname()[1]}/?token={token}"
        sys.stdout.write(f"{link(address, sys.stdout)}\n")
        sys.stdout.flush()
        if args.open:
            webbrowser.open(address)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, server_header=False))
        with suppress(KeyboardInterrupt):  # the way to stop it
            server.run(sockets=[listener])


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except (OSError, OverflowError) as fault:
        raise RequestError(f"port {port} cannot be used ({fault}); give another, or 0 for any free one") from fault
