"""Flow `benchmark`: embed -> evaluate -> compare -> publish, in one flow run; and flow `watch`: checks for regressions.

Each step can also run by itself, as a flow. Steps exchange references, never arrays: the rows of a step are in the
store when it ends. Tasks that few runs need are imported by the flow that calls them: with their libraries, they take
seconds.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Literal, NamedTuple, get_args

from capim.flows.config import RunConfig
from capim.flows.embed import check_request, embed_step, evaluations_of, paired
from capim.flows.execution import (
    IncompleteError,
    after,
    announce,
    call,
    call_each,
    map_collecting_failures,
    reason_of,
    record_end,
    recorded_run,
    refuse_all,
    run_flow,
    task_settings,
)
from capim.flows.inspection import device_faults, watched_parts
from capim.store import EmbeddingStore
from capim.store.errors import RequestError, WorkError, without_credentials
from capim.tasks import evaluate as scoring
from capim.tasks.analyses.table import check_analyses, of_parts
from capim.tasks.compare import compare_combined, compare_corpus, rank_suite
from capim.tasks.corpora.opened import OpenCorpora
from capim.tasks.derive import Derived
from capim.tasks.metrics import Metric
from capim.tasks.metrics.custom import load_metric
from capim.tasks.prefects.task import artifact_key, show_table
from capim.tasks.reference.changes import Verdict, WatchedFigures, WatchFinding, WatchRule
from capim.tasks.references import EmbedRef, EvaluationRef, Missing, SetsRef, by_corpus, encoder_name
from capim.tasks.report import diagnose_corpus, publish_report

log = logging.getLogger(__name__)

# --- Flow `evaluate`: exact ranks and metrics with intervals, for every sealed pair of embedding sets.


@run_flow("evaluate", hours=24)
def evaluate(config: RunConfig) -> tuple[EvaluationRef, ...]:
    """Score the newest sets of the run's encoders and corpora (all where none is named); one reference per pair.

    Encoders that have outcomes only get the metrics that these lack.

    Args:
        config: What to score, and under which protocols.

    Raises:
        IncompleteError: Some encoders could not be scored; the others are.
    """
    sets = call(scoring.find_sets, config.store_uri, **config.selection)
    outcomes = call(scoring.find_outcomes, config.store_uri, **config.selection)
    if faults := device_faults(config):
        raise RequestError(faults)
    if config.protocols or config.distractors:
        _check_scoring(config, (*sets, *(each.sets for each in outcomes)))
    with recorded_run(config, "evaluate") as run:
        evaluated, missing = evaluate_step(config, run, sets)
        settings = _settings(config, run)
        completed = tuple(call_each(scoring.complete_figures, [{"evaluation": each, **settings} for each in outcomes]))
        if missing:
            raise IncompleteError((*evaluated, *completed), missing)
    return (*evaluated, *completed)


def evaluate_step(
    config: RunConfig, run: str, sets: tuple[SetsRef, ...]
) -> tuple[tuple[EvaluationRef, ...], tuple[Missing, ...]]:
    """Score these sets under the run's protocols; returns one reference per pair, and the pairs that failed.

    Raises:
        WorkError: All pairs failed.
    """
    how: dict[str, Any] = {"device": config.device.partition(",")[0], "memory_bytes": config.memory}
    n_parts = config.parts
    if n_parts > 1:  # a part that fails is scored again by `score`, which says why
        where = {"store_uri": config.store_uri, "protocols": config.protocols}
        numbers = range(1, n_parts + 1)
        pieces = [{"sets": pair, "part": part, "n_parts": n_parts} for pair in sets for part in numbers]
        map_collecting_failures(scoring.score_part, [{**piece, **where, **how} for piece in pieces])
    settings = {"n_parts": n_parts, **how, **_settings(config, run)}
    attempts = map_collecting_failures(scoring.score, [{"sets": pair, **settings} for pair in sets])
    failed = {pair: one for pair, one in zip(sets, attempts, strict=True) if isinstance(one, Exception)}
    if failed and len(failed) == len(sets):
        refuse_all(list(failed.values()))
    if config.distractors:
        from capim.tasks.combine import score_distractors

        how |= {"corpora": config.distractors, **task_settings(config, run)}
        scored = [pair for pair in sets if pair not in failed and pair.corpus not in config.distractors]
        call_each(score_distractors, [{"sets": pair, **how} for pair in scored])
    missing = [
        Missing(subject=f"{pair.encoder} on {pair.corpus}", reason=reason_of(one)) for pair, one in failed.items()
    ]
    return tuple(one for one in attempts if not isinstance(one, Exception)), tuple(missing)


def _check_scoring(config: RunConfig, sets: tuple[SetsRef, ...]) -> None:
    named = {"protocols": config.protocols, "distractors": config.distractors}
    call(scoring.check_scoring, sets, store_uri=config.store_uri, **named)


def _settings(config: RunConfig, run: str) -> dict[str, Any]:
    """Return the arguments of every task that computes results under the run's protocols."""
    chosen = {"protocols": config.protocols, "keep_replicates": config.keep_replicates}
    return task_settings(config, run) | chosen


@run_flow("custom-metric", hours=24, title=lambda config, metric, **_: f"{metric} {config.title}")
def evaluate_custom(config: RunConfig, metric: str | Metric, *, results: bool = True) -> tuple[Derived, ...]:
    """Evaluate a user's metric on stored evaluations, compare encoders by it, and slice it.

    ``metric`` is ``FILE.py:NAME``, or the loaded metric. Without ``results`` only the comparisons and slices. One
    reference per corpus.
    """
    from capim.tasks.custom_metric import custom_metric

    load_metric(metric)  # a wrong request leaves no record of a run
    check_analyses(config.analyses)
    if config.analyses and not results and set(config.analyses).isdisjoint(of_parts()):
        raise RequestError(f"{', '.join(config.analyses)}: metrics of your own are sliced by {', '.join(of_parts())}")
    evaluations = evaluations_of(config)
    with recorded_run(config, "custom-metric") as run:
        own = {"metric": metric, "analyses": config.analyses, "results": results}
        arguments = _settings(config, run) | own | {"device": config.device.partition(",")[0]}
        return tuple(call_each(custom_metric, [{"evaluations": e, **arguments} for e in by_corpus(evaluations)]))


# --- Flow `compare`: pairwise comparisons of encoders, and one ranking over the corpora. Flow `analyse`: their slices.


PROTOCOLS_AT_ONCE = 4  # in one task: enough that opening the store is little of it, few enough to spread


@run_flow("compare", hours=24)
def compare(config: RunConfig) -> list[Derived]:
    """Compare the run's encoders on its corpora, by its protocols; all that were evaluated where none is named.

    Results by another version of a metric than the one that compares are computed again first.

    Returns:
        Lines about results that were computed again; the comparisons, in several parts; and the ranking.
    """
    check_analyses(config.analyses)
    evaluations = evaluations_of(config)
    with recorded_run(config, "compare") as run:
        outdated: tuple[EvaluationRef, ...] = call(scoring.find_outdated, config.store_uri, evaluations)
        anew = [{"evaluation": each, **_settings(config, run), "protocols": ()} for each in outdated]
        call_each(scoring.complete_figures, anew)
        compared = compare_step(config, run, evaluations)
        if config.analyses:
            analyse_step(config, run, evaluations)
        again = "results of an older version of a metric were recomputed"
        lines = tuple(f"{each.sets.encoder} on {each.sets.corpus}: {again}" for each in outdated)
        return [Derived(lines=lines), *compared]


@run_flow("analyse", hours=24)
def analyse(config: RunConfig) -> dict[str, int]:
    """Analyse the outcomes of the run's encoders on its corpora; returns corpus -> number of slices stored."""
    check_analyses(config.analyses)
    evaluations = evaluations_of(config)
    with recorded_run(config, "analyse") as run:
        done = analyse_step(config, run, evaluations)
    corpora = (group[0].sets.corpus for group in by_corpus(evaluations))
    return {corpus: each.n_rows for corpus, each in zip(corpora, done, strict=True)}


def compare_step(config: RunConfig, run: str, evaluations: tuple[EvaluationRef, ...]) -> list[Derived]:
    """Compare these evaluations corpus by corpus, and rank the encoders over the corpora; the ranking comes last."""
    arguments = task_settings(config, run)
    groups = by_corpus(evaluations)
    compared = call_each(
        compare_corpus,
        [{"evaluations": group, "protocols": part, **arguments} for group in groups for part in _families(group)],
    )
    compared += call_each(compare_combined, [{"evaluations": group, **arguments} for group in groups])
    return [*compared, call(rank_suite, evaluations, **arguments)]


def analyse_step(config: RunConfig, run: str, evaluations: tuple[EvaluationRef, ...]) -> list[Derived]:
    """Slice these evaluations, corpus by corpus, by the analyses that are named, or all."""
    arguments = task_settings(config, run) | {"analyses": config.analyses}
    return call_each(diagnose_corpus, [{"evaluations": group, **arguments} for group in by_corpus(evaluations)])


def _families(evaluations: tuple[EvaluationRef, ...]) -> list[tuple[str, ...]]:
    """Return the protocols of one corpus, a few at a time: p-values are adjusted within a protocol, never across."""
    protocols = sorted({protocol for evaluation in evaluations for protocol in evaluation.evaluations})
    return [tuple(protocols[at : at + PROTOCOLS_AT_ONCE]) for at in range(0, len(protocols), PROTOCOLS_AT_ONCE)]


# --- Flow `publish`: the report of what the store has.


REPORTS_VARIABLE = "CAPIM_REPORTS_URL"  # where browsers find the reports of the workspace


@run_flow("publish", hours=2)
def publish(config: RunConfig, everything: bool = False, markdown: Literal["short", "whole"] = "short") -> str:
    """Write the report of the run's encoders, corpora and protocols (all where none is named); returns its path.

    Samples of corpora are left out where there are whole corpora and none is named, unless ``everything`` is wanted.

    Raises:
        RequestError: A name has no results; nothing was written.
    """
    found = evaluations_of(config)
    named = [(each.sets.corpus_fingerprint, each.sets.corpus) for each in found]
    corpora = tuple(dict.fromkeys(state if state in config.corpora else name for state, name in named))
    if not config.corpora:
        samples = {row.name for row in EmbeddingStore.open(config.store_uri).corpora() if row.sample}
        whole = tuple(name for name in corpora if name not in samples)
        corpora = whole if whole and whole != corpora and not everything else ()
    encoders = tuple(map(EmbeddingStore.open(config.store_uri).fingerprint_of, map(encoder_name, config.encoders)))
    several = [pair for pair, n in Counter((each.sets.encoder, each.sets.corpus) for each in found).items() if n > 1]
    if several:
        raise RequestError(
            f"{' on '.join(several[0])}: a report shows one revision of an encoder and one state of a corpus; "
            "name one, or see them together by `capim compare` and `capim results`"
        )
    with recorded_run(config, "report") as run:
        wanted = tuple(config.protocols)
        return publish_step(config, run, corpora=corpora, encoders=encoders, protocols=wanted, markdown=markdown)


def publish_step(
    config: RunConfig,
    run: str,
    *,
    of_run: bool = False,
    corpora: tuple[str, ...] = (),
    encoders: tuple[str, ...] = (),
    protocols: tuple[str, ...] = (),
    markdown: Literal["short", "whole"] = "short",
) -> str:
    """Write the report of these encoders, corpora and protocols; of all that the store has, or that the run used."""
    where = {"store_uri": config.store_uri, "reports_uri": config.reports_uri, "run": run, "of_run": of_run}
    chosen = {"corpora": corpora, "encoders": encoders, "protocols": protocols, "markdown": markdown}
    where |= {"reports_url": os.environ.get(REPORTS_VARIABLE)}
    [page] = call_each(publish_report, [{**where, **chosen}])
    announce("capim.report", config.workspace, run=run, path=without_credentials(page))
    return page


class Benchmarked(NamedTuple):
    """The embedding sets and the report of a benchmark run; no path if none was written."""

    embedded: tuple[EmbedRef, ...]
    report: str


@run_flow("benchmark", hours=96)
def benchmark(config: RunConfig, report: Literal["run", "all", "none"] = "run") -> Benchmarked:
    """Run the whole pipeline; without encoders, evaluate stored embeddings.

    Args:
        config: What to run.
        report: What the report shows: what this run used, or all that the store has; or no report.

    Raises:
        IncompleteError: Some encoders failed; the others are in the report, which names those that failed.
    """
    opened = OpenCorpora()
    request = check_request(config, opened) if config.encoders or config.corpora else None
    stored: tuple[SetsRef, ...] = ()
    if request is None:
        stored = call(scoring.find_sets, config.store_uri, corpora=(), encoders=())
    with recorded_run(config, "benchmark") as run:
        embedded, missing = embed_step(config, run, request, opened) if request is not None else ((), ())
        sets = stored or tuple(reference.sets for reference in paired(embedded))
        if config.distractors:  # which this run may have encoded
            _check_scoring(config, sets)
        evaluated, unscored = evaluate_step(config, run, sets)
        missing = (*missing, *unscored)
        corpora = tuple(dict.fromkeys(evaluation.sets.corpus_fingerprint for evaluation in evaluated))
        with after(evaluated):
            evaluations = call(scoring.find_evaluations, config.store_uri, corpora=corpora)
        own = {each.sets for each in evaluated}
        others = [each for each in evaluations if each.sets not in own]  # the report compares with them
        call_each(scoring.complete_figures, [{"evaluation": each, **_settings(config, run)} for each in others])
        shown = (compare_step(config, run, evaluations), analyse_step(config, run, evaluations))
        record_end(EmbeddingStore.open(config.store_uri), run, missing)
        with after(shown):
            page = "" if report == "none" else publish_step(config, run, of_run=report == "run")
        done = Benchmarked(embedded, page)
        if missing:
            raise IncompleteError(done, missing)
    return done


class RegressionError(WorkError):
    """A watch found a regression, or a strict one nothing to compare with.

    Carries all findings, failures first, and the summary of the watch.
    """

    def __init__(self, findings: tuple[WatchFinding, ...], summary: tuple[str, ...] = ()) -> None:
        order = get_args(Verdict)
        self.findings = tuple(sorted(findings, key=lambda finding: order.index(finding.verdict)))
        self.summary = summary
        self.what = "regression" if self.findings[0].verdict == "fail" else "nothing to compare with (--strict)"
        problem = "; ".join(f"[{f.verdict}] {f.subject}: {f.message}" for f in self.findings)
        super().__init__("\n  - ".join([f"{self.what}: {problem}", *summary]))

    @property
    def short(self) -> str:
        """The first failure, the number of further findings, and the summary."""
        first, *others = self.findings
        more = f"; {len(others)} more findings" if others else ""
        line = f"{self.what}: [{first.verdict}] {first.subject}: {first.message}{more}"
        return "\n  - ".join([line, *self.summary])

    def __reduce__(self) -> tuple[type[RegressionError], tuple[object, ...]]:
        return (type(self), (self.findings, self.summary))


def _complete_sets(config: RunConfig) -> tuple[SetsRef, ...]:
    """Return the stored embedding sets of a watch; none where the encoders have only outcomes."""
    with suppress(RequestError):
        return call(scoring.find_sets, config.store_uri, **config.selection)
    return ()


@run_flow("watch", hours=24)
def watch(config: RunConfig, rule: WatchRule = WatchRule()) -> WatchedFigures:  # noqa: B008 - frozen; the form shows it
    """Compare with the pinned run.

    Args:
        config: Encoders and corpora to watch, and ``baseline``, a run to pin; ``seed`` draws the sample.
        rule: Which differences fail, which warn, and how many false alarms a year may have.

    Raises:
        RequestError: Among other faults, the run to pin has no results of these encoders.
        RegressionError: At least one finding fails.
    """
    from capim.tasks.watch import check_baseline, watch_libraries, watch_metrics, watch_vectors

    opened = OpenCorpora()
    encoders = tuple(encoder_name(entry) for entry in config.encoders)
    faults = call(check_baseline, config.baseline, store_uri=config.store_uri, encoders=encoders)
    loaded, stored = watched_parts(config)
    request = check_request(loaded, opened, known=faults) if loaded else None
    if faults and request is None:
        raise RequestError(faults)
    with recorded_run(config, "watch") as run:
        encoded, missing = embed_step(loaded, run, request, opened) if loaded and request else ((), ())
        embedded = paired(encoded)
        corpora = {reference.corpus.name: reference.corpus for reference in embedded}.values()
        findings = [WatchFinding("note", f"data of {c.name}", change) for c in corpora for change in c.changes]
        how: dict[str, Any] = {"store_uri": config.store_uri, "device": config.device.partition(",")[0], "run": run}
        how |= {"rule": rule, "seed": config.seed}
        for spec in request.encoders if request else ():
            of_spec = [reference for reference in embedded if reference.sets.encoder_fingerprint == spec.fingerprint]
            trusted = config.trusts(spec.name)
            changed: list[WatchFinding] = call(watch_vectors, spec, of_spec, opened, trust_remote_code=trusted, **how)
            findings += changed
        sets = tuple(reference.sets for reference in embedded)
        evaluated, unscored = evaluate_step(config, run, (*sets, *(_complete_sets(stored) if stored else ())))
        if stored:
            own = {each.sets for each in evaluated}
            evaluated += tuple(each for each in evaluations_of(stored) if each.sets not in own)
        findings += [WatchFinding("fail", each.subject, each.reason) for each in (*missing, *unscored)]
        figures = call(watch_metrics, evaluated, baseline=config.baseline, rule=rule, **task_settings(config, run))
        libraries = call(watch_libraries, figures.baselines, store_uri=config.store_uri)
        findings += [*figures.findings, *libraries]
        description = "; ".join([f"Regression watch {run}", *figures.summary, f"rule: {asdict(rule)}"])
        show_table(artifact_key("watch", config.store_uri), [finding._asdict() for finding in findings], description)
        failed = [finding for finding in findings if finding.verdict == "fail"]
        if failed:
            subjects = "; ".join(dict.fromkeys(finding.subject for finding in failed))
            first = str(failed[0].message)
            announce("capim.regression", config.workspace, n_regressions=len(failed), first=first, subjects=subjects)
        if failed or (rule.strict and any(finding.verdict == "pinned" for finding in findings)):
            raise RegressionError(tuple(findings), figures.summary)
    return replace(figures, findings=tuple(findings))
