"""The corpora that the protocols of ``tasks.protocols`` fit; the task and the clusters of each on a corpus.

Two results with different protocol ids never share a column. An id that would repeat another one on a corpus
(``t2i/first`` if every image has one caption) is therefore refused with the reason, not computed twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.errors import RequestError, did_you_mean
from capim.store.schema import COMPOSED, JUDGED, REVISITED, SIMILARITY, SPECIAL_TRUTHS, SUBSET, texts
from capim.store.types import Corpus, VectorKind
from capim.tasks.protocols import (
    ALL_NEGATIVES,
    BALANCED,
    CLASS,
    FAMILIES,
    PROTOCOLS,
    TREC_EVAL,
    Protocol,
    ProtocolRule,
    member,
)
from capim.tasks.ranking import tasks as builders
from capim.tasks.ranking.layout import FIVE, CorpusLayout, layout_of, once, same_photographs
from capim.tasks.ranking.tasks import FOLDS, ScoringTask
from capim.tasks.statistics.clusters import SamplingFrame

FOLD_SIZE = 1000
_MANY_CATEGORIES = 20
# First part of the ids of a corpus of pairs, by its name -> how its pairs are joined to sets; "pairs" for all others.
_PAIR_FAMILIES: dict[str, builders.Together] = {
    "sugarcrepe-pp": "negative_id",
    "sugarcrepe": "id",
    "aro": "id",
    "crepe": "id",
    "negbench": "caption_id",
}
_QUADRUPLES_ONLY = ("bivlc", "mmvp-vlm")  # their images and captions repeat, or say too little to be found among all


# --- Requirements of a protocol: each function returns the missing one, as the end of a sentence.


def _retrieval(layout: CorpusLayout) -> str | None:
    if not layout.parts:
        return "no caption describes an image"
    if layout.corpus.main_part is None:
        languages = sorted({language for language, _ in layout.parts})
        return (
            f"its captions are in {', '.join(languages)} by several translators and none is the reference "
            f"({layout.corpus.languages_reference}); name t2i/<language>/<translator>"
        )
    paired, captions = layout.corpus.pairs["caption_id"], layout.corpus.captions["id"].take(layout.captions)
    if len(paired) and pc.all(pc.is_in(captions, paired.combine_chunks())).as_py():
        return "its captions were written as pairs with hard negatives, not for retrieval"
    if layout.corpus.name.startswith(_QUADRUPLES_ONLY):
        return "its captions were written as quadruples with hard negatives, not for retrieval"
    return None


def _several_captions(layout: CorpusLayout) -> str | None:
    if lacks := _retrieval(layout):
        return lacks
    if layout.captions_per_image.max() < 2:
        return "every image has one caption, so this would repeat t2i/all and i2t/any"
    return None


def _five(layout: CorpusLayout) -> str | None:
    if lacks := _retrieval(layout):
        return lacks
    if not layout.has_five:
        described = layout.captions_per_image[layout.captions_per_image > 0]
        return f"it needs captions 0 to {FIVE - 1} of every image, and an image has {int(described.min())}"
    return None


def _folds(layout: CorpusLayout) -> str | None:
    if lacks := _five(layout):
        return lacks
    described = int((layout.captions_per_image > 0).sum())
    n_images = FOLDS * FOLD_SIZE
    if layout.n_images != n_images or described != n_images:
        return f"it needs {n_images} described images, for {FOLDS} folds of {FOLD_SIZE}, and has {described}"
    return None


def _quadruples(layout: CorpusLayout) -> str | None:
    return None if layout.corpus.quadruples.num_rows else "it has no quadruples (two images, two captions)"


def _graded(layout: CorpusLayout) -> str | None:
    languages = _languages_of_queries(layout)
    return None if languages else "it has no graded judgements of queries and documents (docs/judged.md)"


def _languages_of_queries(layout: CorpusLayout) -> list[str]:
    """Return the languages of the queries that have a relevant document."""
    corpus = layout.corpus
    rows = corpus.relevance.filter((pc.field("ground_truth") == JUDGED) & (pc.field("grade") > 0))
    queries = corpus.captions.filter(pc.is_in(corpus.captions["id"], rows["query_id"].combine_chunks()))
    return sorted(set(texts(queries["language"])))


def _labelled(layout: CorpusLayout) -> str | None:
    return None if layout.labels.num_rows else "its images have no labels (docs/labels.md)"


def _one_label(layout: CorpusLayout) -> str | None:
    return _labelled(layout) or ("an image has several labels" if _most(layout, "query_id") > 1 else None)


def _several_labels(layout: CorpusLayout) -> str | None:
    several = not _labelled(layout) and _most(layout, "query_id") > 1
    return None if several else _labelled(layout) or "every image has one label, so this would repeat i2t/class"


def _shared_labels(layout: CorpusLayout) -> str | None:
    return _labelled(layout) or (None if _most(layout, "item_id") > 1 else "no two images share a label")


def _most(layout: CorpusLayout, side: str) -> int:
    """Return the most labels of an image (``query_id``), or images of a class (``item_id``)."""
    return int(pc.max(layout.labels[side].value_counts().field("counts")).as_py())


def _has(truth: str, what: str, layout: CorpusLayout) -> str | None:
    return None if layout.corpus.relevance.filter(pc.field("ground_truth") == truth).num_rows else f"it has no {what}"


NEEDS: Mapping[str, Callable[[CorpusLayout], str | None]] = {
    "captions": _retrieval,
    "several captions": _several_captions,
    "five captions": _five,
    "folds": _folds,
    "quadruples": _quadruples,
    "labels": _labelled,
    "one label": _one_label,
    "several labels": _several_labels,
    "shared labels": _shared_labels,
    JUDGED: _graded,
    REVISITED: partial(_has, REVISITED, "judged landmarks (docs/labels.md)"),
    COMPOSED: partial(_has, COMPOSED, "texts that change an image"),
    SUBSET: partial(_has, SUBSET, "hard subsets of images"),
    SIMILARITY: partial(_has, SIMILARITY, "pairs of images with a rating"),
}
"""``ProtocolRule.needs`` -> function that returns the missing requirement of a corpus."""


# --- The members of a family of protocols on a corpus.


class Member(NamedTuple):
    """One member of a family.

    Attributes:
        given: Text in its id in place of each ``{…}``.
        options: Further arguments of the function that builds its task.
        on_request: True if it is evaluated only when its id is named.
    """

    given: Mapping[str, str]
    options: Mapping[str, Any]
    on_request: bool = False


def _tags(layout: CorpusLayout, _: Protocol) -> Iterator[Member]:
    """Yield one per tag of some quadruples, so that encoders are compared by tag; on request if there are many.

    An id has no blanks, commas or other characters with a meaning in a list of protocols: ``winoground/2-Main-Preds``.
    """
    tags_of: list[Any] = layout.corpus.quadruples["tags"].to_pylist()
    counts = Counter(tag for tags in tags_of for tag in set(tags))
    tags = sorted(tag for tag, count in counts.items() if count < len(tags_of))  # a tag of all repeats ``winoground``
    names = {re.sub(r"[^A-Za-z0-9._-]+", "-", tag): tag for tag in tags}
    for name, tag in names.items():
        yield Member({"name": name}, {"tag": tag}, on_request=len(names) > _MANY_CATEGORIES)


def _languages(layout: CorpusLayout, _: Protocol) -> Iterator[Member]:
    """Yield one per language and translator, if there is more than one part."""
    for language, translator in layout.parts if len(layout.parts) > 1 else ():
        yield Member({"language": language, "translator": translator}, {})


def _ground_truths(layout: CorpusLayout, protocol: Protocol) -> Iterator[Member]:
    """Yield ``cxc``, ``eccv`` and other ground truths of the corpus, or only the one that the protocol names."""
    rows = layout.corpus.relevance.filter(pc.field("direction") == protocol.direction)
    for name in cast("list[str]", pc.unique(rows["ground_truth"]).to_pylist()):
        listed = f"{protocol.direction}/{name}" in PROTOCOLS
        if name == protocol.name or not (listed or name in SPECIAL_TRUTHS or protocol.id in PROTOCOLS):
            yield Member({"name": name}, {})


def _queries(layout: CorpusLayout, _: Protocol) -> Iterator[Member]:
    """Yield one per language of judged queries, if there are several."""
    languages = _languages_of_queries(layout)
    yield from (Member({"language": language}, {}) for language in (languages if len(languages) > 1 else ()))


def _categories(layout: CorpusLayout, protocol: Protocol) -> Iterator[Member]:
    """Yield one per category of hard negatives; macro and micro means; and all negatives of a caption at once."""
    pairs = layout.corpus.pairs
    every = cast("list[str]", pc.unique(pairs["category"]).to_pylist())
    family = next((name for name in _PAIR_FAMILIES if layout.corpus.name.startswith(name)), "pairs")
    together: builders.Together = _PAIR_FAMILIES.get(family, "id")
    if "{name}" in protocol.id:
        for name in every:
            options = {"categories": (name,), "together": together}
            yield Member({"family": family, "name": name}, options, on_request=len(every) > _MANY_CATEGORIES)
        return
    if protocol.name == ALL_NEGATIVES:
        several = pairs.num_rows > pairs.group_by(["image_id", "caption_id"], use_threads=False).aggregate([]).num_rows
        has = several and together == "id" and family != "sugarcrepe"
    else:
        has = len(every) > 1
    if has:
        yield Member({"family": family}, {"categories": tuple(every), "together": together})


MEMBERS: Mapping[str, Callable[[CorpusLayout, Protocol], Iterator[Member]]] = {
    "tags": _tags,
    "languages": _languages,
    "ground truths": _ground_truths,
    "languages of queries": _queries,
    "categories": _categories,
}
"""``ProtocolRule.members`` -> the members that a corpus has."""


@once
def rules_for(layout: CorpusLayout) -> list[ProtocolRule]:
    """Return every protocol that this corpus could have: rows of the table, and members of the families."""
    found: list[ProtocolRule] = []
    for rule in (*PROTOCOLS.values(), *FAMILIES):
        if rule.members:
            found += [
                replace(
                    rule,
                    protocol=member(rule, each.given),
                    options={**each.options, **rule.options},
                    on_request=each.on_request,
                )
                for each in MEMBERS[rule.members](layout, rule.protocol)
            ]
        elif rule.build:
            found.append(rule)
    main = layout.corpus.main_metric
    return [
        replace(r, protocol=replace(r.protocol, main_metric=r.protocol.main_metric or main))
        if r.protocol.kind == "judged"
        else r
        for r in found
    ]


def _lacks(rule: ProtocolRule, layout: CorpusLayout) -> str | None:
    """Return why a protocol does not fit a corpus, as the end of a sentence; None if it fits."""
    return (NEEDS[rule.needs](layout) if rule.needs else None) or rule.obstacle(layout)


# --- Selecting the protocols to evaluate on a corpus, and building their tasks.


def protocols_of(corpus: Corpus) -> tuple[Protocol, ...]:
    """Return every protocol that fits a corpus, headlines first, without orientations of late interaction.

    With more than 20 categories of hard negatives, only their means are included; with more than 20 tags of quadruples,
    no tag. Such a category or tag has to be requested by its id.
    """
    return _usual(layout_of(corpus))


@once
def _usual(layout: CorpusLayout) -> tuple[Protocol, ...]:
    return tuple(r.protocol for r in rules_for(layout) if not r.on_request and _lacks(r, layout) is None)


def with_orientations(protocols: Sequence[Protocol]) -> tuple[Protocol, ...]:
    """Return the protocols of a multi-vector encoder: ``i2t/any`` also in the two other orientations."""
    oriented = (r.protocol for r in PROTOCOLS.values() if r.protocol.orientation and not r.on_request)
    return (*protocols, *(of for of in oriented if any(of.without_orientation.id == each.id for each in protocols)))


def select_protocols(
    corpus: Corpus, ids: Collection[str] = (), *, vectors: VectorKind | None = None
) -> tuple[Protocol, ...]:
    """Return the protocols with these ids, no others, in the order given; all that fit the corpus if none is named.

    Args:
        ids: Protocol ids or shell patterns (``t2i/*/google``). An id may name an orientation of late interaction
            (``i2t/any@image-as-query``).
        vectors: Kind of encoder: protocols that its vectors cannot be scored under are left out. None: nothing is.

    Raises:
        RequestError: If an id is unknown or does not fit this corpus; gives the reason for every such id. If none of
            the ids fits the vectors.
    """
    if not ids:
        every = with_orientations(protocols_of(corpus))
        return tuple(each for each in every if vectors is None or _unscorable(corpus, each, vectors) is None)
    named = [rule.protocol for rule in _matching(layout_of(corpus), ids).values()]
    lacking = {each: _unscorable(corpus, each, vectors) if vectors else None for each in named}
    if all(lacking.values()):
        raise RequestError([f"protocol {each.id!r}: {reason}" for each, reason in lacking.items()])
    return tuple(each for each in named if lacking[each] is None)


def _unscorable(corpus: Corpus, protocol: Protocol, vectors: VectorKind) -> str | None:
    """Return why an encoder with these vectors has no outcomes of a protocol; None if it has."""
    if protocol.id == TREC_EVAL:
        return "only imported runs have it (`capim import --run FILE`)"
    if vectors == "single" and protocol.orientation:
        return "only encoders with several vectors per item have orientations"
    if vectors == "multi" and _needs_one_vector(corpus, protocol):
        return "only encoders with one vector per item have it"
    return None


def _needs_one_vector(corpus: Corpus, protocol: Protocol) -> bool:
    """True if only encoders with one vector per item support it: images that search images, and means of prompts."""
    if protocol.kind == "images" or protocol.sides[0] == protocol.sides[1]:
        return True
    return protocol.name in (CLASS, BALANCED) and int(pc.max(corpus.captions["ordinal"]).as_py()) > 0


def build_task(corpus: Corpus, protocol: Protocol) -> ScoringTask:
    """Return the task of one protocol on a corpus; see :func:`build_tasks` for several at once."""
    return build_tasks(corpus, [protocol])[0]


def build_tasks(corpus: Corpus, protocols: Iterable[Protocol]) -> list[ScoringTask]:
    """Return the task of each protocol on a corpus, in the order of the protocols.

    Raises:
        RequestError: If a protocol does not fit; gives the reason for every such protocol.
    """
    layout, wanted = layout_of(corpus), list(protocols)
    rules = _matching(layout, [protocol.id for protocol in wanted])
    tasks = []
    for protocol in wanted:
        rule = rules[protocol.id]
        build = getattr(builders, rule.build) if isinstance(rule.build, str) else rule.build
        tasks.append(build(layout, protocol, **rule.options))
    return tasks


def query_counts(corpus: Corpus, protocols: Iterable[Protocol]) -> dict[str, int]:
    """Return the number of queries of protocols on a corpus, by their ids; each task is built once for that."""
    known = _known_counts(layout_of(corpus))
    lacking = [protocol for protocol in protocols if protocol.id not in known]
    known |= {task.protocol.id: len(task.query_ids) for task in build_tasks(corpus, lacking)} if lacking else {}
    return known


@once
def _known_counts(layout: CorpusLayout) -> dict[str, int]:
    return {}


def _matching(layout: CorpusLayout, ids: Collection[str]) -> dict[str, ProtocolRule]:
    """Return the rule of every protocol that is named and fits the corpus, by its id."""
    rules = {rule.protocol.id: rule for rule in rules_for(layout)}
    oriented = [id_ for id_ in PROTOCOLS if "@" in id_]
    name = layout.corpus.name
    matching: dict[str, ProtocolRule] = {}
    faults = []
    for id_ in ids:
        plain, orientation, _ = id_.partition("@")
        if orientation and id_ not in oriented:
            known = (other for other in oriented if other != TREC_EVAL)
            faults.append(f"protocol {id_!r} is unknown; known with an orientation: {', '.join(known)}")
            continue
        matches = [plain] if plain in rules else [other for other in rules if fnmatchcase(other, plain)]
        obstacles = {match: _lacks(rules[match], layout) for match in matches}
        if not matches:
            hint = did_you_mean(id_, rules)
            faults.append(f"protocol {id_!r} is unknown for corpus {name!r}; {hint}known: {', '.join(rules)}")
        elif all(obstacles.values()):
            faults.append(f"protocol {id_!r} does not fit corpus {name!r}: {next(iter(obstacles.values()))}")
        fitting = [rules[match] for match, obstacle in obstacles.items() if obstacle is None]
        if orientation:
            fitting = [replace(rule, protocol=Protocol.of(id_)) for rule in fitting]
        matching |= {rule.protocol.id: rule for rule in fitting}
    if faults:
        raise RequestError(faults)
    return matching


# --- The clusters that are resampled: the drawn images, queries or quadruples of a corpus, and how they are grouped.


def drawn_clusters(corpus: Corpus, protocol: Protocol) -> SamplingFrame:
    """Return the clusters to resample: photographs, queries (judged documents) or quadruples, as named in outcomes."""
    if protocol.kind == "judged":
        return len(corpus.captions)
    if protocol.metrics:  # few images are queries
        return _photographs_among(corpus, np.unique(build_task(corpus, protocol).clusters))
    if protocol.direction == "quadruples":
        return len(corpus.quadruples)
    every = np.arange(len(corpus.images))
    return _photographs_among(corpus, every) if protocol.direction == "pairs" else drawn_images(corpus)


def drawn_images(corpus: Corpus) -> SamplingFrame:
    """Return the photographs of images that may have queries: images with a caption, and queries of a ground truth.

    Other images are only searched: ten million of them next to COCO's 5,000 must not be drawn 10,000 times.
    """
    asked = corpus.relevance.filter(pc.field("direction") == "i2t")["query_id"]
    described = pc.unique(pa.chunked_array([*corpus.captions["image_id"].chunks, *asked.chunks], pa.string()))
    drawn = pc.index_in(described, value_set=corpus.images["id"].combine_chunks()).drop_null().to_numpy()
    return _photographs_among(corpus, np.sort(drawn) if len(drawn) else np.arange(len(corpus.images)))


def _photographs_among(corpus: Corpus, drawn: NDArray[np.integer]) -> SamplingFrame:
    """Return the index of each image's photograph among those of some images, given by ascending ords."""
    shown = corpus.images.select(["key", "sha"]).take(drawn)
    unit = np.unique(same_photographs(shown), return_inverse=True)[1] if _repeats(shown) else np.arange(len(drawn))
    if len(drawn) == len(corpus.images) == unit.max(initial=-1) + 1:
        return len(drawn)
    frame = np.full(int(drawn.max()) + 1, -1, dtype=np.int64)
    frame[drawn] = unit
    return frame


def _repeats(images: pa.Table) -> bool:
    """True if some of the images may show one photograph; uses Arrow, because it is called for every result."""
    columns = images["key"], images["sha"].drop_null()
    distinct = all(len(pc.unique(column)) == len(column) for column in columns)
    return not distinct or bool(pc.any(pc.match_substring(images["key"], "@")).as_py())  # perhaps boxes
