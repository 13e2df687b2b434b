"""The page of one search: ``capim search … --html``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from reports import format as show
from reports.elements.gallery import Grid, Hit, Thumbnail
from reports.elements.page import Report, Section
from reports.elements.thumbnails import data_uri
from reports.render import render_html
from store.types import digest16


class Found(NamedTuple):
    """One item that a search found.

    Attributes:
        id: Of the image or caption.
        score: Cosine or MaxSim; higher is closer.
        text: Caption text; None for an image.
        thumbnail: Encoded small picture; None for a caption or where there is none.
    """

    id: str
    score: float
    text: str | None = None
    thumbnail: bytes | None = None


def write_search(
    target: str | Path,
    *,
    query: str,
    found: Sequence[Found],
    encoder: str,
    corpus: str,
    picture: bytes | None = None,
    indexed: bool = False,
) -> Path:
    """Writes the gallery of one search as one self-contained HTML file.

    Args:
        target: The file.
        query: What was searched with: a text, or the name of an image file.
        found: Best first.
        encoder: By which it was searched.
        corpus: In which.
        picture: Small encoded picture of a query that is an image.
        indexed: Whether an approximate index was asked instead of every item.

    Returns:
        The target.
    """
    place = Path(target)
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_name(f"{place.name}.new")
    fresh.write_text(render_html(search_report(query, found, encoder, corpus, picture, indexed=indexed)), "utf-8")
    fresh.replace(place)
    return place


def search_report(
    query: str, found: Sequence[Found], encoder: str, corpus: str, picture: bytes | None, *, indexed: bool
) -> Report:
    """The search as a report of one section."""
    thumbnails = {f"{i}": f.thumbnail for i, f in enumerate(found, 1) if f.thumbnail is not None}
    if picture is not None:
        thumbnails["query"] = picture
    how = "Search with an index" if indexed else "Exact search"
    grid = Grid(
        id="found",
        caption=query,
        thumbnail="query" if picture is not None else "",
        hits=tuple(
            Hit(
                rank=str(i),
                label=f.text if f.text is not None else f.id,
                thumbnail=str(i) if f.thumbnail is not None else "",
                score=show.number(f.score, 3),
                right=False,
            )
            for i, f in enumerate(found, 1)
        ),
        note=f"{how} by {encoder} in {corpus}; scores are cosines, or MaxSim sums for a multi-vector encoder.",
    )
    return Report(
        title="Search",
        subtitle=f"{encoder} in {corpus}",
        facts=(("Found", show.number(len(found), 0)),),
        sections=(Section(id="results", title="Nearest first", lead="", blocks=(grid,)),),
        thumbnails=tuple(Thumbnail(key=key, data_uri=data_uri(small)) for key, small in thumbnails.items()),
        colophon="Made by capim from stored embeddings.",
        sources=digest16([query, encoder, corpus, [[f.id, f.score] for f in found]]),
    )
