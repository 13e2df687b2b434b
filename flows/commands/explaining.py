"""`explain`: why a caption and an image match, by late-interaction encoders."""

from __future__ import annotations

import argparse
import sys
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

from flows.commands.declare import declare, refuse_unused
from flows.commands.output import link, show_rows
from flows.commands.parser import names
from flows.commands.workspace import corpus_in, open_store
from store.errors import RequestError

if TYPE_CHECKING:
    from flows.commands import Commands


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the command."""
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


def explain(args: argparse.Namespace) -> int:
    """Show the share of every token in the score of a caption with an image, and where in the image it matches.

    The score of a late-interaction encoder is a sum over the tokens of the caption; the shares add up to it. With
    --to, a map over the image for every token, several encoders below each other.

    Example: capim explain --encoder tiny-colpali --corpus shapes --query scene-00000-0 --item scene-00000
    """
    from reports.explanation import SUFFIXES, token_words, write_explanation
    from tasks.diagnosis.explanation import explain_pair

    if args.to:
        refuse_unused(args, "with --to", format="--format", columns="--columns", wide="--wide")
        if Path(args.to).suffix not in SUFFIXES:
            raise RequestError(f"--to {args.to}: the file must end in {', '.join(SUFFIXES)}")
    store = open_store(args.workspace)
    row = corpus_in(store, args.corpus)
    corpus = str(row["fingerprint"])
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
