"""Builds a report from stored rows: the sections in reading order, and the facts above them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from capim.reports import format as show
from capim.reports.elements.page import Report, Section
from capim.reports.elements.thumbnails import data_uris
from capim.reports.rows.report_data import ReportData
from capim.reports.sections import (
    ablations,
    answer,
    breaks,
    compositional,
    differences,
    directions,
    failures,
    gate,
    leaderboard,
    multilingual,
    provenance,
    ranking,
    sentence,
    slices,
    terms,
    throughput,
)
from capim.store.plugins import Plugin, Table

log = logging.getLogger(__name__)

COLOPHON = (
    "Made by capim from stored rows; the same rows give the same bytes. All numbers are also in results.json "
    "next to this file."
)
Build: TypeAlias = Callable[[ReportData], Section]
_OWN: dict[str, Build] = {
    "answer": answer.section,
    "breaks": breaks.section,
    "languages": answer.in_languages,
    "ranking": ranking.section,
    "gate": gate.section,
    "failures": failures.section,
    "leaderboard": leaderboard.section,
    "differences": differences.section,
    "directions": directions.section,
    "compositional": compositional.section,
    "multilingual": multilingual.section,
    "slices": slices.section,
    "ablations": ablations.section,
    "throughput": throughput.section,
    "provenance": provenance.section,
    "skips": provenance.skips,
}


def _of_package(plugin: Plugin, found: object) -> Build:
    """The section of a package; if it fails, the report is made without it, and a line in the log gives the reason."""
    if not callable(found):
        raise TypeError(f"expected a function section(data), got {type(found).__name__}")

    def section(data: ReportData) -> Section:
        try:
            if not isinstance(made := found(data), Section):
                raise TypeError(f"expected a capim.reports.elements.page.Section, got {type(made).__name__}")
        except Exception as error:  # noqa: BLE001 - code of another package
            log.error("%s: the report is made without this section (%s: %s)", plugin, type(error).__name__, error)
            return Section(id="", title="", lead="", blocks=())
        return made

    return section


SECTIONS = Table("capim.sections", _OWN, _of_package)


def report_of(data: ReportData) -> Report:
    """The report of the rows; the same rows give the same report."""
    encoders, corpora = data.encoder_names(), data.corpus_names()
    newest = max(r["created"] for r in data.results)
    said = sentence.answer(data)[0]
    sections = [section for build in SECTIONS.values() if (section := build(data)).blocks]
    strip, explained = terms.explained(data, said, sections)
    return Report(
        title="Image–caption retrieval",
        subtitle=f"{_named(encoders, 'encoder')} on {_named(corpora, 'corpus', 'corpora')}",
        facts=(("Results", show.number(len(data.results), 0)), ("Newest result", show.moment(newest))),
        sections=explained,
        thumbnails=data_uris({data.picture_keys[sha]: encoded for sha, encoded in data.thumbnails.items()}),
        sources=data.digest,
        colophon=COLOPHON,
        answer=said,
        encoders=tuple(encoders) if len(encoders) > 1 else (),
        strip=strip,
    )


def _named(names: list[str], one: str, many: str = "") -> str:
    """The names if they fit on a line, else their number."""
    return show.listing(names) if len(names) <= 4 else show.count(len(names), one, many)
