"""Tasks: check the corpora of a request, and register a corpus in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from store import EmbeddingStore
from store.errors import RequestError
from store.types import MODALITIES, Corpus, Modality
from tasks.corpora.change import describe_change
from tasks.corpora.encodable import encodable, encoding_fault
from tasks.corpora.naming import Row, reading_of
from tasks.runtime.open_corpora import OpenCorpora, register_at
from tasks.runtime.references import CorpusRef
from tasks.runtime.retries import may_pass
from tasks.runtime.shell import shell
from tasks.scoring.protocols.selection import select_protocols

SKIPPED_SHOWN = 5


@shell("check-corpora", timeout_hours=12)
def check_corpora(
    corpora: Sequence[str | dict[str, Any]],
    opened: OpenCorpora,
    *,
    store_uri: str,
    sample: int | None,
    seed: int,
    modalities: Sequence[Modality] = MODALITIES,
    protocols: Sequence[str] = (),
) -> list[str]:
    """Read corpora into ``opened`` before anything is written; returns the faults of all, unfit protocols included.

    A corpus without a file or text for any of ``modalities`` is a fault.

    Raises:
        RequestError: The same faults, if one of them may pass (a hub that did not answer), so that the task is retried.
    """
    faults: list[str] = []
    passing: RequestError | None = None
    register = register_at(store_uri)
    for what in corpora:
        try:
            reading = reading_of(what, register, sample=sample, seed=seed)
            corpus = opened.read(reading.what, sample=reading.sample, seed=reading.seed)
            reason = encoding_fault(corpus, modalities, given=what)
            faults += [reason] if reason else []
            select_protocols(corpus, protocols)
        except RequestError as error:
            faults.extend(error.faults)
            passing = error if may_pass(error) else passing
    if passing is not None:
        raise RequestError(faults) from passing
    return faults


@shell("register-corpus", timeout_hours=24)
def register_corpus(
    what: str | dict[str, Any], opened: OpenCorpora, *, store_uri: str, sample: int | None, seed: int
) -> CorpusRef:
    """Read a corpus, decode every image that the store has not seen, and store its items and thumbnails.

    Raises:
        RequestError: The corpus is unknown, missing, empty or contradicts itself.
    """
    store = EmbeddingStore.open(store_uri, create=True)
    register = store.corpora().to_pylist()
    reading = reading_of(what, register, sample=sample, seed=seed)
    usual = opened.read(reading.what, sample=reading.sample, seed=reading.seed).name
    corpus = opened.index(store, reading.what, sample=reading.sample, seed=reading.seed)
    changes = _changes(store, corpus, register)
    store.write_corpus(corpus)
    skipped = corpus.skipped.slice(0, SKIPPED_SHOWN).to_pylist()
    return CorpusRef(
        **reading._asdict(),
        name=corpus.name,
        fingerprint=corpus.fingerprint,
        n_images=len(corpus.images),
        n_captions=len(corpus.captions),
        n_skipped=len(corpus.skipped),
        changes=changes,
        skipped=tuple(f"{row['item_id']}: {row['reason']}" for row in skipped),
        encodable=encodable(corpus),
        note="" if corpus.name == usual else f"{usual!r} from {corpus.location} is stored under this name",
    )


def _changes(store: EmbeddingStore, corpus: Corpus, register: Sequence[Row]) -> tuple[str, ...]:
    """Differences from the newest stored corpus of the same name; empty if there are none."""
    newest = max((row for row in register if row["name"] == corpus.name), key=lambda row: row["written"], default=None)
    if newest is None or newest["fingerprint"] == corpus.fingerprint:
        return ()
    lines = describe_change(store.corpus(corpus.name, newest["fingerprint"]), corpus)
    if newest["locations"] and corpus.location not in newest["locations"]:
        lines.insert(0, f"the name {corpus.name!r} now means {corpus.location}; it meant {newest['locations'][-1]}")
    return tuple(lines)
