"""Builds a report from stored rows: the sections in reading order, and the facts above them."""

from __future__ import annotations

from collections.abc import Callable

from reports import format as show
from reports.elements.page import Report, Section
from reports.elements.thumbnails import data_uris
from reports.rows.report_data import ReportData
from reports.sections import (
    ablations,
    answer,
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
    throughput,
)

COLOPHON = (
    "Made by capim from stored rows; the same rows give the same bytes. All numbers are also in results.json "
    "next to this file."
)
SECTIONS: tuple[Callable[[ReportData], Section], ...] = (
    ranking.section,
    answer.section,
    gate.section,
    failures.section,
    leaderboard.section,
    differences.section,
    directions.section,
    compositional.section,
    multilingual.section,
    slices.section,
    ablations.section,
    throughput.section,
    provenance.section,
    provenance.skips,
)


def report_of(data: ReportData) -> Report:
    """The report of the rows; the same rows give the same report."""
    encoders, corpora = data.encoder_names(), data.corpus_names()
    newest = max(r["created"] for r in data.results)
    return Report(
        title="Image–caption retrieval",
        subtitle=f"{_named(encoders, 'encoder')} on {_named(corpora, 'corpus', 'corpora')}",
        facts=(
            ("Encoders", str(len(encoders))),
            ("Corpora", str(len(corpora))),
            ("Results", show.number(len(data.results), 0)),
            ("Newest result", show.moment(newest)),
        ),
        sections=tuple(section for build in SECTIONS if (section := build(data)).blocks),
        thumbnails=data_uris({data.picture_keys[sha]: encoded for sha, encoded in data.thumbnails.items()}),
        sources=data.digest,
        colophon=COLOPHON,
        answer=sentence.answer(data)[0],
        encoders=tuple(encoders) if len(encoders) > 1 else (),
        strip=answer.strip(data),
    )


def _named(names: list[str], one: str, many: str = "") -> str:
    """The names if they fit on a line, else their number."""
    return show.listing(names) if len(names) <= 4 else show.count(len(names), one, many)
