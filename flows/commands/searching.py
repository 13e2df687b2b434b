"""One search: encodes a query and finds the nearest stored items."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.commands.workspace import corpus_in
from reports.search import SearchHit, write_search
from store import EmbeddingStore
from store.errors import RequestError
from store.query.search import build_index, search
from store.schema import texts
from store.types import Embeddings, EncoderSpec, Modality
from tasks.corpora.images.decode import UndecodableImage, decode_image, thumbnail
from tasks.encoders import encode_captions, encode_images, load_encoder
from tasks.encoders.device import choose_device

FOUND_COLUMNS = ("rank", "score", "file", "text", "id", "objects", "language", "width", "height")


@dataclass(frozen=True, kw_only=True)
class Search:
    """A query and its nearest items, best first."""

    encoder: str
    corpus: str
    query: str
    picture: bytes | None
    modality: Modality
    rows: list[dict[str, Any]]
    indexed: bool


def find(
    store: EmbeddingStore,
    *,
    text: str | None,
    image: str | Path | None,
    encoder: str,
    corpus: str,
    k: int,
    use_index: bool,
    device: str,
) -> Search:
    """The ``k`` nearest images of a text, or captions of an image, with their files, and their texts or sizes.

    Raises:
        RequestError: The encoder or corpus is not in the store, the image cannot be read, or there is no query.
    """
    if bool(text) == bool(image):
        raise RequestError("give what to search for: a text, or --image FILE")
    spec = store.encoder(encoder)
    row = corpus_in(store, corpus)
    corpus = str(row["fingerprint"])
    stored = store.corpus(str(row["name"]), corpus)
    modality: Modality = "image" if text else "caption"
    queries, picture = _encoded(spec, text, Path(image) if image else None, device)
    if use_index:
        build_index(store, encoder=encoder, corpus=corpus, modality=modality)
    hits = search(store, queries, encoder=encoder, corpus=corpus, modality=modality, k=k, use_index=use_index)
    items = stored.images if modality == "image" else stored.captions
    shown = ("width", "height", "objects", "sha") if modality == "image" else ("text", "language", "image_id")
    files = dict(zip(texts(stored.images["id"]), texts(stored.images["key"]), strict=True))
    rows = []
    for hit in hits.to_pylist():
        item = items.slice(hit["ord"], 1).to_pylist()[0]
        found = {"rank": hit["rank"], "id": hit["item_id"], "score": hit["score"]}
        file = files.get(item["id"] if modality == "image" else item["image_id"])
        rows.append({**found, "file": file, **{n: item[n] for n in shown}})
    return Search(
        encoder=encoder,
        corpus=stored.name,
        query=text or str(image),
        picture=picture,
        modality=modality,
        rows=rows,
        indexed=use_index,
    )


def write_gallery(store: EmbeddingStore, target: Path, found: Search) -> Path:
    """Write the search as one self-contained page; returns its path."""
    small = store.thumbnails([row["sha"] for row in found.rows if row.get("sha")])
    items = [
        SearchHit(id=row["id"], score=row["score"], text=row.get("text"), thumbnail=small.get(row.get("sha", "")))
        for row in found.rows
    ]
    return write_search(
        target,
        query=found.query,
        hits=items,
        encoder=found.encoder,
        corpus=found.corpus,
        picture=found.picture,
        indexed=found.indexed,
    )


def _encoded(spec: EncoderSpec, text: str | None, image: Path | None, device: str) -> tuple[Embeddings, bytes | None]:
    """The embedding of the query, and a thumbnail if the query is an image."""
    picture = None
    if image is not None:
        try:
            picture = decode_image(image.read_bytes())
        except OSError as error:
            raise RequestError(f"image {str(image)!r} cannot be read: {error.strerror}") from error
        except UndecodableImage as error:
            raise RequestError(f"image {str(image)!r} cannot be decoded: {error}") from error
    encoder = load_encoder(spec, device=choose_device(device))
    if picture is not None:
        return encode_images(encoder, [picture]), thumbnail(picture)
    return encode_captions(encoder, [text or ""]), None
