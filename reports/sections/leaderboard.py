"""All results: one table for the corpus, and the protocol or metric, that a reader chooses."""

from __future__ import annotations

from collections.abc import Sequence

from capim.reports import format as show
from capim.reports.elements import tables, words
from capim.reports.elements.page import Cell, Evidence, Picker, Section, Table
from capim.reports.rows.report_data import R1, ReportData, without_paths
from capim.reports.rows.standing import MEAN, conclusions, headline_tasks, intervals_of
from capim.store.sets.matching import NOT_VERIFIED, POSITION
from capim.tasks.metrics.compositional import PAIR_ACCURACY
from capim.tasks.metrics.table import METRICS, headline_of, on_leaderboard
from capim.tasks.protocols import MACRO, MAIN, MEANS, MICRO, PROTOCOLS, Protocol, by_language

PAIRS = PAIR_ACCURACY.name
LEAST_PROTOCOLS = 2  # with a metric, for a table of the metric


def section(data: ReportData) -> Section:
    """Return every result, by corpus and protocol, and the metrics of several protocols by metric."""
    views = [
        (corpus, label, table)
        for corpus in dict.fromkeys([*conclusions(data), *data.corpus_names()])
        for label, table in [*_by_protocol(data, corpus), *_by_metric(data, corpus)]
    ]
    notes = tuple(text for corpus in data.corpus_names() for text in _not_verified(data, corpus))
    return Section(
        id="leaderboard",
        title="All results",
        blocks=(
            *((Picker(id="figures", caption="Every result", views=tuple(views)),) if views else ()),
            *((Evidence(lines=notes),) if notes else ()),
        ),
    )


def _by_protocol(data: ReportData, corpus: str) -> list[tuple[str, Table]]:
    """Return one table for every protocol, with all its metrics: first the headlines, then the others by name."""
    first = [*dict.fromkeys(task.protocol for task in headline_tasks(data, corpus))]
    order = [*first, *headlines(data, corpus), *PROTOCOLS, *data.protocols(corpus)]
    ids = [id_ for id_ in dict.fromkeys(order) if id_ in data.protocols(corpus)]
    return [(data.titled(corpus, id_), _table(data, corpus, id_, metrics_of(data, corpus, id_))) for id_ in ids]


def metrics_of(data: ReportData, corpus: str, protocol: str) -> list[str]:
    """Return the metrics of a protocol: those of the leaderboard, then the others in the order of their table."""
    stored = {row.metric for row in data.of(corpus, protocol)}
    known = [name for name in METRICS if name in stored]
    return [*dict.fromkeys([*shown_metrics(data, corpus, protocol), *known, *sorted(stored)])]


def _table(data: ReportData, corpus: str, protocol: str, metrics: Sequence[str]) -> Table:
    ranked = data.ranked(corpus, protocol, metrics[0])
    columns = []
    for metric in metrics:
        facts = data.metric(metric)
        unit = ", percent" * (facts.unit == "percent")
        explain = f"{words.described(facts)}{unit}"
        columns.append(tables.result_column(data, corpus, protocol, metric, explain=explain))
    ties = [row for row in ranked if (row.tie_share or 0) > 0]
    if ties:
        columns.append(_ties(data, corpus, protocol, metrics[0]))
    chances = []
    for metric in metrics:
        known = (row.chance for row in data.ranked(corpus, protocol, metric) if row.chance is not None)
        value = next(known, None)
        chances.append(tables.value(value, words.value(data.metric(metric), value), mark="muted"))
    chance = [Cell(text="chance", mark="muted"), *chances, *[tables.absent()] * bool(ties)]
    units = "queries" if Protocol.of(protocol).kind == "judged" else "images"
    n = show.count(ranked[0].n_queries, "query", "queries") if ranked else ""
    about = data.protocol(corpus, protocol)
    return tables.pivot(
        tables.anchor("figures", corpus, protocol),
        f"{corpus} · {about.titled}",
        _encoders(data, corpus, protocol, metrics),
        tables.texts("Encoder", lambda name: _identity(data, name)),
        *columns,
        extra_rows=[chance] if any(each.sort for each in chances) else [],
        note=f"{n}. {about.description}. Percent where a metric is a share. Intervals: {intervals_of(ranked, units)}.",
    )


def _encoders(data: ReportData, corpus: str, protocol: str, metrics: Sequence[str]) -> list[str]:
    return [*dict.fromkeys(row.encoder for metric in metrics for row in data.ranked(corpus, protocol, metric))]


def _identity(data: ReportData, name: str) -> Cell:
    spec = data.specs[name]
    precision = f", {spec.precision}" if spec.has_weights else ""  # that forward pass was not capim's
    about = without_paths(f"{spec.checkpoint} at {spec.revision}, {spec.adapter}")
    return Cell(text=name, title=f"{about}, {spec.dim} components{precision}")


def _ties(data: ReportData, corpus: str, protocol: str, metric: str) -> tables.ColumnOf[str]:
    """Return the effect of ties: the share of tied queries, and the value with all lost and all won."""

    def cell(name: str) -> Cell:
        row = data.row(corpus, protocol, metric, name)
        if row is None or row.value is None:
            return tables.absent()
        span = words.ties(data.metric(metric), row)
        note = f"{metric} {span}" if span else ""
        return tables.value(row.tie_share, show.percent(row.tie_share), note=note, mark="muted")

    explain = f"Percentage of queries with a tie; below it {metric} with all ties lost and all won"
    return tables.numbers("ties", cell, explain=explain)


def _by_metric(data: ReportData, corpus: str) -> list[tuple[str, Table]]:
    """Return one table for every metric of the headlines, and for R@1, with all its protocols."""
    planned = [task.metric for task in headline_tasks(data, corpus)]
    every = {row.metric for p in data.protocols(corpus) for row in data.of(corpus, p)}
    own = [metric for metric in every if data.metric(metric).has_table]
    made = []
    for metric in dict.fromkeys([*planned, R1, PAIRS, *sorted({*own})]):
        ids = [id_ for id_ in _in_order(data, corpus) if data.ranked(corpus, id_, metric)]
        if len(ids) < LEAST_PROTOCOLS:
            continue
        columns = [tables.result_column(data, corpus, id_, metric, heading=_heading(data, corpus, id_)) for id_ in ids]
        names = dict.fromkeys(row.encoder for id_ in ids for row in data.ranked(corpus, id_, metric))
        facts = data.metric(metric)
        table = tables.pivot(
            tables.anchor("figures", corpus, metric),
            f"{corpus} · {words.described(facts)}{', percent' * (facts.unit == 'percent')}",
            names,
            tables.texts("Encoder", lambda name: _identity(data, name)),
            *columns,
        )
        made.append((f"{facts.label}, all protocols", table))
    return made


def _in_order(data: ReportData, corpus: str) -> list[str]:
    stored = data.protocols(corpus)
    known = (id_ for id_ in PROTOCOLS if id_ in stored)
    return [*dict.fromkeys([*known, *pair_protocols(data, corpus), *stored])]


def _heading(data: ReportData, corpus: str, id_: str) -> str:
    return data.protocol(corpus, id_).title.removesuffix(MEAN) + " (mean)" * (id_ in MEANS)


def _not_verified(data: ReportData, corpus: str) -> list[str]:
    """Return the encoders with vectors or outcomes taken in the order of the corpus, because they had no ids."""
    rows = [r for r in data.imports if r.corpus == corpus and r.matched.startswith(POSITION)]
    names = ", ".join(sorted({r.encoder for r in rows}))
    return [f"{names}: {NOT_VERIFIED} (Provenance names the files)."] if rows else []


def headlines(data: ReportData, corpus: str) -> list[str]:
    """Return the protocols that a corpus is shown by: the means over its languages, or those of :func:`mains`."""
    return [protocol for protocol in MEANS if protocol in data.protocols(corpus)] or mains(data, corpus)


def mains(data: ReportData, corpus: str) -> list[str]:
    """Return the protocols of a corpus that name no language: the two of the literature, or the first two others."""
    protocols = data.protocols(corpus)
    others = [p for p in protocols if (of := Protocol.of(p)).is_retrieval and not of.language]
    return [protocol for protocol in MAIN if protocol in protocols] or others[:2]


def sliced(data: ReportData, corpus: str) -> list[str]:
    """Return the retrieval protocols with analysed queries: the two of the literature, those of other languages."""
    spoken = by_language(map(Protocol.of, data.protocols(corpus)), data.corpora[corpus])
    return [of.id for of in sorted(spoken, key=lambda of: (of.direction == "i2t", of.place))] or headlines(data, corpus)


def shown_metrics(data: ReportData, corpus: str, protocol: str) -> list[str]:
    """Return the metrics of the leaderboard that a protocol has rows for."""
    of = Protocol.of(protocol)
    metrics = of.metrics or on_leaderboard(of.kind if of.kind in ("judged", "labels") else "retrieval")
    if of.kind == "judged" and not of.orientation:
        metrics = (data.corpora[corpus].main_metric or headline_of([of])[0].metric, *metrics)
    return [metric for metric in dict.fromkeys(metrics) if data.ranked(corpus, protocol, metric)]


def retrieval_corpora(data: ReportData) -> list[str]:
    """Return the retrieval corpora: without those of quadruples or pairs, which have near copies in their galleries."""
    contents = ((name, data.corpora[name]) for name in data.corpus_names())
    return [name for name, corpus in contents if not corpus.quadruples.num_rows and not corpus.pairs.num_rows]


def pair_protocols(data: ReportData, corpus: str) -> list[str]:
    """Return protocols with hard negatives, by name, the means of each family last."""
    protocols = [Protocol.of(p) for p in data.protocols(corpus) if data.ranked(corpus, p, PAIRS)]
    return [of.id for of in sorted(protocols, key=lambda of: (of.family, of.name in (MACRO, MICRO), of.id))]
