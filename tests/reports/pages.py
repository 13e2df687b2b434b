"""What a page holds packed, read without a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from capim.reports.render import unpacked

PACK = re.compile(r'<script type="application/octet-stream" class="pack">([^<]*)</script>')


class Shown(NamedTuple):
    """A cell of a page: ``reports.elements.page.Cell`` without what is empty."""

    text: str
    note: str = ""
    state: str = ""
    title: str = ""
    sort: str = ""
    mark: str = ""
    link: str = ""
    bar: Any = None


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


def cell(packed: Any) -> Shown:
    """One packed cell."""
    return Shown(packed) if isinstance(packed, str) else Shown(*(part or "" for part in packed))


def cells(table: dict[str, Any]) -> list[list[Shown]]:
    """The cells of a table, row by row."""
    return [[cell(packed) for packed in row] for row in table.get("rows", ())]
