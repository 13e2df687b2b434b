"""Tasks: register corpora, resolve encoders, and encode what the store does not have, whole or in shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

from capim.store import EmbeddingStore
from capim.store.errors import RequestError, WorkError, unknown
from capim.store.schema import StoredCorpus
from capim.store.types import MODALITIES, Corpus, EncoderSpec, Modality, SetKey
from capim.store.vectors import rounding_text
from capim.tasks import encoding
from capim.tasks.corpora.check import describe_change, encodable, encoding_fault, import_advice
from capim.tasks.corpora.naming import corpus_to_read
from capim.tasks.corpora.opened import OpenCorpora, store_at
from capim.tasks.encoders import identity_gap, resolve
from capim.tasks.prefects.task import asset, may_pass, task
from capim.tasks.ranking.protocols import select_protocols
from capim.tasks.references import CorpusRef, EmbedRef, SetsRef

SHOWN = 5  # images that were skipped


def _sets(work: encoding.EncodeWork, **_: object) -> list[str]:
    return [asset(work.store_uri, "sets", work.spec.name, corpus.name) for corpus in work.corpora]


@task("embed", encodes=True, makes=_sets, run_name="embed-{work.spec.name}")
def embed_corpora(work: encoding.EncodeWork, shards: Sequence[encoding.Encoded] = ()) -> tuple[EmbedRef, ...]:
    """Encode images and captions of corpora block by block into the store, and seal the sets.

    The model is loaded once for all corpora, when the first missing item is reached. An interrupted encode continues
    with the next call. ``shards`` is what :func:`embed_shard` encoded before.
    """
    parts = [encoding.encode_work(work), *shards]
    store = EmbeddingStore.open(work.store_uri)
    return tuple(
        _reference(work.spec, corpus, [part[at] for part in parts], _lacking(store, work.spec, corpus))
        for at, corpus in enumerate(work.corpora)
    )


@task("embed-shard", encodes=True, run_name="embed-{work.spec.name}-shard-{work.number}-of-{work.n_shards}")
def embed_shard(work: encoding.EncodeWork) -> encoding.Encoded:
    """Encode one shard wherever the task runner puts it; seals nothing."""
    return encoding.encode_work(work)


@task("embed-on-devices", encodes=True, run_name="embed-{works[0].spec.name}-on-devices")
def embed_on_devices(works: Sequence[encoding.EncodeWork]) -> list[encoding.Encoded]:
    """Encode the shards of one model in parallel on this machine, each in a process and on a device of its own.

    Seals nothing.

    Raises:
        WorkError: A process died.
    """
    with ProcessPoolExecutor(len(works), mp_context=get_context("spawn")) as pool:
        started = [pool.submit(encoding.encode_work, work) for work in works]
        try:
            return [encoding.logged(work, process.result()) for work, process in zip(works, started, strict=True)]
        except BrokenProcessPool as error:
            raise WorkError(
                f"a process that encoded with {works[0].spec.name!r} on one of "
                f"{', '.join(work.settings.device for work in works)} died; what was encoded is stored, run the same "
                "command to continue"
            ) from error


@task("is-complete")
def is_complete(
    specs: Sequence[EncoderSpec], corpora: Sequence[CorpusRef], modalities: Sequence[Modality], *, store_uri: str
) -> bool:
    """Whether every item of these sets that can be encoded is stored, sealed or not."""
    store = EmbeddingStore.open(store_uri)
    return not any(
        len(store.missing(SetKey.of(spec, corpus.name, corpus.fingerprint, modality), n_items))
        for spec in specs
        for corpus in corpora
        for modality, n_items in zip(MODALITIES, (corpus.n_images, corpus.n_captions), strict=True)
        if modality in encoding.modalities_of(corpus, modalities)
    )


def _lacking(store: EmbeddingStore, spec: EncoderSpec, corpus: CorpusRef) -> tuple[Modality, ...]:
    """The modalities of a corpus that cannot be encoded and were not imported for this encoder either."""
    keys = {m: SetKey.of(spec, corpus.name, corpus.fingerprint, m) for m in MODALITIES if m not in corpus.encodable}
    return tuple(modality for modality, key in keys.items() if store.sealed(key) is None)


def _reference(
    spec: EncoderSpec,
    corpus: CorpusRef,
    parts: Sequence[Mapping[Modality, encoding.EncodedSet]],
    lacking: tuple[Modality, ...],
) -> EmbedRef:
    """What all parts together encoded of one corpus."""
    gap = identity_gap(spec)
    encoded = [each for part in parts for each in part.values()]
    return EmbedRef(
        corpus=corpus,
        sets=SetsRef.of(SetKey.of(spec, corpus.name, corpus.fingerprint, "image")),
        n_items=sum(each.n_items for each in parts[0].values()),
        n_encoded=sum(each.n_encoded for each in encoded),
        n_truncated=sum(each.n_truncated for each in encoded),
        rounding=rounding_text(max((each.rounding for each in encoded), default=0.0), spec.storage),
        batches={side: each.batch_size for part in parts for side, each in part.items() if each.n_encoded},
        lacking=lacking,
        notes=(*([gap] if gap else []), *(import_advice(spec.name, corpus.name, each) for each in lacking)),
    )


@task("check-corpora", timeout_hours=12)
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
    passing, store = None, store_at(store_uri)
    register = [] if store is None else store.corpora()
    known, states = {row.name for row in register}, {row.fingerprint for row in register}
    for what in corpora:
        try:
            request = corpus_to_read(what, register, sample=sample, seed=seed)
            corpus = opened.read(request, store)
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


@task("register-corpus", timeout_hours=24)
def register_corpus(
    what: str | dict[str, Any], opened: OpenCorpora, *, store_uri: str, sample: int | None, seed: int
) -> CorpusRef:
    """Read a corpus, decode every image that the store has not seen, and store its items and thumbnails.

    Raises:
        RequestError: The corpus is unknown, missing, empty or contradicts itself.
    """
    store = EmbeddingStore.open(store_uri, create=True)
    register = store.corpora()
    request = corpus_to_read(what, register, sample=sample, seed=seed)
    usual = opened.read(request, store).name
    corpus = opened.index(store, request)
    changes = _changes(store, corpus, register)
    store.write_corpus(corpus)
    return CorpusRef(
        **request._asdict(),
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


def _changes(store: EmbeddingStore, corpus: Corpus, register: Sequence[StoredCorpus]) -> tuple[str, ...]:
    """Differences from the newest stored corpus of the same name; empty if there are none."""
    newest = max((row for row in register if row.name == corpus.name), key=lambda row: row.written, default=None)
    if newest is None or newest.fingerprint == corpus.fingerprint:
        return ()
    lines = describe_change(store.corpus(corpus.name, newest.fingerprint), corpus)
    if newest.locations and corpus.location not in newest.locations:
        lines.insert(0, f"the name {corpus.name!r} now means {corpus.location}; it meant {newest.locations[-1]}")
    return tuple(lines)


@task("resolve", run_name="resolve-{spec.name}", timeout_hours=1)
def resolve_encoder(spec: EncoderSpec) -> EncoderSpec:
    """The spec with every revision fixed; see :func:`tasks.encoders.resolve`."""
    return resolve(spec)
