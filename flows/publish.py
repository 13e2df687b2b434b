"""Flow `publish`: the report of what the store has."""

from __future__ import annotations

from prefect import flow

from flows.config import RunConfig
from flows.execution import call, timeout_seconds
from flows.runs import recorded_run
from tasks.publish import publish_report


@flow(
    name="publish",
    flow_run_name="publish {config.title}",
    timeout_seconds=timeout_seconds(2),
)
def publish(config: RunConfig, run: str | None = None) -> str:
    """Write the report; returns the path of its HTML page."""
    with recorded_run(config, "report", run) as run_id:
        return call(publish_report, store_uri=config.store_uri, reports_uri=config.reports_uri, run=run_id)
