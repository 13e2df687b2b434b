"""`capim store`: what the store holds, whether it is damaged, repairing, comparing, dropping, compacting."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from capim.flows.commands.workspace import corpus_in, open_store
from capim.flows.terminal.output import show_rows
from capim.flows.terminal.parser import Commands, declare, declare_group
from capim.store.errors import RequestError, without_credentials

SET_COLUMNS = (
    *("set_name", "encoder", "corpus", "modality", "storage", "state"),
    *("n_rows", "n_items", "n_bytes", "tag", "written_by"),
)
KEEP = ("encoder", "corpus", "modality", "state", "n_rows", "n_bytes")  # columns that find room first on a terminal
_SET = "table name of an embedding set, the beginning of one, or a tag (capim store info lists them)"


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add `store` with its own commands."""
    parts = declare_group(commands, "store", show)
    declare(parts, common, "info", info, rows=True)
    declare(parts, common, "verify", verify, rows=True)
    declare(parts, common, "compact", compact, rows=True)
    parser = declare(parts, common, "prune", prune, rows=True)
    parser.add_argument("--keep", type=int, default=30, metavar="N", help="newest runs that are kept (default: 30)")
    parser.add_argument("--yes", action="store_true", help="remove it; without it, only list what would be removed")
    parser = declare(parts, common, "diff", diff, rows=True)
    parser.add_argument("a", help=_SET)
    parser.add_argument("b", help="the embedding set to compare with")
    parser.add_argument("--other", metavar="WORKSPACE", help="workspace of the second set (default: the same)")
    parser = declare(parts, common, "repair", repair)
    parser.add_argument("name", nargs="?", help=f"{_SET}; or another table, such as results")
    parser.add_argument("--all", action="store_true", help="everything that `capim store verify` finds damaged")
    parser.add_argument(
        "--accept",
        action="store_true",
        help="where the record of a table's digests is missing: what the table holds now is right, record it",
    )
    parser = declare(parts, common, "drop", drop)
    parser.add_argument("--encoder", help="drop sets of this encoder (name or fingerprint)")
    parser.add_argument("--corpus", help="drop sets of this corpus (name, path or fingerprint)")
    parser.add_argument("--modality", choices=("image", "caption"), help="drop only sets of images or of captions")
    parser.add_argument("--yes", action="store_true", help="drop them; without it, only list what would be dropped")


def show(args: argparse.Namespace) -> int:
    """Inspect and maintain the store: info, verify, compact, prune, diff, repair, drop.

    Example: capim store info
    """
    sys.stderr.write("capim: choose a command: capim store info|verify|compact|prune|diff|repair|drop\n")
    return 2


def info(args: argparse.Namespace) -> None:
    """List the embedding sets with rows, size, state and the machines that wrote them.

    Example: capim store info --format json
    """
    from capim.store import inventory

    contents = inventory.info(open_store(args.workspace))
    if args.format == "table":
        size = sum(count or 0 for count in contents.tables["n_bytes"].to_pylist())  # null for a damaged table
        n_tables = len(contents.tables)
        sys.stderr.write(
            f"{without_credentials(contents.uri)}: format {contents.format}, {n_tables} tables, {size / 1e6:,.1f} MB\n"
        )
    show_rows(args, contents.sets.to_pylist(), columns=SET_COLUMNS, keep=KEEP)


def verify(args: argparse.Namespace) -> int:
    """Compare every file with its digest, and read every set and corpus: sound, incomplete, damaged or lost.

    Exit code 1 if anything is damaged, or lost, which no run makes again; the table names the files and the command
    that repairs them. What is incomplete is completed by the same command that began it.

    Example: capim store verify
    """
    from capim.store import integrity

    checks = [asdict(check) for check in integrity.verify(open_store(args.workspace))]
    show_rows(args, checks)
    damaged = sum(check["state"] in ("damaged", "lost") for check in checks)
    remedy = ": `capim store repair --all` and the same run again heal what can be made again" if damaged else ""
    sys.stderr.write(f"{len(checks)} parts checked, {damaged} damaged or lost{remedy}\n")
    return 1 if damaged else 0


def compact(args: argparse.Namespace) -> None:
    """Merge small files and remove old versions; sealed embedding sets stay readable.

    Example: capim store compact
    """
    from capim.store.removal import compact_store

    freed = compact_store(open_store(args.workspace))
    show_rows(args, ({"table_name": name, "bytes_freed": size} for name, size in sorted(freed.items())))


def prune(args: argparse.Namespace) -> None:
    """List what older runs left and no report shows, and with --yes remove it: rows, embeddings, reports of these runs.

    Kept are the newest --keep runs with their reports, all results that a report of the store shows, and the baselines
    of watches. Embeddings of earlier revisions of an encoder, or of earlier states of a corpus, go with their results.
    What a running run may use stays until it has ended.

    Example: capim store prune --keep 30
    """
    from capim.flows.config import run_config
    from capim.flows.execution import start
    from capim.flows.runs import prune as flow

    open_store(args.workspace)
    done = start(flow, run_config({"name": "prune", "workspace": args.workspace}), keep=args.keep, done=args.yes)
    rows = [{"what": table, "rows": n, "bytes_freed": done.freed.get(table)} for table, n in done.rows.items()]
    rows += [{"what": name, "rows": None, "bytes_freed": None} for name in (*done.tables, *done.reports)]
    show_rows(args, rows, none=lambda: "nothing to remove")
    freed = f"; {sum(done.freed.values()) / 1e6:,.1f} MB of the store freed" if args.yes else ""
    hint = "" if args.yes else "; nothing was changed: add --yes to remove them"
    n_rows = sum(done.rows.values())
    if done.running:
        verb = "is" if len(done.running) == 1 else "are"
        sys.stderr.write(f"{', '.join(done.running)} {verb} running: what may be in use stays until the next prune\n")
    sys.stderr.write(f"{n_rows:,} rows, {len(done.tables)} tables, {len(done.reports)} reports{freed}{hint}\n")


def diff(args: argparse.Namespace) -> None:
    """Compare two embedding sets item by item: how many are equal, and how far the others differ.

    Example: capim store diff single-shapes-image-0a1b single-shapes-image-2c3d
    """
    from capim.store import inventory
    from capim.store.inventory import find_set

    store = open_store(args.workspace)
    other = open_store(args.other) if args.other else store
    found = inventory.diff(store, find_set(store, args.a), find_set(other, args.b), other=other)
    show_rows(args, [asdict(found)])


def repair(args: argparse.Namespace) -> int:
    """Put back damaged files of which there is a copy, and remove what else is damaged: the next run makes it again.

    With --all, everything that `capim store verify` finds damaged. A table without a record of its digests is not
    repaired, because nothing says what was written: restore the record, or say with --accept that the table is right.
    Exit code 1 if something cannot be repaired.

    Example: capim store repair --all
    """
    from capim.store import integrity

    if bool(args.name) == args.all:
        raise RequestError("give one table (capim store verify names those that are damaged), or --all")
    store = open_store(args.workspace)
    done = dict(integrity.repair_all(store, accept=args.accept)) if args.all else {}
    if args.name:
        done = {args.name: integrity.repair_one(store, args.name, accept=args.accept)}
    for name, words in done.items():
        sys.stderr.write(f"{name}: {words}\n")
    failed = sum(integrity.FAILED in words for words in done.values())
    sys.stderr.write(f"{len(done) - failed} tables repaired; run the same commands again to make what was removed\n")
    return 1 if failed else 0


def drop(args: argparse.Namespace) -> None:
    """List the embedding sets of an encoder, of a corpus, or of both, and with --yes drop them; results are kept.

    With only --corpus, the corpus is dropped too; with only --encoder, its registration.

    Example: capim store drop --encoder tiny-clip-plain --yes
    """
    from capim.store import removal

    store = open_store(args.workspace)
    corpus = str(corpus_in(store, args.corpus)["fingerprint"]) if args.corpus else None
    plan = removal.drop(store, encoder=args.encoder, corpus=corpus, modality=args.modality, dry_run=not args.yes)
    for table in plan.tables:
        sys.stdout.write(f"{table}\n")
    verb = "dropped" if plan.done else "would drop"
    hint = "" if plan.done else "; nothing was changed: add --yes to drop them"
    sys.stderr.write(f"{verb} {len(plan.tables)} tables, {plan.n_rows:,} rows, {plan.n_bytes / 1e6:,.1f} MB{hint}\n")
