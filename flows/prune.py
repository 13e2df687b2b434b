"""Flow `prune`: what older runs left and no report shows goes, and the space is freed."""

from __future__ import annotations

from dataclasses import dataclass

from prefect import flow

from flows.config import RunConfig
from flows.execution import timeout_seconds
from reports.destination import folders_of, remove_folder
from store import EmbeddingStore
from store.maintenance.cleaning import compact_store
from store.maintenance.retention import plan_pruning
from store.maintenance.retention import prune as remove


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """What went, or would go.

    Attributes:
        rows: Table -> number of rows.
        tables: Embedding sets and corpora.
        reports: Folders of older runs' reports.
        freed: Table -> bytes; empty for a plan.
    """

    rows: dict[str, int]
    tables: tuple[str, ...]
    reports: tuple[str, ...]
    freed: dict[str, int]


@flow(name="prune", flow_run_name="prune {config.title}", timeout_seconds=timeout_seconds(24))
def prune(config: RunConfig, keep: int = 30, done: bool = True) -> Pruned:
    """Keep what reports show, the newest runs and the baselines of watches; remove the rest and compact.

    Args:
        config: The workspace; nothing else of it counts.
        keep: How many of the newest runs are kept, with their reports.
        done: False: only say what would go.
    """
    store = EmbeddingStore.open(config.store_uri)
    plan = plan_pruning(store, keep=keep)
    reports = tuple(name for name in folders_of(config.reports_uri) if name < plan.runs[0]) if plan.runs else ()
    freed: dict[str, int] = {}
    if done:
        remove(store, plan)
        for name in reports:
            remove_folder(f"{config.reports_uri}/{name}")
        freed = compact_store(store)
    return Pruned(
        rows={table: n for table, (_, _, n) in plan.rows.items()}, tables=plan.tables, reports=reports, freed=freed
    )
