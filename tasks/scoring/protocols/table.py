"""The protocols of ``protocols.md`` §3 and §5: which of them a corpus can be asked, and what each asks.

Two figures with different protocol ids never share a column, so an id that would repeat another one on a corpus
(``t2i/first`` where every image has one caption) is refused with the reason instead of being computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial

import pyarrow.compute as pc

from store.errors import RequestError
from store.types import Corpus, Direction, EvalProtocol
from tasks.scoring.protocols import builders as asking
from tasks.scoring.protocols.layout import FIVE, CorpusLayout, layout_of
from tasks.scoring.protocols.tasks import Judgement

FOLDS = 5
FOLD_SIZE = 1000
_MANY_CATEGORIES = 20
_PAIR_FAMILIES = ("sugarcrepe", "aro", "crepe")  # first part of the ids of a corpus of pairs, by its name


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One protocol: when it makes sense, and what it asks.

    Attributes:
        protocol: Id, direction, title.
        obstacle: Why a corpus cannot be asked this, as the end of a sentence; None if it can.
        ask: The queries, galleries and relevant items.
        on_request: Not among the protocols that are taken where none is named.
    """

    protocol: EvalProtocol
    obstacle: Callable[[CorpusLayout], str | None]
    ask: Callable[[CorpusLayout, EvalProtocol], Judgement]
    on_request: bool = False


def _retrieval(layout: CorpusLayout) -> str | None:
    if not layout.parts:
        return "no caption describes an image"
    if layout.main is None:
        languages = sorted({language for language, _ in layout.parts})
        return (
            f"its captions are in {', '.join(languages)} by several translators and none is the reference "
            f"({layout.corpus.languages_reference}); ask for t2i/<language>/<translator>"
        )
    paired = layout.corpus.pairs["caption_id"]
    if (
        len(paired)
        and pc.all(pc.is_in(layout.corpus.captions["id"].take(layout.captions), paired.combine_chunks())).as_py()
    ):
        return "its captions were written as pairs with hard negatives, not for retrieval"
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


def _rule(
    id_: str,
    direction: Direction,
    title: str,
    obstacle: Callable[[CorpusLayout], str | None],
    ask: Callable[[CorpusLayout, EvalProtocol], Judgement],
) -> Rule:
    return Rule(protocol=EvalProtocol(id=id_, direction=direction, title=title), obstacle=obstacle, ask=ask)


PROTOCOLS: dict[str, Rule] = {
    rule.protocol.id: rule
    for rule in (
        _rule("t2i/all", "t2i", "Every caption searches all images", _retrieval, asking.captions_to_images),
        _rule(
            "i2t/any",
            "i2t",
            "Every image searches all captions; any of its own counts",
            _retrieval,
            asking.images_to_captions,
        ),
        _rule(
            "t2i/first",
            "t2i",
            "Caption 0 of every image searches all images",
            _several,
            partial(asking.captions_to_images, below=1),
        ),
        _rule(
            "i2t/any5",
            "i2t",
            "Every image searches captions 0 to 4 of every image",
            _five,
            partial(asking.images_to_captions, below=FIVE),
        ),
        _rule(
            "i2t/symmetric-first",
            "i2t",
            "Every image searches caption 0 of every image",
            _several,
            partial(asking.images_to_captions, below=1),
        ),
        _rule(
            "t2i/ordinal-mean",
            "t2i",
            "Mean over captions 0 to 4 of searching all images",
            _five,
            partial(asking.captions_to_images, below=FIVE),
        ),
        _rule(
            "i2t/symmetric-mean",
            "i2t",
            "Mean over ordinals 0 to 4 of searching that caption of every image",
            _five,
            asking.images_to_each_ordinal,
        ),
        _rule(
            "t2i/1k",
            "t2i",
            "Mean of five folds of 1,000 images",
            _folds,
            partial(asking.captions_to_images, below=FIVE, folds=FOLDS),
        ),
        _rule(
            "i2t/1k",
            "i2t",
            "Mean of five folds of 1,000 images",
            _folds,
            partial(asking.images_to_captions, below=FIVE, folds=FOLDS),
        ),
        _rule(
            "winoground", "quadruples", "Two images, two captions with the same words", _quadruples, asking.quadruples
        ),
    )
}


def protocols_of(corpus: Corpus) -> tuple[EvalProtocol, ...]:
    """Every protocol that makes sense for a corpus, headlines first.

    Of more than 20 categories of hard negatives only the mean; the categories can be asked for by id.
    """
    layout = layout_of(corpus)
    return tuple(r.protocol for r in _rules(layout) if not r.on_request and r.obstacle(layout) is None)


def select(corpus: Corpus, ids: Sequence[str] | None = None) -> tuple[EvalProtocol, ...]:
    """The protocols asked for, in the order asked for; all that make sense if none is named.

    Args:
        corpus: What they are asked of.
        ids: Protocol ids or shell patterns (``t2i/*/google``).

    Raises:
        RequestError: An id is unknown or does not fit this corpus; says why, for every such id.
    """
    if ids is None:
        return protocols_of(corpus)
    layout = layout_of(corpus)
    known = {rule.protocol.id: rule for rule in _rules(layout)}
    chosen: dict[str, EvalProtocol] = {}
    faults = []
    for asked in ids:
        hits = [asked] if asked in known else [id_ for id_ in known if fnmatchcase(id_, asked)]
        obstacles = {id_: known[id_].obstacle(layout) for id_ in hits}
        if not hits:
            faults.append(f"protocol {asked!r} is unknown for corpus {corpus.name!r}; it knows {', '.join(known)}")
        elif all(obstacles.values()):
            faults.append(f"protocol {asked!r} does not fit corpus {corpus.name!r}: {next(iter(obstacles.values()))}")
        chosen |= {id_: known[id_].protocol for id_, obstacle in obstacles.items() if obstacle is None}
    if faults:
        raise RequestError(faults)
    return tuple(chosen.values())


def judge(corpus: Corpus, protocol: EvalProtocol) -> Judgement:
    """What one protocol asks of a corpus; see :func:`build_tasks` for several at once."""
    return build_tasks(corpus, [protocol])[0]


def build_tasks(corpus: Corpus, protocols: Iterable[EvalProtocol]) -> list[Judgement]:
    """What each protocol asks of a corpus.

    Raises:
        RequestError: A protocol does not fit; says why, for every such protocol.
    """
    layout = layout_of(corpus)
    known = {rule.protocol.id: rule for rule in _rules(layout)}
    wanted = list(protocols)
    plain = [protocol.id.partition("@")[0] for protocol in wanted]
    select(corpus, plain)
    return [known[id_].ask(layout, protocol) for id_, protocol in zip(plain, wanted, strict=True)]


def _rules(layout: CorpusLayout) -> list[Rule]:
    return [*PROTOCOLS.values(), *_languages(layout), *_ground_truths(layout), *_pairs(layout)]


def _languages(layout: CorpusLayout) -> list[Rule]:
    """One pair of protocols per language and translator, where there is more than one of them."""
    if len(layout.parts) < 2:
        return []
    rules = []
    for language, translator in layout.parts:
        part = (language, translator)
        name = f"{language}/{translator}"
        asks = partial(asking.captions_to_images, part=part), partial(asking.images_to_captions, part=part)
        rules.append(
            _rule(
                f"t2i/{name}", "t2i", f"Every {language} caption ({translator}) searches all images", _always, asks[0]
            )
        )
        rules.append(
            _rule(
                f"i2t/{name}", "i2t", f"Every image searches all {language} captions ({translator})", _always, asks[1]
            )
        )
    return rules


def _ground_truths(layout: CorpusLayout) -> list[Rule]:
    """``cxc``, ``eccv`` … : whatever extra ground truths came with the corpus."""
    relevance = layout.corpus.relevance
    pairs = relevance.group_by(["ground_truth", "direction"], use_threads=False).aggregate([]).to_pylist()
    rules = []
    for row in pairs:
        name, direction = row["ground_truth"], row["direction"]
        ask = partial(asking.ground_truth, name=name)
        rules.append(_rule(f"{direction}/{name}", direction, f"Judged by the ground truth {name}", _retrieval, ask))
    return rules


def _pairs(layout: CorpusLayout) -> list[Rule]:
    """One protocol per category of hard negatives, macro and micro means, and all negatives of a caption at once."""
    pairs = layout.corpus.pairs
    categories = pc.unique(pairs["category"]).to_pylist()
    family = next((name for name in _PAIR_FAMILIES if layout.corpus.name.startswith(name)), "pairs")
    rules = []
    for category in categories:
        ask = partial(asking.pairs, categories=(category,))
        rule = _rule(f"{family}/{category}", "pairs", f"Caption or hard negative: {category}", _always, ask)
        rules.append(replace(rule, on_request=len(categories) > _MANY_CATEGORIES))
    if len(categories) > 1:
        ask = partial(asking.pairs, categories=tuple(categories))
        rules.append(_rule(f"{family}/macro", "pairs", f"Mean over the {len(categories)} categories", _always, ask))
        ask = partial(asking.pairs, categories=tuple(categories), macro=False)
        rules.append(_rule(f"{family}/micro", "pairs", "Mean over all pairs", _always, ask))
    if family != "sugarcrepe" and pairs.num_rows > pairs.group_by(["image_id", "caption_id"]).aggregate([]).num_rows:
        title = "Caption against all its hard negatives"
        rules.append(_rule(f"{family}/all-negatives", "pairs", title, _always, asking.against_all_negatives))
    return rules


def _always(_: CorpusLayout) -> str | None:
    return None
