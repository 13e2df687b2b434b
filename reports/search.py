"""Writes the results of one search as a page (``capim search … --html``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capim.reports import format as show
from capim.reports.destination import write_files
from capim.reports.elements.page import Grid, Hit, Report, Section
from capim.reports.elements.thumbnails import data_uris
from capim.reports.render import render_html
from capim.store.types import Modality, digest16


@dataclass(frozen=True, kw_only=True)
class Search:
    """A query and its nearest items, best first.

    Attributes:
        encoder: Name.
        corpus: Name.
        query: A text, the name of an image file, or both.
        picture: The image of the query, small and encoded; None where there is none.
        modality: What was searched.
        rows: ``rank``, ``id``, ``score``, ``file``; of images also ``sha`` and size, of captions ``text``.
        indexed: Whether an approximate index was used instead of comparing all items.
    """

    encoder: str
    corpus: str
    query: str
    picture: bytes | None
    modality: Modality
    rows: list[dict[str, Any]]
    indexed: bool


def write_search(target: str | Path, found: Search, thumbnails: Mapping[str, bytes]) -> Path:
    """Writes the gallery of a search as one self-contained HTML file; returns its path.

    ``thumbnails``: hash of an image to its small encoded picture.

    Raises:
        WorkError: The file cannot be written.
    """
    small = [thumbnails.get(row.get("sha") or "") for row in found.rows]
    pictures = {"query": found.picture, **{str(i): picture for i, picture in enumerate(small, 1)}}
    how = "Approximate search (index)" if found.indexed else "Exact search"
    grid = Grid(
        id="hits",
        caption=found.query,
        thumbnail="query" if found.picture is not None else "",
        hits=tuple(
            Hit(
                rank=str(i),
                label=row["id"] if row.get("text") is None else row["text"],
                thumbnail=str(i) if picture is not None else "",
                score=show.number(row["score"], 3),
                right=False,
            )
            for i, (row, picture) in enumerate(zip(found.rows, small, strict=True), 1)
        ),
        note=f"{how} by {found.encoder} in {found.corpus}; "
        "scores are cosines, or MaxSim sums for a multi-vector encoder.",
    )
    report = Report(
        title="Search",
        subtitle=f"{found.encoder} in {found.corpus}",
        facts=(("Results", show.number(len(found.rows), 0)),),
        sections=(Section(id="results", title="Nearest items", lead="", blocks=(grid,)),),
        thumbnails=data_uris({name: picture for name, picture in pictures.items() if picture is not None}),
        colophon="Made by capim from stored embeddings.",
        sources=digest16([found.query, found.encoder, found.corpus, [[row["id"], row["score"]] for row in found.rows]]),
    )
    path = Path(target)
    write_files(path.parent, {path.name: render_html(report)})
    return path
