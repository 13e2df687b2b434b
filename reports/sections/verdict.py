"""What to choose for what, from this report's own rows: never a winner that the tests do not support."""

from __future__ import annotations

from collections.abc import Iterator

from reports import format as show
from reports.elements.cells import metric_title, value_text
from reports.elements.page import Choice, Choices, Section
from reports.format import PERCENT
from reports.rows.languages import cross_lingual, language_mean
from reports.rows.ranking import ALPHA, pair_of, standings
from reports.rows.report_data import Evidence, Row
from reports.rows.speed import bytes_per_image, image_rate
from reports.sections.compositional import PAIRS, pair_protocols
from reports.sections.frontier import middle_half, pareto
from reports.sections.leaderboard import headlines, ranking_columns, retrieval_corpora


def section(evidence: Evidence) -> Section | None:
    """The choices that the rows can answer; None if they answer none."""
    choices = [choice for choice in _choices(evidence) if choice is not None]
    if not choices:
        return None
    return Section(
        id="verdict",
        title="Which one to choose",
        lead="Read off the rows of this report. Names joined by ≈ are not told apart by the paired tests: "
        "choose among them by cost.",
        blocks=(Choices(items=tuple(choices)),),
    )


def _choices(evidence: Evidence) -> Iterator[Choice | None]:
    basis = _headline(evidence)
    if basis is not None:
        corpus, protocol, metric = basis
        yield _best(evidence, "Accuracy", corpus, protocol, metric)
        yield _fastest(evidence, corpus, protocol, metric)
        yield _smallest(evidence, corpus, protocol, metric)
    yield _compositional(evidence)
    yield _multilingual(evidence)


def _headline(evidence: Evidence) -> tuple[str, str, str] | None:
    """Corpus, protocol and metric that decide accuracy: the corpus with most queries under the first headline."""
    for wanted in ("t2i/all", ""):
        for corpus in [*retrieval_corpora(evidence), *evidence.corpus_names()]:
            for protocol in headlines(evidence, corpus):
                metrics = ranking_columns(evidence, corpus, protocol)
                if metrics and wanted in ("", protocol):
                    return corpus, protocol, metrics[0]
    return None


def _best(evidence: Evidence, question: str, corpus: str, protocol: str, metric: str) -> Choice | None:
    rows = [r for r in evidence.ranked(corpus, protocol, metric) if r["value"] is not None]
    if not rows:
        return None
    best = rows[0]
    standing = standings(evidence, corpus, protocol, metric)
    tied = [r["encoder"] for r in rows if r["encoder"] in standing and standing[r["encoder"]].tied_with_best]
    answer = tied or [best["encoder"]]
    return Choice(
        question=question,
        answer=tuple(answer),
        figure=figure_text(best),
        basis=f"{_called(metric)} under {protocol} on {corpus}, {show.count(best['n_queries'], 'query', 'queries')}",
        reason=_against_chance(best) or _lead(evidence, rows, answer, tested=bool(standing)),
    )


def _called(metric: str) -> str:
    title = metric_title(metric)
    return title if title == metric else f"{title} score" if metric.startswith("winoground") else title


def figure_text(row: Row) -> str:
    """A figure with its interval in one line."""
    interval = show.percent_range(row["ci_low"], row["ci_high"])
    return f"{value_text(row['metric'], row['value'])}{PERCENT}" + (f" ({interval})" if interval else "")


def _against_chance(row: Row) -> str:
    """What to say when even the best may be guessing; empty otherwise."""
    if row["chance"] is None or row["ci_low"] is None or row["ci_low"] > row["chance"]:
        return ""
    chance = f"{show.percent(row['chance'])}{PERCENT}"
    return f"Its interval includes chance ({chance}): nothing here is shown to do better than guessing."


def _lead(evidence: Evidence, rows: list[Row], answer: list[str], *, tested: bool) -> str:
    """Why the answer is the answer, and how sure that is."""
    best, others = rows[0], [r for r in rows if r["encoder"] not in answer]
    if len(rows) == 1:
        return "The only encoder that was evaluated."
    if not tested:
        against = show.listing([r["encoder"] for r in others])
        return f"Highest value; not tested against {against}: `capim compare` does it."
    tied = f"{show.count(len(answer), 'encoder')} that the tests do not tell apart. " if len(answer) > 1 else ""
    if not others:
        return f"{tied}No pair differs at the {show.percent(ALPHA, 0)}{PERCENT} level."
    nearest = others[0]
    found = pair_of(evidence, best["corpus"], best["protocol"], best["metric"], best["encoder"], nearest["encoder"])
    if found is None:
        return tied
    row, sign = found
    ends = (row["ci_low"], row["ci_high"]) if sign > 0 else (_negated(row["ci_high"]), _negated(row["ci_low"]))
    interval = show.percent_range(*ends)
    behind = show.percent(abs(row["difference"]))
    detail = f"{interval}, adjusted p {show.p_value(row['p_adjusted'])}" if interval else ""
    return f"{tied}The nearest other, {nearest['encoder']}, is {behind} points behind ({detail})."


def _negated(value: float | None) -> float | None:
    return None if value is None else -value


def _fastest(evidence: Evidence, corpus: str, protocol: str, metric: str) -> Choice | None:
    rates = {name: speed.stages["forward"] for name, speed in image_rate(evidence, corpus).items()}
    if len(rates) < 2:
        return None
    order = sorted(rates, key=lambda name: (-rates[name].median, name))
    fastest = rates[order[0]]
    alike = [name for name in order if rates[name].upper >= fastest.lower]
    rows = {r["encoder"]: r for r in evidence.ranked(corpus, protocol, metric) if r["value"] is not None}
    reason = ""
    if order[0] in rows:
        top = next(iter(rows))
        on_frontier = pareto([(rates[n].median, rows[n]["value"]) for n in order if n in rows])[0]
        if top == order[0]:
            reason = "Also the most accurate."
        elif top in rates and on_frontier:
            times = show.number(fastest.median / rates[top].median)
            given_up = show.percent(rows[top]["value"] - rows[order[0]]["value"])
            reason = f"{times} times as fast as {top}, for {given_up} points less of {metric}."
    half = middle_half(fastest)
    if len(alike) > 1:
        reason += " The middle halves of their batch times overlap."
    return Choice(
        question="Speed",
        answer=tuple(alike),
        figure=f"{show.significant(fastest.median)} images/s" + (f" ({half})" if half else ""),
        basis=f"forward pass on {corpus}, median and middle half of batches, "
        f"{show.listing(sorted({s.device for s in image_rate(evidence, corpus).values()}))}",
        reason=reason.strip(),
    )


def _smallest(evidence: Evidence, corpus: str, protocol: str, metric: str) -> Choice | None:
    sizes = bytes_per_image(evidence, corpus)
    rows = {r["encoder"]: r for r in evidence.ranked(corpus, protocol, metric) if r["value"] is not None}
    known = [name for name in rows if name in sizes]
    if len(known) < 2:
        return None
    least = min(round(sizes[name]) for name in known)
    answer = [name for name in known if round(sizes[name]) == least]
    largest = max(known, key=lambda name: sizes[name])
    return Choice(
        question="Small index",
        answer=tuple(answer[:1]),
        figure=f"{show.size(least)} per image",
        basis=f"stored embeddings of {corpus}",
        reason=f"{metric} {figure_text(rows[answer[0]])}. "
        + (f"{show.listing(answer[1:])} as small, and not better. " if answer[1:] else "")
        + (f"{largest} takes {show.size(sizes[largest])}." if round(sizes[largest]) > least else ""),
    )


def _compositional(evidence: Evidence) -> Choice | None:
    for corpus in evidence.corpus_names(lambda p: p == "winoground"):
        return _best(evidence, "Word order and binding", corpus, "winoground", "winoground_group")
    for corpus in evidence.corpus_names():
        protocols = pair_protocols(evidence, corpus)
        if protocols:
            return _best(evidence, "Word order and binding", corpus, protocols[-1], PAIRS)
    return None


def _multilingual(evidence: Evidence) -> Choice | None:
    for corpus in evidence.corpus_names(lambda p: cross_lingual(p) is not None):
        reference = evidence.corpora[corpus].languages_reference
        means = {
            name: mean
            for name in evidence.encoder_names(corpus)
            if (mean := language_mean(evidence, corpus, name, "t2i", "R@1", without=reference)) is not None
        }
        if not means:
            continue
        best = min(means, key=lambda name: (-means[name], name))
        others = sorted((name for name in means if name != best), key=lambda name: (-means[name], name))
        return Choice(
            question="Other languages",
            answer=(best,),
            figure=f"{show.percent(means[best])}{PERCENT}",
            basis=f"R@1 under t2i on {corpus}, mean over languages without {reference} and their translators",
            reason=f"Highest mean; {others[0]} reaches {show.percent(means[others[0]])}{PERCENT}. No test compares "
            "such means; the tables below have the interval of each language."
            if others
            else "The only encoder that was evaluated.",
        )
    return None
