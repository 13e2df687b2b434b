"""The columns of every stored table: embedding sets, corpora, analyses, and tables about the whole store."""

from __future__ import annotations

from dataclasses import asdict
from typing import cast

import pyarrow as pa

from capim.store.keys import spec_to_json
from capim.store.schema import (
    BATCHES,
    COMPARISONS,
    FORMAT,
    METRICS,
    OUTCOMES,
    PROBES,
    RANKINGS,
    REPLICATES,
    RESULTS,
    RUNS,
    SLICES,
    TIME,
    WATCHED,
    optional,
    required,
)
from capim.store.types import EncoderSpec, SetKey, VectorKind, canonical_json


def _keyed(declared: str, *columns: str, schema: pa.Schema) -> pa.Schema:
    for position in map(schema.get_field_index, columns):
        schema = schema.set(position, schema.field(position).with_metadata({declared: "true"}))
    return schema


def with_primary_key(schema: pa.Schema, *columns: str) -> pa.Schema:
    """The schema with these columns declared as Lance's primary key, on which concurrent merges depend.

    Two merges of the same new key are seen as a conflict (and one is repeated) only where the key is declared and
    carries no index; without it both insert.
    """
    return _keyed("lance-schema:unenforced-primary-key", *columns, schema=schema)


def with_key(schema: pa.Schema, *columns: str) -> pa.Schema:
    """The schema with these columns declared as the key of rows that only one process writes, such as a run's own.

    Lance does not see this key. For each merge by a key that it sees, it stores a filter of 66 kB.
    """
    return _keyed("capim.key", *columns, schema=schema)


def _table(key: tuple[str, ...], *fields: pa.Field) -> pa.Schema:
    return with_primary_key(pa.schema(fields), *key)


METADATA_TABLES = {
    "formats": _table(("format",), *required(pa.int32(), "format"), *required(TIME, "written")),
    "encoders": _table(
        ("name", "fingerprint"),
        *required(pa.string(), "name", "fingerprint"),
        *required(pa.string(), "spec"),  # canonical JSON of the EncoderSpec
        *required(TIME, "written"),  # of several rows with one name, the newest is what the name means
    ),
    "corpora": _table(
        ("fingerprint",),
        *required(pa.string(), "name", "fingerprint"),
        *required(pa.int64(), "n_images", "n_captions", "n_pairs", "n_quadruples", "n_skipped"),
        *required(pa.list_(pa.string()), "languages"),
        *required(pa.string(), "licence", "origin", "reference_language", "main_metric"),
        *required(pa.list_(pa.string()), "locations"),  # a name, path or description that it was read from; newest last
        *optional(pa.int64(), "sample", "seed"),  # of the draw, where it is a sample of what these locations hold
        *required(TIME, "written"),  # when it was last written under this name
    ),
    "image_index": _table(
        ("sha",),
        *required(pa.string(), "sha"),
        *optional(pa.int32(), "width"),  # null: the image cannot be decoded
        *optional(pa.int32(), "height"),
        *optional(pa.binary(), "thumbnail"),  # JPEG or PNG
        *optional(pa.string(), "reason"),  # why the image cannot be decoded; null if it can
    ),
    "sets": _table(
        ("set_name",),
        *required(pa.string(), "set_name"),  # name of the table
        *required(pa.string(), "encoder", "encoder_fingerprint", "corpus", "corpus_fingerprint", "modality"),
        *required(pa.string(), "vectors"),
        *required(pa.int32(), "dim"),
        *required(pa.string(), "storage", "tag"),
        *required(pa.int64(), "version", "n_rows", "n_vectors", "n_bytes"),
        *required(pa.string(), "digest"),  # SHA-256 of the checksums in corpus order
        *required(TIME, "sealed_at"),
    ),
}
"""Tables about the whole store."""

ANALYSES = {
    "outcomes": with_primary_key(OUTCOMES, "evaluation", "query_id"),
    "results": with_primary_key(RESULTS, "result"),
    "replicates": with_primary_key(REPLICATES, "result"),
    "comparisons": with_primary_key(COMPARISONS, "comparison"),
    "rankings": with_primary_key(RANKINGS, "ranking", "encoder_fingerprint", "estimand", "statistic"),
    "slices": with_primary_key(SLICES, "slice"),
    "batches": with_key(BATCHES, "batch_id"),
    "probes": with_primary_key(PROBES, "encoder_fingerprint", "item"),
    "metrics": with_primary_key(METRICS, "metric"),
    "runs": with_key(RUNS, "run"),
    "watched": with_key(WATCHED, "run", "encoder", "corpus", "protocol"),
}
"""Tables that ``EmbeddingStore.write_rows`` writes, with the primary key of each."""


def primary_key(schema: pa.Schema) -> list[str]:
    """The columns declared as the key.

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
        *required(pa.string(), "item_id"),
        *required(pa.int32(), "ord"),  # position in the corpus; rows are stored in any order
        *required(pa.list_(vector) if multi else vector, vector_column(spec.vectors)),
        *required(pa.int32(), *(["n_vectors"] if multi else [])),
        *required(pa.string(), *(["layout"] if multi else [])),  # what each vector stands for: store.layout
        *required(pa.float32(), "norm"),  # before normalisation
        *required(pa.int32(), "n_tokens"),
        *required(pa.bool_(), "truncated"),
        *required(pa.string(), "input_sha"),  # of the encoded bytes or text; empty where unknown (imports)
        *required(pa.uint32(), "crc"),  # store.checksums
        *required(pa.string(), "batch_id"),
        *required(pa.int64(), "write_number"),  # of rows with the same item, the one with the lowest number stays
        *required(pa.string(), *(["language", "translator"] if key.modality == "caption" else [])),
    ]
    metadata: dict[bytes | str, bytes | str] = {"capim.format": str(FORMAT), "capim.set": canonical_json(asdict(key))}
    metadata["capim.encoder"] = spec_to_json(spec)
    return with_primary_key(pa.schema(fields, metadata=metadata), "item_id")
