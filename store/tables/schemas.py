"""The columns of every stored table: embedding sets, corpora, analyses, and tables about the whole store."""

from __future__ import annotations

import pyarrow as pa

from store.keys import key_to_json, spec_to_json
from store.schema import (
    BATCHES,
    CAPTIONS,
    COMPARISONS,
    FORMAT,
    IMAGES,
    OUTCOMES,
    PAIRS,
    QUADRUPLES,
    RELEVANCE,
    REPLICATES,
    RESULTS,
    RUNS,
    SKIPPED,
    SLICES,
)
from store.tables.connection import with_primary_key
from store.types import EncoderSpec, SetKey, VectorKind


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


_TIME = pa.timestamp("us", tz="UTC")

FORMATS = with_primary_key(pa.schema([_required("format", pa.int32()), _required("written", _TIME)]), "format")
ENCODERS = with_primary_key(
    pa.schema(
        [
            _required("name", pa.string()),
            _required("fingerprint", pa.string()),
            _required("spec", pa.string()),  # canonical JSON of the whole EncoderSpec
            _required("written", _TIME),  # of several rows with one name, the newest is what the name means
        ]
    ),
    "name",
    "fingerprint",
)
CORPORA = with_primary_key(
    pa.schema(
        [
            _required("name", pa.string()),
            _required("fingerprint", pa.string()),
            _required("n_images", pa.int64()),
            _required("n_captions", pa.int64()),
            _required("n_pairs", pa.int64()),
            _required("n_quadruples", pa.int64()),
            _required("n_skipped", pa.int64()),
            _required("languages", pa.list_(pa.string())),
            _required("licence", pa.string()),
            _required("origin", pa.string()),
            _required("reference_language", pa.string()),
            _required("written", _TIME),  # when it was last written under this name
        ]
    ),
    "fingerprint",
)
IMAGE_INDEX = with_primary_key(
    pa.schema(
        [
            _required("sha", pa.string()),
            pa.field("width", pa.int32()),  # null: the image cannot be decoded
            pa.field("height", pa.int32()),
            pa.field("thumbnail", pa.binary()),  # JPEG or PNG
            pa.field("reason", pa.string()),  # why the image cannot be decoded; null if it can
        ]
    ),
    "sha",
)
SETS = with_primary_key(
    pa.schema(
        [
            _required("set_name", pa.string()),  # name of the table
            _required("encoder", pa.string()),
            _required("encoder_fingerprint", pa.string()),
            _required("corpus", pa.string()),
            _required("corpus_fingerprint", pa.string()),
            _required("modality", pa.string()),
            _required("vectors", pa.string()),
            _required("dim", pa.int32()),
            _required("storage", pa.string()),
            _required("tag", pa.string()),
            _required("version", pa.int64()),
            _required("n_rows", pa.int64()),
            _required("n_vectors", pa.int64()),
            _required("n_bytes", pa.int64()),
            _required("digest", pa.string()),  # SHA-256 of the rows' checksums in corpus order
            _required("sealed_at", _TIME),
        ]
    ),
    "set_name",
)

CORPUS_PARTS = {
    "images": IMAGES,
    "captions": CAPTIONS,
    "pairs": PAIRS,
    "quadruples": QUADRUPLES,
    "relevance": RELEVANCE,
    "skipped": SKIPPED,
}
"""Part of a corpus -> its columns; every part of every corpus is a table of its own."""

ANALYSES = {
    "outcomes": with_primary_key(OUTCOMES, "evaluation", "query_id"),
    "results": with_primary_key(RESULTS, "result"),
    "replicates": with_primary_key(REPLICATES, "result"),
    "comparisons": with_primary_key(COMPARISONS, "comparison"),
    "slices": with_primary_key(SLICES, "slice"),
    "batches": with_primary_key(BATCHES, "batch_id"),
    "runs": with_primary_key(RUNS, "run"),
}
"""Tables that ``EmbeddingStore.write_rows`` writes, with the primary key of each."""

CHECKSUM = _required("checksum", pa.uint64())
"""One more column of every table of ``ANALYSES``: ``store.checksums.column_checksums`` of the row."""

METADATA_TABLES = {
    "formats": FORMATS,
    "encoders": ENCODERS,
    "corpora": CORPORA,
    "image_index": IMAGE_INDEX,
    "sets": SETS,
}
"""Tables about the store as a whole."""


def primary_key(schema: pa.Schema) -> list[str]:
    """The columns declared as primary key.

    Examples:
        >>> primary_key(ANALYSES["outcomes"])
        ['evaluation', 'query_id']
    """
    return [field.name for field in schema if field.metadata]


def vector_column(vectors: VectorKind) -> str:
    """The name of the column that holds the embeddings of a single-vector or a multi-vector set."""
    return "vector" if vectors == "single" else "vectors"


def vector_type(schema: pa.Schema) -> pa.FixedSizeListType:
    """The Arrow type of one vector of an embedding set."""
    return schema.field("vector").type if "vector" in schema.names else schema.field("vectors").type.value_type


def set_schema(key: SetKey, spec: EncoderSpec) -> pa.Schema:
    """The columns of an embedding set; the metadata hold the format, the key and the encoder spec."""
    multi = spec.vectors == "multi"
    vector = pa.list_(pa.float16() if spec.storage == "float16" else pa.float32(), spec.dim)
    fields = [
        _required("item_id", pa.string()),
        _required("ord", pa.int32()),  # position in the corpus; rows are stored in any order
        _required(vector_column(spec.vectors), pa.list_(vector) if multi else vector),
        *([_required("n_vectors", pa.int32())] if multi else []),
        _required("norm", pa.float32()),  # before normalisation
        _required("n_tokens", pa.int32()),
        _required("truncated", pa.bool_()),
        _required("input_sha", pa.string()),  # of the encoded bytes or text; empty where unknown (imports)
        _required("crc", pa.uint32()),  # store.checksums
        _required("batch_id", pa.string()),
        _required("write_number", pa.int64()),  # of rows with the same item, the one with the lowest number stays
        *(
            [_required("language", pa.string()), _required("translator", pa.string())]
            if key.modality == "caption"
            else []
        ),
    ]
    metadata = {"capim.format": str(FORMAT), "capim.set": key_to_json(key), "capim.encoder": spec_to_json(spec)}
    return with_primary_key(pa.schema(fields, metadata=metadata), "item_id")
