"""Flow `embed`: register the corpora, then encode with every model what the store does not have yet.

One task per encoder, so that a model is loaded once for all corpora and its memory is given back before the
next. Nothing is computed twice: a set that is complete costs a look at the store.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prefect import flow

from flows.config import RunConfig
from flows.execution import announce, call, call_each, task_runner, timeout_seconds
from flows.request import check_request, checked_encoders, entry_named
from flows.runs import recorded_run
from store.errors import RequestError
from store.types import EncoderSpec
from tasks.embed import embed_corpora, embed_shard, is_complete, register_corpus
from tasks.runtime.encoding import EncodeSettings, Shard
from tasks.runtime.references import CorpusRef, EmbedRef


def encode_settings(config: RunConfig, spec: EncoderSpec) -> EncodeSettings:
    """How a run encodes with one of its models: batches as the run says, else the encoder's own."""
    entry = entry_named(spec.name, config.encoders)
    sizes: tuple[int | None, int | None] = (entry.image_batch, entry.caption_batch)
    if config.batch_size is not None:
        sizes = (None, None) if config.batch_size == "auto" else (config.batch_size, config.batch_size)
    return EncodeSettings(
        device=config.device,
        image_batch=sizes[0],
        caption_batch=sizes[1],
        trust_remote_code=config.trusts(spec.name),
        compiled=config.compile,
    )


def _part(config: RunConfig, spec: EncoderSpec, corpora: tuple[CorpusRef, ...], run: str, shard: int) -> dict[str, Any]:
    """What one shard is asked to do; several devices take turns."""
    settings = encode_settings(config, spec)
    devices = settings.device.split(",")
    return {
        "spec": spec,
        "corpora": corpora,
        "store_uri": config.store_uri,
        "settings": replace(settings, device=devices[shard % len(devices)]),
        "run": run,
        "shard": shard,
        "n_shards": config.shards,
    }


@flow(
    name="embed",
    flow_run_name="embed {config.title}",
    task_runner=task_runner(),
    timeout_seconds=timeout_seconds(72),
)
def embed(config: RunConfig, run: str | None = None, shard: int | None = None) -> tuple[EmbedRef, ...]:
    """Encode the run's corpora with the run's encoders.

    Args:
        config: What the run is asked to do.
        run: Id of the larger run that this is a step of.
        shard: Which of ``config.shards`` parts to encode, from 1, where every part is a run of its own; whichever
            run finds all parts there seals the sets. None: all parts, on the task runner.

    Returns:
        One reference per encoder and corpus, encoders in the order of the configuration; none while other runs' parts
        are missing.
    """
    if shard is not None and not 1 <= shard <= config.shards:
        raise RequestError(f"shard must be between 1 and {config.shards} (shards), got {shard}")
    # before anything is written: a wrong name costs nothing
    encoders = check_request(config) if run is None else checked_encoders(config)
    with recorded_run(config, "embed", run) as run_id:
        corpora: tuple[CorpusRef, ...] = tuple(
            call(register_corpus, what, store_uri=config.store_uri, sample=config.sample, seed=config.seed)
            for what in config.corpora
        )
        parts = list(range(config.shards)) if shard is None else [shard - 1]
        encoded: dict[str, list[Shard]] = {}
        if config.shards > 1:
            asked = [_part(config, spec, corpora, run_id, part) for spec in encoders for part in parts]
            for part, done_part in zip(asked, call_each(embed_shard, asked), strict=True):
                encoded.setdefault(part["spec"].fingerprint, []).append(done_part)
        if shard is not None and not call(is_complete, encoders, corpora, store_uri=config.store_uri):
            return ()
        done = [
            call(
                embed_corpora,
                spec,
                corpora,
                store_uri=config.store_uri,
                settings=encode_settings(config, spec),
                run=run_id,
                shards=encoded.get(spec.fingerprint, []),
            )
            for spec in encoders
        ]
    embedded = tuple(reference for references in done for reference in references)
    if run is None:  # a larger run goes on with what was encoded by itself
        announce("capim.embedded", config.workspace, n_encoded=sum(reference.n_encoded for reference in embedded))
    return embedded
