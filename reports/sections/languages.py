"""Languages: R@1 of every encoder in every language as a matrix, each with its interval and what the tests say."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from capim.reports.elements.page import Cell, Section, Table
from capim.reports.elements.tables import numbers, pivot, result_cell, shaded, texts
from capim.reports.rows import standing
from capim.reports.rows.report_data import R1, ReportData
from capim.tasks.protocols import Protocol, language_id, language_name

MOST_COLUMNS = 12  # of a matrix with languages as columns; more of them become rows


def section(data: ReportData) -> Section:
    """Return one matrix for every corpus and translator; those after the first translator are folded."""
    blocks = []
    for corpus in data.corpus_names(lambda p: Protocol.of(p).is_of_language):
        for at, way in enumerate(standing.translators(data, corpus)):
            table = matrix(data, corpus, way)
            blocks.append(replace(table, folded=table.caption) if at else table)
    return Section(id="languages", title="Languages", blocks=tuple(blocks))


def language_parts(data: ReportData, corpus: str) -> list[tuple[str, str]]:
    """Return the languages of a corpus, each with every translator that has results in it."""
    codes = standing.languages(data, corpus)
    return [(code, translator) for code in codes for translator in standing.translators(data, corpus, code)]


def matrix(data: ReportData, corpus: str, way: str) -> Table:
    """Return the encoders by the languages of one translator, or the other way round where these are many."""
    parts = language_parts(data, corpus)
    codes = sorted((code for code, translator in parts if translator == way), key=language_name)
    ranked = [row.encoder for row in data.ranked(corpus, language_id("t2i"), R1)]
    names = list(dict.fromkeys([*ranked, *data.encoder_names(corpus)]))

    def cell(name: str, code: str) -> Cell:
        figure = corpus, language_id("t2i", code, way), R1
        made = result_cell(data, figure, name)
        return shaded(made, float(made.sort)) if made.sort and made.state != "chance" else made

    title = f"{corpus}, text → image, R@1, percent" + f" ({way})" * (len(standing.translators(data, corpus)) > 1)
    note = "Bold: highest, or not shown to be worse than it. Beside it: the interval."
    id_ = f"languages-{corpus}-{way}"
    if len(codes) <= MOST_COLUMNS:
        columns = [numbers(language_name(code), partial(cell, code=code)) for code in codes]
        return pivot(id_, title, names, texts("Encoder", str), *columns, note=note, matrix=True)
    of = [numbers(name, partial(cell, name)) for name in names]
    return pivot(id_, title, codes, texts("Language", language_name), *of, note=note, matrix=True)
