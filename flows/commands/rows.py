"""`results`: rows of the store on stdout."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from flows.commands.declare import declare, names
from flows.output import print_rows
from flows.workspace import open_store

if TYPE_CHECKING:
    from flows.commands import Commands

RESULT_COLUMNS = (
    "encoder", "corpus", "protocol", "metric", "value", "low", "high", "n_queries", "n_clusters", "tie_share",
)  # fmt: skip


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the commands that print rows."""
    parser = declare(commands, common, "results", results, rows=True)
    for name in ("encoder", "corpus", "protocol", "metric"):
        parser.add_argument(f"--{name}", type=names, metavar="A,B", help=f"only these {name}s")


def results(args: argparse.Namespace) -> None:
    """Print stored results: one row per encoder, corpus, protocol and metric.

    The table shows the main columns; --format json and csv carry all of them, with interval method, seed,
    replicates and the sealed embedding sets that a figure came from.

    Example: capim results --corpus shapes --protocol t2i/all --metric R@1 --format json
    """
    store = open_store(args.workspace)
    wanted = {
        name: list(getattr(args, name)) for name in ("encoder", "corpus", "protocol", "metric") if getattr(args, name)
    }
    found = store.rows("results", **wanted)
    order = [("corpus", "ascending"), ("protocol", "ascending"), ("metric", "ascending"), ("value", "descending")]
    print_rows(found.sort_by(order).to_pylist(), form=args.format, columns=RESULT_COLUMNS)
