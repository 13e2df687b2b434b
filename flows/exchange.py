"""Flows `import` and `import-outcomes`: embeddings or hit lists of another program, into the store."""

from __future__ import annotations

from prefect import flow

from flows.config import Named, RunConfig
from flows.execution import call
from flows.runs import recorded_run
from store.exchange.manifest import ImportRow
from tasks.imports import import_embedding_files, import_hit_lists


@flow(name="import", flow_run_name="import-{config.name}")
def import_(config: RunConfig, rows: list[ImportRow], replace: bool = False) -> list[str]:
    """Import embeddings: one row per encoder and corpus. `replace` allows other contents than those stored.

    Returns:
        One line per embedding set, and the commands to run next.
    """
    with recorded_run(config, "import"):
        return call(import_embedding_files, rows, store_uri=config.store_uri, storage=config.storage, replace=replace)


@flow(name="import-outcomes", flow_run_name="import-outcomes-{config.name}")
def import_outcomes(config: RunConfig, corpus: Named, outcomes: str) -> list[str]:
    """Import a folder of hit lists (`outcomes`), of models without embeddings.

    Returns:
        One line per model that was imported.
    """
    with recorded_run(config, "import") as run:
        models = call(
            import_hit_lists,
            corpus,
            outcomes,
            store_uri=config.store_uri,
            resampling=config.resampling,
            run=run,
        )
        return [f"{model}: outcomes and results" for model in models]
