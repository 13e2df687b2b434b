"""What a page holds packed, read without a browser."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from capim.reports.elements.page import Cell

PACK = re.compile(r'<script type="application/octet-stream" class="pack">([^<]*)</script>')
PARTS = ("text", "note", "state", "title", "sort", "mark", "link", "bar")  # of a cell, in the order of the page


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


def blocks(page: str) -> dict[str, Any]:
    """Id to block, of all sections of a page."""
    return {block["id"]: block for pack in PACK.findall(page) for block in unpacked(pack)}


def tables(page: str) -> Iterator[dict[str, Any]]:
    """Every table of a page, those of boards and charts as well."""
    for block in blocks(page).values():
        yield from (found for found in (block, block.get("table"), block.get("data")) if found and "columns" in found)


def cell(packed: Any) -> Cell:
    """One packed cell; its bar stays packed."""
    parts: list[Any] = [packed] if isinstance(packed, str) else [part or "" for part in packed]
    return Cell(**dict(zip(PARTS, parts, strict=False)))


def cells(table: dict[str, Any]) -> list[list[Cell]]:
    """The cells of a table, row by row."""
    return [[cell(packed) for packed in row] for row in table.get("rows", ())]
