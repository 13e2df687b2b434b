"""Flow `compare`: every encoder against every other on shared queries, and what makes queries hard."""

from __future__ import annotations

from prefect import flow

from flows.config import RunConfig
from flows.execution import call
from flows.runs import recorded_run
from tasks.compare import compare_corpus
from tasks.diagnose import diagnose_corpus
from tasks.find import find_evaluations
from tasks.references import CompareRef, EvaluationRef


@flow(name="compare", flow_run_name="compare-{config.name}")
def compare(
    config: RunConfig, run: str | None = None, corpora: tuple[str, ...] | None = None
) -> tuple[CompareRef, ...]:
    """Compare all encoders that were evaluated on a corpus, earlier runs' and imported ones too; slice their outcomes.

    Args:
        config: What the run is asked to do.
        run: Id of the larger run that this is a step of.
        corpora: Names in the store; None: those of the configuration, or all where it names none.
    """
    evaluations = call(find_evaluations, config.store_uri, corpora=config.corpora if corpora is None else corpora)
    with recorded_run(config, "compare", run) as run_id:
        by_corpus: dict[str, list[EvaluationRef]] = {}
        for evaluation in evaluations:
            by_corpus.setdefault(evaluation.sets.corpus_fingerprint, []).append(evaluation)
        return tuple(_compare(config, tuple(members), run_id) for members in by_corpus.values())


def _compare(config: RunConfig, evaluations: tuple[EvaluationRef, ...], run: str) -> CompareRef:
    """Both steps of one corpus."""
    compared = call(
        compare_corpus,
        evaluations,
        store_uri=config.store_uri,
        resampling=config.resampling,
        run=run,
    )
    call(
        diagnose_corpus,
        evaluations,
        store_uri=config.store_uri,
        resampling=config.resampling,
        run=run,
    )
    return compared
