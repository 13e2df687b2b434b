"""Flow `embed`: register the corpora, then encode with every model what the store does not have.

One task per encoder, so that a model is loaded once for all corpora and its memory is freed before the next. A set that
is complete is not encoded again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from prefect import flow

from flows.config import RunConfig
from flows.execution import announce, call, call_each, task_runner, timeout_seconds
from flows.request import check_request, entry_named
from flows.runs import recorded_run
from store.errors import RequestError
from store.types import MODALITIES, EncoderSpec, Modality
from tasks.corpora.encodable import import_advice
from tasks.embed import embed_corpora, embed_on_devices, embed_shard, is_complete
from tasks.register import register_corpus
from tasks.runtime.encoding import EncodeSettings
from tasks.runtime.open_corpora import OpenCorpora
from tasks.runtime.references import EmbedRef
from tasks.runtime.shards import Encoded, EncodeWork


def encode_settings(config: RunConfig, spec: EncoderSpec) -> EncodeSettings:
    """Settings for one encoder of a run: its batch sizes unless the run gives one, and the first device."""
    entry = entry_named(spec.name, config.encoders)
    sizes: tuple[int | None, int | None] = (entry.image_batch, entry.caption_batch)
    if config.batch_size is not None:
        sizes = (None, None) if config.batch_size == "auto" else (config.batch_size, config.batch_size)
    return EncodeSettings(
        device=config.device.partition(",")[0],
        image_batch=sizes[0],
        caption_batch=sizes[1],
        trust_remote_code=config.trusts(spec.name),
        compiled=config.compile,
    )


@flow(
    name="embed",
    flow_run_name="embed {config.title}",
    task_runner=task_runner(),
    timeout_seconds=timeout_seconds(72),
)
def embed(
    config: RunConfig, shard: int | None = None, only: Literal["images", "captions"] | None = None
) -> tuple[EmbedRef, ...]:
    """Encode the run's corpora with the run's encoders.

    Args:
        config: What to run.
        shard: Encode only this one of ``config.shards`` shards, from 1. The run that finds all shards stored seals the
            sets. None: all shards, on the task runner.
        only: Encode only images or only captions. None: what has files or texts.

    Returns:
        One reference per encoder and corpus, in the order of the encoders; empty while other shards are missing.
    """
    if shard is not None and not 1 <= shard <= config.shards:
        raise RequestError(f"shard must be between 1 and {config.shards} (--shards), got {shard}")
    opened = OpenCorpora()
    modalities = MODALITIES if only is None else tuple(side for side in MODALITIES if only == f"{side}s")
    encoders = check_request(config, opened, modalities)
    with recorded_run(config, "embed") as run:
        embedded = embed_step(config, run, encoders, opened, shard, modalities)
    if embedded:
        announce("capim.embedded", config.workspace, n_encoded=sum(reference.n_encoded for reference in embedded))
    return embedded


def embed_step(
    config: RunConfig,
    run: str,
    encoders: tuple[EncoderSpec, ...],
    opened: OpenCorpora,
    shard: int | None = None,
    modalities: tuple[Modality, ...] = MODALITIES,
) -> tuple[EmbedRef, ...]:
    """Register the run's corpora and encode them with these encoders; ``opened`` has the corpora read so far."""
    corpora = tuple(
        call(register_corpus, what, opened, store_uri=config.store_uri, sample=config.sample, seed=config.seed)
        for what in config.corpora
    )
    works = [
        EncodeWork(
            spec=spec,
            corpora=corpora,
            opened=opened,
            store_uri=config.store_uri,
            settings=encode_settings(config, spec),
            run=run,
            modalities=modalities,
        )
        for spec in encoders
    ]
    encoded = _encode_shards(config, works, shard)
    if shard is not None and not call(is_complete, encoders, corpora, modalities, store_uri=config.store_uri):
        return ()
    done = [call(embed_corpora, work, encoded.get(work.spec.fingerprint, [])) for work in works]
    return tuple(reference for references in done for reference in references)


def paired(embedded: tuple[EmbedRef, ...]) -> tuple[EmbedRef, ...]:
    """What can be evaluated: both images and captions are stored.

    Raises:
        RequestError: Nothing can; says what to import.
    """
    found = tuple(reference for reference in embedded if not reference.lacking)
    if embedded and not found:
        raise RequestError([import_advice(ref.sets.encoder, ref.corpus.name, ref.lacking[0]) for ref in embedded])
    return found


def _encode_shards(config: RunConfig, works: list[EncodeWork], shard: int | None) -> dict[str, list[Encoded]]:
    """Encode shards (one or all), which take turns on the devices; returns what each encoded, by encoder fingerprint.

    ``config.shards`` shards run on the task runner. Without them, several devices get a shard and a process each.
    Nothing is encoded here with one shard and one device.
    """
    devices = config.device.split(",")
    n_shards = len(devices) if config.shards == 1 and shard is None else config.shards
    if n_shards == 1:
        return {}
    numbers = range(n_shards) if shard is None else [shard - 1]
    encoded: dict[str, list[Encoded]] = {}
    shards = [
        replace(work, shard=k, n_shards=n_shards, settings=replace(work.settings, device=devices[k % len(devices)]))
        for work in works
        for k in numbers
    ]
    if config.shards > 1:
        for part, done in zip(shards, call_each(embed_shard, [{"work": part} for part in shards]), strict=True):
            encoded.setdefault(part.spec.fingerprint, []).append(done)
        return encoded
    for work in works:
        of_encoder = [part for part in shards if part.spec == work.spec]
        encoded[work.spec.fingerprint] = call(embed_on_devices, of_encoder)
    return encoded
