"""`demo`, `run`, and the steps alone: `embed`, `evaluate`, `compare`, `watch`, `report`."""

from __future__ import annotations

import argparse
import sys

from capim.flows.commands.workspace import print_ranking
from capim.flows.config import RunConfig
from capim.flows.steps import demo_configs, run_benchmark, run_compare, run_embed, run_evaluate, run_metric, step_config
from capim.flows.terminal.output import RESULT_COLUMNS, link, print_own_report, print_report, show_rows
from capim.flows.terminal.parser import STEP_FIELDS, Commands, config_options, declare, given_options, refuse_unused
from capim.flows.terminal.progress import bars
from capim.store.errors import RequestError, WorkError, plain

FINDING_COLUMNS = ("verdict", "subject", "message")


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the commands that run flows."""
    declare(commands, common, "demo", demo)
    _suite_options(declare(commands, common, "run", run), "run")
    parser = declare(commands, common, "embed", embed)
    _suite_options(parser, "embed")
    parser.add_argument("--shard", type=int, metavar="K", help="encode only shard K of --shards N, counted from 1")
    parser.add_argument("--submit", action="store_true", help="start the N runs of --shards N on a server's workers")
    parser.add_argument("--only", choices=("images", "captions"), help="encode only the images or only the captions")
    parser = declare(commands, common, "evaluate", evaluate, rows=True)
    _suite_options(parser, "evaluate")
    parser.set_defaults(format=None)
    _metric_option(parser, "evaluate a metric of your own instead, compare and slice by it, and print its results")
    parser.add_argument(
        "--judgements", metavar="FILE.csv", help="evaluate R@1 instead with further right items (docs/serve.md)"
    )
    parser = declare(commands, common, "compare", compare, rows=True)
    _suite_options(parser, "compare")
    parser.set_defaults(format=None)
    _metric_option(parser, "compare by a metric of your own instead, and slice it")
    _suite_options(declare(commands, common, "watch", watch, rows=True), "watch")
    parser = declare(commands, common, "report", report)
    _suite_options(parser, "report")
    parser.add_argument("--compare", nargs=2, metavar=("OLD", "NEW"), help="compare two reports instead")


def _metric_option(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--metric", metavar="FILE.py:NAME", help=f"{text} (docs/own_metric.md)")


def _suite_options(parser: argparse.ArgumentParser, step: str) -> None:
    parser.add_argument("suite", nargs="?", help="suite file (TOML); options replace its fields")
    config_options(parser, "corpora", "encoders", *STEP_FIELDS[step])


def _config(args: argparse.Namespace) -> RunConfig:
    return step_config(args.command, given_options(args), args.suite)


def demo(args: argparse.Namespace) -> None:
    """Run everything on built-in corpora and tiny models, offline, in under two minutes.

    Rendered scenes (retrieval, Winoground, six languages), rendered document pages with questions and judgements, and
    four tiny models trained on such; a model whose library is not installed is left out. Prints what the report
    recommends, and its path.

    Example: capim demo --workspace /tmp/capim-demo
    """
    configs, left_out = demo_configs(args.workspace)
    sys.stderr.writelines(f"left out: {reason}\n" for reason in left_out)
    for config in configs:
        run_benchmark(config, quiet=args.quiet, show=print_report, report=config is configs[-1])


def run(args: argparse.Namespace) -> None:
    """Encode, evaluate, compare and report: the whole pipeline.

    Stored embeddings are not encoded again. A corpus is a name (capim list corpora), a folder or file of your own
    images and captions (capim corpora check), or a table in a suite file. Prints what the report recommends, and its
    path.

    Example: capim run --corpora ./photos --encoders tiny-clip,tiny-colpali
    """
    done = run_benchmark(_config(args), quiet=args.quiet, show=print_report)
    words = [*([args.suite] if args.suite else []), *(["--workspace", args.workspace] if args.workspace else [])]
    print_own_report(done.report, {reference.sets.corpus for reference in done.embedded}, words)


def embed(args: argparse.Namespace) -> None:
    """Encode corpora with encoders; only what is missing in the store.

    An interrupted encode keeps what it has stored; the same command continues it. With --submit, the workers of a
    Prefect server encode one shard each, side by side (deployments/README.md). Of a corpus whose images have no
    files, or whose captions have no texts, the other modality is encoded.

    Example: capim embed --corpora shapes --encoders tiny-clip --batch-size 64
    """
    config = _config(args)
    if args.submit:
        from capim.flows.embed import submit_shards

        refuse_unused(args, "with --submit, which starts every shard", shard="--shard")
        sys.stdout.writelines(f"{line}\n" for line in submit_shards(config, args.only))
        return
    run_embed(config, quiet=args.quiet, shard=args.shard, only=args.only)


def evaluate(args: argparse.Namespace) -> None:
    """Compute ranks, metrics and intervals from stored embeddings; no model is loaded.

    Figures that the store has are kept; a metric that is new in the table is computed from stored outcomes.

    A metric of your own (--metric) is a function in a Python file. It takes `outcomes`, or a score `block`, and returns
    one number per query. Its results, comparisons and slices are stored, and its results printed. So are those of R@1
    with your judgements (--judgements), such as `capim serve` keeps in judgements.csv in the workspace.

    Example: capim evaluate --corpora shapes --protocols t2i/all,i2t/any --replicates 2000
    """
    config = _config(args)
    if args.metric is not None and args.judgements:
        raise RequestError("--metric and --judgements are two metrics; give one at a time")
    if args.metric is not None or args.judgements:
        from capim.reports.rows.standing import AGAINST_BEST
        from capim.tasks.metrics.custom import with_judgements

        metric = with_judgements(args.judgements) if args.metric is None else args.metric
        rows = run_metric(config, metric, quiet=args.quiet, results=True)
        show_rows(args, rows, columns=(*RESULT_COLUMNS, *AGAINST_BEST))
        return
    refuse_unused(args, "without --metric", format="--format", columns="--columns", wide="--wide")
    run_evaluate(config, quiet=args.quiet)


def compare(args: argparse.Namespace) -> None:
    """Compare every pair of encoders on the same queries: significance tests and effect sizes.

    Over three corpora or more, the encoders are ranked by their macro mean and Borda count, with the ranks that the
    data leave open. The ranking is printed and stored (table rankings).

    With --metric, by a metric of your own; without it, its stored comparisons stay as they are.

    Example: capim compare --corpora shapes
    """
    config = _config(args)
    if args.metric is not None:
        refuse_unused(args, "with --metric", format="--format", columns="--columns", wide="--wide")
        run_metric(config, args.metric, quiet=args.quiet, results=False)
        return
    print_ranking(args, config.store_uri, run_compare(config, quiet=args.quiet).ranking)


def watch(args: argparse.Namespace) -> int:
    """Check for regressions since the pinned run; exit code 1 if there is one.

    Encodes a sample of every stored set again, and tests the figures of changed encoders against the pinned run, query
    by query: at most one year in twenty has a false alarm. The first watch pins itself; --baseline RUN pins another
    run, such as one whose changes are intended. Prints the findings, with changes of weights, libraries and data.

    Example: capim watch --corpora shapes --encoders tiny-clip
    """
    config = _config(args)
    from capim.flows.execution import start
    from capim.flows.watch import RegressionError
    from capim.flows.watch import watch as flow

    try:
        with bars(quiet=args.quiet, flow="watch", corpora=len(config.corpora)):
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
        from capim.reports.compare import write_comparison

        old, new = args.compare
        page = write_comparison(old, new, f"{config.reports_uri}/compared")
        sys.stdout.write(f"{link(str(page), sys.stdout)}\n")
        return 0
    from capim.flows.benchmark import publish
    from capim.flows.execution import start

    print_report(start(publish, config))
    return 0
