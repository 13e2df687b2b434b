"""BiVLC: SugarCrepe's captions and negatives with an image for each, as quadruples (Miranda et al. 2024).

https://arxiv.org/abs/2406.09952. The images of the negatives were generated. Its I2T, T2I and group scores are
Winoground's text, image and group scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.files import field, require_folder
from capim.tasks.corpora.readers.delimited import rows_with
from capim.tasks.corpora.readers.hub import load_split
from capim.tasks.corpora.readers.published import QuadrupleItem, published_corpus, quadruples

HUB = CORPORA["bivlc"].hub
_TEXTS = ("caption", "negative_caption", "type", "subtype")


def read_bivlc(
    root: str | Path | None = None, *, split: str = "test", dataset: str = HUB, revision: str | None = None
) -> Corpus:
    """The rows in their order; ids are positions: quadruple ``0`` with images and captions ``0/0`` and ``0/1``.

    The tags of a quadruple are its type (replace, swap, add) and its subtype (obj, att, rel).

    Args:
        root: Folder in the layout of the hub's data set (``data/test-*.parquet``); or a CSV file with the columns
            ``caption``, ``negative_caption``, ``type`` and ``subtype``, which gives texts and ids only, for answers of
            models that were computed elsewhere; there the same caption stands for the same photograph. From the hub
            unless given.

    Raises:
        RequestError: A folder, file, column or value is missing.
    """
    table = None if root is None else Path(root).expanduser().absolute()
    rows: Iterable[Mapping[str, Any]]
    if table is not None and table.is_file():
        rows, source, origin = rows_with(table, *_TEXTS), None, str(table)
    else:
        folder = dataset if table is None else str(require_folder(table, "bivlc folder or CSV file"))
        loaded = load_split(folder, split=split, revision=revision, need=("image", "negative_image", *_TEXTS))
        rows, source = loaded.rows(), loaded.source
        origin = f"https://huggingface.co/datasets/{dataset}" if table is None else folder
    items = []
    shown: dict[str, int] = {}  # caption -> the first row with its photograph, where there are no images to tell
    for position, row in enumerate(rows):
        caption, negative, kind, subtype = (field(row, name, str, f"{origin}: row {position}") for name in _TEXTS)
        of_caption = position if source is not None else shown.setdefault(caption, position)
        keys = (f"image/{of_caption}", f"negative_image/{position}")
        items.append(QuadrupleItem(str(position), keys, (caption, negative), (kind, subtype)))
    return published_corpus("bivlc", quadruples(items), source=source, origin=origin)
