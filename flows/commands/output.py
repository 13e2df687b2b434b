"""Rows on stdout: as a table for people, as JSON or CSV for programs."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TextIO

from store.exchange.row_files import write_csv, write_json

Row = Mapping[str, Any]

FORMATS = ("table", "json", "csv")
RESULT_COLUMNS = (
    "encoder", "corpus", "protocol", "metric", "value", "ci_low", "ci_high", "n_queries", "n_clusters", "tie_share",
)  # fmt: skip


def plain(text: str) -> str:
    r"""Text that cannot drive a terminal: control and escape characters replaced, the rest as it is.

    Examples:
        >>> plain("red\x1b[31m bus")
        'red�[31m bus'
    """
    return "".join("�" if unicodedata.category(c) in ("Cc", "Cf") and c not in "\u200c\u200d" else c for c in text)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) >= 1000 or 0 < abs(value) < 1e-4 else f"{value:.4f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_cell(v) for v in value)
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return plain(str(value))


def print_rows(
    rows: Iterable[Row], *, form: str, columns: Sequence[str] | None = None, out: TextIO | None = None
) -> None:
    """Print rows; ``columns`` picks and orders them for the table (JSON and CSV carry every column).

    No rows: JSON prints ``[]``, CSV its header from ``columns`` if given, a table writes ``no rows`` to stderr.
    """
    out = out or sys.stdout
    listed = [dict(row) for row in rows]
    if form == "json":
        write_json(listed, out)
        return
    names = list(listed[0]) if listed else list(columns or [])
    if form == "csv":
        write_csv(listed, names, out)
        return
    if not listed:
        sys.stderr.write("no rows\n")
        return
    names = [name for name in columns if name in listed[0]] if columns else names
    cells = [[_cell(row.get(name)) for name in names] for row in listed]
    widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(names)]
    right = [all(isinstance(row.get(name), (int, float, type(None))) for row in listed) for name in names]

    def line(values: Sequence[str]) -> str:
        parts = (v.rjust(w) if r else v.ljust(w) for v, w, r in zip(values, widths, right, strict=True))
        return "  ".join(parts).rstrip() + "\n"

    out.write(line(names))
    out.write("  ".join("─" * width for width in widths) + "\n")
    out.writelines(line(row) for row in cells)
