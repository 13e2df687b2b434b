"""`demo`, `run`, and the steps alone: `embed`, `evaluate`, `compare`, `watch`, `report`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from flows.commands.declare import ENCODING, STATISTICS, TESTS, config_options, declare, given_options, refuse_unused
from flows.commands.output import RESULT_COLUMNS, link, plain, print_embedded, print_report, show_rows
from flows.commands.progress import STEPS, bars
from flows.commands.rows import print_ranking
from flows.config import FIELDS, RunConfig, demo_config, missing_names, read_suite, run_config
from store.errors import RequestError, WorkError
from tasks.runtime.references import encoder_name

if TYPE_CHECKING:
    from flows.benchmark import BenchmarkRef
    from flows.commands import Commands
    from tasks.runtime.references import EmbedRef, EvaluationRef, MetricRef


EVERYWHERE = ("name", "sample", "seed")  # fields of a suite file that every command uses; a sample has its own name
FINDING_COLUMNS = ("verdict", "subject", "message")


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the commands that run flows."""
    everything = (*ENCODING, "protocols", *STATISTICS, "keep_replicates", *TESTS)
    declare(commands, common, "demo", demo)
    _suite_options(declare(commands, common, "run", run), *everything, "analyses")
    parser = declare(commands, common, "embed", embed)
    _suite_options(parser, *ENCODING, "seed")
    parser.add_argument("--shard", type=int, metavar="K", help="encode only shard K of --shards N, counted from 1")
    parser.add_argument("--only", choices=("images", "captions"), help="encode only the images or only the captions")
    parser = declare(commands, common, "evaluate", evaluate, rows=True)
    _suite_options(parser, "device", "protocols", *STATISTICS, "keep_replicates")
    parser.set_defaults(format=None)
    _metric_option(parser, "evaluate a metric of your own instead, compare and slice by it, and print its results")
    parser = declare(commands, common, "compare", compare, rows=True)
    _suite_options(parser, "protocols", *STATISTICS, *TESTS, "analyses")
    parser.set_defaults(format=None)
    _metric_option(parser, "compare by a metric of your own instead, and slice it")
    watched = [f for f in everything if f not in {"adjustment", "margin"}]  # a watch adjusts over its own findings
    _suite_options(declare(commands, common, "watch", watch, rows=True), *watched, "baseline")
    parser = declare(commands, common, "report", report)
    _suite_options(parser, "protocols")
    parser.add_argument("--compare", nargs=2, metavar=("OLD", "NEW"), help="compare two reports instead")


def _metric_option(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--metric", metavar="FILE.py:NAME", help=f"{text} (docs/own_metric.md)")


def _suite_options(parser: argparse.ArgumentParser, *fields: str) -> None:
    parser.add_argument("suite", nargs="?", help="suite file (TOML); options replace its fields")
    config_options(parser, "corpora", "encoders", *fields)


def _config(args: argparse.Namespace) -> RunConfig:
    """The run of the options and the suite file; fields of the file that this command does not use are named."""
    if args.suite is not None:
        unused = [name for name in read_suite(args.suite) if name in FIELDS and name not in {*vars(args), *EVERYWHERE}]
        if unused:
            sys.stderr.write(f"{args.suite}: {', '.join(unused)}: without effect on `capim {args.command}`\n")
    return run_config(given_options(args), args.suite)


def demo(args: argparse.Namespace) -> int:
    """Run everything on built-in corpora and tiny models, offline, in under two minutes.

    Three rendered corpora (retrieval, Winoground, six languages) and three tiny models trained on such scenes. Prints
    what the report recommends, and its path.

    Example: capim demo --workspace /tmp/capim-demo
    """
    return _benchmark(demo_config(args.workspace), args)


def run(args: argparse.Namespace) -> int:
    """Encode, evaluate, compare and report: the whole pipeline.

    Stored embeddings are not encoded again. A corpus is a name (capim list corpora), a folder or file of your own
    images and captions (capim corpora check), or a table in a suite file. Prints what the
    report recommends, and its path.

    Example: capim run --corpora ./photos --encoders tiny-clip,tiny-colpali
    """
    config = _config(args)
    if faults := missing_names(config):
        raise RequestError(faults)
    return _benchmark(config, args)


def _benchmark(config: RunConfig, args: argparse.Namespace) -> int:
    from flows.benchmark import benchmark

    def show(done: BenchmarkRef) -> None:
        print_embedded(done.embedded)
        print_report(done.report)

    return _run(benchmark, config, quiet=args.quiet, show=show, steps=tuple(STEPS))


def _run(
    flow: Any,
    config: RunConfig,
    *,
    quiet: bool,
    show: Callable[[Any], None],
    steps: Sequence[str],
    **options: object,
) -> int:
    """Run a flow and show what it returns; also if some encoders failed, which the error at the end names."""
    from flows.execution import start
    from flows.runs import IncompleteError

    try:
        with bars(quiet=quiet, steps={name: STEPS[name] for name in steps}, corpora=max(len(config.corpora), 1)):
            done = start(flow, config, **options)
    except IncompleteError as incomplete:
        show(incomplete.done)
        raise
    show(done)
    return 0


def embed(args: argparse.Namespace) -> int:
    """Encode corpora with encoders; only what is missing in the store.

    An interrupted encode keeps what it has stored; the same command continues it. Of a corpus whose images have no
    files, or whose captions have no texts, the other modality is encoded.

    Example: capim embed --corpora shapes --encoders tiny-clip --batch-size 64
    """
    config = _config(args)
    from flows.embed import embed as flow

    def show(done: tuple[EmbedRef, ...]) -> None:
        if not done:
            sys.stderr.write(
                f"shard {args.shard} of {config.shards} is encoded; the sets are sealed when all shards are stored\n"
            )
        print_embedded(done)

    return _run(flow, config, quiet=args.quiet, show=show, steps=("embed",), shard=args.shard, only=args.only)


def evaluate(args: argparse.Namespace) -> int:
    """Compute ranks, metrics and intervals from stored embeddings; no model is loaded.

    Figures that the store has are kept; a metric that is new in the table is computed from stored outcomes.

    A metric of your own (--metric) is a function in a Python file. It takes `outcomes`, or a score `block`, and returns
    one number per query. Its results, comparisons and slices are stored, and its results printed.

    Example: capim evaluate --corpora shapes --protocols t2i/all,i2t/any --replicates 2000
    """
    config = _config(args)
    if args.metric:
        return _print_metric(config, args)
    refuse_unused(args, "without --metric", format="--format", columns="--columns", wide="--wide")
    from flows.evaluate import evaluate as flow

    def show(done: tuple[EvaluationRef, ...]) -> None:
        n_scored = sum(reference.n_scored for reference in done)
        n_protocols = sum(len(reference.evaluations) for reference in done)
        n_added = sum(reference.n_added for reference in done)
        added = f"; {n_added} figures computed from stored outcomes" if n_added else ""
        sys.stderr.write(f"{n_scored} protocols scored, {n_protocols - n_scored} were already stored{added}\n")

    return _run(flow, config, quiet=args.quiet, show=show, steps=("score",))


def _print_metric(config: RunConfig, args: argparse.Namespace) -> int:
    from tasks.custom_metric import stored_results

    done = _custom_metric(config, args, results=True)
    rows = stored_results(config.store_uri, [row for reference in done for row in reference.results])
    order: list[tuple[str, Literal["ascending", "descending"]]]
    order = [("corpus", "ascending"), ("protocol", "ascending"), ("value", "descending")]
    show_rows(args, rows.sort_by(order).to_pylist(), columns=RESULT_COLUMNS)
    return 0


def _custom_metric(config: RunConfig, args: argparse.Namespace, *, results: bool) -> tuple[MetricRef, ...]:
    """What was stored of the user's metric, after a line about it on standard error.

    Raises:
        RequestError: There is no figure because every encoder was left out.
    """
    from flows.evaluate import evaluate_custom
    from flows.execution import start

    with bars(quiet=args.quiet):
        done = start(evaluate_custom, config, args.metric, results=results)
    left_out = [line for reference in done for line in reference.left_out]
    n_results = sum(len(reference.results) for reference in done)
    n_comparisons = sum(reference.n_comparisons for reference in done)
    if left_out and not n_results + n_comparisons:
        raise RequestError(left_out)
    sys.stderr.writelines(f"left out: {plain(line)}\n" for line in left_out)
    stored = f"{n_results} results and " if results else ""
    sys.stderr.write(f"{stored}{n_comparisons} comparisons by {plain(args.metric)} stored\n")
    return done


def compare(args: argparse.Namespace) -> int:
    """Compare every pair of encoders on the same queries: significance tests and effect sizes.

    Over three corpora or more, the encoders are ranked by their macro mean and Borda count, with the ranks that the
    data leave open. The ranking is printed and stored (table rankings).

    With --metric, by a metric of your own; without it, its stored comparisons stay as they are.

    Example: capim compare --corpora shapes
    """
    config = _config(args)
    if args.metric:
        refuse_unused(args, "with --metric", format="--format", columns="--columns", wide="--wide")
        _custom_metric(config, args, results=False)
        return 0
    from flows.compare import compare as flow
    from flows.execution import start

    with bars(quiet=args.quiet, steps={name: STEPS[name] for name in ("compare", "diagnose")}):
        done = start(flow, config)
    of_some = f"; p-values are adjusted over the pairs of {' and '.join(map(encoder_name, config.encoders))} alone"
    stored = sum(reference.n_comparisons for reference in done.comparisons)
    sys.stderr.write(f"{stored} comparisons stored{of_some if config.encoders else ''}\n")
    print_ranking(args, config.store_uri, done.ranking)
    return 0


def watch(args: argparse.Namespace) -> int:
    """Check for regressions since the pinned run; exit code 1 if there is one.

    Encodes a sample of every stored set again, and tests the figures of changed encoders against the pinned run, query
    by query: at most one year in twenty has a false alarm. The first watch pins itself; --baseline RUN pins another
    run, such as one whose changes are intended. Prints the findings, with changes of weights, libraries and data.

    Example: capim watch --corpora shapes --encoders tiny-clip
    """
    config = _config(args)
    from flows.execution import start
    from flows.watch import RegressionError
    from flows.watch import watch as flow

    try:
        with bars(quiet=args.quiet):
            done = start(flow, config)
    except RegressionError as regression:
        show_rows(args, [finding._asdict() for finding in regression.findings], columns=FINDING_COLUMNS)
        raise WorkError(regression.short) from regression
    found = [finding._asdict() for finding in done.findings]
    show_rows(args, found, columns=FINDING_COLUMNS, none=lambda: "no findings")
    sys.stderr.writelines(f"{plain(line)}\n" for line in done.summary)
    return 0


def report(args: argparse.Namespace) -> int:
    """Write a report of the store, or of some corpora, encoders or protocols: HTML, Markdown and results.json.

    Prints what the report recommends, and its path.

    With --compare, write a page about two reports instead: which figures differ, whether the difference is significant,
    and what changed between the runs.

    Example: capim report --compare workspace/reports/OLD workspace/reports/NEW
    """
    config = _config(args)
    if args.compare:
        filters = {"corpora": "--corpora", "encoders": "--encoders", "protocols": "--protocols"}
        refuse_unused(args, "with --compare", **filters)
        from reports.compare import write_comparison

        old, new = args.compare
        page = write_comparison(old, new, f"{config.reports_uri}/compared")
        sys.stdout.write(f"{link(str(page), sys.stdout)}\n")
        return 0
    from flows.execution import start
    from flows.publish import publish

    print_report(start(publish, config))
    return 0
