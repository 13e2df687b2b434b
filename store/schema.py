"""The columns of corpora in memory and the row type of every stored table, with its key and display key.

A row type is a dataclass: its fields are the columns of its table, and the only place with their names as strings.
``FORMAT`` is increased when a column is added, renamed, removed or changes its meaning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Annotated, Any, NamedTuple, TypeAlias, cast

import pyarrow as pa

from capim.store.row_types import columns_of

FORMAT = 10
FORMAT_KEY = "capim.format"  # of the metadata of a table
TOP = 100  # the longest result list that is stored
UNNUMBERED = -1  # the ordinal of a caption that is numbered by its place among those of its image
UNLISTED = 1 << 30  # the rank of the first relevant item that counts as not found, as for a query without a list
JUDGED = "judged"  # the ground truth of queries and document pages with graded judgements
LABEL = "label"  # the ground truth of images and the first prompt of each of their classes
REVISITED = "revisited"  # of images that search images: grade 2 easy, 1 hard, 0 neither right nor wrong
COMPOSED = "composed"  # of a text that changes an image (its group), and the images that it leads to
SUBSET = "subset"  # of such a text, and the few images that are hard to distinguish
EXCLUDED = "excluded"  # of such a text, and an image that is left out of its search
SIMILARITY = "similarity"  # of two images, their rated similarity, in thousandths
SPECIAL_TRUTHS = (JUDGED, LABEL, REVISITED, COMPOSED, SUBSET, EXCLUDED, SIMILARITY)
"""Ground truths with protocols of their own."""

Int32: TypeAlias = Annotated[int, pa.int32()]
Float32: TypeAlias = Annotated[float, pa.float32()]


ERRORS = "errors"  # the analysis of kinds of errors
AMBIGUOUS = "ambiguous"  # the analysis of misses that may be none, and in its slices:
ANNOTATION, AGREEMENT, EITHER = "annotation", "agreement", "either"
CAUSES = (ANNOTATION, AGREEMENT)
SHARE_OF_MISSES, WITHOUT_AMBIGUOUS = "share of misses", "without ambiguous misses"


def is_missed(rank_best: Any) -> Any:
    """True if a rank at best, or an array of them, is a miss; the SQL view ``outcome_states`` has the same rule.

    Examples:
        >>> import numpy as np
        >>> is_missed(1), is_missed(np.array([1, 2])).tolist()
        (False, [False, True])
    """
    return rank_best > 1


def is_found(rank_worst: Any) -> Any:
    """True if a rank at worst, or an array of them, is a hit; the SQL view ``outcome_states`` has the same rule."""
    return rank_worst == 1


def texts(column: pa.Array | pa.ChunkedArray) -> list[str]:
    """Return the strings of a column that has no nulls."""
    return cast("list[str]", column.to_pylist())


def keyed(schema: pa.Schema, columns: Sequence[str], *, seen: bool = True) -> pa.Schema:
    """Return the schema with these columns declared as the key of its rows, for Lance.

    Two merges of the same new key conflict (and one is repeated) only if Lance's primary key is declared and has no
    index; otherwise both insert. ``seen``: False for rows that only one process writes, such as a run's own: for each
    merge by a key that it sees, Lance stores a filter of 66 kB.
    """
    declared = "lance-schema:unenforced-primary-key" if seen else "capim.key"
    for position in map(schema.get_field_index, columns):
        schema = schema.set(position, schema.field(position).with_metadata({declared: "true"}))
    return schema


# --- a corpus in memory, whose rows readers make by the million; its fingerprint depends on the order of its columns
class Image(NamedTuple):
    """An image of a corpus; a reader may leave out its key (the id), hash and size, which are read from its source."""

    id: str
    key: str = ""  # argument of ImageSource.read; not part of the identity
    sha: str | None = None  # blake2b-128 of the encoded bytes, hexadecimal; null: no bytes (ids only)
    width: Int32 | None = None
    height: Int32 | None = None
    objects: Sequence[str] | None = None  # categories present, sorted; null: not annotated
    text: str | None = None  # of a document page, where the corpus has it
    document: str | None = None  # that a page is of
    page: Int32 | None = None  # its number in the document


class Caption(NamedTuple):
    """A caption or a query of a corpus."""

    id: str
    image_id: str | None  # null: describes no image of the corpus (a negative)
    text: str | None  # null: ids only
    ordinal: Int32 = UNNUMBERED  # 0, 1, 2 … within its image, language and translator
    language: str = "en"  # BCP-47
    translator: str = "human"  # human, google, bing, nllb …
    annotation_id: str | None = None  # the data set's own id, for extra ground truths
    query_group: str | None = None  # queries of one group are not independent: one question in several languages
    query_types: Sequence[str] | None = None  # kinds of query, as the corpus names them; null: not annotated


class Pair(NamedTuple):
    """An image, its caption, and a caption that is nearly right (SugarCrepe form)."""

    id: str
    image_id: str
    caption_id: str
    negative_id: str
    category: str


class Quadruple(NamedTuple):
    """Two images and two captions, ``caption_0`` being that of ``image_0`` (Winoground form)."""

    id: str
    image_0: str
    image_1: str
    caption_0: str
    caption_1: str
    tags: Sequence[str] = ()


class Judgement(NamedTuple):
    """An item that is relevant for a query, or was judged not to be."""

    ground_truth: str  # cxc, eccv, scene, judged
    direction: str  # t2i: query is a caption; i2t: query is an image; i2i: both are images
    query_id: str
    item_id: str
    grade: Int32 = 1  # 0 and below: judged, and not relevant


class Skipped(NamedTuple):
    """An item that a corpus leaves out: an image, or a caption that is a query."""

    item_id: str
    reason: str
    modality: str = "image"


IMAGES, CAPTIONS, PAIRS, QUADRUPLES, RELEVANCE, SKIPPED = map(
    columns_of, (Image, Caption, Pair, Quadruple, Judgement, Skipped)
)
CORPUS_PARTS = {
    "images": IMAGES,
    "captions": CAPTIONS,
    "pairs": PAIRS,
    "quadruples": QUADRUPLES,
    "relevance": RELEVANCE,
    "skipped": SKIPPED,
}
"""Part of a corpus -> its columns; every part of every stored corpus is a separate table."""


@dataclass(frozen=True, kw_only=True)
class Duplicate:
    """A pair of identical or nearly identical images; it is not stored."""

    corpus: str
    image: str
    other_corpus: str
    other_image: str
    by: str  # bytes, name, picture or vectors
    cosine: float | None = None  # for pairs by vectors


# --- rows that analyses write -----------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class OfStates:
    """A row about one encoder on one corpus, each in one state."""

    encoder: str
    encoder_fingerprint: str
    corpus: str
    corpus_fingerprint: str


@dataclass(frozen=True, kw_only=True)
class OfProtocol(OfStates):
    """A row about one encoder on one corpus under one protocol."""

    protocol: str


@dataclass(frozen=True, kw_only=True)
class Outcome(OfProtocol):
    """One query under one protocol by one encoder."""

    evaluation: str  # digest of the sets' digests, the protocol and the scorer version
    query_id: str
    query_ord: Int32  # of a quadruple or pair: its position in that table
    cluster: Int32  # ord of the image of the query (pairs, quadruples: the first one that shares it)
    rank_best: Int32  # 1 + items strictly above the best relevant one
    rank_worst: Int32  # rank_best + irrelevant items tied with it; n_ranked 0: the last it can be
    n_relevant: Int32
    n_tied_relevant: Int32  # relevant items tied with the best relevant one, itself included
    n_gallery: Int32
    weight: float  # of the query in a mean; 1 except where groups of unequal size count alike
    best_score: Float32  # score of the best relevant item
    relevant_rank_best: list[Int32] | None = None  # of all relevant items, ascending; null if there is one
    relevant_rank_worst: list[Int32] | None = None
    relevant_grades: list[Int32] | None = None  # judged documents only: of all relevant items, in this order
    relevant_scores: list[Float32] | None = None
    unjudged: float | None = None  # judged documents only: share of the top 10 without a judgement
    bpref: float | None = None  # of an imported run in trec_eval's order, like its ranks
    top_ords: list[Int32] | None = None  # ords in the corpus, best first, equal scores by ord; at most TOP
    top_scores: list[Float32] | None = None
    reference_ndcg: float | None = None  # consistency with the same query in the reference language
    reference_rbo: float | None = None
    scores: list[Float32] | None = None  # quadruples: c0i0 c0i1 c1i0 c1i1; pairs: caption, negative
    # quadruples of a model without scores: text_0 text_1 image_0 image_1, or where only these are known: text image
    judgements: list[bool] | None = None
    # relevant items with a known rank, best first; the ranks of the others are anywhere between their two ends.
    # null: all ranks are known, and their two ends are ties
    n_ranked: Int32 | None = None


@dataclass(frozen=True, kw_only=True)
class Result(OfProtocol):
    """One metric of one encoder under one protocol, with its interval."""

    result: str  # digest of what identifies the row
    evaluation: str
    metric: str
    metric_version: str  # results by another version of the metric are no longer valid
    lower_is_better: bool
    statistics_version: Int32  # of intervals and tests
    value: float | None = None  # null with a reason
    ci_low: float | None = None
    ci_high: float | None = None
    standard_error: float | None = None  # of the replicates of a drawn interval; else the clustered error
    value_ties_lost: float | None = None  # if all ties are lost
    value_ties_won: float | None = None  # if all ties are won
    # share of queries with a tie between the best relevant item (of metrics of all relevant items: any) and an
    # irrelevant one; items missing from an imported list are not tied; 0 in trec_eval's order; null: no scores (ranks)
    tie_share: float | None = None
    n_queries: int
    n_clusters: int
    n_effective: float | None = None  # Kish's number of clusters of equal weight; null: no clusters
    largest_share: float | None = None  # of the weight, that the heaviest cluster has
    chance: float | None = None
    p_chance: float | None = None  # of the chance value: two-sided, not adjusted; null: not tested
    interval_method: str  # wilson, t, woodruff, percentile, none
    level: float
    replicates: int | None = None  # of a drawn interval, as is the seed; null: it was not drawn
    seed: int | None = None
    reason: str | None = None
    image_tag: str  # of the embedding sets that it was computed from
    caption_tag: str
    derived: str | None = None  # key of the ledger's entry; null: measured, not derived
    run: str
    created: datetime


@dataclass(frozen=True, kw_only=True)
class Replicates(OfProtocol):
    """A metric in every bootstrap draw."""

    result: str  # key of the row of results
    evaluation: str
    metric: str
    value: float  # the metric of the sample
    replicate_values: list[float]  # the metric of every bootstrap draw, in order
    n_clusters: int  # the draws depend only on this number and the seed
    seed: int
    derived: str
    run: str
    created: datetime


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two encoders under one metric and protocol: ``encoder_a`` minus ``encoder_b``."""

    comparison: str
    corpus: str
    corpus_fingerprint: str
    protocol: str
    metric: str
    metric_version: str
    lower_is_better: bool
    statistics_version: Int32
    encoder_a: str
    fingerprint_a: str
    encoder_b: str
    fingerprint_b: str
    difference: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    interval_method: str  # t, percentile, none
    # for all pairs of this metric together at 95%: the basis of statements; null: no test, or no end
    simultaneous_low: float | None = None
    simultaneous_high: float | None = None
    # of metrics of the headline: the ends where several results share the 5%, for each of `decision.SHARERS`
    shared_low: list[float] | None = None
    shared_high: list[float] | None = None
    p_sign_flip: float | None = None
    p_exact: bool  # whether the sign-flip test enumerated every flip
    p_adjusted: float | None = None  # of p_sign_flip, over all pairs of this metric
    family: str  # headline: its result was chosen before the data were seen; else exploratory
    # of a true difference within the margin, adjusted over all pairs; null: a metric without a range
    p_equivalent: float | None = None
    margin: float | None = None  # in the metric's unit
    # queries (images, for results over several protocols); null: an aggregate over queries has no winner of one
    wins: int | None = None
    ties: int | None = None
    losses: int | None = None
    cohen_dz: float | None = None
    detectable_effect: float | None = None  # at 80% power
    n_queries: int
    n_clusters: int
    n_effective: float | None = None
    level: float
    replicates: int | None = None  # of a drawn interval; null: it was not drawn
    permutations: int
    seed: int
    reason: str | None = None
    derived: str | None = None
    run: str
    created: datetime


@dataclass(frozen=True, kw_only=True)
class SlicedComparison(Comparison):
    """Two encoders on some queries; it is not stored."""

    slice: str  # column=value; empty: all queries of the protocol
    value_a: float | None = None  # on the queries of both
    value_b: float | None = None


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The place of one encoder in a ranking over several corpora."""

    ranking: str  # digest of the encoders and corpora that were ranked together
    encoder: str
    encoder_fingerprint: str
    estimand: str  # these corpora, corpora like these
    value: float | None = None  # null for an encoder that is left out
    ci_low: float | None = None
    ci_high: float | None = None
    interval_method: str  # wilson, t, none
    rank: int | None = None  # by value; equal values share the better rank
    rank_low: int | None = None  # the ranks that it can hold, simultaneous for all encoders
    rank_high: int | None = None
    tied_with_best: bool | None = None  # it can hold the first rank
    n_corpora: int  # that were ranked
    n_encoders: int
    n_effective: float | None = None  # Kish's number of the units that the ranks rest on
    # JSON: of each corpus its name, fingerprint and what its headline is; other names of it, its photographs, and how
    # many of these each other corpus has; the names of corpora that were left out because no encoder is above chance
    corpora: str
    headlines: str  # JSON: corpus -> headline of this encoder
    level: float
    permutations: int
    seed: int
    reason: str | None = None  # why something is null
    derived: str | None = None
    run: str
    created: datetime


@dataclass(frozen=True, kw_only=True)
class Slice(OfProtocol):
    """One finding of an analysis of one encoder under one protocol."""

    slice: str
    metric: str
    analysis: str  # complexity, category, length, errors, tags, precision …
    analysis_version: str | None = None  # of its code; null: a comparison with published results
    metric_version: str | None = None  # null: no metric of the table, nor of the user
    feature: str  # spatial, colour, person …
    level_name: str  # with, without, difference, or the bin
    value: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    p_adjusted: float | None = None
    n_queries: int
    n_clusters: int
    reason: str | None = None
    detail: str | None = None  # JSON: examples, cost, what else the analysis adds
    seconds_per_query: float | None = None  # wall time: the only difference between equal runs; null: not measured
    derived: str | None = None
    run: str
    created: datetime


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The subject of a derivation; fields that do not distinguish it from others of its kind are None."""

    corpus: str | None = None  # fingerprint
    protocol: str | None = None
    metric: str | None = None
    encoder: str | None = None
    analysis: str | None = None
    facts: str | None = None  # JSON: facts about a metric from its package or file

    @classmethod
    def of(cls, identity: Mapping[str, Any]) -> Subject:
        """Return the subject in the identity of an entry of the ledger."""
        return cls(**{each.name: identity["subject"].get(each.name) for each in fields(cls)})

    @property
    def figure(self) -> tuple[str, str]:
        """The protocol and the metric of a result."""
        return self.protocol or "", self.metric or ""

    @property
    def named(self) -> dict[str, str]:
        """Return the given parts, by name."""
        return {name: part for name, part in vars(self).items() if part is not None}


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """An entry of the ledger: one thing that was made from the store."""

    key: str  # digest of the identity
    kind: str  # result, replicates, comparison, ranking, analysis, measurement, gate, outcomes …
    identity: str  # JSON: its subject, its inputs, settings and the versions of the code
    usual: bool  # made with the default settings of a run
    table_name: str = ""  # of its rows
    n_rows: int = 0  # that carry its key
    digest: str = ""  # of the entry and its rows, see `store.ledger`
    seconds: float
    run: str
    created: datetime

    @property
    def subject(self) -> Subject:
        """Return its subject."""
        return Subject.of(json.loads(self.identity))


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch of items that was encoded."""

    batch_id: str
    set_name: str  # table name of the embedding set
    encoder: str
    encoder_fingerprint: str
    corpus: str
    modality: str
    n_items: Int32
    warmup: bool
    decode_seconds: float | None = None
    preprocess_seconds: float | None = None
    forward_seconds: float | None = None
    write_seconds: float | None = None
    peak_memory_bytes: int | None = None
    batch_size: Int32
    forward_precision: str
    device: str  # name of the hardware
    host: str
    versions: str  # JSON: library -> version
    run: str
    created: datetime

    @property
    def seconds(self) -> float:
        """Seconds from reading the items to storing their vectors."""
        parts = (self.decode_seconds, self.preprocess_seconds, self.forward_seconds, self.write_seconds)
        return sum(part or 0.0 for part in parts)


@dataclass(frozen=True, kw_only=True)
class Probe:
    """An endpoint's vector for one item; another vector for the same item later is a change of the model."""

    encoder_fingerprint: str
    item: str  # the caption or image that it encoded
    vector: list[Float32]  # unit norm
    run: str  # the first that used the endpoint
    created: datetime


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The checksum of the weights behind stored embeddings."""

    encoder_fingerprint: str
    checksum: str  # of the weights as loaded
    versions: str  # of the libraries that loaded them first, JSON
    run: str
    created: datetime


@dataclass(frozen=True, kw_only=True)
class Watched(OfProtocol):
    """One result that a watch compared with its baseline."""

    run: str  # the watch
    metric: str  # the main metric of the protocol
    evaluation: str
    baseline: str  # the pinned run; the watch itself where the result was watched first
    baseline_evaluation: str
    value: float | None = None
    baseline_value: float | None = None
    p_adjusted: float | None = None  # one-sided, over all results of the watch; null: nothing to test
    alarm_level: float  # that p_adjusted was compared with
    verdict: str  # baseline, unchanged, fail, warn, none, not comparable
    created: datetime


@dataclass(frozen=True, kw_only=True)
class Import(OfStates):
    """Something that was imported."""

    imported: str  # an evaluation, or the name of an embedding set
    what: str  # image, caption, or the protocol of the outcomes
    matched: str  # by what rows were matched with items: a column; position: not verified
    source: str  # the file
    run: str
    created: datetime


@dataclass(frozen=True, kw_only=True)
class Published:
    """A result published by others."""

    published: str  # digest of what identifies the row
    model: str
    dataset: str
    protocol: str  # ours; empty: not known to be one of ours
    metric: str
    their_metric: str
    value: float
    source: str
    difference: str
    run: str
    created: datetime


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a flow."""

    run: str
    name: str
    config: str  # JSON of the RunConfig, without secrets
    command: str
    versions: str
    host: str
    machine: str | None = None  # JSON: its system, cores, memory and GPU
    started: datetime
    finished: datetime | None = None
    state: str  # running, completed, failed, incomplete (some encoders failed), cancelled, interrupted
    message: str | None = None
    pid: int  # of its process on the host
    flow_run: str | None = None  # id of its Prefect run
    deployment: str | None = None  # FLOW/NAME
    uses: list[str] | None = None  # keys of derived: everything that it used, whether it made it or not
    same_as: str | None = None  # an earlier run that used exactly the same, and has the keys in its row


# --- registers: rows about the whole store ----------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Encoder:
    """A name of an encoder, and the model that it means."""

    name: str
    fingerprint: str
    spec: str  # canonical JSON of the EncoderSpec
    written: datetime  # among several rows with one name, the newest defines the name


@dataclass(frozen=True, kw_only=True)
class StoredCorpus:
    """A stored corpus."""

    name: str
    fingerprint: str
    n_images: int
    n_captions: int
    n_pairs: int
    n_quadruples: int
    n_skipped: int
    languages: list[str]
    licence: str
    origin: str
    reference_language: str
    main_metric: str
    locations: list[str]  # names, paths or descriptions that it was read from; newest last
    sample: int | None = None  # size of the draw, if it is a sample of the contents of these locations
    seed: int | None = None
    written: datetime  # when it was last written under this name


@dataclass(frozen=True, kw_only=True)
class StoredImage:
    """An image that was decoded once, by the hash of its bytes; or the hash of the image at a location."""

    item: str  # the hash; or the location: the path of an image file, or the code that draws an image, and its key
    state: str | None = None  # of a location: for a file its size and times of change, for a drawing its code
    sha: str
    width: Int32 | None = None  # null: the image cannot be decoded, or the header of the file cannot be read
    height: Int32 | None = None
    thumbnail: bytes | None = None  # JPEG or PNG
    reason: str | None = None  # why the image cannot be decoded; null if it can


@dataclass(frozen=True, kw_only=True)
class StoredSet(OfStates):
    """A sealed embedding set."""

    set_name: str  # name of the table
    modality: str
    vectors: str
    dim: Int32
    storage: str
    tag: str
    version: int
    n_rows: int
    n_vectors: int
    n_bytes: int
    digest: str  # SHA-256 of the checksums in corpus order
    sealed_at: datetime


# --- stored tables ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class StoredTable:
    """A table of a store.

    Attributes:
        row: The type of its rows.
        key: A row is stored once for each value of these columns.
        shared: True if several processes may write a row of the same key at the same time; see :func:`keyed`.
        shown_for: Display key: among rows with equal values of these columns, the newest is current. Rows of
            comparisons and rankings belong together, so those of one request are current. None: every row is.
        order: Columns that rows are sorted by when they are read; Lance returns rows of a merge in any order.
        small: True if its rows are small enough to be cached in memory, all of them, during a run.
    """

    row: type[Any]
    key: tuple[str, ...]
    shared: bool = True
    shown_for: tuple[str, ...] | None = None
    order: tuple[str, ...] = ()
    small: bool = True

    @property
    def columns(self) -> pa.Schema:
        """The columns of its rows."""
        return columns_of(self.row)

    @property
    def keyed_columns(self) -> pa.Schema:
        """The columns with their key and the format of the store, for making the table."""
        return keyed(self.columns, self.key, seen=self.shared).with_metadata({FORMAT_KEY: str(FORMAT)})


TASK = ("corpus", "protocol")
FIGURE = (*TASK, "metric")
"""Columns of a result's key: a metric of all encoders under one protocol on one corpus."""
ENCODERS = ("encoder", "encoder_a", "encoder_b")
"""Columns that name encoders: of a row about one, and of a comparison."""
BY_STATE = ("encoder", "encoder_fingerprint", "corpus_fingerprint")

REGISTERS = {
    "encoders": StoredTable(row=Encoder, key=("name", "fingerprint"), shown_for=("name",)),
    "corpora": StoredTable(row=StoredCorpus, key=("fingerprint",), shown_for=("name",)),
    "image_index": StoredTable(row=StoredImage, key=("item",), small=False),
    "sets": StoredTable(row=StoredSet, key=("set_name",)),
}
"""Tables about the whole store."""

ANALYSES = {
    "outcomes": StoredTable(
        row=Outcome,
        small=False,
        key=("evaluation", "query_id"),
        order=(*TASK, "encoder", "evaluation", "query_ord", "query_id"),
    ),
    "results": StoredTable(
        row=Result, key=("result",), shown_for=(*FIGURE, "encoder"), order=(*FIGURE, "encoder", "created", "result")
    ),
    "replicates": StoredTable(row=Replicates, key=("derived",), small=False),
    "comparisons": StoredTable(row=Comparison, key=("comparison",), shown_for=FIGURE),
    "rankings": StoredTable(row=Ranking, key=("ranking", "encoder_fingerprint", "estimand"), shown_for=()),
    "slices": StoredTable(
        row=Slice, key=("slice",), shown_for=(*TASK, "analysis", "metric", "feature", "level_name", "encoder")
    ),
    "derived": StoredTable(row=LedgerEntry, key=("key",)),
    "batches": StoredTable(row=Batch, key=("batch_id",), shared=False),
    "probes": StoredTable(row=Probe, key=("encoder_fingerprint", "item"), small=False),
    "imports": StoredTable(row=Import, key=("imported",)),
    "published": StoredTable(row=Published, key=("published",)),
    "weights": StoredTable(row=Weights, key=("encoder_fingerprint",)),
    "runs": StoredTable(row=Run, key=("run",), shared=False),
    "watched": StoredTable(row=Watched, key=("run", "encoder", *TASK), shared=False, shown_for=("encoder", *TASK)),
}
"""Tables that ``EmbeddingStore.write_rows`` writes."""

TABLES = REGISTERS | ANALYSES
TABLE_OF = {table.row: name for name, table in TABLES.items()}
"""Type of a row -> the name of its table."""
