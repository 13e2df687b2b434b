"""The columns of corpora in memory and of every stored table, with the key of its rows and what a row is shown for.

``FORMAT`` is increased when a column is added, renamed, removed or changes its meaning. Only columns that are declared
nullable can be null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, cast

import pyarrow as pa

FORMAT = 8
TIME = pa.timestamp("us", tz="UTC")
TOP = 100  # the longest result list that is stored
UNLISTED = 1 << 30  # the rank of the first relevant item that counts as not found: of a query without a list, say
JUDGED = "judged"  # the ground truth of queries and document pages with graded judgements
LABEL = "label"  # the ground truth of images and the first prompt of each of their classes
REVISITED = "revisited"  # of images that search images: grade 2 easy, 1 hard, 0 neither right nor wrong
COMPOSED = "composed"  # of a text that changes an image (its group), and the images that it leads to
SUBSET = "subset"  # of such a text, and the few images that are hard to tell apart
EXCLUDED = "excluded"  # of such a text, and an image that is left out of its search
SIMILARITY = "similarity"  # of two images, how alike people found them, in thousandths
SPECIAL_TRUTHS = (JUDGED, LABEL, REVISITED, COMPOSED, SUBSET, EXCLUDED, SIMILARITY)
"""Ground truths with protocols of their own."""


def required(kind: pa.DataType, *names: str) -> list[pa.Field]:
    """Columns of one type, which are never null."""
    return [pa.field(name, kind, nullable=False) for name in names]


def optional(kind: pa.DataType, *names: str) -> list[pa.Field]:
    """Columns of one type, which can be null."""
    return [pa.field(name, kind) for name in names]


def texts(column: pa.Array | pa.ChunkedArray) -> list[str]:
    """The texts of a column that has no nulls."""
    return cast("list[str]", column.to_pylist())


def dicts(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows as dicts, as ``to_pylist`` does, which takes ten times as long for columns of times."""
    names = rows.column_names
    columns = (
        [time and time.replace(tzinfo=UTC) for time in column.to_numpy().astype(object)]
        if column.type == TIME
        else column.to_pylist()
        for column in rows.columns
    )
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _columns(*fields: pa.Field) -> pa.Schema:
    return pa.schema(fields)


def keyed(schema: pa.Schema, columns: Sequence[str], *, seen: bool = True) -> pa.Schema:
    """The schema with these columns declared as the key of its rows, as it is given to Lance.

    Two merges of the same new key are seen as a conflict (and one is repeated) only where Lance's primary key is
    declared and carries no index; without it both insert. ``seen``: False for rows that only one process writes, such
    as a run's own: for each merge by a key that it sees, Lance stores a filter of 66 kB.
    """
    declared = "lance-schema:unenforced-primary-key" if seen else "capim.key"
    for position in map(schema.get_field_index, columns):
        schema = schema.set(position, schema.field(position).with_metadata({declared: "true"}))
    return schema


# --- a corpus in memory -------------------------------------------------------------------------------------
IMAGES = _columns(
    *required(pa.string(), "id"),
    *required(pa.string(), "key"),  # what ImageSource.read takes; not part of the identity
    *optional(pa.string(), "sha"),  # blake2b-128 of the encoded bytes, hexadecimal; null: no bytes (ids only)
    *optional(pa.int32(), "width", "height"),
    *optional(pa.list_(pa.string()), "objects"),  # categories present, sorted; null: not annotated
    *optional(pa.string(), "text"),  # of a document page, where the corpus has it
    *optional(pa.string(), "document"),  # that a page is of
    *optional(pa.int32(), "page"),  # its number in the document
)
CAPTIONS = _columns(
    *required(pa.string(), "id"),
    *optional(pa.string(), "image_id"),  # null: describes no image of the corpus (a negative)
    *optional(pa.string(), "text"),  # null: ids only
    *required(pa.int32(), "ordinal"),  # 0, 1, 2 … within its image, language and translator
    *required(pa.string(), "language"),  # BCP-47
    *required(pa.string(), "translator"),  # human, google, bing, nllb …
    *optional(pa.string(), "annotation_id"),  # the data set's own id, for extra ground truths
    # queries of one group are not independent: one question in several languages
    *optional(pa.string(), "query_group"),
    *optional(pa.list_(pa.string()), "query_types"),  # kinds of query, as the corpus names them; null: not annotated
)
PAIRS = _columns(*required(pa.string(), "id", "image_id", "caption_id", "negative_id", "category"))
QUADRUPLES = _columns(
    *required(pa.string(), "id", "image_0", "image_1", "caption_0", "caption_1"),
    *required(pa.list_(pa.string()), "tags"),
)
RELEVANCE = _columns(
    *required(pa.string(), "ground_truth"),  # cxc, eccv, scene, judged
    *required(pa.string(), "direction"),  # t2i: query is a caption; i2t: query is an image; i2i: both are images
    *required(pa.string(), "query_id", "item_id"),
    *required(pa.int32(), "grade"),  # 1 unless the ground truth has grades; 0 and below: judged, and not relevant
)
SKIPPED = _columns(*required(pa.string(), "item_id", "reason", "modality"))
CORPUS_PARTS = {
    "images": IMAGES,
    "captions": CAPTIONS,
    "pairs": PAIRS,
    "quadruples": QUADRUPLES,
    "relevance": RELEVANCE,
    "skipped": SKIPPED,
}
"""Part of a corpus -> its columns; every part of every stored corpus is a table of its own."""

DUPLICATES = _columns(
    *required(pa.string(), "corpus", "image", "other_corpus", "other_image"),
    *required(pa.string(), "by"),  # bytes, name, picture or vectors
    *optional(pa.float64(), "cosine"),  # of those by vectors
)
"""Pairs of images that are the same or nearly so; they are not stored."""

# --- rows that analyses write ---------------------------------------------------------------------------------
_STATES = required(pa.string(), "encoder", "encoder_fingerprint", "corpus", "corpus_fingerprint")
_SUBJECT = [*_STATES, *required(pa.string(), "protocol")]
OUTCOMES = _columns(
    *required(pa.string(), "evaluation"),  # digest of the sets' digests, the protocol and the scorer version
    *_SUBJECT,
    *required(pa.string(), "query_id"),
    *required(pa.int32(), "query_ord"),  # of a quadruple or pair: its position in that table
    *required(pa.int32(), "cluster"),  # ord of the image of the query (pairs, quadruples: the first one that shares it)
    *required(pa.int32(), "rank_best"),  # 1 + items strictly above the best relevant one
    *required(pa.int32(), "rank_worst"),  # rank_best + irrelevant items tied with it; n_ranked 0: the last it can be
    *required(pa.int32(), "n_relevant"),
    *required(pa.int32(), "n_tied_relevant"),  # relevant items tied with the best relevant one, itself included
    *required(pa.int32(), "n_gallery"),
    *required(pa.float64(), "weight"),  # of the query in a mean; 1 except where groups of unequal size count alike
    *required(pa.float32(), "best_score"),  # score of the best relevant item
    *optional(pa.list_(pa.int32()), "relevant_rank_best"),  # of all relevant items, ascending; null if there is one
    *optional(pa.list_(pa.int32()), "relevant_rank_worst"),
    *optional(pa.list_(pa.int32()), "relevant_grades"),  # judged documents only: of all relevant items, in this order
    *optional(pa.list_(pa.float32()), "relevant_scores"),
    *optional(pa.float64(), "unjudged"),  # judged documents only: share of the top 10 that nobody judged
    *optional(pa.float64(), "bpref"),  # of an imported run in trec_eval's order, whose ranks are of that order too
    *optional(pa.list_(pa.int32()), "top_ords"),  # ords in the corpus, best first, equal scores by ord; at most TOP
    *optional(pa.list_(pa.float32()), "top_scores"),
    *optional(pa.float64(), "reference_ndcg"),  # consistency with the same query in the reference language
    *optional(pa.float64(), "reference_rbo"),
    *optional(pa.list_(pa.float32()), "scores"),  # quadruples: c0i0 c0i1 c1i0 c1i1; pairs: caption, negative
    # quadruples of a model without scores: text_0 text_1 image_0 image_1, or where only these are known: text image
    *optional(pa.list_(pa.bool_()), "judgements"),
    # relevant items whose rank is known, best first; the ranks of the others are anywhere between their two ends.
    # null: all ranks are known, and their two ends are ties
    *optional(pa.int32(), "n_ranked"),
)
_METRIC = [
    *required(pa.string(), "metric", "metric_version"),  # figures by another version of the metric are no longer valid
    *required(pa.bool_(), "lower_is_better"),
    *required(pa.int32(), "statistics_version"),  # of intervals and tests
]
_MADE = [*required(pa.string(), "run"), *required(TIME, "created")]
_DERIVED = [
    *optional(pa.string(), "derived"),  # key of the row of derived that it belongs to; null: measured, not derived
    *_MADE,
]
RESULTS = _columns(
    *required(pa.string(), "result"),  # digest of what identifies the row
    *required(pa.string(), "evaluation"),
    *_SUBJECT,
    *_METRIC,
    *optional(pa.float64(), "value"),  # null with a reason
    *optional(pa.float64(), "ci_low", "ci_high"),
    *optional(pa.float64(), "standard_error"),  # of the replicates of a drawn interval; else the clustered error
    *optional(pa.float64(), "robust_error"),  # clustered standard error without resampling; means only
    *optional(pa.float64(), "value_ties_lost"),  # if all ties are lost
    *optional(pa.float64(), "value_ties_won"),  # if all ties are won
    # share of queries whose best relevant item (of metrics of all relevant items: any) is tied with an irrelevant one;
    # items that an imported list leaves out are not tied; 0 in trec_eval's order; null: no scores (imported ranks)
    *optional(pa.float64(), "tie_share"),
    *required(pa.int64(), "n_queries", "n_clusters"),
    # Kish's number of clusters of equal weight, and the share of the weight that the heaviest has; null: no clusters
    *optional(pa.float64(), "n_effective", "largest_share"),
    *optional(pa.float64(), "chance"),
    *optional(pa.float64(), "p_chance"),  # of the chance value: two-sided, not adjusted; null: not tested
    *required(pa.string(), "interval_method"),  # wilson, t, woodruff, percentile, none
    *required(pa.float64(), "level"),
    *required(pa.int64(), "replicates", "seed"),
    *optional(pa.string(), "reason"),
    *required(pa.string(), "image_tag"),  # of the embedding sets that it was computed from
    *required(pa.string(), "caption_tag"),
    *_DERIVED,
)
REPLICATES = _columns(
    *required(pa.string(), "result"),  # key of the row of results that they belong to
    *required(pa.string(), "evaluation"),
    *_SUBJECT,
    *required(pa.string(), "metric"),
    *required(pa.float64(), "value"),  # the metric of the sample
    *required(pa.list_(pa.float64()), "replicate_values"),  # the metric of every bootstrap draw, in order
    *required(pa.int64(), "n_clusters"),  # the draws depend on this number and the seed alone
    *required(pa.int64(), "seed"),
    *required(pa.string(), "derived"),
    *_MADE,
)
COMPARISONS = _columns(
    *required(pa.string(), "comparison", "corpus", "corpus_fingerprint", "protocol"),
    *_METRIC,
    *required(pa.string(), "encoder_a", "fingerprint_a", "encoder_b", "fingerprint_b"),
    *optional(pa.float64(), "difference"),  # a minus b
    *optional(pa.float64(), "ci_low", "ci_high"),
    *required(pa.string(), "interval_method"),  # t, percentile, none
    # that holds for all pairs of this metric together at 95 %: what claims are read from; null: no test, or no end
    *optional(pa.float64(), "simultaneous_low", "simultaneous_high"),
    # of metrics of the headline: the ends where several figures share the 5 %, for each of `decision.SHARERS`
    *optional(pa.list_(pa.float64()), "shared_low", "shared_high"),
    *optional(pa.float64(), "p_sign_flip"),
    *required(pa.bool_(), "p_exact"),  # whether the sign-flip test enumerated every flip
    *optional(pa.float64(), "p_adjusted"),  # of p_sign_flip, over all pairs of this metric
    *required(pa.string(), "family"),  # headline: its figure was chosen before the data were seen; else exploratory
    # that the true difference is within the margin, adjusted over all pairs; null: a metric without a range
    *optional(pa.float64(), "p_equivalent"),
    *optional(pa.float64(), "margin"),  # in the metric's unit
    # queries (images, for figures over several protocols); null: an aggregate over queries has no winner of one
    *optional(pa.int64(), "wins", "ties", "losses"),
    *optional(pa.float64(), "cohen_dz"),
    *optional(pa.float64(), "detectable_effect"),  # at 80 % power
    *required(pa.int64(), "n_queries", "n_clusters"),
    *optional(pa.float64(), "n_effective"),
    *required(pa.float64(), "level"),
    *required(pa.int64(), "replicates", "permutations", "seed"),
    *optional(pa.string(), "reason"),
    *_DERIVED,
)
RANKINGS = _columns(
    *required(pa.string(), "ranking"),  # digest of the encoders and corpora that were ranked together
    *required(pa.string(), "encoder", "encoder_fingerprint"),
    *required(pa.string(), "estimand"),  # these corpora, corpora like these
    *optional(pa.float64(), "value", "ci_low", "ci_high"),  # value is null for an encoder that is left out
    *required(pa.string(), "interval_method"),  # wilson, t, none
    *optional(pa.int64(), "rank"),  # by value; equal values share the better rank
    *optional(pa.int64(), "rank_low", "rank_high"),  # the ranks that it can hold, simultaneous for all encoders
    *optional(pa.bool_(), "tied_with_best"),  # it can hold the first rank
    *required(pa.int64(), "n_corpora", "n_encoders"),  # that were ranked
    *optional(pa.float64(), "n_effective"),  # Kish's number of the units that the ranks rest on
    # JSON: of each corpus its name, fingerprint and what its headline is; other names of it, its photographs, and how
    # many of these each other corpus has; the names of corpora that were left out because nobody is above chance there
    *required(pa.string(), "corpora"),
    *required(pa.string(), "headlines"),  # JSON: corpus -> headline of this encoder
    *required(pa.float64(), "level"),
    *required(pa.int64(), "replicates", "permutations", "seed"),
    *optional(pa.string(), "reason"),  # why something is null
    *_DERIVED,
)
SLICES = _columns(
    *required(pa.string(), "slice"),
    *_SUBJECT,
    *required(pa.string(), "metric"),
    *required(pa.string(), "analysis"),  # complexity, category, length, errors, tags, hubs, precision …
    *optional(pa.string(), "analysis_version"),  # of its code; null: a comparison with published figures
    *optional(pa.string(), "metric_version"),  # null: no metric of the table, nor of the user
    *required(pa.string(), "feature"),  # spatial, colour, person …
    *required(pa.string(), "level_name"),  # with, without, difference, or the bin
    *optional(pa.float64(), "value", "ci_low", "ci_high", "p_adjusted"),
    *required(pa.int64(), "n_queries", "n_clusters"),
    *optional(pa.string(), "reason"),
    *optional(pa.string(), "detail"),  # JSON: examples, cost, what else the analysis adds
    *optional(pa.float64(), "seconds_per_query"),  # wall time: of equal runs it is all that differs; null: not measured
    *_DERIVED,
)
DERIVED = _columns(
    *required(pa.string(), "key"),  # digest of the identity
    *required(pa.string(), "kind"),  # result, replicates, comparison, ranking, analysis, measurement, gate, outcomes …
    *required(pa.string(), "identity"),  # JSON: what it is of, its inputs, settings and the versions of the code
    *required(pa.bool_(), "usual"),  # made with the settings that a run has unless it is given others
    *required(pa.string(), "table_name"),  # of its rows
    *required(pa.int64(), "n_rows"),  # that carry its key
    *required(pa.string(), "digest"),  # of the entry and its rows, see `store.ledger`
    *required(pa.float64(), "seconds"),
    *_MADE,
)
BATCHES = _columns(
    *required(pa.string(), "batch_id"),
    *required(pa.string(), "set_name"),  # table name of the embedding set
    *required(pa.string(), "encoder", "encoder_fingerprint", "corpus", "modality"),
    *required(pa.int32(), "n_items"),
    *required(pa.bool_(), "warmup"),
    *optional(pa.float64(), "decode_seconds", "preprocess_seconds", "forward_seconds", "write_seconds"),
    *optional(pa.int64(), "peak_memory_bytes"),
    *required(pa.int32(), "batch_size"),
    *required(pa.string(), "forward_precision"),
    *required(pa.string(), "device"),  # name of the hardware
    *required(pa.string(), "host"),
    *required(pa.string(), "versions"),  # JSON: library -> version
    *_MADE,
)
PROBES = _columns(
    *required(pa.string(), "encoder_fingerprint", "item"),  # an endpoint, and the caption or image that it encoded
    *required(pa.list_(pa.float32()), "vector"),  # unit norm
    *_MADE,  # the run: the first that used the endpoint
)
WEIGHTS = _columns(
    *required(pa.string(), "encoder_fingerprint", "checksum"),  # of the weights that encoded what is stored, as loaded
    *required(pa.string(), "versions"),  # of the libraries that loaded them first, JSON
    *_MADE,
)
WATCHED = _columns(
    *required(pa.string(), "run"),  # the watch
    *_SUBJECT,
    *required(pa.string(), "metric"),  # the main metric of the protocol
    *required(pa.string(), "evaluation"),
    *required(pa.string(), "baseline"),  # the pinned run; the watch itself where the figure was watched first
    *required(pa.string(), "baseline_evaluation"),
    *optional(pa.float64(), "value", "baseline_value"),
    *optional(pa.float64(), "p_adjusted"),  # one-sided, over all figures of the watch; null: nothing to test
    *required(pa.float64(), "alarm_level"),  # that p_adjusted was compared with
    *required(pa.string(), "verdict"),  # baseline, unchanged, fail, warn, none, not comparable
    *required(TIME, "created"),
)
IMPORTS = _columns(
    *required(pa.string(), "imported"),  # an evaluation, or the name of an embedding set
    *required(pa.string(), "encoder", "encoder_fingerprint", "corpus", "corpus_fingerprint"),
    *required(pa.string(), "what"),  # image, caption, or the protocol of the outcomes
    *required(pa.string(), "matched"),  # by what rows were matched with items: a column; position: not verified
    *required(pa.string(), "source"),  # the file
    *_MADE,
)
PUBLISHED = _columns(
    *required(pa.string(), "published"),  # digest of what identifies the row
    *required(pa.string(), "model", "dataset"),
    *required(pa.string(), "protocol"),  # ours; empty: not known to be one of ours
    *required(pa.string(), "metric", "their_metric"),
    *required(pa.float64(), "value"),
    *required(pa.string(), "source", "difference"),
    *_MADE,
)
RUNS = _columns(
    *required(pa.string(), "run", "name"),
    *required(pa.string(), "config"),  # JSON of the RunConfig, without secrets
    *required(pa.string(), "command", "versions", "host"),
    *required(TIME, "started"),
    *optional(TIME, "finished"),
    # running, completed, failed, incomplete (some encoders failed), cancelled, interrupted
    *required(pa.string(), "state"),
    *optional(pa.string(), "message"),
    *required(pa.int64(), "pid"),  # of its process on the host
    *optional(pa.string(), "flow_run", "deployment"),  # id of its Prefect run; FLOW/NAME
    *optional(pa.list_(pa.string()), "uses"),  # keys of derived: all that it used, whether it made it or not
    *optional(pa.string(), "same_as"),  # an earlier run that used exactly the same, whose row has the keys
)


# --- stored tables -------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class StoredTable:
    """A table of a store.

    Attributes:
        columns: Its columns.
        key: A row is stored once for each value of these.
        shared: Whether several processes may write a row of the same key at the same time; see :func:`keyed`.
        shown_for: What a row is shown for: of several with the same values of these columns one is current, the newest.
            Of comparisons and rankings, whose rows belong together, those of one request are. None: every row is.
        order: Columns that rows are sorted by when they are read; Lance gives rows of a merge in any order.
        small: Whether its rows are small enough to be kept in memory, all of them, during a run.
    """

    columns: pa.Schema
    key: tuple[str, ...]
    shared: bool = True
    shown_for: tuple[str, ...] | None = None
    order: tuple[str, ...] = ()
    small: bool = True

    @property
    def keyed_columns(self) -> pa.Schema:
        """The columns with their key, as the table is made with them."""
        return keyed(self.columns, self.key, seen=self.shared)


REGISTERS = {
    "formats": StoredTable(
        columns=_columns(*required(pa.int32(), "format"), *required(TIME, "written")), key=("format",)
    ),
    "encoders": StoredTable(
        shown_for=("name",),
        key=("name", "fingerprint"),
        columns=_columns(
            *required(pa.string(), "name", "fingerprint"),
            *required(pa.string(), "spec"),  # canonical JSON of the EncoderSpec
            *required(TIME, "written"),  # of several rows with one name, the newest is what the name means
        ),
    ),
    "corpora": StoredTable(
        shown_for=("name",),
        key=("fingerprint",),
        columns=_columns(
            *required(pa.string(), "name", "fingerprint"),
            *required(pa.int64(), "n_images", "n_captions", "n_pairs", "n_quadruples", "n_skipped"),
            *required(pa.list_(pa.string()), "languages"),
            *required(pa.string(), "licence", "origin", "reference_language", "main_metric"),
            # names, paths or descriptions that it was read from; newest last
            *required(pa.list_(pa.string()), "locations"),
            *optional(pa.int64(), "sample", "seed"),  # of the draw, where it is a sample of what these locations hold
            *required(TIME, "written"),  # when it was last written under this name
        ),
    ),
    "image_index": StoredTable(
        key=("sha",),
        small=False,
        columns=_columns(
            *required(pa.string(), "sha"),
            *optional(pa.int32(), "width", "height"),  # null: the image cannot be decoded
            *optional(pa.binary(), "thumbnail"),  # JPEG or PNG
            *optional(pa.string(), "reason"),  # why the image cannot be decoded; null if it can
        ),
    ),
    "image_hashes": StoredTable(
        key=("place",),
        columns=_columns(
            *required(pa.string(), "place"),  # the path of an image file; or what draws an image, and its key
            *required(pa.string(), "state"),  # of a file its size and times of change; of a drawing its code
            *required(pa.string(), "sha"),
            *optional(pa.int32(), "width", "height"),  # as in the file's header; null where it cannot be read
        ),
    ),
    "sets": StoredTable(
        key=("set_name",),
        columns=_columns(
            *required(pa.string(), "set_name"),  # name of the table
            *_STATES,
            *required(pa.string(), "modality", "vectors"),
            *required(pa.int32(), "dim"),
            *required(pa.string(), "storage", "tag"),
            *required(pa.int64(), "version", "n_rows", "n_vectors", "n_bytes"),
            *required(pa.string(), "digest"),  # SHA-256 of the checksums in corpus order
            *required(TIME, "sealed_at"),
        ),
    ),
}
"""Tables about the whole store."""


ANALYSES = {
    "outcomes": StoredTable(
        columns=OUTCOMES,
        small=False,
        key=("evaluation", "query_id"),
        order=("corpus", "protocol", "encoder", "evaluation", "query_ord", "query_id"),
    ),
    "results": StoredTable(
        columns=RESULTS,
        key=("result",),
        shown_for=("corpus", "protocol", "metric", "encoder"),
        order=("corpus", "protocol", "metric", "encoder", "created", "result"),
    ),
    "replicates": StoredTable(columns=REPLICATES, key=("derived",), small=False),
    "comparisons": StoredTable(columns=COMPARISONS, key=("comparison",), shown_for=("corpus", "protocol", "metric")),
    "rankings": StoredTable(columns=RANKINGS, key=("ranking", "encoder_fingerprint", "estimand"), shown_for=()),
    "slices": StoredTable(
        columns=SLICES,
        key=("slice",),
        shown_for=("corpus", "protocol", "analysis", "metric", "feature", "level_name", "encoder"),
    ),
    "derived": StoredTable(columns=DERIVED, key=("key",)),
    "batches": StoredTable(columns=BATCHES, key=("batch_id",), shared=False),
    "probes": StoredTable(columns=PROBES, key=("encoder_fingerprint", "item"), small=False),
    "imports": StoredTable(columns=IMPORTS, key=("imported",)),
    "published": StoredTable(columns=PUBLISHED, key=("published",)),
    "weights": StoredTable(columns=WEIGHTS, key=("encoder_fingerprint",)),
    "runs": StoredTable(columns=RUNS, key=("run",), shared=False),
    "watched": StoredTable(
        columns=WATCHED,
        key=("run", "encoder", "corpus", "protocol"),
        shared=False,
        shown_for=("encoder", "corpus", "protocol"),
    ),
}
"""Tables that ``EmbeddingStore.write_rows`` writes."""

TABLES = REGISTERS | ANALYSES
