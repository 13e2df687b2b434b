"""A decision: encoders by a mean over tasks with the user's weights, within limits of cost and of licence.

The interval of a difference of two means is made of the intervals of the tasks that hold for all pairs together:
``low = d - sqrt(sum over pairs of corpora a, b of r_ab h_a h_b)`` with ``h`` the sum over the tasks of a corpus of
``weight * (d_task - low_task)``, and so for the other end. ``r`` is 1 for a corpus with itself: its tasks count as
wholly dependent. For two corpora it is the greatest correlation that their common photographs allow (:func:`shared`).
Both can only make the interval wider. ``templates/page.js`` (``ranking``) has the same formulas for a reader who
changes the weights.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

from capim.reports import format as show
from capim.reports.elements.page import Kind
from capim.reports.rows.report_data import R1, Detail, ReportData
from capim.reports.rows.speed import bytes_per_image, image_rate
from capim.reports.rows.standing import Task, broken, conclusions, counted_tasks, deciding_ends, headline_tasks, values
from capim.store.errors import RequestError, unknown

COLUMNS = ("encoder", "mean", "difference", "low", "high", "is")  # of a choice, as it is printed
UNSEEN = "unseen"  # the limit that leaves out encoders that were trained on a corpus with a weight
PARAMETERS = "parameters"
UNKNOWN = frozenset({"", "unknown", "not specified"})  # licences
LEVELS = {"commercial-use": 1.0, "free": 2.0}
"""Limits on a licence: commercial use, or a free licence (use, change and pass on, for any purpose)."""
_ALLOWS = {
    "free": "apache-2.0 mit bsd-2-clause bsd-3-clause isc 0bsd unlicense cc0-1.0 cc-by-4.0 cc-by-sa-4.0 mpl-2.0 "
    "lgpl-3.0 gpl-2.0 gpl-3.0 agpl-3.0 openmdw-1.1",
    "commercial-use": "ours gemma openrail openrail++ creativeml-openrail-m bigscience-openrail-m",
}
_ALLOWED = {name: LEVELS[level] for level, names in _ALLOWS.items() for name in (level, *names.split())}


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A fact about models that can be limited: its key on the command line, its name, and its heading on the board.

    ``values`` and ``texts`` are by encoder, without those of which nothing is known. ``levels``: the values that have a
    word, where a bound is one of them.
    """

    key: str
    name: str
    heading: str
    values: Mapping[str, float]
    texts: Mapping[str, str]
    at_least: bool = False
    levels: Mapping[str, float] = field(default_factory=dict)

    def broken(self, encoder: str, bound: float) -> str:
        """Return why an encoder does not keep the limit; empty where it does."""
        if (known := self.values.get(encoder)) is None:
            return f"{self.name} not known"
        keeps = known >= bound if self.at_least else known <= bound
        return "" if keeps else f"{self.name}: {self.texts[encoder]}"


@dataclass(frozen=True, kw_only=True)
class Placed:
    """One encoder of a choice: its weighted mean, and the difference to the first with its interval, in points.

    ``open``: not shown to be worse than the first; ``not tested``: a task with a weight has no test of the two, or no
    interval that holds for all pairs.
    """

    encoder: str
    value: float
    state: Literal["first", "worse", "open", "not tested"]
    difference: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def kind(self) -> Kind:
        """How it is drawn."""
        kinds: dict[str, Kind] = {"first": "best", "open": "open", "worse": "worse"}
        return kinds.get(self.state, "untested")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The encoders within the limits, best first; those without, with the reason; and how far each weight can go.

    ``same``: the least and the greatest share of a task with which the first place stays the same, where the shares of
    the others stay in proportion. ``uncounted``: tasks that enter no mean (:func:`standing.counted_tasks`).
    """

    order: tuple[Placed, ...]
    out: Mapping[str, str]
    same: Mapping[Task, tuple[float, float]]
    uncounted: tuple[Task, ...] = ()


def limits(data: ReportData) -> list[Limit]:
    """Return the facts about encoders that can be limited, in the order of the board, without those that nobody has."""
    rates = {name: speed.rate("forward") for name, speed in image_rate(data).items()}
    sizes = bytes_per_image(data)
    specs = data.specs.items()
    dims = {name: float(spec.dim if name in sizes else spec.facts.get("dim", 0)) for name, spec in specs}
    dims = {name: dim for name, dim in dims.items() if dim}
    millions = {name: float(spec.facts["parameters"]) for name, spec in specs if "parameters" in spec.facts}
    counts = {name: show.number(dim, 0) for name, dim in dims.items()}
    towers = {name: f"{show.significant(number)} M" for name, number in millions.items()}
    speeds = {name: show.significant(rate) for name, rate in rates.items()}
    licences = {name: spec.licence for name, spec in specs if spec.licence.lower() not in UNKNOWN}
    levels = {name: level for name, text in licences.items() if (level := licence_level(text)) is not None}
    texts = {name: show.size(size) for name, size in sizes.items()}
    found = [
        Limit(key="parameters", name="parameters", heading=PARAMETERS, values=millions, texts=towers),
        Limit(key="dim", name="components of a vector", heading="dim", values=dims, texts=counts),
        Limit(key="bytes", name="size of an image", heading="per image", values=sizes, texts=texts),
        Limit(key="rate", name="images per second", heading="images/s", values=rates, texts=speeds, at_least=True),
        Limit(
            key="licence",
            name="licence",
            heading="licence",
            values=levels,
            texts=licences,
            at_least=True,
            levels=LEVELS,
        ),
    ]
    return [limit for limit in found if limit.texts or limit.levels]


def licence_level(text: str) -> float | None:
    """Return the highest of :data:`LEVELS` that a licence keeps, 0 for none, and of several joined by "and" the least.

    None where one is not known, which mteb calls "not specified".

    Examples:
        >>> [licence_level(text) for text in ("Apache-2.0", "MIT and ours", "CC-BY-NC-4.0", "MIT and unknown")]
        [2.0, 1.0, 0.0, None]
    """
    parts = [part.strip().lower() for part in text.split(" and ")]
    not_known = UNKNOWN.intersection(parts)
    return None if not_known else min(_ALLOWED.get(part, 0.0) for part in parts)


def tasks_to_weigh(data: ReportData) -> list[Task]:
    """Return the headline tasks of all corpora with results in percent: only these have a common mean."""
    return [task for task in headline_tasks(data) if data.metric(task.metric).unit == "percent"]


def equal_weights(data: ReportData, tasks: Sequence[Task]) -> dict[Task, float]:
    """Return the weights of the headline tasks: corpora alike, in each its tasks alike; copies of a corpus count once.

    Only results in percent have a mean. Tasks that enter no mean have a weight, with which a choice names them.
    """
    stored = json.loads(data.rankings[0].corpora) if data.rankings else []
    copies = {name for corpus in stored for name in corpus["copies"]}
    percent = [t for t in tasks if data.metric(t.metric).unit == "percent" and t.corpus not in copies]
    counted = counted_tasks(data, percent) or percent
    size = {task.corpus: sum(each.corpus == task.corpus for each in counted) for task in percent}
    return {task: 1 / max(1, size[task.corpus]) for task in percent}


def shared(data: ReportData) -> dict[str, dict[str, float]]:
    """Return for pairs of corpora the greatest correlation of their means, 0 to 1, by their common photographs.

    It is ``k / sqrt(n m)`` for corpora of ``n`` and ``m`` photographs with ``k`` of them in both. The numbers are those
    of the ranking over the corpora; without a ranking nothing is known to be shared.
    """
    ranked = json.loads(data.rankings[0].corpora) if data.rankings else []
    named = [(name, of) for of in ranked for name in (of["corpus"], *of["copies"])]

    def correlation(one: Detail, other: Detail) -> float:
        n = one["photographs"] if one is other else one["shared"].get(other["corpus"], 0)
        return float(n / math.sqrt(one["photographs"] * other["photographs"])) if n else 0.0

    return {a: {b: correlation(one, other) for b, other in named} for a, one in named}


def trained_on(data: ReportData, name: str) -> list[str]:
    """Return the corpora of a report that the training data of an encoder hold, as far as that is known."""
    known = {part.strip() for part in str(data.specs[name].facts.get("trained_on", "")).split(",")}
    return [corpus for corpus in data.corpus_names() if corpus in known]


def contenders(made: Choice) -> list[str]:
    """Return the first of a choice and those that no test shows to be worse."""
    return [each.encoder for each in made.order if each.state in ("first", "open")]


def overall(data: ReportData) -> Choice:
    """Return the choice with equal weights, which a report recommends; only of results in percent."""
    tasks = [task for of in conclusions(data).values() for task in of]
    weights = equal_weights(data, tasks)
    return choose(data, weights, {}) if weights else Choice(order=(), out={}, same={})


def best_first(data: ReportData) -> list[str]:
    """Return the encoders of a report: those with a mean, best first, then the others by name."""
    return [*dict.fromkeys([*(each.encoder for each in overall(data).order), *data.encoder_names()])]


def weights_of(data: ReportData, texts: Iterable[str]) -> dict[Task, float]:
    """Return the weights that ``CORPUS=70``, ``CORPUS:PROTOCOL=70`` or ``CORPUS:t2i/de=70`` mean.

    A corpus is divided equally among its headline tasks; a language, equally among its translators.

    Raises:
        RequestError: A text that is no weight, an unknown name, or weights that are all 0.
    """
    tasks, found = tasks_to_weigh(data), dict[Task, float]()
    named = {f"{task.corpus}:{task.protocol}": [task] for task in tasks} | _of_languages(data)
    names, given = [*dict.fromkeys(task.corpus for task in tasks), *named], dict[str, float]()
    for text in texts:
        name, weight = _number(text, "weights", "shop-de=70 or shop-de:t2i/all=70")
        if name in given:
            raise RequestError(f"weights: {name} is given twice, {given[name]:g} and {weight:g}: leave one of them")
        given[name] = weight
        same = named.get(name) or [task for task in tasks if name == task.corpus]
        if not same:
            raise RequestError(f"weights: {unknown('task', name, names)}")
        found |= {task: found.get(task, 0.0) + weight / len(same) for task in same}
    if not any(found.values()):
        example = next(iter(names), "CORPUS")
        raise RequestError(f"weights: expected at least one above 0, such as --weights {example}=100")
    return found


def _of_languages(data: ReportData) -> dict[str, list[Task]]:
    """``CORPUS:t2i/de`` -> R@1 of the captions of a language in one direction, by every translator."""
    found: dict[str, list[Task]] = {}
    for corpus in data.corpus_names():
        for of in (data.protocol(corpus, id_) for id_ in data.protocols(corpus)):
            if of.is_of_language and data.ranked(corpus, of.id, R1):
                task = Task(corpus, of.id, R1, of.title)
                found.setdefault(f"{corpus}:{of.direction}/{of.language}", []).append(task)
                found[f"{corpus}:{of.id}"] = [task]
    return found


def bounds_of(data: ReportData, texts: Iterable[str]) -> dict[str, float]:
    """Return the bounds that ``bytes=1024``, ``licence=free`` or ``unseen`` mean, by key of :func:`limits`, or UNSEEN.

    Raises:
        RequestError: A text that is no bound, or a limit on a fact that no encoder has.
    """
    known, found = {limit.key: limit for limit in limits(data)}, dict[str, float]()
    for text in texts:
        if text == UNSEEN:
            found[UNSEEN] = 0.0
            continue
        name, _, bound = text.partition("=")
        levels = known[name].levels if name in known else {}
        if levels and bound not in levels:
            raise RequestError(f"limits: {unknown(name, bound, levels)}")
        name, number = (name, levels[bound]) if levels else _number(text, "limits", "bytes=1024")
        if name not in known:
            raise RequestError(f"limits: {unknown('limit', name, [*known, UNSEEN])}")
        if found.setdefault(name, number) != number:
            raise RequestError(f"limits: {name} is given twice, as {found[name]:g} and {number:g}: leave one of them")
    return found


def _number(text: str, option: str, example: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not name or not 0 <= value < math.inf:
        raise RequestError(f"{option}: {text!r}: expected a name and a number from 0, such as {example}")
    return name, value


def choose(data: ReportData, weights: Mapping[Task, float], bounds: Mapping[str, float]) -> Choice:
    """Return the choice with weights of tasks, scaled to a sum of 1, and with bounds of :func:`limits` by key.

    Tasks that enter no mean have no weight, unless none of them enters one: then nobody is ranked.
    """
    given = [task for task, weight in weights.items() if weight > 0]
    kept = counted_tasks(data, given) or given
    total = math.fsum(weights[task] for task in kept)
    share, uncounted = {task: weights[task] / total for task in kept}, tuple(t for t in given if t not in kept)
    known = {task: {name: 100 * value for name, value in values(data, task).items()} for task in share}
    out = {name: why for name in data.encoder_names() if (why := "; ".join(_out(data, known, bounds, name)))}
    left = [name for name in data.encoder_names() if name not in out]
    mean = {name: math.fsum(weight * known[task][name] for task, weight in share.items()) for name in left}
    order = sorted(left, key=lambda name: (-mean[name], name))
    if not order:
        return Choice(order=(), out=out, same={}, uncounted=uncounted)
    together = shared(data)
    placed = [_placed(data, share, together, name, order[0], mean[name]) for name in order]
    same = {task: _stable(known, share, task, order) for task in share} if len(share) > 1 else {}
    return Choice(order=tuple(placed), out=out, same=same, uncounted=uncounted)


def _out(
    data: ReportData, known: Mapping[Task, Mapping[str, float]], bounds: Mapping[str, float], name: str
) -> Iterator[str]:
    yield from (f"not evaluated on {task.corpus}, {task.title}" for task, of in known.items() if name not in of)
    if name in broken(data, [*known]):
        yield "not shown above chance on any task with a weight"
    seen = [corpus for corpus in trained_on(data, name) if any(task.corpus == corpus for task in known)]
    if UNSEEN in bounds and seen:
        yield f"trained on {show.listing(seen)}"
    for limit in limits(data) if bounds else ():
        if limit.key in bounds and (why := limit.broken(name, bounds[limit.key])):
            yield why


def _placed(
    data: ReportData,
    share: Mapping[Task, float],
    together: Mapping[str, Mapping[str, float]],
    name: str,
    first: str,
    mean: float,
) -> Placed:
    if name == first:
        return Placed(encoder=name, value=mean, state="first")
    difference, below, above = 0.0, dict[str, float](), dict[str, float]()
    for task, weight in share.items():
        row = data.comparison(*task[:3], name, first)
        interval = None if row is None else deciding_ends(row)
        if row is None or row.difference is None or interval is None:
            return Placed(encoder=name, value=mean, state="not tested")
        size, (least, most) = row.difference, interval
        if row.lower_is_better:
            size, least, most = -size, -most, -least
        difference += 100 * weight * size
        below[task.corpus] = below.get(task.corpus, 0.0) + 100 * weight * (size - least)
        above[task.corpus] = above.get(task.corpus, 0.0) + 100 * weight * (most - size)
    low, high = difference - _spread(below, together), difference + _spread(above, together)
    state: Literal["worse", "open"] = "worse" if high < 0 else "open"
    return Placed(encoder=name, value=mean, state=state, difference=difference, low=low, high=high)


def _spread(halves: Mapping[str, float], together: Mapping[str, Mapping[str, float]]) -> float:
    """Return the half of an interval of a sum of corpora, from those of each and their correlations."""
    squares = (
        x * y * (1.0 if a == b else together.get(a, {}).get(b, 0.0))
        for (a, x), (b, y) in product(halves.items(), repeat=2)
    )
    return math.sqrt(math.fsum(squares))


def _stable(
    known: Mapping[Task, Mapping[str, float]], share: Mapping[Task, float], task: Task, order: list[str]
) -> tuple[float, float]:
    """Return the shares of a task between which ``order`` has the same first place; means are linear in the share."""
    low, high = 0.0, 1.0
    total = math.fsum(weight for other, weight in share.items() if other != task)  # 1 - share[task] may be 0
    rest = {other: weight / total for other, weight in share.items() if other != task}
    for name in order[1:]:
        here = known[task][order[0]] - known[task][name]
        there = math.fsum(weight * (known[other][order[0]] - known[other][name]) for other, weight in rest.items())
        if here < 0 <= there:
            high = min(high, there / (there - here))
        elif there < 0 <= here:
            low = max(low, there / (there - here))
    return low, high
