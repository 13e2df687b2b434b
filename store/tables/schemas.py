"""The columns of every stored table: embedding sets, corpora, analyses, and tables about the whole store."""

from __future__ import annotations

from typing import cast

import pyarrow as pa

from store.keys import key_to_json, spec_to_json
from store.schema import (
    BATCHES,
    COMPARISONS,
    FORMAT,
    OUTCOMES,
    REPLICATES,
    RESULTS,
    RUNS,
    SLICES,
    TIME,
    required,
)
from store.tables.connection import with_primary_key
from store.types import EncoderSpec, SetKey, VectorKind


def _table(key: tuple[str, ...], *fields: pa.Field) -> pa.Schema:
    return with_primary_key(pa.schema(fields), *key)


METADATA_TABLES = {
    "formats": _table(("format",), required("format", pa.int32()), required("written", TIME)),
    "encoders": _table(
        ("name", "fingerprint"),
        required("name", pa.string()),
        required("fingerprint", pa.string()),
        required("spec", pa.string()),  # canonical JSON of the EncoderSpec
        required("written", TIME),  # of several rows with one name, the newest is what the name means
    ),
    "corpora": _table(
        ("fingerprint",),
        required("name", pa.string()),
        required("fingerprint", pa.string()),
        required("n_images", pa.int64()),
        required("n_captions", pa.int64()),
        required("n_pairs", pa.int64()),
        required("n_quadruples", pa.int64()),
        required("n_skipped", pa.int64()),
        required("languages", pa.list_(pa.string())),
        required("licence", pa.string()),
        required("origin", pa.string()),
        required("reference_language", pa.string()),
        required("written", TIME),  # when it was last written under this name
    ),
    "image_index": _table(
        ("sha",),
        required("sha", pa.string()),
        pa.field("width", pa.int32()),  # null: the image cannot be decoded
        pa.field("height", pa.int32()),
        pa.field("thumbnail", pa.binary()),  # JPEG or PNG
        pa.field("reason", pa.string()),  # why the image cannot be decoded; null if it can
    ),
    "sets": _table(
        ("set_name",),
        required("set_name", pa.string()),  # name of the table
        required("encoder", pa.string()),
        required("encoder_fingerprint", pa.string()),
        required("corpus", pa.string()),
        required("corpus_fingerprint", pa.string()),
        required("modality", pa.string()),
        required("vectors", pa.string()),
        required("dim", pa.int32()),
        required("storage", pa.string()),
        required("tag", pa.string()),
        required("version", pa.int64()),
        required("n_rows", pa.int64()),
        required("n_vectors", pa.int64()),
        required("n_bytes", pa.int64()),
        required("digest", pa.string()),  # SHA-256 of the checksums in corpus order
        required("sealed_at", TIME),
    ),
}
"""Tables about the whole store."""

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

CHECKSUM = required("checksum", pa.uint64())
"""One more column of every table of ``ANALYSES``: ``store.checksums.column_checksums`` of the row."""


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
    kind = schema.field("vector").type if "vector" in schema.names else schema.field("vectors").type.value_type
    return cast(pa.FixedSizeListType, kind)


def set_schema(key: SetKey, spec: EncoderSpec) -> pa.Schema:
    """The columns of an embedding set; the metadata hold the format, the key and the encoder spec."""
    multi = spec.vectors == "multi"
    vector = pa.list_(pa.float16() if spec.storage == "float16" else pa.float32(), spec.dim)
    fields = [
        required("item_id", pa.string()),
        required("ord", pa.int32()),  # position in the corpus; rows are stored in any order
        required(vector_column(spec.vectors), pa.list_(vector) if multi else vector),
        *([required("n_vectors", pa.int32())] if multi else []),
        required("norm", pa.float32()),  # before normalisation
        required("n_tokens", pa.int32()),
        required("truncated", pa.bool_()),
        required("input_sha", pa.string()),  # of the encoded bytes or text; empty where unknown (imports)
        required("crc", pa.uint32()),  # store.checksums
        required("batch_id", pa.string()),
        required("write_number", pa.int64()),  # of rows with the same item, the one with the lowest number stays
        *(
            [required("language", pa.string()), required("translator", pa.string())]
            if key.modality == "caption"
            else []
        ),
    ]
    metadata: dict[bytes | str, bytes | str] = {"capim.format": str(FORMAT), "capim.set": key_to_json(key)}
    metadata["capim.encoder"] = spec_to_json(spec)
    return with_primary_key(pa.schema(fields, metadata=metadata), "item_id")
