"""`results`, and the ranking that `compare` prints: stored rows on standard output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from capim.flows.commands.declare import Commands, declare
from capim.flows.commands.workspace import found_results, open_store
from capim.flows.terminal.output import RESULT_COLUMNS, Row, folded, show_rows
from capim.flows.terminal.parser import PLURALS, names
from capim.store.safe_text import plain

if TYPE_CHECKING:
    from capim.tasks.runtime.references import RankingRef

LIKE_THESE = "corpora like these"


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the command that prints results."""
    parser = declare(commands, common, "results", results, rows=True)
    for (name, several), metavar in zip(PLURALS.items(), ("X,Y", "A,B", "P,Q", "M,N"), strict=True):
        parser.add_argument(f"--{name}", type=names, metavar=metavar, help=f"only these {several} (or shell patterns)")
    parser.add_argument("--against", choices=("published",), help="compare with published figures")


def results(args: argparse.Namespace) -> int:
    """Print stored results: one row per encoder, corpus, protocol and metric.

    The table shows the main columns; --format json and csv print all of them, among them the interval method, seed,
    replicates and sealed embedding sets of every figure.

    With --against published, print how each figure compares with the published one instead: reproduced, other
    protocol, suspect, not compared (a sample of the published data set), or no reference.
    Exit code 1 if there are no rows.

    Example: capim results --corpus shapes --protocol t2i/all --metric R@1 --format json
    """
    names = {name: getattr(args, name) for name in PLURALS}
    rows, why = found_results(open_store(args.workspace), against=args.against, **names)
    return show_rows(args, rows, columns=None if args.against else RESULT_COLUMNS, none=why)


def print_ranking(args: argparse.Namespace, store_uri: str, reference: RankingRef) -> None:
    """Print the ranking: one line per encoder as a table, the stored rows as JSON or CSV.

    What the headlines are and which encoders are left out follows on standard error; also why there is no ranking.
    """
    from capim.store import EmbeddingStore

    rows: list[dict[str, Any]] = []
    if reference.ranking:
        rows = EmbeddingStore.open(store_uri).rows("rankings", ranking=reference.ranking).to_pylist()
    as_table = args.format in (None, "table")
    if rows or not as_table:
        show_rows(args, _lines(rows) if as_table else rows, keep=("ranks", "encoder"), none=lambda: reference.reason)
    if as_table:
        for line in _words(rows) if rows else [reference.reason] * bool(reference.reason):
            sys.stderr.writelines(f"{part}\n" for part in folded(plain(line), sys.stderr))


def _words(rows: Sequence[Row]) -> list[str]:
    """What the columns are, and what is not in the table."""
    from capim.reports.rows.families import same_photographs

    first, level = rows[0], f"{100 * rows[0]['level']:g} %"
    described = "; ".join(f"{corpus['corpus']} ({corpus['headline']})" for corpus in json.loads(first["corpora"]))
    like_these = {row["reason"] for row in rows if row["estimand"] == LIKE_THESE and row["rank_low"] is None}
    return [
        f"macro_mean: mean over {described}; low, high: its {level} interval",
        "borda: share of the other encoders that it is above, mean over the corpora",
        f"ranks: those that it can hold, for all encoders together with {level} confidence; 1: tied with the best",
        *same_photographs(json.loads(first["corpora"])),
        *(f"{LIKE_THESE}: {reason}" for reason in sorted(like_these)),
        *(f"{row['encoder']}: {row['reason']}" for row in rows if row["value"] is None),
    ]


def _lines(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One row per ranked encoder, the best macro mean first."""
    found = {(row["encoder_fingerprint"], row["estimand"], row["statistic"]): row for row in rows}
    means = [row for row in rows if (row["estimand"], row["statistic"]) == ("these corpora", "macro mean")]
    lines = []
    for row in sorted((row for row in means if row["value"] is not None), key=lambda r: (-r["value"], r["encoder"])):
        borda = found[row["encoder_fingerprint"], "these corpora", "borda"]
        like_these = found[row["encoder_fingerprint"], LIKE_THESE, "macro mean"]
        tested = {"ranks_like_these": _ranks(like_these)} if like_these["rank_low"] else {}
        lines.append(
            {
                "ranks": _ranks(row),
                **tested,
                "encoder": row["encoder"],
                "macro_mean": row["value"],
                "low": row["ci_low"],
                "high": row["ci_high"],
                "borda": borda["value"],
                **json.loads(row["headlines"]),
            }
        )
    return lines


def _ranks(row: Row) -> str:
    low, high = row["rank_low"], row["rank_high"]
    return f"{low}" if low == high else f"{low}–{high}"
