"""A store with the vectors of real tiny models, for searches and maps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from capim.store import Block, EmbeddingStore
from capim.store.schema import texts
from capim.store.types import Corpus, EncoderSpec, Modality
from capim.tasks.corpora.images.decode import decode_image
from capim.tasks.corpora.subset import index_images
from capim.tasks.encoders import encode_captions, encode_images, load_encoder, spec_of


def encoded_store(folder: Path, corpus: Corpus, names: tuple[str, ...]) -> tuple[EmbeddingStore, list[EncoderSpec]]:
    """Sealed sets of both modalities by these encoders, and thumbnails."""
    store = EmbeddingStore.open(folder, create=True)
    store.write_corpus(corpus)
    index_images(corpus, known={}, sink=store.write_image_index)
    assert corpus.source is not None
    pictures = [decode_image(corpus.source.read(key)) for key in texts(corpus.images["key"])]
    specs = []
    modalities: tuple[Modality, ...] = ("image", "caption")
    for name in names:
        encoder = load_encoder(spec_of(name))
        store.write_encoder(encoder.spec)
        specs.append(encoder.spec)
        for modality in modalities:
            items = corpus.images if modality == "image" else corpus.captions
            made = (
                encode_images(encoder, pictures)
                if modality == "image"
                else encode_captions(encoder, texts(items["text"]))
            )
            ids = texts(items["id"])
            ords = np.arange(len(ids), dtype=np.int32)
            key = store.key(encoder=encoder.spec.fingerprint, corpus=corpus.fingerprint, modality=modality)
            block = Block(ords=ords, ids=ids, embeddings=made, input_shas=[""] * len(ids), batch_id="b")
            store.put(key, encoder.spec, block)
            store.seal(key, n_items=len(ids))
    return store, specs
