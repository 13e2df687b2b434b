"""Clicks at random through the pages of `capim serve`: ``python -m tests.faults.clicking WORKSPACE --seconds 3600``.

Every link and every choice of a form that a page offers has to lead to a page, and the store has to be, byte for byte,
what it was. With ``--disturb`` another process compacts the store meanwhile, again and again.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
import shlex
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode, urlsplit

import httpx

FORMS = ("", "", "", "", "csv", "sql", "html")  # of a view
TEXTS = ("red", "%", "'", "", "🦊", "a b")


class Client(Protocol):
    """What the script needs of a browser: ``httpx.Client`` and Starlette's test client have it."""

    def get(self, url: str) -> Any:
        """The answer, with ``status_code`` and ``text``."""


class Clicked(NamedTuple):
    """Pages that were asked for, and addresses that no page should have offered, with their answers."""

    n_pages: int
    faults: list[str]


class _Offers(HTMLParser):
    """The links of a page, and its forms: path, the values of each field, and fields that reset others."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.forms: list[tuple[str, dict[str, list[str]], set[str]]] = []
        self._field = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.links += [
            str(given[name]) for name in ("href", "hx-get", "data-copy") if str(given.get(name, "")).startswith("/")
        ]
        if tag == "form" and given.get("method") != "post":
            self.forms.append((given.get("action") or "/", {}, set()))
        elif self.forms and tag in ("select", "input"):
            self._field = given.get("name") or ""
            if "data-resets" in given:
                self.forms[-1][2].add(self._field)
            values = TEXTS if given.get("type", "text") in ("text", "search") else [given.get("value") or ""]
            if self._field and given.get("type") not in ("file", "number"):
                self.forms[-1][1].setdefault(self._field, []).extend([] if tag == "select" else values)
        elif tag == "option" and self.forms and self._field:
            self.forms[-1][1].setdefault(self._field, []).append(given.get("value") or "")


def click(client: Client, *, seconds: float, seed: int) -> Clicked:
    """Follows links and forms at random, from the first page."""
    rng = random.Random(seed)
    ends, n_pages, faults, offered = time.monotonic() + seconds, 0, [], ["/"]
    while time.monotonic() < ends:
        address = rng.choice(offered or ["/"])
        n_pages += 1
        try:
            answer = client.get(address)
        except httpx.TransportError as fault:
            faults.append(f"{type(fault).__name__} {address}")
            continue
        if answer.status_code != 200:
            faults.append(f"{answer.status_code} {address}: {_words(answer.text)}")
        if not answer.headers.get("content-type", "").startswith("text/html") or "as=html" in address:
            continue
        offers = _Offers()
        offers.feed(answer.text)
        offered = [link for link in offers.links if not link.startswith("/static")]
        for path, fields, resetting in offers.forms:
            chosen = {name: rng.choice(values) for name, values in fields.items() if values and rng.random() < 0.4}
            if first := next(filter(resetting.__contains__, chosen), ""):  # as app.js does
                chosen = {first: chosen[first]}
            form = rng.choice(FORMS)
            offered += [f"{path}?{urlencode(chosen | ({'as': form} if form else {}))}"] * (1 + len(offered) // 4)
    return Clicked(n_pages, faults)


def _words(page: str) -> str:
    main = page.partition("<main")[2] or page
    return " ".join(re.sub(r"<[^>]*>", " ", main).split())[:300]


def digest(folder: Path) -> str:
    """Of all files of a store, their names and bytes."""
    found = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        found.update(f"{path.relative_to(folder)} {path.stat().st_size} ".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def main(argv: list[str] | None = None) -> int:
    """Returns 1 if a page failed or the store changed."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.clicking", description=__doc__)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--disturb", action="store_true", help="compact the store meanwhile")
    args = parser.parse_args(argv)
    capim, place = [sys.executable, "-m", "flows.cli"], ["--workspace", str(args.workspace)]
    before = digest(args.workspace / "store")
    other = None
    with subprocess.Popen([*capim, "serve", *place], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = urlsplit(server.stdout.readline().strip())
            if args.disturb:
                loop = f"while sleep 1; do {shlex.join([*capim, 'store', 'compact', *place])}; done"
                other = subprocess.Popen(["sh", "-c", loop], stdout=subprocess.DEVNULL)
            with httpx.Client(base_url=f"http://{address.netloc}", follow_redirects=True, timeout=120) as client:
                client.get(f"/?{address.query}")
                clicked = click(client, seconds=args.seconds, seed=args.seed)
        finally:
            server.terminate()
            if other is not None:
                other.kill()
    changed = not args.disturb and digest(args.workspace / "store") != before
    state = "compacted by another process" if args.disturb else "CHANGED" if changed else "unchanged"
    print(f"{clicked.n_pages} pages, {len(clicked.faults)} faults, the store is {state}")
    print("\n".join(clicked.faults[:20]))
    return 1 if clicked.faults or changed else 0


if __name__ == "__main__":
    sys.exit(main())
