"""Clicks at random through the pages of `capim serve`: ``python -m tests.faults.clicking WORKSPACE --seconds 3600``.

Every link and every choice of a form that a page offers has to lead to a page, and the store has to be, byte for byte,
what it was. With ``--disturb`` other processes evaluate, compare, prune and watch the store meanwhile, again
and again. The memory of the server is printed every hundred pages.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode, urlsplit

import httpx

TEXTS = ("red", "%", "'", "", "🦊", "a b")


class Client(Protocol):
    """What the script needs of a browser: ``httpx.Client`` and Starlette's test client have it."""

    def get(self, url: str) -> Any:
        """The answer, with ``status_code`` and ``text``."""


class Clicked(NamedTuple):
    """Pages that were asked for, and addresses that no page should have offered, with their answers."""

    n_pages: int
    faults: list[str]


@dataclass
class _Form:
    """The fields of a form by name: the values that each may have, those that it has, and what choosing one resets."""

    path: str
    choices: dict[str, list[str]] = field(default_factory=dict)
    present: dict[str, list[str]] = field(default_factory=dict)
    kept: dict[str, set[str]] = field(default_factory=dict)  # a field that resets all others but these
    ticked: set[str] = field(default_factory=set)  # fields of check boxes, which have any number of values

    def filled_in(self, rng: random.Random) -> str:
        """The address of the form with some fields changed, as a browser sends it."""
        sent = dict(self.present)
        for name, values in self.choices.items():
            if rng.random() < 0.3:
                sent[name] = rng.sample(values, rng.randint(0, min(2, len(values)))) if name in self.ticked else []
                sent[name] = sent[name] if name in self.ticked else [rng.choice(values)]
                if name in self.kept and sent[name] != self.present.get(name):
                    kept = self.kept[name] | {name}
                    return self.path + "?" + urlencode({one: sent[one] for one in kept if one in sent}, doseq=True)
        return self.path + "?" + urlencode(sent, doseq=True)


class _Offers(HTMLParser):
    """The links and the forms of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.forms: list[_Form] = []
        self._form: _Form | None = None
        self._field = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: text or "" for name, text in attrs}
        self.links += [given[name] for name in ("href", "hx-get", "data-copy") if given.get(name, "").startswith("/")]
        if tag == "form":
            self._form = _Form(given.get("action") or "/") if given.get("method") != "post" else None
            self.forms += [self._form] if self._form else []
        elif self._form and tag in ("select", "input"):
            self._field, kind, value = given.get("name", ""), given.get("type", "text"), given.get("value", "")
            if "data-resets" in given:
                self._form.kept[self._field] = {*given["data-resets"].split()}
            if tag == "select" or not self._field or kind == "file":
                return
            if kind == "checkbox":
                self._form.ticked.add(self._field)
            if kind == "checkbox" or kind in ("text", "search"):
                self._form.choices.setdefault(self._field, []).extend([value] if kind == "checkbox" else TEXTS)
            if kind != "checkbox" or "checked" in given:
                self._form.present.setdefault(self._field, []).append(value)
        elif tag == "option" and self._form and self._field:
            value = given.get("value", "")
            self._form.choices.setdefault(self._field, []).append(value)
            if "selected" in given or self._field not in self._form.present:
                self._form.present[self._field] = [value]

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None

    def handle_data(self, data: str) -> None:
        """An option without a value has its text as its value."""
        if self._form and self.lasttag == "option" and data.strip() and self._form.choices.get(self._field):
            values = self._form.choices[self._field]
            if values[-1] == "" and "value=" not in (self.get_starttag_text() or ""):
                values[-1] = data
                if self._form.present.get(self._field) == [""]:
                    self._form.present[self._field] = [data]


def click(client: Client, *, seconds: float, seed: int, after: Callable[[int], None] = lambda n_pages: None) -> Clicked:
    """Follows links and forms at random, from the first page; ``after`` is told the number of pages after each."""
    rng = random.Random(seed)
    ends, n_pages, faults, offered = time.monotonic() + seconds, 0, [], ["/"]
    while time.monotonic() < ends:
        address = rng.choice(offered or ["/"])
        n_pages += 1
        after(n_pages)
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
        for form in offers.forms:
            offered += [form.filled_in(rng) for _ in range(1 + len(offered) // 4)]
    return Clicked(n_pages, faults)


def visit(address: str, *, seconds: float, seed: int, after: Callable[[int], None] = lambda n_pages: None) -> Clicked:
    """Clicks through the pages of a server at the address that it has printed."""
    place = urlsplit(address.strip())
    with httpx.Client(base_url=f"http://{place.netloc}", follow_redirects=True, timeout=120) as client:
        client.get(f"/?{place.query}")
        return click(client, seconds=seconds, seed=seed, after=after)


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


def resident(pid: int) -> float:
    """The memory of a process, in megabytes (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1000


def main(argv: list[str] | None = None) -> int:
    """Returns 1 if a page failed or the store changed."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.clicking", description=__doc__)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--disturb", action="store_true", help="evaluate, prune and watch meanwhile")
    args = parser.parse_args(argv)
    capim, place = [sys.executable, "-m", "capim.flows.cli"], ["--workspace", str(args.workspace)]
    before = digest(args.workspace / "store")
    other = None
    with subprocess.Popen([*capim, "serve", *place], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline()
            if args.disturb:
                settings = ["--quiet", "--corpora", "shapes", "--protocols", "t2i/all", "--seed"]
                watched = ["watch", "--quiet", "--corpora", "shapes", "--encoders", "tiny-clip"]
                kept = (["store", "prune", "--keep", "2", "--yes"], watched)
                work = [
                    *(shlex.join([*capim, step, *place, *settings]) + " $n" for step in ("evaluate", "compare")),
                    *(shlex.join([*capim, *words, *place]) for words in kept),
                ]
                loop = f"n=0; while sleep 1; do n=$((n + 1)); {'; '.join(work)}; done"
                nowhere = subprocess.DEVNULL
                other = subprocess.Popen(["sh", "-c", loop], stdout=nowhere, stderr=nowhere, start_new_session=True)

            def memory(n_pages: int) -> None:
                if n_pages % 100 == 50:
                    print(f"{n_pages} pages: {resident(server.pid):,.0f} MB", flush=True)

            clicked = visit(address, seconds=args.seconds, seed=args.seed, after=memory)
        finally:
            server.terminate()
            if other is not None:
                os.killpg(other.pid, signal.SIGTERM)
    changed = not args.disturb and digest(args.workspace / "store") != before
    state = "written by other processes" if args.disturb else "CHANGED" if changed else "unchanged"
    print(f"{clicked.n_pages} pages, {len(clicked.faults)} faults, the store is {state}")
    print("\n".join(clicked.faults[:20]))
    return 1 if clicked.faults or changed else 0


if __name__ == "__main__":
    sys.exit(main())
