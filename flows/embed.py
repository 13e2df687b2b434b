"""Flow `embed`: register the corpora, then encode with every model what the store does not have.

One task per encoder, so that a model is loaded once for all corpora and its memory is freed before the next. A set that
is complete is not encoded again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Literal, cast

from prefect.client.schemas.objects import FlowRun
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL

from capim.flows.config import RunConfig, located
from capim.flows.execution import TAG, Failed, announce, attempt, attempt_each, call, refuse_all, run_flow
from capim.flows.request import Request, check_request, entry_named, missing_encoder
from capim.flows.runs import IncompleteError, recorded_run
from capim.store.errors import RequestError
from capim.store.types import MODALITIES, EncoderSpec, Modality
from capim.tasks.corpora.check import import_advice
from capim.tasks.embed import embed_corpora, embed_on_devices, embed_shard, is_complete, register_corpus
from capim.tasks.runtime.encoding import Encoded, EncodeSettings, EncodeWork
from capim.tasks.runtime.open_corpora import OpenCorpora
from capim.tasks.runtime.progress import track
from capim.tasks.runtime.references import EmbedRef, Missing


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


SHARDS = "embed/encode-shard"  # the deployment whose runs encode one shard each


def _title(config: RunConfig, shard: int | None = None, **_: object) -> str:
    return config.title if shard is None else f"{config.title}, shard {shard} of {config.shards}"


@run_flow("embed", hours=72, title=_title)
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

    Raises:
        IncompleteError: Some encoders failed; the others are encoded.
    """
    if shard is not None and not 1 <= shard <= config.shards:
        raise RequestError(f"shard must be between 1 and {config.shards} (--shards), got {shard}")
    opened = OpenCorpora()
    modalities = MODALITIES if only is None else tuple(side for side in MODALITIES if only == f"{side}s")
    request = check_request(config, opened, modalities)
    embedded: tuple[EmbedRef, ...] = ()
    try:
        with recorded_run(config, "embed") as run:
            embedded, missing = embed_step(config, run, request, opened, shard, modalities)
            if missing:
                raise IncompleteError(embedded, missing)
    finally:
        if embedded:
            n_encoded = sum(reference.n_encoded for reference in embedded)
            announce("capim.embedded", config.workspace, n_encoded=n_encoded)
    return embedded


def submit_shards(config: RunConfig, only: Literal["images", "captions"] | None = None) -> list[str]:
    """Start a run of the deployment ``encode-shard`` for every shard, for its workers; returns their names.

    Raises:
        RequestError: No server is configured, it does not have the deployment, or the workspace is relative.
    """
    if PREFECT_API_URL.value() is None:
        raise RequestError("--submit needs a server: export PREFECT_API_URL=http://127.0.0.1:4200/api")
    if "://" not in config.workspace and not Path(config.workspace).is_absolute():
        raise RequestError(
            f"workspace {config.workspace!r} is relative, but workers have folders of their own; give --workspace or "
            "CAPIM_WORKSPACE an absolute path that all of them have, or a URI"
        )
    here = {
        side: tuple(located(entry, Path.cwd()) for entry in getattr(config, side)) for side in ("corpora", "encoders")
    }
    fields = json.loads(json.dumps({**asdict(config), **here}))
    started = []
    try:
        for shard in range(1, config.shards + 1):
            parameters = {"config": fields, "shard": shard, "only": only}
            run = run_deployment(SHARDS, parameters=parameters, timeout=0, as_subflow=False, tags=[TAG, "encode"])
            started.append(f"{_title(config, shard)}: {cast('FlowRun', run).id}")
    except ObjectNotFound as error:
        raise RequestError(f"the server has no deployment {SHARDS}; run `make deploy`") from error
    return started


def embed_step(
    config: RunConfig,
    run: str,
    request: Request,
    opened: OpenCorpora,
    shard: int | None = None,
    modalities: tuple[Modality, ...] = MODALITIES,
) -> tuple[tuple[EmbedRef, ...], tuple[Missing, ...]]:
    """Register the run's corpora and encode them with its encoders; ``opened`` has the corpora read so far.

    Returns:
        What was encoded, and the encoders that failed.

    Raises:
        RequestError: All encoders failed, because the request was wrong.
        WorkError: All encoders failed.
    """
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
        for spec in request.encoders
    ]
    encoded, failed = _encode_shards(config, works, shard)
    done: list[EmbedRef] = []
    specs = tuple(work.spec for work in works if work.spec.name not in failed)
    if shard is None or call(is_complete, specs, corpora, modalities, store_uri=config.store_uri):
        with track(embed_corpora.name, total=len(works), unit="tasks", step=True) as advance:
            for work in works:
                if work.spec.name not in failed:
                    parts = encoded.get(work.spec.fingerprint, [])
                    references = attempt(partial(call, embed_corpora, work, parts))
                    if isinstance(references, Failed):
                        failed[work.spec.name] = references
                    else:
                        done += references
                advance(1)
    if failed and len(failed) == len(works):
        refuse_all(list(failed.values()))
    return tuple(done), (*request.missing, *(missing_encoder(name, failure) for name, failure in failed.items()))


def paired(embedded: tuple[EmbedRef, ...]) -> tuple[EmbedRef, ...]:
    """What can be evaluated: both images and captions are stored.

    Raises:
        RequestError: Nothing can; says what to import.
    """
    found = tuple(reference for reference in embedded if not reference.lacking)
    if embedded and not found:
        raise RequestError([import_advice(ref.sets.encoder, ref.corpus.name, ref.lacking[0]) for ref in embedded])
    return found


def _encode_shards(
    config: RunConfig, works: list[EncodeWork], shard: int | None
) -> tuple[dict[str, list[Encoded]], dict[str, Failed]]:
    """Encode shards (one or all), which take turns on the devices.

    ``config.shards`` shards run on the task runner. Without them, several devices get a shard and a process each.
    Nothing is encoded here with one shard and one device.

    Returns:
        What each shard encoded, by encoder fingerprint; and the encoders of which a shard failed, by name.
    """
    devices = config.device.split(",")
    n_shards = len(devices) if config.shards == 1 and shard is None else config.shards
    encoded: dict[str, list[Encoded]] = {}
    failed: dict[str, Failed] = {}
    if n_shards == 1:
        return encoded, failed
    numbers = range(n_shards) if shard is None else [shard - 1]
    shards = [
        replace(work, shard=k, n_shards=n_shards, settings=replace(work.settings, device=devices[k % len(devices)]))
        for work in works
        for k in numbers
    ]
    if config.shards > 1:
        attempts = attempt_each(embed_shard, [{"work": part} for part in shards])
        for part, one in zip(shards, attempts, strict=True):
            if isinstance(one, Failed):
                failed[part.spec.name] = one
            else:
                encoded.setdefault(part.spec.fingerprint, []).append(one)
        return encoded, failed
    for work in works:
        of_encoder = [part for part in shards if part.spec == work.spec]
        together = attempt(partial(call, embed_on_devices, of_encoder))
        if isinstance(together, Failed):
            failed[work.spec.name] = together
        else:
            encoded[work.spec.fingerprint] = together
    return encoded, failed
