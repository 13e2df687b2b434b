"""The columns of corpora in memory and of the tables that analyses write.

``FORMAT`` is increased when a column is added, renamed, removed or changes its meaning. Only columns that are declared
nullable can be null.
"""

from __future__ import annotations

import pyarrow as pa

FORMAT = 1
TOP = 100  # the longest result list that is stored


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


# --- a corpus in memory -------------------------------------------------------------------------------------
IMAGES = pa.schema(
    [
        _required("id", pa.string()),
        _required("key", pa.string()),  # what ImageSource.read takes; not part of the identity
        pa.field("sha", pa.string()),  # blake2b-128 of the encoded bytes, hexadecimal; null: no bytes (ids only)
        pa.field("width", pa.int32()),
        pa.field("height", pa.int32()),
        pa.field("objects", pa.list_(pa.string())),  # categories present, sorted; null: not annotated
    ]
)
CAPTIONS = pa.schema(
    [
        _required("id", pa.string()),
        pa.field("image_id", pa.string()),  # null: describes no image of the corpus (a negative)
        pa.field("text", pa.string()),  # null: ids only
        _required("ordinal", pa.int32()),  # 0, 1, 2 … within its image, language and translator
        _required("language", pa.string()),  # BCP-47
        _required("translator", pa.string()),  # human, google, bing, nllb …
        pa.field("annotation_id", pa.string()),  # the data set's own id, for extra ground truths
    ]
)
PAIRS = pa.schema(
    [
        _required("id", pa.string()),
        _required("image_id", pa.string()),
        _required("caption_id", pa.string()),
        _required("negative_id", pa.string()),
        _required("category", pa.string()),
    ]
)
QUADRUPLES = pa.schema(
    [
        _required("id", pa.string()),
        _required("image_0", pa.string()),
        _required("image_1", pa.string()),
        _required("caption_0", pa.string()),
        _required("caption_1", pa.string()),
        _required("tags", pa.list_(pa.string())),
    ]
)
RELEVANCE = pa.schema(
    [
        _required("ground_truth", pa.string()),  # cxc, eccv
        _required("direction", pa.string()),  # t2i: query is a caption; i2t: query is an image
        _required("query_id", pa.string()),
        _required("item_id", pa.string()),
    ]
)
SKIPPED = pa.schema([_required("image_id", pa.string()), _required("reason", pa.string())])

# --- rows that analyses write ---------------------------------------------------------------------------------
_SUBJECT = [
    _required("encoder", pa.string()),
    _required("encoder_fingerprint", pa.string()),
    _required("corpus", pa.string()),
    _required("corpus_fingerprint", pa.string()),
    _required("protocol", pa.string()),
]
OUTCOMES = pa.schema(
    [
        _required("evaluation", pa.string()),  # digest of the sets' digests, the protocol and the scorer version
        *_SUBJECT,
        _required("query_id", pa.string()),
        _required("query_ord", pa.int32()),  # of a quadruple or pair: its position in that table
        _required("cluster", pa.int32()),  # ord of the image that the query belongs to (quadruples: own position)
        _required("rank_best", pa.int32()),  # 1 + items strictly above the best relevant one
        _required("rank_worst", pa.int32()),  # rank_best + irrelevant items tied with it
        _required("n_relevant", pa.int32()),
        _required("n_tied_relevant", pa.int32()),  # relevant items tied with the best relevant one, itself included
        _required("n_gallery", pa.int32()),
        _required("weight", pa.float64()),  # of the query in a mean; 1 except where groups of unequal size count alike
        _required("best_score", pa.float32()),  # score of the best relevant item
        pa.field(
            "relevant_rank_best", pa.list_(pa.int32())
        ),  # rank_best of every relevant item, ascending; null if one
        pa.field("relevant_rank_worst", pa.list_(pa.int32())),
        pa.field("top_ords", pa.list_(pa.int32())),  # gallery positions, best first, ties by position; at most TOP
        pa.field("top_scores", pa.list_(pa.float32())),
        pa.field("reference_ndcg", pa.float64()),  # consistency with the same query in the reference language
        pa.field("reference_rbo", pa.float64()),
        pa.field("scores", pa.list_(pa.float32())),  # quadruples: c0i0 c0i1 c1i0 c1i1; pairs: caption, negative
    ]
)
RESULTS = pa.schema(
    [
        _required("result", pa.string()),  # digest of what identifies the row
        _required("evaluation", pa.string()),
        *_SUBJECT,
        _required("metric", pa.string()),
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
        _required("n_queries", pa.int64()),
        _required("n_clusters", pa.int64()),
        pa.field("chance", pa.float64()),
        _required("interval_method", pa.string()),  # percentile, bca, wilson, none
        _required("level", pa.float64()),
        _required("replicates", pa.int64()),
        _required("seed", pa.int64()),
        pa.field("reason", pa.string()),
        _required("image_tag", pa.string()),  # of the embedding sets that it was computed from
        _required("caption_tag", pa.string()),
        _required("run", pa.string()),
        _required("created", pa.timestamp("us", tz="UTC")),
    ]
)
REPLICATES = pa.schema(
    [
        _required("result", pa.string()),  # key of the row of results that they belong to
        _required("evaluation", pa.string()),
        *_SUBJECT,
        _required("metric", pa.string()),
        _required("value", pa.float64()),  # the metric of the sample
        _required("replicate_values", pa.list_(pa.float64())),  # the metric of every bootstrap draw, in order
        _required("n_clusters", pa.int64()),  # the draws depend on this number and the seed alone
        _required("seed", pa.int64()),
        _required("run", pa.string()),
        _required("created", pa.timestamp("us", tz="UTC")),
    ]
)
COMPARISONS = pa.schema(
    [
        _required("comparison", pa.string()),
        _required("corpus", pa.string()),
        _required("corpus_fingerprint", pa.string()),
        _required("protocol", pa.string()),
        _required("metric", pa.string()),
        _required("encoder_a", pa.string()),
        _required("fingerprint_a", pa.string()),
        _required("encoder_b", pa.string()),
        _required("fingerprint_b", pa.string()),
        pa.field("difference", pa.float64()),  # a minus b
        pa.field("ci_low", pa.float64()),
        pa.field("ci_high", pa.float64()),
        _required("interval_method", pa.string()),  # percentile, bca, none
        pa.field("p_sign_flip", pa.float64()),
        _required("p_exact", pa.bool_()),  # whether the sign-flip test enumerated every flip
        pa.field("p_mcnemar", pa.float64()),
        pa.field("p_adjusted", pa.float64()),  # of p_sign_flip, over all pairs of this metric
        _required("adjustment", pa.string()),  # holm, benjamini-hochberg
        _required("wins", pa.int64()),
        _required("ties", pa.int64()),
        _required("losses", pa.int64()),
        pa.field("cohen_dz", pa.float64()),
        pa.field("cohen_h", pa.float64()),
        pa.field("odds_ratio", pa.float64()),
        pa.field("detectable_effect", pa.float64()),  # at 80 % power
        _required("n_queries", pa.int64()),
        _required("n_clusters", pa.int64()),
        _required("level", pa.float64()),
        _required("replicates", pa.int64()),
        _required("permutations", pa.int64()),
        _required("seed", pa.int64()),
        pa.field("reason", pa.string()),
        _required("run", pa.string()),
        _required("created", pa.timestamp("us", tz="UTC")),
    ]
)
SLICES = pa.schema(
    [
        _required("slice", pa.string()),
        *_SUBJECT,
        _required("metric", pa.string()),
        _required("analysis", pa.string()),  # complexity, category, length, errors, tags, hubs, precision …
        _required("feature", pa.string()),  # spatial, colour, person …
        _required("level_name", pa.string()),  # with, without, difference, or the bin
        pa.field("value", pa.float64()),
        pa.field("ci_low", pa.float64()),
        pa.field("ci_high", pa.float64()),
        pa.field("p_adjusted", pa.float64()),
        _required("n_queries", pa.int64()),
        _required("n_clusters", pa.int64()),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),  # JSON: examples, cost, what else the analysis adds
        _required("run", pa.string()),
        _required("created", pa.timestamp("us", tz="UTC")),
    ]
)
BATCHES = pa.schema(
    [
        _required("batch_id", pa.string()),
        _required("set_name", pa.string()),  # table name of the embedding set
        _required("encoder", pa.string()),
        _required("encoder_fingerprint", pa.string()),
        _required("corpus", pa.string()),
        _required("modality", pa.string()),
        _required("n_items", pa.int32()),
        _required("warmup", pa.bool_()),
        pa.field("decode_seconds", pa.float64()),
        pa.field("preprocess_seconds", pa.float64()),
        pa.field("forward_seconds", pa.float64()),
        pa.field("write_seconds", pa.float64()),
        pa.field("peak_memory_bytes", pa.int64()),
        _required("batch_size", pa.int32()),
        _required("forward_precision", pa.string()),
        _required("device", pa.string()),  # name of the hardware
        _required("host", pa.string()),
        _required("versions", pa.string()),  # JSON: library -> version
        _required("run", pa.string()),
        _required("created", pa.timestamp("us", tz="UTC")),
    ]
)
RUNS = pa.schema(
    [
        _required("run", pa.string()),
        _required("name", pa.string()),
        _required("config", pa.string()),  # JSON of the RunConfig, without secrets
        _required("command", pa.string()),
        _required("versions", pa.string()),
        _required("host", pa.string()),
        _required("started", pa.timestamp("us", tz="UTC")),
        pa.field("finished", pa.timestamp("us", tz="UTC")),
        _required("state", pa.string()),  # running, completed, failed
        pa.field("message", pa.string()),
    ]
)
