"""Names of images, captions and captions files that someone made to break what reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMES = [  # of image files
    "turned \u202e.png",
    "'; DROP TABLE images; --.png",
    '<b onmouseover=alert(1)> & ".png',
    "\U0001f6b2 ünïcödé 自転車.png",
    "-rf * $HOME `id` %s {0}\n.png",
    "." + "n" * 240 + ".png",
]
TEXTS = [
    "a\0b",
    "\0",
    "",
    " ",
    "\u202eright to left\u202c",
    "مرحبا بالعالم",
    "combining: a" + "\u0301" * 500,
    "👩‍👩‍👧‍👦" * 50,
    "\ufeffbyte order mark",
    "\ufffe\uffff\U0010ffff",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><svg onload=alert(1)>",
    "{{ 7 * 7 }} {% raw %} ${7*7} #{7*7}",
    "'; DROP TABLE captions; --",
    "' OR '1'='1",
    'quote " and \\ backslash',
    "\x1b[31mred\x1b[0m\x1b]0;title\x07\x08\x08",
    "\x00\x01\x02\x7f\x80\x9b31m",
    "line\r\nbreak\u2028and\u2029more\x0b\x0c\x85",
    "tab\tand comma, semicolon; pipe | and #",
    "=cmd|' /C calc'!A0",
    "../../../../etc/passwd",
    "%s %n %x {0} {name!r}",
    "x" * 1_000_000,
    "word " * 2_000,
    "1e999",
    "NaN",
    "null",
    "[link](javascript:alert(1)) ![](file:///etc/passwd) <!-- -->",
    "```\nfence\n```",
]


def _changed(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def spoil(file: Path) -> None:
        content = json.loads(file.read_text())
        change(content)
        file.write_text(json.dumps(content))

    return spoil


def _first(content: dict[str, Any], table: str, **fields: object) -> None:
    content[table][0].update(fields)


# Name of the folder -> what is done to its captions file.
BAD_FILES: dict[str, Callable[[Path], object]] = {
    "emptied": lambda file: file.write_bytes(b""),
    "cut-short": lambda file: file.write_bytes(file.read_bytes()[:-40]),
    "not-text": lambda file: file.write_bytes(b"\xff\xfe\x00\x01" * 20),
    "a-list": lambda file: file.write_text("[1, 2]"),
    "too-deep": lambda file: file.write_text("[" * 200_000),
    "surrogates": _changed(lambda content: _first(content, "annotations", caption="a \ud800 half")),
    "caption-a-number": _changed(lambda content: _first(content, "annotations", caption=7)),
    "caption-null": _changed(lambda content: _first(content, "annotations", caption=None)),
    "image-unknown": _changed(lambda content: _first(content, "annotations", image_id=999)),
    "no-annotations": _changed(lambda content: content.pop("annotations")),
    "ids-twice": _changed(lambda content: content["annotations"].append(content["annotations"][0])),
    "images-twice": _changed(lambda content: content["images"].append(content["images"][0])),
    "out-of-the-folder": _changed(lambda content: _first(content, "images", file_name="../../../../etc/passwd")),
    "absolute": _changed(lambda content: _first(content, "images", file_name="/etc/passwd")),
    "nul-in-a-name": _changed(lambda content: _first(content, "images", file_name="a\0.png")),
    "name-too-long": _changed(lambda content: _first(content, "images", file_name="n" * 5000 + ".png")),
    "surrogate-in-a-name": _changed(lambda content: _first(content, "images", file_name="\ud800.png")),
    "a-folder": _changed(lambda content: _first(content, "images", file_name=".")),
}
