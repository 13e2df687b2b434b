"""The tests: every headline result with its intervals, drawn alike, best first."""

from __future__ import annotations

from collections.abc import Callable

from capim.reports import format as show
from capim.reports.elements import words
from capim.reports.elements.drawings import Marked, forest
from capim.reports.elements.page import Cell, Chart, Kind, Section, Table
from capim.reports.elements.tables import anchor, numbers, pivot, texts
from capim.reports.rows import standing
from capim.reports.rows.report_data import ReportData, ends
from capim.reports.rows.standing import Task, contenders, stand
from capim.store.schema import Result

MOST = 12  # encoders of one chart
NOTE = (
    "Filled: the highest value, or equivalent to it; open: the tests cannot tell which of the two is better; grey: "
    "worse. Encoders not shown above chance are left out. All comparisons are in comparisons.csv."
)
SIGNIFICANT = {"**": 0.01, "*": 0.05}
STARS = "The row's encoder minus the column's. ** p < 0.01, * p < 0.05, ns not significant, adjusted for all pairs."


def section(data: ReportData) -> Section:
    """Return one chart for every headline result with two contenders or more, with the grid of their pairs."""
    blocks = [made for task in standing.headline_tasks(data) for made in (of_task(data, task), grid(data, task))]
    return Section(id="tests", title="Tests", lead=NOTE, blocks=tuple(filter(None, blocks)))


def grid(data: ReportData, task: Task) -> Table | None:
    """Return the differences of all pairs of a task with their significance; None of fewer than three encoders."""
    names = [row.encoder for row in contenders(data, *task[:3])[:MOST]]
    metric = data.metric(task.metric)

    def against(rival: str) -> Callable[[str], str | Cell]:
        def cell(name: str) -> str | Cell:
            row = data.comparison(*task[:3], name, rival)
            if row is None:
                return show.ABSENT
            found = next((sign for sign, level in SIGNIFICANT.items() if (row.p_adjusted or 0.0) < level), "ns")
            stars = "" if row.p_adjusted is None else f" {found}"
            return Cell(text=f"{words.difference(metric, row.difference)}{stars}", title=words.verdict(metric, row))

        return cell

    title = f"{task.corpus}, {task.title}"
    columns = [numbers(name, against(name)) for name in names]
    place = anchor("pairs", task.corpus, task.protocol, task.metric)
    made = pivot(place, title, names, texts("Encoder", str), *columns, folded=f"All pairs: {title}", note=STARS)
    return made if len(names) > 2 else None


def of_task(data: ReportData, task: Task) -> Chart | None:
    """Return the encoders of a task that are not at chance, best first; None of fewer than two."""
    rows = contenders(data, *task[:3])[:MOST]
    if len(rows) < 2:
        return None
    metric = data.metric(task.metric)
    marked = [marked_result(data, row, stand(data, *task[:3], row.encoder)[0]) for row in rows]
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
    )


def marked_result(data: ReportData, row: Result, kind: Kind) -> Marked:
    """Return a result to be drawn: in percent, or in the unit of its metric."""
    metric, value = data.metric(row.metric), row.value or 0.0
    scale = 100.0 if metric.unit == "percent" else 1.0
    low, high = (scale * end for end in ends(value, row.ci_low, row.ci_high))
    return Marked(row.encoder, kind, scale * value, low, high, words.value(metric, value))
