"""The steps of a run: each is one function with its options in its signature, a command and a method of a workspace.

Output of only the command line is a small function next to its command. Progress and messages go to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

from capim.flows import terminal
from capim.flows.config import (
    DEMO,
    AnalyseOptions,
    CompareOptions,
    EmbedOptions,
    EvaluateOptions,
    ReportOptions,
    RunConfig,
    RunOptions,
    Statistics,
    Suite,
    Watching,
    Where,
    listed,
    missing_names,
    run_config,
)
from capim.flows.inspection import check_names
from capim.flows.stored import in_order
from capim.flows.terminal import TABLE, Form, Rows, say
from capim.store import EmbeddingStore
from capim.store.connection import one_connection
from capim.store.errors import MissingStoreError, RequestError, WorkError, plain, unknown
from capim.store.forms import Columns, given_columns
from capim.store.rows import matching
from capim.store.schema import Comparison, Ranking, Result
from capim.tasks.references import encoder_name, rows_of

if TYPE_CHECKING:
    from capim.flows.benchmark import Benchmarked
    from capim.reports.rows.report_data import ShownResult
    from capim.reports.rows.standing import AgainstBest
    from capim.tasks.derive import Derived
    from capim.tasks.encoders.catalog import Facts
    from capim.tasks.metrics import Metric
    from capim.tasks.references import EmbedRef, EvaluationRef

T = TypeVar("T")
P = TypeVar("P", bound=Comparison)


def demo(*, workspace: str | None, quiet: bool) -> None:
    """Run everything on built-in corpora and tiny models, offline, in under two minutes.

    Rendered scenes (retrieval, Winoground, six languages), rendered document pages with questions and judgements, and
    four tiny models trained on data of that kind; a model without its library installed is left out. Prints the
    report's recommendation and its path.

    Example: capim demo --workspace /tmp/capim-demo
    """
    configs, left_out = demo_configs(workspace)
    sys.stderr.writelines(f"left out: {reason}\n" for reason in left_out)
    with one_connection():
        for config in configs:
            run(config, quiet=quiet, show=terminal.print_report, report="all" if config is configs[-1] else "none")


def demo_configs(workspace: str | None) -> tuple[list[RunConfig], list[str]]:
    """Return runs of the built-in corpora and models, and why a model is left out: an extra that is not installed."""
    from capim.tasks.encoders import require_libraries, spec_of

    left_out: dict[str, str] = {}
    for name in dict.fromkeys(name for _, encoders in DEMO for name in encoders):
        try:
            require_libraries(spec_of(name))
        except RequestError as missing:
            left_out[name] = str(missing)
    fields = {"name": "demo", "workspace": workspace, "replicates": 2000, "device": "cpu"}
    runs = [
        run_config({**fields, "corpora": corpora, "encoders": [name for name in encoders if name not in left_out]})
        for corpora, encoders in DEMO
    ]
    return runs, list(left_out.values())


def run(
    config: Annotated[RunConfig, RunOptions],
    *,
    quiet: bool,
    show: Callable[[str], None] = terminal.print_answer,
    report: Literal["run", "all", "none"] = "run",
    dry_run: bool = False,
    form: Form = TABLE,
) -> Benchmarked | Rows:
    """Encode, evaluate, compare and report: the whole pipeline.

    Stored embeddings are not encoded again. A corpus is a name (capim list corpora), a folder or file of your own
    images and captions (capim check), or a table in a suite file. Prints what the report recommends, and its
    path.

    With --dry-run, show stored and remaining work, step by step, with the time it would take at the
    speed of earlier runs and the size of the vectors; nothing is changed. Afterwards, `capim why` shows what a run did,
    and why.

    Example: capim run --corpora ./photos --encoders tiny-clip,tiny-colpali

    Returns:
        From Python, the path of the report; with ``dry_run``, a frame with one row per step, corpus and encoder.

    Raises:
        RequestError: The run names no corpora or no encoders, or they are wrong.
        IncompleteError: Some encoders failed; the others are in the report, which is shown first.
    """
    if faults := missing_names(config):
        raise RequestError(faults)
    if dry_run:
        return _planned(config, quiet=quiet)
    form.refuse("without --dry-run")

    def finish(done: Benchmarked) -> None:
        terminal.print_embedded(done.embedded)
        if done.report:
            show(done.report)

    done: Benchmarked = _run("benchmark:benchmark", config, quiet=quiet, show=finish, report=report)
    return done


def _planned(config: RunConfig, *, quiet: bool) -> Rows:
    """Return the work of a run as rows; print its total on standard error."""
    check_names(config, "benchmark")
    from capim.flows.planning import plan_run

    with terminal.bars(quiet=quiet):
        plan = plan_run(config)
    say(*(f"{each.subject}: {each.reason}" for each in plan.missing), plan.summary)
    return Rows(rows=[asdict(part) for part in plan.parts], keep=("step", "what", "stored", "to_do"), code=0)


def embed(
    config: Annotated[RunConfig, EmbedOptions],
    *,
    quiet: bool,
    only: Literal["images", "captions"] | None = None,
    shard: Annotated[int | None, "K"] = None,
    submit: bool = False,
) -> tuple[EmbedRef, ...]:
    """Encode corpora with encoders; what the store already has is skipped.

    An interrupted encode keeps its stored vectors; the same command continues it. With --submit, the workers of a
    Prefect server encode one shard each, side by side (deployments/README.md). Where the images of a corpus have no
    files, or its captions no text, only the other modality is encoded.

    Example: capim embed --corpora shapes --encoders tiny-clip --batch-size 64

    Args:
        shard: encode only shard K of --shards N, counted from 1
        submit: start the N runs of --shards N on a server's workers

    Returns:
        A frame with one row per encoder and corpus.

    Raises:
        IncompleteError: Some encoders failed; the others are encoded.
    """
    if submit:
        from capim.flows.embed import submit_shards

        if faults := missing_names(config):
            raise RequestError(faults)
        terminal.refuse_unused("with --submit, which starts every shard", **{"--shard": shard})
        sys.stdout.writelines(f"{line}\n" for line in submit_shards(config, only))
        return ()

    def show(done: tuple[EmbedRef, ...]) -> None:
        if not done:
            say(f"shard {shard} of {config.shards} is encoded; the sets are sealed when all shards are stored")
        terminal.print_embedded(done)

    done: tuple[EmbedRef, ...] = _run("embed:embed", config, quiet=quiet, show=show, shard=shard, only=only)
    return done


def evaluate(
    config: Annotated[RunConfig, EvaluateOptions],
    *,
    quiet: bool,
    own_metric: str | Metric | Callable[..., object] | None = None,
    judgements: str | None = None,
) -> Rows:
    """Compute ranks, metrics and intervals from stored embeddings; no model is loaded.

    Results that the store has are kept; a metric that is new in the table is computed from stored outcomes. With
    --format, --columns or --wide the results are printed; `capim results` prints them afterwards.

    A metric of your own (--own-metric) is a function in a Python file. It takes `outcomes`, or a score `block`, and
    returns one number per query. Its results, comparisons and slices are stored, and its results printed. So are those
    of R@1 with your judgements (--judgements), such as `capim serve` keeps in judgements.csv in the workspace. If you
    judged the misses that `capim export misses` wrote, it is R@1 corrected by them.

    Example: capim evaluate --corpora shapes --protocols t2i/all,i2t/any --replicates 2000

    Returns:
        From Python, the results as ``results`` gives them. ``own_metric`` may also be a function or a ``capim.Metric``;
        its rows have the test of each against the best other encoder.

    Raises:
        IncompleteError: Some encoders could not be scored; the others are.
    """
    if own_metric is not None and judgements:
        raise RequestError("--own-metric and --judgements are two metrics; give one at a time")
    if judgements:
        config, own_metric = _of_judgements(config, judgements)
    if own_metric is not None:
        rows = _evaluate_metric(config, own_metric, quiet=quiet, results=True)
        from capim.reports.rows.standing import AGAINST_BEST

        return Rows(rows=rows, columns=(*terminal.RESULT_COLUMNS, *AGAINST_BEST), code=0)

    def show(done: tuple[EvaluationRef, ...]) -> None:
        n_scored = sum(reference.n_scored for reference in done)
        n_protocols = sum(len(reference.evaluations) for reference in done)
        n_added = sum(reference.n_added for reference in done)
        added = f"; {n_added} results computed from stored outcomes" if n_added else ""
        say(f"{n_scored} protocols scored, {n_protocols - n_scored} were already stored{added}")

    done: tuple[EvaluationRef, ...] = _run("benchmark:evaluate", config, quiet=quiet, show=show)

    def figures() -> Iterator[ShownResult]:  # read only where they are shown
        yield from in_order(rows_of(EmbeddingStore.open(config.store_uri), Result, done))

    return Rows(rows=figures(), columns=terminal.RESULT_COLUMNS, code=0, instead=lambda form: form == Form())


def _of_judgements(config: RunConfig, file: str) -> tuple[RunConfig, Metric]:
    """Return the metric of a file of judgements, and the run of what the file is about, if it has judged misses."""
    from capim.tasks.metrics.custom import with_judgements
    from capim.tasks.results.judged_misses import corrected_metric, read_judged_misses

    if (judged := read_judged_misses(file)) is None:
        return config, with_judgements(file)
    known = (judged.corpus, judged.protocol, *judged.encoders)
    if strange := sorted({*map(str, (*config.corpora, *config.protocols, *config.encoders))} - {*known}):
        raise RequestError(f"{file} has judged misses of {', '.join(known)}, not of {', '.join(strange)}")
    encoders = config.encoders or judged.encoders
    config = replace(config, corpora=(judged.corpus,), protocols=(judged.protocol,), encoders=encoders)
    return config, corrected_metric(EmbeddingStore.open(config.store_uri), judged)


def _evaluate_metric(
    config: RunConfig,
    metric: str | Metric | Callable[..., object],
    *,
    quiet: bool,
    results: bool,
    first: str | None = None,
) -> list[AgainstBest] | list[dict[str, object]]:
    """Store a user's metric; returns its results, each tested against the best; without ``results`` its comparisons.

    Raises:
        RequestError: There is no result because every encoder was left out, or the metric fails.
    """
    from capim.tasks.metrics.custom import load_metric

    loaded = load_metric(metric)
    given = metric if isinstance(metric, str) else loaded  # a text can be a parameter of a Prefect run
    done: list[Derived] = _run("benchmark:evaluate_custom", config, given, quiet=quiet, results=results)
    from capim.reports.rows.standing import against_best, pair_columns, pair_rows

    left_out = [line for reference in done for line in reference.lines]
    store = EmbeddingStore.open(config.store_uri)
    figures, pairs = rows_of(store, Result, done), rows_of(store, Comparison, done)
    if left_out and not (figures or pairs):
        raise RequestError(left_out)
    say(*(f"left out: {line}" for line in left_out))
    say(f"{f'{len(figures)} results and ' if results else ''}{len(pairs)} comparisons by {loaded.name} stored")
    return against_best(in_order(figures), pairs) if results else [*map(pair_columns, pair_rows(pairs, first))]


def compare(
    config: Annotated[RunConfig, Suite, CompareOptions],
    *,
    quiet: bool,
    a: str | None = None,
    b: str | None = None,
    slice: Sequence[str] | None = None,  # noqa: A002 - the name of the option
    languages: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    own_metric: str | Metric | Callable[..., object] | None = None,
) -> Rows:
    """Compare every pair of encoders on the same queries: significance tests and effect sizes.

    Prints the pairs under the headline results: the difference of encoder_a minus encoder_b with its interval, the
    adjusted p-value, and what the tests say of encoder_a. --format json and csv print all comparisons that were made.

    Over three corpora or more, the encoders are ranked by their macro mean, with the ranks that the data leave open.
    The ranking is printed after the pairs and stored (table rankings).

    With --slice or --languages, the question is about some queries: is A better than B on shoes, in German? Each slice
    in each language and direction is one look; intervals and p-values hold for all looks of the request together.

    With --own-metric, encoders are compared by a metric of your own; otherwise its stored comparisons stay as they are.

    Example: capim compare --corpora shapes

    Two revisions of one model are NAME@REVISION: did the second help, and where?

    Example: capim compare --encoders theirs@v1,theirs@v2

    Example: capim compare --encoders tiny-clip,tiny-clip-plain --corpora shapes --slice objects=circle

    Returns:
        A frame with one row per pair and result, headline results first; ``compare(a, b)`` gives the rows of these two.
        ``difference`` is ``encoder_a`` (the first of the two) minus ``encoder_b``, with its interval; ``p_adjusted`` is
        adjusted over the pairs that are compared here, of headline results over those of all of them; ``state`` is what
        the tests say of ``encoder_a``: better, worse, equivalent or undecided.
    """
    config = _of_pair(config, a, b)
    if own_metric is not None:
        rows = _evaluate_metric(config, own_metric, quiet=quiet, results=False, first=a)
        from capim.reports.rows.standing import PAIR_COLUMNS

        return Rows(rows=rows, columns=PAIR_COLUMNS, code=0)
    from capim.tasks.metrics import METRICS
    from capim.tasks.metrics.table import RSUM
    from capim.tasks.protocols import Protocol

    wanted = _metrics_named(metrics, [*METRICS] if slice or languages else [*METRICS, RSUM.metric])
    if slice or languages:
        return _compare_slices(config, listed(slice) or (), listed(languages) or (), wanted)
    asked = [each for each in config.protocols if Protocol.of(each).is_combined]  # made of several, which are needed
    config, given = (replace(config, protocols=()), config.protocols) if asked else (config, ())
    done: list[Derived] = _run("benchmark:compare", config, quiet=quiet)
    recomputed, *_, ranking = done
    from capim.reports.elements.words import settled
    from capim.reports.rows.standing import PAIR_COLUMNS, headline_pairs, pair_columns, pair_rows, summary
    from capim.tasks.metrics import facts_of

    say(*recomputed.lines)
    of_some = f"; p-values are adjusted only over the pairs of {' and '.join(map(encoder_name, config.encoders))}"
    store = EmbeddingStore.open(config.store_uri)
    compared = rows_of(store, Comparison, done)
    known = sorted({row.protocol for row in compared})
    chosen = {each for name in given or known for each in matching(name, known)}
    compared = [_with_revisions(store, row) for row in compared if row.protocol in chosen]
    if config.encoders and not compared:
        raise RequestError(_apart(config))
    say(*summary(compared))
    sys.stderr.write(f"{len(compared)} comparisons stored{of_some if config.encoders else ''}\n")
    pairs = pair_rows(compared, a)
    if wanted:
        return Rows(rows=[pair_columns(row) for row in pairs if row.metric in wanted], columns=PAIR_COLUMNS, code=0)

    def headlines(form: Form) -> bool:
        shown = headline_pairs(pairs)
        if form not in (Form(), Form(format="table")) or (pairs and not shown):
            return False
        if shown:
            Rows(rows=shown, keep=("encoder_a", "encoder_b", "state", "difference", "p_adjusted", "corpus")).print(form)
            of_headline = [row for row in pairs if row.family == "headline"]
            for corpus in sorted({row.corpus for row in of_headline}):
                known = ((facts_of(row.metric), row) for row in of_headline if row.corpus == corpus)
                if line := settled((facts, row) for facts, row in known if facts is not None):
                    say(f"{corpus}: {line}")
        _print_ranking(store, ranking)
        return True

    return Rows(rows=[*map(pair_columns, pairs)], columns=PAIR_COLUMNS, code=0, instead=headlines)


def _apart(config: RunConfig) -> str:
    """Return the fault that these encoders have no result in common, with the states that each has results on."""
    from capim.tasks.evaluate import find_evaluations

    store = EmbeddingStore.open(config.store_uri)
    sets = [each.sets for each in find_evaluations.fn(replace(config.selection, protocols=()))]
    if len({of.encoder_fingerprint for of in sets}) == 1:
        return f"{sets[0].encoder}: expected two encoders or more: `capim results` shows the values of one"
    revisions = [f"{of.encoder}@{store.encoder(of.encoder_fingerprint).revision}" for of in sets]
    states = [f"{name} on {of.corpus} ({of.corpus_fingerprint})" for name, of in zip(revisions, sets, strict=True)]
    how = "`capim embed` or `capim import`, then `capim evaluate`, bring them to one state of a corpus"
    return f"no two of these encoders have a result in common: {', '.join(sorted(states))}; {how}"


def _with_revisions(store: EmbeddingStore, row: P) -> P:
    """Return a comparison in which two revisions of one encoder are named as ``NAME@REVISION``."""
    if row.encoder_a != row.encoder_b:
        return row
    a, b = (f"{row.encoder_a}@{store.encoder(each).revision}" for each in (row.fingerprint_a, row.fingerprint_b))
    return replace(row, encoder_a=a, encoder_b=b)


def _of_pair(config: RunConfig, a: str | None, b: str | None) -> RunConfig:
    """Return the run with the two encoders that were given first, if any were.

    Raises:
        RequestError: They are one, or others are named too.
    """
    pair = tuple(name for name in (a, b) if name is not None)
    if pair and a == b:
        raise RequestError(f"compare takes two encoders, got {a} twice")
    if pair and (config.encoders or len(pair) == 1):
        raise RequestError(
            f"compare takes two encoders, or encoders=[…]; got {', '.join(pair)} and {config.encoders or None}"
        )
    return replace(config, encoders=pair) if pair else config


def _metrics_named(metrics: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """Return those of some metrics that names or shell patterns mean.

    Raises:
        RequestError: A name that no metric has; a metric of the user's own is another option.
    """
    found = {name: matching(name, known) for name in listed(metrics) or ()}
    hint = "a metric of your own is --own-metric FILE.py:NAME; "
    faults = [f"{hint * (':' in name)}{unknown('metric', name, known)}" for name, meant in found.items() if not meant]
    if faults:
        raise RequestError(faults)
    return list(dict.fromkeys(name for meant in found.values() for name in meant))


def _compare_slices(config: RunConfig, slices: Sequence[str], languages: Sequence[str], metrics: Sequence[str]) -> Rows:
    """Return the comparisons of some queries; how many looks share one budget follows on standard error."""
    check_names(config, "compare")
    from capim.reports.rows.standing import SLICED_COLUMNS, sliced_pairs
    from capim.tasks.evaluate import find_evaluations
    from capim.tasks.metrics import METRICS
    from capim.tasks.references import by_corpus
    from capim.tasks.results.comparison import sliced_comparisons

    found = find_evaluations.fn(replace(config.selection, protocols=()))
    groups = [group for group in by_corpus(found) if len(group) > 1]
    if not groups:
        raise RequestError(_apart(config))
    asked = {"slices": slices, "languages": languages, "protocols": config.protocols}
    how: dict[str, Any] = {**asked, "metrics": [METRICS[name] for name in metrics], "resampling": config.resampling}
    store = EmbeddingStore.open(config.store_uri)
    compared = [_with_revisions(store, row) for group in groups for row in sliced_comparisons(store, group, **how)]
    rows, looks = sliced_pairs(compared)
    say(f"looks: {looks}; intervals and p-values hold for all of them and all pairs; other requests are not counted")
    return Rows(rows=rows, columns=SLICED_COLUMNS, code=0)


LIKE_THESE = "corpora like these"


def _print_ranking(store: EmbeddingStore, reference: Derived) -> None:
    """Print the ranking as a table, one line per encoder.

    The headlines and the encoders left out follow on standard error; also why there is no ranking.
    """
    rows = rows_of(store, Ranking, [reference])
    if rows:
        sys.stdout.write("\n")
        Rows(rows=_lines(rows), keep=("ranks", "encoder")).print(Form())
    for line in _words(rows) if rows else reference.lines:
        sys.stderr.writelines(f"{part}\n" for part in terminal.folded(plain(line), sys.stderr))


def _words(rows: Sequence[Ranking]) -> list[str]:
    """Return lines on the columns, and on rows that are not in the table."""
    from capim.reports.rows.standing import about_corpora, rests_on_few

    first, level = rows[0], f"{100 * rows[0].level:g} %"
    described = "; ".join(f"{corpus['corpus']} ({corpus['headline']})" for corpus in json.loads(first.corpora))
    like_these = {row.reason or "" for row in rows if row.estimand == LIKE_THESE and row.rank_low is None}
    return [
        f"macro_mean: mean over {described}; low, high: its {level} interval",
        f"ranks: those that it can hold, for all encoders together with {level} confidence; 1: tied with the best",
        *["few images: in so few, tests of skewed differences err more often than they say"] * rests_on_few(rows),
        *about_corpora(json.loads(first.corpora)),
        *(f"{LIKE_THESE}: {reason}" for reason in sorted(filter(None, like_these))),
        *(f"{row.encoder}: {row.reason}" for row in rows if row.value is None),
    ]


def _lines(rows: Sequence[Ranking]) -> list[dict[str, Any]]:
    """Return one row per ranked encoder, the best macro mean first."""
    from capim.reports.format import ranks

    like_these = {row.encoder_fingerprint: row for row in rows if row.estimand == LIKE_THESE}
    means = [row for row in rows if row.estimand == "these corpora" and row.value is not None]
    lines = []
    for row in sorted(means, key=lambda row: (-(row.value or 0.0), row.encoder)):
        of_suite, tested = ranks(row.rank_low or 0, row.rank_high or 0), like_these[row.encoder_fingerprint]
        other = {"ranks_like_these": ranks(tested.rank_low, tested.rank_high or 0)} if tested.rank_low else {}
        interval = {"macro_mean": row.value, "low": row.ci_low, "high": row.ci_high}
        lines.append({"ranks": of_suite, **other, "encoder": row.encoder, **interval, **json.loads(row.headlines)})
    return lines


def analyse(config: Annotated[RunConfig, AnalyseOptions], *, quiet: bool) -> Rows:
    """Analyse stored outcomes: misses, hard queries, calibration, ablations, and published results.

    Runs all analyses, or those that --analyses names, over the encoders of each corpus; the next report shows them.

    Example: capim analyse --corpora shapes --analyses errors,complexity

    Returns:
        Corpus and number of slices stored for it; `capim query "SELECT * FROM slices"` reads them.
    """
    stored: dict[str, int] = _run("benchmark:analyse", config, quiet=quiet)
    return Rows(rows=[{"corpus": corpus, "slices": n} for corpus, n in stored.items()])


def watch(
    config: Annotated[RunConfig, Suite, Where, Watching, "margin"], *, form: Form, quiet: bool, strict: bool = False
) -> None:
    """Check for regressions since the pinned run; exit code 1 if there is one.

    Encodes a sample of every stored set again, and tests the results of changed encoders against the pinned run, query
    by query: at most a 3% chance of a false alarm per year. The first watch pins itself; --baseline RUN pins another
    run, such as one with intended changes. Prints the findings, with changes of weights, libraries and data.

    For imported and combined models only results are tested. Without --encoders all stored results are, and
    no model is loaded: a gate for CI (docs/production.md).

    Example: capim watch --corpora shapes --encoders tiny-clip

    Example: capim watch --strict --format json

    Args:
        strict: also fail where there is nothing to compare with, without pinning it, and on a drop of a point or more
            where there are too few images for any drop to be significant
    """
    check_names(config, "watch")
    from capim.tasks.reference.changes import WatchRule

    regression: Any = None
    try:
        rule = WatchRule(strict=strict, fail_drop=config.margin / 100)
        done: Any = _run("benchmark:watch", config, quiet=quiet, rule=rule)
    except WorkError as error:
        from capim.flows.benchmark import RegressionError

        if not isinstance(error, RegressionError):
            raise
        done = regression = error
    found = [finding._asdict() for finding in done.findings]
    Rows(rows=found, columns=("verdict", "subject", "message"), none=lambda: "no findings").print(form)
    if regression is not None:
        raise WorkError(regression.short) from regression
    say(*done.summary)


def report(
    config: Annotated[RunConfig, ReportOptions],
    *,
    compare: Annotated[tuple[str, str] | None, "OLD NEW"] = None,
    everything: Annotated[bool, "--all"] = False,
    markdown: Literal["short", "whole"] = "short",
    show: Callable[[str], None] | None = None,
) -> str:
    """Write a report of the store, or of some corpora, encoders or protocols: HTML, Markdown and results.json.

    Prints what the report recommends, and its path. Where a result has several settings, it shows the default ones;
    the report of `capim run` shows what that run used, whatever else is in the store.

    With --compare, write a page about two reports instead: which results differ, whether the difference is significant,
    and what changed between the runs.

    Example: capim report --compare workspace/reports/OLD workspace/reports/NEW

    Args:
        compare: compare two reports instead
        everything: include samples of corpora next to the whole ones
        markdown: report.md of a hundred lines at most, or with every table

    Returns:
        From Python, the path of the report.
    """
    if compare:
        from capim.reports.compare import write_comparison

        unused = {f"--{name}": getattr(config, name) for name in ("corpora", "encoders", "protocols")}
        terminal.refuse_unused("with --compare", **unused, **{"--all": everything, "--markdown": markdown != "short"})
        page = write_comparison(*compare, f"{config.reports_uri}/compared")
    else:
        page = _run("benchmark:publish", config, quiet=True, everything=everything, markdown=markdown)
    if show:
        show(page)
    return page


def _run(
    place: str,
    config: RunConfig,
    *args: object,
    quiet: bool,
    show: Callable[[Any], None] | None = None,
    **options: object,
) -> Any:
    """Run the flow ``module:name`` and show its result, also if some encoders failed; the error then names them.

    Names are checked before the flow is imported, which takes seconds.
    """
    module, _, name = place.partition(":")
    with one_connection():
        check_names(config, name)
        with terminal.bars(quiet=quiet, flow=name, corpora=len(config.corpora), title=f"{name} {config.title}"):
            from capim.flows.execution import IncompleteError, start

            flow = getattr(import_module(f"capim.flows.{module}"), name)
            try:
                done, incomplete = start(flow, config, *args, **options), None
            except IncompleteError as error:
                done, incomplete = error.done, error
    if show:
        show(done)
    if incomplete is not None:
        raise incomplete
    return done


# --- `import`: embeddings, and outcomes of models without embeddings, that another program computed.

_OF_MODEL = ("corpus", "encoder", "revision", "same_as")
_FACTS = ("licence", "parameters", "training", "link")
_ABOUT = (*_OF_MODEL, "facts", *_FACTS)
_OF_OUTCOMES = (*_ABOUT, "protocol", "by_position", "dry_run", "replace", "replicates")
IMPORTS = {
    "embeddings": (("images", "captions", "vectors"), (*_ABOUT, "replace", "storage", "by_position", "dry_run")),
    "outcomes": (("outcomes",), _OF_OUTCOMES),  # hit lists name their models
    "scores": (("scores",), _OF_OUTCOMES),
    "runs": (("run", "qrels"), _OF_OUTCOMES),
    "published results": (("published",), ("dry_run",)),
    "facts only": ((), ("encoder", "facts", *_FACTS, "dry_run")),
}
"""Kind of import -> the options that name its files (one of them is needed), and other options that it takes."""


def import_(
    config: Annotated[RunConfig, "workspace", "storage", "replicates"],
    paths: Annotated[tuple[str, ...], "PATH"] = (),
    *,
    given: dict[str, Any],
    corpus: str | None = None,
    encoder: str | None = None,
    images: Annotated[str | None, "F"] = None,
    captions: Annotated[str | None, "F"] = None,
    revision: Annotated[str | None, "R"] = None,
    same_as: Annotated[str | None, "NAME"] = None,
    outcomes: Annotated[str | None, "F"] = None,
    scores: Annotated[str | None, "F"] = None,
    run: Annotated[tuple[str, ...], "F"] = (),
    qrels: Annotated[str | None, "F"] = None,
    published: Annotated[str | None, "F"] = None,
    facts: Annotated[str | None, "FILE.toml"] = None,
    licence: Annotated[str | None, "L"] = None,
    parameters: Annotated[float | None, "MILLIONS"] = None,
    training: Annotated[str | None, "TEXT"] = None,
    link: Annotated[str | None, "URL"] = None,
    protocol: Annotated[tuple[str, ...], "P,Q"] = (),
    by_position: bool = False,
    dry_run: bool = False,
    replace: bool = False,
    columns: Annotated[tuple[str, ...], "ROLE=NAME,…"] = (),
    skip_bad_rows: bool = False,
) -> None:
    """Import from other programs: embeddings, outcomes of models without embeddings, runs, published results.

    capim recognises the content of a file, and reports it, how its rows were matched with images, captions or queries,
    and the stored rows; with --dry-run it stores nothing. Where a file cannot be recognised, an option names its kind.

    Rows are matched by a column of ids, file names or texts under any usual name; by position only where there is none.
    Images and captions can be imported by two commands, and one model for many corpora, under one name and --revision.

    Qrels and runs need neither texts nor images; they give trec_eval's results under its names, and capim's next to
    them. Importing the same file again changes nothing.

    Facts that capim cannot know about such a model are given by --facts and its short forms, now or at any time later:
    `capim list encoders` shows it, and `capim choose` can limit it.

    Example: capim import images.npz captions.npz --encoder theirs --corpus shapes

    Example: capim import --encoder theirs --licence apache-2.0 --parameters 86

    Args:
        paths: files or folders; their contents are recognised
        corpus: a stored corpus, a name (capim list corpora), a folder or a TOML file (default: the only stored one); of
            qrels, the name to store them under
        encoder: name of the model that made the embeddings or the outcomes (of a run: its tag)
        images: image embeddings: .npy, .npz, .pt, .parquet, .safetensors, .csv or .json; FILE:NAME for one array
        captions: caption embeddings, in the same formats
        revision: version of the model (default: that of the stored model, else unversioned)
        same_as: stored encoder that made the imported vectors or outcomes; both are shown in one row
        outcomes: outcomes of a model without embeddings: a table (.csv, .json, .jsonl, .parquet), exported outcomes, or
            a folder of tables or of hit lists (MODEL_ir1_rank_index.npy …)
        scores: scores of every caption (rows) with every image (columns): .npy, .npz or .pt
        run: lists of the best items: TREC's run format, a table or JSON; may be repeated
        qrels: relevance judgements for the queries of runs: TREC's or BEIR's format, a table or JSON
        published: results that others published, to be shown next to your own: CLIP_benchmark, MTEB, ViDoRe, or a CSV
            with the columns model, dataset, metric, value
        facts: facts of the model (licence, parameters, dim, training, link), or of several, a table [NAME] for each
        licence: licence of its weights, an SPDX name
        parameters: number of its parameters, in millions
        training: its training data
        link: URL of its page
        protocol: protocols of the outcomes, scores or run (default: all that the file allows)
        by_position: take rows in the order of the corpus, whatever their columns hold
        dry_run: only show what would be stored
        replace: replace stored contents that differ
        columns: columns of a table by their role, where they have other than the usual names, such as
            query=qid,item=page (roles: docs/own_data.md)
        skip_bad_rows: leave out, and count, rows that cannot be read or are of items that the corpus does not have
    """
    roles = given_columns(columns)
    given = {name: value for name, value in given.items() if name not in ("paths", "columns", "skip_bad_rows")}
    given = _recognised(paths, given, roles)
    kind = _check_import({*given})
    named = [("run", path) for path in given.get("run", ())]
    named += [(name, given[name]) for name in ("outcomes", "scores", "qrels", "published") if name in given]
    if faults := [f"{path}: no such file; check --{name}" for name, path in named if not Path(path).exists()]:
        raise RequestError(faults)
    given |= _usual_corpus(kind, given, config)
    known = _facts(given)
    if kind == "embeddings":
        from capim.flows.exchange import import_ as flow
        from capim.flows.execution import start
        from capim.store.sets.importing import ImportRow

        names = ("corpus", "images", "captions", "vectors", "revision", "same_as")
        of_row = {name: given[name] for name in names if name in given}
        of_row["columns"] = tuple((role, str(name)) for role, name in roles.items())
        encoder = given.get("encoder") or given.get("same_as", "")
        row = ImportRow(encoder=encoder, skip_bad_rows=skip_bad_rows, **of_row)
        say(*start(flow, config, row, replace=replace, by_position=by_position, plan=dry_run))
    elif kind != "facts only":
        from capim.flows.exchange import import_outcomes
        from capim.flows.execution import start
        from capim.tasks.results.imported.runs import tag_of
        from capim.tasks.results.imported.sources import Kind, Source

        option = {"runs": "qrels" if "qrels" in given else "run", "published results": "published"}.get(kind, kind)
        path, *more = [given[option]] if isinstance(given[option], str) else given[option]
        if more:
            raise RequestError(
                f"--run: {1 + len(more)} runs in one command need --qrels FILE; import them one at a time"
            )
        name = given.get("encoder") or given.get("same_as") or (tag_of(Path(path)) if option == "run" else "")
        runs = tuple(given.get("run", ())) if option == "qrels" else ()
        of_model = {"revision": revision, "same_as": same_as}
        source = Source(cast("Kind", option), path, name, protocol, by_position, runs, roles, skip_bad_rows, **of_model)
        say(*start(import_outcomes, config, given.get("corpus"), source, replace=replace, plan=dry_run))
    if not dry_run:
        from capim.tasks.imports import lacking_facts, write_facts

        store = EmbeddingStore.open(config.store_uri)
        say(*(write_facts(store, known) if known else lacking_facts(store, given.get("encoder", ""))))


def _facts(given: Mapping[str, Any]) -> dict[str, Facts]:
    """Return the facts that a file and the options give about each encoder."""
    if not given.keys() & {"facts", *_FACTS}:
        return {}
    from capim.tasks.encoders.catalog import read_facts

    options = {name: given[name] for name in _FACTS if name in given}
    return read_facts(given.get("facts"), options, given.get("encoder") or given.get("same_as"))


def _recognised(paths: Sequence[str], given: dict[str, Any], columns: Columns) -> dict[str, Any]:
    """Return the options with those of files given without one; reports the kind recognised for each file."""
    from capim.tasks.results.imported.recognised import recognise

    found = [each for path in paths for each in recognise(Path(path), columns)]
    options = dict(given)
    for each in found:
        say(str(each))
        name = {"image": "images", "caption": "captions"}.get(each.side or "", "vectors")
        name = name if each.what == "vectors" else "corpus" if each.what == "judged" else each.what
        if each.what == "run":
            options["run"] = (*options.get("run", ()), str(each.path))
        elif name in options:
            other = options[name]
            kinds = "--images and --captions" if name == "vectors" else "their options (capim import --help)"
            raise RequestError(f"{each.path} and {other} are both taken for {name}; name their kinds with {kinds}")
        else:
            options[name] = _judged(each.path) if each.what == "judged" else str(each.path)
    return options


def _judged(folder: Path) -> str | dict[str, Any]:
    """Return the corpus of a folder of queries, documents and judgements; its images may be absent."""
    has_images = (folder / "images").is_dir()
    return str(folder) if has_images else {"reader": "judged", "dataset": str(folder.absolute()), "ids_only": True}


def _usual_corpus(kind: str, given: Mapping[str, Any], config: RunConfig) -> dict[str, Any]:
    """Return the only stored corpus, as an option, if one is needed and none is named."""
    if "corpus" in given or "qrels" in given or kind not in ("embeddings", "outcomes", "scores", "runs"):
        return {}
    try:
        register = EmbeddingStore.open(config.store_uri).corpora()
    except MissingStoreError:
        register = []
    newest = {row.name: row.fingerprint for row in sorted(register, key=lambda row: row.written)}
    names = sorted(newest)
    if len(names) != 1:
        held = f"; the store holds {', '.join(names)}" if names else ""
        or_qrels = ", a folder or a TOML file, or --qrels FILE" if kind == "runs" else ""
        raise RequestError(f"an import of {kind} needs --corpus NAME{or_qrels}{held}")
    say(f"corpus: {names[0]}, the only one of the store")
    return {"corpus": newest[names[0]]}  # a folder may have its name


def _check_import(given: set[str]) -> str:
    """Return the kind of import; refuse options that name no kind, several, or have no effect on it."""
    kinds = [kind for kind, (sources, _) in IMPORTS.items() if given & {*sources}]
    kinds = kinds or ["facts only"] * bool(given & {"facts", *_FACTS})
    if len(kinds) != 1:
        raise RequestError(
            "give one thing to import: a file or folder, or --images and --captions, --outcomes, --scores, "
            "--run, --qrels or --published" + (f"; got {' and '.join(kinds)}" if kinds else "")
        )
    [kind] = kinds
    every = {name for names in IMPORTS.values() for part in names for name in part}
    unused = (given & every) - {name for part in IMPORTS[kind] for name in part}
    faults = [f"--{name.replace('_', '-')} has no effect on an import of {kind}; leave it out" for name in unused]
    if kind in ("embeddings", "scores") and not given & {"encoder", "same_as"}:
        faults.append(f"an import of {kind} needs --encoder NAME")
    if given >= {"encoder", "same_as"}:
        faults.append("--encoder names a model, --same-as a stored one; give one of them")
    if "qrels" in given and "run" not in given:
        faults.append("--qrels FILE holds relevance judgements; give the runs too: --run FILE")
    if faults:
        raise RequestError(sorted(faults))
    return kind


# --- `rerank`, `fuse`: stored encoders combined; nothing is encoded.


def rerank(
    config: Annotated[RunConfig, "corpora", Statistics],
    *,
    first: str,
    second: str,
    depths: Annotated[tuple[str, ...], "N,M"] = ("1", "5", "10", "20", "50", "100"),
    quiet: bool,
) -> None:
    """Retrieve with one encoder and re-rank its first N results with another, at several depths N.

    The largest depth is stored as the encoder FIRST-then-SECOND, which `capim compare` and `capim report` treat like
    any other. The report shows accuracy and cost at every depth.

    Example: capim rerank --first tiny-clip-plain --second tiny-colpali --corpora shapes

    Args:
        first: encoder that retrieves
        second: encoder that re-ranks the first N results
        depths: re-ranking depths (default: 1,5,10,20,50,100)
    """
    numbers = _numbers("--depths", depths, int, "whole numbers")
    if any(not 1 <= depth <= 100 for depth in numbers):
        raise RequestError(
            f"--depths must be between 1 and 100, the length of stored result lists, got {', '.join(depths)}"
        )
    config = replace(config, encoders=(first, second))
    done = _run("exchange:rerank_flow", config, first, second, numbers, quiet=quiet)
    sys.stdout.writelines(f"{name}\n" for name in done)


def fuse(
    config: Annotated[RunConfig, Where, Statistics], *, weights: Annotated[tuple[str, ...], "X=U,Y=V"] = (), quiet: bool
) -> None:
    """Fuse several encoders: reciprocal rank fusion of stored result lists, or with --weights a sum of scores.

    A weighted sum adds cosine similarities; a MaxSim score is divided by the number of caption tokens first.

    Example: capim fuse --encoders tiny-clip,tiny-colpali --corpora shapes --weights tiny-clip=7,tiny-colpali=3

    Args:
        weights: each encoder and its weight, for a weighted sum of scores
    """
    encoders = tuple(config.encoders)
    if len(encoders) < 2:
        raise RequestError(f"--encoders must name at least two encoders to fuse, got {', '.join(encoders) or 'none'}")
    given = dict(word.rpartition("=")[::2] for word in weights)
    if weights and (given.keys() != {*encoders} or len(given) < len(weights)):
        expected = ",".join(f"{name}=1" for name in encoders)
        raise RequestError(f"--weights must name each encoder once, such as {expected}; got {', '.join(weights)}")
    numbers = _numbers("--weights", [given[name] for name in encoders if weights], float, "numbers")
    if numbers and not (all(0 <= weight < float("inf") for weight in numbers) and any(numbers)):
        raise RequestError(f"--weights must be finite, at least 0 and not all 0, got {', '.join(weights)}")
    done = _run("exchange:fuse_flow", config, numbers, quiet=quiet)
    sys.stdout.writelines(f"{name}\n" for name in done)


def _numbers(option: str, words: Sequence[str], kind: Callable[[str], T], expected: str) -> tuple[T, ...]:
    try:
        return tuple(map(kind, words))
    except ValueError as error:
        raise RequestError(f"{option} must be {expected}, got {', '.join(words)}") from error
