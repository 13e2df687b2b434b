"""The gallery: single queries with the relevant item and the ranked list of each encoder."""

from __future__ import annotations

from reports import format as show
from reports.elements.gallery import Answer, Case, Filter, Gallery, Hit
from reports.elements.page import Section
from reports.rows.report_data import ReportData
from reports.rows.selected_queries import PROTOCOL, RankedList, SelectedQuery
from reports.sections.leaderboard import retrieval_corpora

MISSED = "missed by "
UNFOLDED = 3  # cases whose ranked lists are open at first


def section(data: ReportData) -> Section:
    """One gallery per corpus with selected queries."""
    by_corpus = {corpus: [q for q in data.queries if q.corpus == corpus] for corpus in retrieval_corpora(data)}
    return Section(
        id="failures",
        title="Single queries",
        lead="Ranked lists of single queries, selected from the stored outcomes by a fixed rule: the hardest queries "
        "that all encoders miss, those that exactly one misses or finds, ties, and near misses; one per image.",
        blocks=tuple(_gallery(data, corpus, queries) for corpus, queries in by_corpus.items() if queries),
    )


def _gallery(data: ReportData, corpus: str, queries: list[SelectedQuery]) -> Gallery:
    cases = tuple(_case(data, query, number) for number, query in enumerate(queries, 1))
    tags = {tag for case in cases for tag in case.tags}
    kinds = list(dict.fromkeys(query.kind for query in queries))
    missed = sorted(tag for tag in tags if tag.startswith(MISSED) and tag not in kinds)
    features = sorted(tags - set(kinds) - set(missed))
    filters = {"Kind": kinds, "Encoder": missed, "Caption": features}
    return Gallery(
        id=f"failures-{corpus}",
        caption=f"{corpus} · {PROTOCOL} · {show.count(len(cases), 'query', 'queries')}",
        filters=tuple(Filter(label=label, options=tuple(options)) for label, options in filters.items() if options),
        cases=cases,
        note="After each encoder: the rank of the relevant image. Scores are cosines, or MaxSim sums for multi-vector "
        "encoders.",
    )


def _case(data: ReportData, query: SelectedQuery, number: int) -> Case:
    caption = data.corpora[query.corpus].captions.slice(query.caption, 1).to_pylist()[0]
    missed = [ranked.encoder for ranked in query.lists if ranked.rank_best > 1]
    first = [ranked.encoder for ranked in query.lists if ranked.rank_worst == 1]
    features = data.features.get((query.corpus, query.query_id), ())
    return Case(
        id=f"case-{query.corpus}-{number}",
        query=caption["text"] or caption["id"],
        expected=(_hit(data, query, query.image),),
        answers=tuple(_answer(data, query, ranked) for ranked in query.lists),
        tags=(query.kind, *(MISSED + name for name in missed), *features),
        labels=(query.kind, *features),
        unfolded=number <= UNFOLDED,
        summary=_summary(first, missed, len(query.lists)),
    )


def _summary(first: list[str], missed: list[str], n: int) -> str:
    if len(missed) == n:
        return "No encoder ranks it first." if n > 1 else "Not ranked first."
    if len(first) == n:
        return "All encoders rank it first."
    parts = [f"ranked first by {show.listing(first)}"] if first else []
    parts += [f"missed by {show.listing(missed)}"] if missed else []
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else "Decided by a tie."


def _answer(data: ReportData, query: SelectedQuery, ranked: RankedList) -> Answer:
    low, high = show.number(ranked.rank_best, 0), show.number(ranked.rank_worst, 0)
    tied = f"tied for ranks {low} to {high}" if ranked.top else f"between ranks {low} and {high}"
    return Answer(
        encoder=ranked.encoder,
        rank=f"rank {low}" if low == high else tied,
        right=ranked.rank_worst == 1,
        hits=tuple(
            _hit(data, query, image, str(i), show.number(score, 3)) for i, (image, score) in enumerate(ranked.top, 1)
        ),
    )


def _hit(data: ReportData, query: SelectedQuery, image: int, rank: str = "", score: str = "") -> Hit:
    row = data.corpora[query.corpus].images.slice(image, 1).to_pylist()[0]
    return Hit(
        rank=rank,
        label=row["id"],
        thumbnail=row["sha"] if row["sha"] in data.thumbnails else "",
        score=score,
        right=image == query.image,
    )
