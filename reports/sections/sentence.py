"""The answer of a report in one sentence that can be forwarded, and the tests behind it, one line each."""

from __future__ import annotations

from capim.reports import format as show
from capim.reports.elements.tables import difference_text, figure_text, is_fraction, metric_title, range_text
from capim.reports.rows.languages import language_name
from capim.reports.rows.report_data import ReportData, Row
from capim.reports.rows.speed import image_rate
from capim.reports.rows.standing import (
    Conclusion,
    Task,
    chance_of,
    claimed,
    conclusions,
    decision,
    decision_of,
    leading,
    unread,
    values,
)

SHOWN = 3  # outcomes on different corpora in the sentence
NO_RESULT = "No headline figure was evaluated: nothing to choose by."


def answer(data: ReportData) -> tuple[str, ...]:
    """The sentence, then the evidence: one line for every corpus."""
    found = conclusions(data)
    if not found:
        return (NO_RESULT,)
    return (_sentence(data, found), *(_evidence(data, conclusion) for conclusion in found))


def _sentence(data: ReportData, found: list[Conclusion]) -> str:
    main, undecided = leading(found), ""
    chosen = {c.names[0] for c in main if c.outcome == "one"}
    if len(main) == 1:
        text, undecided = _of_one(data, main[0])
    elif len(chosen) == 1 and all(c.outcome == "one" for c in main):
        corpora = show.listing([c.corpus for c in main]) if len(main) < 4 else f"all {len(main)} corpora"
        text = f"Choose {main[0].names[0]}: better than every other encoder on {corpora}"
    else:
        groups: dict[str, list[str]] = {}
        for conclusion in main:
            groups.setdefault(_brief(conclusion), []).append(conclusion.corpus)
        parts = [f"{brief} on {show.some(corpora)}" for brief, corpora in [*groups.items()][:SHOWN]]
        parts += [f"{show.count(len(groups) - SHOWN, 'other outcome')}, below"] * (len(groups) > SHOWN)
        text = f"No encoder is best on every corpus: {'; '.join(parts)}"
    if len(chosen) == 1 and all(c.outcome == "one" for c in main):
        [best] = chosen
        text += _elsewhere_worse(data, found[len(main) :], best)
    return f"{text}{undecided}{_not_read(data)}."


def _brief(conclusion: Conclusion) -> str:
    names = conclusion.names
    return {
        "one": names[0],
        "alone": f"only {names[0]} was evaluated",
        "equivalent": f"{show.some(names)} are equivalent",
        "undecided": f"undecided between {show.some(names)}",
        "untested": f"not tested ({names[0]} has the highest figures)",
        "chance": "none is better than chance",
    }[conclusion.outcome]


def _of_one(data: ReportData, conclusion: Conclusion) -> tuple[str, str]:
    """What is concluded on one corpus, and what the tests leave undecided there."""
    names, tasks = list(conclusion.names), conclusion.tasks
    titles = show.listing([task.title for task in tasks])
    if conclusion.outcome == "chance":
        return f"No choice: no encoder is better than chance on {titles} ({conclusion.corpus})", ""
    if conclusion.outcome == "alone":
        figures = [f"{figure_text(data.row(*task[:3], names[0]))} on {task.title}" for task in tasks]
        metric = metric_title(tasks[0].metric)
        return f"Only {names[0]} was evaluated: {metric} {show.listing(figures)}{_weak(data, tasks, names[0])}", ""
    if conclusion.outcome == "untested":
        best: dict[str, list[str]] = {}
        for task in tasks:
            best.setdefault(next(iter(values(data, task))), []).append(task.title)
        highest = [f"{name} has the highest figure on {show.listing(on)}" for name, on in best.items()]
        return f"Not tested, so no choice: {show.listing(highest)} (run `capim compare`)", ""
    if conclusion.outcome == "equivalent":
        row = data.comparison(*tasks[0][:3], names[0], names[1]) or {}
        margin = margin_words(tasks[0].metric, row.get("margin"))
        within = f" within {margin}" if margin else ""
        both = "both" if len(names) == 2 else "all"
        fast = "; ".join(f"{names[0]} is {clause}" for clause in _speed(data, conclusion.corpus, names[0], names[1]))
        return f"Choose by cost: {show.some(names)} are {both} equivalent{within} on {titles}" + (
            f"; {fast}" if fast else ""
        ), ""
    first, second, *more = names if len(names) > 1 else [*names, conclusion.rival]
    decided, undecided = _compared(data, conclusion, first, second)
    if conclusion.outcome == "one":
        closest = "the closest rival, " * (len(conclusion.order) > 2)
        text = f"Choose {first}: compared with {second}, {closest}it is {decided}"
    else:
        others = f" (and {show.count(len(more), 'other')})" if more else ""
        text = f"No winner: the tests do not separate {first} and {second}{others}"
        text += f": {first} is {decided}" if decided else ""
    return text + _weak(data, tasks, first), undecided


def _compared(data: ReportData, conclusion: Conclusion, name: str, rival: str) -> tuple[str, str]:
    """How an encoder stands against another on the tasks and in speed, and on which tasks this is undecided."""
    decided, undecided = [], ""
    for task in conclusion.tasks:
        words, _, more = state_words(data, task, name, rival).partition(" (")
        if words == "undecided":
            undecided += f"; {task.title} is undecided" + (f" ({name} {more}" if more else "")
        else:
            decided.append(f"{words} on {task.title}")
    return show.listing([*decided, *_speed(data, conclusion.corpus, name, rival)]), undecided


def state_words(data: ReportData, task: Task, name: str, rival: str, *, short: bool = False, unit: bool = True) -> str:
    """Better, worse, equivalent or undecided, with the size that matters; ``short`` for a cell of a table.

    Without ``unit``, the place says that sizes are in percentage points.
    """
    row = data.comparison(*task[:3], name, rival)
    if row is None or decision_of(row) is None:
        return "not tested" if short else f"not tested against {rival}"
    return row_words(row, short=short, unit=unit)


def row_words(row: Row, *, short: bool = True, unit: bool = True) -> str:
    """What the tests of one comparison say of its first encoder, in words."""
    found, metric = decision_of(row), row["metric"]
    if found is None:
        return "not tested"
    if found.state == "equivalent":
        within = margin_words(metric, row["margin"])
        return f"equivalent within {within}" if within and not short else "equivalent"
    if found.state == "undecided":
        size = "" if found.worse_by is None else amount(metric, found.worse_by, unit=unit)
        if not size.partition(" ")[0].strip("0."):  # an interval that ends at 0 bounds nothing: few images differ
            return "undecided"
        worse = f"up to {size} worse"
        return f"undecided: {worse}" if short else f"undecided (could be {worse})"
    return f"{amount(metric, abs(row['difference']), unit=unit)} {found.state}"


def amount(metric: str, size: float, *, unit: bool = True) -> str:
    """A size of a difference with its unit.

    Examples:
        >>> amount("R@1", 0.01), amount("R@1", 0.043), amount("mean_rank", 2.0)
        ('1.0 point', '4.3 points', '2.0')
    """
    text = difference_text(metric, size).removeprefix("+")
    return text + (" point" if text == "1.0" else " points") * (unit and is_fraction(metric))


def margin_words(metric: str, margin: float | None) -> str:
    """A margin with its unit, without needless decimals.

    Examples:
        >>> margin_words("R@1", 0.01), margin_words("R@1", 0.005), margin_words("RSUM", 6.0), margin_words("R@1", None)
        ('1 point', '0.5 points', '6 points', '')
    """
    if margin is None:
        return ""
    size = f"{round(100 * margin if is_fraction(metric) else margin, 2):g}"
    return f"{size} {'point' if size == '1' else 'points'}" if is_fraction(metric) or metric == "RSUM" else size


def _speed(data: ReportData, corpus: str, name: str, rival: str) -> list[str]:
    """How many times as fast an encoder is: by medians, and between the far quartiles; none on different devices."""
    rates = image_rate(data, corpus)
    one, other = rates.get(name), rates.get(rival)
    if one is None or other is None or (one.device, one.precision) != (other.device, other.precision):
        return []
    a, b = one.stages["forward"], other.stages["forward"]
    span = show.span(a.lower / b.upper, a.upper / b.lower)
    return [f"{show.number(a.median / b.median)} times as fast (measured, {span})"]


def _weak(data: ReportData, tasks: tuple[Task, ...], name: str) -> str:
    """The tasks in which an encoder is not better than chance."""
    weak = [f"{state} on {task.title}" for task in tasks if (state := chance_of(data.row(*task[:3], name)))]
    return f", but {show.listing(weak)}" if weak else ""


def _elsewhere_worse(data: ReportData, others: list[Conclusion], name: str) -> str:
    """The tasks of further corpora in which the choice is worse than another encoder, or at chance."""
    parts = []
    for conclusion in others:
        for task in conclusion.tasks:
            best = next(iter(values(data, task)), name)
            found = decision(data, *task[:3], name, best) if best != name else None
            if found is not None and found.state == "worse":
                parts.append(f"{state_words(data, task, name, best)} than {best} on {task.title}")
            elif state := chance_of(data.row(*task[:3], name)):
                parts.append(f"{state} on {task.title}")
    return f", but {show.some(parts)}" if parts else ""


def _not_read(data: ReportData) -> str:
    """The languages that no encoder reads."""
    if not (found := [language_name(code) for code in unread(data)]):
        return ""
    nobody = "no encoder reads" if len(data.encoder_names()) > 1 else "it does not read"
    return f"; {nobody} {show.some(found, 'or', most=6)} better than chance"


def _evidence(data: ReportData, conclusion: Conclusion) -> str:
    """The tests of a corpus: the best encoder against its closest rival on every task."""
    first, rival, *_ = (*conclusion.names, conclusion.rival)
    if not rival:
        figures = [f"{figure_text(data.row(*task[:3], first))} on {task.title}" for task in conclusion.tasks]
        return f"{conclusion.corpus}: {first} {show.listing(figures)}."
    parts = []
    for task in conclusion.tasks:
        row = data.comparison(*task[:3], first, rival)
        if row is None or row["difference"] is None:
            parts.append(f"{task.title}: not compared")
            continue
        together = claimed(row)
        interval = range_text(task.metric, together["ci_low"], together["ci_high"])
        inner = [
            interval,
            f"adjusted p {show.p_value(row['p_adjusted'])}",
            state_words(data, task, first, rival, short=True),
        ]
        difference = difference_text(task.metric, row["difference"])
        parts.append(f"{task.title} {difference} ({', '.join(filter(None, inner))})")
    return f"{conclusion.corpus}, {first} minus {rival}: {'; '.join(parts)}."
