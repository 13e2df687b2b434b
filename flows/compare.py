"""Flow `compare`: pairwise comparisons of encoders, diagnostic slices, and one ranking over the corpora."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from capim.flows.config import RunConfig
from capim.flows.execution import call, call_each, run_flow
from capim.flows.request import evaluations_of
from capim.flows.runs import recorded_run
from capim.tasks.compare import compare_combined, compare_corpus, rank_suite
from capim.tasks.complete import complete_figures, find_outdated
from capim.tasks.diagnose import diagnose_corpus
from capim.tasks.diagnosis.table import check_analyses
from capim.tasks.runtime.references import CompareRef, EvaluationRef, RankingRef, by_corpus

PROTOCOLS_AT_ONCE = 4  # in one task: enough that opening the store is little of it, few enough to spread


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What a run compared: one reference per corpus and a few of its protocols, and the ranking.

    ``renewed`` are evaluations of which another version of a metric had made results.
    """

    comparisons: tuple[CompareRef, ...]
    ranking: RankingRef
    renewed: tuple[EvaluationRef, ...] = ()


@run_flow("compare", hours=24)
def compare(config: RunConfig) -> Compared:
    """Compare the run's encoders on its corpora, by its protocols; all that were evaluated where none is named."""
    check_analyses(config.analyses)
    evaluations = evaluations_of(config)
    with recorded_run(config, "compare") as run:
        return compare_step(config, run, evaluations)


def compare_step(config: RunConfig, run: str, evaluations: tuple[EvaluationRef, ...]) -> Compared:
    """Compare these evaluations corpus by corpus, slice their outcomes, and rank the encoders over the corpora.

    Results by another version of a metric than the one that compares are computed anew first.
    """
    arguments: dict[str, Any] = {"store_uri": config.store_uri, "resampling": config.resampling, "run": run}
    outdated: tuple[EvaluationRef, ...] = call(find_outdated, config.store_uri, evaluations)
    if outdated:
        call_each(complete_figures, [{"evaluation": each, "protocols": (), **arguments} for each in outdated])
    groups = by_corpus(evaluations)
    compared = call_each(
        compare_corpus,
        [{"evaluations": group, "protocols": part, **arguments} for group in groups for part in _families(group)],
    )
    compared += call_each(compare_combined, [{"evaluations": group, **arguments} for group in groups])
    call_each(diagnose_corpus, [{"evaluations": group, "analyses": config.analyses, **arguments} for group in groups])
    ranking = call(rank_suite, evaluations, **arguments)
    return Compared(comparisons=tuple(compared), ranking=ranking, renewed=outdated)


def _families(evaluations: tuple[EvaluationRef, ...]) -> list[tuple[str, ...]]:
    """The protocols of one corpus, a few at a time: p-values are adjusted within a protocol, never across."""
    protocols = sorted({protocol for evaluation in evaluations for protocol in evaluation.evaluations})
    return [tuple(protocols[at : at + PROTOCOLS_AT_ONCE]) for at in range(0, len(protocols), PROTOCOLS_AT_ONCE)]
