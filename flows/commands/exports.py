"""`export`: what the store holds, in the files of other programs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from flows.commands.declare import Command, declare, refuse_unused
from flows.commands.output import plain
from flows.commands.parser import names
from flows.commands.workspace import corpus_in, open_store, wanted_rows
from store.errors import RequestError

if TYPE_CHECKING:
    from flows.commands import Commands

OPTIONS = {
    "kind": "--as",
    "encoder": "--encoder",
    "corpus": "--corpus",
    "protocol": "--protocol",
    "modality": "--modality",
}
FORMATS = ("csv", "json", "parquet", "latex", "v28", "coco-sm", "mteb", "clip-benchmark")


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the command that exports."""
    parser = declare(commands, common, "export", export)
    parser.add_argument("what", choices=EXPORTS, help="what to export")
    parser.add_argument("--to", required=True, metavar="F", help="file to write (a folder for coco-sm, mteb and trec)")
    parser.add_argument("--as", dest="kind", choices=FORMATS, help="format of results (default: from the file suffix)")
    parser.add_argument("--encoder", type=names, metavar="X,Y", help="only these encoders (embeddings: one)")
    parser.add_argument("--corpus", type=names, metavar="A,B", help="only these corpora (embeddings: one)")
    parser.add_argument("--protocol", type=names, metavar="P,Q", help="only these protocols (embeddings have none)")
    parser.add_argument("--modality", choices=("image", "caption"), help="modality of the embeddings")


def export(args: argparse.Namespace) -> None:
    """Export embeddings, outcomes or results to files for other programs (docs/exports.md).

      results     figures: CSV, JSON (with a schema), Parquet, LaTeX tables, MTEB results, CLIP_benchmark CSV,
                  V28 and COCO-SM tables
      outcomes    one row per query: .parquet, .csv, .json
      trec        lists and relevant items of each query as TREC runs and qrels, for pytrec_eval, ranx …
      embeddings  .npy (ids beside it), .npz, .parquet, .safetensors, .csv

    Example: capim export results --to leaderboard.tex
    """
    function, takes = EXPORTS[args.what]
    unused = {name: option for name, option in OPTIONS.items() if name not in takes}
    refuse_unused(args, f"on `capim export {args.what}`", **unused)
    function(args)


def _results(args: argparse.Namespace) -> None:
    from reports.exports import export_results

    store = open_store(args.workspace)
    wanted = wanted_rows(store, "results", encoder=args.encoder, corpus=args.corpus, protocol=args.protocol)
    if by_fingerprint := [name for name in wanted if name.endswith("_fingerprint")]:
        raise RequestError(f"{by_fingerprint[0].replace('_', ' ')}: results are exported by names; give the name")
    encoders, corpora, protocols = (wanted.get(column, []) for column in ("encoder", "corpus", "protocol"))
    exported = export_results(
        store, Path(args.to), kind=args.kind, encoders=encoders, corpora=corpora, protocols=protocols
    )
    sys.stdout.writelines(f"{path}\n" for path in exported)


def _outcomes(args: argparse.Namespace) -> None:
    from store.exchange.exporting import export_rows

    store = open_store(args.workspace)
    wanted = wanted_rows(store, "outcomes", encoder=args.encoder, corpus=args.corpus, protocol=args.protocol)
    sys.stderr.write(f"{export_rows(store, 'outcomes', Path(args.to), **wanted):,} rows written to {args.to}\n")


def _trec(args: argparse.Namespace) -> None:
    from tasks.runtime.exports.trec import export_trec

    store = open_store(args.workspace)
    wanted = wanted_rows(store, "outcomes", encoder=args.encoder, corpus=args.corpus, protocol=args.protocol)
    exported = export_trec(store, Path(args.to), wanted, note=lambda line: sys.stderr.write(f"{plain(line)}\n"))
    sys.stdout.writelines(f"{path}\n" for path in exported)


def _embeddings(args: argparse.Namespace) -> None:
    from store.exchange.exporting import export_embeddings

    store = open_store(args.workspace)
    missing = [f"--{name}" for name in EXPORTS["embeddings"][1] if not getattr(args, name)]
    if missing:
        raise RequestError(f"export embeddings needs {', '.join(missing)}")
    if several := [
        f"--{name} {','.join(getattr(args, name))}" for name in ("encoder", "corpus") if getattr(args, name)[1:]
    ]:
        raise RequestError(f"export embeddings takes one encoder and one corpus, got {' '.join(several)}")
    corpus = str(corpus_in(store, args.corpus[0])["fingerprint"])
    count = export_embeddings(store, Path(args.to), encoder=args.encoder[0], corpus=corpus, modality=args.modality)
    sys.stderr.write(f"{count:,} rows written to {args.to}\n")


EXPORTS: dict[str, tuple[Command, tuple[str, ...]]] = {
    "results": (_results, ("kind", "encoder", "corpus", "protocol")),
    "outcomes": (_outcomes, ("encoder", "corpus", "protocol")),
    "trec": (_trec, ("encoder", "corpus", "protocol")),
    "embeddings": (_embeddings, ("encoder", "corpus", "modality")),
}
"""What can be exported -> its function, and the options that it takes."""
