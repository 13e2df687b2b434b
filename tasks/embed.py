"""Tasks: encode what the store does not have of some corpora with one model, whole or in shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from capim.store import EmbeddingStore
from capim.store.keys import set_key
from capim.store.rounding import Rounding
from capim.store.types import MODALITIES, EncoderSpec, Modality
from capim.tasks.corpora.encodable import import_advice
from capim.tasks.encoders import identity_gap
from capim.tasks.runtime.encoding import EncodedSet, tokens_spent
from capim.tasks.runtime.references import CorpusRef, EmbedRef, SetsRef
from capim.tasks.runtime.shards import Encoded, EncodeWork, encode_in_processes, encode_work, modalities_of
from capim.tasks.runtime.shell import shell


@shell("embed", encodes=True, run_name="embed-{work.spec.name}")
def embed_corpora(work: EncodeWork, shards: Sequence[Encoded] = ()) -> tuple[EmbedRef, ...]:
    """Encode images and captions of corpora block by block into the store, and seal the sets.

    The model is loaded once for all corpora, when the first missing item is reached. An interrupted encode continues
    with the next call. ``shards`` is what :func:`embed_shard` encoded before.
    """
    parts = [encode_work(work), *shards]
    store = EmbeddingStore.open(work.store_uri)
    return tuple(
        _reference(work.spec, corpus, [part[at] for part in parts], _lacking(store, work.spec, corpus))
        for at, corpus in enumerate(work.corpora)
    )


@shell("embed-shard", encodes=True, run_name="embed-{work.spec.name}-shard-{work.number}-of-{work.n_shards}")
def embed_shard(work: EncodeWork) -> Encoded:
    """Encode one shard wherever the task runner puts it; seals nothing."""
    return encode_work(work)


@shell("embed-on-devices", encodes=True, run_name="embed-{works[0].spec.name}-on-devices")
def embed_on_devices(works: Sequence[EncodeWork]) -> list[Encoded]:
    """Encode the shards of one model in parallel on this machine, each on its own device; seals nothing."""
    return encode_in_processes(works)


@shell("is-complete")
def is_complete(
    specs: Sequence[EncoderSpec], corpora: Sequence[CorpusRef], modalities: Sequence[Modality], *, store_uri: str
) -> bool:
    """Whether every item of these sets that can be encoded is stored, sealed or not."""
    store = EmbeddingStore.open(store_uri)
    return not any(
        len(store.missing(set_key(spec, corpus.name, corpus.fingerprint, modality), n_items))
        for spec in specs
        for corpus in corpora
        for modality, n_items in zip(MODALITIES, (corpus.n_images, corpus.n_captions), strict=True)
        if modality in modalities_of(corpus, modalities)
    )


def _lacking(store: EmbeddingStore, spec: EncoderSpec, corpus: CorpusRef) -> tuple[Modality, ...]:
    """The modalities of a corpus that cannot be encoded and were not imported for this encoder either."""
    keys = {m: set_key(spec, corpus.name, corpus.fingerprint, m) for m in MODALITIES if m not in corpus.encodable}
    return tuple(modality for modality, key in keys.items() if store.sealed(key) is None)


def _reference(
    spec: EncoderSpec,
    corpus: CorpusRef,
    parts: Sequence[Mapping[Modality, EncodedSet]],
    lacking: tuple[Modality, ...],
) -> EmbedRef:
    """What all parts together encoded of one corpus."""
    gap = identity_gap(spec)
    encoded = [each for part in parts for each in part.values()]
    return EmbedRef(
        corpus=corpus,
        sets=SetsRef(
            encoder=spec.name,
            encoder_fingerprint=spec.fingerprint,
            corpus=corpus.name,
            corpus_fingerprint=corpus.fingerprint,
        ),
        n_items=sum(each.n_items for each in parts[0].values()),
        n_encoded=sum(each.n_encoded for each in encoded),
        n_truncated=sum(each.n_truncated for each in encoded),
        rounding=sum((each.rounding for each in encoded), Rounding()).text(spec.storage),
        batches={side: each.batch_size for part in parts for side, each in part.items() if each.n_encoded},
        lacking=lacking,
        notes=(
            *([gap] if gap else []),
            *tokens_spent(f"{spec.name} on {corpus.name}", encoded),
            *(import_advice(spec.name, corpus.name, each) for each in lacking),
        ),
    )
