"""Clicks at random through the pages of `capim serve`.

Every link and every choice of a form that a page offers has to lead to a page, and the store has to be, byte for byte,
what it was.
"""

from __future__ import annotations

import hashlib
import random
import re
import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode, urlsplit

import httpx
from lxml import html  # type: ignore[import-untyped]

TEXTS = ("red", "%", "'", "", "🦊", "a b")


class Client(Protocol):
    """What the script needs of a browser: ``httpx.Client`` and Starlette's test client have it."""

    def get(self, url: str) -> Any:
        """The answer, with ``status_code`` and ``text``."""


class Clicked(NamedTuple):
    """Pages that were asked for, and addresses that no page should have offered, with their answers."""

    n_pages: int
    faults: list[str]


def filled_in(form: Any, rng: random.Random) -> str:
    """The address of a form with some fields changed, as a browser sends it."""
    sent: dict[str, list[str]] = {}
    choices: dict[str, list[str]] = {}
    ticked = set[str]()  # check boxes
    for field in form.inputs:
        name, kind = field.name, "select" if field.tag == "select" else field.get("type", "text")
        if not name or kind == "file":
            continue
        if kind == "checkbox":
            ticked.add(name)
            choices.setdefault(name, []).append(field.get("value", ""))
        elif kind in ("select", "text", "search"):
            choices[name] = field.value_options if kind == "select" else [*TEXTS]
        if kind != "checkbox" or field.checked:
            sent.setdefault(name, []).append(field.get("value", "") if kind == "checkbox" else field.value or "")
    for name, values in choices.items():
        if values and rng.random() < 0.3:
            sent[name] = rng.sample(values, rng.randint(0, min(2, len(values)))) if name in ticked else []
            sent[name] = sent[name] if name in ticked else [rng.choice(values)]
    return f"{form.action or '/'}?{urlencode(sent, doseq=True)}"


def offered_by(page: str, rng: random.Random) -> list[str]:
    """The addresses behind the links of a page, and some that its forms lead to."""
    tree = html.document_fromstring(page)
    found = tree.xpath("//@href | //@hx-get | //@data-copy")
    links = [str(link) for link in found if link.startswith("/") and not link.startswith("/static")]
    forms = [form for form in tree.forms if form.method == "GET"]
    return [*links, *(filled_in(form, rng) for form in forms for _ in range(1 + len(links) // 4))]


def click(client: Client, *, seconds: float, seed: int, at_least: int = 1) -> Clicked:
    """Follows links and forms at random, from the first page, for some seconds and to a number of pages."""
    rng = random.Random(seed)
    ends, n_pages, faults, offered = time.monotonic() + seconds, 0, [], ["/"]
    while time.monotonic() < ends or n_pages < at_least:
        address = rng.choice(offered or ["/"])
        n_pages += 1
        try:
            answer = client.get(address)
        except httpx.TransportError as fault:
            faults.append(f"{type(fault).__name__} {address}")
            continue
        if answer.status_code != 200:
            faults.append(f"{answer.status_code} {address}: {_words(answer.text)}")
        if answer.headers.get("content-type", "").startswith("text/html") and "as=html" not in address:
            offered = offered_by(answer.text, rng)
    return Clicked(n_pages, faults)


def visit(address: str, *, seconds: float, seed: int) -> Clicked:
    """Clicks through the pages of a server at the address that it has printed."""
    place = urlsplit(address.strip())
    with httpx.Client(base_url=f"http://{place.netloc}", follow_redirects=True, timeout=120) as client:
        client.get(f"/?{place.query}")
        return click(client, seconds=seconds, seed=seed)


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
