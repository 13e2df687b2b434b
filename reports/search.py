"""Writes the results of one search as a page (``capim search … --html``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from reports import format as show
from reports.destination import write_files
from reports.elements.gallery import Grid, Hit
from reports.elements.page import Report, Section
from reports.elements.thumbnails import data_uris
from reports.render import render_html
from store.types import digest16


class SearchHit(NamedTuple):
    """One item of the results of a search.

    Attributes:
        id: Id of the image or caption.
        score: Cosine or MaxSim; higher is closer.
        text: Caption text; None for an image.
        thumbnail: Small encoded picture; None for a caption or an image without one.
    """

    id: str
    score: float
    text: str | None = None
    thumbnail: bytes | None = None


def write_search(
    target: str | Path,
    *,
    query: str,
    hits: Sequence[SearchHit],
    encoder: str,
    corpus: str,
    picture: bytes | None = None,
    indexed: bool = False,
) -> Path:
    """Writes the gallery of one search as one self-contained HTML file; returns its path.

    ``query`` is a text, or the name of an image file with its small encoded ``picture``; ``hits`` are best first;
    ``indexed`` says that the search used an approximate index instead of comparing all items.

    Raises:
        WorkError: The file cannot be written.
    """
    pictures = {f"{i}": hit.thumbnail for i, hit in enumerate(hits, 1) if hit.thumbnail is not None}
    thumbnails = data_uris(pictures if picture is None else {**pictures, "query": picture})
    how = "Approximate search (index)" if indexed else "Exact search"
    grid = Grid(
        id="hits",
        caption=query,
        thumbnail="query" if picture is not None else "",
        hits=tuple(
            Hit(
                rank=str(i),
                label=hit.text if hit.text is not None else hit.id,
                thumbnail=str(i) if hit.thumbnail is not None else "",
                score=show.number(hit.score, 3),
                right=False,
            )
            for i, hit in enumerate(hits, 1)
        ),
        note=f"{how} by {encoder} in {corpus}; scores are cosines, or MaxSim sums for a multi-vector encoder.",
    )
    report = Report(
        title="Search",
        subtitle=f"{encoder} in {corpus}",
        facts=(("Results", show.number(len(hits), 0)),),
        sections=(Section(id="results", title="Nearest items", lead="", blocks=(grid,)),),
        thumbnails=thumbnails,
        colophon="Made by capim from stored embeddings.",
        sources=digest16([query, encoder, corpus, [[hit.id, hit.score] for hit in hits]]),
    )
    path = Path(target)
    write_files(path.parent, {path.name: render_html(report)})
    return path
