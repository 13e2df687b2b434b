"""CSV, TSV and other texts with separators, read strictly: a quote that swallows rows is an error.

The separator is the first of ``,``, tab, ``|`` and ``;`` in the first line (a ``.tsv`` file has tabs). Cells of files
with commas or semicolons may be quoted; other files are read as written, quotes included, unless all of their quotes
are paired as in a CSV file. A file without a header is read if it has two columns and one of them holds image files;
Flickr8k's ``name.jpg#0`` is the image and the caption's number.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from capim.store.errors import RequestError
from capim.tasks.corpora.files import opened_text
from capim.tasks.corpora.images.image_files import is_image_name

_SEPARATORS = ",\t|;"
_QUOTING = ",;"  # separators of files whose cells may be quoted
_NUMBERED = re.compile(r"^(.+)#(\d+)$")  # Flickr8k's name of a caption
_IDENTIFIER = re.compile(r"\S*[\d_]\S*")


def delimited_rows(file: Path) -> tuple[list[str], Iterator[Mapping[str, Any]]]:
    """The columns of a file, and an iterator that reads its rows; empty lines are left out.

    Raises:
        RequestError: It is not UTF-8, two columns have one name, a row has more or fewer cells than the header, a
            quote is not closed, or a cell holds what looks like rows of its own.
    """
    with opened_text(file, "a table in UTF-8", newline="") as lines:
        first = next((line for line in lines if line.strip()), "")
    separator = "\t" if file.suffix.lower() == ".tsv" else next((c for c in first if c in _SEPARATORS), ",")
    quoted = separator in _QUOTING or _paired_quotes(file, separator)
    header = [cell.strip() for cell in next(_records(file, separator, quoted=quoted), (1, []))[1]]
    headless = any(map(_is_image, header))
    columns = _columns_of(header, file) if headless else header
    if len(set(columns)) != len(columns):
        twice = next(column for column in columns if columns.count(column) > 1)
        raise RequestError(f"{file}: two columns are named {twice!r}; rename one of them")

    def rows() -> Iterator[Mapping[str, Any]]:
        for number, (_, cells) in enumerate(_records(file, separator, quoted=quoted), start=int(headless)):
            if number == 0:
                continue
            if len(cells) != len(header):
                raise RequestError(
                    f"{file}: row {number}: expected {len(header)} cells as in the header, got {len(cells)}; "
                    "put texts that contain the separator in quotes"
                )
            row = dict(zip(columns, map(str.strip, cells) if separator == "|" else cells, strict=False))
            if numbered := headless and _NUMBERED.match(row["image"]):
                row |= {"image": numbered[1], "ordinal": numbered[2]}
            yield row

    return columns, rows()


def rows_with(file: Path, *columns: str) -> list[Mapping[str, Any]]:
    """The rows of a file that has at least these columns.

    Raises:
        RequestError: A column is missing, or as :func:`delimited_rows`.
    """
    has, rows = delimited_rows(file)
    if lacking := [column for column in columns if column not in has]:
        raise RequestError(f"{file}: no column {', '.join(lacking)}; it has {', '.join(has) or 'none'}")
    return list(rows)


def _is_image(cell: str) -> bool:
    numbered = _NUMBERED.match(cell)
    return is_image_name(numbered[1] if numbered else cell)


def _columns_of(first: Sequence[str], file: Path) -> list[str]:
    """The columns of a file without a header, by its first row."""
    if len(first) != 2:
        raise RequestError(
            f"{file}: its first line is a row ({', '.join(first)!r:.60}); write a line with the names of its "
            f"{len(first)} columns above it, for instance image,caption"
        )
    names = ["image", "caption"] if _is_image(first[0]) else ["caption", "image"]
    return [*names, "ordinal"] if any(map(_NUMBERED.match, first)) else names


def _records(file: Path, separator: str, *, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """Every record that is not empty, with the number of its first line.

    Raises:
        RequestError: Its quotes are not those of a CSV file, or it is not UTF-8.
    """
    with opened_text(file, "a table in UTF-8", newline="") as lines:
        reader = csv.reader(
            lines,
            delimiter=separator,
            quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
            skipinitialspace=separator != "\t",
            strict=True,
        )
        while True:
            line = reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise RequestError(
                    f"{file}: line {line}: a quote is opened here that no quote at the end of a cell closes "
                    f"({error}, line {reader.line_num}); double the quotes within a text, and quote the whole text"
                ) from error
            if quoted and (row := _row_within(cells, separator)) is not None:
                raise RequestError(
                    f"{file}: line {line}: a quote is opened here and closed lines later, which makes one cell of "
                    f"them; within it, {row!r:.60} looks like a row of its own; double the quotes within a text, and "
                    "quote the whole text"
                )
            if cells:
                yield line, cells


def _row_within(cells: Sequence[str], separator: str) -> str | None:
    """A line within a cell that has as many cells as the row, and file names or numbers where the row has them.

    Where the row has none, every line of the cell but its first, or but its last, has as many cells as the row.
    """
    for place, cell in enumerate(cells):
        lines = cell.splitlines()
        if len(lines) < 2:
            continue
        parts = [[part.strip(' "') for part in line.split(separator)] for line in lines]
        if marks := [n for n, other in enumerate(cells) if n != place and _is_identifier(other)]:
            for line, own in zip(lines, parts, strict=True):
                if len(own) >= len(cells) and all(_is_identifier(own[n]) for n in marks):
                    return line
        elif any(all(len(own) == len(cells) for own in some) for some in (parts[1:], parts[:-1])):
            return lines[1] if len(parts[1]) == len(cells) else lines[0]
    return None


def _is_identifier(cell: str) -> bool:
    return is_image_name(cell) or _IDENTIFIER.fullmatch(cell) is not None


def _paired_quotes(file: Path, separator: str) -> bool:
    """Whether a file has quotes, and every one of them opens, closes or is doubled as in a CSV file."""
    with opened_text(file, "a table in UTF-8", newline="") as lines:
        if not any('"' in line for line in lines):
            return False
    try:
        return len({len(cells) for _, cells in _records(file, separator, quoted=True)}) == 1
    except RequestError:
        return False
