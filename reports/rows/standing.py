"""How encoders stand: the headline tasks of a corpus, the decision on every pair, and what is at chance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from capim.reports.rows.languages import cross_lingual
from capim.reports.rows.names import plain_title
from capim.reports.rows.report_data import ReportData, Row, goodness
from capim.store.types import Direction, EvalProtocol
from capim.tasks.metrics.headline import RSUM, headline_of
from capim.tasks.statistics.decisions import Decision, decide

SUM = RSUM  # both directions together
Chance: TypeAlias = Literal["", "at chance", "below chance"]
Overall: TypeAlias = Literal["better", "worse", "equivalent", "undecided", "mixed", "untested"]


class Task(NamedTuple):
    """One headline figure of a corpus, and its name in plain words."""

    corpus: str
    protocol: str
    metric: str
    title: str


def headline_tasks(data: ReportData, corpus: str) -> list[Task]:
    """The headline of a corpus that was evaluated: both directions, binding, or the means over languages."""
    directions: dict[str, Direction] = {}
    for protocol in data.protocols(corpus):
        if not set("*+") & set(protocol):
            directions[protocol] = _direction(data, corpus, protocol)
    main = data.corpora[corpus].main_metric
    protocols = [
        EvalProtocol(id=id_, direction=direction, title="", main_metric=main) for id_, direction in directions.items()
    ]
    figures = dict.fromkeys(
        (f"{parts.direction}/*/*" if (parts := cross_lingual(figure.protocol)) else figure.protocol, figure.metric)
        for figure in headline_of(protocols)
    )
    tasks = [Task(corpus, protocol, metric, plain_title(protocol)) for protocol, metric in figures]
    return sorted((t for t in tasks if data.ranked(*t[:3])), key=lambda t: (t.protocol.startswith("i2t"), t.protocol))


def _direction(data: ReportData, corpus: str, protocol: str) -> Direction:
    metrics = {row["metric"] for row in data.of(corpus, protocol)}
    if "winoground_group" in metrics:
        return "quadruples"
    if "pair_accuracy" in metrics:
        return "pairs"
    return "i2t" if protocol.startswith("i2t") else "t2i"


def values(data: ReportData, task: Task) -> dict[str, float]:
    """Encoder to its value in the direction of the metric, best first; without those that have none."""
    rows = data.ranked(task.corpus, task.protocol, task.metric)
    return {row["encoder"]: goodness(row) for row in rows if row["value"] is not None}


def decision(data: ReportData, corpus: str, protocol: str, metric: str, a: str, b: str) -> Decision | None:
    """What the tests say of ``a`` against ``b``; None where they were not tested."""
    return decision_of(data.comparison(corpus, protocol, metric, a, b))


def decision_of(row: Row | None) -> Decision | None:
    """What the tests of one comparison say of its first encoder; None without a test."""
    if row is None or (row["p_adjusted"] is None and row["p_equivalent"] is None):
        return None
    return decide(
        row["difference"],
        low=row["simultaneous_low"],
        high=row["simultaneous_high"],
        p_adjusted=row["p_adjusted"],
        p_equivalent=row["p_equivalent"],
        margin=row["margin"],
        lower_is_better=row["lower_is_better"],
    )


def claimed(row: Row) -> Row:
    """A comparison with the interval that its decision is read from: that of all pairs together, if it has one."""
    if row["simultaneous_low"] is None:
        return row
    return {**row, "ci_low": row["simultaneous_low"], "ci_high": row["simultaneous_high"]}


def overall(data: ReportData, tasks: Iterable[Task], a: str, b: str) -> Overall:
    """What the tests say of ``a`` against ``b`` over all headline tasks of a corpus.

    Better: significantly in one task, and in all others either better or equivalent; or in none worse, and better by
    the sum of both directions (RSUM).
    """
    tasks = list(tasks)
    decisions = [decision(data, *task[:3], a, b) for task in tasks]
    states = {d.state for d in decisions if d is not None}
    if not states or None in decisions:
        return "untested"
    if {"better", "worse"} <= states:
        return "mixed"
    if states == {"equivalent"}:
        return "equivalent"
    for side in ("better", "worse"):
        if side in states:
            both = decision(data, tasks[0].corpus, *SUM, a, b)
            supported = "undecided" not in states or (both is not None and both.state == side)
            return side if supported else "undecided"
    return "undecided"


def chance_of(row: Row | None) -> Chance:
    """What has to be said of a result beside chance: nothing where it is better, or where there is no interval."""
    labels: dict[str, Chance] = {"open": "at chance", "worse": "below chance"}
    return labels.get(row["against_chance"] or "", "") if row else ""


def language_cells(data: ReportData, corpus: str, encoder: str, language: str, direction: str = "") -> list[Row]:
    """R@1 of an encoder in a language by every translator, in both directions unless one is given."""
    rows = (
        data.row(corpus, protocol, "R@1", encoder)
        for protocol in data.protocols(corpus)
        if (parts := cross_lingual(protocol)) is not None
        and parts.language == language
        and direction in ("", parts.direction)
    )
    return [row for row in rows if row is not None and row["value"] is not None]


def reads(data: ReportData, corpus: str, encoder: str, language: str) -> bool:
    """Whether more than half of the results of an encoder in a language are better than chance."""
    cells = language_cells(data, corpus, encoder, language)
    return 2 * sum(not chance_of(row) for row in cells) > len(cells) or not cells
