"""Flow `publish`: the report of what the store has."""

from __future__ import annotations

import os

from capim.flows.config import RunConfig
from capim.flows.execution import call_each, run_flow
from capim.flows.request import evaluations_of
from capim.flows.runs import recorded_run
from capim.tasks.publish import publish_report, show_report
from capim.tasks.runtime.references import encoder_name

REPORTS_VARIABLE = "CAPIM_REPORTS_URL"  # where browsers find the reports of the workspace


@run_flow("publish", hours=2)
def publish(config: RunConfig) -> str:
    """Write the report of the run's encoders, corpora and protocols (all where none is named); returns its path.

    Raises:
        RequestError: A name has no results; nothing was written.
    """
    found = evaluations_of(config)
    corpora = tuple(dict.fromkeys(each.sets.corpus for each in found)) if config.corpora else ()
    encoders = tuple(encoder_name(encoder) for encoder in config.encoders)
    with recorded_run(config, "report") as run:
        return publish_step(config, run, corpora=corpora, encoders=encoders, protocols=config.protocols)


def publish_step(
    config: RunConfig,
    run: str,
    *,
    corpora: tuple[str, ...] = (),
    encoders: tuple[str, ...] = (),
    protocols: tuple[str, ...] = (),
) -> str:
    """The report of these encoders, corpora and protocols; of all in the store where none is named."""
    where = {"store_uri": config.store_uri, "reports_uri": config.reports_uri, "run": run}
    chosen = {"corpora": corpora, "encoders": encoders, "protocols": protocols}
    [page] = call_each(publish_report, [{**where, **chosen}])
    show_report(page, store_uri=config.store_uri, run=run, reports_url=os.environ.get(REPORTS_VARIABLE))
    return page
