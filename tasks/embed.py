"""Shells: register a corpus; encode with one model what the store does not have of the corpora yet."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

from store import EmbeddingStore
from store.errors import RequestError, WorkError
from store.keys import set_key
from store.types import Corpus, EncoderSpec, Modality
from tasks.corpora import open_corpus
from tasks.corpora.change import describe_change
from tasks.corpora.images.image_index import index_images
from tasks.runtime.artifacts import shown_progress
from tasks.runtime.encoding import EncodeSettings, SetEncoder, Shard
from tasks.runtime.progress import track
from tasks.runtime.references import CorpusRef, EmbedRef, SetsRef
from tasks.runtime.retries import may_pass
from tasks.runtime.shell import shell

MODALITIES: tuple[Modality, ...] = ("image", "caption")
SHOWN_SKIPS = 5
_KEPT = 8
_READ: OrderedDict[str, Corpus] = OrderedDict()  # what this process read of files, not yet registered
_OPEN: OrderedDict[str, Corpus] = OrderedDict()  # what it registered, by reference


@shell("check-corpora", kind="read", timeout_hours=12)
def check_corpora(corpora: Sequence[str | dict[str, Any]], sample: int | None, seed: int) -> list[str]:
    """Read corpora before anything is written; returns every fault of every one of them.

    Raises:
        RequestError: All faults too, but where one of them may pass: a hub that did not answer.
    """
    faults: list[str] = []
    passing: RequestError | None = None
    for what in corpora:
        try:
            _keep(_READ, _asked(what, sample, seed), open_corpus(what, sample=sample, seed=seed))
        except RequestError as error:
            faults.extend(error.faults)
            passing = error if may_pass(error) else passing
    if passing is not None:
        raise RequestError(faults) from passing
    return faults


@shell("register-corpus", kind="read", timeout_hours=24)
def register_corpus(what: str | dict[str, Any], *, store_uri: str, sample: int | None, seed: int) -> CorpusRef:
    """Read a corpus, decode every image that the store has not seen, and keep its items and thumbnails.

    Raises:
        RequestError: The corpus is unknown, missing, empty or contradicts itself.
    """
    corpus = _read(what, store_uri=store_uri, sample=sample, seed=seed)
    store = EmbeddingStore.open(store_uri, create=True)
    changes = _changes(store, corpus)
    store.write_corpus(corpus)
    reference = CorpusRef(
        what=what,
        sample=sample,
        seed=seed,
        name=corpus.name,
        fingerprint=corpus.fingerprint,
        n_images=len(corpus.images),
        n_captions=len(corpus.captions),
        n_skipped=len(corpus.skipped),
        changes=changes,
        skipped=tuple(f"{s['image_id']}: {s['reason']}" for s in corpus.skipped.slice(0, SHOWN_SKIPS).to_pylist()),
    )
    _keep(_OPEN, _handle(reference), corpus)
    return reference


@shell("embed", kind="encode", run_name="embed-{spec.name}")
def embed_corpora(
    spec: EncoderSpec,
    corpora: tuple[CorpusRef, ...],
    *,
    store_uri: str,
    settings: EncodeSettings,
    run: str,
    shards: Sequence[Shard] = (),
) -> tuple[EmbedRef, ...]:
    """Encode images and captions of corpora with one model, block by block into the store, and seal the sets.

    The model is loaded when the first item is missing, and once for all corpora. Stopped at any moment, the next
    call goes on where this one was. ``shards`` are what :func:`embed_shard` encoded before.
    """
    store = EmbeddingStore.open(store_uri, create=True)
    store.write_encoder(spec)
    devices = settings.device.split(",")
    if len(devices) > 1 and not shards:
        shards = _in_processes(devices, spec, corpora, store_uri=store_uri, settings=settings, run=run)
    settings = replace(settings, device=devices[0])
    references = []
    with closing(SetEncoder(spec, store, settings, run)) as encoder:
        for at, reference in enumerate(corpora):
            started = time.monotonic()
            corpus = opened_corpus(reference, store_uri)
            with shown_progress():
                done = [encoder.encode(corpus, modality) for modality in MODALITIES]
            parts = [done, *(shard[at] for shard in shards)]
            every = [part for whole in parts for part in whole]
            references.append(
                EmbedRef(
                    corpus=reference,
                    sets=SetsRef(
                        encoder=spec.name,
                        encoder_fingerprint=spec.fingerprint,
                        corpus=corpus.name,
                        corpus_fingerprint=corpus.fingerprint,
                    ),
                    n_items=sum(part.n_items for part in done),
                    n_encoded=sum(part.n_encoded for part in every),
                    n_truncated=sum(part.n_truncated for part in every),
                    batches={
                        modality: part.batch_size
                        for whole in parts
                        for modality, part in zip(MODALITIES, whole, strict=True)
                        if part.n_encoded
                    },
                    seconds=time.monotonic() - started,
                )
            )
    return tuple(references)


def _in_processes(
    devices: Sequence[str],
    spec: EncoderSpec,
    corpora: tuple[CorpusRef, ...],
    *,
    store_uri: str,
    settings: EncodeSettings,
    run: str,
) -> list[Shard]:
    """Encode on several devices side by side, in a process each; returns what each came to, by corpus and modality."""
    with ProcessPoolExecutor(len(devices), mp_context=get_context("spawn")) as pool:
        started = [
            pool.submit(
                encode_shard, spec, corpora, store_uri, replace(settings, device=device), run, shard, len(devices)
            )
            for shard, device in enumerate(devices)
        ]
        try:
            return [shard.result() for shard in started]
        except BrokenProcessPool as error:
            raise WorkError(
                f"a process that encoded with {spec.name!r} on one of {', '.join(devices)} died; what was stored is "
                "kept, the same command goes on where it stopped"
            ) from error


def encode_shard(
    spec: EncoderSpec,
    corpora: tuple[CorpusRef, ...],
    store_uri: str,
    settings: EncodeSettings,
    run: str,
    shard: int,
    n_shards: int,
) -> Shard:
    """One of ``n_shards`` parts of every set, on this process' own device; seals nothing."""
    store = EmbeddingStore.open(store_uri)
    with closing(SetEncoder(spec, store, settings, run)) as encoder:
        return [
            [encoder.encode(corpus, modality, shard=shard, n_shards=n_shards) for modality in MODALITIES]
            for corpus in (opened_corpus(reference, store_uri) for reference in corpora)
        ]


@shell("embed-shard", kind="encode", run_name="embed-{spec.name}-shard-{shard}-of-{n_shards}")
def embed_shard(
    spec: EncoderSpec,
    corpora: tuple[CorpusRef, ...],
    *,
    store_uri: str,
    settings: EncodeSettings,
    run: str,
    shard: int,
    n_shards: int,
) -> Shard:
    """One of ``n_shards`` parts of every set, counted from 0, wherever the task runner puts it; seals nothing."""
    EmbeddingStore.open(store_uri, create=True).write_encoder(spec)
    with shown_progress():
        return encode_shard(spec, corpora, store_uri, settings, run, shard, n_shards)


@shell("is-complete", kind="read")
def is_complete(specs: Sequence[EncoderSpec], corpora: Sequence[CorpusRef], *, store_uri: str) -> bool:
    """Whether every item of these sets is stored, sealed or not."""
    store = EmbeddingStore.open(store_uri)
    return not any(
        len(store.missing(set_key(spec, corpus.name, corpus.fingerprint, modality), n_items))
        for spec in specs
        for corpus in corpora
        for modality, n_items in zip(MODALITIES, (corpus.n_images, corpus.n_captions), strict=True)
    )


def _read(what: str | dict[str, Any], *, store_uri: str, sample: int | None, seed: int) -> Corpus:
    """The corpus without undecodable images; only images never seen before are decoded."""
    corpus = _READ.pop(_asked(what, sample, seed), None) or open_corpus(what, sample=sample, seed=seed)
    store = EmbeddingStore.open(store_uri, create=True)
    shas = corpus.images["sha"].drop_null().unique().to_pylist()
    known = store.indexed_images(shas)
    with track(f"{corpus.name} · decoding", total=len(shas) - len(known), unit="images") as advance:
        done = 0

        def progress(finished: int, _total: int) -> None:
            nonlocal done
            advance(finished - done)
            done = finished

        return index_images(corpus, known=known, sink=store.write_image_index, progress=progress)


def _changes(store: EmbeddingStore, corpus: Corpus) -> tuple[str, ...]:
    """What the corpus has become different in since the store last saw one of its name."""
    if corpus.name not in store.corpora()["name"].to_pylist():
        return ()
    known = store.corpus(corpus.name)
    return () if known.fingerprint == corpus.fingerprint else tuple(describe_change(known, corpus))


def opened_corpus(reference: CorpusRef, store_uri: str) -> Corpus:
    """The corpus of a reference, with its image bytes within reach."""
    if (corpus := _OPEN.get(_handle(reference))) is not None:
        return corpus
    corpus = _read(reference.what, store_uri=store_uri, sample=reference.sample, seed=reference.seed)
    if corpus.fingerprint != reference.fingerprint:
        raise WorkError(
            f"corpus {reference.name!r} changed while the run was on: it was registered as {reference.fingerprint} "
            f"and is now {corpus.fingerprint}. What was stored is kept; run again"
        )
    return corpus


def _asked(what: str | dict[str, Any], sample: int | None, seed: int) -> str:
    return json.dumps([what, sample, seed], sort_keys=True, default=str)


def _handle(reference: CorpusRef) -> str:
    return f"{_asked(reference.what, reference.sample, reference.seed)} {reference.fingerprint}"


def _keep(kept: OrderedDict[str, Corpus], name: str, corpus: Corpus) -> None:
    """Keep the last few corpora open: their images' bytes stay where they are, only the tables are in memory."""
    kept[name] = corpus
    while len(kept) > _KEPT:
        kept.popitem(last=False)
