"""`export`: what the store holds, in the files of other programs."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capim.flows.commands.workspace import corpus_in, open_store, wanted_rows
from capim.flows.terminal.parser import Command, Commands, declare, names, refuse_unused
from capim.store.errors import RequestError, plain

if TYPE_CHECKING:
    from capim.store import EmbeddingStore

OPTIONS = {"kind": "--as"} | {name: f"--{name}" for name in ("encoder", "corpus", "protocol", "modality", "projection")}
FORMATS = ("csv", "json", "parquet", "latex", "v28", "coco-sm", "mteb", "clip-benchmark", "model-index")
TO = "file to write; a folder for coco-sm, mteb and trec, an address for mlflow, a project for wandb"


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the command that exports."""
    parser = declare(commands, common, "export", export)
    parser.add_argument("what", choices=EXPORTS, metavar="WHAT", help=f"what to export: {', '.join(EXPORTS)}")
    parser.add_argument("--to", required=True, metavar="F", help=TO)
    kinds = f"format of results: {', '.join(FORMATS)} (default: from the file suffix)"
    parser.add_argument("--as", dest="kind", choices=FORMATS, metavar="FORMAT", help=kinds)
    parser.add_argument("--encoder", type=names, metavar="X,Y", help="only these encoders (embeddings: one)")
    parser.add_argument("--corpus", type=names, metavar="A,B", help="only these corpora (embeddings: one)")
    parser.add_argument("--protocol", type=names, metavar="P,Q", help="only these protocols (embeddings have none)")
    parser.add_argument("--modality", choices=("image", "caption"), help="modality of the embeddings or of the atlas")
    parser.add_argument("--projection", choices=("pca", "umap"), help="how the atlas becomes flat (default: pca)")


def export(args: argparse.Namespace) -> None:
    """Export embeddings, outcomes or results to files for other programs (docs/exports.md).

      results          figures: CSV, JSON (with a schema), Parquet, LaTeX tables, MTEB results, CLIP_benchmark CSV,
                       V28 and COCO-SM tables, the model-index of a model card (.yaml)
      outcomes         one row per query: .parquet, .csv, .json
      trec             lists and relevant items of each query, for pytrec_eval, ranx …: a folder of runs and qrels
      embeddings       of one encoder: .npy (ids beside it), .npz, .parquet, .safetensors, .csv
      embedding-atlas  items of one encoder on a plane, with neighbours, thumbnails and hits: .parquet
      mlflow, wandb    figures and the newest report as runs, one for each encoder, where the library is installed

    Example: capim export results --to leaderboard.tex
    """
    function, takes = EXPORTS[args.what]
    unused = {name: option for name, option in OPTIONS.items() if name not in takes}
    refuse_unused(args, f"on `capim export {args.what}`", **unused)
    function(args)


def _results(args: argparse.Namespace) -> None:
    from capim.reports.exports import export_results
    from capim.tasks.runtime.exports import ndcg_rows

    store = open_store(args.workspace)
    more = partial(ndcg_rows, store) if args.kind == "mteb" else None
    exported = export_results(store, Path(args.to), kind=args.kind, more=more, **_names(store, args))
    sys.stdout.writelines(f"{path}\n" for path in exported)


def _names(store: EmbeddingStore, args: argparse.Namespace) -> dict[str, Any]:
    """The names of the options that have results, as reports take them."""
    wanted = wanted_rows(store, "results", encoder=args.encoder, corpus=args.corpus, protocol=args.protocol)
    if by_fingerprint := [name for name in wanted if name.endswith("_fingerprint")]:
        raise RequestError(f"{by_fingerprint[0].replace('_', ' ')}: results are exported by names; give the name")
    named = {"encoders": "encoder", "corpora": "corpus", "protocols": "protocol"}
    return {plural: wanted.get(column, []) for plural, column in named.items()}


def _outcomes(args: argparse.Namespace) -> None:
    from capim.store.files import write_row_file

    store = open_store(args.workspace)
    wanted = wanted_rows(store, "outcomes", encoder=args.encoder, corpus=args.corpus, protocol=args.protocol)
    rows = store.rows("outcomes", **wanted)
    write_row_file(Path(args.to), rows)
    sys.stderr.write(f"{rows.num_rows:,} rows written to {args.to}\n")


def _trec(args: argparse.Namespace) -> None:
    from capim.tasks.runtime.exports import export_trec

    store = open_store(args.workspace)
    wanted = wanted_rows(store, "outcomes", encoder=args.encoder, corpus=args.corpus, protocol=args.protocol)
    exported = export_trec(store, Path(args.to), wanted, note=lambda line: sys.stderr.write(f"{plain(line)}\n"))
    sys.stdout.writelines(f"{path}\n" for path in exported)


def _embeddings(args: argparse.Namespace) -> None:
    from capim.store.sets.embedding_files import export_embeddings

    store = open_store(args.workspace)
    _require(args, one=("encoder", "corpus"))
    corpus = str(corpus_in(store, args.corpus[0])["fingerprint"])
    count = export_embeddings(store, Path(args.to), encoder=args.encoder[0], corpus=corpus, modality=args.modality)
    sys.stderr.write(f"{count:,} rows written to {args.to}\n")


def _atlas(args: argparse.Namespace) -> None:
    from capim.tasks.runtime.exports import export_atlas

    store = open_store(args.workspace)
    _require(args, one=("corpus",))
    wanted = wanted_rows(store, "outcomes", protocol=args.protocol)
    count = export_atlas(
        store,
        Path(args.to),
        encoders=args.encoder,
        corpus=str(corpus_in(store, args.corpus[0])["fingerprint"]),
        modality=args.modality,
        protocols=wanted.get("protocol", ()),
        projection=args.projection or "pca",
    )
    sys.stderr.write(f"{count:,} rows written to {args.to}\n")


def _require(args: argparse.Namespace, *, one: tuple[str, ...]) -> None:
    """Raise unless encoder, corpus and modality are given, and one name of each of ``one``."""
    if missing := [f"--{name}" for name in ("encoder", "corpus", "modality") if not getattr(args, name)]:
        raise RequestError(f"export {args.what} needs {', '.join(missing)}")
    if several := [f"--{name} {','.join(getattr(args, name))}" for name in one if getattr(args, name)[1:]]:
        raise RequestError(f"export {args.what} takes one {' and one '.join(one)}, got {' '.join(several)}")


def _tracked(args: argparse.Namespace) -> None:
    from capim.flows.config import run_config
    from capim.reports.exports.tracking import TRACKERS
    from capim.reports.rows.reading import read_report_data

    store = open_store(args.workspace)
    data = read_report_data(store, **_names(store, args))
    pages = sorted(Path(run_config({"workspace": args.workspace}).reports_uri).glob("*/report.html"))
    lines = TRACKERS[args.what](data, args.to, pages[-1].parent if pages else None)
    sys.stdout.writelines(f"{plain(line)}\n" for line in lines)


EXPORTS: dict[str, tuple[Command, tuple[str, ...]]] = {
    "results": (_results, ("kind", "encoder", "corpus", "protocol")),
    "outcomes": (_outcomes, ("encoder", "corpus", "protocol")),
    "trec": (_trec, ("encoder", "corpus", "protocol")),
    "embeddings": (_embeddings, ("encoder", "corpus", "modality")),
    "embedding-atlas": (_atlas, ("encoder", "corpus", "modality", "protocol", "projection")),
    "mlflow": (_tracked, ("encoder", "corpus", "protocol")),
    "wandb": (_tracked, ("encoder", "corpus", "protocol")),
}
"""What can be exported -> its function, and the options that it takes."""
