"""Flow `evaluate`: exact ranks and metrics with intervals, for every sealed pair of embedding sets."""

from __future__ import annotations

from typing import Any

from capim.flows.config import RunConfig
from capim.flows.execution import Failed, attempt_each, call, call_each, refuse_all, run_flow
from capim.flows.request import device_faults, evaluations_of
from capim.flows.runs import IncompleteError, recorded_run
from capim.store.errors import RequestError
from capim.tasks.complete import complete_figures, find_outcomes
from capim.tasks.custom_metric import custom_metric
from capim.tasks.diagnosis.table import BY_PART, check_analyses
from capim.tasks.discover import find_sets
from capim.tasks.metrics.custom import CustomMetric, load_metric
from capim.tasks.runtime.references import EvaluationRef, MetricRef, Missing, SetsRef, by_corpus
from capim.tasks.score import score
from capim.tasks.score_part import check_scoring, score_distractors, score_part


@run_flow("evaluate", hours=24)
def evaluate(config: RunConfig) -> tuple[EvaluationRef, ...]:
    """Score the newest sets of the run's encoders and corpora (all where none is named); one reference per pair.

    Encoders that have outcomes only get the metrics that these lack.

    Raises:
        IncompleteError: Some encoders could not be scored; the others are.
    """
    wanted: dict[str, Any] = {
        "corpora": config.corpora,
        "encoders": config.encoders,
        "sample": config.sample,
        "seed": config.seed,
    }
    sets: tuple[SetsRef, ...] = call(find_sets, config.store_uri, **wanted)
    outcomes: tuple[EvaluationRef, ...] = call(find_outcomes, config.store_uri, **wanted)
    if faults := device_faults(config):
        raise RequestError(faults)
    if config.protocols or config.distractors:
        named = {"protocols": config.protocols, "distractors": config.distractors}
        call(check_scoring, (*sets, *(each.sets for each in outcomes)), store_uri=config.store_uri, **named)
    with recorded_run(config, "evaluate") as run:
        evaluated, missing = evaluate_step(config, run, sets)
        settings = _settings(config, run)
        completed = tuple(call_each(complete_figures, [{"evaluation": each, **settings} for each in outcomes]))
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
        attempt_each(score_part, [{**piece, **where, **how} for piece in pieces])
    settings = {"n_parts": n_parts, **how, **_settings(config, run)}
    attempts = attempt_each(score, [{"sets": pair, **settings} for pair in sets])
    failed = {pair: one for pair, one in zip(sets, attempts, strict=True) if isinstance(one, Failed)}
    if failed and len(failed) == len(sets):
        refuse_all(list(failed.values()))
    if config.distractors:
        how |= {"corpora": config.distractors, "resampling": config.resampling, "run": run}
        scored = [pair for pair in sets if pair not in failed and pair.corpus not in config.distractors]
        call_each(score_distractors, [{"sets": pair, "store_uri": config.store_uri, **how} for pair in scored])
    missing = [Missing(subject=f"{pair.encoder} on {pair.corpus}", reason=one.reason) for pair, one in failed.items()]
    return tuple(one for one in attempts if not isinstance(one, Failed)), tuple(missing)


def _settings(config: RunConfig, run: str) -> dict[str, Any]:
    """What tasks that compute figures have in common."""
    return {
        "store_uri": config.store_uri,
        "protocols": config.protocols,
        "resampling": config.resampling,
        "keep_replicates": config.keep_replicates,
        "run": run,
    }


@run_flow("custom-metric", hours=24, title=lambda config, metric, **_: f"{metric} {config.title}")
def evaluate_custom(config: RunConfig, metric: str | CustomMetric, *, results: bool = True) -> tuple[MetricRef, ...]:
    """Evaluate a user's metric on stored evaluations, compare encoders by it, and slice it.

    ``metric`` is ``FILE.py:NAME``, or the loaded metric. Without ``results`` only the comparisons and slices. One
    reference per corpus.
    """
    load_metric(metric)  # a wrong request leaves no record of a run
    check_analyses(config.analyses)
    if config.analyses and not results and set(config.analyses).isdisjoint(BY_PART):
        raise RequestError(f"{', '.join(config.analyses)}: a metric of your own is sliced by {', '.join(BY_PART)}")
    evaluations = evaluations_of(config)
    with recorded_run(config, "custom-metric") as run:
        arguments = _settings(config, run) | {
            "metric": metric,
            "analyses": config.analyses,
            "device": config.device.partition(",")[0],
            "results": results,
        }
        return tuple(call_each(custom_metric, [{"evaluations": e, **arguments} for e in by_corpus(evaluations)]))
