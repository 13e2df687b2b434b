"""What a page holds packed, read without a browser."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pyarrow.parquet
from lxml import html  # type: ignore[import-untyped]

PACK = re.compile(r'<script type="application/octet-stream">([^<]*)</script>')
VIEWS = re.compile(r'<script type="application/octet-stream" data-views>([^<]*)</script>')


def elements(page: str) -> tuple[set[str], set[str]]:
    """The names of the elements of a page, and those of their attributes."""
    found = [each for each in html.fromstring(page).iter() if isinstance(each.tag, str)]
    return {each.tag for each in found}, {name for each in found for name in each.attrib}


def unpacked(text: str) -> Any:
    """What ``render_html`` packed into an element of the page."""
    return json.loads(zlib.decompress(base64.b64decode(text)))


def readable(page: str) -> str:
    """The page with what it holds packed written out."""
    page = VIEWS.sub(lambda found: "".join(unpacked(found[1]).values()), page)
    return PACK.sub(lambda found: json.dumps(unpacked(found[1]), indent=1, ensure_ascii=False), page)


def cases(page: str) -> list[dict[str, Any]]:
    """The cases of the gallery of a page: id, tags, the text that is searched, tile and view."""
    return [case for pack in PACK.findall(page) for case in unpacked(pack)["cases"]]


def views(page: str) -> list[str]:
    """The tables that a page holds packed, as HTML."""
    return [table for pack in VIEWS.findall(page) for table in unpacked(pack).values()]


def long_table(page: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a table in a file of its own next to a page: ``comparisons`` or ``slices``."""
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(page.with_name(f"{name}.parquet")).to_pylist()
    return rows


def cells(page: str) -> list[dict[str, str]]:
    """The cells of all tables of a page, packed or not: their attributes, with their text and their small print."""

    def text(cell: html.HtmlElement, path: str) -> str:
        return "".join(each.strip() for each in cell.xpath(path))

    return [
        {
            **cell.attrib,
            "text": text(cell, ".//text()[not(ancestor::small or ancestor::span)]"),
            "small": text(cell, "(.//small)[1]//text()[not(ancestor::span)]"),
        }
        for cell in html.fromstring(readable(page)).iter("td", "th")
    ]
