"""Failures: R@1 with and without the ambiguous misses, and single queries to look through."""

from __future__ import annotations

from functools import partial

from capim.reports import format as show
from capim.reports.elements.page import Block, Case, Cell, Filter, Gallery, Section, Table
from capim.reports.elements.tables import absent, anchor, counted, numbers, pivot, texts
from capim.reports.rows.names import named
from capim.reports.rows.report_data import CAUSES, LEADING, SHARE, WITHOUT, ReportData, Row, detail_of
from capim.reports.sections.cases import DIRECTIONS, case_of
from capim.reports.sections.leaderboard import retrieval_corpora
from capim.reports.sections.parts import order, slice_cell

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


def section(data: ReportData) -> Section:
    """The tables of ambiguous misses, then one gallery with the cases of every corpus."""
    tables = [table for corpus in data.corpus_names() if (table := _ambiguous(data, corpus)) is not None]
    blocks: list[Block] = [*tables, *([_gallery(data)] if data.queries else [])]
    return Section(
        id="failures",
        title="Failures",
        lead="Misses that may be no errors, and single queries with the answers of all encoders. A query is missed "
        "where something scores above its best relevant item, and found where that item alone is first.",
        blocks=tuple(blocks),
    )


def _ambiguous(data: ReportData, corpus: str) -> Table | None:
    """R@1 of all queries beside R@1 without ambiguous misses, for every encoder in both directions."""
    rows = [r for r in data.slices if r["corpus"] == corpus and r["analysis"] == "ambiguous"]
    by_key = {(r["protocol"], r["encoder"], r["metric"], r["feature"]): r for r in rows}
    keys = [
        (protocol, name)
        for protocol in sorted({r["protocol"] for r in rows}, reverse=True)
        for name in order(data, corpus, protocol, LEADING, [r for r in rows if r["protocol"] == protocol])
    ]
    if not keys:
        return None

    def mean(key: tuple[str, str], metric: str, feature: str) -> Cell:
        row = by_key.get((*key, metric, feature))
        return absent("cannot be known here") if row is None else slice_cell(row)

    def marked(key: tuple[str, str], cause: str) -> Cell:
        row = by_key.get((*key, SHARE, cause))
        if row is None:
            known = any(by_key.get((*other, SHARE, cause)) for other in keys)
            return counted(0, "misses nothing") if known else absent("cannot be known here")
        return counted(detail_of(row)["ambiguous"], f"of {show.count(row['n_queries'], 'miss', 'misses')}")

    def misses(key: tuple[str, str]) -> Cell:
        row: Row | None = next((by_key[k] for k in by_key if k[:3] == (*key, SHARE)), None)
        return counted(row["n_queries"] if row is not None else 0)

    title = f"{corpus} · R@1 with and without ambiguous misses, percent, with interval"
    return pivot(
        anchor("ambiguous", corpus),
        title,
        keys,
        texts("Encoder", lambda key: key[1]),
        texts("task", lambda key: named(key[0])),
        numbers("all queries", partial(mean, metric=LEADING, feature="all queries"), group="R@1"),
        numbers("another annotation", partial(mean, metric=WITHOUT, feature="annotation"), group="R@1 without"),
        numbers("agreement", partial(mean, metric=WITHOUT, feature="agreement"), group="R@1 without"),
        numbers("either", partial(mean, metric=WITHOUT, feature="either"), group="R@1 without"),
        numbers("all", misses, group="Misses"),
        *(
            numbers(heading, partial(marked, cause=cause), group="Misses")
            for cause, heading in zip(CAUSES, ("another annotation", "agreement"), strict=True)
        ),
        sortable=True,
        folded="" if corpus in retrieval_corpora(data) else title,
        note="R@1 of all queries is the headline. Another annotation: what the encoder puts first is right too, by an "
        "extra ground truth of the corpus or by a caption with the same words. Agreement, a suspicion only: at least "
        "two thirds of the encoders, and at least three, put the same wrong item first; encoders that were trained "
        "alike make the same mistakes. Without these misses R@1 can only be higher: it is a bound from above.",
    )


def _gallery(data: ReportData) -> Gallery:
    cases = tuple(case_of(data, query, number) for number, query in enumerate(data.queries, 1))
    filters = [Filter(name=name, label=label, options=_options(cases, name)) for name, label in FILTERS.items()]
    queries = show.number(sum(total["queries"] for total in data.totals), 0)
    return Gallery(
        id="cases",
        caption=f"{show.count(len(cases), 'query', 'queries')} of {queries}",
        filters=tuple(
            each for each in filters if len(each.options) > (each.name in ("corpus", "direction", "language"))
        ),
        cases=cases,
        totals=tuple({**total, "direction": DIRECTIONS[total["direction"]]} for total in data.totals),
        note="Selected by a fixed rule: of every corpus and direction the hardest queries that all encoders miss, "
        "those that one misses and others find, ties, and near misses; one per image. Scores are cosines, or MaxSim "
        "sums for multi-vector encoders. The choice of filters is in the address of the page, which can be sent.",
    )


def _options(cases: tuple[Case, ...], name: str) -> tuple[str, ...]:
    """The values of a filter: kinds in the order of the selection, all others by name."""
    values = list(dict.fromkeys(value for case in cases for value in case.tags[name]))
    return tuple(values if name in ("kind", "corpus", "direction") else sorted(values))
