"""Lay out tables of texts in the width of a terminal: cells are wrapped, and columns that do not fit are left out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.cells import cell_len, chop_cells

_GAP = "  "
_FIRST = 28  # cells that the first column may take unwrapped: it names the row
_WORD = 24  # cells of the longest word that a column keeps together
_WORDS = re.compile(r"[^\s/_,;-]*[\s/_,;-]*")  # a line is broken between them


@dataclass(frozen=True, kw_only=True)
class TextColumn:
    """One column: its name, its cells, and whether they are numbers, which are aligned to the right, never wrapped."""

    name: str
    cells: tuple[str, ...]
    numeric: bool = False

    @property
    def natural(self) -> int:
        """Return the width without wrapping, in cells of the terminal."""
        return max(cell_len(text) for text in (self.name, *self.cells))

    def least(self, *, first: bool) -> int:
        """Return the least width in which it is still easy to read: more for longer texts."""
        words = {cell_len(word.rstrip()) for text in self.cells for word in _WORDS.findall(text)}
        longest = max((each for each in words if each <= _WORD), default=0)
        wanted = _FIRST if first else max(cell_len(self.name), min(12 + self.natural // 8, 20), longest)
        return self.natural if self.numeric else min(self.natural, wanted)


def lay_out(columns: Sequence[TextColumn], width: int | None, keep: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Return the lines of a table of at most ``width`` cells (None: any), and the names of columns that do not fit.

    Columns named in ``keep`` come first, in that order, then the others from left to right; at least one is shown.
    A row that takes several lines is not separated from the next one: its further lines begin with blanks.
    """
    shown = list(columns) if width is None else _fitting(columns, width, keep)
    widths = [column.natural for column in shown] if width is None else _widths(shown, width)
    lines = [*_line([column.name for column in shown], shown, widths)]
    lines.append(_GAP.join("─" * each for each in widths))
    for row in zip(*(column.cells for column in shown), strict=True):
        lines += _line(row, shown, widths)
    return lines, [column.name for column in columns if column not in shown]


def wrap(text: str, width: int) -> list[str]:
    """Return a text as lines of at most ``width`` cells, broken after blanks, hyphens and the like, else anywhere.

    Examples:
        >>> wrap("shapes-multilingual", 14), wrap("single", 14), wrap("abcdef", 4), wrap("", 4)
        (['shapes-', 'multilingual'], ['single'], ['abcd', 'ef'], [''])
    """
    lines: list[str] = []
    line = ""
    for part in _WORDS.findall(text):
        if cell_len((line + part).rstrip()) > width and line:
            lines.append(line.rstrip())
            line = ""
        *whole, line = chop_cells(line + part, width) if cell_len((line + part).rstrip()) > width else [line + part]
        lines += whole
    return [*lines, line.rstrip()] if line.strip() or not lines else lines


def _fitting(columns: Sequence[TextColumn], width: int, keep: Sequence[str]) -> list[TextColumn]:
    """Return the columns that fit, in their order."""
    wanted = [column for name in keep for column in columns if column.name == name]
    chosen: list[TextColumn] = []
    left = width + len(_GAP)
    for column in [*wanted, *(each for each in columns if each not in wanted)]:
        needed = column.least(first=column is columns[0]) + len(_GAP)
        if needed <= left or not chosen:
            chosen.append(column)
            left -= needed
    return [column for column in columns if column in chosen]


def _widths(columns: Sequence[TextColumn], width: int) -> list[int]:
    """Return the width of each column: at least its minimum; the rest goes first to those that lack little."""
    widths = [min(column.least(first=place == 0), width) for place, column in enumerate(columns)]
    left = width - sum(widths) - len(_GAP) * (len(columns) - 1)
    lacking = sorted((column.natural - widths[place], place) for place, column in enumerate(columns))
    for n_before, (lack, place) in enumerate(lacking):
        more = min(lack, max(left, 0) // (len(lacking) - n_before))
        widths[place] += more
        left -= more
    return widths


def _line(texts: Sequence[str], columns: Sequence[TextColumn], widths: Sequence[int]) -> list[str]:
    """Return one row as lines of the table."""
    wrapped = [wrap(text, width) for text, width in zip(texts, widths, strict=True)]
    lines = []
    for parts in zip_longest(*wrapped, fillvalue=""):
        blanks = [" " * (width - cell_len(part)) for part, width in zip(parts, widths, strict=True)]
        cells = [b + p if column.numeric else p + b for p, b, column in zip(parts, blanks, columns, strict=True)]
        lines.append(_GAP.join(cells).rstrip())
    return lines
