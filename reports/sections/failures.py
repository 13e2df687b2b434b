"""The gallery: single queries with what was right and what each encoder found instead."""

from __future__ import annotations

from reports import format as show
from reports.elements.gallery import Answer, Case, Filter, Gallery, Hit
from reports.elements.page import Block, Section
from reports.rows.cases import PROTOCOL, Answered
from reports.rows.cases import Case as Chosen
from reports.rows.report_data import Evidence
from reports.sections.leaderboard import retrieval_corpora

MISSED = "missed by "
UNFOLDED = 3  # cases whose answers show at once


def section(evidence: Evidence) -> Section | None:
    """One gallery per corpus with outcomes; None without."""
    blocks: list[Block] = []
    for corpus in retrieval_corpora(evidence):
        chosen = [case for case in evidence.cases if case.corpus == corpus]
        if chosen:
            blocks.append(_gallery(evidence, corpus, chosen))
    if not blocks:
        return None
    return Section(
        id="failures",
        title="Single queries",
        lead="What the encoders found, query by query. The cases are chosen by rule from the stored outcomes: the "
        "hardest that all miss, those that only one misses or only one finds, ties, and near misses; one per image.",
        blocks=tuple(blocks),
    )


def _gallery(evidence: Evidence, corpus: str, chosen: list[Chosen]) -> Gallery:
    cases = tuple(_case(evidence, case, number) for number, case in enumerate(chosen, 1))
    present = {tag for case in cases for tag in case.tags}
    kinds = list(dict.fromkeys(case.kind for case in chosen))
    missed = sorted(tag for tag in present if tag.startswith(MISSED) and tag not in kinds)
    features = sorted(present - set(kinds) - set(missed))
    filters = [Filter(label="Kind", options=tuple(kinds)), Filter(label="Encoder", options=tuple(missed))]
    if features:
        filters.append(Filter(label="Caption", options=tuple(features)))
    return Gallery(
        id=f"failures-{corpus}",
        caption=f"{corpus} · {PROTOCOL} · {show.count(len(cases), 'query', 'queries')}",
        filters=tuple(f for f in filters if f.options),
        cases=cases,
        note="Beside every encoder: the place of the right image. Scores are cosines, or MaxSim sums for "
        "multi-vector encoders.",
    )


def _case(evidence: Evidence, case: Chosen, number: int) -> Case:
    corpus = evidence.corpora[case.corpus]
    caption = corpus.captions.slice(case.caption, 1).to_pylist()[0]
    missed = [a.encoder for a in case.answers if a.rank_best > 1]
    found = [a.encoder for a in case.answers if a.rank_worst == 1]
    features = evidence.features.get((case.corpus, case.query_id), ())
    return Case(
        id=f"case-{case.corpus}-{number}",
        query=caption["text"] or caption["id"],
        thumbnail="",
        expected=(_hit(evidence, case.corpus, case.image, place="", score=None, right=True),),
        answers=tuple(_answer(evidence, case, answer) for answer in case.answers),
        tags=(case.kind, *(MISSED + name for name in missed), *features),
        labels=(case.kind, *features),
        unfolded=number <= UNFOLDED,
        summary=_summary(found, missed, len(case.answers)),
    )


def _summary(found: list[str], missed: list[str], n: int) -> str:
    if len(missed) == n:
        return "No encoder has it first." if n > 1 else "Not first."
    if len(found) == n:
        return "All have it first."
    first = f"first with {show.listing(found)}" if found else ""
    not_first = f"missed by {show.listing(missed)}" if missed else ""
    text = "; ".join(filter(None, (first, not_first)))
    return f"{text[:1].upper()}{text[1:]}." if text else "Decided by a tie."


def _answer(evidence: Evidence, case: Chosen, answer: Answered) -> Answer:
    low, high = show.number(answer.rank_best, 0), show.number(answer.rank_worst, 0)
    if answer.rank_best == answer.rank_worst:
        place = f"place {low}"
    else:
        place = f"tied for places {low} to {high}" if answer.top else f"somewhere in places {low} to {high}"
    return Answer(
        encoder=answer.encoder,
        rank=place,
        right=answer.rank_worst == 1,
        hits=tuple(
            _hit(evidence, case.corpus, ord_, place=str(i), score=score, right=ord_ == case.image)
            for i, (ord_, score) in enumerate(answer.top, 1)
        ),
    )


def _hit(evidence: Evidence, corpus: str, ord_: int, *, place: str, score: float | None, right: bool) -> Hit:
    image = evidence.corpora[corpus].images.slice(ord_, 1).to_pylist()[0]
    return Hit(
        place=place,
        label=image["id"],
        thumbnail=image["sha"] if image["sha"] in evidence.pictures else "",
        score=show.number(score, 3) if score is not None else "",
        right=right,
    )
