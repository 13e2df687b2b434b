"""Checks the encoders and corpora of a run before anything is written; all faults are reported together."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from flows.config import RunConfig, missing_names
from flows.execution import call
from store.errors import RequestError, WorkError
from store.types import MODALITIES, EncoderSpec, Modality
from tasks.diagnosis.table import check_analyses
from tasks.encoders import CatalogEntry, entry_from, entry_of, spec_of
from tasks.register import check_corpora
from tasks.resolve import resolve_encoder
from tasks.runtime.open_corpora import OpenCorpora


def check_request(
    config: RunConfig, opened: OpenCorpora, modalities: Sequence[Modality] = MODALITIES
) -> tuple[EncoderSpec, ...]:
    """The encoders of a run in its order, each at a fixed revision; its corpora are read into ``opened``.

    Raises:
        RequestError: Unknown names or fields, missing checkpoints, two different models under one name, corpora
            that are missing, contradict themselves or have none of ``modalities`` to encode: all faults together.
    """
    encoders, faults = _resolved(config)
    faults += missing_names(config)
    try:
        check_analyses(config.analyses)
    except RequestError as error:
        faults += error.faults
    try:
        unreadable: list[str] = call(
            check_corpora, config.corpora, opened, sample=config.sample, seed=config.seed, modalities=modalities
        )
        faults += unreadable
    except RequestError as error:
        faults += error.faults
    if faults:
        raise RequestError(faults)
    return encoders


def _resolved(config: RunConfig) -> tuple[tuple[EncoderSpec, ...], list[str]]:
    """The encoders that can be resolved, and the faults of the others.

    Raises:
        WorkError: The hub did not answer for one of them, and the others have no fault.
    """
    found: list[EncoderSpec] = []
    faults: list[str] = []
    unanswered: WorkError | None = None
    for entry in config.encoders:
        try:
            found.append(_spec(entry, config))
        except RequestError as error:
            faults.extend(error.faults)
        except WorkError as error:
            unanswered = unanswered or error
    if unanswered is not None and not faults:
        raise unanswered
    different = {(spec.name, spec.fingerprint) for spec in found}
    for name, count in Counter(name for name, _ in different).items():
        if count > 1:
            faults.append(f"{count} different encoders have the name {name!r}; give each its own name")
    return tuple(found), faults


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
