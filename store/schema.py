"""The columns of corpora in memory and of the tables that analyses write.

``FORMAT`` is increased when a column is added, renamed, removed or changes its meaning. Only columns that are declared
nullable can be null.
"""

from __future__ import annotations

from typing import cast

import pyarrow as pa

FORMAT = 1
TIME = pa.timestamp("us", tz="UTC")
TOP = 100  # the longest result list that is stored


def required(name: str, kind: pa.DataType) -> pa.Field:
    """A column that is never null."""
    return pa.field(name, kind, nullable=False)


def optional(kind: pa.DataType, *names: str) -> list[pa.Field]:
    """Columns of one type, which can be null."""
    return [pa.field(name, kind) for name in names]


def texts(column: pa.Array | pa.ChunkedArray) -> list[str]:
    """The texts of a column that has no nulls."""
    return cast("list[str]", column.to_pylist())


def _columns(*fields: pa.Field) -> pa.Schema:
    return pa.schema(fields)


# --- a corpus in memory -------------------------------------------------------------------------------------
IMAGES = _columns(
    required("id", pa.string()),
    required("key", pa.string()),  # what ImageSource.read takes; not part of the identity
    pa.field("sha", pa.string()),  # blake2b-128 of the encoded bytes, hexadecimal; null: no bytes (ids only)
    pa.field("width", pa.int32()),
    pa.field("height", pa.int32()),
    pa.field("objects", pa.list_(pa.string())),  # categories present, sorted; null: not annotated
)
CAPTIONS = _columns(
    required("id", pa.string()),
    pa.field("image_id", pa.string()),  # null: describes no image of the corpus (a negative)
    pa.field("text", pa.string()),  # null: ids only
    required("ordinal", pa.int32()),  # 0, 1, 2 … within its image, language and translator
    required("language", pa.string()),  # BCP-47
    required("translator", pa.string()),  # human, google, bing, nllb …
    pa.field("annotation_id", pa.string()),  # the data set's own id, for extra ground truths
)
PAIRS = _columns(
    required("id", pa.string()),
    required("image_id", pa.string()),
    required("caption_id", pa.string()),
    required("negative_id", pa.string()),
    required("category", pa.string()),
)
QUADRUPLES = _columns(
    required("id", pa.string()),
    required("image_0", pa.string()),
    required("image_1", pa.string()),
    required("caption_0", pa.string()),
    required("caption_1", pa.string()),
    required("tags", pa.list_(pa.string())),
)
RELEVANCE = _columns(
    required("ground_truth", pa.string()),  # cxc, eccv
    required("direction", pa.string()),  # t2i: query is a caption; i2t: query is an image
    required("query_id", pa.string()),
    required("item_id", pa.string()),
)
SKIPPED = pa.schema([required("image_id", pa.string()), required("reason", pa.string())])
CORPUS_PARTS = {
    "images": IMAGES,
    "captions": CAPTIONS,
    "pairs": PAIRS,
    "quadruples": QUADRUPLES,
    "relevance": RELEVANCE,
    "skipped": SKIPPED,
}
"""Part of a corpus -> its columns; every part of every stored corpus is a table of its own."""

# --- rows that analyses write ---------------------------------------------------------------------------------
_SUBJECT = [
    required("encoder", pa.string()),
    required("encoder_fingerprint", pa.string()),
    required("corpus", pa.string()),
    required("corpus_fingerprint", pa.string()),
    required("protocol", pa.string()),
]
OUTCOMES = _columns(
    required("evaluation", pa.string()),  # digest of the sets' digests, the protocol and the scorer version
    *_SUBJECT,
    required("query_id", pa.string()),
    required("query_ord", pa.int32()),  # of a quadruple or pair: its position in that table
    required("cluster", pa.int32()),  # ord of the image that the query belongs to (quadruples: own position)
    required("rank_best", pa.int32()),  # 1 + items strictly above the best relevant one
    required("rank_worst", pa.int32()),  # rank_best + irrelevant items tied with it
    required("n_relevant", pa.int32()),
    required("n_tied_relevant", pa.int32()),  # relevant items tied with the best relevant one, itself included
    required("n_gallery", pa.int32()),
    required("weight", pa.float64()),  # of the query in a mean; 1 except where groups of unequal size count alike
    required("best_score", pa.float32()),  # score of the best relevant item
    pa.field("relevant_rank_best", pa.list_(pa.int32())),  # of all relevant items, ascending; null if there is one
    pa.field("relevant_rank_worst", pa.list_(pa.int32())),
    pa.field("top_ords", pa.list_(pa.int32())),  # gallery positions, best first, ties by position; at most TOP
    pa.field("top_scores", pa.list_(pa.float32())),
    pa.field("reference_ndcg", pa.float64()),  # consistency with the same query in the reference language
    pa.field("reference_rbo", pa.float64()),
    pa.field("scores", pa.list_(pa.float32())),  # quadruples: c0i0 c0i1 c1i0 c1i1; pairs: caption, negative
)
RESULTS = _columns(
    required("result", pa.string()),  # digest of what identifies the row
    required("evaluation", pa.string()),
    *_SUBJECT,
    required("metric", pa.string()),
    pa.field("value", pa.float64()),  # null with a reason
    pa.field("ci_low", pa.float64()),
    pa.field("ci_high", pa.float64()),
    pa.field("standard_error", pa.float64()),  # standard deviation of the bootstrap replicates
    pa.field("robust_error", pa.float64()),  # clustered standard error without resampling; means only
    pa.field("wilson_low", pa.float64()),  # where queries are independent hits and misses
    pa.field("wilson_high", pa.float64()),
    pa.field("value_ties_lost", pa.float64()),  # if all ties are lost
    pa.field("value_ties_won", pa.float64()),  # if all ties are won
    # share of queries whose best relevant item is tied with an irrelevant one; null: no scores (hit lists)
    pa.field("tie_share", pa.float64()),
    required("n_queries", pa.int64()),
    required("n_clusters", pa.int64()),
    pa.field("chance", pa.float64()),
    required("interval_method", pa.string()),  # percentile, bca, wilson, none
    required("level", pa.float64()),
    required("replicates", pa.int64()),
    required("seed", pa.int64()),
    pa.field("reason", pa.string()),
    required("image_tag", pa.string()),  # of the embedding sets that it was computed from
    required("caption_tag", pa.string()),
    required("run", pa.string()),
    required("created", TIME),
)
REPLICATES = _columns(
    required("result", pa.string()),  # key of the row of results that they belong to
    required("evaluation", pa.string()),
    *_SUBJECT,
    required("metric", pa.string()),
    required("value", pa.float64()),  # the metric of the sample
    required("replicate_values", pa.list_(pa.float64())),  # the metric of every bootstrap draw, in order
    required("n_clusters", pa.int64()),  # the draws depend on this number and the seed alone
    required("seed", pa.int64()),
    required("run", pa.string()),
    required("created", TIME),
)
COMPARISONS = _columns(
    required("comparison", pa.string()),
    required("corpus", pa.string()),
    required("corpus_fingerprint", pa.string()),
    required("protocol", pa.string()),
    required("metric", pa.string()),
    required("encoder_a", pa.string()),
    required("fingerprint_a", pa.string()),
    required("encoder_b", pa.string()),
    required("fingerprint_b", pa.string()),
    pa.field("difference", pa.float64()),  # a minus b
    pa.field("ci_low", pa.float64()),
    pa.field("ci_high", pa.float64()),
    required("interval_method", pa.string()),  # percentile, bca, none
    pa.field("p_sign_flip", pa.float64()),
    required("p_exact", pa.bool_()),  # whether the sign-flip test enumerated every flip
    pa.field("p_mcnemar", pa.float64()),
    pa.field("p_adjusted", pa.float64()),  # of p_sign_flip, over all pairs of this metric
    required("adjustment", pa.string()),  # holm, benjamini-hochberg
    required("wins", pa.int64()),
    required("ties", pa.int64()),
    required("losses", pa.int64()),
    pa.field("cohen_dz", pa.float64()),
    pa.field("cohen_h", pa.float64()),
    pa.field("odds_ratio", pa.float64()),
    pa.field("detectable_effect", pa.float64()),  # at 80 % power
    required("n_queries", pa.int64()),
    required("n_clusters", pa.int64()),
    required("level", pa.float64()),
    required("replicates", pa.int64()),
    required("permutations", pa.int64()),
    required("seed", pa.int64()),
    pa.field("reason", pa.string()),
    required("run", pa.string()),
    required("created", TIME),
)
SLICES = _columns(
    required("slice", pa.string()),
    *_SUBJECT,
    required("metric", pa.string()),
    required("analysis", pa.string()),  # complexity, category, length, errors, tags, hubs, precision …
    required("feature", pa.string()),  # spatial, colour, person …
    required("level_name", pa.string()),  # with, without, difference, or the bin
    pa.field("value", pa.float64()),
    pa.field("ci_low", pa.float64()),
    pa.field("ci_high", pa.float64()),
    pa.field("p_adjusted", pa.float64()),
    required("n_queries", pa.int64()),
    required("n_clusters", pa.int64()),
    pa.field("reason", pa.string()),
    pa.field("detail", pa.string()),  # JSON: examples, cost, what else the analysis adds
    required("run", pa.string()),
    required("created", TIME),
)
BATCHES = _columns(
    required("batch_id", pa.string()),
    required("set_name", pa.string()),  # table name of the embedding set
    required("encoder", pa.string()),
    required("encoder_fingerprint", pa.string()),
    required("corpus", pa.string()),
    required("modality", pa.string()),
    required("n_items", pa.int32()),
    required("warmup", pa.bool_()),
    pa.field("decode_seconds", pa.float64()),
    pa.field("preprocess_seconds", pa.float64()),
    pa.field("forward_seconds", pa.float64()),
    pa.field("write_seconds", pa.float64()),
    pa.field("peak_memory_bytes", pa.int64()),
    required("batch_size", pa.int32()),
    required("forward_precision", pa.string()),
    required("device", pa.string()),  # name of the hardware
    required("host", pa.string()),
    required("versions", pa.string()),  # JSON: library -> version
    required("run", pa.string()),
    required("created", TIME),
)
RUNS = _columns(
    required("run", pa.string()),
    required("name", pa.string()),
    required("config", pa.string()),  # JSON of the RunConfig, without secrets
    required("command", pa.string()),
    required("versions", pa.string()),
    required("host", pa.string()),
    required("started", TIME),
    pa.field("finished", TIME),
    required("state", pa.string()),  # running, completed, failed
    pa.field("message", pa.string()),
)
