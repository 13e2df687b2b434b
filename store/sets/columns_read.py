"""Reports the columns of a table that were read, and unread columns that look as if they should have been.

Readers of tables pass their rows through :func:`telling`; checks, runs and imports collect its lines with
:func:`told`. The kind of a column is recognised by its cells, hardly by its name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Any, TypeAlias

from capim.store.errors import is_number

Row: TypeAlias = Mapping[str, Any]
Names: TypeAlias = Collection[str]
TONGUES, SPLITS, GRADES = "languages", "splits", "grades of relevance or confidence"
CAPTIONS, TEXTS = "captions, right or wrong ones", "texts"
NO_OPTION = "no option reads it: keep in the file only the rows that should count"
NEGATIVE = re.compile(r"neg|foil|false|wrong|incorrect|distract", re.IGNORECASE)
"""In names of columns of wrong captions."""
SPLIT = re.compile(r"(re|mini)?(train|val|dev|test|eval)\w{0,8}|held[-_ ]?out", re.IGNORECASE)
_OF_CAPTIONS = re.compile(f"{NEGATIVE.pattern}|caption|sentence|descri|^text$", re.IGNORECASE)
_OF_SPLITS = re.compile(r"split|subset|partition|fold|is_?(train|val|test)", re.IGNORECASE)  # names of columns
_OF_GRADES = re.compile(r"label|grade|relevan|judg|rating", re.IGNORECASE)
_VERDICT = re.compile(
    r"true|false|yes|no|(accept|reject|ignor|approv)(e|ed)?|(in)?(valid|correct)|right|wrong|good|bad|pass|fail(ed)?|"
    r"success|(ir)?relevant|exact|partial|substitute|complement",
    re.IGNORECASE,
)
_CODE, _NAME = re.compile(r"[a-z]{2,3}([-_]\w{2,8})*", re.IGNORECASE), re.compile(r"[^\W\d_]{4,12}( \(?[^\W\d_]+\)?)?")
_MOST = 64  # different cells of a column that are kept, and rows that are compared
_NONE: Mapping[str, str] = MappingProxyType({})
_TOLD: ContextVar[dict[str, None]] = ContextVar("columns_read")


@contextmanager
def told() -> Iterator[Collection[str]]:
    """Collect reports on the tables that are read within the context, as lines of text, each once."""
    lines: dict[str, None] = {}
    token = _TOLD.set(lines)
    try:
        yield lines
    finally:
        _TOLD.reset(token)


def tell(line: str) -> None:
    """Pass a line to the collector, if there is one."""
    _TOLD.get({})[line] = None


def telling(
    where: object, read: Names, available: Names, rows: Iterable[Row], ways: Row = _NONE, language: str = "en"
) -> Iterator[Row]:
    r"""Yield the rows of a table as they are; after the last one, report its columns to the collector.

    Args:
        where: The table, for messages.
        read: Its columns that are read.
        available: All of them.
        ways: What another column may look like -> how it is read, with ``{column}`` and ``{value}``, one of its cells.
        language: That of texts without one in their row; it needs no column.

    Examples:
        >>> rows = [{"image": "1.jpg", "lang": "de"}, {"image": "2.jpg", "lang": "fr"}]
        >>> with told() as lines:
        ...     n = len(list(telling("t.csv", ["image"], ["image", "lang"], rows, {TONGUES: 'give "{column}"'})))
        >>> print(*lines, sep="\n")
        t.csv: columns read: image; not read: lang
        warning: t.csv: column 'lang' is not read, but looks like languages (de, fr); give "lang"
    """
    unread: dict[str, dict[str, None]] = {column: {} for column in available if column not in read}
    first: list[Row] = []
    for row in rows:
        first += [row] if len(first) < _MOST else []
        for column, cells in unread.items():
            if len(cells) < _MOST and (text := _text(row.get(column))):
                cells[text] = None
        yield row
    others = f"; not read: {', '.join(column or '(no name)' for column in unread)}" if unread else ""
    tell(f"{where}: columns read: {', '.join(read)}{others}")
    for column, cells in unread.items():
        if (kind := _kind(column, [*cells], first, read, language)) in ways:
            value = next((cell for cell in cells if cell.casefold().startswith("test")), next(iter(cells)))
            looks = f"is not read, but looks like {kind} ({', '.join(f'{cell:.40}' for cell in islice(cells, 4))})"
            tell(f"warning: {where}: column {column!r} {looks}; {ways[kind].format(column=column, value=value)}")


def columns_of_match(by: str) -> set[str]:
    """Return the columns by which rows were matched, as :class:`capim.store.sets.matching.Match` has it.

    Examples:
        >>> sorted(columns_of_match("file (file names)") | columns_of_match("position, with which row agrees"))
        ['file', 'row']
    """
    column = by.removeprefix("position, with which ").removesuffix(" agrees").partition(" (")[0]
    return {"caption", "negative_caption"} if by == "texts" else {column}


def _kind(column: str, cells: list[str], rows: list[Row], read: Names, language: str) -> str:
    """Return the kind of a column by its distinct cells and the first rows; empty if it is not notable."""
    texts = [(text, row) for row in rows if (text := _text(row.get(column)))]
    several, numbers = len(cells) > 1, [float(cell) for cell in cells if is_number(cell)]
    if several and (all(map(SPLIT.fullmatch, cells)) or (_OF_SPLITS.fullmatch(column) and len(cells) < len(texts))):
        return SPLITS
    if len(numbers) == len(cells):  # whole numbers that count rows, or the rows of each item, are no grades
        counted = all(float(one[0]) in (float(before[0]) + 1, numbers[0]) for before, one in pairwise(texts))
        counted = len(cells) > 2 and all(map(float.is_integer, numbers)) and (counted or len(cells) == len(rows))
        return GRADES if several and not counted and min(numbers) >= -2 and max(numbers) <= 10 else ""
    n_alike = sum(any(_alike(text, _text(row.get(name))) for name in read) for text, row in texts)
    if 2 * n_alike > len(texts) or (_OF_CAPTIONS.search(column) and any(" " in text for text in cells)):
        return CAPTIONS
    codes = [*filter(None, map(_language, cells))]
    letters = _OF_GRADES.search(column) and all(len(cell) == 1 and cell.isalpha() for cell in cells)  # E, S, C, I
    if several and (letters or all(map(_VERDICT.fullmatch, cells))):
        return GRADES
    if 4 * len(codes) >= 3 * len(cells):
        return TONGUES if {*codes} != {language} else ""
    return TEXTS if 2 * sum(" " in cell for cell in cells) > len(cells) else ""


def _text(cell: object) -> str:
    """Return a cell, or the first of a list, as text; empty for nothing and for objects."""
    one = cell[0] if isinstance(cell, list) and cell else cell
    text = str(one).strip() if isinstance(one, str | int | float) else ""
    return "" if text.casefold() == "nan" else text


def _alike(one: str, other: str) -> bool:
    """True if two different texts have at least half of their words in common."""
    words, others = ({*text.casefold().split()} for text in (one, other))
    return one != other and len(words) > 1 and 2 * len(words & others) >= max(len(words), len(others))


def language_code(text: str) -> str | None:
    """Return the code of a language by its code or English name; None if it is unknown."""
    from langcodes import Language

    try:
        found = Language.get(text) if _CODE.fullmatch(text) else Language.find(text)
    except (LookupError, ValueError):
        return None
    return str(found) if found.is_valid() else None


def _language(cell: str) -> str | None:
    """Return the code of a language, if it has two letters and the cell may be a code or an English name."""
    code = language_code(cell) if _CODE.fullmatch(cell) or _NAME.fullmatch(cell) else None
    return code if code and len(code.partition("-")[0]) == 2 else None
