"""Flows `import` and `import-outcomes`: embeddings and outcomes that other programs made, into the store."""

from __future__ import annotations

from dataclasses import replace

from capim.flows.config import Named, RunConfig
from capim.flows.execution import call, run_flow
from capim.flows.runs import recorded_run
from capim.store.exchange.manifest import ImportRow
from capim.tasks.imports import import_embedding_files
from capim.tasks.imports import import_outcomes as import_source
from capim.tasks.results.imported.sources import Source


def _title(config: RunConfig, rows: list[ImportRow], **_: object) -> str:
    names = {side: tuple(dict.fromkeys(getattr(row, side) for row in rows)) for side in ("encoder", "corpus")}
    return replace(config, encoders=names["encoder"], corpora=names["corpus"]).title


@run_flow("import", hours=24, title=_title)
def import_(config: RunConfig, rows: list[ImportRow], replace: bool = False) -> list[str]:
    """Import embeddings: one row per encoder and corpus. `replace` allows other contents than those stored.

    Returns:
        One line per embedding set, and the commands to run next.
    """
    with recorded_run(config, "import"):
        return call(import_embedding_files, rows, store_uri=config.store_uri, storage=config.storage, replace=replace)


@run_flow(
    "import-outcomes",
    hours=24,
    title=lambda config, corpus, source, **_: (
        replace(config, encoders=(source.encoder,) * bool(source.encoder), corpora=(corpus,)).title
    ),
)
def import_outcomes(
    config: RunConfig,
    corpus: Named,
    source: Source,
    revision: str | None = None,
    note: str | None = None,
    replace: bool = False,
) -> list[str]:
    """Import outcomes of models without embeddings. `replace` allows other outcomes than those stored.

    Returns:
        One line per model and protocol.
    """
    with recorded_run(config, "import") as run:
        return call(
            import_source,
            corpus,
            source,
            store_uri=config.store_uri,
            revision=revision,
            note=note,
            replace=replace,
            resampling=config.resampling,
            run=run,
        )
