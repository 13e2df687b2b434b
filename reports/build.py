"""Rows to a report: the sections in reading order, and what stands above them."""

from __future__ import annotations

from collections.abc import Callable

from reports import format as show
from reports.elements.gallery import Thumbnail
from reports.elements.page import Report, Section
from reports.elements.thumbnails import data_uri
from reports.rows.reading import Describe, read_evidence
from reports.rows.report_data import Evidence, Source
from reports.sections import (
    ablations,
    compositional,
    directions,
    failures,
    gate,
    leaderboard,
    multilingual,
    provenance,
    significance,
    slices,
    throughput,
    verdict,
)

COLOPHON = (
    "Made by capim from stored rows; the same rows give the same bytes. Every number here is also in results.json "
    "beside this file."
)
SECTIONS: tuple[Callable[[Evidence], Section | None], ...] = (
    verdict.section,
    gate.section,
    leaderboard.section,
    directions.section,
    significance.section,
    compositional.section,
    multilingual.section,
    slices.section,
    failures.section,
    ablations.section,
    throughput.section,
    provenance.section,
    provenance.skips,
)


def build_report(source: Source, *, run: str | None = None, describe: Describe | None = None) -> Report:
    """The report of a store.

    Args:
        source: A ``store.EmbeddingStore``, or whatever reads like one.
        run: Only the figures that this run wrote; by default the newest of each.
        describe: See :func:`reports.rows.reading.read_evidence`.

    Raises:
        RequestError: The store has no results; says what to run.
    """
    return report_of(read_evidence(source, run=run, describe=describe))


def report_of(evidence: Evidence) -> Report:
    """The report of rows already read; the same rows give the same report."""
    encoders, corpora = evidence.encoder_names(), evidence.corpus_names()
    newest = max(r["created"] for r in evidence.results)
    return Report(
        title="Image–caption retrieval",
        subtitle=f"{_named(encoders, 'encoder')} on {_named(corpora, 'corpus', 'corpora')}",
        facts=(
            ("Encoders", str(len(encoders))),
            ("Corpora", str(len(corpora))),
            ("Figures", show.number(len(evidence.results), 0)),
            ("Newest figure", show.moment(newest)),
        ),
        sections=tuple(section for build in SECTIONS if (section := build(evidence)) is not None),
        thumbnails=tuple(Thumbnail(key=sha, data_uri=data_uri(encoded)) for sha, encoded in evidence.pictures.items()),
        sources=evidence.digest,
        colophon=COLOPHON,
    )


def _named(names: list[str], one: str, many: str = "") -> str:
    """The names while they fit a line, then their number."""
    return show.listing(names) if len(names) <= 4 else show.count(len(names), one, many)
