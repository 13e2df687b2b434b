"""What each vector of a late-interaction model stands for, from the inputs that the model gets.

The image tokens among the inputs stand for patches, row by row. One run of them is one grid, or the grid of one tile
where a row and a column are named before it (Idefics3, SmolVLM) or of the whole image beside its tiles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from math import isqrt
from typing import Any

from capim.store.layout import UNKNOWN, Grid, grids_of, layout_of_grids

_TILE = re.compile(r"row_(\d+)_col_(\d+)")


def image_layout(tokens: Sequence[str], image_token: str, *, grid: tuple[int, int] | None = None) -> str:
    """The layout of one image; not known where a run of image tokens is neither ``grid`` nor a square.

    Args:
        tokens: What the model gets for the image, without padding.
        image_token: The token that stands for a patch.
        grid: Rows and columns of patches, where the processor says them.

    Examples:
        >>> image_layout(["<p>"] * 4 + ["describe"], "<p>")
        '[[0,2,2,0.0,0.0,1.0,1.0]]'
        >>> image_layout(["<s>"] + ["<p>"] * 6, "<p>", grid=(2, 3))
        '[[1,2,3,0.0,0.0,1.0,1.0]]'
    """
    runs = _runs(tokens, image_token)
    tiles = [_tile_before(tokens, first) for first, _ in runs]
    high, wide = (max((tile[axis] for tile in tiles if tile), default=1) for axis in (0, 1))
    grids = []
    for (first, length), tile in zip(runs, tiles, strict=True):
        rows, columns = grid or (isqrt(length), isqrt(length))
        if rows * columns != length:
            return UNKNOWN
        row, column = tile or (1, 1)
        box = ((column - 1) / wide, (row - 1) / high, 1 / wide, 1 / high) if tile else (0.0, 0.0, 1.0, 1.0)
        grids.append(Grid(first, rows, columns, *box))
    return layout_of_grids(grids)


def moved(layout: str, kept: Sequence[bool]) -> str:
    """The layout of an image where only some of the tokens that it was made of have a vector.

    Not known where a patch has none.

    Examples:
        >>> moved('[[1,1,2,0.0,0.0,1.0,1.0]]', [False, True, True])
        '[[0,1,2,0.0,0.0,1.0,1.0]]'
    """
    grids = grids_of(layout)
    if not all(all(kept[grid.vectors]) for grid in grids):
        return UNKNOWN
    return layout_of_grids([grid._replace(first=sum(kept[: grid.first])) for grid in grids])


def patch_grids(inputs: Mapping[str, Any], processor: Any, n: int) -> list[tuple[int, int] | None]:
    """Rows and columns of patches of each of ``n`` images, after merging; None where the inputs do not say them."""
    sizes, merge = inputs.get("image_grid_thw"), getattr(processor.image_processor, "merge_size", 1)
    return [None] * n if sizes is None else [(h // merge, w // merge) for _, h, w in sizes.tolist()]


def _runs(tokens: Sequence[str], image_token: str) -> list[tuple[int, int]]:
    """Where each run of image tokens begins, and its length."""
    of_image = groupby(range(len(tokens)), key=lambda position: tokens[position] == image_token)
    runs = [list(run) for is_image, run in of_image if is_image]
    return [(run[0], len(run)) for run in runs]


def _tile_before(tokens: Sequence[str], first: int) -> tuple[int, int] | None:
    """Row and column, from 1, of the tile that begins at a position; None if it is no tile."""
    found = _TILE.search(tokens[first - 1]) if first else None
    return (int(found[1]), int(found[2])) if found else None
