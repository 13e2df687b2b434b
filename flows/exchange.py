"""Flows `import` and `import-outcomes`: embeddings and outcomes that other programs made, into the store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from capim.flows.config import RunConfig
from capim.flows.embed import evaluations_of
from capim.flows.execution import call, recorded_run, run_flow
from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.sets.columns_read import told
from capim.store.sets.importing import ImportRow
from capim.tasks.combine import fuse, rerank
from capim.tasks.imports import import_embedding_files, import_published
from capim.tasks.imports import import_outcomes as import_source
from capim.tasks.protocols import TEXT_TO_IMAGE
from capim.tasks.references import EvaluationRef, Named, by_corpus, encoder_name
from capim.tasks.results.imported.sources import Source


@run_flow(
    "import",
    hours=24,
    title=lambda config, row, **_: replace(config, encoders=(row.encoder,), corpora=(row.corpus,)).title,
)
def import_(
    config: RunConfig, row: ImportRow, replace: bool = False, by_position: bool = False, plan: bool = False
) -> list[str]:
    """Import embeddings of one encoder and corpus. `replace` allows other contents than those stored.

    `by_position` takes rows in the order of the corpus, `plan` only reports what would be done.

    Returns:
        Lines on the columns read, the match of rows, each embedding set, and the commands to run next.
    """
    with recorded_run(config, "import") as settings, told() as columns:
        how: dict[str, Any] = {"replace": replace, "by_position": by_position, "plan": plan, "run": settings.run}
        done = call(import_embedding_files, row, store_uri=config.store_uri, storage=config.storage, **how)
    return [*columns, *done]


@run_flow(
    "import-outcomes",
    hours=24,
    title=lambda config, corpus, source, **_: (
        replace(config, encoders=(source.encoder,) * bool(source.encoder), corpora=(corpus,) * bool(corpus)).title
    ),
)
def import_outcomes(
    config: RunConfig, corpus: Named | None, source: Source, replace: bool = False, plan: bool = False
) -> list[str]:
    """Import outcomes of models without embeddings, runs, or published results.

    `replace` allows other outcomes than those stored, `plan` only reports what would be done.

    Returns:
        Lines on the columns read, the match of rows, and each model and protocol.
    """
    with recorded_run(config, "import") as settings, told() as columns:
        how: dict[str, Any] = {"store_uri": config.store_uri, "run": settings.run, "plan": plan}
        if source.kind == "published":
            shown = call(import_published, source, **how)
        else:
            how |= {"resampling": settings.resampling, "replace": replace}
            shown = call(import_source, corpus or "", source, **how)
    return [*columns, *shown.lines]


# --- Flows `rerank` and `fuse`: stored encoders combined.


@run_flow("rerank", hours=24, title=lambda config, first, second, **_: _on(config, f"{first} then {second}"))
def rerank_flow(config: RunConfig, first: str, second: str, depths: tuple[int, ...]) -> list[str]:
    """Re-rank the first results of ``first`` with ``second``, on every corpus of the run that has both."""
    groups = _together(config, (first, second))
    with recorded_run(config, "rerank") as settings:
        return [call(rerank, pair[0], pair[1], settings, depths=depths).lines[0] for pair in groups]


@run_flow("fuse", hours=24, title=lambda config, **_: _on(config, " + ".join(config.encoders)))
def fuse_flow(config: RunConfig, weights: tuple[float, ...] = ()) -> list[str]:
    """Fuse the run's encoders by reciprocal ranks or weights, on every corpus of the run that has them all."""
    groups = _together(config, tuple(map(str, config.encoders)))
    with recorded_run(config, "fuse") as settings:
        return [call(fuse, members, settings, weights=weights).lines[0] for members in groups]


def _on(config: RunConfig, subject: str) -> str:
    """Return the name of a run about several encoders as one subject."""
    return replace(config, encoders=(subject,)).title


def _together(config: RunConfig, encoders: tuple[str, ...]) -> list[tuple[EvaluationRef, ...]]:
    """Return the evaluations of these encoders in their order, one tuple for every corpus that has them all."""
    evaluations, store = evaluations_of(replace(config, encoders=encoders)), EmbeddingStore.open(config.store_uri)
    wanted = [store.fingerprint_of(encoder_name(encoder)) for encoder in encoders]  # a plain name stays a name
    groups = []
    for found in by_corpus(evaluations):
        member = {name: each for each in found for name in (each.sets.encoder, each.sets.encoder_fingerprint)}
        group = tuple(member[name] for name in wanted if name in member)
        in_common = set(TEXT_TO_IMAGE).intersection(*(each.evaluations for each in group))
        if len(group) == len(encoders) and in_common:
            groups.append(group)
    if not groups:
        raise RequestError(
            f"no corpus has {' or '.join(TEXT_TO_IMAGE)} outcomes of all of {', '.join(encoders)}; "
            f"run `capim evaluate --encoders {','.join(encoders)}`"
        )
    return groups
