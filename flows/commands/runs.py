"""`demo`, `run`, and the steps alone: `embed`, `evaluate`, `compare`, `report`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from flows.commands.declare import declare, interval_options, names
from flows.commands.output import RESULT_COLUMNS, plain, print_rows
from flows.commands.progress import bars
from flows.config import PRECISIONS, RunConfig, demo_config, read_suite, run_config, unnamed
from store.errors import RequestError
from tasks.statistics.resampling import ADJUSTMENTS

if TYPE_CHECKING:
    from flows.commands import Commands
    from tasks.runtime.references import EmbedRef


WATCH_COLUMNS = ("verdict", "subject", "message")


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the commands that run flows."""
    declare(commands, common, "demo", demo)
    _options(declare(commands, common, "run", run), encoding=True, statistics=True)
    parser = declare(commands, common, "embed", embed)
    _options(parser, encoding=True)
    parser.add_argument("--shard", type=int, metavar="K", help="only part K of --shards N: a run or a machine for each")
    parser = declare(commands, common, "evaluate", evaluate, rows=True)
    _options(parser, statistics=True)
    parser.add_argument("--metric", metavar="MODULE:FUNCTION", help="a metric of your own; prints its rows")
    parser = declare(commands, common, "compare", compare)
    _options(parser, statistics=True)
    parser.add_argument(
        "--analyses", type=names, metavar="A,B", help="only these analyses (default: all except resampled-gallery)"
    )
    _options(declare(commands, common, "watch", watch, rows=True), encoding=True, statistics=True)
    parser = declare(commands, common, "report", report)
    _options(parser)
    parser.add_argument("--compare", nargs=2, metavar=("OLD", "NEW"), help="two reports: what changed between them")


def _options(parser: argparse.ArgumentParser, *, encoding: bool = False, statistics: bool = False) -> None:
    parser.add_argument("suite", nargs="?", help="suite file (TOML); options win over it")
    parser.add_argument("--corpora", type=names, metavar="A,B", help="names or paths (capim list corpora)")
    parser.add_argument("--encoders", type=names, metavar="X,Y", help="names (capim list encoders)")
    parser.add_argument(
        "--device", "--devices", help="auto, cpu, cuda:1, mps; cuda:0,cuda:1 side by side (default: auto)"
    )
    if encoding:
        parser.add_argument("--shards", type=int, metavar="N", help="encode in N parts, side by side on a task runner")
        parser.add_argument("--sample", type=int, metavar="N", help="only N images of each corpus, drawn by --seed")
        parser.add_argument(
            "--batch-size",
            type=_batch_size,
            metavar="N",
            help="items per forward pass, or auto (default: the encoder's)",
        )
        parser.add_argument(
            "--compile", action="store_true", default=None, help="compile the model first, for long encodes"
        )
        parser.add_argument("--precision", choices=PRECISIONS, help="of the forward pass")
        parser.add_argument(
            "--trust-remote-code", action="store_true", default=None, help="run a repository's own code"
        )
    if statistics:
        parser.add_argument("--protocols", type=names, metavar="P,Q", help="ids (capim list protocols; default: all)")
        interval_options(parser)
        parser.add_argument("--bootstrap-iterations", dest="replicates", type=int, help=argparse.SUPPRESS)  # V29's name
        parser.add_argument(
            "--keep-replicates", action="store_true", default=None, help="store every draw, for tests of your own"
        )
        parser.add_argument("--adjustment", choices=ADJUSTMENTS, help="of p-values over all pairs (default: holm)")
    else:
        parser.add_argument("--seed", type=int, help="of everything random (default: 0)")


def _batch_size(text: str) -> int | str:
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number or auto, got {text!r}") from None


def _config(args: argparse.Namespace) -> RunConfig:
    suite = read_suite(args.suite) if args.suite else {}
    fields = RunConfig.__dataclass_fields__
    overrides = {key: value for key, value in vars(args).items() if key in fields}
    return run_config(suite, overrides)


def demo(args: argparse.Namespace) -> int:
    """Run everything on the embedded corpora and tiny models, offline, in under two minutes.

    Three rendered corpora (retrieval, Winoground form, six languages), three tiny models trained on such
    scenes; ends with the path of the report.

    Example: capim demo --workspace /tmp/look
    """
    return _benchmark(demo_config(args.workspace), args)


def run(args: argparse.Namespace) -> int:
    """Encode, evaluate, compare and report: the whole pipeline.

    What the store has already is not encoded again. A corpus is a name, a folder with images and a
    COCO-format captions file, or a table in a suite file.

    Example: capim run --corpora ../shared/data/coco_photos --encoders tiny-clip,tiny-colpali
    """
    config = _config(args)
    if faults := unnamed(config):
        raise RequestError(faults)
    return _benchmark(config, args)


def _benchmark(config: RunConfig, args: argparse.Namespace) -> int:
    from flows.benchmark import benchmark
    from flows.execution import start

    with bars(quiet=args.quiet):
        done = start(benchmark, config)
    _say_embedded(done.embedded)
    sys.stdout.write(f"{done.report}\n")
    return 0


def embed(args: argparse.Namespace) -> int:
    """Encode corpora with encoders into the store, whatever is not there yet.

    Can be stopped at any moment; the same command goes on where it stopped.

    Example: capim embed --corpora shapes --encoders tiny-clip --batch-size 64
    """
    config = _config(args)
    from flows.embed import embed as flow
    from flows.execution import start

    with bars(quiet=args.quiet):
        done = start(flow, config, shard=args.shard)
    if not done:
        sys.stderr.write(f"part {args.shard} of {config.shards} is encoded; the sets are sealed with the last part\n")
    _say_embedded(done)
    return 0


def evaluate(args: argparse.Namespace) -> int:
    """Compute ranks, metrics and intervals from the store; no model is loaded.

    A metric of your own is a function in a file beside you that takes `outcomes` or a score `block` and
    returns one number per query; its rows, with intervals, are stored and printed.

    Example: capim evaluate --corpora shapes --protocols t2i/all,i2t/any --replicates 2000
    """
    config = _config(args)
    if args.metric:
        return _own_metric(config, args)
    from flows.evaluate import evaluate as flow
    from flows.execution import start

    with bars(quiet=args.quiet):
        done = start(flow, config)
    scored = sum(reference.n_scored for reference in done)
    sys.stderr.write(
        f"{scored} protocols scored, {sum(len(r.evaluations) for r in done) - scored} were there already\n"
    )
    return 0


def _own_metric(config: RunConfig, args: argparse.Namespace) -> int:
    from flows.evaluate import evaluate_own
    from flows.execution import start
    from tasks.custom_metric import stored_results

    with bars(quiet=args.quiet):
        written = start(evaluate_own, config, args.metric)
    rows = stored_results(config.store_uri, written).sort_by([("protocol", "ascending"), ("value", "descending")])
    print_rows(rows.to_pylist(), form=args.format, columns=RESULT_COLUMNS)
    return 0


def compare(args: argparse.Namespace) -> int:
    """Compare every encoder with every other on shared queries, with tests and effect sizes.

    Example: capim compare --corpora shapes
    """
    config = _config(args)
    from flows.compare import compare as flow
    from flows.execution import start

    with bars(quiet=args.quiet):
        done = start(flow, config)
    sys.stderr.write(f"{sum(reference.n_comparisons for reference in done)} comparisons are in the store\n")
    return 0


def watch(args: argparse.Namespace) -> int:
    """Compare with the last good run, and fail on a regression.

    A sample of every stored set is encoded again and held against the stored vectors; metrics of a changed encoder
    are tested against its own past, query by query. Prints what it found, with what changed: weights, library
    versions, data, device.

    Example: capim watch --corpora shapes --encoders tiny-clip
    """
    config = _config(args)
    if faults := unnamed(config):
        raise RequestError(faults)
    from flows.execution import start
    from flows.watch import watch as flow

    with bars(quiet=args.quiet):
        done = start(flow, config)
    print_rows([finding._asdict() for finding in done.findings], form=args.format, columns=WATCH_COLUMNS)
    return 0


def report(args: argparse.Namespace) -> int:
    """Write the report of what the store has: HTML, markdown and results.json.

    With --compare, a page about two reports instead: what changed, whether it is more than chance, and why
    it may have.

    Example: capim report --compare workspace/reports/OLD workspace/reports/NEW
    """
    config = _config(args)
    if args.compare:
        from reports.compare import write_comparison

        old, new = args.compare
        sys.stdout.write(f"{write_comparison(old, new, f'{config.reports_uri}/compared')}\n")
        return 0
    from flows.execution import start
    from flows.publish import publish

    sys.stdout.write(f"{start(publish, config)}\n")
    return 0


def _say_embedded(references: tuple[EmbedRef, ...]) -> None:
    for corpus in {reference.corpus.fingerprint: reference.corpus for reference in references}.values():
        if corpus.changes:
            lines = "".join(f"\n  - {plain(change)}" for change in corpus.changes)
            sys.stderr.write(
                f"{corpus.name} is not what the store had under this name; its items were encoded anew:{lines}\n"
            )
        if corpus.n_skipped:
            more = ["…"] if corpus.n_skipped > len(corpus.skipped) else []
            said = "; ".join([*corpus.skipped, *more])
            sys.stderr.write(f"{corpus.name}: {corpus.n_skipped} of its images left out: {plain(said)}\n")
    for reference in references:
        sets = reference.sets
        kept = reference.n_items - reference.n_encoded
        said = f"{reference.n_encoded:,} items encoded, {kept:,} were in the store"
        if reference.batches:
            said += f", {' and '.join(f'{n} {modality}s' for modality, n in reference.batches.items())} a pass"
        if reference.n_truncated:
            said += f", {reference.n_truncated:,} captions cut at the model's length"
        sys.stderr.write(f"{sets.encoder} on {sets.corpus}: {said}\n")
