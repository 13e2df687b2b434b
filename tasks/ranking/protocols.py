"""The protocols of ``docs/protocols.md`` §3 and §5: which corpora each of them fits, and the task that it sets.

Two figures with different protocol ids never share a column. An id that would repeat another one on a corpus
(``t2i/first`` where every image has one caption) is therefore refused with the reason, not computed twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, TypeAlias, cast

import pyarrow.compute as pc

from capim.store.errors import RequestError, did_you_mean
from capim.store.schema import COMPOSED, JUDGED, LABEL, REVISITED, SIMILARITY, SPECIAL_TRUTHS, SUBSET, texts
from capim.store.types import Corpus, VectorKind
from capim.tasks.protocols import (
    ALL_NEGATIVES,
    ALL_QUADRUPLES,
    BALANCED,
    CLASS,
    COMPOSED_ALONE,
    COMPOSED_SUBSET,
    I2T_ANY,
    I2T_ANY5,
    JUDGED_QUERIES,
    MACRO,
    MICRO,
    ORIENTATIONS,
    PACKAGES,
    REVISITED_GRADES,
    T2I_ALL,
    T2I_FIRST,
    Protocol,
    ProtocolRule,
    language_id,
)
from capim.tasks.ranking import tasks as builders
from capim.tasks.ranking.layout import FIVE, CorpusLayout, layout_of, once
from capim.tasks.ranking.tasks import FOLDS, ScoringTask

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
_ORIENTED = [f"{I2T_ANY}@{orientation}" for orientation in ORIENTATIONS]
TREC_EVAL = f"{JUDGED_QUERIES}@trec_eval"
"""The protocol of imported runs in trec_eval's order; only where it is named."""
_JUDGED_FIVE = ("cxc", "eccv")  # their annotators saw COCO's captions 0 to 4

Obstacle: TypeAlias = Callable[[CorpusLayout], str | None]
TaskBuilder: TypeAlias = Callable[[CorpusLayout, Protocol], ScoringTask]


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


def _multi_positive(layout: CorpusLayout) -> str | None:
    if layout.captions_per_image.max() < 2:
        return "every image has one caption, so this would repeat t2i/all and i2t/any"
    return None


def _five(layout: CorpusLayout) -> str | None:
    if not layout.has_five:
        described = layout.captions_per_image[layout.captions_per_image > 0]
        return f"it needs captions 0 to {FIVE - 1} of every image, and an image has {int(described.min())}"
    return None


def _folds(layout: CorpusLayout) -> str | None:
    described = int((layout.captions_per_image > 0).sum())
    n_images = FOLDS * FOLD_SIZE
    if layout.n_images != n_images or described != n_images:
        return f"it needs {n_images} described images, for {FOLDS} folds of {FOLD_SIZE}, and has {described}"
    return None


def _quadruples(layout: CorpusLayout) -> str | None:
    return None if layout.corpus.quadruples.num_rows else "it has no quadruples (two images, two captions)"


def _graded(layout: CorpusLayout) -> str | None:
    languages = _judged_languages(layout)
    return None if languages else "it has no graded judgements of queries and documents (docs/judged.md)"


def _judged_languages(layout: CorpusLayout) -> list[str]:
    """The languages of the queries that have a relevant document."""
    corpus = layout.corpus
    rows = corpus.relevance.filter((pc.field("ground_truth") == JUDGED) & (pc.field("grade") > 0))
    queries = corpus.captions.filter(pc.is_in(corpus.captions["id"], rows["query_id"].combine_chunks()))
    return sorted(set(texts(queries["language"])))


def _labelled(layout: CorpusLayout) -> str | None:
    return None if layout.labels.num_rows else "its images have no labels (docs/labels.md)"


def _one_label(layout: CorpusLayout) -> str | None:
    return "an image has several labels" if _most(layout, "query_id") > 1 else None


def _several_labels(layout: CorpusLayout) -> str | None:
    return None if _most(layout, "query_id") > 1 else "every image has one label, so i2t/class says as much"


def _shared_labels(layout: CorpusLayout) -> str | None:
    return None if _most(layout, "item_id") > 1 else "no two images share a label"


def _has(truth: str, what: str, layout: CorpusLayout) -> str | None:
    return None if layout.corpus.relevance.filter(pc.field("ground_truth") == truth).num_rows else f"it has no {what}"


_has_composed = partial(_has, COMPOSED, "texts that change an image")


def _most(layout: CorpusLayout, side: str) -> int:
    """The most labels of an image (``query_id``), or images of a class (``item_id``)."""
    return int(pc.max(layout.labels[side].value_counts().field("counts")).as_py())


def _rule(
    id_: str, build: TaskBuilder, *obstacles: Obstacle, description: str = "", on_request: bool = False
) -> ProtocolRule:
    """A rule; all that its id does not say of the protocol is its description on this corpus.

    ``obstacles``: each is asked only where those before it are none.
    """
    protocol = Protocol.of(id_)
    protocol = replace(protocol, description=description or protocol.description)

    def obstacle(layout: CorpusLayout) -> str | None:
        return next(filter(None, (each(layout) for each in obstacles)), None)

    return ProtocolRule(protocol=protocol, obstacle=obstacle, build=build, on_request=on_request)


_own = builders.own_items
PROTOCOLS: dict[str, ProtocolRule] = {
    rule.protocol.id: rule
    for rule in (
        _rule(T2I_ALL, _own, _retrieval),
        _rule(I2T_ANY, _own, _retrieval),
        _rule(T2I_FIRST, partial(_own, below=1), _retrieval, _multi_positive),
        _rule(I2T_ANY5, partial(_own, below=FIVE), _retrieval, _five),
        _rule("i2t/symmetric-first", partial(_own, below=1), _retrieval, _multi_positive),
        _rule("t2i/ordinal-mean", partial(_own, below=FIVE), _retrieval, _five),
        _rule("i2t/symmetric-mean", builders.images_to_each_ordinal, _retrieval, _five),
        _rule("t2i/1k", builders.in_folds, _retrieval, _five, _folds),
        _rule("i2t/1k", builders.in_folds, _retrieval, _five, _folds),
        _rule(JUDGED_QUERIES, builders.judged, _graded),
        _rule(ALL_QUADRUPLES, builders.quadruples, _quadruples),
        _rule(f"i2t/{CLASS}", builders.classes, _labelled),
        _rule(f"i2t/{BALANCED}", partial(builders.classes, balanced=True), _labelled, _one_label),
        _rule(f"t2i/{CLASS}", builders.classes, _labelled, _several_labels),
        _rule(f"i2i/{LABEL}", builders.sharing_labels, _labelled, _shared_labels),
        *(
            _rule(f"i2i/{name}", builders.landmarks, partial(_has, REVISITED, "judged landmarks (docs/labels.md)"))
            for name in REVISITED_GRADES
        ),
        _rule(f"t2i/{COMPOSED}", builders.composed, _has_composed),
        _rule(f"t2i/{COMPOSED_ALONE}", builders.composed, _has_composed, on_request=True),
        _rule(f"t2i/{COMPOSED_SUBSET}", builders.composed, partial(_has, SUBSET, "hard subsets of images")),
        _rule(f"i2i/{SIMILARITY}", builders.rated_pairs, partial(_has, SIMILARITY, "pairs of images with a rating")),
        _rule("t2t/own", builders.sharing_images, _retrieval, _multi_positive, on_request=True),
    )
}


@once
def rules_for(layout: CorpusLayout) -> list[ProtocolRule]:
    """Every protocol that this corpus could have: those of the tables, its languages, ground truths and categories."""
    return [
        *(rule for name, rule in PROTOCOLS.items() if name != JUDGED_QUERIES),
        *PACKAGES.values(),
        *_tags(layout),
        *_languages(layout),
        *_ground_truths(layout),
        *_judged(layout),
        *_pairs(layout),
    ]


def _tags(layout: CorpusLayout) -> list[ProtocolRule]:
    """One protocol per tag of some quadruples, so that encoders are compared by tag; on request where there are many.

    An id has no blanks, commas or other signs that a list of protocols gives a meaning: ``winoground/2-Main-Preds``.
    """
    tags_of: list[Any] = layout.corpus.quadruples["tags"].to_pylist()
    counts = Counter(tag for tags in tags_of for tag in set(tags))
    tags = sorted(tag for tag, count in counts.items() if count < len(tags_of))  # a tag of all repeats ``winoground``
    names = {re.sub(r"[^A-Za-z0-9._-]+", "-", tag): tag for tag in tags}
    return [
        _rule(
            f"{ALL_QUADRUPLES}/{name}",
            partial(builders.quadruples, tag=tag),
            description=f"Two images, two captions: {tag}",
            on_request=len(names) > _MANY_CATEGORIES,
        )
        for name, tag in names.items()
    ]


def _languages(layout: CorpusLayout) -> list[ProtocolRule]:
    """One protocol per direction, language and translator, where there is more than one part."""
    return [
        _rule(language_id(direction, *part), partial(_own, part=part))
        for part in (layout.parts if len(layout.parts) > 1 else ())
        for direction in ("t2i", "i2t")
    ]


def _ground_truths(layout: CorpusLayout) -> list[ProtocolRule]:
    """``cxc``, ``eccv`` and other ground truths that came with the corpus."""
    grouped = layout.corpus.relevance.group_by(["ground_truth", "direction"], use_threads=False).aggregate([])
    rows = (row for row in grouped.to_pylist() if row["ground_truth"] not in SPECIAL_TRUTHS)
    names = [(row["direction"], row["ground_truth"]) for row in rows]
    return [
        _rule(
            f"{direction}/{name}",
            partial(builders.ground_truth, name=name, below=FIVE if name in _JUDGED_FIVE else None),
            _retrieval,
        )
        for direction, name in names
    ]


def _judged(layout: CorpusLayout) -> list[ProtocolRule]:
    """``t2i/judged`` with the corpus' headline, and where its queries are in several languages one for each."""
    corpus = layout.corpus
    rules = [PROTOCOLS[JUDGED_QUERIES]]
    languages = _judged_languages(layout)
    if len(languages) > 1:
        rules += [
            _rule(f"{JUDGED_QUERIES}/{language}", partial(builders.judged, language=language)) for language in languages
        ]
    return [replace(r, protocol=replace(r.protocol, main_metric=corpus.main_metric)) for r in rules]


def _pairs(layout: CorpusLayout) -> list[ProtocolRule]:
    """One protocol per category of hard negatives, macro and micro means, and all negatives of a caption at once."""
    pairs = layout.corpus.pairs
    categories = cast("list[str]", pc.unique(pairs["category"]).to_pylist())
    family = next((name for name in _PAIR_FAMILIES if layout.corpus.name.startswith(name)), "pairs")
    together: builders.Together = _PAIR_FAMILIES.get(family, "id")
    build = partial(builders.pairs, categories=tuple(categories), together=together)

    many = len(categories) > _MANY_CATEGORIES
    rules = [_rule(f"{family}/{name}", partial(build, categories=(name,)), on_request=many) for name in categories]
    if len(categories) > 1:
        rules.append(_rule(f"{family}/{MACRO}", build, description=f"Mean over the {len(categories)} categories"))
        rules.append(_rule(f"{family}/{MICRO}", partial(build, macro=False)))
    several = pairs.num_rows > pairs.group_by(["image_id", "caption_id"], use_threads=False).aggregate([]).num_rows
    if several and together == "id" and family != "sugarcrepe":
        rules.append(_rule(f"{family}/{ALL_NEGATIVES}", partial(build, together="caption_id", macro=False)))
    return rules


def with_orientations(protocols: Sequence[Protocol]) -> tuple[Protocol, ...]:
    """The protocols of a multi-vector encoder: ``i2t/any`` also in the two other orientations (§2)."""
    oriented = _ORIENTED if any(protocol.id == I2T_ANY for protocol in protocols) else ()
    return (*protocols, *map(Protocol.of, oriented))


# --- Which protocols to evaluate on a corpus, and the task that each of them sets.


def protocols_of(corpus: Corpus) -> tuple[Protocol, ...]:
    """Every protocol that fits a corpus, headlines first, without orientations of late interaction.

    Of more than 20 categories of hard negatives only the means, of more than 20 tags of quadruples none; such a
    category or tag has to be requested by its id.
    """
    return _usual(layout_of(corpus))


@once
def _usual(layout: CorpusLayout) -> tuple[Protocol, ...]:
    return tuple(r.protocol for r in rules_for(layout) if not r.on_request and r.obstacle(layout) is None)


def select_protocols(
    corpus: Corpus, ids: Collection[str] = (), *, vectors: VectorKind | None = None
) -> tuple[Protocol, ...]:
    """The protocols with these ids, in the order given; every protocol that fits the corpus if none is named.

    Args:
        ids: Protocol ids or shell patterns (``t2i/*/google``). An id may name an orientation of late interaction
            (``i2t/any@image-as-query``).
        vectors: Orientations are left out for single-vector encoders, and what needs one vector per item for others.
            None: nothing is left out.

    Raises:
        RequestError: An id is unknown or does not fit this corpus; gives the reason for every such id.
    """
    named = _matching(layout_of(corpus), ids).values() if ids else ()
    plain = tuple(rule.protocol for rule in named) or protocols_of(corpus)
    if vectors == "single":
        return plain
    if vectors == "multi":
        plain = tuple(protocol for protocol in plain if not _needs_one_vector(corpus, protocol))
    oriented = (p for p in with_orientations(plain) if not ids or not p.orientation or p.id in ids)
    return (*oriented, *map(Protocol.of, {TREC_EVAL} & {*ids}))


def _needs_one_vector(corpus: Corpus, protocol: Protocol) -> bool:
    """Whether only encoders with one vector per item have it: images that search images, and means of prompts."""
    if protocol.sides[0] == protocol.sides[1] or protocol.name in (COMPOSED, COMPOSED_ALONE, COMPOSED_SUBSET):
        return True
    return protocol.name in (CLASS, BALANCED) and int(pc.max(corpus.captions["ordinal"]).as_py()) > 0


def build_task(corpus: Corpus, protocol: Protocol) -> ScoringTask:
    """The task that one protocol sets on a corpus; see :func:`build_tasks` for several at once."""
    return build_tasks(corpus, [protocol])[0]


def build_tasks(corpus: Corpus, protocols: Iterable[Protocol]) -> list[ScoringTask]:
    """The task that each protocol sets on a corpus, in the order of the protocols.

    Raises:
        RequestError: A protocol does not fit; gives the reason for every such protocol.
    """
    layout, wanted = layout_of(corpus), list(protocols)
    rules = _matching(layout, [protocol.id for protocol in wanted])
    return [rules[protocol.without_orientation.id].build(layout, protocol) for protocol in wanted]


def query_counts(corpus: Corpus, protocols: Iterable[Protocol]) -> dict[str, int]:
    """How many queries protocols have on a corpus, by their ids; the tasks of each are built once for that."""
    known = _known_counts(layout_of(corpus))
    lacking = [protocol for protocol in protocols if protocol.id not in known]
    known |= {task.protocol.id: len(task.query_ids) for task in build_tasks(corpus, lacking)} if lacking else {}
    return known


@once
def _known_counts(layout: CorpusLayout) -> dict[str, int]:
    return {}


def _matching(layout: CorpusLayout, ids: Collection[str]) -> dict[str, ProtocolRule]:
    """Protocol id without orientation -> rule, of every protocol that is named and that fits the corpus."""
    rules = {rule.protocol.id: rule for rule in rules_for(layout)}
    name = layout.corpus.name
    matching: dict[str, ProtocolRule] = {}
    faults = []
    for id_ in ids:
        if Protocol.of(id_).orientation and id_ not in (*_ORIENTED, TREC_EVAL):
            faults.append(f"protocol {id_!r} is unknown; known with an orientation: {', '.join(_ORIENTED)}")
            continue
        plain = Protocol.of(id_).without_orientation.id
        matches = [plain] if plain in rules else [other for other in rules if fnmatchcase(other, plain)]
        obstacles = {match: rules[match].obstacle(layout) for match in matches}
        if not matches:
            hint = did_you_mean(id_, rules)
            faults.append(f"protocol {id_!r} is unknown for corpus {name!r}; {hint}known: {', '.join(rules)}")
        elif all(obstacles.values()):
            faults.append(f"protocol {id_!r} does not fit corpus {name!r}: {next(iter(obstacles.values()))}")
        matching |= {match: rules[match] for match, obstacle in obstacles.items() if obstacle is None}
    if faults:
        raise RequestError(faults)
    return matching
