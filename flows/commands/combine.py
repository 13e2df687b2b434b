"""`rerank`, `fuse`, `ann`: stored encoders combined, and approximate search measured; nothing is encoded."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from flows.commands.declare import STATISTICS, config_options, declare, given_options
from flows.commands.parser import names
from flows.commands.progress import bars
from flows.config import run_config
from store.errors import RequestError

if TYPE_CHECKING:
    from flows.commands import Commands

DEPTHS = (1, 5, 10, 20, 50, 100)
INDEXES = ("IVF_PQ", "IVF_HNSW_SQ", "IVF_RQ")


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the commands that combine stored encoders."""
    parser = declare(commands, common, "rerank", rerank)
    parser.add_argument("--first", required=True, help="encoder that retrieves")
    parser.add_argument("--second", required=True, help="encoder that re-ranks the first N results")
    parser.add_argument(
        "--depths", type=names, default=DEPTHS, metavar="N,M", help="re-ranking depths (default: 1,5,10,20,50,100)"
    )
    config_options(parser, "corpora", *STATISTICS)
    parser = declare(commands, common, "fuse", fuse)
    config_options(parser, "encoders", required=True)
    parser.add_argument(
        "--weights", type=names, default=(), metavar="U,V", help="one weight per encoder, for a weighted sum of scores"
    )
    config_options(parser, "corpora", *STATISTICS)
    parser = declare(commands, common, "ann", ann)
    config_options(parser, "encoders", "corpora")
    parser.add_argument(
        "--indexes", type=names, default=INDEXES, metavar="I,J", help=f"index types (default: {','.join(INDEXES)})"
    )


def rerank(args: argparse.Namespace) -> None:
    """Retrieve with one encoder and re-rank its first N results with another, at several depths N.

    The largest depth is stored as the encoder FIRST-then-SECOND, which `capim compare` and `capim report` treat like
    any other. The report shows accuracy and cost at every depth.

    Example: capim rerank --first tiny-clip-plain --second tiny-colpali --corpora shapes
    """
    try:
        depths = tuple(int(depth) for depth in args.depths)
    except ValueError as error:
        raise RequestError(f"--depths must be whole numbers, got {', '.join(args.depths)}") from error
    if any(not 1 <= depth <= 100 for depth in depths):
        raise RequestError(
            f"--depths must be between 1 and 100, the length of stored result lists, got {', '.join(map(str, depths))}"
        )
    from flows.combine import rerank_flow
    from flows.execution import start

    with bars(quiet=args.quiet):
        done = start(rerank_flow, run_config(given_options(args)), args.first, args.second, depths)
    sys.stdout.writelines(f"{name}\n" for name in done)


def fuse(args: argparse.Namespace) -> None:
    """Fuse several encoders: reciprocal rank fusion of stored result lists, or with --weights a sum of scores.

    A weighted sum adds cosine similarities; a MaxSim score is divided by the number of caption tokens first.

    Example: capim fuse --encoders tiny-clip,tiny-colpali --corpora shapes --weights 0.7,0.3
    """
    if len(args.encoders) < 2:
        raise RequestError(
            f"--encoders must name at least two encoders to fuse, got {', '.join(args.encoders) or 'none'}"
        )
    weights = _weights(args.weights, args.encoders)
    from flows.combine import fuse_flow
    from flows.execution import start

    with bars(quiet=args.quiet):
        done = start(fuse_flow, run_config(given_options(args)), args.encoders, weights)
    sys.stdout.writelines(f"{name}\n" for name in done)


def _weights(texts: tuple[str, ...], encoders: tuple[str, ...]) -> tuple[float, ...]:
    try:
        weights = tuple(float(weight) for weight in texts)
    except ValueError as error:
        raise RequestError(f"--weights must be numbers, got {', '.join(texts)}") from error
    if weights and len(weights) != len(encoders):
        raise RequestError(f"--weights must be one number per encoder: expected {len(encoders)}, got {len(weights)}")
    if weights and not (all(0 <= weight < float("inf") for weight in weights) and any(weights)):
        raise RequestError(f"--weights must be finite, at least 0 and not all 0, got {', '.join(texts)}")
    return weights


def ann(args: argparse.Namespace) -> None:
    """Compare LanceDB's approximate indexes with exact search: loss in R@k, gain in speed.

    Example: capim ann --encoders tiny-clip --corpora shapes --indexes IVF_RQ
    """
    from flows.combine import approximate_flow
    from flows.execution import start

    with bars(quiet=args.quiet):
        written = start(approximate_flow, run_config(given_options(args)), args.indexes)
    sys.stderr.write(f"{written} rows are stored (table slices, analysis 'ann'); the next report shows them\n")
