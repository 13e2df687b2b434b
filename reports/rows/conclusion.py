"""What the tests conclude for each corpus: one encoder, several that they do not separate, or nothing tested."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Literal, TypeAlias

from capim.reports.rows.languages import cross_lingual, languages
from capim.reports.rows.report_data import ReportData
from capim.reports.rows.standing import (
    SUM,
    Overall,
    Task,
    chance_of,
    headline_tasks,
    language_cells,
    overall,
    reads,
    values,
)

Outcome: TypeAlias = Literal["one", "equivalent", "undecided", "untested", "alone", "chance"]


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """The conclusion on one corpus.

    Attributes:
        corpus: Its name.
        tasks: Its headline tasks.
        outcome: ``one``: better than every other encoder over all tasks; ``equivalent``: no other is better, and they
            do not differ by more than the margin; ``undecided``: the tests separate no best; ``untested``: not every
            pair was tested; ``alone``: a single encoder; ``chance``: no encoder is better than chance in any task.
        names: The best encoder; or all that none is better than.
        rival: Of the other encoders, the one whose figures come closest to the best one's; empty where there is none.
        order: All encoders with a value in every task, best first.
    """

    corpus: str
    tasks: tuple[Task, ...]
    outcome: Outcome
    names: tuple[str, ...]
    rival: str
    order: tuple[str, ...]


def conclusions(data: ReportData) -> list[Conclusion]:
    """One conclusion per corpus with headline results: search first, then languages, then compositional corpora."""
    found = [made for corpus in data.corpus_names() if (made := _conclude(data, corpus)) is not None]
    return sorted(found, key=_kind)


def leading(found: list[Conclusion]) -> list[Conclusion]:
    """The conclusions that the recommendation is made of: those of the first kind that there is."""
    return [c for c in found if _kind(c) == _kind(found[0])]


def _kind(conclusion: Conclusion) -> int:
    compositional = conclusion.tasks[0].metric in ("winoground_group", "pair_accuracy")
    return 2 if compositional else 1 if conclusion.tasks[0].protocol.endswith("/*/*") else 0


def _conclude(data: ReportData, corpus: str) -> Conclusion | None:
    tasks = tuple(headline_tasks(data, corpus))
    by_task = [values(data, task) for task in tasks]
    names = [name for name in data.encoder_names(corpus) if tasks and all(name in of for of in by_task)]
    if not names:
        return None
    both = {row["encoder"]: row["value"] for row in data.ranked(corpus, *SUM)}
    if any(both.get(name) is None for name in names):
        both = {name: sum(of[name] for of in by_task) for name in names}
    order = sorted(names, key=lambda name: (-both[name], name))
    outcome, best = _best(data, tasks, order)
    others = [name for name in order if name != best[0]]
    return Conclusion(
        corpus=corpus,
        tasks=tasks,
        outcome=outcome,
        names=best,
        rival=min(others, key=lambda name: min(of[best[0]] - of[name] for of in by_task)) if others else "",
        order=tuple(order),
    )


def _best(data: ReportData, tasks: tuple[Task, ...], order: list[str]) -> tuple[Outcome, tuple[str, ...]]:
    if all(chance_of(data.row(*task[:3], name)) for task in tasks for name in order):
        return "chance", tuple(order)
    if len(order) == 1:
        return "alone", tuple(order)
    pairs: dict[tuple[str, str], Overall] = {(a, b): overall(data, tasks, a, b) for a, b in permutations(order, 2)}
    for name in order:
        if all(pairs[name, other] == "better" for other in order if other != name):
            return "one", (name,)
    if "untested" in pairs.values():
        return "untested", (order[0],)
    unbeaten = tuple(name for name in order if all(pairs[name, other] != "worse" for other in order if other != name))
    kept = unbeaten or tuple(order)
    same = len(kept) > 1 and all(pairs[pair] == "equivalent" for pair in combinations(kept, 2))
    return ("equivalent" if same else "undecided"), kept


def in_order(data: ReportData, found: list[Conclusion]) -> list[str]:
    """The encoders as the first conclusion orders them, then the others by name."""
    first = [name for conclusion in found[:1] for name in (*conclusion.names, *conclusion.order)]
    return list(dict.fromkeys([*first, *data.encoder_names()]))


def unread(data: ReportData) -> list[str]:
    """The languages that no encoder reads: half of its results in them, or more, are not better than chance."""
    found: dict[str, bool] = {}
    for corpus in data.corpus_names(lambda protocol: cross_lingual(protocol) is not None):
        for language in languages(data, corpus):
            names = [name for name in data.encoder_names(corpus) if language_cells(data, corpus, name, language)]
            nobody = not any(reads(data, corpus, name, language) for name in names)
            found[language] = nobody and bool(names) and found.get(language, True)
    return sorted(language for language, nobody in found.items() if nobody)
