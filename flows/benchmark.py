"""Flow `benchmark`: embed -> evaluate -> compare -> publish.

Each step is a flow of its own that can run, be scheduled and be repeated alone; this one only says what comes
after what. References travel between them, never arrays: whatever a step makes is in the store when it ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from prefect import flow

from flows.compare import compare
from flows.config import RunConfig
from flows.embed import embed
from flows.evaluate import evaluate
from flows.execution import call, timeout_seconds
from flows.publish import publish
from flows.request import check_request
from flows.runs import recorded_run
from tasks.runtime.references import EmbedRef


@dataclass(frozen=True, kw_only=True)
class BenchmarkRef:
    """What a benchmark run left behind."""

    run: str
    embedded: tuple[EmbedRef, ...]
    report: str


@flow(
    name="benchmark",
    flow_run_name="benchmark {config.title}",
    timeout_seconds=timeout_seconds(96),
)
def benchmark(config: RunConfig) -> BenchmarkRef:
    """Run the whole pipeline; a run that names no encoders evaluates what the store has."""
    if config.encoders or config.corpora:
        check_request(config)
    with recorded_run(config, "benchmark") as run:
        embedded = call(embed, config, run) if config.encoders else ()
        sets = tuple(reference.sets for reference in embedded) or None
        evaluated = call(evaluate, config, run, sets)
        call(compare, config, run, tuple({reference.sets.corpus: None for reference in evaluated}))
        report = call(publish, config, run)
    return BenchmarkRef(run=run, embedded=embedded, report=report)
