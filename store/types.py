"""The nouns that every layer shares: encoders, corpora, embeddings, protocols.

Values only: frozen, keyword-only, checked when made, never changed. Nothing here reads a file, loads a
model or knows LanceDB. Axis names and orders are those of the whole project: ``n`` items in corpus order,
``dim`` components; a row of scores is a query, higher is closer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.schema import CAPTIONS, IMAGES, PAIRS, QUADRUPLES, RELEVANCE, SKIPPED

Modality: TypeAlias = Literal["image", "caption"]
Direction: TypeAlias = Literal["t2i", "i2t", "pairs", "quadruples"]
VectorKind: TypeAlias = Literal["single", "multi"]
Precision: TypeAlias = Literal["float32", "bfloat16", "float16"]
Option: TypeAlias = str | int | float | bool

_BRANCHES = frozenset({"main", "master", "latest", "HEAD"})


def canonical_json(value: object) -> str:
    """The one JSON text of a value: sorted keys, no spaces, so that equal values have equal texts.

    Examples:
        >>> canonical_json({"b": 1, "a": [1.5, "é"]})
        '{"a":[1.5,"é"],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest16(value: object) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of a value's canonical JSON.

    Examples:
        >>> digest16({"a": 1})
        '015abd7f5cc57a2d'
    """
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class EncoderSpec:
    """One model at one revision, with everything that changes a vector.

    Attributes:
        name: What people call it; unique within a run, ``[A-Za-z0-9._-]``.
        adapter: Key of ``tasks.encoders.ADAPTERS``.
        checkpoint: Hub id, local folder, or whatever the adapter loads.
        revision: Branch, tag or commit on the hub; ``tasks.encoders.resolve`` replaces a branch by the commit
            (for a local folder: by the digest of its files). Only a resolved spec has a fingerprint.
        vectors: One vector per item, or many (late interaction).
        dim: Components of one vector.
        precision: Of the forward pass. What comes out of an encoder is float32 in any case.
        storage: Type of a stored component.
        options: The adapter's own settings that change a vector: prompts, maximum length, image backend.
        adapter_version: Raised by an adapter whenever its vectors change.
    """

    name: str
    adapter: str
    checkpoint: str
    dim: int
    revision: str = "main"
    vectors: VectorKind = "single"
    precision: Precision = "float32"
    storage: Literal["float16", "float32"] = "float16"
    options: Mapping[str, Option] = field(default_factory=dict)
    adapter_version: int = 1

    def __post_init__(self) -> None:
        faults = []
        if not self.name or not all(c.isascii() and (c.isalnum() or c in "._-") for c in self.name):
            faults.append("name may hold only ASCII letters, digits, '.', '_' and '-'")
        if self.dim < 1:
            faults.append(f"dim must be at least 1, got {self.dim}")
        if self.vectors not in ("single", "multi"):
            faults.append(f"vectors must be 'single' or 'multi', got {self.vectors!r}")
        if self.precision not in ("float32", "bfloat16", "float16"):
            faults.append(f"precision must be float32, bfloat16 or float16, got {self.precision!r}")
        if self.storage not in ("float16", "float32"):
            faults.append(f"storage must be float16 or float32, got {self.storage!r}")
        if faults:
            raise ValueError(f"encoder {self.name!r}: {'; '.join(faults)}")

    @property
    def resolved(self) -> bool:
        """Whether the revision names one fixed state of the model rather than a branch."""
        return self.revision not in _BRANCHES

    def identity(self) -> dict[str, object]:
        """All that changes a vector, as plain values; the name people give a model is not part of it."""
        return {
            "adapter": self.adapter,
            "adapter_version": self.adapter_version,
            "checkpoint": self.checkpoint,
            "revision": self.revision,
            "vectors": self.vectors,
            "dim": self.dim,
            "precision": self.precision,
            "storage": self.storage,
            "options": dict(sorted(self.options.items())),
        }

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits over :meth:`identity`.

        Raises:
            ValueError: The revision is still a branch.
        """
        if not self.resolved:
            raise ValueError(
                f"encoder {self.name!r}: revision {self.revision!r} is a branch, which can move; "
                "resolve it to a commit first (tasks.encoders.resolve)"
            )
        return digest16(self.identity())


@dataclass(frozen=True, kw_only=True)
class Embeddings:
    """A block of embeddings as an encoder gives them, in the order of its input.

    Attributes:
        values: float32, unit norm per row. Single: shape ``(n, dim)``. Multi: all vectors of all items one
            after the other, shape ``(sum of counts, dim)``.
        offsets: Multi only: int64, shape ``(n + 1,)``; item ``i`` owns rows ``offsets[i]:offsets[i + 1]``.
        norms: float32, shape ``(n,)``: the norm before normalisation (multi: mean over the item's vectors).
        n_tokens: int32, shape ``(n,)``: tokens that the model saw, special tokens included, padding not.
        truncated: bool, shape ``(n,)``: whether the input was longer than the model takes.
    """

    values: NDArray[np.float32]
    norms: NDArray[np.float32]
    n_tokens: NDArray[np.int32]
    truncated: NDArray[np.bool_]
    offsets: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        n = len(self)
        if self.values.ndim != 2:
            raise ValueError(f"values must have shape (rows, dim), got {self.values.shape}")
        if self.offsets is None and len(self.values) != n:
            raise ValueError(f"{len(self.values)} vectors for {n} items")
        if self.offsets is not None and (
            self.offsets.shape != (n + 1,) or self.offsets[0] != 0 or self.offsets[-1] != len(self.values)
        ):
            raise ValueError(f"offsets must run from 0 to {len(self.values)} over {n} items")
        if len(self.n_tokens) != n or len(self.truncated) != n:
            raise ValueError(f"{len(self.n_tokens)} token counts and {len(self.truncated)} flags for {n} items")

    def __len__(self) -> int:
        return len(self.norms)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Vectors per item, shape ``(n,)``; all ones for a single-vector encoder."""
        if self.offsets is None:
            return np.ones(len(self), dtype=np.int64)
        return np.diff(self.offsets)


class ImageSource(Protocol):
    """Where the bytes of a corpus' images come from; must pickle, for workers."""

    def read(self, key: str) -> bytes:
        """The encoded bytes (JPEG, PNG …) of one image; raises ``OSError`` if they cannot be had."""
        ...


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Images and captions, who belongs to whom, and what else is known of them.

    All tables are Arrow (see ``store.schema`` for the columns); the row order of ``images`` and ``captions``
    is the corpus order, and a row's position is the item's ``ord`` everywhere.

    Attributes:
        name: ``[A-Za-z0-9._-]``.
        images: ``schema.IMAGES``.
        captions: ``schema.CAPTIONS``. ``image_id`` is null for captions that describe no image (negatives).
        source: Reads image bytes by the ``key`` column; None for a corpus read back from the store, or one
            that has only ids.
        pairs: ``schema.PAIRS``: an image, its caption, a hard negative caption (SugarCrepe form).
        quadruples: ``schema.QUADRUPLES``: two images, two captions (Winoground form).
        relevance: ``schema.RELEVANCE``: extra ground truths (``cxc``, ``eccv``).
        skipped: ``schema.SKIPPED``: images left out (undecodable), with the reason; they and their captions are
            not in the other tables.
        licence: SPDX name or one sentence.
        origin: Where it comes from: URL, paper, folder.
        languages_reference: Language that cross-lingual metrics compare with.
    """

    name: str
    images: pa.Table
    captions: pa.Table
    source: ImageSource | None = None
    pairs: pa.Table = field(default_factory=PAIRS.empty_table)
    quadruples: pa.Table = field(default_factory=QUADRUPLES.empty_table)
    relevance: pa.Table = field(default_factory=RELEVANCE.empty_table)
    skipped: pa.Table = field(default_factory=SKIPPED.empty_table)
    licence: str = "unknown"
    origin: str = ""
    languages_reference: str = "en"

    def __post_init__(self) -> None:
        for label, table, schema in (
            ("images", self.images, IMAGES),
            ("captions", self.captions, CAPTIONS),
            ("pairs", self.pairs, PAIRS),
            ("quadruples", self.quadruples, QUADRUPLES),
            ("relevance", self.relevance, RELEVANCE),
            ("skipped", self.skipped, SKIPPED),
        ):
            if not table.schema.equals(schema):
                raise ValueError(
                    f"corpus {self.name!r}: {label} has columns {table.schema.names}, expected {schema.names}"
                )

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits over the contents: every id, text, image hash, link and skip, in order.

        Where the bytes lie (``key``) and what follows from them (size) do not enter.
        """
        digest = hashlib.sha256()
        digest.update(self.name.encode())
        contents = self.images.drop_columns(["key", "width", "height"])
        skipped = self.skipped.select(["image_id"])  # the reason is a library's wording
        for table in (contents, self.captions, self.pairs, self.quadruples, self.relevance, skipped):
            digest.update(str(table.schema.names).encode())
            for batch in table.combine_chunks().to_batches(max_chunksize=10_000):
                for row in batch.to_pylist():
                    digest.update(repr(list(row.values())).encode())
        return digest.hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class EvalProtocol:
    """One id of ``protocols.md``, e.g. ``t2i/all``, ``i2t/any``, ``winoground``, ``t2i/de/google``.

    Attributes:
        id: The id that every stored figure carries.
        direction: What is searched with what; ``pairs`` and ``quadruples`` are the compositional forms.
        title: One line for people.
    """

    id: str
    direction: Direction
    title: str


@dataclass(frozen=True, kw_only=True)
class SetKey:
    """Which embedding set: the items of one modality of one corpus, by one encoder."""

    corpus: str
    corpus_fingerprint: str
    modality: Modality
    encoder: str
    encoder_fingerprint: str
    vectors: VectorKind


class IndexedImage(NamedTuple):
    """What one decoding of an image's bytes found out; keyed by the hash of the bytes, whatever corpus they are in."""

    sha: str
    width: int | None
    height: int | None
    thumbnail: bytes | None
    reason: str | None
    """Why it cannot be decoded; None if it can."""
