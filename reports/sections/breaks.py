"""Where it breaks: the worst slices, everything that is not better than chance, and three failures with pictures."""

from __future__ import annotations

import dataclasses

from capim.reports import format as show
from capim.reports.elements.page import Case, Cases, Cell, Notice, Section, Table
from capim.reports.elements.tables import absent, metric_title, numbers, pivot, texts
from capim.reports.rows.gallery import SelectedQuery
from capim.reports.rows.languages import cross_lingual, language_name
from capim.reports.rows.names import DIRECTION_TITLES, plain_title
from capim.reports.rows.report_data import ReportData, Row, goodness
from capim.reports.rows.standing import chance_of, conclusions, headline_tasks, in_order
from capim.reports.sections.cases import case_of
from capim.reports.sections.parts import part_label, slice_cell
from capim.tasks.analyses.table import headings

WORST = 3
PARTS = ("complexity", "supercategory", "category", "length", "ordinal", "tags", "truncated-captions")
NAMED = 12  # lines about results at chance
CHECKED = frozenset(
    {"R@1", "nDCG@5", "nDCG@10", "pair_accuracy", "winoground_text", "winoground_image", "winoground_group"}
)


def section(data: ReportData) -> Section:
    """The parts that have anything to show, about the recommended encoder first."""
    found = conclusions(data)
    order = in_order(data, found)
    made = [_at_chance(data, order), _worst_slices(data, order), _failures(data, order)] if found else []
    blocks = tuple(block for block in made if block is not None)
    return Section(id="breaks", title="Where it breaks", lead="", blocks=blocks)


def _worst_slices(data: ReportData, order: list[str]) -> Table | None:
    """The lowest slices of the first encoder that has any, with the same of every other encoder."""
    tasks = {t[:3]: t for corpus in data.corpus_names() for t in headline_tasks(data, corpus)}
    parts: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in data.slices:
        key = row["corpus"], row["protocol"], row["metric"]
        apart = row["level_name"] == "without" and row["analysis"] != "complexity"
        part = row["analysis"] in PARTS and row["level_name"] != "difference" and not apart
        if key in tasks and part and row["value"] is not None and row["ci_low"] is not None:
            level = row["level_name"]
            named = {"with": row["feature"], "without": f"without {row['feature']}"}
            name = named.get(level) or part_label(row["feature"], level)
            parts.setdefault((*key, row["analysis"], name), {})[row["encoder"]] = row
    encoders = [name for name in order if any(name in of for of in parts.values())]
    if not encoders:
        return None
    first = encoders[0]

    def good(row: Row) -> float:
        [like, *_] = data.ranked(row["corpus"], row["protocol"], row["metric"])
        return goodness({**row, "lower_is_better": like["lower_is_better"]})

    worst = sorted((key for key, of in parts.items() if first in of), key=lambda key: (good(parts[key][first]), key))

    def best_other(key: tuple[str, ...]) -> Cell:
        others = [row for name, row in parts[key].items() if name != first]
        best = max(others, key=lambda row: (good(row), row["encoder"]), default=None)
        return absent() if best is None else dataclasses.replace(slice_cell(best), state=best["encoder"])

    def slice_of(key: tuple[str, ...]) -> Cell:
        where = f"{headings('slices')[key[3]]}: {tasks[key[:3]].title}, {key[0]}"  # type: ignore[index]
        return Cell(text=key[4], note=f"{where}; {show.count(parts[key][first]['n_queries'], 'query', 'queries')}")

    return pivot(
        "answer-slices",
        f"The worst {show.count(min(WORST, len(worst)), 'slice')} of {first}",
        worst[:WORST],
        texts("Slice", slice_of),
        numbers(first, lambda key: slice_cell(parts[key][first])),
        *([numbers("best other", best_other)] if len(encoders) > 1 else []),
        note="Percent with interval; slices with too few images for an interval are left out.",
        dense=True,
    )


def _at_chance(data: ReportData, order: list[str]) -> Notice | None:
    """A line for all results on a corpus with the same encoders at or below chance; languages are joined."""
    found: dict[tuple[str, str, str], dict[str, set[str]]] = {}  # corpus, part, state: kind of result to its encoders
    for row in data.results:
        weak = chance_of(row)
        if row["metric"] in CHECKED and not set("@*+") & set(row["protocol"]) and weak:
            parts = cross_lingual(row["protocol"])
            what = language_name(parts.language) if parts else plain_title(row["protocol"])
            kind = DIRECTION_TITLES[parts.direction] if parts else metric_title(row["metric"])
            found.setdefault((row["corpus"], what, weak), {}).setdefault(kind, set()).add(row["encoder"])
    joined: dict[tuple[str, str, tuple[str, ...], str], list[str]] = {}
    for (corpus, what, state), kinds in found.items():
        for names in dict.fromkeys(tuple(n for n in order if n in of) for of in kinds.values()):
            same = sorted((kind for kind, of in kinds.items() if of == set(names)), reverse=True)
            joined.setdefault((corpus, state, names, show.listing(same)), []).append(what)
    if not joined:
        return None
    items = []
    for (corpus, state, names, same_kinds), whats in sorted(joined.items(), key=lambda i: (-len(i[0][2]), i[0])):
        of_whom = "every encoder" if len(names) == len(order) > 1 else show.some(list(names))
        items.append(f"{show.some(_shortened(whats))}, {same_kinds} ({corpus}): {state} for {of_whom}")
    if len(items) > NAMED:
        items = [*items[:NAMED], f"and {show.count(len(items) - NAMED, 'more line')}, in the tables below"]
    return Notice(title="Not better than chance", items=tuple(items), mark="bad")


def _shortened(whats: list[str]) -> list[str]:
    """What is said, each word once.

    Examples:
        >>> _shortened(["judged queries", "judged queries in German"])
        ['judged queries', 'in German']
    """
    wholes = [f"{what} " for what in whats]
    return [next((what.removeprefix(whole) for whole in wholes if what.startswith(whole)), what) for what in whats]


def _failures(data: ReportData, order: list[str]) -> Cases | None:
    """Three captions whose image the first encoder misses by most places: translations last, no ambiguous miss."""
    missed = {
        number: rank
        for number, query in enumerate(data.queries, 1)
        if query.direction == "t2i" and (rank := _rank(data, query, order[0])) > 1
    }
    translated = {number for number in missed if cross_lingual(data.queries[number - 1].protocol) is not None}
    chosen = sorted(missed, key=lambda number: (number in translated, -missed[number], number))[:WORST]
    if not chosen:
        return None
    return Cases(
        id="answer-failures",
        caption=f"{show.count(len(chosen), 'failure')} of {order[0]}",
        cases=tuple(_case(data, number, order[:WORST]) for number in chosen),
        note="The picture that belongs to the text, then what each encoder puts first. More under failures.",
    )


def _case(data: ReportData, number: int, encoders: list[str]) -> Case:
    """A case with the answers of some encoders only."""
    query = data.queries[number - 1]
    case = case_of(data, query, number)
    answers = tuple(answer for answer in case.answers if answer.encoder in encoders)
    return dataclasses.replace(case, answers=answers, about=f"{plain_title(query.protocol)} · {query.corpus}")


def _rank(data: ReportData, query: SelectedQuery, encoder: str) -> int:
    """The rank of the relevant image; 0 where the encoder has none, or where another image may be right too."""
    if data.ambiguous.get((query.corpus, query.protocol, encoder, query.query_id)):
        return 0
    return next((ranked.rank_best for ranked in query.lists if ranked.encoder == encoder), 0)
