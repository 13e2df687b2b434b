"""The steps of a run with their progress and messages on standard error: what `capim` and `import capim` both call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from capim.flows.config import DEMO, FIELDS, RunConfig, missing_names, read_suite, run_config
from capim.flows.terminal.output import print_embedded
from capim.flows.terminal.parser import STEP_FIELDS, names
from capim.flows.terminal.progress import bars
from capim.store.errors import RequestError, plain, unknown
from capim.tasks.runtime.references import encoder_name

if TYPE_CHECKING:
    from capim.flows.benchmark import BenchmarkRef, Compared
    from capim.tasks.metrics.custom import CustomMetric
    from capim.tasks.runtime.references import EmbedRef, EvaluationRef

_EVERYWHERE = ("name", "sample", "seed")  # fields of a suite file that every step uses; a sample has its own name
_NAMES = ("corpora", "encoders", "protocols", "analyses", "distractors")


class Statistics(TypedDict, total=False):
    """Options of everything that computes figures."""

    replicates: int
    level: float
    interval: Literal["wilson", "percentile", "bca"]
    seed: int


class Comparison(Statistics, total=False):
    """Options of comparisons."""

    adjustment: Literal["max-t", "holm", "benjamini-hochberg"]
    permutations: int
    margin: float
    analyses: str | Sequence[str]


class Encoding(TypedDict, total=False):
    """Options of everything that encodes."""

    sample: int
    batch_size: int | Literal["auto"]
    device: str
    shards: int
    precision: Literal["float32", "bfloat16", "float16"]
    storage: Literal["float32", "float16"]
    compile: bool
    trust_remote_code: bool


class Embedding(Encoding, total=False):
    """Options of `embed`."""

    seed: int


class Evaluation(Statistics, total=False):
    """Options of `evaluate`."""

    device: str
    keep_replicates: bool
    memory: int | str
    parts: int
    distractors: str | Sequence[str]


class Run(Encoding, Comparison, total=False):
    """Options of `run`."""

    keep_replicates: bool
    memory: int | str
    parts: int
    distractors: str | Sequence[str]


def step_config(step: str, options: Mapping[str, Any], suite: str | Path | None = None) -> RunConfig:
    """The run of a step: its options (None: not given) and a suite file, whose unused fields are named.

    Names are a list, or one text with commas.

    Raises:
        RequestError: Lists everything that is wrong with the options and with the suite file.
    """
    used = {"corpora", "encoders", "workspace", *STEP_FIELDS[step]}
    given = {name: value for name, value in options.items() if value is not None}
    faults = [unknown("option", name, sorted(used)) for name in given if name not in used]
    empty = [name for name in _NAMES if listed(given.get(name)) == ()]
    if faults := [*faults, *(f"{name}: no name is given; without {name} all are taken" for name in empty)]:
        raise RequestError(faults)
    if suite is not None:
        unused = [name for name in read_suite(suite) if name in FIELDS and name not in {*used, *_EVERYWHERE}]
        if unused:
            sys.stderr.write(f"{suite}: {', '.join(unused)}: without effect on `capim {step}`\n")
    return run_config({name: listed(value) if name in _NAMES else value for name, value in given.items()}, suite)


def listed(given: Any) -> tuple[Any, ...] | None:
    """Names as the command line takes them: a text is split at its commas, paths become texts, a table is one name.

    Examples:
        >>> listed("a, b"), listed(["a", Path("b")]), listed(None)
        (('a', 'b'), ('a', 'b'), None)
    """
    if isinstance(given, str):
        return names(given)
    if isinstance(given, Path | Mapping):
        return listed([given])
    return given if given is None else tuple(str(name) if isinstance(name, Path) else name for name in given)


def run_benchmark(config: RunConfig, *, quiet: bool, show: Callable[[str], None], report: bool = True) -> BenchmarkRef:
    """Run the whole pipeline; ``show`` gets the path of the report, also if some encoders failed.

    Without ``report`` none is written, and the path is empty.

    Raises:
        RequestError: The run names no corpora or no encoders, or they are wrong.
        IncompleteError: Some encoders failed, the others are in the report.
    """
    from capim.flows.benchmark import benchmark

    if faults := missing_names(config):
        raise RequestError(faults)

    def finish(done: BenchmarkRef) -> None:
        print_embedded(done.embedded)
        if done.report:
            show(done.report)

    done: BenchmarkRef = _run(benchmark, config, quiet=quiet, show=finish, report=report)
    return done


def run_embed(
    config: RunConfig, *, quiet: bool, shard: int | None = None, only: Literal["images", "captions"] | None = None
) -> tuple[EmbedRef, ...]:
    """Encode what is missing in the store; one reference per encoder and corpus.

    Raises:
        IncompleteError: Some encoders failed; the others are encoded.
    """
    from capim.flows.embed import embed

    def show(done: tuple[EmbedRef, ...]) -> None:
        if not done:
            sys.stderr.write(
                f"shard {shard} of {config.shards} is encoded; the sets are sealed when all shards are stored\n"
            )
        print_embedded(done)

    done: tuple[EmbedRef, ...] = _run(embed, config, quiet=quiet, show=show, shard=shard, only=only)
    return done


def run_evaluate(config: RunConfig, *, quiet: bool) -> tuple[EvaluationRef, ...]:
    """Compute the figures that the store does not have; one reference per encoder and corpus.

    Raises:
        IncompleteError: Some encoders could not be scored; the others are.
    """
    from capim.flows.benchmark import evaluate

    def show(done: tuple[EvaluationRef, ...]) -> None:
        n_scored = sum(reference.n_scored for reference in done)
        n_protocols = sum(len(reference.evaluations) for reference in done)
        n_added = sum(reference.n_added for reference in done)
        added = f"; {n_added} figures computed from stored outcomes" if n_added else ""
        sys.stderr.write(f"{n_scored} protocols scored, {n_protocols - n_scored} were already stored{added}\n")

    done: tuple[EvaluationRef, ...] = _run(evaluate, config, quiet=quiet, show=show)
    return done


def run_metric(
    config: RunConfig,
    metric: str | CustomMetric | Callable[..., object],
    *,
    quiet: bool,
    results: bool,
    first: str | None = None,
) -> list[dict[str, Any]]:
    """Store a user's metric; returns its results, each with its test against the best, or without them comparisons.

    Raises:
        RequestError: There is no figure because every encoder was left out, or the metric fails.
    """
    from capim.flows.benchmark import evaluate_custom
    from capim.flows.commands.workspace import in_order
    from capim.flows.execution import start
    from capim.reports.rows.standing import against_best, pair_rows
    from capim.store import EmbeddingStore
    from capim.tasks.metrics.custom import load_metric

    loaded = metric if isinstance(metric, str) else load_metric(metric)
    with bars(quiet=quiet):
        done = start(evaluate_custom, config, loaded, results=results)
    left_out = [line for reference in done for line in reference.left_out]
    figures = [row for reference in done for row in reference.results]
    pairs = [row for reference in done for row in reference.comparisons]
    if left_out and not figures + pairs:
        raise RequestError(left_out)
    sys.stderr.writelines(f"left out: {plain(line)}\n" for line in left_out)
    stored = f"{len(figures)} results and " if results else ""
    sys.stderr.write(f"{stored}{len(pairs)} comparisons by {plain(str(loaded))} stored\n")
    store = EmbeddingStore.open(config.store_uri)
    comparisons = store.rows("comparisons", comparison=pairs).to_pylist() if pairs else []
    if not results:
        return pair_rows(comparisons, first)
    found = in_order(store.rows("results", result=figures)).to_pylist() if figures else []
    return against_best(found, comparisons)


def run_compare(config: RunConfig, *, quiet: bool) -> Compared:
    """Compare every pair of encoders, slice their outcomes and rank them; says what was compared."""
    from capim.flows.benchmark import compare
    from capim.flows.execution import start
    from capim.reports.rows.standing import summary
    from capim.store import EmbeddingStore
    from capim.tasks.compare import compared_rows

    with bars(quiet=quiet, flow="compare"):
        done = start(compare, config)
    for each in done.renewed:
        where = f"{each.sets.encoder} on {each.sets.corpus}"
        sys.stderr.write(f"{plain(where)}: results by another version of a metric were computed anew\n")
    of_some = f"; p-values are adjusted over the pairs of {' and '.join(map(encoder_name, config.encoders))} alone"
    stored = sum(reference.n_comparisons for reference in done.comparisons)
    for line in summary(compared_rows(EmbeddingStore.open(config.store_uri), done.comparisons)):
        sys.stderr.write(f"{plain(line)}\n")
    sys.stderr.write(f"{stored} comparisons stored{of_some if config.encoders else ''}\n")
    return done


def _run(flow: Any, config: RunConfig, *, quiet: bool, show: Callable[[Any], None], **options: object) -> Any:
    """Run a flow and show what it returns; also if some encoders failed, which the error at the end names."""
    from capim.flows.execution import start
    from capim.flows.runs import IncompleteError

    try:
        with bars(quiet=quiet, flow=flow.name, corpora=len(config.corpora)):
            done = start(flow, config, **options)
    except IncompleteError as incomplete:
        show(incomplete.done)
        raise
    show(done)
    return done


def demo_configs(workspace: str | None) -> tuple[list[RunConfig], list[str]]:
    """Runs of the embedded corpora and models, and why a model is left out: an extra that is not installed."""
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
