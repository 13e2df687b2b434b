"""`rerank`, `fuse`, `ann`: stored encoders combined, and approximate search measured; nothing is encoded."""

from __future__ import annotations

import argparse
import json
import sys

from capim.flows.config import run_config
from capim.flows.terminal.output import show_rows
from capim.flows.terminal.parser import STATISTICS, Commands, config_options, declare, given_options, names
from capim.flows.terminal.progress import bars
from capim.store.errors import RequestError, unknown

DEPTHS = (1, 5, 10, 20, 50, 100)
ANN_COLUMNS = (
    "encoder", "corpus", "method", "setting", "metric", "value", "change", "change_low", "change_high",
    "bytes_per_item", "seconds_per_query", "depth", "equal_at_10", "equal_at_100", "n_queries", "reason",
)  # fmt: skip
STORED = ("value", "ci_low", "ci_high", "n_queries", "n_clusters", "reason")
DETAILS = (
    "change", "change_low", "change_high", "bytes_per_item", "seconds_per_query", "threads", "depth",
    "equal_at_10", "equal_at_20", "equal_at_50", "equal_at_100", "n_all_queries",
)  # fmt: skip


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
    parser = declare(commands, common, "ann", ann, rows=True)
    config_options(parser, "encoders", "corpora", *STATISTICS)
    parser.add_argument("--methods", type=names, default=(), metavar="M,N", help="only these (default: all that apply)")


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
    from capim.flows.exchange import rerank_flow
    from capim.flows.execution import start

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
    from capim.flows.exchange import fuse_flow
    from capim.flows.execution import start

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


def ann(args: argparse.Namespace) -> int:
    """Measure what compressed vectors and approximate search cost against exact search: one row per method and setting.

    Methods: pooling and colpali_engine's pooling of multi-vectors, int8, binary, MUVERA's fixed dimensional encodings
    (muvera), LanceDB's indexes (IVF_PQ, IVF_HNSW_SQ, IVF_RQ) and fast-plaid, where that is installed. Encoders with one
    vector per item have int8, binary and the indexes.

    In the rows, change is the method's metric minus that of exact search, paired by query, with its interval; depth is
    how many of the method's first items exact scores have to reorder so that every query has the ten best of exact
    search, and equal_at_10, 20, 50 and 100 are the shares of queries that have them with so many. The rows are stored
    (table slices, analysis ann) for the next report.

    Example: capim ann --encoders tiny-colpali --corpora shapes --methods pooling,muvera
    """
    from capim.flows.exchange import approximate_flow
    from capim.flows.execution import start
    from capim.store import EmbeddingStore
    from capim.tasks.analyses.compression import METHODS

    faults = [unknown("method", name, METHODS) for name in args.methods if name not in METHODS]
    columns = ("encoder", "corpus", "protocol", "method", "setting", "metric", *STORED, *DETAILS)
    faults += [unknown("column", name, columns) for name in args.columns or () if name not in columns]
    if faults:
        raise RequestError(faults)
    config, methods = run_config(given_options(args)), args.methods or METHODS
    with bars(quiet=args.quiet):
        measured = start(approximate_flow, config, methods)
    shown = ("exact", *methods)
    of = {(sets.encoder_fingerprint, sets.corpus_fingerprint): at for at, sets in enumerate(measured)}
    found = [
        ((at, shown.index(row["feature"])), row, json.loads(row["detail"]))
        for row in EmbeddingStore.open(config.store_uri).rows("slices", analysis="ann").to_pylist()
        if (at := of.get((row["encoder_fingerprint"], row["corpus_fingerprint"]))) is not None
        and row["feature"] in shown
    ]
    rows = [
        {
            "encoder": row["encoder"],
            "corpus": row["corpus"],
            "protocol": row["protocol"],
            "method": row["feature"],
            "setting": row["level_name"],
            "metric": row["metric"],
            **{name: row[name] for name in STORED},
            **dict.fromkeys(DETAILS),
            **detail,
        }
        for _, row, detail in sorted(found, key=lambda each: (each[0], -each[2].get("bytes_per_item", 0)))
    ]
    return show_rows(args, rows, columns=ANN_COLUMNS, keep=("method", "setting", "value", "change"))
