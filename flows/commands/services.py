"""What the pages of `capim serve` ask for, by the same functions as the commands `search`, `explain` and `export`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.layout import Explanation
from capim.store.types import EncoderSpec, Modality
from capim.store.values import Map, Method

if TYPE_CHECKING:
    from capim.reports.gallery_pages import Search
    from capim.tasks.encoders import Encoder

MODELS = 3  # in memory; of more, the one that was used longest ago is dropped


class StoreServices:
    """The services over one store (``reports.app.state.Services``).

    Args:
        store: Read only.
        maps: A folder that maps are kept in, beside the store; None: nowhere.
        device: Encodes what is searched for.
    """

    def __init__(self, store: EmbeddingStore, *, maps: Path | None = None, device: str = "auto") -> None:
        self.store = store
        self.maps = maps
        self.device = device
        self._models: dict[str, Encoder] = {}
        self._encoding = Lock()
        self._mapping = Lock()

    def search(
        self,
        *,
        encoder: str,
        corpus: str,
        text: str | None = None,
        image: bytes | None = None,
        like: tuple[Modality, int] | None = None,
        modality: Modality | None = None,
        k: int = 10,
    ) -> Search:
        """The nearest items, as ``capim search`` finds them; ``like``: to a stored item, by its position."""
        from capim.flows.commands.searching import find

        vector = None if like is None else self._stored(encoder, corpus, *like)
        with self._encoding:
            return find(
                self.store,
                text=text,
                image=image,
                vector=vector,
                encoder=encoder,
                corpus=corpus,
                modality=modality,
                k=k,
                use_index=False,
                device=self.device,
                load=self._model,
            )

    def loaded(self, encoder: str) -> bool:
        """Whether the model of an encoder is in memory."""
        return self.store.encoder(encoder).fingerprint in self._models

    def thumbnail(self, image: bytes) -> bytes:
        """A small JPEG of an encoded image."""
        from capim.flows.commands.searching import read_picture
        from capim.tasks.corpora.images.decode import thumbnail

        return thumbnail(read_picture(image))

    def map(self, *, encoder: str, corpus: str, modality: Modality, method: Method) -> Map:
        """The items of an embedding set as points of a plane."""
        from capim.tasks.results.maps import map_of

        with self._mapping:  # two pages that ask for the same map compute it once
            return map_of(
                self.store, encoder=encoder, corpus=corpus, modality=modality, method=method, folder=self.maps
            )

    def explain(self, *, encoder: str, corpus: str, pairs: Sequence[tuple[int, int]]) -> list[Explanation]:
        """Of every pair (position of a caption and of an image), where they match."""
        from capim.tasks.runtime.stored import explain_pairs

        return explain_pairs(self.store, encoder=encoder, corpus=corpus, pairs=pairs)

    def _model(self, spec: EncoderSpec, device: str) -> Encoder:
        from capim.flows.commands.searching import load_encoder_on

        model = self._models.pop(spec.fingerprint, None) or load_encoder_on(spec, device)
        while len(self._models) >= MODELS:
            del self._models[next(iter(self._models))]
        self._models[spec.fingerprint] = model
        return model

    def _stored(self, encoder: str, corpus: str, modality: Modality, position: int) -> NDArray[np.float32]:
        key = self.store.key(encoder=encoder, corpus=corpus, modality=modality)
        (rows,) = self.store.stored_blocks(key, ords=np.array([position], np.int32))
        return np.asarray(rows.vectors.values, np.float32)
