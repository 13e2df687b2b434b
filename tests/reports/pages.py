"""What a page holds packed, read without a browser."""

from __future__ import annotations

import base64
import json
import re
import zlib
from html.parser import HTMLParser
from typing import Any

PACK = re.compile(r'<script type="application/octet-stream">([^<]*)</script>')


class Elements(HTMLParser):
    """The names of the elements of a page, and those of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.attributes = set[str](), set[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)


def unpacked(text: str) -> Any:
    """What ``render_html`` packed into an element of the page."""
    return json.loads(zlib.decompress(base64.b64decode(text)))


def readable(page: str) -> str:
    """The page with what it holds packed written out."""
    return PACK.sub(lambda found: json.dumps(unpacked(found[1]), indent=1, ensure_ascii=False), page)


def cases(page: str) -> list[dict[str, Any]]:
    """The cases of the gallery of a page."""
    return [case for pack in PACK.findall(page) for case in unpacked(pack)["cases"]]


class Cells(HTMLParser):
    """The cells of all tables of a page: their attributes, with their text and their small print."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []
        self.place = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("td", "th"):
            self.found.append({name: value or "" for name, value in attrs} | {"text": "", "small": ""})
            self.place = "text"
        elif tag == "small":
            self.place = "small" if self.place else ""
        elif tag == "span":
            self.place = ""

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "small"):
            self.place = ""

    @property
    def texts(self) -> set[str]:
        """What the cells say, without their small print."""
        return {cell["text"] for cell in self.found}

    def handle_data(self, data: str) -> None:
        if self.place:
            self.found[-1][self.place] += data.strip()
