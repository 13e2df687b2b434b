"""The values that all packages share: encoders, corpora, embeddings, metrics, and their identification.

Frozen dataclasses, checked when they are made. This module reads no file, loads no model and does not use LanceDB.
``n`` items are in corpus order and have vectors of ``dim`` components; a row of scores is a query, and higher is
closer.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.schema import CORPUS_PARTS, PAIRS, QUADRUPLES, RELEVANCE, SKIPPED

Modality: TypeAlias = Literal["image", "caption"]
VectorKind: TypeAlias = Literal["single", "multi"]
Precision: TypeAlias = Literal["float32", "bfloat16", "float16"]
Storage: TypeAlias = Literal["float16", "float32"]
Option: TypeAlias = str | int | float | bool

MODALITIES: tuple[Modality, ...] = ("image", "caption")
SIDES: Mapping[str, tuple[Modality, Modality]] = {
    "t2i": ("caption", "image"),
    "i2t": ("image", "caption"),
    "i2i": ("image", "image"),
    "t2t": ("caption", "caption"),
}
"""Direction of a search -> the kinds of its queries and of its gallery items."""
ACCESS_OPTIONS = frozenset((
    "api_key_env", "concurrency", "inputs_per_request", "requests_per_minute",
    "timeout_seconds", "tokens_per_minute", "unused_weights",
))  # fmt: skip
"""Options for the access to a service, and for weights of a checkpoint that no vector needs: they change no vector and
are not part of an identity."""
SET_PREFIXES = ("single-", "multi-")  # of the names of tables that hold an embedding set
CORPUS_PREFIX = "corpus-"  # of those that hold a part of a corpus
_BRANCHES = frozenset({"main", "master", "latest", "HEAD"})
_LONGEST_NAME = 120  # names of tables hold it next to two fingerprints, and a file name has at most 255 bytes


def name_fault(name: str) -> str | None:
    """Return the error in the name of an encoder or a corpus; None if it is valid.

    Examples:
        >>> name_fault("clip-vit-b-32"), name_fault("a b")[:34]
        (None, 'expected 1 to 120 ASCII letters, d')
    """
    if re.fullmatch(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{_LONGEST_NAME - 1}}}", name):
        return None
    return f"expected 1 to {_LONGEST_NAME} ASCII letters, digits, '.', '_' or '-', the first a letter or digit"


HUB = "https://huggingface.co/"
"""Address of the hub; that of a model's card continues with the name of its repository."""
_COMMIT = re.compile("[0-9a-f]{40}")


def is_commit(revision: str) -> bool:
    """True if a revision is a commit, not the name of a branch or the digest of a folder."""
    return _COMMIT.fullmatch(revision) is not None


def is_fingerprint(text: str) -> bool:
    """True if a name has the form of a fingerprint: 16 lower-case hexadecimal digits.

    Examples:
        >>> is_fingerprint("0011223344556677"), is_fingerprint("clip-vit-b-32")
        (True, False)
    """
    return re.fullmatch("[0-9a-f]{16}", text) is not None


def canonical_json(value: object) -> str:
    """Return a value as JSON with sorted keys and no spaces, so that equal values have equal strings.

    Examples:
        >>> canonical_json({"b": 1, "a": [1.5, "é"]})
        '{"a":[1.5,"é"],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest16(value: object) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:16]


IMPORTED, OF_OUTCOMES, TWO_STAGE, FUSION = "imported", "outcomes", "two-stage", "fusion"
"""Adapters of encoders that no code loads: imported vectors, imported outcomes, and combinations of other encoders."""


@dataclass(frozen=True, kw_only=True)
class EncoderSpec:
    """One model at one revision, with everything that changes a vector.

    Attributes:
        name: Unique within a run; see :func:`name_fault`.
        adapter: Key of ``tasks.encoders.ADAPTERS``, or one of those that no code loads.
        checkpoint: Hub id, local folder, or another argument of the adapter.
        revision: Branch, tag or commit on the hub; ``tasks.encoders.resolve`` replaces a branch by the commit
            (for a local folder: by the digest of its files). Only a resolved spec has a fingerprint.
        vectors: ``single``: one vector per item; ``multi``: many (late interaction).
        dim: Number of components of one vector.
        precision: Floating-point precision of the forward pass; the output of an encoder is always float32.
        storage: Type of a stored component; by default ``float32`` for one vector per item and ``float16`` for many.
        options: Settings of the adapter that change a vector: prompts, maximum length, image backend; and
            ``ACCESS_OPTIONS``, which do not.
        adapter_version: Increased by an adapter whenever its vectors change.
        licence: Licence of the weights: SPDX name or one sentence; ``unknown`` if unknown. It changes no vector.
        facts: Other facts that change no vector: ``parameters`` in millions, ``training``, ``released`` and the others
            of ``tasks.encoders.catalog``; of a model without vectors ``dim``.
    """

    name: str
    adapter: str
    checkpoint: str
    dim: int
    revision: str = "main"
    vectors: VectorKind = "single"
    precision: Precision = "float32"
    storage: Storage = None  # type: ignore[assignment]  # depends on vectors: see __post_init__
    options: Mapping[str, Option] = field(default_factory=dict)
    adapter_version: int = 1
    licence: str = "unknown"
    facts: Mapping[str, Option] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if vars(self)["storage"] is None:
            object.__setattr__(self, "storage", "float16" if self.vectors == "multi" else "float32")
        faults = []
        if fault := name_fault(self.name):
            faults.append(f"name: {fault}")
        if self.dim < 1:
            faults.append(f"dim must be at least 1, got {self.dim}")
        for name, known in (("vectors", VectorKind), ("precision", Precision), ("storage", Storage)):
            if getattr(self, name) not in get_args(known):
                faults.append(f"{name} must be {' or '.join(get_args(known))}, got {getattr(self, name)!r}")
        if faults:
            raise ValueError(f"encoder {self.name!r}: {'; '.join(faults)}")

    @property
    def has_vectors(self) -> bool:
        """True unless the encoder has outcomes only."""
        return self.adapter not in (OF_OUTCOMES, TWO_STAGE, FUSION)

    @property
    def has_weights(self) -> bool:
        """True if an adapter loads the model, so that it can encode."""
        return self.has_vectors and self.adapter != IMPORTED

    @property
    def resolved(self) -> bool:
        """True if the revision is one fixed state of the model rather than a branch."""
        return self.revision not in _BRANCHES

    def identity(self) -> dict[str, object]:
        """Return everything that changes a vector, as plain values; name, licence and facts are not part of it."""
        values: dict[str, object] = {field.name: getattr(self, field.name) for field in fields(self)}
        del values["name"], values["licence"], values["facts"]
        options = {name: value for name, value in self.options.items() if name not in ACCESS_OPTIONS}
        return {**values, "options": options}

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits over :meth:`identity`.

        Raises:
            ValueError: If the revision is still a branch.
        """
        if not self.resolved:
            raise ValueError(
                f"encoder {self.name!r}: revision {self.revision!r} is a branch, which can move; "
                "resolve it to a commit first (tasks.encoders.resolve)"
            )
        return digest16(self.identity())

    def to_json(self) -> str:
        """Return the spec as canonical JSON."""
        facts = {"facts": dict(self.facts)} if self.facts else {}
        values = {name: value for name, value in asdict(self).items() if name != "facts"}
        return canonical_json({**values, "options": dict(self.options), **facts})

    @classmethod
    def from_json(cls, text: str) -> EncoderSpec:
        """Return the spec that :meth:`to_json` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True, kw_only=True)
class Embeddings:
    """Embeddings in the form of an encoder's result, in the order of its input.

    Attributes:
        values: float32, unit norm per row. One vector per item: shape ``(n, dim)``. Several: all vectors of all
            items one after the other, shape ``(n_vectors, dim)``.
        offsets: Multi-vectors only: int64, shape ``(n + 1,)``; item ``i`` has rows ``offsets[i]:offsets[i + 1]``.
        norms: float32, shape ``(n,)``: the norm before normalisation (multi-vectors: mean over the item).
        n_tokens: int32, shape ``(n,)``: tokens of the input, with special tokens, without padding.
        truncated: bool, shape ``(n,)``: True if the input was longer than the model accepts.
        layouts: Multi-vectors only: for each item the meaning of its vectors (``store.vectors``); None: unknown.
    """

    values: NDArray[np.float32]
    norms: NDArray[np.float32]
    n_tokens: NDArray[np.int32]
    truncated: NDArray[np.bool_]
    offsets: NDArray[np.int64] | None = None
    layouts: tuple[str, ...] | None = None

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
        if self.layouts is not None and (self.offsets is None or len(self.layouts) != n):
            raise ValueError(f"{len(self.layouts)} layouts for {n} items; only multi-vectors have any")

    def __len__(self) -> int:
        return len(self.norms)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of vectors of each item, shape ``(n,)``; all ones for a single-vector encoder."""
        if self.offsets is None:
            return np.ones(len(self), dtype=np.int64)
        return np.diff(self.offsets)


class ImageSource(Protocol):
    """Reads the images of a corpus; must pickle, for worker processes."""

    def read(self, key: str) -> bytes:
        """Return the encoded bytes (JPEG, PNG …) of one image; raise ``OSError`` if they cannot be read."""
        ...


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Images and captions, the relevance between them, and further annotations.

    All tables are Arrow (``store.schema``); a row's position in ``images`` or ``captions`` is the item's ``ord``.

    Attributes:
        name: See :func:`name_fault`.
        images: ``schema.IMAGES``.
        captions: ``schema.CAPTIONS``. ``image_id`` is null for captions that describe no image (negatives).
        source: Reads image bytes by the ``key`` column; None for a corpus from the store or one with ids only.
        pairs: ``schema.PAIRS``: an image, its caption, a hard negative caption (SugarCrepe form).
        quadruples: ``schema.QUADRUPLES``: two images, two captions (Winoground form).
        relevance: ``schema.RELEVANCE``: extra ground truths (``cxc``, ``eccv``), or graded judgements (``judged``).
        skipped: ``schema.SKIPPED``: images and queries that the other tables lack, with the reason.
        licence: SPDX name or one sentence.
        origin: URL, paper or folder.
        languages_reference: The language that cross-lingual metrics compare with.
        main_metric: Headline metric of judged documents, such as ``nDCG@5``; empty for the default one.
        location: Its source, see ``tasks.corpora.naming.location_of``; empty if unknown.
        draw: Number of images and seed, if it is a sample of the source.
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
    main_metric: str = ""
    location: str = ""
    draw: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for part, schema in CORPUS_PARTS.items():
            columns = getattr(self, part).schema
            if not columns.equals(schema):
                raise ValueError(f"corpus {self.name!r}: {part} have columns {columns.names}, expected {schema.names}")

    def items(self, modality: Modality) -> pa.Table:
        """Return the images or the captions."""
        return self.images if modality == "image" else self.captions

    @cached_property
    def parts(self) -> list[tuple[str, str]]:
        """Return the languages and translators of the captions that describe an image, in order."""
        described = self.captions.filter(pc.is_valid(self.captions["image_id"])).select(["language", "translator"])
        found = described.group_by(described.column_names, use_threads=False).aggregate([]).to_pylist()
        return sorted((row["language"], row["translator"]) for row in found)

    @cached_property
    def main_part(self) -> tuple[str, str] | None:
        """The part that protocols without a language evaluate; None if the choice is ambiguous.

        It is the only part; else the reference language written by people; else the reference language if one
        translator wrote all of it.
        """
        reference = [part for part in self.parts if part[0] == self.languages_reference or len(self.parts) == 1]
        human = (self.languages_reference, "human")
        return human if human in reference else reference[0] if len(reference) == 1 else None

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits over the contents: every id, text, image hash and relation, in order.

        The location of the image bytes (``key``) and their size in pixels are left out.
        """
        digest = hashlib.sha256(self.name.encode())
        contents = self.images.drop_columns(["key", "width", "height"])
        skipped = self.skipped.select(["modality", "item_id"])  # the wording of the reason depends on a library
        for table in (contents, self.captions, self.pairs, self.quadruples, self.relevance, skipped):
            digest.update(str(table.schema.names).encode())
            for batch in table.combine_chunks().to_batches(max_chunksize=10_000):
                for row in batch.to_pylist():
                    digest.update(repr(list(row.values())).encode())
        return digest.hexdigest()[:16]


Unit: TypeAlias = Literal["percent", "rank", "points", "own"]
"""Display of a metric's values: fractions in percent, ranks, points, or numbers in a unit of their own."""
Place: TypeAlias = Literal["table", "none"]
"""Location of a metric in a report next to the leaderboard: its own table, or none."""


@dataclass(frozen=True, kw_only=True)
class MetricFacts:
    """Everything that a reader of results has to know about their metric.

    Attributes:
        name: Name in stored results; a custom metric has a colon in it (``FILE:NAME``).
        title: One line that explains it.
        heading: Its name over a column; by default ``name``.
        unit: Display of its values.
        higher_is_better: False for ranks and other measures of errors.
        headline: The kind of protocols (``tasks.protocols.Kind``) with it as the headline; or empty.
        aggregate: True for a function over queries that is not their mean or median: it has no paired test.
        place: Location in reports next to the leaderboard.
    """

    name: str
    title: str
    heading: str = ""
    unit: Unit = "own"
    higher_is_better: bool = True
    headline: str = ""
    aggregate: bool = False
    place: Place = "table"

    def columns(self) -> dict[str, Any]:
        """Return everything but the name, in the form of the ledger and ``results.json``."""
        return {each.name: getattr(self, each.name) for each in fields(MetricFacts)[1:]}

    @property
    def label(self) -> str:
        """Its name over a column."""
        return self.heading or self.name

    @property
    def has_table(self) -> bool:
        """True if reports show it in a table of its own, under its title."""
        return self.place == "table"

    @property
    def decimals(self) -> int:
        """Number of digits after the decimal point of a displayed value."""
        return 3 if self.unit == "own" else 1


@dataclass(frozen=True, kw_only=True)
class SetKey:
    """The identity of an embedding set: one modality of one corpus, by one encoder."""

    corpus: str
    corpus_fingerprint: str
    modality: Modality
    encoder: str
    encoder_fingerprint: str
    vectors: VectorKind

    @classmethod
    def of(cls, spec: EncoderSpec, corpus: str, corpus_fingerprint: str, modality: Modality) -> SetKey:
        """Return the identity of the set that an encoder makes of one modality of a corpus."""
        return cls(
            corpus=corpus,
            corpus_fingerprint=corpus_fingerprint,
            modality=modality,
            encoder=spec.name,
            encoder_fingerprint=spec.fingerprint,
            vectors=spec.vectors,
        )

    @classmethod
    def of_row(cls, row: Any) -> SetKey:
        """Return the identity of the set of a row with these fields."""
        return cls(**{field.name: getattr(row, field.name) for field in fields(cls)})

    @property
    def table(self) -> str:
        """The name of its table. It does not include the encoder's name: renaming an encoder encodes nothing again.

        Examples:
            >>> SetKey(corpus="shapes", corpus_fingerprint="0011223344556677", modality="image",
            ...     encoder="tiny", encoder_fingerprint="8899aabbccddeeff", vectors="single").table
            'single-shapes-image-0011223344556677-8899aabbccddeeff'
        """
        return f"{self.vectors}-{self.corpus}-{self.modality}-{self.corpus_fingerprint}-{self.encoder_fingerprint}"

    @property
    def columns(self) -> dict[str, str]:
        """Return it as columns of a row: the name of its table, and every field."""
        return {"set_name": self.table, **asdict(self)}


# --- Results of a search.


class Found(NamedTuple):
    """The nearest items of a query, best first.

    Attributes:
        modality: Kind of the searched items.
        rows: ``rank``, ``id``, ``score``, ``file``; of images also ``sha`` and size, of captions ``text``.
    """

    modality: Modality
    rows: list[dict[str, Any]]
