"""Flow `publish`: the report of what the store has."""

from __future__ import annotations

from prefect import flow

from flows.config import Named, RunConfig
from flows.execution import call, timeout_seconds
from flows.runs import recorded_run
from tasks.publish import publish_report
from tasks.runtime.references import corpus_name, encoder_name


@flow(
    name="publish",
    flow_run_name="publish {config.title}",
    timeout_seconds=timeout_seconds(2),
)
def publish(config: RunConfig) -> str:
    """Write the report of the run's encoders and corpora (all where none is named); returns the path of its page."""
    with recorded_run(config, "report") as run:
        return publish_step(config, run, corpora=config.corpora, encoders=config.encoders)


def publish_step(
    config: RunConfig, run: str, *, corpora: tuple[Named, ...] = (), encoders: tuple[Named, ...] = ()
) -> str:
    """The report of these encoders and corpora; of all in the store where none is named."""
    return call(
        publish_report,
        store_uri=config.store_uri,
        reports_uri=config.reports_uri,
        run=run,
        corpora=[corpus_name(corpus) for corpus in corpora],
        encoders=[encoder_name(encoder) for encoder in encoders],
    )
