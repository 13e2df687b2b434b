"""The protocols of ``docs/protocols.md`` §3 and §5: which corpora each of them fits, and the task that it sets.

Two figures with different protocol ids never share a column. An id that would repeat another one on a corpus
(``t2i/first`` where every image has one caption) is therefore refused with the reason, not computed twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, cast

import pyarrow.compute as pc

from capim.store.schema import JUDGED, texts
from capim.store.types import Direction, EvalProtocol
from capim.tasks.scoring.protocols import builders
from capim.tasks.scoring.protocols.layout import FIVE, CorpusLayout
from capim.tasks.scoring.protocols.tasks import ScoringTask

FOLDS = 5
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
_JUDGED = f"t2i/{JUDGED}"
_JUDGED_FIVE = ("cxc", "eccv")  # their annotators saw COCO's captions 0 to 4

Obstacle: TypeAlias = Callable[[CorpusLayout], str | None]
TaskBuilder: TypeAlias = Callable[[CorpusLayout, EvalProtocol], ScoringTask]


@dataclass(frozen=True, kw_only=True)
class ProtocolRule:
    """One protocol, the corpora that it fits, and how its task is built.

    Attributes:
        protocol: Id, direction, title.
        obstacle: Gives the reason why the protocol does not fit a corpus, as the end of a sentence; None if it fits.
        build: Builds the task: queries, galleries and relevant items.
        on_request: Evaluated only when its id is named.
    """

    protocol: EvalProtocol
    obstacle: Obstacle
    build: TaskBuilder
    on_request: bool = False


def _retrieval(layout: CorpusLayout) -> str | None:
    if not layout.parts:
        return "no caption describes an image"
    if layout.main is None:
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


def _several(layout: CorpusLayout) -> str | None:
    if fault := _retrieval(layout):
        return fault
    if layout.captions_per_image.max() < 2:
        return "every image has one caption, so this would repeat t2i/all and i2t/any"
    return None


def _five(layout: CorpusLayout) -> str | None:
    if fault := _retrieval(layout):
        return fault
    if not layout.has_five:
        described = layout.captions_per_image[layout.captions_per_image > 0]
        return f"it needs captions 0 to {FIVE - 1} of every image, and an image has {int(described.min())}"
    return None


def _folds(layout: CorpusLayout) -> str | None:
    if fault := _five(layout):
        return fault
    described = int((layout.captions_per_image > 0).sum())
    if layout.n_images != FOLDS * FOLD_SIZE or described != layout.n_images:
        return f"it needs {FOLDS * FOLD_SIZE} described images, for {FOLDS} folds of {FOLD_SIZE}, and has {described}"
    return None


def _quadruples(layout: CorpusLayout) -> str | None:
    return None if layout.corpus.quadruples.num_rows else "it has no quadruples (two images, two captions)"


def _graded(layout: CorpusLayout) -> str | None:
    return (
        None if _judged_languages(layout) else "it has no graded judgements of queries and documents (docs/judged.md)"
    )


def _judged_languages(layout: CorpusLayout) -> list[str]:
    """The languages of the queries that have a relevant document."""
    corpus = layout.corpus
    rows = corpus.relevance.filter((pc.field("ground_truth") == JUDGED) & (pc.field("grade") > 0))
    queries = corpus.captions.filter(pc.is_in(corpus.captions["id"], rows["query_id"].combine_chunks()))
    return sorted(set(texts(queries["language"])))


def _rule(
    id_: str,
    title: str,
    build: TaskBuilder,
    obstacle: Obstacle = lambda _: None,
    direction: Direction | None = None,
    *,
    on_request: bool = False,
) -> ProtocolRule:
    """A rule; the direction of a retrieval protocol is the first part of its id."""
    direction = direction or ("t2i" if id_.startswith("t2i/") else "i2t")
    protocol = EvalProtocol(id=id_, direction=direction, title=title)
    return ProtocolRule(protocol=protocol, obstacle=obstacle, build=build, on_request=on_request)


_to_images, _to_captions = builders.captions_to_images, builders.images_to_captions
PROTOCOLS: dict[str, ProtocolRule] = {
    rule.protocol.id: rule
    for rule in (
        _rule("t2i/all", "Every caption searches all images", _to_images, _retrieval),
        _rule("i2t/any", "Every image searches all captions; any of its own counts", _to_captions, _retrieval),
        _rule("t2i/first", "Caption 0 of every image searches all images", partial(_to_images, below=1), _several),
        _rule("i2t/any5", "Every image searches captions 0 to 4 of every image",
              partial(_to_captions, below=FIVE), _five),
        _rule("i2t/symmetric-first", "Every image searches caption 0 of every image",
              partial(_to_captions, below=1), _several),
        _rule("t2i/ordinal-mean", "Mean over captions 0 to 4 of searching all images",
              partial(_to_images, below=FIVE), _five),
        _rule("i2t/symmetric-mean", "Mean over ordinals 0 to 4 of searching that caption of every image",
              builders.images_to_each_ordinal, _five),
        _rule("t2i/1k", "Mean of five folds of 1,000 images", partial(_to_images, below=FIVE, folds=FOLDS), _folds),
        _rule("i2t/1k", "Mean of five folds of 1,000 images", partial(_to_captions, below=FIVE, folds=FOLDS), _folds),
        _rule(_JUDGED, "Every query searches all documents; graded judgements", builders.judged, _graded),
        _rule("winoground", "Two images and the caption of each",
              builders.quadruples, _quadruples, "quadruples"),
    )
}  # fmt: skip


def rules_for(layout: CorpusLayout) -> list[ProtocolRule]:
    """Every protocol that this corpus could have: those of the table, its languages, ground truths and categories."""
    return [
        *(rule for name, rule in PROTOCOLS.items() if name != _JUDGED),
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
            f"winoground/{name}",
            f"Two images, two captions: {tag}",
            partial(builders.quadruples, tag=tag),
            direction="quadruples",
            on_request=len(names) > _MANY_CATEGORIES,
        )
        for name, tag in names.items()
    ]


def _languages(layout: CorpusLayout) -> list[ProtocolRule]:
    """One protocol per direction, language and translator, where there is more than one part."""
    rules = []
    for language, translator in layout.parts if len(layout.parts) > 1 else ():
        part, name = (language, translator), f"{language}/{translator}"
        to_images, to_captions = partial(_to_images, part=part), partial(_to_captions, part=part)
        rules += [
            _rule(f"t2i/{name}", f"Every {language} caption ({translator}) searches all images", to_images),
            _rule(f"i2t/{name}", f"Every image searches all {language} captions ({translator})", to_captions),
        ]
    return rules


def _ground_truths(layout: CorpusLayout) -> list[ProtocolRule]:
    """``cxc``, ``eccv`` and other ground truths that came with the corpus."""
    grouped = layout.corpus.relevance.group_by(["ground_truth", "direction"], use_threads=False).aggregate([])
    names = [(row["direction"], row["ground_truth"]) for row in grouped.to_pylist() if row["ground_truth"] != JUDGED]
    return [
        _rule(
            f"{direction}/{name}",
            f"Judged by the ground truth {name}",
            partial(builders.ground_truth, name=name, below=FIVE if name in _JUDGED_FIVE else None),
            _retrieval,
        )
        for direction, name in names
    ]


def _judged(layout: CorpusLayout) -> list[ProtocolRule]:
    """``t2i/judged`` with the corpus' headline, and where its queries are in several languages one for each."""
    corpus = layout.corpus
    rules = [PROTOCOLS[_JUDGED]]
    languages = _judged_languages(layout)
    if len(languages) > 1:
        rules += [
            _rule(
                f"{_JUDGED}/{language}",
                f"Every {language} query searches all documents; graded judgements",
                partial(builders.judged, language=language),
            )
            for language in languages
        ]
    return [replace(r, protocol=replace(r.protocol, main_metric=corpus.main_metric)) for r in rules]


def _pairs(layout: CorpusLayout) -> list[ProtocolRule]:
    """One protocol per category of hard negatives, macro and micro means, and all negatives of a caption at once."""
    pairs = layout.corpus.pairs
    categories = cast("list[str]", pc.unique(pairs["category"]).to_pylist())
    family = next((name for name in _PAIR_FAMILIES if layout.corpus.name.startswith(name)), "pairs")
    together: builders.Together = _PAIR_FAMILIES.get(family, "id")
    build = partial(builders.pairs, categories=tuple(categories), together=together)

    def rule(name: str, title: str, build: TaskBuilder, *, on_request: bool = False) -> ProtocolRule:
        return _rule(f"{family}/{name}", title, build, direction="pairs", on_request=on_request)

    many = len(categories) > _MANY_CATEGORIES
    rules = [
        rule(name, f"Caption or hard negative: {name}", partial(build, categories=(name,)), on_request=many)
        for name in categories
    ]
    if len(categories) > 1:
        rules.append(rule("macro", f"Mean over the {len(categories)} categories", build))
        rules.append(rule("micro", "Mean over all items", partial(build, macro=False)))
    several = pairs.num_rows > pairs.group_by(["image_id", "caption_id"]).aggregate([]).num_rows
    if several and together == "id" and family != "sugarcrepe":
        every = partial(build, together="caption_id", macro=False)
        rules.append(rule("all-negatives", "Caption against all its hard negatives", every))
    return rules
