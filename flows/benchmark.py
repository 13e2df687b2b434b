"""Flow `benchmark`: embed -> evaluate -> compare -> publish, in one flow run; and flow `watch`: checks for regressions.

Each step can also run by itself, as a flow. Steps exchange references, never arrays: the rows of a step are in the
store when it ends. Tasks that few runs need are imported by the flow that calls them: with their libraries, they take
seconds.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Literal, NamedTuple, get_args

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
)
from capim.flows.inspection import device_faults, watched_parts
from capim.store import EmbeddingStore
from capim.store.errors import RequestError, WorkError, without_credentials
from capim.tasks import evaluate as scoring
from capim.tasks.analyses.table import check_analyses
from capim.tasks.compare import compare_combined, compare_corpus, rank_suite
from capim.tasks.corpora.naming import base_name
from capim.tasks.corpora.opened import OpenCorpora
from capim.tasks.derive import Derived
from capim.tasks.metrics import Metric
from capim.tasks.metrics.custom import load_metric
from capim.tasks.prefects.task import artifact_key, show_table
from capim.tasks.reference.changes import Verdict, WatchedFigures, WatchFinding, WatchRule
from capim.tasks.references import (
    EmbedRef,
    EvaluationRef,
    Missing,
    RunSettings,
    Selection,
    SetsRef,
    by_corpus,
    encoder_name,
)
from capim.tasks.report import EVERY, diagnose_corpus, publish_report

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
    sets = call(scoring.find_sets, config.selection)
    outcomes = call(scoring.find_outcomes, config.selection)
    if faults := device_faults(config):
        raise RequestError(faults)
    if config.protocols:
        scored = (*sets, *(each.sets for each in outcomes))
        call(scoring.check_scoring, scored, store_uri=config.store_uri, protocols=config.protocols)
    with recorded_run(config, "evaluate") as settings:
        evaluated, missing = evaluate_step(config, settings, sets)
        completed = _completed(settings, outcomes)
        if missing:
            raise IncompleteError((*evaluated, *completed), missing)
    return (*evaluated, *completed)


def evaluate_step(
    config: RunConfig, settings: RunSettings, sets: tuple[SetsRef, ...]
) -> tuple[tuple[EvaluationRef, ...], tuple[Missing, ...]]:
    """Score these sets under the run's protocols; returns one reference per pair, and the pairs that failed.

    Raises:
        WorkError: All pairs failed.
    """
    how = {"settings": settings, "n_parts": config.parts}
    if config.parts > 1:  # a part that fails is scored again by `score`, which says why
        numbers = range(1, config.parts + 1)
        pieces = [{"sets": pair, "part": part, **how} for pair in sets for part in numbers]
        map_collecting_failures(scoring.score_part, pieces)
    attempts = map_collecting_failures(scoring.score, [{"sets": pair, **how} for pair in sets])
    failed = {pair: one for pair, one in zip(sets, attempts, strict=True) if isinstance(one, Exception)}
    if failed and len(failed) == len(sets):
        refuse_all(list(failed.values()))
    missing = [
        Missing(subject=f"{pair.encoder} on {pair.corpus}", reason=reason_of(one)) for pair, one in failed.items()
    ]
    return tuple(one for one in attempts if not isinstance(one, Exception)), tuple(missing)


def _completed(settings: RunSettings, evaluations: Sequence[EvaluationRef]) -> tuple[EvaluationRef, ...]:
    """Compute the results that stored outcomes lack; return one reference per evaluation."""
    return tuple(call_each(scoring.complete_figures, [{"evaluation": e, "settings": settings} for e in evaluations]))


@run_flow("custom-metric", hours=24, title=lambda config, metric, **_: f"{metric} {config.title}")
def evaluate_custom(config: RunConfig, metric: str | Metric, *, results: bool = True) -> tuple[Derived, ...]:
    """Evaluate a user's metric on stored evaluations, compare encoders by it, and slice it.

    ``metric`` is ``FILE.py:NAME``, or the loaded metric. Without ``results`` only the comparisons and slices. One
    reference per corpus.
    """
    from capim.tasks.custom_metric import custom_metric

    load_metric(metric)  # a wrong request leaves no record of a run
    evaluations = evaluations_of(config)
    with recorded_run(config, "custom-metric") as settings:
        how = {"settings": settings, "metric": metric, "results": results}
        return tuple(call_each(custom_metric, [{"evaluations": e, **how} for e in by_corpus(evaluations)]))


# --- Flow `compare`: pairwise comparisons of encoders, and one ranking over the corpora. Flow `analyse`: their slices.


PROTOCOLS_AT_ONCE = 4  # in one task: enough that opening the store is little of it, few enough to spread


@run_flow("compare", hours=24)
def compare(config: RunConfig) -> list[Derived]:
    """Compare the run's encoders on its corpora, by its protocols; all that were evaluated where none is named.

    Results by another version of a metric than the one that compares are computed again first.

    Returns:
        Lines about results that were computed again; the comparisons, in several parts; and the ranking.
    """
    evaluations = evaluations_of(config)
    with recorded_run(config, "compare") as settings:
        outdated: tuple[EvaluationRef, ...] = call(scoring.find_outdated, config.store_uri, evaluations)
        _completed(replace(settings, protocols=()), outdated)
        compared = compare_step(settings, evaluations)
        again = "results of an older version of a metric were recomputed"
        lines = tuple(f"{each.sets.encoder} on {each.sets.corpus}: {again}" for each in outdated)
        return [Derived(lines=lines), *compared]


@run_flow("analyse", hours=24)
def analyse(config: RunConfig) -> dict[str, int]:
    """Analyse the outcomes of the run's encoders on its corpora; returns corpus -> number of slices stored."""
    check_analyses(config.analyses)
    evaluations = evaluations_of(config)
    with recorded_run(config, "analyse") as settings:
        done = analyse_step(settings, evaluations)
    stored = Counter[str]()
    for group, each in zip(by_corpus(evaluations), done, strict=True):
        stored[group[0].sets.corpus] += each.n_rows  # several states may have one name
    return dict(stored)


def compare_step(settings: RunSettings, evaluations: tuple[EvaluationRef, ...]) -> list[Derived]:
    """Compare these evaluations corpus by corpus, and rank the encoders over the corpora; the ranking comes last."""
    groups = by_corpus(evaluations)
    parts = [{"evaluations": e, "settings": settings, "protocols": part} for e in groups for part in _families(e)]
    compared = call_each(compare_corpus, parts)
    compared += call_each(compare_combined, [{"evaluations": e, "settings": settings} for e in groups])
    return [*compared, call(rank_suite, evaluations, settings)]


def analyse_step(settings: RunSettings, evaluations: tuple[EvaluationRef, ...]) -> list[Derived]:
    """Slice these evaluations, corpus by corpus, by the analyses that are named, or all."""
    return call_each(diagnose_corpus, [{"evaluations": e, "settings": settings} for e in by_corpus(evaluations)])


def _families(evaluations: tuple[EvaluationRef, ...]) -> list[tuple[str, ...]]:
    """Return the protocols of one corpus, a few at a time: p-values are adjusted within a protocol, never across."""
    protocols = sorted({protocol for evaluation in evaluations for protocol in evaluation.evaluations})
    return [tuple(protocols[at : at + PROTOCOLS_AT_ONCE]) for at in range(0, len(protocols), PROTOCOLS_AT_ONCE)]


# --- Flow `publish`: the report of what the store has.


REPORTS_VARIABLE = "CAPIM_REPORTS_URL"  # where browsers find the reports of the workspace


@run_flow("publish", hours=2)
def publish(config: RunConfig, everything: bool = False, markdown: Literal["short", "whole"] = "short") -> str:
    """Write the report of the run's encoders, corpora and protocols (all where none is named); returns its path.

    Where no corpus is named, a sample is left out next to its whole corpus, unless ``everything`` is wanted.

    Raises:
        RequestError: A name has no results; nothing was written.
    """
    found = evaluations_of(config)
    named = [(each.sets.corpus_fingerprint, each.sets.corpus) for each in found]
    corpora = tuple(dict.fromkeys(state if state in config.corpora else name for state, name in named))
    if not config.corpora:
        whole_of = {row.name: base_name(row) for row in EmbeddingStore.open(config.store_uri).corpora() if row.sample}
        whole = tuple(name for name in corpora if whole_of.get(name) not in corpora)
        corpora = whole if whole != corpora and not everything else ()
    encoders = tuple(map(EmbeddingStore.open(config.store_uri).fingerprint_of, map(encoder_name, config.encoders)))
    if several := _in_several_states(found):
        raise RequestError(
            f"{several}: a report shows one revision of an encoder and one state of a corpus; "
            "name one, or see them together by `capim compare` and `capim results`"
        )
    with recorded_run(config, "report") as settings:
        chosen = {"corpora": corpora, "encoders": encoders, "protocols": tuple(config.protocols)}
        return publish_step(config, settings.run, chosen=chosen, markdown=markdown)


def _in_several_states(evaluations: Sequence[EvaluationRef]) -> str:
    """Return the first encoder and corpus with several evaluations, of several states; empty if each has one."""
    pairs = Counter(f"{each.sets.encoder} on {each.sets.corpus}" for each in evaluations)
    return next((pair for pair, n in pairs.items() if n > 1), "")


def publish_step(
    config: RunConfig,
    run: str,
    *,
    of_run: bool = False,
    chosen: Mapping[str, Sequence[str]] = EVERY,
    markdown: Literal["short", "whole"] = "short",
) -> str:
    """Write the report of the chosen encoders, corpora and protocols: of all that the store has, or the run used."""
    where = {"store_uri": config.store_uri, "reports_uri": config.reports_uri, "run": run, "of_run": of_run}
    what = {"chosen": chosen, "markdown": markdown, "reports_url": os.environ.get(REPORTS_VARIABLE)}
    [page] = call_each(publish_report, [{**where, **what}])
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
        stored = call(scoring.find_sets, config.selection)
    with recorded_run(config, "benchmark") as settings:
        run = settings.run
        embedded, missing = embed_step(config, run, request, opened) if request is not None else ((), ())
        sets = stored or tuple(reference.sets for reference in paired(embedded))
        evaluated, unscored = evaluate_step(config, settings, sets)
        missing = (*missing, *unscored)
        corpora = tuple(dict.fromkeys(evaluation.sets.corpus_fingerprint for evaluation in evaluated))
        with after(evaluated):
            evaluations = call(scoring.find_evaluations, Selection(store_uri=config.store_uri, corpora=corpora))
        own = {each.sets for each in evaluated}
        _completed(settings, [each for each in evaluations if each.sets not in own])  # the report compares with them
        shown = (compare_step(settings, evaluations), analyse_step(settings, evaluations))
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
        """Return the first failure, the number of further findings, and the summary."""
        first, *others = self.findings
        more = f"; {len(others)} more findings" if others else ""
        line = f"{self.what}: [{first.verdict}] {first.subject}: {first.message}{more}"
        return "\n  - ".join([line, *self.summary])

    def __reduce__(self) -> tuple[type[RegressionError], tuple[object, ...]]:
        return (type(self), (self.findings, self.summary))


def _complete_sets(config: RunConfig) -> tuple[SetsRef, ...]:
    """Return the stored embedding sets of a watch; none of encoders that have only outcomes."""
    found: tuple[SetsRef, ...] = ()
    selections = [replace(config.selection, encoders=(each,)) for each in config.encoders] or [config.selection]
    for selection in selections:
        with suppress(RequestError):
            found = (*found, *call(scoring.find_sets, selection))
    return found


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
    with recorded_run(config, "watch") as settings:
        run = settings.run
        encoded, missing = embed_step(loaded, run, request, opened) if loaded and request else ((), ())
        embedded = paired(encoded)
        corpora = {reference.corpus.name: reference.corpus for reference in embedded}.values()
        findings = [WatchFinding("note", f"data of {c.name}", change) for c in corpora for change in c.changes]
        for spec in request.encoders if request else ():
            of_spec = [reference for reference in embedded if reference.sets.encoder_fingerprint == spec.fingerprint]
            trusted = config.trusts(spec.name)
            changed: list[WatchFinding] = call(
                watch_vectors, spec, of_spec, opened, settings, trust_remote_code=trusted, rule=rule
            )
            findings += changed
        sets = tuple(reference.sets for reference in embedded)
        evaluated, unscored = evaluate_step(config, settings, (*sets, *(_complete_sets(stored) if stored else ())))
        if stored:
            own = {each.sets for each in evaluated}
            evaluated += tuple(each for each in evaluations_of(stored) if each.sets not in own)
        if several := _in_several_states(evaluated):
            raise RequestError(
                f"{several}: a watch follows one revision of an encoder on one state of a corpus; name one at a time"
            )
        findings += [WatchFinding("fail", each.subject, each.reason) for each in (*missing, *unscored)]
        figures = call(watch_metrics, evaluated, settings, baseline=config.baseline, rule=rule)
        libraries = call(watch_libraries, figures.baselines, store_uri=config.store_uri)
        findings += [*figures.findings, *libraries]
        description = "; ".join([f"Regression watch {run}", *figures.summary, f"rule: {asdict(rule)}"])
        show_table(artifact_key("watch", config.store_uri), [finding._asdict() for finding in findings], description)
        failed = [finding for finding in findings if finding.verdict == "fail"]
        if failed:
            subjects = "; ".join(dict.fromkeys(finding.subject for finding in failed))
            first = str(failed[0].message)
            announce("capim.regression", config.workspace, n_regressions=len(failed), first=first, subjects=subjects)
        if failed or any(finding.verdict == "unpinned" for finding in findings):
            raise RegressionError(tuple(findings), figures.summary)
    return replace(figures, findings=tuple(findings))
