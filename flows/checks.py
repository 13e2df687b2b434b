"""Refuses a run for names that nobody has, before what runs it is imported: Prefect alone takes a second or more.

The flows check the same again, and more: what stands in the data, and what a hub answers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from capim.flows.config import RunConfig
from capim.store import EmbeddingStore
from capim.store.errors import MissingStoreError, RequestError
from capim.store.rows import matching, names_with_rows
from capim.tasks.runtime.references import encoder_name

ENCODING = ("benchmark", "embed", "watch")  # flows that read corpora and load models; others use what is stored


def check_names(config: RunConfig, flow: str) -> None:
    """Check the encoders, corpora, analyses and devices that a run of this flow names, and protocols with results.

    Raises:
        RequestError: Nobody has one of these names, or there is no store to read; all such faults together.
    """
    checks: list[Callable[[], object]] = [partial(_check_analyses, config)]
    checks += _of_new(config) if flow in ENCODING else _of_stored(config, flow)
    faults: list[str] = []
    for check in checks:
        try:
            check()
        except RequestError as error:
            faults += error.faults
    if faults := [*dict.fromkeys(faults), *device_faults(config)]:
        raise RequestError(faults)


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


def _check_analyses(config: RunConfig) -> None:
    if config.analyses:
        from capim.tasks.analyses.table import check_analyses

        check_analyses(config.analyses)


def _of_new(config: RunConfig) -> list[Callable[[], object]]:
    """Encoders are in the catalog or described by a table; corpora are known, stored, or a folder or file."""
    from capim.tasks.corpora.description import reader_call
    from capim.tasks.corpora.naming import corpus_to_read
    from capim.tasks.encoders.catalog import entry_from, entry_of

    try:
        register = EmbeddingStore.open(config.store_uri).corpora().to_pylist()
    except MissingStoreError:
        register = []

    def corpus(what: Any) -> None:
        reader_call(corpus_to_read(what, register, sample=config.sample, seed=config.seed).what)

    def encoder(entry: Any) -> None:
        entry_of(entry) if isinstance(entry, str) else entry_from(encoder_name(entry), entry)

    return [*(partial(encoder, each) for each in config.encoders), *(partial(corpus, each) for each in config.corpora)]


def _of_stored(config: RunConfig, flow: str) -> list[Callable[[], object]]:
    """Encoders and corpora are in the store; of what is not evaluated now, encoders and protocols have results."""
    from capim.tasks.corpora.naming import stored_corpora

    store = EmbeddingStore.open(config.store_uri)
    register = store.corpora().to_pylist()
    drawn: dict[str, Any] = {"sample": config.sample, "seed": config.seed, "uri": store.uri}
    corpora = partial(stored_corpora, config.corpora, register, **drawn)
    names = [encoder_name(each) for each in config.encoders]
    if flow != "evaluate":
        return [corpora, partial(names_with_rows, store, "results", {"encoder": names, "protocol": config.protocols})]
    known = [*store.counts("results", "protocol")]

    def protocols() -> None:
        if all(matching(name, known) for name in config.protocols):
            return  # without a look at the corpora
        from capim.tasks.ranking.protocols import select_protocols

        for row in corpora() or register:
            select_protocols(store.corpus(row["name"], row["fingerprint"]), config.protocols)

    return [corpora, *(partial(store.encoder, name) for name in names), protocols]
