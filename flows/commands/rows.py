"""`results`: stored results on standard output."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, Literal

from flows.commands.declare import declare
from flows.commands.output import RESULT_COLUMNS, show_rows
from flows.commands.parser import names
from flows.commands.workspace import no_rows, open_store, wanted_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from flows.commands import Commands


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the command that prints results."""
    parser = declare(commands, common, "results", results, rows=True)
    for name, several in (
        ("encoder", "encoders"),
        ("corpus", "corpora"),
        ("protocol", "protocols"),
        ("metric", "metrics"),
    ):
        parser.add_argument(f"--{name}", type=names, metavar="A,B", help=f"only these {several} (or shell patterns)")
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
    store = open_store(args.workspace)
    wanted = wanted_rows(
        store, "results", encoder=args.encoder, corpus=args.corpus, protocol=args.protocol, metric=args.metric
    )
    if args.against:
        compared = _against_published(store.rows("slices", analysis="reference", **wanted))
        return show_rows(args, compared, none=lambda: no_rows(store, "slices", {"analysis": ["reference"], **wanted}))
    rows = store.rows("results", **wanted)
    order: list[tuple[str, Literal["ascending", "descending"]]]
    order = [("corpus", "ascending"), ("protocol", "ascending"), ("metric", "ascending"), ("value", "descending")]
    listed = rows.sort_by(order).to_pylist()
    return show_rows(args, listed, columns=RESULT_COLUMNS, none=lambda: no_rows(store, "results", wanted))


def _against_published(slices: pa.Table) -> list[dict[str, Any]]:
    """Results compared with published figures, suspect ones first."""
    rows = []
    for row in slices.to_pylist():
        published = json.loads(row["detail"]) if row["detail"] else {}
        shown = {name: row[name] for name in ("encoder", "corpus", "protocol", "metric", "value")}
        verdict = {"published": published.get("published"), "verdict": row["level_name"], "remark": row["reason"]}
        rows.append({**shown, **verdict, "source": published.get("source")})
    return sorted(rows, key=lambda row: (row["verdict"] != "suspect", row["corpus"], row["protocol"], row["encoder"]))
