"""`store info|verify|compact|diff|repair|drop`: what the store holds, and whether it is whole."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from flows.commands.declare import declare
from flows.commands.output import print_rows
from flows.commands.workspace import open_store

if TYPE_CHECKING:
    from flows.commands import Commands

SET_COLUMNS = (
    "set_name",
    "encoder",
    "corpus",
    "modality",
    "state",
    "n_rows",
    "n_items",
    "n_bytes",
    "tag",
    "written_by",
)


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add `store` with its own commands."""
    group = declare(commands, common, "store", show)
    parts = group.add_subparsers(dest="part", metavar="PART")
    declare(parts, common, "info", info, rows=True)
    declare(parts, common, "verify", verify, rows=True)
    declare(parts, common, "compact", compact, rows=True)
    parser = declare(parts, common, "diff", diff, rows=True)
    parser.add_argument("a", help="a set: its table name, the beginning of it, or a tag (capim store info)")
    parser.add_argument("b", help="another set")
    parser.add_argument("--other", metavar="WORKSPACE", help="workspace that the second set is in")
    parser = declare(parts, common, "repair", repair)
    parser.add_argument(
        "set_name", help="a set (its table name, the beginning of it, or a tag), or a table such as results"
    )
    parser = declare(parts, common, "drop", drop)
    parser.add_argument("--encoder", help="sets of this encoder (name or fingerprint)")
    parser.add_argument("--corpus", help="sets of this corpus (name or fingerprint)")
    parser.add_argument("--modality", choices=("image", "caption"), help="only images or only captions")
    parser.add_argument("--dry-run", action="store_true", help="say what would go and change nothing")


def show(args: argparse.Namespace) -> int:
    """Look after the store: info, verify, compact, diff, repair, drop.

    Example: capim store info
    """
    sys.stderr.write("capim: say what to do with the store: capim store info|verify|compact|diff|repair|drop\n")
    return 2


def info(args: argparse.Namespace) -> None:
    """Print the embedding sets with rows, bytes, state and who wrote them.

    Example: capim store info --format json
    """
    found = open_store(args.workspace).info()
    if args.format == "table":
        size = sum(count or 0 for count in found.tables["n_bytes"].to_pylist())  # a damaged table has none
        sys.stderr.write(f"{found.uri}: format {found.format}, {len(found.tables)} tables, {size / 1e6:,.1f} MB\n")
    print_rows(found.sets.to_pylist(), form=args.format, columns=SET_COLUMNS)


def verify(args: argparse.Namespace) -> int:
    """Read everything and check it: rows, ids, checksums, digests, tags; changes nothing.

    Exit code 1 if anything is damaged. What is unfinished loses nothing: the same run again finishes it.

    Example: capim store verify
    """
    findings = [asdict(finding) for finding in open_store(args.workspace).verify()]
    print_rows(findings, form=args.format)
    damaged = sum(finding["state"] == "damaged" for finding in findings)
    sys.stderr.write(f"{len(findings)} things checked, {damaged} damaged\n")
    return 1 if damaged else 0


def compact(args: argparse.Namespace) -> None:
    """Put small files together and collect garbage; sealed states and their tags stay readable.

    Example: capim store compact
    """
    freed = open_store(args.workspace).compact()
    print_rows(({"table_name": name, "bytes_freed": size} for name, size in sorted(freed.items())), form=args.format)


def diff(args: argparse.Namespace) -> None:
    """Compare two embedding sets item by item: equal, different, how far apart.

    Example: capim store diff single-shapes-image-0a1b single-shapes-image-2c3d
    """
    store = open_store(args.workspace)
    other = open_store(args.other) if args.other else store
    found = store.diff(store.find_set(args.a), other.find_set(args.b), other=other)
    print_rows([asdict(found)], form=args.format)


def repair(args: argparse.Namespace) -> None:
    """Take the damaged rows out of an embedding set or another table; the same run makes just these again.

    Example: capim store repair single-shapes-image-0a1b
    """
    from store.tables.schemas import ANALYSES, REGISTERS

    store = open_store(args.workspace)
    if args.set_name in {*ANALYSES, *REGISTERS}:
        files, rows = store.repair_table(args.set_name)
        sys.stderr.write(
            f"{files} unreadable files and {rows:,} changed rows are gone; run `capim run` as before, it makes what "
            "they held\n"
        )
        return
    missing = store.repair(store.find_set(args.set_name))
    sys.stderr.write(f"{missing:,} items are missing now; run `capim embed` with the same corpus and encoder\n")


def drop(args: argparse.Namespace) -> None:
    """Drop the embedding sets of an encoder, of a corpus, or of both; results are kept.

    Look first with --dry-run.

    Example: capim store drop --encoder tiny-clip-plain --dry-run
    """
    store = open_store(args.workspace)
    removal = store.drop(encoder=args.encoder, corpus=args.corpus, modality=args.modality, dry_run=args.dry_run)
    verb = "dropped" if removal.done else "would drop"
    for table in removal.tables:
        sys.stdout.write(f"{table}\n")
    sys.stderr.write(f"{verb} {len(removal.tables)} tables, {removal.rows:,} rows, {removal.bytes / 1e6:,.1f} MB\n")
