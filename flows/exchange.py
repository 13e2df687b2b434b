"""Flow `import`: embeddings or hit lists of another program, into the store."""

from __future__ import annotations

from prefect import flow

from flows.config import Named, RunConfig
from flows.execution import call
from flows.runs import recorded_run
from tasks.imports import import_embedding_files, import_hit_lists


@flow(name="import", flow_run_name="import-{config.name}")
def import_(
    config: RunConfig,
    corpus: Named,
    encoder: str = "",
    images: str | None = None,
    captions: str | None = None,
    outcomes: str | None = None,
) -> list[str]:
    """Import one encoder's embeddings (`images`, `captions`) or a folder of hit lists (`outcomes`).

    Returns:
        One line per embedding set or model that was imported.
    """
    with recorded_run(config, "import") as run:
        if outcomes is None:
            sealed = call(
                import_embedding_files,
                corpus,
                store_uri=config.store_uri,
                encoder=encoder,
                images=images,
                captions=captions,
            )
            return [f"{s.key.encoder}: {s.n_rows:,} {s.key.modality}s of {s.key.corpus}, {s.tag}" for s in sealed]
        models = call(
            import_hit_lists,
            corpus,
            outcomes,
            store_uri=config.store_uri,
            resampling=config.resampling,
            run=run,
        )
        return [f"{model}: outcomes and results" for model in models]
