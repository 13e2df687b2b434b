"""Writes the results of one search as a page (``capim search … --html``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from capim.reports import format as show
from capim.reports.destination import write_files
from capim.reports.elements.page import Grid, Hit, Report, Section
from capim.reports.elements.pictures import data_uris, draw_map, encoded, opened, patch_map
from capim.reports.exports.tabular import json_bytes
from capim.reports.render import render_html
from capim.store.errors import RequestError
from capim.store.types import Modality, digest16
from capim.store.vectors import Explanation

COLOPHON = "Made by capim from stored embeddings."


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
    pictures = {"query": found.picture} if found.picture is not None else {}
    hits = []
    for rank, row in enumerate(found.rows, 1):
        key = str(rank) if (picture := thumbnails.get(row.get("sha") or "")) is not None else ""
        pictures |= {key: picture} if picture is not None else {}
        label = row["id"] if row.get("text") is None else row["text"]
        hits.append(Hit(rank=str(rank), label=label, thumbnail=key, score=show.number(row["score"], 3), right=False))
    how, where = "Approximate search (index)" if found.indexed else "Exact search", f"{found.encoder} in {found.corpus}"
    grid = Grid(
        id="hits",
        caption=found.query,
        thumbnail="query" if found.picture is not None else "",
        hits=tuple(hits),
        note=f"{how} by {where}; scores are cosines, or MaxSim sums for a multi-vector encoder.",
    )
    report = Report(
        title="Search",
        subtitle=where,
        facts=(("Results", show.number(len(found.rows), 0)),),
        sections=(Section(id="results", title="Nearest items", blocks=(grid,)),),
        thumbnails=data_uris(pictures),
        colophon=COLOPHON,
        sources=digest16([found.query, found.encoder, found.corpus, [[row["id"], row["score"]] for row in found.rows]]),
    )
    path = Path(target)
    write_files(path.parent, {path.name: render_html(report)})
    return path


SUFFIXES = (".html", ".png", ".json")
_MARGIN, _LINE = 8, 20  # pixels, of a sheet of maps
_ALL = "all tokens"


def write_explanation(target: Path, explanations: Sequence[Explanation], picture: bytes | None) -> Path:
    """Writes the explanations of one pair by several encoders as a page, a picture or data; returns the path.

    Args:
        target: The suffix is one of ``SUFFIXES``.
        explanations: Of the same caption and image, one per encoder.
        picture: The image, encoded; None where the store has no thumbnail of it: the maps are drawn on white.

    Raises:
        RequestError: Another suffix.
        WorkError: The file cannot be written.
    """
    if target.suffix not in SUFFIXES:
        raise RequestError(f"{target}: give a file that ends in {', '.join(SUFFIXES)}")
    image = opened(picture)
    if target.suffix == ".json":
        contents: str | bytes = json_bytes([as_data(each) for each in explanations])
    elif target.suffix == ".png":
        contents = encoded(_sheet(explanations, image))
    else:
        contents = render_html(_page(explanations, image))
    write_files(target.parent, {target.name: contents})
    return target


def as_data(explanation: Explanation) -> dict[str, object]:
    """An explanation as plain values: of every token its share, its best box and its similarity with every patch."""
    facts = ("encoder", "corpus", "caption_id", "image_id", "text", "score")
    of_tokens = (explanation.tokens, explanation.shares, explanation.best_boxes(), explanation.similarities)
    tokens = []
    for token, share, box, row in zip(*of_tokens, strict=True):
        best_box = None if np.isnan(box).any() else box.tolist()
        tokens.append({"token": token, "share": float(share), "best_box": best_box, "similarities": row.tolist()})
    grids = [grid._asdict() for grid in explanation.grids]
    return {**{name: getattr(explanation, name) for name in facts}, "grids": grids, "tokens": tokens}


def token_words(token: str) -> str:
    """A token as a reader knows it: without the marks of a tokenizer for a space.

    Examples:
        >>> token_words("▁bus"), token_words("Ġ"), token_words("</w>")
        ('bus', 'space', '</w>')
    """
    return token.replace("▁", " ").replace("Ġ", " ").strip() or "space"


def _maps(explanation: Explanation, image: Image.Image) -> list[tuple[str, str, Image.Image]]:
    """Name, share and map of all tokens together and of every token."""
    score = explanation.score
    maps = [(_ALL, show.number(score, 3), draw_map(image, explanation, patch_map(explanation)))]
    for token, share, row in zip(explanation.tokens, explanation.shares, explanation.similarities, strict=True):
        text = f"{show.number(float(share), 3)} ({show.number(100 * float(share) / score, 1)} %)"
        maps.append((token_words(token), text, draw_map(image, explanation, row)))
    return maps


def _page(explanations: Sequence[Explanation], image: Image.Image) -> Report:
    sections = []
    pictures = {"image": encoded(image)}
    for number, each in enumerate(explanations):
        hits = []
        for place, (name, share, drawn) in enumerate(_maps(each, image)):
            key = f"map-{number}-{place}"
            pictures[key] = encoded(drawn)
            hits.append(Hit(rank=name, label=f"where {name!r} matches", thumbnail=key, score=share, right=False))
        where = "" if each.grids else " The store does not know which vectors are patches, so it cannot draw maps."
        block = Grid(
            id=f"maps-{number}",
            caption=each.text or each.caption_id,
            thumbnail="image",
            hits=tuple(hits),
            note=f"Score {show.number(each.score, 4)}: the sum over the tokens of the similarity with the closest "
            "vector of the image. A map is clear where the image is close to the token; that of all tokens where most "
            f"tokens have their closest patch. Vectors of special tokens are on no map.{where}",
        )
        sections.append(Section(id=f"encoder-{number}", title=each.encoder, blocks=(block,)))
    first = explanations[0]
    return Report(
        title="Why it matches",
        subtitle=f"{first.caption_id} with {first.image_id}, {first.corpus}",
        facts=tuple((each.encoder, show.number(each.score, 4)) for each in explanations),
        sections=tuple(sections),
        thumbnails=data_uris(pictures),
        colophon=COLOPHON,
        sources=digest16([[each.encoder, each.caption_id, each.image_id, each.score] for each in explanations]),
    )


def _sheet(explanations: Sequence[Explanation], image: Image.Image) -> Image.Image:
    """All maps in one picture: a row per encoder, broken after six maps."""
    rows: list[tuple[str, list[tuple[str, str, Image.Image]]]] = []
    for each in explanations:
        maps = _maps(each, image)
        for start in range(0, len(maps), 6):
            title = f"{each.encoder}: {each.text or each.caption_id}" if not start else ""
            rows.append((title, maps[start : start + 6]))
    wide, high = (max(size) for size in zip(*(drawn.size for _, row in rows for *_, drawn in row), strict=True))
    step, longest = high + 3 * _LINE + _MARGIN, max(len(row) for _, row in rows)
    sheet = Image.new("RGB", (longest * (wide + _MARGIN) + _MARGIN, len(rows) * step + _MARGIN), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(14)
    for line, (title, row) in enumerate(rows):
        top = _MARGIN + line * step
        pen.text((_MARGIN, top), title, fill="black", font=font)
        for column, (name, share, drawn) in enumerate(row):
            left = _MARGIN + column * (wide + _MARGIN)
            sheet.paste(drawn, (left, top + _LINE))
            pen.text((left, top + _LINE + high), f"{name}\n{share}", fill="black", font=font)
    return sheet
