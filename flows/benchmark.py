"""Flow `benchmark`: embed -> evaluate -> compare -> publish.

Each step is a flow that can also run, be scheduled and be repeated alone. Steps exchange references, never arrays: what
a step makes is in the store when it ends.
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
from tasks.runtime.open_corpora import OpenCorpora
from tasks.runtime.references import EmbedRef


@dataclass(frozen=True, kw_only=True)
class BenchmarkRef:
    """The run id, the embedding sets and the report of a benchmark run."""

    run: str
    embedded: tuple[EmbedRef, ...]
    report: str


@flow(
    name="benchmark",
    flow_run_name="benchmark {config.title}",
    timeout_seconds=timeout_seconds(96),
)
def benchmark(config: RunConfig) -> BenchmarkRef:
    """Run the whole pipeline; without encoders, evaluate what is stored."""
    opened = OpenCorpora()
    if config.encoders or config.corpora:
        check_request(config, opened)
    with recorded_run(config, "benchmark") as run:
        embedded = call(embed, config, run, opened=opened) if config.encoders else ()
        sets = tuple(reference.sets for reference in embedded) or None
        evaluated = call(evaluate, config, run, sets)
        call(compare, config, run, tuple({reference.sets.corpus: None for reference in evaluated}))
        report = call(publish, config, run)
    return BenchmarkRef(run=run, embedded=embedded, report=report)
