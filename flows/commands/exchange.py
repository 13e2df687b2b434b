"""`import`, `query`, `search`, `explain`: data into the store, and answers from it."""

from __future__ import annotations

import argparse
import sys
import tempfile
import webbrowser
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

from capim.flows.commands.workspace import corpus_in, open_store, unknown_texts
from capim.flows.terminal.output import link, show_rows
from capim.flows.terminal.parser import Commands, config_options, declare, names, refuse_unused
from capim.store.errors import RequestError, plain

if TYPE_CHECKING:
    from capim.store.exchange.exporting import ImportRow

_OF_OUTCOMES = ("protocol", "revision", "note", "replace", "replicates")
IMPORTS = {
    "embeddings": (("images", "captions"), ("corpus", "encoder"), ("revision", "note", "replace", "storage")),
    "a manifest": (("manifest",), (), ("replace", "storage")),
    "a folder": (("folder",), (), ("replace", "storage")),
    "outcomes": (("outcomes",), ("corpus",), ("encoder", *_OF_OUTCOMES)),  # hit lists name their models
    "scores": (("scores",), ("corpus", "encoder"), _OF_OUTCOMES),
    "a run": (("trec_run",), ("corpus", "encoder"), _OF_OUTCOMES),
}
"""What can be imported -> the options that name it (one of them is needed), those that it needs, and others."""


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the commands that import, query, search and explain."""
    parser = declare(commands, common, "import", import_)
    parser.add_argument("--corpus", help="a stored corpus, a name (capim list corpora), a folder or a TOML file")
    parser.add_argument("--encoder", help="name of the model that made the embeddings or the outcomes")
    parser.add_argument("--images", metavar="F", help="image embeddings: .npy, .npz, .parquet, .safetensors or .csv")
    parser.add_argument("--captions", metavar="F", help="caption embeddings, in the same formats")
    parser.add_argument(
        "--revision", metavar="R", help="version of the model (default: that of the stored model, else unversioned)"
    )
    parser.add_argument("--note", metavar="TEXT", help="a remark about the model; kept and shown with it")
    parser.add_argument("--manifest", metavar="F", help="import many sets: a TOML file with a table [[set]] for each")
    parser.add_argument("--folder", metavar="DIR", help="import DIR/ENCODER/CORPUS/images.* and captions.*")
    parser.add_argument("--replace", action="store_true", help="replace what is stored with other contents")
    config_options(parser, "storage")
    parser.add_argument(
        "--outcomes",
        metavar="F",
        help="outcomes of a model without embeddings: a table (.csv, .json, .jsonl, .parquet), exported outcomes, or a "
        "folder of tables or of hit lists (MODEL_ir1_rank_index.npy …)",
    )
    parser.add_argument(
        "--scores", metavar="F", help="scores of every caption (rows) with every image (columns): .npy or .npz"
    )
    parser.add_argument("--run", dest="trec_run", metavar="F", help="lists of the best items, in TREC's run format")
    parser.add_argument(
        "--protocol", type=names, metavar="P,Q", help="protocols of the outcomes, scores or run (default: all it tells)"
    )
    config_options(parser, "replicates")

    parser = declare(commands, common, "query", query, rows=True)
    parser.add_argument("sql", help="a SELECT statement")

    parser = declare(commands, common, "search", search, rows=True)
    parser.set_defaults(format=None)
    parser.add_argument("text", nargs="?", help="find the nearest images of this text")
    parser.add_argument(
        "--image",
        metavar="F",
        help="find the nearest captions of this image; with a text, the nearest images of the normalised sum of both "
        "unit vectors",
    )
    parser.add_argument("--vector", metavar="F", help="find the nearest images of this vector instead (.npy)")
    parser.add_argument("--modality", choices=("image", "caption"), help="search these items instead")
    parser.add_argument("--encoder", required=True, help="name or fingerprint of an encoder in the store")
    parser.add_argument("--corpus", required=True, help="name, path or fingerprint of a corpus in the store")
    parser.add_argument("-k", type=int, default=10, metavar="K", help="number of results (default: 10)")
    parser.add_argument(
        "--index", action="store_true", help="search through an approximate index; it is built if missing"
    )
    parser.add_argument("--html", metavar="F", help="write an HTML gallery of the results to this file")
    parser.add_argument(
        "--open", action="store_true", help="open that gallery in the browser (without --html: from a temporary file)"
    )
    parser.add_argument("--device", default="auto", help="device that encodes the query (default: auto)")

    parser = declare(commands, common, "explain", explain, rows=True)
    parser.add_argument(
        "--encoder", type=names, required=True, metavar="X,Y", help="late-interaction encoders in the store"
    )
    parser.set_defaults(format=None)
    parser.add_argument("--corpus", required=True, help="name, path or fingerprint of a corpus in the store")
    parser.add_argument(
        "--query", required=True, metavar="ID", help="id of a caption (capim corpora ids … --modality caption)"
    )
    parser.add_argument("--item", required=True, metavar="ID", help="id of an image (capim corpora ids …)")
    parser.add_argument(
        "--to", metavar="F", help="write maps over the image: a page (.html), a picture (.png) or all values (.json)"
    )


def import_(args: argparse.Namespace) -> None:
    """Import embeddings, or outcomes of models without embeddings, that another program computed.

    Embeddings have ids (.npz, .parquet, .safetensors, .csv) or follow the order of the corpus (.npy). Images and
    captions can be imported by two commands, and one model for many corpora, under one name and --revision. A manifest
    has rows like

        [[set]]
        encoder = "theirs"
        corpus = "shapes"
        images = "images.npy"
        captions = "captions.npy"

    Outcomes are ranks, or right and wrong answers, per query (docs/outcomes.md); scores are those of every caption with
    every image; a run has lists of the best items. The same file again changes nothing.

    Example: capim import --encoder theirs --corpus shapes --images images.npy --captions captions.npy
    """
    from capim.flows.config import run_config
    from capim.flows.exchange import import_ as flow
    from capim.flows.exchange import import_outcomes
    from capim.flows.execution import start
    from capim.tasks.results.imported.sources import Kind, Source

    what = _kind_of_import(args)
    kinds: dict[str, tuple[Kind, str | None]] = {
        "outcomes": ("outcomes", args.outcomes),
        "scores": ("scores", args.scores),
        "a run": ("run", args.trec_run),
    }
    if what in kinds:
        config = run_config({"workspace": args.workspace, "replicates": args.replicates})
        kind, path = kinds[what]
        source = Source(kind, str(path), args.encoder or "", args.protocol or ())
        identity = {"revision": args.revision, "note": args.note}
        lines = start(import_outcomes, config, args.corpus, source, **identity, replace=args.replace)
    else:
        config = run_config({"workspace": args.workspace, "storage": args.storage})
        lines = start(flow, config, _import_rows(what, args), replace=args.replace)
    for line in lines:
        sys.stderr.write(f"{plain(line)}\n")


def _kind_of_import(args: argparse.Namespace) -> str:
    """The one source that the options name; raises for none, for several, and for options that it does not take."""
    given = {name for name, value in vars(args).items() if value not in (None, False)}
    kinds = [kind for kind, (sources, _, _) in IMPORTS.items() if given & {*sources}]
    if len(kinds) != 1:
        raise RequestError(
            "give one thing to import: --images and --captions, --manifest, --folder, --outcomes, --scores or --run"
            + (f"; got {' and '.join(kinds)}" if kinds else "")
        )
    sources, needed, others = IMPORTS[kinds[0]]
    every = {name for names in IMPORTS.values() for part in names for name in part}
    faults = [
        f"--{name} has no effect on an import of {kinds[0]}; leave it out"
        for name in sorted((given & every) - {*sources, *needed, *others})
    ]
    faults += [f"an import of {kinds[0]} needs --{name} NAME" for name in {*needed} - given]
    if faults:
        raise RequestError(sorted(faults))
    return kinds[0]


def _import_rows(kind: str, args: argparse.Namespace) -> list[ImportRow]:
    from capim.store.exchange.exporting import ImportRow, read_manifest, rows_of_folder

    if kind == "a manifest":
        return read_manifest(Path(args.manifest))
    if kind == "a folder":
        return rows_of_folder(Path(args.folder))
    names = ("encoder", "corpus", "images", "captions", "revision", "note")
    return [ImportRow(**{name: getattr(args, name) for name in names})]


def query(args: argparse.Namespace) -> int:
    """Query the store with SQL (DuckDB), read-only.

    Tables: encoders, corpora, images, captions, embeddings, sets, outcomes, results, comparisons, rankings, slices,
    batches, runs … and the views items, embedded_items, query_outcomes, sourced_results.
    Columns of one name are numbered: encoder, encoder_2. Exit code 1 if there are no rows.

    Example: capim query "SELECT encoder, protocol, value FROM results WHERE metric = 'R@1' ORDER BY value DESC"
    """
    store = open_store(args.workspace)
    return show_rows(args, store.sql(args.sql).to_pylist(), none=lambda: unknown_texts(store, args.sql))


def search(args: argparse.Namespace) -> int:
    """Find the nearest images or captions of a text, an image, both together or a vector.

    Every item is compared, unless --index is given. Of a text, images are searched; of an image alone, captions;
    --modality chooses.

    Example: capim search "a red circle above a blue square" --encoder tiny-clip --corpus shapes -k 5
    """
    from capim.flows.commands.searching import FOUND_COLUMNS, find
    from capim.reports.gallery_pages import write_search

    if args.html:
        refuse_unused(args, "with --html", format="--format", columns="--columns", wide="--wide")
    store = open_store(args.workspace)
    found = find(
        store,
        text=args.text,
        image=args.image,
        vector=args.vector,
        encoder=args.encoder,
        corpus=args.corpus,
        modality=args.modality,
        k=args.k,
        use_index=args.index,
        device=args.device,
    )
    page = (
        Path(args.html or Path(tempfile.mkdtemp(prefix="capim-")) / "search.html") if args.html or args.open else None
    )
    if page is not None:
        write_search(page, found, store.thumbnails([row["sha"] for row in found.rows if row.get("sha")]))
        stream = sys.stdout if args.html else sys.stderr
        stream.write(f"{link(str(page), stream)}\n")
    if args.open and page is not None and not webbrowser.open(page.resolve().as_uri()):
        sys.stderr.write("no browser was found; open the page by hand\n")
    return 0 if args.html else show_rows(args, found.rows, columns=FOUND_COLUMNS, keep=FOUND_COLUMNS)


def explain(args: argparse.Namespace) -> int:
    """Show the share of every token in the score of a caption with an image, and where in the image it matches.

    The score of a late-interaction encoder is a sum over the tokens of the caption; the shares add up to it. With
    --to, a map over the image for every token, several encoders below each other.

    Example: capim explain --encoder tiny-colpali --corpus shapes --query scene-00000-0 --item scene-00000
    """
    from capim.reports.gallery_pages import token_words, write_explanation
    from capim.tasks.runtime.stored import explain_pair

    if args.to:
        refuse_unused(args, "with --to", format="--format", columns="--columns", wide="--wide")
    store = open_store(args.workspace)
    corpus = str(corpus_in(store, args.corpus)["fingerprint"])
    explained = [
        explain_pair(store, encoder=encoder, corpus=corpus, caption=args.query, image=args.item)
        for encoder in args.encoder
    ]
    if args.to:
        picture = store.thumbnails([explained[0].sha]).get(explained[0].sha)
        sys.stdout.write(f"{link(str(write_explanation(Path(args.to), explained, picture)), sys.stdout)}\n")
        return 0
    rows = []
    for each in explained:
        for token, share, box in zip(each.tokens, each.shares.tolist(), each.best_boxes().tolist(), strict=True):
            if isnan(box[0]):
                where = "a special token"
            else:
                left, top, right, bottom = (round(100 * edge) for edge in box)
                where = f"{left}-{right} % across, {top}-{bottom} % down"
            rows.append({"encoder": each.encoder, "token": token_words(token), "share": share, "best_match": where})
        rows.append({"encoder": each.encoder, "token": "all", "share": each.score, "best_match": None})
    return show_rows(args, rows)
