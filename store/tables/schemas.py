"""The columns of the tables that only the store itself writes; what analyses write is in ``store.schema``.

One table holds one embedding set (:func:`set_schema`); beside them are small tables about the whole store.
"""

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
from store.types import EncoderSpec, SetKey

FORMATS_TABLE = "formats"


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


_TIME = pa.timestamp("us", tz="UTC")

FORMATS = with_primary_key(
    pa.schema([_required("format", pa.int32()), _required("written", _TIME), _required("written_by", pa.string())]),
    "format",
)
ENCODERS = with_primary_key(
    pa.schema(
        [
            _required("name", pa.string()),
            _required("fingerprint", pa.string()),
            _required("spec", pa.string()),  # canonical JSON of the whole EncoderSpec
            _required(
                "written", _TIME
            ),  # when it was last used under this name: the newest is what the name stands for
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
            pa.field("width", pa.int32()),  # null: cannot be decoded
            pa.field("height", pa.int32()),
            pa.field("thumbnail", pa.binary()),  # JPEG or PNG
            pa.field("reason", pa.string()),  # why it cannot be decoded; null: it can
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
"""Part of a corpus -> its columns; each part of each corpus is one table."""

ANALYSES = {
    "outcomes": with_primary_key(OUTCOMES, "evaluation", "query_id"),
    "results": with_primary_key(RESULTS, "result"),
    "replicates": with_primary_key(REPLICATES, "result"),
    "comparisons": with_primary_key(COMPARISONS, "comparison"),
    "slices": with_primary_key(SLICES, "slice"),
    "batches": with_primary_key(BATCHES, "batch_id"),
    "runs": with_primary_key(RUNS, "run"),
}
"""Tables that ``EmbeddingStore.write_rows`` writes, with the key that makes a row unique."""

CHECKSUM = pa.field("checksum", pa.uint64())
"""What every table of ``ANALYSES`` has beside: ``store.checksums.column_checksums`` of the row; null in older ones."""

REGISTERS = {
    FORMATS_TABLE: FORMATS,
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


def vector_type(spec: EncoderSpec) -> pa.DataType:
    """The Arrow type of one row's embedding: one fixed-size list, or a list of them for a multi-vector encoder."""
    component = pa.float16() if spec.storage == "float16" else pa.float32()
    one = pa.list_(component, spec.dim)
    return one if spec.vectors == "single" else pa.list_(one)


def set_schema(key: SetKey, spec: EncoderSpec) -> pa.Schema:
    """The columns of an embedding set; its metadata say whose vectors these are."""
    multi = spec.vectors == "multi"
    fields = [
        _required("item_id", pa.string()),
        _required("ord", pa.int32()),  # position in the corpus; the order on disk means nothing
        _required("vectors" if multi else "vector", vector_type(spec)),
        *([_required("n_vectors", pa.int32())] if multi else []),
        _required("norm", pa.float32()),  # before normalisation
        _required("n_tokens", pa.int32()),
        _required("truncated", pa.bool_()),
        _required("input_sha", pa.string()),  # of the bytes or text that went in; empty where unknown (imports)
        _required("crc", pa.uint32()),  # store.checksums
        _required("batch_id", pa.string()),
        _required("put", pa.int64()),  # number of the write, the same for its rows: of repeated rows the lowest stays
        *(
            [_required("language", pa.string()), _required("translator", pa.string())]
            if key.modality == "caption"
            else []
        ),
    ]
    metadata = {"capim.format": str(FORMAT), "capim.set": key_to_json(key), "capim.encoder": spec_to_json(spec)}
    return with_primary_key(pa.schema(fields, metadata=metadata), "item_id")
