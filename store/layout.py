"""What each vector of a multi-vector embedding stands for: a patch of the image, or a token of the caption.

A layout is a JSON text in the column ``layout`` of an embedding set. Of a caption it is the list of its tokens, one per
vector. Of an image it is a list of grids; vectors in no grid stand for special tokens. An empty text: not known.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capim.store.types import canonical_json

UNKNOWN = ""


class Grid(NamedTuple):
    """Patches of an image, or of a tile of it, row by row.

    Attributes:
        first: Position of the vector of the upper left patch.
        rows: Patches from top to bottom.
        columns: Patches from left to right.
        left: Left edge of the grid, as a share of the width of the image.
        top: Upper edge, as a share of the height.
        width: Width, as a share of the width of the image.
        height: Height, as a share of the height.
    """

    first: int
    rows: int
    columns: int
    left: float = 0.0
    top: float = 0.0
    width: float = 1.0
    height: float = 1.0

    @property
    def vectors(self) -> slice:
        """Positions of its vectors among those of the image."""
        return slice(self.first, self.first + self.rows * self.columns)

    def boxes(self) -> NDArray[np.float64]:
        """Left, top, right and lower edge of every patch as shares of the image, shape ``(rows × columns, 4)``.

        Examples:
            >>> Grid(0, 1, 2).boxes().tolist()
            [[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]]
        """
        rows, columns = np.divmod(np.arange(self.rows * self.columns), self.columns)
        wide, high = self.width / self.columns, self.height / self.rows
        left, top = self.left + columns * wide, self.top + rows * high
        return np.stack([left, top, left + wide, top + high], axis=1)


def layout_of_grids(grids: Sequence[Grid]) -> str:
    """The layout of an image; of no grids it is not known.

    Examples:
        >>> layout_of_grids([Grid(0, 4, 4)])
        '[[0,4,4,0.0,0.0,1.0,1.0]]'
    """
    return canonical_json([list(grid) for grid in grids]) if grids else UNKNOWN


def layout_of_tokens(tokens: Sequence[str]) -> str:
    """The layout of a caption.

    Examples:
        >>> layout_of_tokens(["a", "bus"])
        '["a","bus"]'
    """
    return canonical_json(list(tokens))


def grids_of(layout: str) -> tuple[Grid, ...]:
    """The grids of an image's layout; none if it is not known."""
    return tuple(Grid(*grid) for grid in json.loads(layout)) if layout else ()


def tokens_of(layout: str) -> tuple[str, ...]:
    """The tokens of a caption's layout; none if it is not known."""
    return tuple(json.loads(layout)) if layout else ()


def layout_fault(layout: str, n_vectors: int) -> str | None:
    """What is wrong with the layout of an item that has so many vectors; None if nothing is.

    Examples:
        >>> layout_fault('["a","bus"]', 3)
        '2 tokens for 3 vectors'
        >>> layout_fault('[[0,4,4,0.0,0.0,1.0,1.0]]', 16)
    """
    parts = json.loads(layout) if layout else []
    if parts and isinstance(parts[0], str):
        return None if len(parts) == n_vectors else f"{len(parts)} tokens for {n_vectors} vectors"
    for grid in starmap(Grid, parts):
        if grid.first < 0 or grid.vectors.stop > n_vectors:
            return f"a grid of vectors {grid.first} to {grid.vectors.stop} for {n_vectors} vectors"
    return None


@dataclass(frozen=True, kw_only=True, eq=False)
class Explanation:
    """The score of one caption with one image by one encoder.

    Attributes:
        encoder: Name.
        corpus: Name.
        caption_id: Id of the caption.
        image_id: Id of the image.
        text: The caption; empty where only its id is stored.
        sha: Hash of the image's bytes, the key of its thumbnail; empty where unknown.
        tokens: Of the caption, one per vector.
        shares: float32, shape ``(n_tokens,)``: cosine with the best vector of the image; they add up to the score.
        similarities: float32, shape ``(n_tokens, n_vectors)``: cosine with every vector of the image.
        grids: Which vectors are patches, and where; the others stand for special tokens.
    """

    encoder: str
    corpus: str
    caption_id: str
    image_id: str
    text: str
    sha: str
    tokens: tuple[str, ...]
    shares: NDArray[np.float32]
    similarities: NDArray[np.float32]
    grids: tuple[Grid, ...]

    @property
    def score(self) -> float:
        """The score of the pair."""
        return float(np.add.reduceat(self.shares, [0])[0])

    def best_boxes(self) -> NDArray[np.float64]:
        """Where every token matches best, shape ``(n_tokens, 4)``: left, top, right, lower edge as shares of the image.

        Of the patches that are equally close the first one; NaN where a special token is closest.
        """
        boxes = np.full((self.similarities.shape[1], 4), np.nan)
        for grid in self.grids:
            boxes[grid.vectors] = grid.boxes()
        found: NDArray[np.float64] = boxes[self.similarities.argmax(axis=1)]
        return found
