"""Failures: R@1 with and without the ambiguous misses, and a gallery of single queries with the answers to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import TypeVar
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute as pc

from capim.reports import format as show
from capim.reports.elements.page import Answer, Block, Case, Cell, Filter, Gallery, Hit, Section, Table
from capim.reports.elements.tables import absent, anchor, counted, link, numbers, pivot, shaded, texts, value
from capim.reports.rows import standing
from capim.reports.rows.choice import best_first, overall
from capim.reports.rows.gallery import LONGEST_LIST, RankedList, SelectedQuery, Totals, map_key
from capim.reports.rows.report_data import R1, WITHOUT, ReportData, detail_of
from capim.reports.rows.standing import Task
from capim.reports.sections.slices import encoder_order, slice_cell
from capim.store import schema
from capim.store.current import grouped
from capim.store.row_types import rows_in
from capim.store.schema import Caption, Image, Pair, Quadruple
from capim.tasks.protocols import DIRECTION_TITLES, Protocol

R = TypeVar("R")
FIRST = 4  # cases of the first screen
FILTERS = {
    "corpus": "Corpus",
    "direction": "Direction",
    "missed": "Missed by",
    "found": "Found by",
    "kind": "Kind",
    "slice": "Slice",
    "language": "Language",
    "ambiguous": "Ambiguous by",
}
DIRECTIONS = ("t2i", "i2t")  # in which another item can be judged to be right, too
_CAUSES = {schema.ANNOTATION: "another annotation", schema.AGREEMENT: "agreement of encoders (a suspicion)"}
SOURCES = {"same words": "it has a caption with the same words", "same picture": "it is the same picture"}


def section(data: ReportData) -> Section:
    """Return the matrix of missed queries, a gallery with the cases of all corpora, and tables of ambiguous misses."""
    tables = [table for corpus in data.corpus_names() if (table := _ambiguous(data, corpus)) is not None]
    missed = [_missed(data)] if data.totals else []
    blocks: list[Block] = [*missed, *([_gallery(data)] if data.queries else []), *tables]
    return Section(
        id="failures",
        title="Failures",
        lead="Each query's correct image next to the model's top result. A query is missed where something scores "
        "above its best relevant item, and found where that item is first without a tie.",
        blocks=tuple(blocks),
    )


def _missed(data: ReportData) -> Table:
    """Return the fraction of queries each encoder misses by task, marked where not significantly above chance."""
    tasks = _tasks(data)
    totals = [total for total in data.totals if total.queries]

    def cell(name: str, total: Totals) -> Cell:
        if name not in total.missed:
            return absent("not evaluated")
        task = tasks.get((total.corpus, total.direction))
        weak = standing.at_chance(data, *task[:3], name) if task else ""
        n, share = total.missed[name], total.missed[name] / total.queries
        wanted = {"corpus": total.corpus, "direction": DIRECTION_TITLES[total.direction], "missed": name}
        title = f"{n:,} of {total.queries:,} queries"
        made = value(share, show.percent(share), title=title, mark="bad" if weak else "", state="chance" * bool(weak))
        return replace(made if weak else shaded(made, share), link=f"#cases?{urlencode(wanted)}")

    titles = [DIRECTION_TITLES[total.direction].replace(" to ", " → ") for total in totals]
    columns = [
        numbers(title, partial(cell, total=total), group=total.corpus)
        for title, total in zip(titles, totals, strict=True)
    ]
    title, note = "Missed queries, percent", "Missed: something scores above the best relevant item."
    return pivot("missed", title, best_first(data), texts("Encoder", str), *columns, note=note, matrix=True)


def _tasks(data: ReportData) -> dict[tuple[str, str], Task]:
    """Return the first headline task of every corpus and direction."""
    every = reversed(standing.headline_tasks(data))
    return {(task.corpus, Protocol.of(task.protocol).direction): task for task in every}


def _ambiguous(data: ReportData, corpus: str) -> Table | None:
    """Return R@1 of all queries next to R@1 without ambiguous misses, for every encoder in both directions."""
    rows = [r for r in data.slices if r.corpus == corpus and r.analysis == schema.AMBIGUOUS]
    by_key = {(r.protocol, r.encoder, r.metric, r.feature): r for r in rows}
    keys = [
        (protocol, name)
        for protocol in sorted({r.protocol for r in rows}, reverse=True)
        for name in encoder_order(data, corpus, protocol, R1, [r for r in rows if r.protocol == protocol])
    ]
    if not keys:
        return None

    def mean(key: tuple[str, str], metric: str, feature: str) -> Cell:
        row = by_key.get((*key, metric, feature))
        return absent("cannot be known here") if row is None else slice_cell(data, row)

    def marked(key: tuple[str, str], cause: str) -> Cell:
        row = by_key.get((*key, schema.SHARE_OF_MISSES, cause))
        if row is None:
            known = any(by_key.get((*other, schema.SHARE_OF_MISSES, cause)) for other in keys)
            return counted(0, "misses nothing") if known else absent("cannot be known here")
        return counted(detail_of(row)["ambiguous"], f"of {show.count(row.n_queries, 'miss', 'misses')}")

    def misses(key: tuple[str, str]) -> Cell:
        return counted(next((by_key[k].n_queries for k in by_key if k[:3] == (*key, schema.SHARE_OF_MISSES)), 0))

    title = f"{corpus} · R@1 with and without ambiguous misses, percent, with interval"
    headings = dict(zip((*schema.CAUSES, schema.EITHER), ("also annotated", "models agree", "both"), strict=True))
    return pivot(
        anchor(schema.AMBIGUOUS, corpus),
        title,
        keys,
        texts("Encoder", lambda key: key[1]),
        texts("task", lambda key: data.titled(corpus, key[0])),
        numbers("all queries", partial(mean, metric=R1, feature="all queries"), group=R1),
        *(
            numbers(heading, partial(mean, metric=WITHOUT, feature=cause), group="R@1 excluding misses")
            for cause, heading in headings.items()
        ),
        numbers("all", misses, group="Misses"),
        *(numbers(headings[cause], partial(marked, cause=cause), group="Misses") for cause in schema.CAUSES),
        folded=title,
        note="R@1 of all queries is the headline. Also annotated: the encoder's top result is right too, by an "
        "extra ground truth of the corpus or by a caption with the same words. Models agree, a suspicion only: at "
        "least two thirds of the encoders, and at least three, put the same wrong item first; encoders that were "
        "trained alike make the same mistakes. Without these misses R@1 can only be higher: it is an upper bound.",
    )


def _gallery(data: ReportData) -> Gallery:
    cases = tuple(case_of(data, query, number) for number, query in enumerate(data.queries, 1))
    filters = []
    for name, label in FILTERS.items():
        values = list(dict.fromkeys(value for case in cases for value in case.tags[name]))
        options = values if name in ("kind", "corpus", "direction") else sorted(values)  # those as they were selected
        if len(options) > (name in ("corpus", "direction", "language")):
            filters.append(Filter(name=name, label=label, options=tuple(options)))
    queries, tasks = show.number(sum(total.queries for total in data.totals), 0), _tasks(data)
    wanted, lead = _telling(data)
    counts = {task.corpus for task in standing.counted_tasks(data, standing.headline_tasks(data))}
    fitting = [case for case in cases if wanted and all(name in case.tags[tag] for tag, name in wanted.items())]
    fitting = sorted(_spread(fitting), key=lambda case: counts.isdisjoint(case.tags["corpus"]))
    return Gallery(
        id="cases",
        caption=f"{show.count(len(cases), 'query', 'queries')} of {queries}",
        filters=tuple(filters),
        cases=cases,
        first=tuple(case.id for case in fitting[:FIRST]),
        wanted=wanted,
        lead=lead,
        totals=tuple(_total(total, tasks.get((total.corpus, total.direction))) for total in data.totals),
        serve=data.serve,
        note="Selected by a fixed rule: of every corpus and direction the hardest queries that all encoders miss, "
        "those that one misses and others find, ties, and near misses; one per image. Scores are cosines, or MaxSim "
        "sums for multi-vector encoders. The choice of filters is in the address of the page, which can be sent.",
    )


def _total(total: Totals, task: Task | None) -> dict[str, object]:
    """Return the numbers of a task as the page's script reads them, with the task's address in `capim serve`."""
    address = link("/queries", corpus=task.corpus, protocol=task.protocol) if task else ""
    return {**vars(total), "direction": DIRECTION_TITLES[total.direction], "address": address}


def _telling(data: ReportData) -> tuple[dict[str, str], str]:
    """Return the filters of the cases of the first screen, and the same in words.

    The highest encoder misses them, and the one of the others in the ranking that finds most of its misses finds them.
    """
    order = [each.encoder for each in overall(data).order] or best_first(data)
    first = next((name for name in order if any(total.missed.get(name) for total in data.totals)), "")
    totals = [total for total in data.totals if first in total.missed]
    every = sum(total.queries for total in totals)
    missed = sum(total.missed[first] for total in totals)
    rescued: dict[str, int] = {}
    for name, n in (pair for total in totals for pair in total.both[first].items()):
        rescued[name] = rescued.get(name, 0) + n * (name in order)
    found = max(rescued, key=lambda name: (rescued[name], name), default="")
    if not found or not rescued[found]:
        return ({"missed": first}, f"missed by {first}: {missed:,} of {every:,} queries") if first else ({}, "")
    lead = f"missed by {first}, found by {found}: {rescued[found]:,} of {every:,} queries"
    return {"missed": first, "found": found}, lead


def _spread(cases: Sequence[Case]) -> list[Case]:
    """Return cases so that every corpus has its turn."""
    by_corpus = grouped(cases, lambda case: case.tags["corpus"])
    return [case for turn in zip_longest(*by_corpus.values()) for case in turn if case is not None]


def case_of(data: ReportData, query: SelectedQuery, number: int) -> Case:
    """Return the query, its correct items, and the answer of every encoder; ``number`` is its place in the gallery."""
    text, expected, relevant, slices, language = _asked(data, query)
    missed = tuple(ranked.encoder for ranked in query.lists if ranked.missed)
    found = tuple(ranked.encoder for ranked in query.lists if ranked.found)
    causes = {
        ranked.encoder: data.ambiguous.get((query.corpus, query.protocol, ranked.encoder, query.query_id), {})
        for ranked in query.lists
    }
    ambiguous = tuple(words for cause, words in _CAUSES.items() if any(cause in of for of in causes.values()))
    return Case(
        id=f"case-{number}",
        query=text,
        expected=expected,
        relevant=relevant,
        about=f"{query.corpus} · {query.protocol} · {query.query_id}",
        asked=(query.corpus, query.direction, query.query_id) if query.direction in DIRECTIONS else (),
        answers=tuple(_answer(data, query, ranked, causes[ranked.encoder]) for ranked in query.lists),
        tags={
            "corpus": (query.corpus,),
            "direction": (DIRECTION_TITLES[Protocol.of(query.protocol).direction],),
            "missed": missed,
            "found": found,
            "kind": (query.kind,),
            "slice": slices,
            "language": (language,) if language else (),
            "ambiguous": ambiguous,
        },
        labels=(query.kind, *(f"ambiguous: {words}" for words in ambiguous), *slices),
        summary=_summary(found, missed, len(query.lists)),
    )


def _summary(first: Sequence[str], missed: Sequence[str], n: int) -> str:
    if len(missed) == n:
        return "No encoder is right." if n > 1 else "Missed."
    if len(first) == n:
        return "All encoders are right."
    parts = [f"found by {show.listing(list(first))}"] if first else []
    parts += [f"missed by {show.listing(list(missed))}"] if missed else []
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else "Decided by a tie."


def _asked(
    data: ReportData, query: SelectedQuery
) -> tuple[str, tuple[Hit, ...], tuple[str, ...], tuple[str, ...], str]:
    """Return a query's text, its correct images and captions, its slices, and its language."""
    contents = data.corpora[query.corpus]
    if query.direction == "quadruples":
        four = _row(Quadruple, contents.quadruples, query.query)
        words = [_text(_named(Caption, contents.captions, id_)) for id_ in (four.caption_0, four.caption_1)]
        images = [_named(Image, contents.images, id_) for id_ in (four.image_0, four.image_1)]
        pictures = (_picture(data, query, image, rank=f"{i}") for i, image in enumerate(images, 1))
        return " / ".join(words), tuple(pictures), (), tuple(four.tags), ""
    if query.direction == "pairs":
        pairs = _rows(Pair, contents.pairs, "id", query.query_id)
        shown = _picture(data, query, _named(Image, contents.images, pairs[0].image_id), right=True)
        categories = tuple(dict.fromkeys(pair.category for pair in pairs))
        return _text(_named(Caption, contents.captions, pairs[0].caption_id)), (shown,), (), categories, ""
    asks_image = Protocol.of(query.protocol).queries == "image"
    image = _row(Image, contents.images, query.query if asks_image else query.image)
    objects = tuple(f"shows: {name}" for name in dict.fromkeys(image.objects or ()))
    if asks_image:
        asked = Protocol.of(query.protocol).language
        own = [c for c in _rows(Caption, contents.captions, "image_id", image.id) if asked in ("", c.language)]
        languages = {caption.language for caption in own}
        language = languages.pop() if len(languages) == 1 else ""
        return image.id, (_picture(data, query, image),), tuple(map(_text, own)), objects, language
    caption = _row(Caption, contents.captions, query.query)
    relevant = (query.relevant or (query.image,))[:LONGEST_LIST]
    expected = tuple(_picture(data, query, _row(Image, contents.images, at), right=True) for at in relevant)
    features = data.features.get((query.corpus, query.query_id), ())
    return _text(caption), expected, (), (*features, *objects), caption.language


def _answer(data: ReportData, query: SelectedQuery, ranked: RankedList, causes: Mapping[str, str]) -> Answer:
    contents, answers = data.corpora[query.corpus], Protocol.of(query.protocol).sides[1]
    low, high = show.number(ranked.rank_best, 0), show.number(ranked.rank_worst, 0)
    tied = f"tied for ranks {low} to {high}" if ranked.is_known else f"between ranks {low} and {high}"
    rank = f"rank {show.ranks(ranked.rank_best, ranked.rank_best)}" if low == high else tied
    maps: tuple[Hit, ...] = ()
    if query.direction in ("quadruples", "pairs"):
        rank = "right" if ranked.found else "wrong" if ranked.missed else "tied"
        hits = (_choices if query.direction == "quadruples" else _scored)(data, query, ranked)
    else:
        maps = _maps(data, query, ranked) if query.direction == "t2i" else ()
        found: list[tuple[Image | Caption, float]] = [
            (_row(Image, contents.images, at) if answers == "image" else _row(Caption, contents.captions, at), score)
            for at, score in ranked.top
        ]
        images = [_row(Image, contents.images, at).id for at in query.relevant or (query.image,)]
        own = [(item.id if isinstance(item, Image) else item.image_id) in images for item, _ in found]
        right = own if ranked.relevant is None else [i in ranked.relevant for i, _ in enumerate(found, 1)]
        hits = [
            _picture(data, query, item, rank=f"{i}", score=show.number(score, 3), right=is_right)
            if isinstance(item, Image)
            else _words(item, i, score, right=is_right)
            for i, ((item, score), is_right) in enumerate(zip(found, right, strict=True), 1)
        ]
        wrong = next((at for at, each in enumerate(hits) if each.thumbnail and not each.right), None)
        if wrong is not None:
            text = data.first_captions.get((query.corpus, hits[wrong].item), "")
            hits[wrong] = replace(hits[wrong], caption=text)
    notes = []
    if schema.ANNOTATION in causes:
        sources = [SOURCES.get(s, f"by the ground truth {s}") for s in causes[schema.ANNOTATION].split(", ")]
        notes.append(f"Ambiguous: the first is right too ({'; '.join(sources)}).")
    if schema.AGREEMENT in causes:
        same = sum(1 for other in query.lists if other.top[:1] and other.top[0][0] == ranked.top[0][0])
        notes.append(f"Ambiguous, a suspicion: {same} of {len(query.lists)} encoders have the same first.")
    return Answer(
        encoder=ranked.encoder, rank=rank, right=ranked.found, hits=tuple(hits), note=" ".join(notes), maps=maps
    )


def _maps(data: ReportData, query: SelectedQuery, ranked: RankedList) -> tuple[Hit, ...]:
    """Return the maps of a query over the expected image and over the encoder's first; empty where there are none."""
    hits = {}
    for name, image in (("first", ranked.top[0][0] if ranked.top else None), ("expected", query.image)):
        key = "" if image is None else map_key(query.corpus, ranked.encoder, query.query, image)
        if thumbnail := data.picture(key):
            label = f"where {query.query_id} matches the {name} image"
            hits[key] = Hit(
                rank=f"map of the {name}", label=label, thumbnail=thumbnail, score="", right=name == "expected"
            )
    return tuple(hits.values())


def _choices(data: ReportData, query: SelectedQuery, ranked: RankedList) -> list[Hit]:
    """Return the choices among two images and two captions: each caption's image, and each image's caption."""
    if len(ranked.scores) != 4:
        return []
    contents = data.corpora[query.corpus]
    four = _row(Quadruple, contents.quadruples, query.query)
    images = [_named(Image, contents.images, id_) for id_ in (four.image_0, four.image_1)]
    score = {(c, i): ranked.scores[2 * c + i] for c in (0, 1) for i in (0, 1)}

    def chosen(right: float, wrong: float) -> tuple[bool, str]:
        sign = ">" if right > wrong else "=" if right == wrong else "<"
        return right > wrong, f"{show.number(right, 3)} {sign} {show.number(wrong, 3)}"

    hits = []
    for c in (0, 1):
        right, text = chosen(score[c, c], score[c, 1 - c])
        image = images[c if right else 1 - c]
        hits.append(_picture(data, query, image, rank=f"caption {c + 1}", score=text, right=right))
    for i in (0, 1):
        right, text = chosen(score[i, i], score[1 - i, i])
        label = f"picture {i + 1}: caption {(i if right else 1 - i) + 1}"
        hits.append(Hit(rank="", label=label, thumbnail="", score=text, right=right))
    return hits


def _scored(data: ReportData, query: SelectedQuery, ranked: RankedList) -> list[Hit]:
    """Return the captions of a set, best first; none where the scores do not say which caption is which."""
    contents = data.corpora[query.corpus]
    pairs = _rows(Pair, contents.pairs, "id", query.query_id)
    right = list(dict.fromkeys(pair.caption_id for pair in pairs))
    captions = [*right, *dict.fromkeys(pair.negative_id for pair in pairs)]
    scores = [score for score in ranked.scores if score == score]  # noqa: PLR0124 - NaN beyond the last of a set
    if len(scores) != len(captions):
        return []
    ordered = sorted(zip(scores, captions, strict=True), key=lambda item: -item[0])
    return [
        _words(_named(Caption, contents.captions, caption), i, score, right=caption in right)
        for i, (score, caption) in enumerate(ordered, 1)
    ]


def _picture(
    data: ReportData, query: SelectedQuery, image: Image, *, rank: str = "", score: str = "", right: bool = False
) -> Hit:
    thumbnail, label = data.picture(image.sha), image.id
    if not thumbnail and (text := data.first_captions.get((query.corpus, image.id))):
        label = f"{text} ({label})"
    return Hit(rank=rank, label=label, thumbnail=thumbnail, score=score, right=right, item=image.id)


def _words(caption: Caption, rank: int, score: float, *, right: bool) -> Hit:
    text, points = _text(caption), show.number(score, 3)
    return Hit(rank=f"{rank}", label=text, thumbnail="", score=points, right=right, item=caption.id)


def _text(caption: Caption) -> str:
    return caption.text or caption.id


def _row(row_type: type[R], table: pa.Table, at: int) -> R:
    return rows_in(row_type, table.slice(at, 1))[0]


def _rows(row_type: type[R], table: pa.Table, column: str, value: str) -> list[R]:
    return rows_in(row_type, table.filter(pc.field(column) == value))


def _named(row_type: type[R], table: pa.Table, id_: str) -> R:
    return _rows(row_type, table, "id", id_)[0]
