"""`results`: rows of the store on stdout."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from flows.commands.declare import declare, names
from flows.commands.output import RESULT_COLUMNS, print_rows
from flows.commands.workspace import open_store

if TYPE_CHECKING:
    import pyarrow as pa

    from flows.commands import Commands


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the commands that print rows."""
    parser = declare(commands, common, "results", results, rows=True)
    for name in ("encoder", "corpus", "protocol", "metric"):
        parser.add_argument(f"--{name}", type=names, metavar="A,B", help=f"only these {name}s")
    parser.add_argument("--against", choices=("published",), help="with the verdict against published figures")


def results(args: argparse.Namespace) -> None:
    """Print stored results: one row per encoder, corpus, protocol and metric.

    The table shows the main columns; --format json and csv carry all of them, with interval method, seed,
    replicates and the sealed embedding sets that a figure came from.

    --against published prints the reference gate instead: reproduced, other protocol, suspect, no reference.

    Example: capim results --corpus shapes --protocol t2i/all --metric R@1 --format json
    """
    store = open_store(args.workspace)
    wanted = {
        name: list(getattr(args, name)) for name in ("encoder", "corpus", "protocol", "metric") if getattr(args, name)
    }
    if args.against:
        print_rows(_against_published(store.rows("slices", analysis="reference", **wanted)), form=args.format)
        return
    found = store.rows("results", **wanted)
    order = [("corpus", "ascending"), ("protocol", "ascending"), ("metric", "ascending"), ("value", "descending")]
    print_rows(found.sort_by(order).to_pylist(), form=args.format, columns=RESULT_COLUMNS)


def _against_published(slices: pa.Table) -> list[dict[str, Any]]:
    """The reference gate's rows, suspects first."""
    rows = []
    for row in slices.to_pylist():
        published = json.loads(row["detail"]) if row["detail"] else {}
        shown = {name: row[name] for name in ("encoder", "corpus", "protocol", "metric", "value")}
        verdict = {"published": published.get("published"), "verdict": row["level_name"], "remark": row["reason"]}
        rows.append({**shown, **verdict, "source": published.get("source")})
    return sorted(rows, key=lambda row: (row["verdict"] != "suspect", row["corpus"], row["protocol"], row["encoder"]))
