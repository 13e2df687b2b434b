"""CREPE: systematicity and productivity (Ma et al. 2023, https://arxiv.org/abs/2212.07796), as pairs.

An item is a box of a Visual Genome photograph with its caption and several hard negatives; the paper's figure is the
rank of the caption among its negatives.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora.build import ImageRow
from capim.tasks.corpora.files import require_folder
from capim.tasks.corpora.images.image_files import Missing
from capim.tasks.corpora.readers.delimited import rows_with
from capim.tasks.corpora.readers.published import HardNegativeItem, hard_negatives, literal_texts, published_corpus

_PRODUCTIVITY = re.compile(r"prod_vg_hard_negs_(atom|swap|negate)_complexity_(\d+)\.csv$")
_SYSTEMATICITY = re.compile(r"syst_vg_hard_negs_(seen|unseen)_compounds_in_(\w+)\.csv$")
_BOX = ("x", "y", "width", "height")


def read_crepe(
    root: str | Path, *, images: str | Path | None = None, train_set: str = "cc12m", missing: Missing = "error"
) -> Corpus:
    """All items of the CSV files below a folder, file by file in the order of their names.

    Categories: ``productivity/atom/4`` (kind of negative, complexity) and ``systematicity/seen/comp`` (compounds seen
    in the training set, kind of negative).

    Args:
        root: Folder with ``prod_vg_hard_negs_*.csv`` and ``syst_vg_hard_negs_*.csv``, at any depth.
        images: Folder of Visual Genome images, as they are or in ``VG_100K`` and ``VG_100K_2``; without one,
            texts and ids only.
        train_set: Training set of the systematicity files: ``cc12m``, ``yfcc`` or ``laion``.

    Raises:
        RequestError: The folder has no such files, a column or image is missing, or negatives are not a list of texts.
    """
    folder = require_folder(root, "crepe folder")
    items = [item for file in sorted(folder.rglob("*.csv")) for item in _items(file, train_set)]
    if not items:
        raise RequestError(
            f"{folder}: no prod_vg_hard_negs_*.csv or syst_vg_hard_negs_*_in_{train_set}.csv below it; "
            "they are at github.com/RAIVNLab/CREPE"
        )
    folders = None
    if images is not None:
        base = require_folder(images, "image folder")
        folders = [base, *(folder for name in ("VG_100K", "VG_100K_2") if (folder := base / name).is_dir())]
    return published_corpus("crepe", hard_negatives(items), images=folders, missing=missing)


def _items(file: Path, train_set: str) -> Iterator[HardNegativeItem]:
    productivity, systematicity = _PRODUCTIVITY.search(file.name), _SYSTEMATICITY.search(file.name)
    if productivity:
        columns = {"hard_negs": f"productivity/{productivity[1]}/{productivity[2]}"}
    elif systematicity and systematicity[2] == train_set:
        columns = {f"valid_hard_negs_{kind}": f"systematicity/{systematicity[1]}/{kind}" for kind in ("atom", "comp")}
    else:
        return
    rows = rows_with(file, *sorted({"image_id", "caption", *_BOX}))
    if rows and not set(columns) & set(rows[0]):
        raise RequestError(f"{file}: no column {', '.join(sorted(columns))}; it has {', '.join(rows[0])}")
    for number, row in enumerate(rows):
        yield _item(f"{file.stem}/{number}", row, columns, f"{file}: row {number}")


def _item(identifier: str, row: Mapping[str, str], columns: Mapping[str, str], where: str) -> HardNegativeItem:
    try:
        x, y, width, height = (round(float(row[side])) for side in _BOX)
    except (TypeError, ValueError) as error:
        raise RequestError(f"{where}: expected a box of four numbers, got {[row[side] for side in _BOX]}") from error
    negatives = [
        (category, text)
        for column, category in columns.items()
        if row.get(column)
        for text in literal_texts(row[column], f"{where}: {column}")
    ]
    image = ImageRow(identifier, f"{row['image_id'].removesuffix('.0')}.jpg")
    return HardNegativeItem(identifier, image, row["caption"], negatives, (x, y, width, height))
