"""Flow `benchmark`: embed -> evaluate -> compare -> publish, in one flow run.

Each step can also run alone, as a flow. Steps exchange references, never arrays: what a step makes is in the store when
it ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from capim.flows.compare import compare_step
from capim.flows.config import RunConfig
from capim.flows.embed import embed_step, paired
from capim.flows.evaluate import evaluate_step
from capim.flows.execution import call, run_flow
from capim.flows.publish import publish_step
from capim.flows.request import check_request
from capim.flows.runs import IncompleteError, record_end, recorded_run
from capim.tasks.discover import find_evaluations, find_sets
from capim.tasks.runtime.open_corpora import OpenCorpora
from capim.tasks.runtime.references import EmbedRef, SetsRef
from capim.tasks.score_part import check_scoring


@dataclass(frozen=True, kw_only=True)
class BenchmarkRef:
    """The run id, the embedding sets and the report of a benchmark run; no path if none was written."""

    run: str
    embedded: tuple[EmbedRef, ...]
    report: str


@run_flow("benchmark", hours=96)
def benchmark(config: RunConfig, report: bool = True) -> BenchmarkRef:
    """Run the whole pipeline, the report included if it is wanted; without encoders, evaluate what is stored.

    Raises:
        IncompleteError: Some encoders failed; the others are in the report, which names those that failed.
    """
    opened = OpenCorpora()
    request = check_request(config, opened) if config.encoders or config.corpora else None
    stored: tuple[SetsRef, ...] = ()
    if request is None:
        stored = call(find_sets, config.store_uri, corpora=(), encoders=())
    with recorded_run(config, "benchmark") as run:
        embedded, missing = embed_step(config, run, request, opened) if request is not None else ((), ())
        sets = stored or tuple(reference.sets for reference in paired(embedded))
        if config.distractors:  # which this run may have encoded
            named = {"protocols": config.protocols, "distractors": config.distractors}
            call(check_scoring, sets, store_uri=config.store_uri, **named)
        evaluated, unscored = evaluate_step(config, run, sets)
        missing = (*missing, *unscored)
        corpora = tuple(dict.fromkeys(evaluation.sets.corpus_fingerprint for evaluation in evaluated))
        compare_step(config, run, call(find_evaluations, config.store_uri, corpora=corpora))
        record_end(config, run, missing)
        page = publish_step(config, run) if report else ""
        done = BenchmarkRef(run=run, embedded=embedded, report=page)
        if missing:
            raise IncompleteError(done, missing)
    return done
