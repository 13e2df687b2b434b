"""Tasks: check the corpora of a request, and register a corpus in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from capim.store import EmbeddingStore
from capim.store.errors import RequestError, unknown
from capim.store.types import MODALITIES, Corpus, Modality
from capim.tasks.corpora.change import describe_change
from capim.tasks.corpora.encodable import encodable, encoding_fault
from capim.tasks.corpora.naming import Row, reading_of
from capim.tasks.runtime.open_corpora import OpenCorpora, register_at
from capim.tasks.runtime.references import CorpusRef
from capim.tasks.runtime.retries import may_pass
from capim.tasks.runtime.shell import shell
from capim.tasks.scoring.protocols.selection import select_protocols

SHOWN = 5  # images that were skipped


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
    distractors: Sequence[str] = (),
) -> list[str]:
    """Read corpora into ``opened`` before anything is written; returns all faults, also of protocols and distractors.

    A corpus without a file or text for any of ``modalities`` is a fault.

    Raises:
        RequestError: The same faults, if one of them may pass (a hub that did not answer), so that the task is retried.
    """
    faults: list[str] = []
    passing, register = None, register_at(store_uri)
    known, states = ({str(row[column]) for row in register} for column in ("name", "fingerprint"))
    for what in corpora:
        try:
            reading = reading_of(what, register, sample=sample, seed=seed)
            corpus = opened.read(reading.what, sample=reading.sample, seed=reading.seed)
            faults += filter(None, [encoding_fault(corpus, modalities, given=what)])
            select_protocols(corpus, protocols)
            known |= {corpus.name}
        except RequestError as error:
            faults.extend(error.faults)
            passing = error if may_pass(error) else passing
    strange = [name for name in distractors if name not in known | states]
    faults += [unknown("corpus of distractors", name, sorted(known)) for name in strange]
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
    return CorpusRef(
        **reading._asdict(),
        name=corpus.name,
        fingerprint=corpus.fingerprint,
        n_images=len(corpus.images),
        n_captions=len(corpus.captions),
        n_skipped=len(corpus.skipped),
        changes=changes,
        skipped=tuple(f"{row['item_id']}: {row['reason']}" for row in corpus.skipped.slice(0, SHOWN).to_pylist()),
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
