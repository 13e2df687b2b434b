"""The board of a report to take away: as CSV, for LaTeX, how to cite it, and what makes it again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version

from capim.reports.elements.page import Board
from capim.reports.exports.latex import escape_latex, line, tabular
from capim.reports.exports.tabular import csv_bytes
from capim.reports.rows.report_data import ReportData


def exports(data: ReportData, board: Board) -> dict[str, str]:
    """Return the texts that a reader can copy, by name."""
    corpora = [*dict.fromkeys(column.corpus for column in board.columns if column.counts)]
    weights = ",".join(f"{name}=1" for name in corpora)
    return {
        "csv": csv_bytes(rows(board)).decode(),
        "latex": latex(board),
        "cite": _cited(data),
        "command": f"capim choose --weights {weights}" if weights else "capim results",
        "python": _python(board),
    }


def rows(board: Board) -> list[dict[str, str]]:
    """Return a row for every result of the board: encoder, task, value, ends of its interval, verdict."""
    made: list[dict[str, str]] = []
    for row in board.rows:
        about = [("", f"mean {board.of}", "", row.mean)]
        about += [
            (column.corpus, column.key.removeprefix(f"{column.corpus}:"), column.measure, cell)
            for column, cell in zip(board.columns, row.cells, strict=True)
        ]
        made += [
            {"encoder": row.encoder, "corpus": corpus, "protocol": protocol, "metric": metric}
            | {"value": cell.text, "low": cell.low, "high": cell.high, "verdict": cell.verdict}
            | {**row.about, "model card": row.card}
            for corpus, protocol, metric, cell in about
            if cell.sort
        ]
    return made


def latex(board: Board) -> str:
    """Return the table for a paper (booktabs, tabularx): contenders bold."""
    heads = ["Encoder", "Mean", *(f"{column.corpus}, {column.heading}, {column.metric}" for column in board.columns)]
    lines = [line(*(escape_latex(text.replace("→", "to")) for text in heads)), r"\midrule"]
    for row in board.rows:
        cells: Sequence[str] = [
            (rf"\textbf{{{escape_latex(cell.text)}}}" if cell.bold else escape_latex(cell.text)) + r"\dag{}" * cell.seen
            for cell in (row.mean, *row.cells)
        ]
        lines.append(line(escape_latex(row.encoder), *cells))
    return tabular("X" + "r" * (len(heads) - 1), lines)


def _cited(data: ReportData) -> str:
    newest = max(row.created for row in data.results)
    return (
        "@software{capim,\n  title = {capim: image--caption retrieval, encoded once and compared by tests},\n"
        f"  version = {{{version('capim')}}},\n  year = {{{newest.year}}},\n"
        f"  note = {{Report of {newest:%Y-%m-%d}, digest of its rows {data.digest[:16]}}},\n}}\n"
    )


def _python(board: Board) -> str:
    metrics = [*dict.fromkeys(column.measure for column in board.columns)]
    protocols = [*dict.fromkeys(column.key.removeprefix(f"{column.corpus}:") for column in board.columns)]
    return (
        "import capim\n\n"
        f"figures = capim.results(\n    protocols={json.dumps(protocols)},\n    metrics={json.dumps(metrics)},\n)\n"
        'table = figures.pivot(index="encoder", columns=["corpus", "protocol"], values="value")\n'
        "print((100 * table).round(1).to_string())\n"
    )
