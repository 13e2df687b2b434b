"""`rerank`, `fuse`, `ann`: encoders together, and approximate search; nothing is encoded."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from flows.commands.declare import declare, interval_options, names
from flows.commands.progress import bars
from flows.config import RunConfig, run_config
from store.errors import RequestError

if TYPE_CHECKING:
    from flows.commands import Commands

DEPTHS = (1, 5, 10, 20, 50, 100)
INDEXES = ("IVF_PQ", "IVF_HNSW_SQ", "IVF_RQ")


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the commands that combine stored encoders."""
    parser = declare(commands, common, "rerank", rerank)
    parser.add_argument("--first", required=True, help="encoder that retrieves")
    parser.add_argument("--second", required=True, help="encoder that orders the first N again")
    parser.add_argument("--depths", type=names, default=DEPTHS, metavar="N,M", help="the N (default: 1,5,10,20,50,100)")
    _shared(parser)
    parser = declare(commands, common, "fuse", fuse)
    parser.add_argument("--encoders", type=names, required=True, metavar="A,B", help="encoders that are fused")
    parser.add_argument("--weights", type=names, default=(), metavar="U,V", help="of their scores: a weighted sum")
    _shared(parser)
    parser = declare(commands, common, "ann", ann)
    parser.add_argument("--encoders", type=names, default=(), metavar="A,B", help="single-vector encoders")
    parser.add_argument("--indexes", type=names, default=INDEXES, metavar="I,J", help=f"of {', '.join(INDEXES)}")
    _shared(parser)


def _shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--corpora", type=names, default=(), metavar="C,D", help="corpora in the store (default: all)")
    interval_options(parser)


def _config(args: argparse.Namespace, encoders: tuple[str, ...] = ()) -> RunConfig:
    told = {name: getattr(args, name) for name in ("workspace", "corpora", "replicates", "level", "interval", "seed")}
    return run_config({}, {**told, "encoders": encoders})


def rerank(args: argparse.Namespace) -> None:
    """Retrieve with one encoder and order its top N again with another, for several N.

    The deepest N joins the store's encoders as FIRST-then-SECOND, to be compared and reported like any other;
    accuracy over N and its cost are slices of the report.

    Example: capim rerank --first tiny-clip-plain --second tiny-colpali --corpora shapes
    """
    try:
        depths = tuple(int(depth) for depth in args.depths)
    except ValueError as error:
        raise RequestError(f"--depths takes whole numbers, got {', '.join(args.depths)}") from error
    if any(not 1 <= depth <= 100 for depth in depths):
        raise RequestError(f"--depths must be 1 to 100, the length of stored lists, got {', '.join(map(str, depths))}")
    from flows.combine import rerank_flow
    from flows.execution import start

    with bars(quiet=args.quiet):
        done = start(rerank_flow, _config(args), args.first, args.second, depths)
    sys.stdout.writelines(f"{name}\n" for name in done)


def fuse(args: argparse.Namespace) -> None:
    """Fuse several encoders into one: the stored lists by reciprocal ranks, or the scores by --weights.

    A weighted sum adds cosines; late interaction joins it per caption token, which is as large as a cosine.

    Example: capim fuse --encoders tiny-clip,tiny-colpali --corpora shapes --weights 0.7,0.3
    """
    if len(args.encoders) < 2:
        raise RequestError(f"fusing needs two encoders or more, got {', '.join(args.encoders) or 'none'}")
    weights = _weights(args.weights, args.encoders)
    from flows.combine import fuse_flow
    from flows.execution import start

    with bars(quiet=args.quiet):
        done = start(fuse_flow, _config(args), args.encoders, weights)
    sys.stdout.writelines(f"{name}\n" for name in done)


def _weights(asked: tuple[str, ...], encoders: tuple[str, ...]) -> tuple[float, ...]:
    try:
        weights = tuple(float(weight) for weight in asked)
    except ValueError as error:
        raise RequestError(f"--weights takes numbers, got {', '.join(asked)}") from error
    if weights and len(weights) != len(encoders):
        raise RequestError(f"--weights needs one number per encoder, got {len(weights)} for {len(encoders)}")
    if weights and not (all(0 <= weight < float("inf") for weight in weights) and any(weights)):
        raise RequestError(f"--weights must be finite, not negative and not all 0, got {', '.join(asked)}")
    return weights


def ann(args: argparse.Namespace) -> None:
    """Measure LanceDB's indexes against exact search: what they lose in R@k, what they gain in speed.

    Example: capim ann --encoders tiny-clip --corpora shapes --indexes IVF_RQ
    """
    from flows.combine import approximate_flow
    from flows.execution import start

    with bars(quiet=args.quiet):
        written = start(approximate_flow, _config(args, args.encoders), args.indexes)
    sys.stderr.write(f"{written} rows of the analysis 'ann' are in the store's slices and in the next report\n")
