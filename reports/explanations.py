"""Writes why a caption and an image match (``capim explain … --to``): all maps as one picture, or every value."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from capim.reports import format as show
from capim.reports.destination import write_files
from capim.reports.elements.pictures import draw_map, encoded, opened, patch_map
from capim.reports.exports.tabular import json_bytes
from capim.store.errors import RequestError
from capim.store.vectors import Explanation

SUFFIXES = (".png", ".json")
_MARGIN, _LINE = 8, 20  # pixels, of a sheet of maps
_ALL = "all tokens"


def write_explanation(target: Path, explanations: Sequence[Explanation], picture: bytes | None) -> Path:
    """Write the explanations of one pair by several encoders as a picture or data; return the path.

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
    if target.suffix == ".json":
        contents = json_bytes([as_data(each) for each in explanations])
    else:
        contents = encoded(_sheet(explanations, opened(picture)))
    write_files(target.parent, {target.name: contents})
    return target


def as_data(explanation: Explanation) -> dict[str, object]:
    """Return an explanation as plain values: each token's share, best box, and similarity with every patch."""
    facts = {name: part for name, part in vars(explanation).items() if isinstance(part, str) and name != "sha"}
    of_tokens = (explanation.tokens, explanation.shares, explanation.best_boxes(), explanation.similarities)
    tokens = []
    for token, share, box, row in zip(*of_tokens, strict=True):
        best_box = None if np.isnan(box).any() else box.tolist()
        tokens.append({"token": token, "share": float(share), "best_box": best_box, "similarities": row.tolist()})
    grids = [grid._asdict() for grid in explanation.grids]
    return {**facts, "score": explanation.score, "grids": grids, "tokens": tokens}


def token_words(token: str) -> str:
    """Return a token as a reader knows it: without the marks of a tokenizer for a space.

    Examples:
        >>> token_words("▁bus"), token_words("Ġ"), token_words("</w>")
        ('bus', 'space', '</w>')
    """
    return token.replace("▁", " ").replace("Ġ", " ").strip() or "space"


def _maps(explanation: Explanation, image: Image.Image) -> list[tuple[str, str, Image.Image]]:
    """Return name, share and map of all tokens together and of every token."""
    score = explanation.score
    maps = [(_ALL, show.number(score, 3), draw_map(image, explanation, patch_map(explanation)))]
    for token, share, row in zip(explanation.tokens, explanation.shares, explanation.similarities, strict=True):
        text = f"{show.number(float(share), 3)} ({show.number(100 * float(share) / score, 1)} %)"
        maps.append((token_words(token), text, draw_map(image, explanation, row)))
    return maps


def _sheet(explanations: Sequence[Explanation], image: Image.Image) -> Image.Image:
    """Return all maps in one picture: a row per encoder, broken after six maps."""
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
