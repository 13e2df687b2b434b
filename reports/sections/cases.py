"""One case of the gallery for every selected query: the query, what belongs to it, and the answer of every encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from capim.reports import format as show
from capim.reports.elements.page import Answer, Case, Hit
from capim.reports.rows.gallery import LONGEST_LIST, RankedList, SelectedQuery, map_key
from capim.reports.rows.names import DIRECTION_TITLES
from capim.reports.rows.report_data import ReportData
from capim.store.types import Corpus

DIRECTIONS = {**DIRECTION_TITLES, "quadruples": "two images, two captions", "pairs": "caption or hard negative"}
CAUSES = {"annotation": "another annotation", "agreement": "agreement of encoders (a suspicion)"}
_SOURCES = {"same words": "it has a caption with the same words", "same picture": "it is the same picture"}


@dataclass(frozen=True, kw_only=True)
class _Texts:
    """What is particular to a direction: the query's words, its pictures and captions, and the slices it is in."""

    query: str
    expected: tuple[Hit, ...]
    slices: tuple[str, ...]
    language: str
    relevant: tuple[str, ...] = ()


def case_of(data: ReportData, query: SelectedQuery, number: int) -> Case:
    """The case of one query; ``number`` is its place in the gallery."""
    contents = data.corpora[query.corpus]
    texts = {"quadruples": _quadruple, "pairs": _pair, "i2t": _of_image}.get(query.direction, _of_caption)(data, query)
    missed = tuple(ranked.encoder for ranked in query.lists if ranked.missed)
    found = tuple(ranked.encoder for ranked in query.lists if ranked.found)
    causes = {
        ranked.encoder: data.ambiguous.get((query.corpus, query.protocol, ranked.encoder, query.query_id), {})
        for ranked in query.lists
    }
    ambiguous = tuple(text for cause, text in CAUSES.items() if any(cause in of for of in causes.values()))
    return Case(
        id=f"case-{number}",
        query=texts.query,
        expected=texts.expected,
        relevant=texts.relevant,
        about=f"{query.corpus} · {query.protocol} · {query.query_id}",
        answers=tuple(_answer(data, contents, query, ranked, causes[ranked.encoder]) for ranked in query.lists),
        tags={
            "corpus": (query.corpus,),
            "direction": (DIRECTIONS[query.direction],),
            "missed": missed,
            "found": found,
            "kind": (query.kind,),
            "slice": texts.slices,
            "language": (texts.language,) if texts.language else (),
            "ambiguous": ambiguous,
        },
        labels=(query.kind, *(f"ambiguous: {text}" for text in ambiguous), *texts.slices),
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


def _of_caption(data: ReportData, query: SelectedQuery) -> _Texts:
    contents = data.corpora[query.corpus]
    caption, image = _row(contents.captions, query.query), _row(contents.images, query.image)
    shown = (query.relevant or (query.image,))[:LONGEST_LIST]
    return _Texts(
        query=_text(caption),
        expected=tuple(_picture(data, _row(contents.images, at), right=True) for at in shown),
        slices=(*data.features.get((query.corpus, query.query_id), ()), *_objects(image)),
        language=caption["language"],
    )


def _of_image(data: ReportData, query: SelectedQuery) -> _Texts:
    contents = data.corpora[query.corpus]
    image = _row(contents.images, query.image)
    part = query.protocol.split("/")[1:]  # language and translator, or "any"
    own = [
        row for row in _rows(contents.captions, "image_id", image["id"]) if len(part) == 1 or row["language"] == part[0]
    ]
    languages = sorted({row["language"] for row in own})
    return _Texts(
        query=image["id"],
        expected=(_picture(data, image),),
        relevant=tuple(map(_text, own)),
        slices=_objects(image),
        language=languages[0] if len(languages) == 1 else "",
    )


def _quadruple(data: ReportData, query: SelectedQuery) -> _Texts:
    contents = data.corpora[query.corpus]
    row = _row(contents.quadruples, query.query)
    captions = [_named(contents.captions, row[name]) for name in ("caption_0", "caption_1")]
    images = [_named(contents.images, row[name]) for name in ("image_0", "image_1")]
    return _Texts(
        query=" / ".join(map(_text, captions)),
        expected=tuple(_picture(data, image, rank=f"{i}") for i, image in enumerate(images, 1)),
        slices=tuple(row["tags"]),
        language="",
    )


def _pair(data: ReportData, query: SelectedQuery) -> _Texts:
    contents = data.corpora[query.corpus]
    rows = _rows(contents.pairs, "id", query.query_id)
    return _Texts(
        query=_text(_named(contents.captions, rows[0]["caption_id"])),
        expected=(_picture(data, _named(contents.images, rows[0]["image_id"]), right=True),),
        slices=tuple(dict.fromkeys(row["category"] for row in rows)),
        language="",
    )


def _answer(
    data: ReportData, contents: Corpus, query: SelectedQuery, ranked: RankedList, causes: Mapping[str, str]
) -> Answer:
    low, high = show.number(ranked.rank_best, 0), show.number(ranked.rank_worst, 0)
    tied = f"tied for ranks {low} to {high}" if ranked.top else f"between ranks {low} and {high}"
    rank = f"rank {low}" if low == high else tied
    if query.direction in ("quadruples", "pairs"):
        rank = "right" if ranked.found else "wrong" if ranked.missed else "tied"
        hits = (_choices if query.direction == "quadruples" else _scored)(data, contents, query, ranked)
    elif query.direction == "t2i":
        hits = tuple(
            _picture(
                data,
                _row(contents.images, image),
                rank=f"{i}",
                score=show.number(score, 3),
                right=image in (query.relevant or (query.image,)),
            )
            for i, (image, score) in enumerate(ranked.top, 1)
        )
    else:
        own = _row(contents.images, query.image)["id"]
        rows = [_row(contents.captions, caption) for caption, _ in ranked.top]
        hits = tuple(
            _words(row, f"{i}", score, right=row["image_id"] == own)
            for i, (row, (_, score)) in enumerate(zip(rows, ranked.top, strict=True), 1)
        )
    notes = []
    if "annotation" in causes:
        sources = [_SOURCES.get(s, f"by the ground truth {s}") for s in causes["annotation"].split(", ")]
        notes.append(f"Ambiguous: the first is right too ({'; '.join(sources)}).")
    if "agreement" in causes:
        same = sum(1 for other in query.lists if other.top[:1] and other.top[0][0] == ranked.top[0][0])
        notes.append(f"Ambiguous, a suspicion: {same} of {len(query.lists)} encoders have the same first.")
    maps = _maps(data, query, ranked) if query.direction == "t2i" else ()
    return Answer(encoder=ranked.encoder, rank=rank, right=ranked.found, hits=hits, note=" ".join(notes), maps=maps)


def _maps(data: ReportData, query: SelectedQuery, ranked: RankedList) -> tuple[Hit, ...]:
    """Where the query matches the expected image and what the encoder puts first; empty where there are no maps."""
    hits = {}
    for name, image in (("first", ranked.top[0][0] if ranked.top else None), ("expected", query.image)):
        key = "" if image is None else map_key(query.corpus, ranked.encoder, query.query, image)
        if thumbnail := data.picture(key):
            label = f"where {query.query_id} matches the {name} image"
            hits[key] = Hit(
                rank=f"map of the {name}", label=label, thumbnail=thumbnail, score="", right=name == "expected"
            )
    return tuple(hits.values())


def _choices(data: ReportData, contents: Corpus, query: SelectedQuery, ranked: RankedList) -> tuple[Hit, ...]:
    """Of two images and two captions: the picture that each caption chooses, and the caption that each picture does."""
    if len(ranked.scores) != 4:
        return ()
    row = _row(contents.quadruples, query.query)
    images = [_named(contents.images, row[name]) for name in ("image_0", "image_1")]
    score = {(c, i): ranked.scores[2 * c + i] for c in (0, 1) for i in (0, 1)}

    def chosen(right: float, wrong: float) -> tuple[bool, str]:
        sign = ">" if right > wrong else "=" if right == wrong else "<"
        return right > wrong, f"{show.number(right, 3)} {sign} {show.number(wrong, 3)}"

    hits = []
    for c in (0, 1):
        right, text = chosen(score[c, c], score[c, 1 - c])
        image = images[c if right else 1 - c]
        hits.append(_picture(data, image, rank=f"caption {c + 1}", score=text, right=right))
    for i in (0, 1):
        right, text = chosen(score[i, i], score[1 - i, i])
        label = f"picture {i + 1}: caption {(i if right else 1 - i) + 1}"
        hits.append(Hit(rank="", label=label, thumbnail="", score=text, right=right))
    return tuple(hits)


def _scored(data: ReportData, contents: Corpus, query: SelectedQuery, ranked: RankedList) -> tuple[Hit, ...]:
    """The captions of a set, best first; none where the scores do not say which caption is which."""
    rows = _rows(contents.pairs, "id", query.query_id)
    right = list(dict.fromkeys(row["caption_id"] for row in rows))
    captions = [*right, *dict.fromkeys(row["negative_id"] for row in rows)]
    scores = [score for score in ranked.scores if score == score]  # noqa: PLR0124 - NaN beyond the last of a set
    if len(scores) != len(captions):
        return ()
    ordered = sorted(zip(scores, captions, strict=True), key=lambda item: -item[0])
    return tuple(
        _words(_named(contents.captions, caption), f"{i}", score, right=caption in right)
        for i, (score, caption) in enumerate(ordered, 1)
    )


def _picture(
    data: ReportData, image: Mapping[str, Any], *, rank: str = "", score: str = "", right: bool = False
) -> Hit:
    thumbnail = data.picture(image["sha"])
    return Hit(rank=rank, label=image["id"], thumbnail=thumbnail, score=score, right=right)


def _words(caption: Mapping[str, Any], rank: str, score: float, *, right: bool) -> Hit:
    return Hit(rank=rank, label=_text(caption), thumbnail="", score=show.number(score, 3), right=right)


def _text(caption: Mapping[str, Any]) -> str:
    return str(caption["text"] or caption["id"])


def _row(table: pa.Table, at: int) -> dict[str, Any]:
    row: dict[str, Any] = table.slice(at, 1).to_pylist()[0]
    return row


def _rows(table: pa.Table, column: str, value: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.filter(pc.field(column) == value).to_pylist()
    return rows


def _named(table: pa.Table, id_: str) -> dict[str, Any]:
    return _rows(table, "id", id_)[0]


def _objects(image: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"shows: {name}" for name in dict.fromkeys(image["objects"] or ()))
