"""Flow `embed`: register the corpora, then encode with every model what the store does not have.

The encoders and corpora of a run are checked before anything is written; all faults are reported together. One task per
encoder, so that a model is loaded once for all corpora and its memory is freed before the next. A set that is complete
is not encoded again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from capim.flows.config import RunConfig, located, missing_names
from capim.flows.execution import (
    TAG,
    IncompleteError,
    announce,
    answering_server,
    call,
    map_collecting_failures,
    reason_of,
    recorded_run,
    refuse_all,
    run_flow,
)
from capim.flows.inspection import device_faults, entry_for
from capim.flows.terminal import say
from capim.store.errors import RequestError, WorkError, noted
from capim.store.sets.columns_read import told
from capim.store.types import MODALITIES, EncoderSpec, Modality, is_commit
from capim.tasks import embed as encoding
from capim.tasks.analyses.table import check_analyses
from capim.tasks.corpora.check import import_advice
from capim.tasks.corpora.opened import OpenCorpora
from capim.tasks.embed import Encoded, EncodeSettings, EncodeWork
from capim.tasks.evaluate import find_evaluations
from capim.tasks.prefects.names import PREFECT_API_URL, ObjectNotFound, run_deployment
from capim.tasks.references import EmbedRef, EvaluationRef, Missing, encoder_name


@dataclass(frozen=True, kw_only=True)
class Request:
    """The encoders of a run in its order, each at a fixed revision, and those that no hub answered for."""

    encoders: tuple[EncoderSpec, ...]
    missing: tuple[Missing, ...]


def check_request(
    config: RunConfig, opened: OpenCorpora, modalities: Sequence[Modality] = MODALITIES, known: Sequence[str] = ()
) -> Request:
    """Resolve the encoders of a run and read its corpora into ``opened``, before anything is written.

    Says which columns of their tables were read.

    ``known`` are faults that were found before; they are reported with the others.

    Raises:
        RequestError: Unknown names or fields, missing checkpoints, two different models under one name, corpora
            that are missing, contradict themselves or have none of ``modalities`` to encode, protocols that do not fit
            them: all faults together.
        WorkError: The hub answered for no encoder.
    """
    encoders, unanswered, of_encoders = _resolved(config)
    if unanswered and not encoders and not known and not of_encoders:
        raise next(iter(unanswered.values()))
    faults = [*known, *of_encoders, *missing_names(config), *device_faults(config)]
    with noted(faults):
        check_analyses(config.analyses)
    with noted(faults), told() as columns:
        unreadable: list[str] = call(encoding.check_corpora, config.selection, opened, modalities=modalities)
        faults += unreadable
    if faults:
        raise RequestError(faults)
    say(*columns)
    missing = tuple(missing_encoder(name, error) for name, error in unanswered.items())
    return Request(encoders=encoders, missing=missing)


def missing_encoder(name: str, error: Exception) -> Missing:
    """Return an encoder that failed, with the reason without its name."""
    return Missing(subject=name, reason=reason_of(error).removeprefix(f"encoder {name!r}: "))


def evaluations_of(config: RunConfig) -> tuple[EvaluationRef, ...]:
    """Return the stored evaluations of the run's corpora and protocols by its encoders; all where none is named.

    Raises:
        RequestError: A name is unknown, or there are none.
    """
    return call(find_evaluations, config.selection)


def _resolved(config: RunConfig) -> tuple[tuple[EncoderSpec, ...], dict[str, WorkError], list[str]]:
    """Return the encoders that were resolved, those for which the hub did not answer, and the faults of the others."""
    found: list[EncoderSpec] = []
    faults: list[str] = []
    unanswered: dict[str, WorkError] = {}
    for entry in config.encoders:
        try:
            found.append(_spec(entry, config))
        except RequestError as error:
            faults.extend(error.faults)
        except WorkError as error:
            unanswered[encoder_name(entry)] = error
    different = {(spec.name, spec.fingerprint): spec for spec in found}
    for name, count in Counter(name for name, _ in different).items():
        if count > 1:
            faults.append(f"{count} different encoders have the name {name!r}; give each its own name")
    return tuple(different.values()), unanswered, faults


def _spec(entry: str | Mapping[str, Any], config: RunConfig) -> EncoderSpec:
    spec = entry_for(entry, config).spec
    spec = replace(spec, precision=config.precision or spec.precision, storage=config.storage or spec.storage)
    resolved = call(encoding.resolve_encoder, spec)
    if not spec.resolved and is_commit(resolved.revision):
        say(f"{spec.name}: unpinned; the newest commit of {spec.checkpoint} is {resolved.revision}")
    return resolved


def encode_settings(config: RunConfig, spec: EncoderSpec) -> EncodeSettings:
    """Return the settings for one encoder of a run: its batch sizes unless the run gives one, and the first device."""
    entry = entry_for(spec.name, config)
    sizes: tuple[int | None, int | None] = (entry.image_batch, entry.caption_batch)
    if config.batch_size is not None:
        sizes = (None, None) if config.batch_size == "auto" else (config.batch_size, config.batch_size)
    return EncodeSettings(
        device=config.device.partition(",")[0],
        image_batch=sizes[0],
        caption_batch=sizes[1],
        trust_remote_code=config.trusts(spec.name),
    )


SHARDS = "embed/encode-shard"  # the deployment with runs that encode one shard each


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
        only: Encode only images or only captions. None: items with files or texts.

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
        with recorded_run(config, "embed") as settings:
            embedded, missing = embed_step(config, settings.run, request, opened, shard, modalities)
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
        WorkError: The server does not answer.
    """
    if PREFECT_API_URL.value() is None:
        raise RequestError("--submit needs a server: export PREFECT_API_URL=http://127.0.0.1:4200/api")
    if "://" not in config.workspace and not Path(config.workspace).is_absolute():
        raise RequestError(
            f"workspace {config.workspace!r} is relative, but workers have folders of their own; give --workspace or "
            "CAPIM_WORKSPACE an absolute path that all of them have, or a URI"
        )
    encoders = (entry if isinstance(entry, str) else located(entry, Path.cwd()) for entry in config.encoders)
    here = {"corpora": tuple(located(entry, Path.cwd()) for entry in config.corpora), "encoders": tuple(encoders)}
    fields = json.loads(json.dumps({**asdict(config), **here}))
    started = []
    try:
        with answering_server():
            for shard in range(1, config.shards + 1):
                parameters = {"config": fields, "shard": shard, "only": only}
                run = run_deployment(SHARDS, parameters=parameters, timeout=0, as_subflow=False, tags=[TAG, "encode"])
                started.append(f"{_title(config, shard)}: {cast('Any', run).id}")
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
        References to the encoded sets, and the encoders that failed.

    Raises:
        RequestError: All encoders failed, because the request was wrong.
        WorkError: All encoders failed.
    """
    registered = [call(encoding.register_corpus, what, opened, config.selection) for what in config.corpora]
    corpora = tuple({(each.name, each.fingerprint): each for each in registered}.values())
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
    left = [work for work in works if work.spec.name not in failed]
    specs = tuple(work.spec for work in left)
    if shard is None or call(encoding.is_complete, specs, corpora, modalities, store_uri=config.store_uri):
        calls = [{"work": work, "shards": encoded.get(work.spec.fingerprint, [])} for work in left]
        embedded = map_collecting_failures(encoding.embed_corpora, calls, in_turn=True)
        for work, one in zip(left, embedded, strict=True):
            if isinstance(one, Exception):
                failed[work.spec.name] = one
            else:
                done += one
    if failed and len(failed) == len(works):
        refuse_all(list(failed.values()))
    return tuple(done), (*request.missing, *(missing_encoder(name, error) for name, error in failed.items()))


def paired(embedded: tuple[EmbedRef, ...]) -> tuple[EmbedRef, ...]:
    """Return what can be evaluated: both images and captions are stored.

    Raises:
        RequestError: Nothing can; says what to import.
    """
    found = tuple(reference for reference in embedded if not reference.lacking)
    if embedded and not found:
        raise RequestError([import_advice(ref.sets.encoder, ref.corpus.name, ref.lacking[0]) for ref in embedded])
    return found


def _encode_shards(
    config: RunConfig, works: list[EncodeWork], shard: int | None
) -> tuple[dict[str, list[Encoded]], dict[str, Exception]]:
    """Encode shards (one or all), which take turns on the devices.

    ``config.shards`` shards run on the task runner. Without them, several devices get a shard and a process each.
    Nothing is encoded here with one shard and one device.

    Returns:
        Encoded sets of each shard, by encoder fingerprint; and the encoders with a failed shard, by name.
    """
    devices = config.device.split(",")
    n_shards = len(devices) if config.shards == 1 and shard is None else config.shards
    encoded: dict[str, list[Encoded]] = {}
    failed: dict[str, Exception] = {}
    if n_shards == 1:
        return encoded, failed
    numbers = range(n_shards) if shard is None else [shard - 1]
    shards = [
        replace(work, shard=k, n_shards=n_shards, settings=replace(work.settings, device=devices[k % len(devices)]))
        for work in works
        for k in numbers
    ]

    def end(work: EncodeWork, done: list[Encoded] | Exception) -> None:
        if isinstance(done, Exception):
            failed[work.spec.name] = done
        else:
            encoded.setdefault(work.spec.fingerprint, []).extend(done)

    if config.shards > 1:
        of_shards = map_collecting_failures(encoding.embed_shard, [{"work": part} for part in shards])
        for part, one in zip(shards, of_shards, strict=True):
            end(part, one if isinstance(one, Exception) else [one])
    else:
        parts = [{"works": [part for part in shards if part.spec == work.spec]} for work in works]
        of_works = map_collecting_failures(encoding.embed_on_devices, parts, in_turn=True)
        for work, each in zip(works, of_works, strict=True):
            end(work, each)
    return encoded, failed
