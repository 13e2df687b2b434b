"""Tasks: encode what the store does not have of some corpora with one model, whole or in shards."""

from __future__ import annotations

from collections.abc import Sequence

from store import EmbeddingStore
from store.keys import set_key
from store.rounding import Rounding
from store.types import EncoderSpec
from tasks.runtime.artifacts import shown_progress
from tasks.runtime.encoding import EncodedSet
from tasks.runtime.references import CorpusRef, EmbedRef, SetsRef
from tasks.runtime.shards import MODALITIES, EncodeWork, encode_in_processes, encode_work
from tasks.runtime.shell import shell

Encoded = list[list[EncodedSet]]  # by corpus and modality


@shell("embed", encodes=True, run_name="embed-{work.spec.name}")
def embed_corpora(work: EncodeWork, shards: Sequence[Encoded] = ()) -> tuple[EmbedRef, ...]:
    """Encode images and captions of corpora block by block into the store, and seal the sets.

    The model is loaded once for all corpora, when the first missing item is reached. An interrupted encode continues
    with the next call. ``shards`` is what :func:`embed_shard` encoded before.
    """
    with shown_progress():
        parts = [encode_work(work), *shards]
    return tuple(_reference(work.spec, corpus, [part[at] for part in parts]) for at, corpus in enumerate(work.corpora))


@shell("embed-shard", encodes=True, run_name="embed-{work.spec.name}-shard-{work.shard}-of-{work.n_shards}")
def embed_shard(work: EncodeWork) -> Encoded:
    """Encode one shard wherever the task runner puts it; seals nothing."""
    with shown_progress():
        return encode_work(work)


@shell("embed-on-devices", encodes=True, run_name="embed-{works[0].spec.name}-on-devices")
def embed_on_devices(works: Sequence[EncodeWork]) -> list[Encoded]:
    """Encode the shards of one model in parallel on this machine, each on its own device; seals nothing."""
    return encode_in_processes(works)


@shell("is-complete")
def is_complete(specs: Sequence[EncoderSpec], corpora: Sequence[CorpusRef], *, store_uri: str) -> bool:
    """Whether every item of these sets is stored, sealed or not."""
    store = EmbeddingStore.open(store_uri)
    return not any(
        len(store.missing(set_key(spec, corpus.name, corpus.fingerprint, modality), n_items))
        for spec in specs
        for corpus in corpora
        for modality, n_items in zip(MODALITIES, (corpus.n_images, corpus.n_captions), strict=True)
    )


def _reference(spec: EncoderSpec, corpus: CorpusRef, parts: Sequence[Sequence[EncodedSet]]) -> EmbedRef:
    """What all parts together encoded of one corpus."""
    roundings = [encoded.rounding for part in parts for encoded in part]
    return EmbedRef(
        corpus=corpus,
        sets=SetsRef(
            encoder=spec.name,
            encoder_fingerprint=spec.fingerprint,
            corpus=corpus.name,
            corpus_fingerprint=corpus.fingerprint,
        ),
        n_items=corpus.n_images + corpus.n_captions,
        n_encoded=sum(encoded.n_encoded for part in parts for encoded in part),
        n_truncated=sum(encoded.n_truncated for part in parts for encoded in part),
        rounding=sum(roundings, Rounding()).text(spec.storage),
        batches={
            modality: encoded.batch_size
            for part in parts
            for modality, encoded in zip(MODALITIES, part, strict=True)
            if encoded.n_encoded
        },
    )
