"""Checks the encoders and corpora of a run before anything is written; all faults are reported together."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capim.flows.config import RunConfig, missing_names
from capim.flows.execution import Failed, call
from capim.store.errors import RequestError, WorkError
from capim.store.types import MODALITIES, EncoderSpec, Modality
from capim.tasks.analyses.table import check_analyses
from capim.tasks.embed import check_corpora, resolve_encoder
from capim.tasks.encoders import CatalogEntry, entry_from, entry_of, spec_of
from capim.tasks.evaluate import find_evaluations
from capim.tasks.runtime.open_corpora import OpenCorpora
from capim.tasks.runtime.references import EvaluationRef, Missing, encoder_name


@dataclass(frozen=True, kw_only=True)
class Request:
    """The encoders of a run in its order, each at a fixed revision, and those whose hub did not answer."""

    encoders: tuple[EncoderSpec, ...]
    missing: tuple[Missing, ...]


def check_request(
    config: RunConfig, opened: OpenCorpora, modalities: Sequence[Modality] = MODALITIES, known: Sequence[str] = ()
) -> Request:
    """Resolve the encoders of a run and read its corpora into ``opened``, before anything is written.

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
    try:
        check_analyses(config.analyses)
    except RequestError as error:
        faults += error.faults
    try:
        unreadable: list[str] = call(
            check_corpora,
            config.corpora,
            opened,
            store_uri=config.store_uri,
            sample=config.sample,
            seed=config.seed,
            modalities=modalities,
            protocols=config.protocols,
            distractors=config.distractors,
        )
        faults += unreadable
    except RequestError as error:
        faults += error.faults
    if faults:
        raise RequestError(faults)
    missing = tuple(missing_encoder(name, Failed(error=error)) for name, error in unanswered.items())
    return Request(encoders=encoders, missing=missing)


def missing_encoder(name: str, failure: Failed) -> Missing:
    """An encoder that failed, with the reason without its name."""
    return Missing(subject=name, reason=failure.reason.removeprefix(f"encoder {name!r}: "))


def device_faults(config: RunConfig) -> list[str]:
    """Devices of a run that do not exist on this machine; shards run on machines of their own and are not checked."""
    wanted = {device for device in config.device.split(",") if device not in ("auto", "cpu")}
    faults: list[str] = []
    if wanted and config.shards == 1:
        from capim.tasks.encoders.device import check_device

        for device in sorted(wanted):
            try:
                check_device(device)
            except RequestError as error:
                faults += error.faults
    return faults


def evaluations_of(config: RunConfig, encoders: Sequence[str] = ()) -> tuple[EvaluationRef, ...]:
    """The stored evaluations of the run's corpora and protocols, by its encoders or by these; all where none is named.

    Raises:
        RequestError: A name is unknown, or there are none.
    """
    return call(
        find_evaluations,
        config.store_uri,
        corpora=config.corpora,
        encoders=encoders or config.encoders,
        protocols=config.protocols,
        sample=config.sample,
        seed=config.seed,
    )


def _resolved(config: RunConfig) -> tuple[tuple[EncoderSpec, ...], dict[str, WorkError], list[str]]:
    """The encoders that can be resolved, those for which the hub did not answer, and the faults of the others."""
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
    different = {(spec.name, spec.fingerprint) for spec in found}
    for name, count in Counter(name for name, _ in different).items():
        if count > 1:
            faults.append(f"{count} different encoders have the name {name!r}; give each its own name")
    return tuple(found), unanswered, faults


def entry_named(name: str, entries: Sequence[str | Mapping[str, Any]]) -> CatalogEntry:
    """The encoder of that name from the tables of a suite, else from the catalog."""
    described = {str(entry.get("name", "")): entry for entry in entries if not isinstance(entry, str)}
    return entry_from(name, _row(described[name])) if name in described else entry_of(name)


def _spec(entry: str | Mapping[str, Any], config: RunConfig) -> EncoderSpec:
    spec = spec_of(entry) if isinstance(entry, str) else entry_from(str(entry.get("name", "")), _row(entry)).spec
    if config.precision is not None:
        spec = dataclasses.replace(spec, precision=config.precision)
    if config.storage is not None:
        spec = dataclasses.replace(spec, storage=config.storage)
    return call(resolve_encoder, spec)


def _row(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "name"}
