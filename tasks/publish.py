"""Shell: the report of what the store has."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from reports.write import write_report
from store import EmbeddingStore


@task(name="publish", cache_policy=NO_CACHE)
def publish_report(*, store_uri: str, reports_uri: str, run: str) -> str:
    """Write the report into a folder of the run's own; returns the path of its HTML page."""
    return str(write_report(EmbeddingStore.open(store_uri), f"{reports_uri}/{run}"))
