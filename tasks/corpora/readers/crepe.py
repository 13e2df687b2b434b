"""CREPE: systematicity and productivity (Ma et al. 2023, https://arxiv.org/abs/2212.07796), as pairs.

Each item is a box of a Visual Genome photograph, its caption and several hard negatives: a pair for each. The pairs
of one item share their ``caption_id``, so the paper's figure (rank of the caption among its negatives) can be told.
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from store.errors import RequestError
from store.types import Corpus, ImageSource
from tasks.corpora import CORPORA
from tasks.corpora.build import build_corpus
from tasks.corpora.files import require_folder
from tasks.corpora.images.crops import Crops, crop_key
from tasks.corpora.images.image_files import Missing, present
from tasks.corpora.images.source import Folder
from tasks.corpora.readers.negatives import negative_captions, negative_pairs
from tasks.corpora.rows import ImageRow, SkippedRow

_PRODUCTIVITY = re.compile(r"prod_vg_hard_negs_(atom|swap|negate)_complexity_(\d+)\.csv$")
_SYSTEMATICITY = re.compile(r"syst_vg_hard_negs_(seen|unseen)_compounds_in_(\w+)\.csv$")
_BOX = ("x", "y", "width", "height")


class _Item(NamedTuple):
    """One box with its caption and negatives under a category."""

    id: str
    image: str
    box: tuple[int, int, int, int]
    caption: str
    negatives: tuple[tuple[str, str], ...]


def read_crepe(
    root: str | Path, *, images: str | Path | None = None, train_set: str = "cc12m", missing: Missing = "error"
) -> Corpus:
    """All items of the CSV files below a folder, file by file in the order of their names.

    Categories: ``productivity/atom/4`` (kind of negative, complexity), ``systematicity/seen/comp`` (compounds seen in
    the training set, kind of negative).

    Args:
        root: Folder with ``prod_vg_hard_negs_*.csv`` and ``syst_vg_hard_negs_*.csv``, at any depth.
        images: Folder of Visual Genome images, ``VG_100K`` and ``VG_100K_2`` in it or together; without one, texts
            and ids alone.
        train_set: Systematicity files of this training set alone: ``cc12m``, ``yfcc`` or ``laion``.
        missing: ``error``, or ``skip`` to leave out items whose image is not there.

    Raises:
        RequestError: There are no such files, a column or image is missing, or negatives are not a list of texts.
    """
    folder = require_folder(root, "crepe folder")
    items = [item for file in sorted(folder.rglob("*.csv")) for item in _items(file, train_set)]
    if not items:
        raise RequestError(
            f"{folder}: no prod_vg_hard_negs_*.csv or syst_vg_hard_negs_*_in_{train_set}.csv below it; "
            "they are at github.com/RAIVNLab/CREPE"
        )
    source: ImageSource | None = None
    skipped: list[SkippedRow] = []
    rows = [ImageRow(item.id, crop_key(f"{item.image}.jpg", *item.box)) for item in items]
    if images is not None:
        pictures = Folder(require_folder(images, "image folder"))
        listed = (ImageRow(item.id, f"{item.image}.jpg") for item in items)
        kept, skipped = present(listed, (pictures,), missing=missing, origin=folder, names=_visual_genome_names)
        found = {row.id: row.key for row in kept}
        items = [item for item in items if item.id in found]
        rows = [ImageRow(item.id, crop_key(found[item.id], *item.box)) for item in items]
        source = Crops(pictures)
    return build_corpus(
        "crepe",
        rows,
        negative_captions(items),
        source=source,
        pairs=negative_pairs(items),
        skipped=skipped,
        licence=CORPORA["crepe"].licence,
        origin="https://github.com/RAIVNLab/CREPE",
    )


def _visual_genome_names(name: str) -> tuple[str, ...]:
    return (name, f"VG_100K/{name}", f"VG_100K_2/{name}")


def _items(file: Path, train_set: str) -> Iterator[_Item]:
    productivity, systematicity = _PRODUCTIVITY.search(file.name), _SYSTEMATICITY.search(file.name)
    if productivity:
        columns = {"hard_negs": f"productivity/{productivity[1]}/{productivity[2]}"}
    elif systematicity and systematicity[2] == train_set:
        columns = {f"valid_hard_negs_{kind}": f"systematicity/{systematicity[1]}/{kind}" for kind in ("atom", "comp")}
    else:
        return
    with file.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines)
        lacking = {"image_id", "caption", *_BOX} - set(reader.fieldnames or ())
        if lacking or not set(columns) & set(reader.fieldnames or ()):
            wanted = ", ".join(sorted(lacking) or columns)
            raise RequestError(f"{file}: no column {wanted}; it has {', '.join(reader.fieldnames or ()) or 'none'}")
        for number, row in enumerate(reader):
            yield _item(f"{file.stem}/{number}", row, columns, f"{file}: row {number}")


def _item(identifier: str, row: Mapping[str, str], columns: Mapping[str, str], where: str) -> _Item:
    try:
        x, y, width, height = (round(float(row[side])) for side in _BOX)
    except (TypeError, ValueError) as error:
        raise RequestError(f"{where}: its box {[row[side] for side in _BOX]} is not four numbers") from error
    negatives = []
    for column, category in columns.items():
        if row.get(column):
            negatives += [(category, text) for text in _texts(row[column], f"{where}: {column}")]
    return _Item(
        identifier, row["image_id"].removesuffix(".0"), (x, y, width, height), row["caption"], tuple(negatives)
    )


def _texts(value: str, where: str) -> list[str]:
    """A Python list of texts as the files hold it; literals alone are read, never expressions."""
    try:
        texts = ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise RequestError(f"{where}: {value!r:.60} is not a list of texts") from error
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RequestError(f"{where}: {value!r:.60} is not a list of texts")
    return texts
