"""Search in a store for a query and for the pages of `capim serve`: the nearest items, and why they match."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.files import existing_file
from capim.store.schema import texts
from capim.store.sets.search import search
from capim.store.types import EncoderSpec, Found, Modality
from capim.store.vectors import Explanation, unit_vectors
from capim.tasks.encoders import Encoder, encode_captions, encode_images, load_encoder
from capim.tasks.encoders.device import choose_device

if TYPE_CHECKING:  # `import capim` needs this file's functions, not what opens images
    from PIL.Image import Image as Picture

Load: TypeAlias = Callable[[EncoderSpec, str], Encoder]  # a model, and the device that it is on
FOUND_COLUMNS = ("rank", "score", "file", "text", "id", "objects", "language", "width", "height")


def find(
    store: EmbeddingStore,
    text: str | None = None,
    *,
    image: str | Path | bytes | None = None,
    vector: str | Path | NDArray[np.floating] | None = None,
    encoder: str,
    corpus: str,
    modality: Modality | None = None,
    k: int = 10,
    device: str = "auto",
    load: Load | None = None,
) -> Found:
    """Return the items nearest to a text, an image, both or a vector, best first, with files, and texts or sizes.

    ``score`` is the cosine, of late-interaction encoders MaxSim.

    Args:
        store: The store.
        text: The query, with or without an image.
        image: The query is this file, or these encoded bytes; with a text the normalised sum of both unit vectors.
        vector: The query is this vector, or that of a .npy file, by its path: shape ``(dim,)``; of a multi-vector
            encoder ``(n, dim)``.
        encoder: Name or fingerprint; of the query and of the items.
        corpus: Name, path or fingerprint.
        modality: The searched items; None: captions for only an image, else images.
        k: Number of items.
        device: Encodes the query.
        load: Gives the model of a spec on a device; by default it is loaded again.

    Raises:
        RequestError: The encoder or corpus is not in the store, the file cannot be read, or there is no query.
    """
    from capim.tasks.corpora.naming import stored_corpus

    if vector is not None and (text or image):
        raise RequestError("a vector is a query on its own; leave out the text and the image")
    if vector is None and not ((text or "").strip() or image):
        raise RequestError("give what to search for: a text, or --image FILE, or both, or --vector FILE.npy")
    if text and any(0xD800 <= ord(character) < 0xE000 for character in text):
        raise RequestError(f"the text {text!r} is not UTF-8; give it in UTF-8")
    spec = store.encoder(encoder)
    row = stored_corpus(corpus, store.corpora(), uri=store.uri)
    corpus = str(row.fingerprint)
    stored = store.corpus(str(row.name), corpus)
    modality = modality or ("caption" if image and not text else "image")
    load = load or load_encoder_on
    query = _given(spec, vector) if vector is not None else _encoded(spec, text, image, device, load)
    ords, scores = search(store, query, encoder=encoder, corpus=corpus, modality=modality, k=k)
    items = stored.items(modality)
    shown = ("width", "height", "objects", "sha") if modality == "image" else ("text", "language", "image_id")
    files = dict(zip(texts(stored.images["id"]), texts(stored.images["key"]), strict=True))
    rows = []
    for rank, (place, score) in enumerate(zip(ords.tolist(), scores.tolist(), strict=True), 1):
        item = items.slice(place, 1).to_pylist()[0]
        found = {"rank": rank, "id": item["id"], "score": score}
        file = files.get(item["id"] if modality == "image" else item["image_id"])
        rows.append({**found, "file": file, **{n: item[n] for n in shown}})
    return Found(modality, rows)


def _given(spec: EncoderSpec, vector: str | Path | NDArray[np.floating]) -> NDArray[np.float32]:
    """Return a vector as a query, shape ``(n_vectors, dim)``."""
    name = "a vector" if isinstance(vector, np.ndarray) else str(vector)
    try:
        values = vector if isinstance(vector, np.ndarray) else np.load(existing_file(Path(vector)), allow_pickle=False)
        values = np.atleast_2d(np.asarray(values, dtype=np.float32))
    except (EOFError, OSError, ValueError, TypeError) as error:
        raise RequestError(f"{name} cannot be read as a .npy file with numbers: {error}") from error
    several = "(n, dim) with n vectors of one item" if spec.vectors == "multi" else "(dim,)"
    expected = f"expected shape {several}, dim {spec.dim}, as encoder {spec.name!r} has"
    if values.ndim != 2 or values.shape[1] != spec.dim or (spec.vectors == "single" and len(values) != 1):
        raise RequestError(f"{name} has shape {values.shape}; {expected}")
    with np.errstate(over="ignore"):
        norms = np.linalg.norm(values, axis=1)
    if not (np.isfinite(norms).all() and norms.all()):
        raise RequestError(f"{name} has a value that is too large or not finite, or only zeros")
    return unit_vectors(values)


def load_encoder_on(spec: EncoderSpec, device: str) -> Encoder:
    """Return the model of a spec on a device, ``auto`` for the best one."""
    return load_encoder(spec, device=choose_device(device))


def read_picture(image: str | Path | bytes) -> Picture:
    """Return the picture in a file or in encoded bytes, upright, in RGB.

    Raises:
        RequestError: It cannot be read or decoded; names the formats.
    """
    from capim.tasks.corpora.images.decode import FORMATS, UndecodableImage, decode_image

    name = "the picture" if isinstance(image, bytes) else f"image {str(image)!r}"
    try:
        return decode_image(image if isinstance(image, bytes) else existing_file(Path(image)).read_bytes())
    except OSError as error:
        raise RequestError(f"{name} cannot be read: {error.strerror}") from error
    except UndecodableImage as error:
        raise RequestError(f"{name} cannot be decoded: {error}; formats: {', '.join(FORMATS)}") from error


def _encoded(
    spec: EncoderSpec, text: str | None, image: str | Path | bytes | None, device: str, load: Load
) -> NDArray[np.float32]:
    """Return the unit vectors of the query, shape ``(n_vectors, dim)``."""
    if text and image and spec.vectors == "multi":
        raise RequestError(
            f"encoder {spec.name!r} has several vectors per item: a text and an image cannot be added; give one"
        )
    if not spec.has_weights:
        raise RequestError(f"encoder {spec.name!r} was imported without its model; give the query as --vector FILE.npy")
    pictures = [read_picture(image)] if image else []
    encoder = load(spec, device)
    encoded = [encode_images(encoder, pictures).values] if pictures else []
    encoded += [encode_captions(encoder, [text]).values] if text else []
    if len(encoded) == 1:
        return encoded[0]
    total = encoded[0] + encoded[1]
    if not np.linalg.norm(total):
        raise RequestError("the vectors of the text and the image cancel each other out; give one of them")
    return unit_vectors(total)


MODELS = 3  # in memory; of more, the one that was used longest ago is dropped


class StoreServices:
    """The services over one store (``reports.app.state.Services``).

    Args:
        store: Read only.
        device: Encodes the query.
    """

    def __init__(self, store: EmbeddingStore, *, device: str = "auto") -> None:
        self.store = store
        self.device = device
        self._models: dict[str, Encoder] = {}
        self._encoding = Lock()

    def search(self, *, encoder: str, corpus: str, like: tuple[Modality, int] | None = None, **query: Any) -> Found:
        """Return what :func:`find` finds; ``like``: nearest to a stored item, by its position."""
        query["vector"] = None if like is None else self._stored(encoder, corpus, *like)
        with self._encoding:
            return find(self.store, encoder=encoder, corpus=corpus, device=self.device, load=self._model, **query)

    def loaded(self, encoder: str) -> bool:
        """True if the model of an encoder is in memory."""
        return self.store.encoder(encoder).fingerprint in self._models

    def thumbnail(self, image: bytes) -> bytes:
        """Return a small JPEG of an encoded image."""
        from capim.tasks.corpora.images.decode import thumbnail

        return thumbnail(read_picture(image))

    def explain(self, *, encoder: str, corpus: str, pairs: Sequence[tuple[int, int]]) -> list[Explanation]:
        """Return where each pair (position of a caption and of an image) matches."""
        from capim.tasks.analyses.vectors import explain_pairs

        return explain_pairs(self.store, encoder=encoder, corpus=corpus, pairs=pairs)

    def _model(self, spec: EncoderSpec, device: str) -> Encoder:
        model = self._models.pop(spec.fingerprint, None)
        while len(self._models) >= MODELS:
            del self._models[next(iter(self._models))]
        self._models[spec.fingerprint] = model or load_encoder_on(spec, device)
        return self._models[spec.fingerprint]

    def _stored(self, encoder: str, corpus: str, modality: Modality, position: int) -> NDArray[np.float32]:
        key = self.store.key(encoder=encoder, corpus=corpus, modality=modality)
        (rows,) = self.store.stored_blocks(key, ords=np.array([position], np.int32))
        return np.asarray(rows.vectors.values, np.float32)
