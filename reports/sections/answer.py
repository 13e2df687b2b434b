"""The first screen: the answer, one sentence for every task; every encoder on every task; and where encoders are weak.

The sentences can be forwarded; the tests behind them follow, one line each.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from itertools import permutations
from typing import Literal, NamedTuple

from capim.reports import format as show
from capim.reports.elements import words
from capim.reports.elements.page import Block, Board, Cell, Column, Evidence, Mark, Notice, Pair, Section, Table
from capim.reports.elements.tables import ColumnOf, absent, numbers, pivot, result_cell, texts
from capim.reports.rows import choice, standing
from capim.reports.rows.report_data import ReportData, ends
from capim.reports.rows.speed import image_rate, speed_ratio
from capim.reports.rows.standing import Conclusion, Task
from capim.reports.sections.leaderboard import MEAN, cost_columns
from capim.reports.sections.slices import part_label, slice_cell
from capim.store.current import figure_of
from capim.store.schema import Slice
from capim.store.schema import texts as texts_of
from capim.tasks.analyses.table import headings, looks_of
from capim.tasks.metrics.table import METRICS, beside_chance
from capim.tasks.protocols import DIRECTION_TITLES, Protocol, language_name

NO_RESULT = "No headline figure was evaluated, so there is nothing to choose by."
WORST = 3  # slices
NAMED = 12  # lines about results at chance


def answer(data: ReportData) -> tuple[str, ...]:
    """One sentence for every task that has a conclusion of its own, the most important first."""
    found = standing.conclusions(data)
    lines = [line for conclusion in found for line in _sentences(data, conclusion)]
    if not_read := [language_name(code) for code in standing.unread(data)]:
        nobody = "no encoder is" if len(data.encoder_names()) > 1 else "it is not"
        lines.append(f"Languages: {nobody} shown to read {show.some(not_read, 'or', most=6)} better than chance.")
    if names := standing.broken(data, standing.counted_tasks(data, standing.headline_tasks(data))):
        lines.append(f"Not ranked: {show.some(names, most=6)}, not shown above chance on any task.")
    return (*(lines or [NO_RESULT]), *data.states)


def evidence(data: ReportData) -> tuple[str, ...]:
    """The tests behind the answer, one line for every corpus, and which statements share which budget."""
    found = standing.conclusions(data)
    lines = (line for each in found for line in (_evidence(data, each), *words.weights(data, each.tasks)))
    return (*filter(None, lines), *words.budgets(data)) if found else ()


def _sentences(data: ReportData, conclusion: Conclusion) -> list[str]:
    """What the tests say of the tasks of a corpus; tasks with the same contenders share a sentence."""
    said: dict[tuple[str, frozenset[str]], list[Contest]] = {}
    for task in conclusion.tasks:
        contest = _contest(data, task)
        key = {*contest.names, contest.rival} if contest.outcome == "one" else contest.names
        said.setdefault((contest.outcome, frozenset(key)), []).append(contest)
    return [f"{_named(data, [c.task for c in same])}: {_verdict(data, same)}." for same in said.values()]


def _named(data: ReportData, tasks: list[Task]) -> str:
    """Tasks of a corpus in plain words, with its name and its language, if it is one that is not English."""
    corpus, titles = tasks[0].corpus, show.listing([task.title.removesuffix(MEAN) for task in tasks])
    spoken = {*texts_of(data.corpora[corpus].captions["language"])}
    foreign = f" in {language_name(min(spoken))}" if len(spoken) == 1 and spoken != {"en"} else ""
    mean = MEAN * tasks[0].title.endswith(MEAN)
    return f"{titles[:1].upper()}{titles[1:]}{foreign}{mean} ({corpus})"


class Contest(NamedTuple):
    """The contenders of a task: the highest, and those that no test shows to be worse, closest first.

    Encoders at chance are none; where all are (``chance``), ``names`` are all of them. ``rival`` is the closest of the
    others of a winner, and of open contenders the first one that is undecided; empty where nothing was tested.
    """

    task: Task
    outcome: Literal["one", "equivalent", "open", "untested", "alone", "chance"]
    names: tuple[str, ...]
    rival: str = ""
    untested: tuple[str, ...] = ()


def _contest(data: ReportData, task: Task) -> Contest:
    order = [row.encoder for row in standing.contenders(data, *task[:3])]
    if not order:
        return Contest(task, "chance", tuple(standing.values(data, task)))
    best = order[0]
    if len(order) == 1:
        return Contest(task, "alone", (best,))
    found = {name: standing.decision(data, *task[:3], name, best) for name in order[1:]}
    states = {name: decision.state for name, decision in found.items() if decision is not None}
    untested = tuple(name for name in found if name not in states)
    if not states:
        return Contest(task, "untested", (best,))
    rivals = [name for name, state in states.items() if state != "worse"]
    open_ = [name for name in rivals if states[name] != "equivalent"]
    if not rivals:
        return Contest(task, "one", (best,), next(iter(states)), untested)
    return Contest(task, "open" if open_ else "equivalent", (best, *rivals), (open_ or rivals)[0], untested)


def _verdict(data: ReportData, contests: list[Contest]) -> str:
    """What is said of the tasks that have the same contenders."""
    task, outcome, names, rival, untested = contests[0]
    metric, best = data.metric(task.metric), names[0]
    figures = show.listing([words.figure(metric, data.row(*c.task[:3], best)) for c in contests])
    others = f"; {show.some([*untested])} not tested" if untested else ""
    if outcome == "chance":
        state = standing.chance_of(data.row(*task[:3], best))
        return "no encoder is shown to be better than chance" if len(names) > 1 else f"{best} is {state}"
    if outcome == "alone":
        several, said = len(standing.values(data, task)) > 1, f"{metric.label} {figures}"
        no_other = f"{best}, {said}; no other encoder is shown to be better than chance"
        return no_other if several else f"only {best} was evaluated, {said}"
    if outcome == "untested":
        row = data.row(*task[:3], best)
        why = "with one image there is no test" if row and row.n_clusters == 1 else "run `capim compare`"
        return f"not tested; {best} has the highest figure, {figures} ({why})"
    faster = "".join(f"; {said}" for said in _faster(data, best, rival))
    if outcome == "one":
        than = [words.verdict(metric, data.comparison(*c.task[:3], best, rival)) for c in contests]
        size = show.listing([*(text.partition(" ")[0] for text in than[:-1]), than[-1]])
        closest = ", the closest" * (len(standing.contenders(data, *task[:3])) > 2)
        return f"{best}, {size} than {rival}{closest}{faster}{others}"
    if outcome == "equivalent":
        within = words.verdict(metric, data.comparison(*task[:3], rival, best), rival=best)
        return f"{show.some([*names], 'or')}, {within}{faster}{others}"
    bounds = [(standing.decision(data, *c.task[:3], c.rival, c.names[0]), c) for c in contests]
    _, widest = max(bounds, key=lambda found: (found[0] and found[0].worse_by) or 0.0)
    pair = data.comparison(*widest.task[:3], widest.rival, widest.names[0])
    size = words.verdict(metric, pair, rival=widest.names[0])
    size = size.partition(" (")[2].removesuffix(")") if size.startswith("undecided") else f"is {size}"
    bound = f" ({widest.rival} {size})" if size else ""
    listed = show.some([*names], "or", most=4 if len(names) < 5 else 3)
    return f"{listed}; none is shown to be worse than {best}{bound}{others}"


def _faster(data: ReportData, name: str, rival: str) -> list[str]:
    """Which of two encoders encodes images how many times as fast; none where the ratios by corpus do not show it."""
    known = {each: speed for each, speed in image_rate(data).items() if each in (name, rival)}
    ratios = ((a, speed_ratio(known[a], known[b])) for a, b in permutations(known, 2))
    return [
        f"{a} encodes images {show.number(ratio.value, 2)} times as fast (95{show.PERCENT} interval "
        f"{show.span(ratio.low, ratio.high, 2)}, over {ratio.n_corpora} corpora)"
        for a, ratio in ratios
        if ratio is not None and ratio.low > 1
    ]


def _evidence(data: ReportData, conclusion: Conclusion) -> str:
    """The tests of a corpus: of every task with contenders, the highest minus its closest one; empty without any."""
    said: dict[str, list[str]] = {}
    compared = []
    for contest in (made for task in conclusion.tasks if (made := _contest(data, task)).outcome != "chance"):
        task, best, rival = contest.task, contest.names[0], contest.rival
        metric, row = data.metric(task.metric), data.comparison(*task[:3], best, rival)
        if row is None or row.difference is None:
            figure = words.figure(metric, data.row(*task[:3], best))
            said.setdefault(best, []).append(f"{figure} on {task.title}")
            continue
        compared.append((metric, row))
        interval = words.interval(metric, standing.claimed(row))
        alike = row.wins == row.losses == 0
        p = "the same on every query" if alike else f"adjusted p {show.p_value(row.p_adjusted)}"
        inner = [interval, p, words.verdict(metric, row)]
        text = f"{task.title} {words.difference(metric, row.difference)} ({', '.join(filter(None, inner))})"
        said.setdefault(f"{best} minus {rival}", []).append(text)
    pairs = (f"{pair}: {', '.join(of)}" for pair, of in said.items())
    return f"{conclusion.corpus}, {'; '.join(pairs)}. {words.settled(compared)}".rstrip() if said else ""


def section(data: ReportData) -> Section:
    """The board of encoders and tasks, by the headline metric of each, and the tests behind it."""
    found = standing.conclusions(data)
    blocks = (_board(data, found), Evidence(lines=evidence(data))) if found else ()
    return Section(id="answer", title="Every encoder on every task", blocks=blocks)


def _board(data: ReportData, found: list[Conclusion]) -> Board:
    """Every encoder on every headline task, compared pair by pair; further metrics of the same tasks on demand."""
    tasks = [task for conclusion in found for task in conclusion.tasks]
    order = standing.in_order(data, found)
    board = {metric.name for metric in METRICS.values() if metric.leaderboard and metric.higher_is_better}
    further = [
        task._replace(metric=metric)
        for task in tasks
        for metric in sorted({row.metric for row in data.of(task.corpus, task.protocol)})
        if metric != task.metric and metric in board
    ]
    costs = cost_columns(data)
    first = standing.values(data, tasks[0])
    order = sorted(order, key=lambda name: (-first.get(name, float("-inf")), order.index(name)))

    def column(task: Task) -> ColumnOf[str]:
        direction, mean, _ = task.title.partition(MEAN)
        explain = f"{data.metric(task.metric).label}: {data.titled(task.corpus, task.protocol)}"
        heading = direction if task in tasks else f"{direction} {data.metric(task.metric).label}"
        cell = partial(task_cell, data=data, task=task)
        return numbers(heading, cell, group=f"{task.corpus}{mean}", explain=explain)

    tested = [*tasks, *further]
    metrics = dict.fromkeys(task.metric for task in tasks)
    table = pivot(
        "answer-grid",
        "Encoders and tasks",
        order,
        texts("Encoder", str),
        *map(column, tasks),
        *costs,
        *map(column, further),
        note=f"Percent: {show.listing([data.metric(metric).label for metric in metrics])}. Dots: the difference to the "
        "highest, or to the encoder chosen above, with the interval that holds for all pairs; the line is zero. Green: "
        "highest or equivalent. Amber: worse. Red: no contender, not above chance. No colour: not shown to be worse.",
    )
    pairs = [_pairs_of(data, task, order) for task in tested]
    pairs[len(tasks) : len(tasks)] = [{} for _ in costs]
    scale = {task: 100.0 if data.metric(task.metric).unit == "percent" else 0.0 for task in tasks}
    values = (
        {name: scale[task] * v for name, v in standing.values(data, task).items() if scale[task]} for task in tasks
    )
    return Board(
        id="answer-grid",
        table=table,
        pairs=tuple(pairs),
        hidden=tuple(range(len(tasks) + len(costs) + 1, len(table.columns))),
        values=tuple(values),
        costs=tuple(map(asdict, choice.limits(data))),
    )


def _pairs_of(data: ReportData, task: Task, order: list[str]) -> dict[str, dict[str, Pair]]:
    """What the tests say of every pair on a task: encoder to another to the state and the difference; up is better."""
    metric = data.metric(task.metric)
    scale = (100.0 if metric.unit == "percent" else 1.0) * (1 if metric.higher_is_better else -1)
    made: dict[str, dict[str, Pair]] = {}
    for a, b in permutations(order, 2):
        row = data.comparison(*task[:3], a, b)
        state = standing.decision_of(row)
        if row is not None and row.difference is not None and state is not None:
            row = standing.claimed(row)
            difference = row.difference or 0.0
            known = difference, *ends(difference, row.ci_low, row.ci_high)
            size, low, high = (float(f"{scale * x:.5g}") for x in known)  # never rounded to 0
            said = words.verdict(metric, row, unit=False)
            made.setdefault(a, {})[b] = (state.state, said, size, min(low, high), max(low, high))
    return made


def task_cell(name: str, *, data: ReportData, task: Task) -> Cell:
    """The result of an encoder on a task, with what it hides at chance."""
    row = data.row(*task[:3], name)
    if row is None or row.value is None:
        return result_cell(data, row)
    chance, hidden, protocol = standing.at_chance(data, *task[:3], name), "", Protocol.of(task.protocol)
    if protocol.kind == "mean":  # it hides results that are not better than chance
        codes = standing.languages(data, task.corpus)
        cells = [standing.language_cells(data, task.corpus, name, code, protocol.direction) for code in codes]
        weak = sum(any(map(standing.chance_of, of)) for of in cells)
        hidden = f"{weak} of {show.count(len(codes), 'language')} not shown above chance" if weak else ""
    best = next((row.encoder for row in standing.contenders(data, *task[:3])), "")
    mark: Mark = "bad" if chance else "best" if name == best else ""
    verdict = "highest" * (name == best)
    if best and name != best:
        verdict = words.verdict(data.metric(task.metric), data.comparison(*task[:3], name, best), unit=False)
    return result_cell(data, row, mark=mark, state="; ".join(filter(None, (chance, verdict, hidden))))


def weaknesses_section(data: ReportData) -> Section:
    """What is not better than chance, and the worst slices of the recommended encoder."""
    found = standing.conclusions(data)
    order = standing.in_order(data, found)
    blocks: list[Block] = [*_at_chance(data, order), *_worst_slices(data, order)]
    return Section(id="breaks", title="Where it breaks", blocks=tuple(blocks) if found else ())


def _at_chance(data: ReportData, order: list[str]) -> list[Notice]:
    """A line for all results on a corpus with the same encoders at or below chance; languages are joined."""
    found: dict[tuple[str, str, str], dict[str, set[str]]] = {}  # corpus, part, state: kind of result to its encoders
    everywhere = standing.broken(data, standing.counted_tasks(data, standing.headline_tasks(data)))
    order = [name for name in order if name not in everywhere]
    for row in (row for row in data.results if row.encoder in order):
        weak, of = standing.chance_of(row), data.protocol(row.corpus, row.protocol)
        if weak and row.metric in beside_chance() and not of.is_combined and not of.orientation:
            what = language_name(of.language) if of.is_of_language else of.title
            kind = DIRECTION_TITLES[of.direction] if of.is_of_language else data.metric(row.metric).label
            found.setdefault((row.corpus, what, weak), {}).setdefault(kind, set()).add(row.encoder)
    joined: dict[tuple[str, str, tuple[str, ...], str], list[str]] = {}
    for (corpus, what, state), kinds in found.items():
        for names in dict.fromkeys(tuple(n for n in order if n in of) for of in kinds.values()):
            same = sorted((kind for kind, of in kinds.items() if of == set(names)), reverse=True)
            joined.setdefault((corpus, state, names, show.listing(same)), []).append(what)
    items = []
    for (corpus, state, names, same_kinds), whats in sorted(joined.items(), key=lambda i: (-len(i[0][2]), i[0])):
        every = len(names) == len(order) > 1
        of_whom = f"every {'other ' * bool(everywhere)}encoder" if every else show.some(list(names))
        items.append(f"{show.some(_shortened(whats))}, {same_kinds} ({corpus}): {state} for {of_whom}")
    items[:0] = [f"every task: not shown above chance for {show.some(everywhere)}"] * bool(everywhere)
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
    """The lowest slices of the first encoder that has any where it is not at chance, with the same of every other."""
    tasks: dict[tuple[str, ...], Task] = {task[:3]: task for task in standing.headline_tasks(data)}
    parts: dict[tuple[str, ...], dict[str, Slice]] = {}
    for row in data.slices:
        key, level = figure_of(row), row.level_name
        looks = looks_of(row.analysis)
        shown = "part" in looks and level != "difference" and (level != "without" or "absence" in looks)
        shown = shown and not standing.at_chance(data, *key, row.encoder)
        if key in tasks and shown and row.value is not None and row.ci_low is not None:
            named = {"with": row.feature, "without": f"without {row.feature}"}
            name = named.get(level) or part_label(row.feature, level)
            parts.setdefault((*key, row.analysis, name), {})[row.encoder] = row
    encoders = [name for name in order if any(name in of for of in parts.values())]
    if not encoders:
        return []
    first = encoders[0]

    def goodness(row: Slice) -> float:
        value = row.value or 0.0
        return value if data.metric(row.metric).higher_is_better else -value

    worst = sorted((key for key, of in parts.items() if first in of), key=lambda k: (goodness(parts[k][first]), k))

    def best_other(key: tuple[str, ...]) -> Cell:
        others = [row for name, row in parts[key].items() if name != first]
        best = max(others, key=lambda row: (goodness(row), row.encoder), default=None)
        return absent() if best is None else replace(slice_cell(data, best), state=best.encoder)

    def slice_of(key: tuple[str, ...]) -> Cell:
        where = f"{headings('slices')[key[3]]}: {tasks[key[:3]].title}, {key[0]}"
        return Cell(text=key[4], note=f"{where}; {show.count(parts[key][first].n_queries, 'query', 'queries')}")

    table = pivot(
        "answer-slices",
        f"The worst {show.count(min(WORST, len(worst)), 'slice')} of {first}",
        worst[:WORST],
        texts("Slice", slice_of),
        numbers(first, lambda key: slice_cell(data, parts[key][first])),
        *([(Column(heading="best other", numeric=True, says="encoder"), best_other)] if len(encoders) > 1 else []),
        note="Percent with interval; slices with too few images for an interval are left out.",
    )
    return [table]
