"""The tests: every headline result with its intervals, drawn alike, best first."""

from __future__ import annotations

from capim.reports.elements import words
from capim.reports.elements.drawings import Marked, forest
from capim.reports.elements.page import Chart, Kind, Section
from capim.reports.elements.tables import anchor
from capim.reports.rows import standing
from capim.reports.rows.report_data import ReportData, ends
from capim.reports.rows.standing import Task, contenders, decision
from capim.store.schema import Result

MOST = 12  # encoders of one chart
KINDS: dict[str, Kind] = {"equivalent": "equal", "undecided": "open", "better": "open", "worse": "worse"}
NOTE = (
    "Filled: the highest value, or equivalent to it; open: the tests cannot tell which of the two is better; grey: "
    "worse. Encoders not shown above chance are left out. All comparisons are in comparisons.csv."
)


def section(data: ReportData) -> Section:
    """One chart for every headline result with two contenders or more."""
    charts = [chart for task in standing.headline_tasks(data) if (chart := of_task(data, task)) is not None]
    return Section(id="tests", title="Tests", lead=NOTE, blocks=tuple(charts))


def of_task(data: ReportData, task: Task) -> Chart | None:
    """The encoders of a task that are not at chance, best first; None of fewer than two."""
    rows = contenders(data, *task[:3])[:MOST]
    if len(rows) < 2:
        return None
    metric = data.metric(task.metric)
    marked = [marked_result(data, row, _kind(data, task, row, rows[0])) for row in rows]
    title = f"{task.corpus}, {task.title}"
    unit = f"{metric.label}{', percent' * (metric.unit == 'percent')}"
    pairs = zip(marked, rows, strict=True)
    named = [(f"{each.name} {each.text}", words.interval(metric, row)) for each, row in pairs]
    said = "; ".join(f"{name} ({ends})" if ends else name for name, ends in named)
    return Chart(
        id=anchor("test", task.corpus, task.protocol, task.metric),
        title=title,
        alt=f"{unit}. {said}.",
        svg=forest(marked, metric.label),
        points=tuple(point(each, metric.unit) for each in marked),
    )


def _kind(data: ReportData, task: Task, row: Result, best: Result) -> Kind:
    if row is best:
        return "best"
    found = decision(data, *task[:3], row.encoder, best.encoder)
    return KINDS[found.state] if found else "untested"


def marked_result(data: ReportData, row: Result, kind: Kind, cost: float = 0.0) -> Marked:
    """A result to be drawn: in percent, or in the unit of its metric."""
    metric, value = data.metric(row.metric), row.value or 0.0
    scale = 100.0 if metric.unit == "percent" else 1.0
    low, high = (scale * end for end in ends(value, row.ci_low, row.ci_high))
    return Marked(row.encoder, kind, scale * value, low, high, words.value(metric, value), cost)


def point(marked: Marked, unit: str) -> dict[str, object]:
    """A drawn value as a row of CSV."""
    alike = marked.low == marked.high
    interval = {"low": None, "high": None} if alike else {"low": marked.low, "high": marked.high}
    cost = {"cost": marked.cost} if marked.cost else {}
    return {"encoder": marked.name, **cost, "value": marked.value, **interval, "unit": unit.replace("own", "")}
