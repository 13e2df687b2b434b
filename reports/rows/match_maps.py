"""Maps of where a caption matches an image, for the cases of the gallery: answers of late-interaction encoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from capim.reports.elements.match_maps import draw_map, encoded, opened, patch_map
from capim.reports.rows.selected_queries import SelectedQuery
from capim.store import EmbeddingStore
from capim.store.multivectors import Explanation
from capim.store.types import Corpus, EncoderSpec

MOST_CASES = 60  # that have maps: each map is a picture of the page


class Explain(Protocol):
    """Explains pairs of a caption and an image."""

    def __call__(self, *, encoder: str, corpus: str, pairs: Sequence[tuple[int, int]]) -> list[Explanation]:
        """The explanations of pairs of positions in the corpus; encoder and corpus by fingerprint."""
        ...


def map_key(corpus: str, encoder: str, query: int, image: int) -> str:
    """The key of a map among the pictures of a report."""
    return f"{corpus}/{encoder}/{query}/{image}"


def match_maps(
    source: EmbeddingStore,
    queries: Sequence[SelectedQuery],
    specs: Mapping[str, EncoderSpec],
    corpora: Mapping[str, Corpus],
    thumbnails: Mapping[str, bytes],
    explain: Explain,
) -> dict[str, bytes]:
    """Maps of the first cases with a caption as query, by :func:`map_key`: over the expected image, and over the first.

    None for encoders with one vector per item, and for images without a thumbnail or vectors without a layout.
    """
    stored = {(s.key.encoder, s.key.corpus) for s in source.sealed_sets() if s.key.modality == "image"}
    maps: dict[str, bytes] = {}
    cases = [query for query in queries if query.direction == "t2i"][:MOST_CASES]
    for encoder, spec in specs.items():
        for corpus in dict.fromkeys(query.corpus for query in cases):
            if spec.vectors == "single" or (encoder, corpus) not in stored:
                continue
            pairs = [
                (query.query, image)
                for query in cases
                for ranked in query.lists
                if query.corpus == corpus and ranked.encoder == encoder
                for image in dict.fromkeys([query.image, *(image for image, _ in ranked.top[:1])])
            ]
            if not pairs:
                continue
            explained = explain(encoder=spec.fingerprint, corpus=corpora[corpus].fingerprint, pairs=pairs)
            for (query, image), found in zip(pairs, explained, strict=True):
                if found.grids and (picture := thumbnails.get(found.sha)) is not None:
                    drawn = draw_map(opened(picture), found, patch_map(found))
                    maps[map_key(corpus, encoder, query, image)] = encoded(drawn)
    return maps
