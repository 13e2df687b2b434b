"""Standing of encoders: the headline tasks of a corpus, the decision on every pair, languages, results at chance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from capim.reports.elements.page import Kind
from capim.reports.format import count, listing
from capim.reports.rows.report_data import R1, Detail, ReportData, ShownResult, goodness, reversed_comparison
from capim.store.current import compared_encoders, figure_of, grouped
from capim.store.schema import FIGURE, Comparison, Ranking, Result, SlicedComparison
from capim.tasks.metrics.table import RSUM, beside_chance, headline_of, planned_figures
from capim.tasks.protocols import Protocol
from capim.tasks.reference.changes import FigureChange, figure_changes
from capim.tasks.statistics import decision as rules

PAIR_COLUMNS = (
    *FIGURE, "encoder_a", "encoder_b", "difference", "ci_low", "ci_high", "p_adjusted", "state", "n_queries", "family",
)  # fmt: skip
SHARED = ("shared_low", "shared_high")  # columns from which a budget of several results takes its ends
_SHOWN = 6  # names in one line
MEAN = ", mean over languages"  # of the title of a task
C = TypeVar("C", bound=Comparison)
Chance: TypeAlias = Literal["", "not shown above chance", "below chance"]
KINDS: Mapping[str, Kind] = {"equivalent": "equal", "undecided": "open", "better": "open", "worse": "worse"}


class Task(NamedTuple):
    """One headline result of a corpus, and its name in plain words."""

    corpus: str
    protocol: str
    metric: str
    title: str


def headline_tasks(data: ReportData, corpus: str = "") -> list[Task]:
    """Return the evaluated headline tasks of one or all corpora: both directions, binding, or means over languages."""
    if not corpus:
        return [task for name in data.corpus_names() for task in headline_tasks(data, name)]
    evaluated = (data.protocol(corpus, id_) for id_ in data.protocols(corpus))
    figures = planned_figures(protocol for protocol in evaluated if not protocol.is_combined) - {RSUM}
    shown = [(data.protocol(corpus, id_), metric) for id_, metric in figures if data.ranked(corpus, id_, metric)]
    shown.sort(key=lambda figure: (figure[0].direction == "i2t", figure[0].id))
    return [Task(corpus, protocol.id, metric, protocol.title) for protocol, metric in shown]


def values(data: ReportData, task: Task) -> dict[str, float]:
    """Return encoder -> value in the direction of the metric, best first; without those that have none."""
    rows = data.ranked(task.corpus, task.protocol, task.metric)
    return {row.encoder: goodness(row) for row in rows if row.value is not None}


def decision(data: ReportData, corpus: str, protocol: str, metric: str, a: str, b: str) -> rules.Decision | None:
    """Return the tests' decision on ``a`` against ``b``; None where they were not tested."""
    return decision_of(data.comparison(corpus, protocol, metric, a, b))


def decision_of(row: Comparison | None) -> rules.Decision | None:
    """Return the decision of one comparison's tests on its first encoder; None without a test."""
    if row is None or (row.p_adjusted is None and row.p_equivalent is None):
        return None
    return rules.decide(
        deciding_ends(row),
        p_equivalent=row.p_equivalent,
        margin=row.margin,
        n_effective=math.inf if row.n_effective is None else row.n_effective,
        lower_is_better=row.lower_is_better,
    )


def deciding_ends(row: Comparison) -> tuple[float, float] | None:
    """Return the interval that a decision is read from: that of all pairs together; None without one."""
    if row.simultaneous_low is not None and row.simultaneous_high is not None:
        return row.simultaneous_low, row.simultaneous_high
    return (0.0, 0.0) if row.difference == 0 and row.p_sign_flip is None else None  # they never differ


def _figure(row: Result | Comparison) -> tuple[str, str, str]:
    """Return the result that a row is of, with the state of the corpus."""
    return row.corpus_fingerprint, row.protocol, row.metric


def planned(comparisons: Iterable[Comparison]) -> dict[tuple[str, str, str], list[int]]:
    """Return the results that share a budget: corpus, protocol and metric to the places of their tests.

    Those of the headline family; where none of a corpus was compared, the headline of those that were.
    """
    rows = [(at, _figure(row), row.family) for at, row in enumerate(comparisons) if row.p_adjusted is not None]
    figures = {key for _, key, family in rows if family == "headline"}
    for corpus in {key[0] for _, key, _ in rows} - {key[0] for key in figures}:
        protocols = [Protocol.of(id_) for id_ in {key[1] for _, key, _ in rows if key[0] == corpus}]
        figures |= {(corpus, *figure) for figure in headline_of(p for p in protocols if not p.is_combined)}
    shown = grouped(((at, key) for at, key, _ in rows if key in figures), itemgetter(1))
    return {key: [at for at, _ in places] for key, places in shown.items()}


def with_one_budget(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return comparisons that are seen at once: p-values and intervals hold for all planned results together."""
    rows, figures = [*comparisons], planned(comparisons)
    place = rules.sharer(len(figures))
    if len(figures) < 2:
        return rows
    ends: dict[int, tuple[float, float]] = {}
    for at in (at for places in figures.values() for at in places):
        low, high = rows[at].shared_low, rows[at].shared_high
        if place is not None and low is not None and high is not None and len(low) > place:
            ends[at] = low[place], high[place]
    families = [[rows[at].p_adjusted if at in ends else 1.0 for at in places] for places in figures.values()]
    for places, p_values in zip(figures.values(), rules.over_families(families), strict=True):
        for at, p in zip(places, p_values, strict=True):
            found = p if at in ends else None
            first, last = (None, None)
            if found is not None:
                first, last = rules.agreeing_ends(ends[at], found, rows[at].difference or 0.0)
            rows[at] = replace(rows[at], p_adjusted=found, simultaneous_low=first, simultaneous_high=last)
    return rows


def with_chance(results: Sequence[Result]) -> list[ShownResult]:
    """Return results that are seen at once, each with its verdict against chance, with one budget for all."""
    checked = beside_chance()
    shown = [row.metric in checked and not Protocol.of(row.protocol).orientation for row in results]
    figures = [
        rules.BesideChance(row.value, row.chance, row.p_chance if of else None)
        for row, of in zip(results, shown, strict=True)
    ]
    labels = rules.against_chance(figures)
    return [ShownResult(**vars(row), against_chance=label) for row, label in zip(results, labels, strict=True)]


def claimed(row: C) -> C:
    """Return a comparison with the interval that holds for all pairs in place of its own; none where none holds."""
    return replace(row, ci_low=row.simultaneous_low, ci_high=row.simultaneous_high)


def chance_of(row: ShownResult | None) -> Chance:
    """Return the verdict of a result against chance: empty where it is better, or was not tested."""
    labels: dict[str, Chance] = {"open": "not shown above chance", "below": "below chance"}
    return labels.get(row.against_chance or "", "") if row else ""


def at_chance(data: ReportData, corpus: str, protocol: str, metric: str, encoder: str) -> Chance:
    """Return the verdict against chance of an encoder on a task, which excludes it as a contender there.

    A result that has no test of chance among those shown (R@5, RSUM, a user's metric) is read like the tested results
    of its protocols: at chance if all of them are.
    """
    metrics = [metric] if metric in (checked := beside_chance()) else sorted(checked)
    rows = (data.row(corpus, part, each, encoder) for part in protocol.split("+") for each in metrics)
    said = [chance_of(row) for row in rows if row is not None]
    return said[0] if said and all(said) else ""


def contenders(data: ReportData, corpus: str, protocol: str, metric: str) -> list[ShownResult]:
    """Return the results of a task that can be its best, best first: those with a value that are not at chance."""
    known = (row for row in data.ranked(corpus, protocol, metric) if row.value is not None)
    return [row for row in known if not at_chance(data, corpus, protocol, metric, row.encoder)]


def stand(data: ReportData, corpus: str, protocol: str, metric: str, encoder: str) -> tuple[Kind, str]:
    """Return what the tests say of an encoder on a task, and the best one there; empty if it is no contender."""
    row = data.row(corpus, protocol, metric, encoder)
    if row is None or row.value is None:
        return "none", ""
    if at_chance(data, corpus, protocol, metric, encoder):
        return "chance", ""
    best = contenders(data, corpus, protocol, metric)[0]
    if encoder != best.encoder and (found := decision(data, corpus, protocol, metric, encoder, best.encoder)):
        return KINDS[found.state], best.encoder
    return "best" if row.value == best.value else "untested", best.encoder


def counted_tasks(data: ReportData, tasks: Iterable[Task]) -> list[Task]:
    """Return those of some tasks that enter a mean over them."""
    return rules.counted({task: {n: bool(at_chance(data, *task[:3], n)) for n in values(data, task)} for task in tasks})


def changes(data: ReportData, tasks: Iterable[Task]) -> list[FigureChange]:
    """Return the changes of some tasks' results since the run before, tested together; none without such a run."""
    figures = {task[:3] for task in tasks}
    shown = {(*figure_of(row), row.encoder): row for row in data.results if figure_of(row) in figures}
    return figure_changes(data.before.results, shown, data.before.comparisons) if data.before else []


def broken(data: ReportData, tasks: Sequence[Task]) -> list[str]:
    """Return the encoders that are at chance on every one of some tasks, by name; none without a task."""
    return [n for n in data.encoder_names() if tasks and all(at_chance(data, *task[:3], n) for task in tasks)]


def conclusions(data: ReportData) -> dict[str, list[Task]]:
    """Return corpus -> headline tasks, of corpora with an encoder that has a value in every one.

    In the order of the board: search first, then languages, then compositional corpora.
    """
    found: dict[str, list[Task]] = {}
    for corpus in data.corpus_names():
        tasks = headline_tasks(data, corpus)
        by_task = [values(data, task) for task in tasks]
        if tasks and any(all(name in of for of in by_task) for name in data.encoder_names(corpus)):
            found[corpus] = tasks

    def place(corpus: str) -> tuple[bool, bool]:
        of = Protocol.of(found[corpus][0].protocol)
        return not of.is_retrieval, not of.is_combined

    return {corpus: found[corpus] for corpus in sorted(found, key=place)}


def languages(data: ReportData, corpus: str) -> list[str]:
    """Return language codes with results on a corpus, sorted."""
    return sorted({p.language for p in map(Protocol.of, data.protocols(corpus)) if p.is_of_language})


def translators(data: ReportData, corpus: str, language: str | None = None) -> list[str]:
    """Return translators with results on a corpus, sorted; optionally of one language only."""
    protocols = map(Protocol.of, data.protocols(corpus))
    return sorted({p.translator for p in protocols if p.is_of_language and language in (None, p.language)})


def language_cells(
    data: ReportData, corpus: str, encoder: str, language: str, direction: str = ""
) -> list[ShownResult]:
    """Return R@1 of an encoder in a language by every translator, in both directions unless one is given."""
    same = (p for p in map(Protocol.of, data.protocols(corpus)) if p.is_of_language and p.language == language)
    rows = [data.row(corpus, p.id, R1, encoder) for p in same if direction in ("", p.direction)]
    return [row for row in rows if row is not None and row.value is not None]


def reads(data: ReportData, corpus: str, encoder: str, language: str) -> bool:
    """True if more than half of the results of an encoder in a language are better than chance."""
    cells = language_cells(data, corpus, encoder, language)
    return 2 * sum(not chance_of(row) for row in cells) > len(cells) or not cells


def unread(data: ReportData) -> list[str]:
    """Return the languages that no encoder reads: half of its results in them, or more, are not better than chance."""
    found: dict[str, bool] = {}
    for corpus in data.corpus_names(lambda protocol: Protocol.of(protocol).is_of_language):
        for language in languages(data, corpus):
            names = [name for name in data.encoder_names(corpus) if language_cells(data, corpus, name, language)]
            nobody = not any(reads(data, corpus, name, language) for name in names)
            found[language] = nobody and bool(names) and found.get(language, True)
    return sorted(language for language, nobody in found.items() if nobody)


@dataclass(frozen=True, kw_only=True)
class TestedPair(Comparison):
    """A comparison, and the state of ``encoder_a`` against ``encoder_b``.

    ``state``: better, worse, equivalent, undecided, or None where there is no test.
    """

    state: str | None = None


def pair_rows(comparisons: Iterable[Comparison], first: str | None = None) -> list[TestedPair]:
    """Return comparisons that are seen at once, with what the tests say of each, those by headline results first.

    Args:
        comparisons: Of the same request.
        first: Name or fingerprint of the encoder that is ``encoder_a`` of its pairs.
    """
    rows = []
    for row in with_one_budget([*comparisons]):
        turned = reversed_comparison(row) if first in (row.encoder_b, row.fingerprint_b) else row
        rows.append(TestedPair(**vars(turned), state=_state(turned)))
    return sorted(rows, key=lambda row: (row.family != "headline", *figure_of(row), row.encoder_a, row.encoder_b))


def pair_columns(row: TestedPair) -> dict[str, object]:
    """Return the columns of a pair as they are printed: without those of :data:`SHARED`."""
    return {name: value for name, value in vars(row).items() if name not in SHARED}


SLICED_COLUMNS = (
    "slice", "protocol", "metric", "encoder_a", "encoder_b", "state", "difference", "low", "high", "p_adjusted",
    "value_a", "value_b", "n_queries", "n_clusters", "n_looks", "corpus",
)  # fmt: skip


def sliced_pairs(compared: Sequence[SlicedComparison]) -> tuple[list[dict[str, object]], int]:
    """Return comparisons on parts of the queries as they are printed, and the number of looks that share their budget.

    ``low`` and ``high`` are the interval that the state is read from. A look is one slice under one protocol by one
    metric, of all pairs.
    """
    looks, rows = len({_figure(row) for row in compared}), []
    for row in with_one_budget(compared):
        of = claimed(row)
        shown = {**vars(of), "protocol": row.protocol.removesuffix(f" {vars(row)['slice']}"), "n_looks": looks}
        shown |= {"low": of.ci_low, "high": of.ci_high, "state": _state(row)}
        rows.append({name: shown[name] for name in (*SLICED_COLUMNS, "p_sign_flip", "reason")})
    return rows, looks


def headline_pairs(pairs: Iterable[TestedPair]) -> list[dict[str, object]]:
    """Return the pairs by headline results, as a table shows them.

    ``low`` and ``high`` are the interval that the state is read from: that of all pairs of a result together.
    """
    called = {"ci_low": "low", "ci_high": "high"}
    rows = (claimed(row) for row in pairs if row.family == "headline")
    return [{called.get(name, name): getattr(row, name) for name in PAIR_COLUMNS[:10]} for row in rows]


@dataclass(frozen=True, kw_only=True)
class AgainstBest(ShownResult):
    """A result with its test against the best other encoder under its protocol."""

    against: str | None = None
    difference: float | None = None
    p_adjusted: float | None = None
    state: str | None = None


AGAINST_BEST = [each.name for each in fields(AgainstBest)[len(fields(ShownResult)) :]]


def against_best(results: Sequence[ShownResult], comparisons: Iterable[Comparison]) -> list[AgainstBest]:
    """Return results with the test of each against the best other encoder under its protocol."""
    pairs: dict[tuple[str, ...], Comparison] = {}
    for row in comparisons:
        for each in (row, reversed_comparison(row)):
            pairs[*_figure(each), each.fingerprint_a, each.fingerprint_b] = each
    rows = []
    for of in results:
        same = [r for r in results if _figure(r) == _figure(of) and r.value is not None and r is not of]
        best = max(same, key=goodness, default=None)
        pair = best and pairs.get((*_figure(of), of.encoder_fingerprint, best.encoder_fingerprint))
        found = AgainstBest(**vars(of))
        if best and pair:
            p, state = pair.p_adjusted, _state(pair)
            found = replace(found, against=best.encoder, difference=pair.difference, p_adjusted=p, state=state)
        rows.append(found)
    return rows


def _state(row: Comparison) -> str | None:
    decision = decision_of(row)
    return None if decision is None else decision.state


def summary(comparisons: Sequence[Comparison]) -> list[str]:
    """Return a summary of one request: encoders, corpora and protocols, tests and margin, headline results."""
    if not comparisons:
        return ["nothing was compared: no two encoders have the same result"]
    encoders = sorted(compared_encoders(comparisons))
    lines = [f"compared {len(encoders)} encoders, pair by pair: {', '.join(encoders)}"]
    for corpus in sorted({row.corpus for row in comparisons}):
        of_corpus = [row for row in comparisons if row.corpus == corpus]
        protocols = sorted({row.protocol for row in of_corpus})
        shown = ", ".join(protocols[:_SHOWN]) + (" …" if len(protocols) > _SHOWN else "")
        made, by = count(len(of_corpus), "comparison"), count(len(protocols), "protocol")
        lines.append(f"{corpus}: {made} by {by} ({shown})")
    headline = sorted({f"{row.protocol} {row.metric}" for row in comparisons if row.family == "headline"})
    adjusted = "p-values of sign-flip tests, adjusted over the pairs of each result (step-down max-T)"
    margins = sorted({row.margin for row in comparisons if row.margin is not None})
    within = f"; equivalent: within {100 * margins[0]:g} % of a metric's range" if margins else ""
    lines.append(f"{adjusted}; intervals: {intervals_of(comparisons)}{within}")
    lines.append(f"headline results: {', '.join(headline[:_SHOWN]) or 'none'}; all others are exploratory")
    return lines


_PLAIN = {"wilson": "Wilson's", "t": "Student's t", "woodruff": "Woodruff's"}  # no draws


def intervals_of(rows: Iterable[Any], units: str = "images") -> str:
    """Return the methods of a table's intervals, with the draws of those that need any.

    Examples:
        >>> from types import SimpleNamespace
        >>> rows = [
        ...     SimpleNamespace(interval_method=method, level=0.95, replicates=1000, seed=0)
        ...     for method in ("wilson", "percentile", "none")
        ... ]
        >>> intervals_of(rows)
        "95 %, Wilson's and percentile bootstrap (1,000 draws, seed 0), over images"
        >>> intervals_of(rows[2:])
        'none, for the reasons next to the results'
    """
    made = {row.interval_method: row for row in rows if row.interval_method != "none"}
    said = []
    for method, row in made.items():
        said.append(_PLAIN.get(method, f"{method} bootstrap ({row.replicates or 0:,} draws, seed {row.seed})"))
    level = next((f"{100 * row.level:g} %" for row in made.values()), "")
    return f"{level}, {listing(said)}, over {units}" if said else "none, for the reasons next to the results"


def counted_once(names: list[str]) -> str:
    """Return the clause on several names of one corpus."""
    return f"{listing(names)} hold the same photographs and captions: they count once"


def not_counted(names: Sequence[str]) -> list[str]:
    """Return why tasks or corpora with these names enter no mean, as a clause; nothing without names."""
    enter = "enters" if len(names) == 1 else "enter"
    why = "no encoder that could be ranked is shown above chance there"
    return [f"{listing([*names])} {enter} no mean: {why}"] * bool(names)


def rests_on_few(ranking: Iterable[Ranking]) -> bool:
    """True if the ranks on these corpora rest on so few images that they are marked "few images"."""
    ranked = (row for row in ranking if row.estimand == "these corpora" and row.rank_low is not None)
    return any(row.n_effective is not None and row.n_effective <= rules.FEW for row in ranked)


def about_corpora(corpora: Sequence[Detail]) -> Iterator[str]:
    """Return as sentences which corpora of a ranking do not count, have several names, or share photographs."""
    yield from (f"{clause}." for clause in not_counted(corpora[0].get("not_counted", ())))
    for corpus in corpora:
        if corpus["copies"]:
            yield f"{counted_once([corpus['corpus'], *corpus['copies']])}."
    common = [
        f"{n:,} of the {a['photographs']:,} photographs of {a['corpus']} are in {b['corpus']}"
        for at, a in enumerate(corpora)
        for b in corpora[at + 1 :]
        if (n := a["shared"].get(b["corpus"]))
    ]
    if common:
        yield f"{listing(common)}: a photograph is one unit in all corpora that have it."
