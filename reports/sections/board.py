"""The first screen: which encoder to use and how sure that is, a card for every corpus, every encoder on every task.

One definition for the page, markdown, Prefect's artifact, notebooks, `capim serve` and the terminal. Decisions
are made by :mod:`reports.rows.choice`: over all corpora with equal weights, and for every corpus by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import NamedTuple, TypeAlias

from capim.reports import format as show
from capim.reports.elements import words
from capim.reports.elements.page import Board, BoardCell, BoardColumn, BoardRow, Cell, Strip, TaskCard
from capim.reports.elements.tables import failures_address
from capim.reports.rows import choice, standing
from capim.reports.rows.choice import PARAMETERS, UNKNOWN, Choice, Placed
from capim.reports.rows.report_data import ReportData
from capim.reports.rows.standing import MEAN, Task
from capim.store.schema import Slice
from capim.store.schema import texts as texts_of
from capim.store.types import HUB, EncoderSpec
from capim.tasks.protocols import Protocol, language_name
from capim.tasks.reference.changes import FigureChange

NO_RESULT = "No encoder has every headline result of a corpus, so there is no basis for a choice"
NAMES = 3  # of contenders, before "and n more"
ZERO, END = 56.0, 66.0  # pixels of a strip: the best, and the right end
AT_BEST = Strip(low=f"{ZERO:g}", high=f"{ZERO:g}", point=f"{ZERO:g}")
SPANS = (8.0, 12.0, 20.0, 40.0)  # points on the left of the best that a scale can have
SCREEN = 1368  # pixels for the table on a screen of 1,440
MEAN_WIDTH, WIDE, NARROW, FACTS, LETTER = 112, 112, 60, 45, 7.6  # pixels of the parts of the table
Facts: TypeAlias = Mapping[str, Mapping[str, Cell]]
"""Heading -> encoder -> fact."""
_HUB = re.compile(r"(?:hf-hub:)?([\w-][\w.-]*/\w+[-.][\w.-]+)")


def board(data: ReportData) -> Board:
    """Return the answer of a report."""
    found = standing.conclusions(data)
    tasks = [task for of in found.values() for task in of]
    if not tasks:
        return Board(id="answer", says=((NO_RESULT, False),), sure=(), notes=data.states)
    weights = choice.equal_weights(data, tasks)
    made = choice.overall(data)
    counted = [task for task in tasks if task in weights and task not in made.uncounted]
    margin = _margin(data)
    span = _span(data, tasks, made)
    order = _order(data, made, counted or tasks)
    facts, wide, kept = _fitting(_facts(data), tasks, order)
    changes = standing.changes(data, tasks)
    moved = {change.key: change for change in changes if change.significant}
    rows = [
        BoardRow(
            encoder=name,
            mean=_mean(made, name, span),
            cells=tuple(_cell(data, task, name, span, moved.get((*task[:3], name))) for task in tasks),
            facts=tuple(of[name] for of in facts.values()),
            card=_card_address(data.specs[name]),
            about=_about(data, name),
        )
        for name in order
    ]
    compared = data.against_published
    suspects = [row for row in compared.values() if row.level_name == "suspect"]
    shown = (compared.get((*task[:3], name)) for name in order for task in tasks)
    published = [row for row in shown if row and row not in suspects and words.against_published(row)]
    return Board(
        id="answer",
        says=_headline(data, made),
        sure=tuple(_sure(data, made, counted)),
        suspects=tuple(_compared(data, suspects, "more suspect value")),
        published=tuple(_compared(data, published, "more published value")),
        notes=(*_since(data, changes), *_unread(data), *data.states),
        cards=tuple(_card(data, corpus, of) for corpus, of in found.items()),
        of=_over(counted),
        columns=_columns(data, tasks, counted, wide, kept),
        facts=tuple(facts),
        rows=tuple(rows),
        unranked=tuple(_unranked(data, made, counted, tasks)),
        ticks=tuple((f"{_x(at, span):.0f}", show.number(at, 0)) for at in (-span, 0.0)),
        margin=(f"{_x(-margin, span):.1f}", f"{_x(margin, span) - _x(-margin, span):.1f}"),
        legend="Strip: points behind the best of the column, with the interval that holds for all pairs; shaded: "
        f"within {show.count(1, 'point') if margin == 1 else f'{margin:g} points'}",
        weighable=tuple(dict.fromkeys(task.corpus for task in weights)),
        script=_script(data, tasks, weights, margin, span),
    )


# --- The recommendation, and how sure it is.


def _headline(data: ReportData, made: Choice) -> tuple[tuple[str, bool], ...]:
    names = choice.contenders(made)
    if not names:
        several = len(data.encoder_names()) > 1
        weak = made.out and all("above chance" in why for why in made.out.values())
        if weak:
            whom = "No encoder scores" if several else f"{data.encoder_names()[0]} does not score"
            return ((f"{whom} significantly above chance", False),)
        return (("No encoder has a value on every corpus: each corpus has its own answer", False),)
    if len(data.encoder_names()) == 1:
        return (("Only ", False), (names[0], True), (" was evaluated", False))
    tested = any(each.state != "not tested" for each in made.order[1:]) or len(made.order) == 1
    pieces = [("Use " if tested else "Not tested; the highest is ", False)]
    shown = names if len(names) <= NAMES + 1 else names[:NAMES]
    for at, name in enumerate(shown):
        last = at == len(shown) - 1 and len(shown) == len(names)
        pieces += [*([(" or " if last else ", ", False)] if at else []), (name, True)]
    if len(shown) < len(names):
        pieces.append((f" or one of {len(names) - len(shown)} more", False))
    return tuple(pieces)


def _sure(data: ReportData, made: Choice, counted: Sequence[Task]) -> Iterator[str]:
    """Yield two lines: the results of the recommended encoders with their test, and the evidence against others."""
    if made.order:
        yield _first_line(data, made, counted)
    more = [
        _worse(made),
        *_elsewhere(data, made, counted),
        *_trained(data, made, counted),
        *standing.not_counted(_uncounted(made, counted)),
    ]
    if line := "; ".join(filter(None, more)):
        yield f"{line}."


def _over(counted: Sequence[Task]) -> str:
    """Return what a mean is over."""
    corpora = [*dict.fromkeys(task.corpus for task in counted)]
    if len(corpora) > 1:
        return f"of {len(corpora)} corpora"
    return f"of {show.count(len(counted), 'task')}"


def _first_line(data: ReportData, made: Choice, counted: Sequence[Task]) -> str:
    first, *others = made.order
    corpora = [*dict.fromkeys(task.corpus for task in counted)]
    what = f"Mean over {len(corpora)} corpora with equal weights" if len(corpora) > 1 else _figure_of(data, counted)
    best = show.number(first.value)
    rivals = [each for each in others if each.state == "open"]
    if len(data.encoder_names()) == 1 or not others:
        return f"{what}: {best}." + (" No other encoder can be ranked." if len(data.encoder_names()) > 1 else "")
    if rivals:
        values = show.some([best, *(show.number(each.value) for each in rivals)], most=NAMES + 1)
        said = f"none is shown to be worse than {first.encoder}" if len(rivals) > 1 else "the data cannot separate them"
        widest = min(rivals, key=lambda each: each.low or 0.0)
        return f"{what}: {values}; {said} ({widest.encoder} could be {_points(widest.low)} worse)."
    if closest := next((each for each in others if each.state == "worse"), None):
        untested = [each.encoder for each in others if each.state == "not tested"]
        rest = f"; {show.some(untested)} not tested" if untested else ""
        return f"{what}: {best}, {_gap(closest)} ahead of the runner-up, {closest.encoder}{rest}."
    task = counted[0][:3]
    row, compared = data.row(*task, first.encoder), data.comparison(*task, others[0].encoder, first.encoder)
    why = "no interval holds for all pairs" if compared else "run capim compare"
    if row and row.n_clusters == 1:
        why = "with one image there is no test"
    return f"{what}: {best}; nothing was tested ({why})."


def _figure_of(data: ReportData, tasks: Sequence[Task]) -> str:
    """Return what the result of one corpus is, in words: its metric, and its tasks."""
    titles = [task.title.removesuffix(MEAN) for task in tasks]
    labels = dict.fromkeys(data.metric(task.metric).label for task in tasks)
    mean = "mean of " if len(tasks) > 1 else ""
    return f"{' and '.join(labels)}, {mean}{show.listing(titles)} ({tasks[0].corpus})"


def _points(size: float | None) -> str:
    text = show.number(abs(size or 0.0))
    return f"{text} point{'' if text == '1.0' else 's'}"


def _gap(placed: Placed) -> str:
    """Return how far an encoder is behind the first, with the interval."""
    low, high = -(placed.high or 0.0), -(placed.low or 0.0)
    return f"{_points(placed.difference)} ({show.span(low, high)})"


def _worse(made: Choice) -> str:
    """Return by how much the best of the others is worse overall, if one of several contenders is recommended."""
    worse = [each for each in made.order if each.state == "worse"]
    return f"{worse[0].encoder} is worse by {_gap(worse[0])}" if worse and len(choice.contenders(made)) > 1 else ""


def _elsewhere(data: ReportData, made: Choice, counted: Sequence[Task]) -> list[str]:
    """Return the tasks with a best encoder that is significantly better there than every recommended one."""
    names, found = choice.contenders(made), dict[str, dict[str, list[str]]]()
    for task in counted if names else ():
        best = next((row.encoder for row in standing.contenders(data, *task[:3])), "")
        states = [of.state for name in names if (of := standing.decision(data, *task[:3], name, best))]
        if best not in names and states == ["worse"] * len(names):
            found.setdefault(best, {}).setdefault(task.corpus, []).append(task.title.removesuffix(MEAN))
    said = {name: (f"{corpus} ({show.listing(of)})" for corpus, of in tasks.items()) for name, tasks in found.items()}
    return [f"{name} is better on {show.listing([*places])}" for name, places in said.items()]


def _trained(data: ReportData, made: Choice, counted: Sequence[Task]) -> list[str]:
    """Return the recommended encoders that were trained on a corpus that counts."""
    kept = {task.corpus for task in counted}
    seen = {name: [each for each in choice.trained_on(data, name) if each in kept] for name in choice.contenders(made)}
    return [f"{name} was trained on {show.some(corpora)}" for name, corpora in seen.items() if corpora]


def _uncounted(made: Choice, counted: Sequence[Task]) -> list[str]:
    """Return the names of corpora that enter no mean, and of single tasks that do not although others do."""
    kept = {task.corpus for task in counted}
    names = (f"{task.corpus}, {task.title}" if task.corpus in kept else task.corpus for task in made.uncounted)
    return [*dict.fromkeys(names)]


def _since(data: ReportData, changes: Sequence[FigureChange]) -> list[str]:
    """Return what differs from the state that the last run before left, in a line; none without such a state."""
    if data.before is None:
        return []
    real = sorted((each for each in changes if each.significant), key=lambda each: -abs(each.difference or 0.0))
    parts = []
    for title, worse in (("worse", True), ("better", False)):
        named = [_changed(data, each) for each in real if each.worse == worse]
        parts += [f"significantly {title}: {show.some(named, most=NAMES)}"] if named else []
    known = {encoder for *_, encoder in data.before.results}
    new = [name for name in data.encoder_names() if name not in known]
    parts += [f"new: {show.some(new)}"] if new else []
    if not parts and changes:
        parts.append("no headline result is significantly better or worse")
    return [f"Since the run that ended {show.moment(data.before.ended)}: {'; '.join(parts)}."] if parts else []


def _changed(data: ReportData, change: FigureChange) -> str:
    corpus, protocol, metric, encoder = change.key
    title = data.protocol(corpus, protocol).title.removesuffix(MEAN)
    return f"{encoder} on {corpus}, {title} ({words.difference(data.metric(metric), change.difference)})"


def _unread(data: ReportData) -> list[str]:
    if not (codes := standing.unread(data)):
        return []
    nobody = "no encoder scores" if len(data.encoder_names()) > 1 else "it does not score"
    names = show.some([language_name(code) for code in codes], "or", most=6)
    return [f"Languages: {nobody} significantly above chance in {names}."]


def _compared(data: ReportData, rows: Sequence[Slice], more: str) -> Iterator[str]:
    """Yield how values compare with published ones, a line each, and after the third how many ``more`` there are."""
    for row in rows[:NAMES]:
        task = f"{row.corpus}, {data.protocol(row.corpus, row.protocol).titled}, {data.metric(row.metric).label}"
        yield f"{row.encoder} on {task}: {words.against_published(row)}"
    if len(rows) > NAMES:
        yield f"{show.count(len(rows) - NAMES, more)}, under published results"


def _unranked(
    data: ReportData, made: Choice, counted: Sequence[Task], tasks: Sequence[Task]
) -> Iterator[tuple[str, str]]:
    """Return the encoders that have no mean, each with the reason."""
    ranked = {each.encoder for each in made.order}
    weak = standing.broken(data, counted or tasks)
    for name in (name for name in data.encoder_names() if name not in ranked):
        own = [task.corpus for task in tasks if name in standing.values(data, task)]
        lacking = dict.fromkeys(task.corpus for task in counted if name not in standing.values(data, task))
        n = len([task for task in counted or tasks if name in standing.values(data, task)])
        if name in weak and n and not lacking:
            yield name, f"not shown above chance on {n} of {show.count(n, 'task')}" + ": a broken model?" * bool(ranked)
        elif len({*own}) == 1 and lacking:
            yield name, f"evaluated only on {own[0]}"
        else:
            yield name, f"not evaluated on {show.some([*lacking])}" if lacking else "no headline result"


# --- A card for every corpus.


def _card(data: ReportData, corpus: str, tasks: Sequence[Task]) -> TaskCard:
    made = choice.choose(data, dict.fromkeys(tasks, 1.0), {})
    names = choice.contenders(made)
    shown = names if len(names) <= NAMES else names[: NAMES - 1]
    others = made.order[1:]
    badge, kind = ("clear", "clear") if len(names) == 1 else (f"{len(names)}-way tie", "tie")
    if not names:
        badge, kind = "nobody", "bad"
    elif len(data.encoder_names(corpus)) == 1:
        badge, kind = "only one", "none"
    elif others and all(each.state == "not tested" for each in others):
        badge, kind = "not tested", "none"
    kept = [task for task in tasks if task not in made.uncounted]
    return TaskCard(
        corpus=corpus,
        about=_languages(data, corpus),
        names=tuple(shown) if shown else ("none above chance",),
        more=len(names) - len(shown),
        badge=badge,
        kind=kind,  # type: ignore[arg-type]
        why=_why(data, kept, made) if names else _nobody(data, tasks),
    )


def _languages(data: ReportData, corpus: str) -> str:
    codes = {*texts_of(data.corpora[corpus].captions["language"])}
    return language_name(min(codes)) if len(codes) == 1 else show.count(len(codes), "language") if codes else ""


def _why(data: ReportData, tasks: Sequence[Task], made: Choice) -> str:
    first, *others = made.order
    labels = show.listing([*dict.fromkeys(data.metric(task.metric).label for task in tasks)])
    mean = f", mean of {'both directions' if len(tasks) == 2 else show.count(len(tasks), 'task')}"
    figure = f"{show.PERCENT} {labels}{mean if len(tasks) > 1 else ''}"
    rivals = [each for each in others if each.state == "open"]
    worse = next((each for each in others if each.state == "worse"), None)
    if rivals:
        values = f"{show.number(first.value)} to {show.number(rivals[-1].value)}"
        if len(rivals) == 1:
            values = f"{show.number(first.value)} and {show.number(rivals[0].value)}"
        gap = f"a gap of up to {_points(min(each.low or 0.0 for each in rivals))} is possible"
        return f"{values}{figure}; {gap}"
    if worse:
        return f"{show.number(first.value)}{figure}; {_gap(worse)} better than {worse.encoder}"
    weak = not others and any("above chance" in why for why in made.out.values())
    alone = "; no other is shown above chance" * weak
    return f"{show.number(first.value)}{figure}{alone}"


def _nobody(data: ReportData, tasks: Sequence[Task]) -> str:
    rows = [row for task in tasks for row in data.ranked(*task[:3])]
    chance = next((row.chance for row in rows if row.chance is not None), None)
    level = f" ({show.percent(chance)}{show.PERCENT})" if chance is not None else ""
    return f"chance{level}: none is shown to do better"


# --- The table.


class _Gap(NamedTuple):
    """The distance of an encoder from another, in points with a higher result better, and what the tests say of it."""

    state: str
    size: float
    low: float
    high: float


def _gap_of(data: ReportData, task: Task, name: str, rival: str) -> _Gap | None:
    row = data.comparison(*task[:3], name, rival)
    found, interval = standing.decision_of(row), None if row is None else standing.deciding_ends(row)
    if row is None or row.difference is None or found is None or interval is None:
        return None
    metric = data.metric(task.metric)
    scale = (100.0 if metric.unit == "percent" else 1.0) * (1 if metric.higher_is_better else -1)
    low, high = (scale * end for end in interval)
    return _Gap(found.state, scale * row.difference, min(low, high), max(low, high))


def _x(points: float, span: float) -> float:
    """Return the place of a difference on a strip."""
    return min(END, ZERO * (1 + points / span))


def _span(data: ReportData, tasks: Sequence[Task], made: Choice) -> float:
    """Return the points that the scale of the strips has on the left: enough for the contenders of most columns."""
    found = [-(each.difference or 0.0) for each in made.order if each.state == "open"]
    for task in tasks:
        rows = standing.contenders(data, *task[:3])
        for row in rows[1:]:
            gap = _gap_of(data, task, row.encoder, rows[0].encoder)
            if gap and gap.state != "worse":
                found.append(-gap.size)
    largest = sorted(found)[int(0.9 * (len(found) - 1))] if found else 0.0
    return next((span for span in SPANS if span >= 1.6 * largest), SPANS[-1])


def _strip(gap: _Gap, span: float) -> Strip:
    if gap.size < -span:
        return Strip(far=show.number(gap.size))
    low, point, high = (f"{max(-4.0, _x(at, span)):.1f}" for at in (gap.low, gap.size, gap.high))
    return Strip(low=low, high=high, point=point)


def _order(data: ReportData, made: Choice, counted: Sequence[Task]) -> list[str]:
    """Return the encoders of the table: those with a mean, then those above chance on a task that counts."""
    ranked = [each.encoder for each in made.order]
    above = {row.encoder for task in counted for row in standing.contenders(data, *task[:3])}
    others = [name for name in data.encoder_names() if name in above and name not in ranked]
    return [*ranked, *others] or data.encoder_names()


def _columns(
    data: ReportData, tasks: Sequence[Task], counted: Sequence[Task], wide: Sequence[Task], shown: Sequence[Task]
) -> tuple[BoardColumn, ...]:
    return tuple(
        BoardColumn(
            corpus=task.corpus,
            heading=task.title.removesuffix(MEAN).replace(" to ", " → "),
            metric=data.metric(task.metric).label + ", mean" * task.title.endswith(MEAN),
            explain=_explained(data, task, counts=task in counted),
            key=f"{task.corpus}:{task.protocol}",
            measure=task.metric,
            counts=task in counted,
            wide=task in wide,
            shown=task in shown,
        )
        for task in tasks
    )


def _fitting(facts: Facts, tasks: Sequence[Task], order: Sequence[str]) -> tuple[Facts, Sequence[Task], Sequence[Task]]:
    """Return what a screen has space for: the facts, the tasks with strips, and the tasks that are shown at all.

    Of too many tasks first the strips go, then the parameters, then the second tasks of a corpus.
    """
    without = {heading: of for heading, of in facts.items() if heading != PARAMETERS}
    firsts = [*{task.corpus: task for task in reversed(tasks)}.values()][::-1]
    ways: tuple[Sequence[Task], ...] = (tasks, firsts, ())
    for wide, kept in product(ways, (facts, without)):
        if _fixed(kept, order) + WIDE * len(wide) + NARROW * (len(tasks) - len(wide)) <= SCREEN:
            return kept, wide, tasks
    return without, (), firsts[: max(1, int((SCREEN - _fixed(without, order)) / NARROW))]


def _fixed(facts: Facts, order: Sequence[str]) -> float:
    """Return the pixels of the table without its tasks."""
    letters = (max(len(heading), *(len(fact.text) for fact in of.values())) for heading, of in facts.items())
    return LETTER * max(map(len, order)) + 14 + MEAN_WIDTH + sum(max(FACTS, LETTER * most) for most in letters)


def _explained(data: ReportData, task: Task, *, counts: bool) -> str:
    title = f"{data.metric(task.metric).label}: {data.titled(task.corpus, task.protocol)}"
    return title if counts else f"{title}; it enters no mean"


def _about(data: ReportData, name: str) -> dict[str, str]:
    """Return what is known of a model: parameters in millions, licence, and the corpora that it was trained on."""
    spec = data.specs[name]
    millions = str(spec.facts.get("parameters", ""))
    licence = "" if spec.licence.lower() in UNKNOWN else spec.licence
    return {"parameters": millions, "licence": licence, "trained_on": ", ".join(choice.trained_on(data, name))}


def _mean(made: Choice, name: str, span: float) -> BoardCell:
    placed = next((each for each in made.order if each.encoder == name), None)
    if placed is None:
        return BoardCell(text=show.ABSENT, verdict=made.out.get(name, ""))
    said, strip = {"first": "highest", "not tested": "not tested"}.get(placed.state, ""), None
    if placed.difference is not None and placed.low is not None and placed.high is not None:
        strip = _strip(_Gap(placed.state, placed.difference, placed.low, placed.high), span)
        open_ = f"could be up to {_points(placed.low)} worse than {made.order[0].encoder}"
        said = f"{_gap(placed)} worse than {made.order[0].encoder}" if placed.state == "worse" else open_
    elif placed.state == "first":
        strip = AT_BEST
    return BoardCell(
        text=show.number(placed.value), kind=placed.kind, verdict=said, strip=strip, sort=show.exact(placed.value)
    )


def _cell(data: ReportData, task: Task, name: str, span: float, moved: FigureChange | None) -> BoardCell:
    row = data.row(*task[:3], name)
    if row is None or row.value is None:
        return BoardCell(text=show.ABSENT, verdict="not evaluated" if row is None else row.reason or "no value")
    metric = data.metric(task.metric)
    interval = {}
    if row.ci_low is not None and row.ci_high is not None:
        interval = {"low": words.value(metric, row.ci_low), "high": words.value(metric, row.ci_high)}
    strip, (kind, best) = None, standing.stand(data, *task[:3], name)
    seen = task.corpus in choice.trained_on(data, name)
    published = data.against_published.get((*task[:3], name))
    if kind == "best":
        strip = AT_BEST
    elif kind != "chance" and (gap := _gap_of(data, task, name, best)):
        strip = _strip(gap, span)
    _, verdict = words.standing_of(data, task[:3], name, unit=False)
    since = f"{words.difference(metric, moved.difference)} since the run before" if moved else ""
    remarks = (verdict, _hidden(data, task, name), "trained on this corpus" * seen, since)
    return BoardCell(
        text=words.value(metric, row.value),
        **interval,
        kind=kind,
        verdict="; ".join(filter(None, remarks)),
        published=words.against_published(published) if published else "",
        strip=strip,
        sort=show.exact(row.value if metric.higher_is_better else -row.value),
        link=failures_address(data, row),
        seen=seen,
        moved="" if moved is None else "▼" if moved.worse else "▲",
    )


def _hidden(data: ReportData, task: Task, name: str) -> str:
    """Return what a mean over languages hides: in how many an encoder is not shown above chance."""
    protocol = Protocol.of(task.protocol)
    if protocol.kind != "mean":
        return ""
    codes = standing.languages(data, task.corpus)
    cells = (standing.language_cells(data, task.corpus, name, code, protocol.direction) for code in codes)
    weak = sum(any(map(standing.chance_of, of)) for of in cells)
    return f"{weak} of {show.count(len(codes), 'language')} not shown above chance" if weak else ""


def _facts(data: ReportData) -> Facts:
    """Return facts about the models: heading -> encoder -> fact, without headings that have none."""
    found: dict[str, dict[str, Cell]] = {}
    for each in choice.limits(data):
        sorts = {name: "" if each.levels else show.exact(value) for name, value in each.values.items()}
        known = {name: Cell(text=text, sort=sorts.get(name, "")) for name, text in each.texts.items()}
        if known:
            found[each.heading] = {name: known.get(name, Cell(text=show.ABSENT)) for name in data.encoder_names()}
    return found


def _card_address(spec: EncoderSpec) -> str:
    """Return the address of a model's card: the one that is known, or that on the hub; empty where it has none.

    The names of open_clip have the form of a repository, too, but a tag has neither a hyphen nor a full stop.

    Examples:
        >>> about = {"name": "x", "adapter": "some", "dim": 8}
        >>> _card_address(EncoderSpec(checkpoint="hf-hub:apple/DFN5B-CLIP", **about))
        'https://huggingface.co/apple/DFN5B-CLIP'
        >>> _card_address(EncoderSpec(checkpoint="ViT-L-14/laion2b_s32b", **about))
        ''
    """
    if (link := str(spec.facts.get("link", ""))).startswith(("https://", "http://")):
        return link
    found = _HUB.fullmatch(spec.checkpoint)
    return f"{HUB}{found[1]}" if found and spec.has_weights else ""


def _margin(data: ReportData) -> float:
    margins = {row.margin for row in data.comparisons if row.margin and data.metric(row.metric).unit == "percent"}
    return 100 * min(margins) if margins else 1.0


def _script(
    data: ReportData, tasks: Sequence[Task], weights: Mapping[Task, float], margin: float, span: float
) -> dict[str, object]:
    """Return values, chance and tests of all pairs by their places in ``names`` and ``tasks``."""
    names, pairs = data.encoder_names(), []
    for task in tasks:
        of = {}
        for (i, a), (j, b) in combinations(enumerate(names), 2):
            if gap := _gap_of(data, task, a, b):
                of[f"{i} {j}"] = [gap.state, *(float(f"{x:.5g}") for x in (gap.size, gap.low, gap.high))]
        pairs.append(of)
    scale = {task: 100.0 if data.metric(task.metric).unit == "percent" else 1.0 for task in tasks}
    return {
        "names": names,
        "shared": choice.shared(data),
        "margin": margin,
        "span": span,
        "tasks": [{"corpus": task.corpus, "title": task.title, "weight": weights.get(task, 0.0)} for task in tasks],
        "values": [
            [None if (v := standing.values(data, task).get(name)) is None else scale[task] * v for name in names]
            for task in tasks
        ],
        "weak": [[bool(standing.at_chance(data, *task[:3], name)) for name in names] for task in tasks],
        "pairs": pairs,
    }
