"""The first screen: the answer in a sentence, every encoder on every task, and where the answer's encoder is weak.

The sentence can be forwarded; the tests behind it follow, one line each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter

from capim.reports import format as show
from capim.reports.elements import words
from capim.reports.elements.page import Block, Cases, Cell, Evidence, Mark, Notice, Section, Table
from capim.reports.elements.tables import ColumnOf, absent, axis_of, numbers, pivot, result_cell, texts
from capim.reports.rows import standing
from capim.reports.rows.gallery import SelectedQuery
from capim.reports.rows.report_data import ReportData, Row, grouped
from capim.reports.rows.speed import image_rate
from capim.reports.rows.standing import Conclusion, Task
from capim.reports.sections.failures import case_of
from capim.reports.sections.leaderboard import MEAN, cost_columns
from capim.reports.sections.slices import part_label, slice_cell
from capim.tasks.analyses.table import headings
from capim.tasks.metrics.table import RSUM
from capim.tasks.protocols import DIRECTION_TITLES, Protocol, language_name

MOST_OUTCOMES = 3  # outcomes on different corpora in the sentence
NO_RESULT = "No headline figure was evaluated, so there is nothing to choose by."
WORST = 3  # slices, and failures
PARTS = ("complexity", "supercategory", "category", "length", "ordinal", "tags", "truncated-captions")
IN_SUM = "in both directions together"
NAMED = 12  # lines about results at chance


def answer(data: ReportData) -> tuple[str, ...]:
    """The sentence, then the evidence: one line for every corpus, and which statements share which budget."""
    found = standing.conclusions(data)
    if not found:
        return (NO_RESULT,)
    lines = [line for each in found for line in (_evidence(data, each), *words.weights(data, each.tasks))]
    return (_sentence(data, found), *lines, *words.budgets(data))


def _sentence(data: ReportData, found: list[Conclusion]) -> str:
    main, undecided = standing.recommending(found), ""
    chosen = {c.names[0] for c in main} if all(c.outcome in ("one", "sum") for c in main) else set[str]()
    if len(main) == 1:
        text, undecided = _of_one(data, main[0])
    elif len(chosen) == 1:
        corpora = show.listing([c.corpus for c in main]) if len(main) < 4 else f"all {len(main)} corpora"
        text = f"Choose {main[0].names[0]}: better than every other encoder on {corpora}"
        if summed := [c.corpus for c in main if c.outcome == "sum"]:
            text += f", on {show.some(summed)} {IN_SUM}, not in each"
    else:
        groups: dict[str, list[str]] = {}
        for conclusion in main:
            groups.setdefault(_brief(conclusion), []).append(conclusion.corpus)
        parts = [f"{brief} on {show.some(corpora)}" for brief, corpora in [*groups.items()][:MOST_OUTCOMES]]
        parts += [f"{show.count(len(groups) - MOST_OUTCOMES, 'other outcome')}, below"] * (len(groups) > MOST_OUTCOMES)
        text = f"No encoder is best on every corpus: {'; '.join(parts)}"
    if len(chosen) == 1:
        text += _elsewhere_worse(data, found[len(main) :], *chosen)
    if not_read := [language_name(code) for code in standing.unread(data)]:
        nobody = "no encoder is" if len(data.encoder_names()) > 1 else "it is not"
        undecided += f"; {nobody} shown to read {show.some(not_read, 'or', most=6)} better than chance"
    return f"{text}{undecided}."


def _brief(conclusion: Conclusion) -> str:
    names = conclusion.names
    return {
        "one": names[0],
        "sum": f"{names[0]} {IN_SUM}",
        "alone": f"only {names[0]} was evaluated",
        "equivalent": f"{show.some(names)} are equivalent",
        "undecided": f"undecided between {show.some(names)}",
        "untested": f"not tested ({names[0]} has the highest figures)",
        "chance": "none is shown to be better than chance",
    }[conclusion.outcome]


def _of_one(data: ReportData, conclusion: Conclusion) -> tuple[str, str]:
    """What is concluded on one corpus, and what the tests leave undecided there."""
    names, tasks = list(conclusion.names), conclusion.tasks
    titles, metric = show.listing([task.title for task in tasks]), data.metric(tasks[0].metric)
    if conclusion.outcome == "chance":
        return f"No choice: no encoder is shown to be better than chance on {titles} ({conclusion.corpus})", ""
    if conclusion.outcome == "alone":
        figures = _figures(data, tasks, names[0])
        return f"Only {names[0]} was evaluated: {metric.label} {figures}{_weak(data, tasks, names[0])}", ""
    if conclusion.outcome == "untested":
        best: dict[str, list[str]] = {}
        for task in tasks:
            best.setdefault(next(iter(standing.values(data, task))), []).append(task.title)
        highest = [f"{name} has the highest figure on {show.listing(on)}" for name, on in best.items()]
        return f"Not tested, so no choice: {show.listing(highest)} (run `capim compare`)", ""
    if conclusion.outcome == "equivalent":
        row = data.comparison(*tasks[0][:3], names[0], names[1]) or {}
        margin = words.margin(metric, row.get("margin"))
        text = f"Choose by cost: {show.some(names)} are {'both' if len(names) == 2 else 'all'} equivalent"
        text += f" within {margin} on {titles}" if margin else f" on {titles}"
        faster = [f"{names[0]} is {speed}" for speed in _speed(data, conclusion.corpus, *names[:2])]
        return "; ".join([text, *faster]), ""
    first, second, *more = names if len(names) > 1 else [*names, conclusion.rival]
    decided, undecided = _compared(data, conclusion, first, second)
    if conclusion.outcome in ("one", "sum"):
        closest = "the closest rival, " * (len(conclusion.order) > 2)
        what = f" {IN_SUM}" if conclusion.outcome == "sum" else ""
        text = f"Choose {first}{what}: compared with {second}, {closest}it is {decided}"
    else:
        others = f" (and {show.count(len(more), 'other')})" if more else ""
        text = f"No winner: the tests do not separate {first} and {second}{others}"
        text += f": {first} is {decided}" if decided else ""
    return text + _weak(data, tasks, first), undecided


def _compared(data: ReportData, conclusion: Conclusion, name: str, rival: str) -> tuple[str, str]:
    """How an encoder stands against another on the tasks and in speed, and on which tasks this is undecided."""
    decided, undecided = [], ""
    if conclusion.outcome == "sum" and (row := data.comparison(conclusion.corpus, *RSUM, name, rival)) is not None:
        decided.append(f"{words.verdict(data.metric(RSUM.metric), row)} in {RSUM.metric}, the sum of both,")
    for task in conclusion.tasks:
        row = data.comparison(*task[:3], name, rival)
        verdict = words.verdict(data.metric(task.metric), row, rival=rival)
        state, _, more = verdict.partition(" (")
        if state == "undecided":
            undecided += f"; {task.title} is undecided" + (f" ({name} {more}" if more else "")
        else:
            decided.append(f"{verdict} on {task.title}")
    return show.listing([*decided, *_speed(data, conclusion.corpus, name, rival)]), undecided


def _speed(data: ReportData, corpus: str, name: str, rival: str) -> list[str]:
    """How many times as fast an encoder is: by medians, and between the far quartiles; none on different devices."""
    rates = image_rate(data, corpus)
    one, other = rates.get(name), rates.get(rival)
    if one is None or other is None or (one.device, one.precision) != (other.device, other.precision):
        return []
    a, b = one.stages["forward"], other.stages["forward"]
    span = show.span(a.lower / b.upper, a.upper / b.lower)
    return [f"{show.number(a.median / b.median)} times as fast (measured, {span})"]


def _figures(data: ReportData, tasks: Sequence[Task], name: str) -> str:
    rows = ((task, data.row(*task[:3], name) or {}) for task in tasks)
    return show.listing([f"{words.figure(data.metric(task.metric), row)} on {task.title}" for task, row in rows])


def _weak(data: ReportData, tasks: Sequence[Task], name: str) -> str:
    """The tasks in which an encoder is not better than chance."""
    weak = [f"{state} on {task.title}" for task in tasks if (state := standing.chance_of(data.row(*task[:3], name)))]
    return f", but {show.listing(weak)}" if weak else ""


def _elsewhere_worse(data: ReportData, others: list[Conclusion], name: str) -> str:
    """The tasks of further corpora in which the choice is worse than another encoder, or at chance."""
    parts = []
    for task in [task for conclusion in others for task in conclusion.tasks]:
        best = next(iter(standing.values(data, task)), name)
        found = standing.decision(data, *task[:3], name, best) if best != name else None
        if found is not None and found.state == "worse":
            verdict = words.verdict(data.metric(task.metric), data.comparison(*task[:3], name, best))
            parts.append(f"{verdict} than {best} on {task.title}")
        elif state := standing.chance_of(data.row(*task[:3], name)):
            parts.append(f"{state} on {task.title}")
    return f", but {show.some(parts)}" if parts else ""


def _evidence(data: ReportData, conclusion: Conclusion) -> str:
    """The tests of a corpus: the best encoder against its closest rival on every task."""
    first, rival, *_ = (*conclusion.names, conclusion.rival)
    if not rival:
        return f"{conclusion.corpus}: {first} {_figures(data, conclusion.tasks, first)}."
    parts = []
    for task in conclusion.tasks:
        row, metric = data.comparison(*task[:3], first, rival), data.metric(task.metric)
        if row is None or row["difference"] is None:
            parts.append(f"{task.title}: not compared")
            continue
        interval = words.interval(metric, standing.claimed(row))
        inner = [interval, f"adjusted p {show.p_value(row['p_adjusted'])}", words.verdict(metric, row)]
        parts.append(f"{task.title} {words.difference(metric, row['difference'])} ({', '.join(filter(None, inner))})")
    return f"{conclusion.corpus}, {first} minus {rival}: {'; '.join(parts)}."


def section(data: ReportData) -> Section:
    """The grid of encoders and tasks, and the tests behind the answer."""
    found = standing.conclusions(data)
    blocks = (_grid(data, found, standing.in_order(data, found)), Evidence(lines=answer(data)[1:])) if found else ()
    return Section(id="answer", title="Every encoder on every task", lead="", blocks=blocks)


def _grid(data: ReportData, found: list[Conclusion], order: list[str]) -> Table:
    """Every encoder on every headline task, with what the tests say of it against the highest."""
    tasks = [task for conclusion in found for task in conclusion.tasks]
    rows = grouped((row for task in tasks for row in data.ranked(*task[:3])), itemgetter("metric"))
    axes = {metric: axis_of(of) for metric, of in rows.items()}

    def column(task: Task) -> ColumnOf[str]:
        direction, mean, _ = task.title.partition(MEAN)
        explain = f"{data.metric(task.metric).label}, percent: {Protocol.of(task.protocol).titled}"
        cell = partial(task_cell, data=data, task=task, axis=axes[task.metric])
        return numbers(direction, cell, group=f"{task.corpus}{mean}", explain=explain)

    titles = {t.protocol: t.title for t in tasks}
    ids = "; ".join(f"{title} ({id_})" for id_, title in titles.items() if id_ not in title)
    return pivot(
        "answer-grid",
        "Encoders and tasks",
        order,
        texts("Encoder", str),
        *map(column, tasks),
        *cost_columns(data, found[0].corpus),
        sortable=True,
        note=f"Percent with interval: {show.listing([data.metric(metric).label for metric in axes])}. Below: how it "
        f"compares with the highest of its column, in points. Bars of a metric share an axis; "
        f"dotted: chance. Ids: {ids}.",
    )


def task_cell(name: str, *, data: ReportData, task: Task, axis: tuple[float, float]) -> Cell:
    """The result of an encoder on a task, with its state against the best and whether it hides results at chance."""
    row = data.row(*task[:3], name)
    if row is None or row["value"] is None:
        return result_cell(data, row)
    best, chance = next(iter(standing.values(data, task))), standing.chance_of(row)
    verdict, hidden, protocol = "highest", "", Protocol.of(task.protocol)
    if name != best:
        verdict = words.verdict(data.metric(task.metric), data.comparison(*task[:3], name, best), unit=False)
    if protocol.kind == "mean":  # it hides results that are not better than chance
        codes = standing.languages(data, task.corpus)
        cells = [standing.language_cells(data, task.corpus, name, code, protocol.direction) for code in codes]
        weak = sum(any(map(standing.chance_of, of)) for of in cells)
        hidden = f"{weak} of {show.count(len(codes), 'language')} not shown above chance" if weak else ""
    found = standing.decision(data, *task[:3], name, best)
    worse = found is not None and found.state == "worse"
    mark: Mark = "bad" if chance or worse else "best" if name == best else ""
    return result_cell(data, row, mark=mark, axis=axis, state="; ".join(filter(None, (chance, verdict, hidden))))


def weaknesses_section(data: ReportData) -> Section:
    """What is not better than chance, the worst slices, and three failures: of the recommended encoder first."""
    found = standing.conclusions(data)
    order = standing.in_order(data, found)
    blocks: list[Block] = [*_at_chance(data, order), *_worst_slices(data, order), *_failures(data, order)]
    return Section(id="breaks", title="Where it breaks", lead="", blocks=tuple(blocks) if found else ())


def _at_chance(data: ReportData, order: list[str]) -> list[Notice]:
    """A line for all results on a corpus with the same encoders at or below chance; languages are joined."""
    found: dict[tuple[str, str, str], dict[str, set[str]]] = {}  # corpus, part, state: kind of result to its encoders
    for row in data.results:
        weak, of = standing.chance_of(row), Protocol.of(row["protocol"])
        if weak and row["metric"] in standing.CHECKED and not of.is_combined and not of.orientation:
            what = language_name(of.language) if of.is_of_language else of.title
            kind = DIRECTION_TITLES[of.direction] if of.is_of_language else data.metric(row["metric"]).label
            found.setdefault((row["corpus"], what, weak), {}).setdefault(kind, set()).add(row["encoder"])
    joined: dict[tuple[str, str, tuple[str, ...], str], list[str]] = {}
    for (corpus, what, state), kinds in found.items():
        for names in dict.fromkeys(tuple(n for n in order if n in of) for of in kinds.values()):
            same = sorted((kind for kind, of in kinds.items() if of == set(names)), reverse=True)
            joined.setdefault((corpus, state, names, show.listing(same)), []).append(what)
    items = []
    for (corpus, state, names, same_kinds), whats in sorted(joined.items(), key=lambda i: (-len(i[0][2]), i[0])):
        of_whom = "every encoder" if len(names) == len(order) > 1 else show.some(list(names))
        items.append(f"{show.some(_shortened(whats))}, {same_kinds} ({corpus}): {state} for {of_whom}")
    if len(items) > NAMED:
        items = [*items[:NAMED], f"and {show.count(len(items) - NAMED, 'more line')}, in the tables below"]
    return [Notice(title="Not shown to be better than chance", items=tuple(items), mark="bad")] if items else []


def _shortened(whats: list[str]) -> list[str]:
    """What is said, each word once.

    Examples:
        >>> _shortened(["judged queries", "judged queries in German"])
        ['judged queries', 'in German']
    """
    wholes = [f"{what} " for what in whats]
    return [next((what.removeprefix(whole) for whole in wholes if what.startswith(whole)), what) for what in whats]


def _worst_slices(data: ReportData, order: list[str]) -> list[Table]:
    """The lowest slices of the first encoder that has any, with the same of every other encoder."""
    of_corpora = (standing.headline_tasks(data, corpus) for corpus in data.corpus_names())
    tasks: dict[tuple[str, ...], Task] = {task[:3]: task for tasks in of_corpora for task in tasks}
    parts: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in data.slices:
        key, level = (row["corpus"], row["protocol"], row["metric"]), row["level_name"]
        shown = row["analysis"] in PARTS and level != "difference"
        shown = shown and (level != "without" or row["analysis"] == "complexity")
        if key in tasks and shown and row["value"] is not None and row["ci_low"] is not None:
            named = {"with": row["feature"], "without": f"without {row['feature']}"}
            name = named.get(level) or part_label(row["feature"], level)
            parts.setdefault((*key, row["analysis"], name), {})[row["encoder"]] = row
    encoders = [name for name in order if any(name in of for of in parts.values())]
    if not encoders:
        return []
    first = encoders[0]

    def goodness(row: Row) -> float:
        value: float = row["value"]
        return value if data.metric(row["metric"]).higher_is_better else -value

    worst = sorted((key for key, of in parts.items() if first in of), key=lambda k: (goodness(parts[k][first]), k))

    def best_other(key: tuple[str, ...]) -> Cell:
        others = [row for name, row in parts[key].items() if name != first]
        best = max(others, key=lambda row: (goodness(row), row["encoder"]), default=None)
        return absent() if best is None else replace(slice_cell(data, best), state=best["encoder"])

    def slice_of(key: tuple[str, ...]) -> Cell:
        where = f"{headings('slices')[key[3]]}: {tasks[key[:3]].title}, {key[0]}"
        return Cell(text=key[4], note=f"{where}; {show.count(parts[key][first]['n_queries'], 'query', 'queries')}")

    table = pivot(
        "answer-slices",
        f"The worst {show.count(min(WORST, len(worst)), 'slice')} of {first}",
        worst[:WORST],
        texts("Slice", slice_of),
        numbers(first, lambda key: slice_cell(data, parts[key][first])),
        *([numbers("best other", best_other)] if len(encoders) > 1 else []),
        note="Percent with interval; slices with too few images for an interval are left out.",
        dense=True,
    )
    return [table]


def _failures(data: ReportData, order: list[str]) -> list[Cases]:
    """Three captions whose image the first encoder misses by most places: translations last, no ambiguous miss."""

    def rank(query: SelectedQuery) -> int:
        """That of the relevant image; 0 where the encoder has none, or where another image may be right too."""
        if query.direction != "t2i" or (query.corpus, query.protocol, order[0], query.query_id) in data.ambiguous:
            return 0
        return next((ranked.rank_best for ranked in query.lists if ranked.encoder == order[0]), 0)

    missed = [(number, query) for number, query in enumerate(data.queries, 1) if rank(query) > 1]
    missed.sort(key=lambda case: (Protocol.of(case[1].protocol).is_of_language, -rank(case[1]), case[0]))
    cases = []
    for number, query in missed[:WORST]:
        case = case_of(data, query, number)
        answers = tuple(answer for answer in case.answers if answer.encoder in order[:WORST])
        cases.append(replace(case, answers=answers, about=f"{Protocol.of(query.protocol).title} · {query.corpus}"))
    caption = f"{show.count(len(cases), 'failure')} of {order[0]}"
    note = "The picture that belongs to the text, then what each encoder puts first. More under failures."
    return [Cases(id="answer-failures", caption=caption, cases=tuple(cases), note=note)] if cases else []
