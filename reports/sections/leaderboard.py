"""The leaderboard: retrieval quality with intervals and ranks, and the cost of each encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capim.reports import format as show
from capim.reports.elements.page import Block, Cell, Section, Table
from capim.reports.elements.tables import (
    ColumnOf,
    absent,
    anchor,
    described,
    measures,
    numbers,
    pivot,
    result_column,
    texts,
    tie_cell,
    value,
)
from capim.reports.rows.languages import judged_language
from capim.reports.rows.names import named
from capim.reports.rows.report_data import ReportData, is_own, without_paths
from capim.reports.rows.speed import bytes_per_image, image_rate
from capim.reports.sections.frontier import accuracy_over_speed, rate_cell
from capim.reports.sections.sentence import row_words
from capim.store.exchange.importing import ADAPTER as IMPORTED
from capim.tasks.statistics.ranking import RankSet

HEADLINES = ("t2i/all", "i2t/any")
METRICS: tuple[str, ...] = ("R@1", "R@5", "R@10")
JUDGED_METRICS = ("nDCG@5", "nDCG@10", "recall@5", "recall@10", "AP", "MRR", "unjudged@10")
MOST_PROTOCOLS = 12  # columns of a table about a user's metric
BOTH = "t2i/all+i2t/any"  # the sum of both directions' R@k, 0..600 points


def headlines(data: ReportData, corpus: str) -> list[str]:
    """The leading protocols of a corpus: the two of the literature, or the first two others."""
    protocols = data.protocols(corpus)
    leading = [protocol for protocol in HEADLINES if protocol in protocols]
    return leading or [p for p in protocols if p.count("/") == 1 and p.startswith(("t2i/", "i2t/"))][:2]


def recall_metrics(data: ReportData, corpus: str, protocol: str) -> list[str]:
    """The metrics of the leaderboard that a protocol has rows for."""
    shown = METRICS
    if judged_language(protocol) is not None:
        main = data.corpora[corpus].main_metric or "nDCG@10"
        shown = (main, *(metric for metric in JUDGED_METRICS if metric != main))
    return [m for m in shown if data.ranked(corpus, protocol, m)]


def retrieval_corpora(data: ReportData) -> list[str]:
    """Corpora about retrieval: without those made of quadruples or pairs, whose galleries hold near copies."""
    return [
        name
        for name in data.corpus_names()
        if not data.corpora[name].quadruples.num_rows and not data.corpora[name].pairs.num_rows
    ]


def section(data: ReportData) -> Section:
    """One leaderboard and one accuracy/speed chart per corpus with retrieval results, and a table per user's metric."""
    blocks: list[Block] = []
    retrieval = retrieval_corpora(data)
    for corpus in [*retrieval, *(name for name in data.corpus_names() if name not in retrieval)]:
        protocols = [p for p in headlines(data, corpus) if recall_metrics(data, corpus, p)]
        if protocols:
            blocks += [_table(data, corpus, protocols), *_judged_languages(data, corpus)]
            chart = accuracy_over_speed(data, corpus, protocols[0], recall_metrics(data, corpus, protocols[0])[0])
            if chart is not None and corpus in retrieval:
                blocks.append(chart)
        own = sorted({r["metric"] for r in data.results if r["corpus"] == corpus and is_own(r["metric"])})
        blocks += [_own_table(data, corpus, metric) for metric in own]
    return Section(
        id="leaderboard",
        title="Leaderboard",
        lead="Percentage of queries with a relevant item among the first k, of judged documents nDCG with grades as "
        "gains, with confidence intervals. "
        "The bar below a number shows the interval, on one axis for each metric; the tick marks the value, "
        "the dotted line chance.",
        blocks=tuple(blocks),
    )


def _table(data: ReportData, corpus: str, protocols: list[str]) -> Table:
    leading = protocols[0], recall_metrics(data, corpus, protocols[0])[0]
    order = [r["encoder"] for r in data.ranked(corpus, *leading)]
    order += [name for name in data.encoder_names(corpus) if name not in order]
    ranks = data.ranks(corpus, *leading)

    columns: list[ColumnOf[str]] = [texts("Encoder", lambda name: Cell(text=name, title=_identity(data, name)))]
    if ranks:
        explain = "Range of ranks that the paired tests allow"
        columns.append(numbers("Rank", lambda name: _rank_cell(ranks.get(name)), explain=explain))
    for protocol in protocols:
        for metric in recall_metrics(data, corpus, protocol):
            explain = f"{metric}, percent: {named(protocol)}"
            states = _states(data, corpus, protocol, metric) if metric == leading[1] else {}
            columns.append(
                result_column(
                    data,
                    corpus,
                    protocol,
                    metric,
                    group=named(protocol),
                    explain=explain,
                    states=states,
                    plain=metric == "unjudged@10",  # fewer is not better, it says how much is known
                )
            )
        columns += _tie_column(data, corpus, protocol, leading[1])
    if data.ranked(corpus, BOTH, "RSUM"):
        explain = "Sum of R@1, R@5 and R@10 in both directions, points of 600"
        columns.append(result_column(data, corpus, BOTH, "RSUM", group=named(BOTH), explain=explain))
    return pivot(
        f"leaderboard-{corpus}",
        corpus,
        order,
        *columns,
        *cost_columns(data, corpus),
        note=_note(data, corpus, *leading, tested=bool(ranks)),
        sortable=True,
    )


def _judged_languages(data: ReportData, corpus: str) -> list[Table]:
    """The main metric of judged documents by language of the query, where there are several."""
    protocols = [p for p in data.protocols(corpus) if judged_language(p) is not None]
    if len(protocols) < 2:
        return []
    metric = recall_metrics(data, corpus, protocols[0])[0]
    return [
        pivot(
            anchor("judged-languages", corpus),
            f"{corpus} · {metric} by language of the query",
            [r["encoder"] for r in data.ranked(corpus, protocols[0], metric)],
            texts("Encoder", str),
            *(result_column(data, corpus, p, metric, heading=judged_language(p) or "all") for p in protocols),
            sortable=True,
        )
    ]


def _own_table(data: ReportData, corpus: str, metric: str) -> Table:
    """A user's metric under its protocols, headlines first; at most ``MOST_PROTOCOLS`` of them."""
    stored = [p for p in data.protocols(corpus) if data.ranked(corpus, p, metric)]
    protocols = sorted(stored, key=lambda p: (p not in HEADLINES, HEADLINES.index(p) if p in HEADLINES else 0, p))
    leading, facts = protocols[0], data.metric(metric)
    encoders = dict.fromkeys(r["encoder"] for p in protocols for r in data.ranked(corpus, p, metric))
    ranks = {} if facts.aggregate else data.ranks(corpus, leading, metric)
    best = "lowest" if data.ranked(corpus, leading, metric)[0]["lower_is_better"] else "highest"
    untested = "an aggregate over queries has no test" if facts.aggregate else "not tested"
    return pivot(
        anchor("own", corpus, metric),
        f"{corpus} · {described(data, metric)}",
        encoders,
        texts("Encoder", str),
        *(
            result_column(data, corpus, p, metric, heading=named(p), states=_states(data, corpus, p, metric))
            for p in protocols[:MOST_PROTOCOLS]
        ),
        note=f"A metric of your own, in its own unit. Bold: {best} value"
        + ("; below a number: against it, by a paired test." if ranks else f"; {untested}."),
        sortable=True,
    )


def _states(data: ReportData, corpus: str, protocol: str, metric: str) -> dict[str, str]:
    """Encoder to what the tests say of it against the best."""
    names = [r["encoder"] for r in data.ranked(corpus, protocol, metric) if r["value"] is not None]
    rows = {name: data.comparison(corpus, protocol, metric, name, names[0]) for name in names[1:]}
    return {name: row_words(row) for name, row in rows.items() if row is not None}


def _tie_column(data: ReportData, corpus: str, protocol: str, metric: str) -> list[ColumnOf[str]]:
    """The effect of ties on the leading metric; no column where no query is tied."""
    if not any((r["tie_share"] or 0) > 0 for r in data.ranked(corpus, protocol, metric)):
        return []
    explain = f"Percentage of queries with a tie; below it {metric} with all ties lost and all won"
    return [
        numbers(
            "ties",
            lambda name: tie_cell(data.row(corpus, protocol, metric, name)),
            group=named(protocol),
            explain=explain,
        )
    ]


def cost_columns(data: ReportData, corpus: str) -> list[ColumnOf[str]]:
    """Speed and size, where they were measured."""
    rates, sizes = image_rate(data, corpus), bytes_per_image(data, corpus)
    columns: list[ColumnOf[str]] = []
    if rates:
        explain = "Forward pass: median and interquartile range of batches; measured, not tested"
        columns.append(numbers("images/s", lambda name: rate_cell(rates.get(name)), group="cost", explain=explain))
    if sizes:
        columns.append(measures("size/image", sizes.get, show.size, group="cost", explain="As stored"))
    return columns


def _identity(data: ReportData, name: str) -> str:
    spec = data.specs[name]
    precision = "" if spec.adapter == IMPORTED else f", {spec.precision}"  # of a forward pass that capim did not run
    named = without_paths(f"{spec.checkpoint} at {spec.revision}, {spec.adapter}")
    return f"{named}, {spec.dim} components{precision}"


def _rank_cell(rank: RankSet | None) -> Cell:
    if rank is None:
        return absent()
    text = str(rank.best) if rank.best == rank.worst else f"{rank.best}–{rank.worst}"
    return value(-rank.best - rank.worst / 1000, text, mark="muted")


def _method(row: Mapping[str, Any]) -> str:
    units = "images" if judged_language(row["protocol"]) is None else "queries"
    if row["interval_method"] == "wilson":
        return f"Wilson with the design effect of the {units}"
    replicates = f"{show.number(row['replicates'], 0)} replicates, seed {row['seed']}"
    return f"{row['interval_method']} cluster bootstrap over {units}, {replicates}"


def _note(data: ReportData, corpus: str, protocol: str, metric: str, *, tested: bool) -> str:
    row = data.ranked(corpus, protocol, metric)[0]
    best = "lowest" if row["lower_is_better"] else "highest"
    interval = (
        f"Intervals: {_method(row)}, {show.percent(row['level'], 0)} %, fixed gallery. " if row["replicates"] else ""
    )
    marks = (
        f"Bold: {best} value; below a number: against it, by a paired test. Rank: the ranks that the tests allow."
        if tested
        else f"Bold: {best} value; not tested (run `capim compare`)."
    )
    return f"{show.count(row['n_queries'], 'query', 'queries')}, {named(protocol)}. {interval}{marks}"
