"""Recommended encoders for several purposes; never a single winner that the tests do not support."""

from __future__ import annotations

from collections.abc import Iterator

from reports import format as show
from reports.elements.cells import metric_title, value_text
from reports.elements.page import Choice, Choices, Section
from reports.format import PERCENT
from reports.rows.languages import cross_lingual, language_mean
from reports.rows.report_data import ReportData, Row
from reports.rows.speed import bytes_per_image, image_rate
from reports.sections.compositional import PAIRS, pair_protocols
from reports.sections.frontier import interquartile, pareto
from reports.sections.leaderboard import headlines, recall_metrics, retrieval_corpora
from tasks.statistics.multiplicity import ALPHA

ONLY_ONE = "The only encoder evaluated."


def section(data: ReportData) -> Section:
    """The recommendations that the rows support."""
    choices = tuple(choice for choice in _choices(data) if choice is not None)
    return Section(
        id="verdict",
        title="Which encoder to choose",
        lead="Based on the results of this report. Encoders joined by ≈ are statistically tied (paired tests): "
        "choose among them by cost.",
        blocks=(Choices(items=choices),) if choices else (),
    )


def _choices(data: ReportData) -> Iterator[Choice | None]:
    headline = _headline(data)
    if headline is not None:
        yield _best(data, "Accuracy", *headline)
        yield _fastest(data, *headline)
        yield _smallest(data, *headline)
    yield _compositional(data)
    yield _multilingual(data)


def _headline(data: ReportData) -> tuple[str, str, str] | None:
    """Corpus, protocol and metric for accuracy: the corpus with most queries under the first headline."""
    candidates = [
        (corpus, protocol, metrics[0])
        for corpus in dict.fromkeys([*retrieval_corpora(data), *data.corpus_names()])
        for protocol in headlines(data, corpus)
        if (metrics := recall_metrics(data, corpus, protocol))
    ]
    return next((c for c in candidates if c[1] == "t2i/all"), candidates[0] if candidates else None)


def _best(data: ReportData, question: str, corpus: str, protocol: str, metric: str) -> Choice | None:
    rows = [r for r in data.ranked(corpus, protocol, metric) if r["value"] is not None]
    if not rows:
        return None
    best, ranks = rows[0], data.ranks(corpus, protocol, metric)
    answer = [name for name, rank in ranks.items() if rank.tied_with_best] or [best["encoder"]]
    title = f"{metric_title(metric).capitalize()} score" if metric.startswith("winoground") else metric
    return Choice(
        question=question,
        answer=tuple(answer),
        figure=figure_text(best),
        basis=f"{title} under {protocol} on {corpus}, {show.count(best['n_queries'], 'query', 'queries')}",
        reason=_includes_chance(best) or _margin(data, rows, answer, tested=bool(ranks)),
    )


def figure_text(row: Row) -> str:
    """A value with its interval in one line."""
    interval = show.percent_range(row["ci_low"], row["ci_high"])
    return f"{value_text(row['metric'], row['value'])}{PERCENT}" + (f" ({interval})" if interval else "")


def _includes_chance(row: Row) -> str:
    """A warning if the interval of the best encoder includes chance; empty otherwise."""
    if row["chance"] is None or row["ci_low"] is None or row["ci_low"] > row["chance"]:
        return ""
    return f"The interval includes chance ({show.percent(row['chance'])}{PERCENT}): not shown to be better than chance."


def _margin(data: ReportData, rows: list[Row], answer: list[str], *, tested: bool) -> str:
    """The margin of the answer over the nearest other encoder, and its significance."""
    best, others = rows[0], [r["encoder"] for r in rows if r["encoder"] not in answer]
    if len(rows) == 1:
        return ONLY_ONE
    if not tested:
        return f"Highest value; not tested against {show.listing(others)} (run `capim compare`)."
    tied = f"{show.count(len(answer), 'statistically tied encoder')}. " if len(answer) > 1 else ""
    if not others:
        return f"{tied}No pair differs significantly at the {show.percent(ALPHA, 0)}{PERCENT} level."
    row = data.comparison(best["corpus"], best["protocol"], best["metric"], best["encoder"], others[0])
    if row is None:
        return tied
    interval = show.percent_range(row["ci_low"], row["ci_high"])
    detail = f"{interval}, adjusted p {show.p_value(row['p_adjusted'])}" if interval else ""
    return f"{tied}The next, {others[0]}, is {show.percent(abs(row['difference']))} points behind ({detail})."


def _fastest(data: ReportData, corpus: str, protocol: str, metric: str) -> Choice | None:
    speeds = image_rate(data, corpus)
    rates = {name: speed.stages["forward"] for name, speed in speeds.items()}
    if len(rates) < 2:
        return None
    order = sorted(rates, key=lambda name: (-rates[name].median, name))
    fastest, rate = order[0], rates[order[0]]
    answer = [name for name in order if rates[name].upper >= rate.lower]
    values = {r["encoder"]: r["value"] for r in data.ranked(corpus, protocol, metric) if r["value"] is not None}
    reason = ""
    if fastest in values:
        top = next(iter(values))
        on_frontier = pareto([(rates[n].median, values[n]) for n in order if n in values])[0]
        if top == fastest:
            reason = "Also the most accurate."
        elif top in rates and on_frontier:
            ratio = show.number(rate.median / rates[top].median)
            reason = (
                f"{ratio} times as fast as {top}; {show.percent(values[top] - values[fastest])} points lower {metric}."
            )
    if len(answer) > 1:
        reason += " The interquartile ranges of their batch times overlap."
    spread = interquartile(rate)
    return Choice(
        question="Speed",
        answer=tuple(answer),
        figure=f"{show.significant(rate.median)} images/s" + (f" ({spread})" if spread else ""),
        basis=f"Forward pass on {corpus}, median and interquartile range of batches, "
        f"{show.listing(sorted({s.device for s in speeds.values()}))}",
        reason=reason.strip(),
    )


def _smallest(data: ReportData, corpus: str, protocol: str, metric: str) -> Choice | None:
    stored = bytes_per_image(data, corpus)
    rows = {r["encoder"]: r for r in data.ranked(corpus, protocol, metric) if r["value"] is not None}
    sizes = {name: round(stored[name]) for name in rows if name in stored}
    if len(sizes) < 2:
        return None
    best, *others = [name for name in sizes if sizes[name] == min(sizes.values())]
    largest = max(sizes, key=lambda name: stored[name])
    return Choice(
        question="Small index",
        answer=(best,),
        figure=f"{show.size(sizes[best])} per image",
        basis=f"Stored embeddings of {corpus}",
        reason=f"{metric} {figure_text(rows[best])}. "
        + (f"Same size, not more accurate: {show.listing(others)}. " if others else "")
        + (f"{largest} takes {show.size(stored[largest])}." if sizes[largest] > sizes[best] else ""),
    )


def _compositional(data: ReportData) -> Choice | None:
    winoground = [(c, "winoground", "winoground_group") for c in data.corpus_names(lambda p: p == "winoground")]
    pairs = [(c, protocols[-1], PAIRS) for c in data.corpus_names() if (protocols := pair_protocols(data, c))]
    return next((_best(data, "Word order and binding", *leading) for leading in winoground + pairs), None)


def _multilingual(data: ReportData) -> Choice | None:
    for corpus in data.corpus_names(lambda p: cross_lingual(p) is not None):
        reference = data.corpora[corpus].languages_reference
        means = {
            name: mean
            for name in data.encoder_names(corpus)
            if (mean := language_mean(data, corpus, name, without=reference)) is not None
        }
        if not means:
            continue
        best, *others = sorted(means, key=lambda name: (-means[name], name))
        return Choice(
            question="Other languages",
            answer=(best,),
            figure=f"{show.percent(means[best])}{PERCENT}",
            basis=f"R@1 under t2i on {corpus}, mean over languages without {reference} and their translators",
            reason=f"Highest mean; next {others[0]} with {show.percent(means[others[0]])}{PERCENT}. These means are "
            "not tested; the tables below give an interval for each language."
            if others
            else ONLY_ONE,
        )
    return None
