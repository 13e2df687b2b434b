"""Published captions against hard negatives in more than one table: ARO, CREPE and NegBench.

* ARO: Attribution, Relation and Order (Yuksekgonul et al. 2023, https://arxiv.org/abs/2210.01936). In relation and
  attribution, the image is the box of a Visual Genome photograph that the caption describes. In order, each caption has
  four negatives, which are shuffles of its words; the paper counts a caption as correct if it wins against all four
  (chance 20%).
* CREPE: systematicity and productivity (Ma et al. 2023, https://arxiv.org/abs/2212.07796). An item is a box of a Visual
  Genome photograph with its caption and several hard negatives; the paper's result is the rank of the caption among its
  negatives.
* NegBench: captions with negation, as multiple choice or for retrieval (Alhamoud et al. 2025,
  https://arxiv.org/abs/2501.09425). Each CSV file is a corpus of its own, named after the file. The authors' code takes
  the first of equal scores; here a question is wrong if its right caption ties with another (docs/protocols.md §5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from capim.store.errors import RequestError
from capim.store.tables import rows_with
from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA, files
from capim.tasks.corpora.build import ImageRow
from capim.tasks.corpora.images.image_files import Missing, image_id_of
from capim.tasks.corpora.readers.hub import HubSplit, load_split
from capim.tasks.corpora.readers.published import (
    HardNegativeItem,
    Translation,
    hard_negatives,
    published_corpus,
    rows_of,
    translations,
)

Part: TypeAlias = Literal["relation", "attribution", "coco-order", "flickr-order"]
ARO_HUB: dict[Part, str] = {
    "relation": CORPORA["aro"].hub,
    "attribution": "mteb/ARO-Visual-Attribution",
    "coco-order": "mteb/ARO-COCO-order",
    "flickr-order": "mteb/ARO-Flickr-Order",
}
_SHUFFLES = ("shuffle_nouns_and_adj", "shuffle_allbut_nouns_and_adj", "shuffle_within_trigrams", "shuffle_trigrams")
_PRODUCTIVITY = re.compile(r"prod_vg_hard_negs_(atom|swap|negate)_complexity_(\d+)\.csv$")
_SYSTEMATICITY = re.compile(r"syst_vg_hard_negs_(seen|unseen)_compounds_in_(\w+)\.csv$")
_BOX = ("x", "y", "width", "height")
_PATHS = ("image_path", "filepath")


def read_aro(
    root: str | Path | None = None,
    *,
    part: Part = "relation",
    images: str | Path | None = None,
    missing: Missing = "error",
    split: str = "test",
    revision: str | None = None,
) -> Corpus:
    """One part of ARO; the category is the relation, the pair of attributes, or the kind of shuffling.

    Args:
        root: Folder with the part's ``visual_genome_*.json`` (only relation and attribution have files); from the
            hub unless given.
        part: ``relation``, ``attribution``, ``coco-order`` or ``flickr-order``.
        images: Folder of Visual Genome images; ``root/images`` by default. Without one, texts and ids only.

    Raises:
        RequestError: A file, image or field is missing.
    """
    hub, column = None, None
    source: Path | HubSplit
    if root is None:
        source = hub = load_split(ARO_HUB[part], split=split, revision=revision)
        column = next((name for name in ("image", "images") if name in hub.images), None)
        if column is None:
            raise RequestError(f"{hub.name}: no column 'image' or 'images' with images")
    else:
        folder = files.require_folder(root, "aro folder")
        images = images or files.folder_in(folder, "images")
        if part not in ("relation", "attribution"):
            raise RequestError(
                f"aro: {part} has no files (its negatives are drawn at random); leave out root to read the hub"
            )
        hint = "it is linked from github.com/mertyg/vision-language-models-are-bows"
        source = files.require_match(folder, f"visual_genome_{part}.json", hint=hint)
    items = [_aro_item(*each, column) for each in rows_of(source)]
    return published_corpus("aro", hard_negatives(items), part=part, images=images, missing=missing, hub=hub)


def _aro_item(where: str, number: object, row: Mapping[str, Any], column: str | None) -> HardNegativeItem:
    """One item; in the files, which have no column of images, its image is a box of a photograph."""
    box, identifier = None, str(number)
    if column is None:
        x, y, width, height = (
            int(files.field(row, f"bbox_{side}", int | float, where)) for side in ("x", "y", "w", "h")
        )
        box = (x, y, width, height)
    key = files.field(row, "image_path", str, where) if column is None else f"{column}/{number}"
    if "true_caption" in row:
        category = str(row.get("relation_name") or "all")
        if isinstance(attributes := row.get("attributes"), Sequence) and not isinstance(attributes, str):
            category = "_".join(map(str, attributes))
        caption, negative = (files.field(row, f"{kind}_caption", str, where) for kind in ("true", "false"))
        return HardNegativeItem(identifier, ImageRow(identifier, key), caption, [(category, negative)], box)
    texts = [files.field(row, f"hard_text_{n}", str, where) for n in range(1, 5)]
    caption = files.field(row, "correct_caption", str, where)
    return HardNegativeItem(identifier, ImageRow(identifier, key), caption, list(zip(_SHUFFLES, texts, strict=True)))


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
    folder = files.require_folder(root, "crepe folder")
    items = [item for file in sorted(folder.rglob("*.csv")) for item in _crepe_items(file, train_set)]
    if not items:
        raise RequestError(
            f"{folder}: no prod_vg_hard_negs_*.csv or syst_vg_hard_negs_*_in_{train_set}.csv below it; "
            "they are at github.com/RAIVNLab/CREPE"
        )
    folders = None
    if images is not None:
        base = files.require_folder(images, "image folder")
        folders = [base, *(folder for name in ("VG_100K", "VG_100K_2") if (folder := base / name).is_dir())]
    return published_corpus("crepe", hard_negatives(items), images=folders, missing=missing)


def _crepe_items(file: Path, train_set: str) -> Iterator[HardNegativeItem]:
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
        where, identifier = f"{file}: row {number}", f"{file.stem}/{number}"
        try:
            x, y, width, height = (round(float(row[side])) for side in _BOX)
        except (TypeError, ValueError) as error:
            given = [row[side] for side in _BOX]
            raise RequestError(f"{where}: expected a box of four numbers, got {given}") from error
        negatives = [
            (category, text)
            for column, category in columns.items()
            if row.get(column) not in (None, "", "[]")
            for text in files.texts_in(row, column, where, single=False)
        ]
        image = ImageRow(identifier, f"{row['image_id'].removesuffix('.0')}.jpg")
        yield HardNegativeItem(identifier, image, row["caption"], negatives, (x, y, width, height))


def read_negbench(root: str | Path, *, images: str | Path | None = None, missing: Missing = "error") -> Corpus:
    """The rows of one CSV file, in their order.

    A file with ``correct_answer`` holds questions: ``caption_0``, ``caption_1`` …, one of them right; the category
    is its template (positive, negative, hybrid). A file with ``captions`` holds images with several captions.

    Args:
        root: The CSV file, or a folder with one.
        images: Folder of the images, by their names without folders (COCO val2017, VOC2007); without one, texts and
            ids only.

    Raises:
        RequestError: The file, a column or an image is missing, or a cell has invalid content.
    """
    path = Path(root).expanduser().absolute()
    hint = "the files are linked from https://github.com/m1k2zoo/negbench"
    file = files.require_match(path, "*.csv", hint=hint) if path.is_dir() else files.require_file(path, "negbench file")
    rows = rows_with(file)
    header = list(rows[0]) if rows else []
    column = next((name for name in _PATHS if name in header), None)
    if column is None or not {"captions", "correct_answer"} & set(header):
        raise RequestError(
            f"{file}: expected a column {' or '.join(_PATHS)}, and correct_answer (multiple choice) or captions "
            f"(retrieval); it has {', '.join(header) or 'no rows'}"
        )
    names = [row[column].replace("\\", "/") for row in rows]
    image_rows = [ImageRow(image_id_of(name), name.rpartition("/")[2]) for name in names]
    if len({row.id for row in image_rows}) != len(set(names)):
        raise RequestError(f"{file}: images in different folders have the same name; rename them in column {column}")
    options = [option for n in range(len(header)) if (option := f"caption_{n}") in header]
    captions, items = [], []
    for number, (row, image) in enumerate(zip(rows, image_rows, strict=True)):
        where = f"{file}: row {number}"
        if "captions" in header:
            captions.append(Translation(image.id, files.texts_in(row, "captions", where, single=False)))
            continue
        right = f"caption_{row['correct_answer'].strip().removesuffix('.0')}"
        if right not in options or len(options) < 2:
            raise RequestError(
                f"{where}: expected correct_answer to be the number of one of {', '.join(options) or 'caption_0 …'}, "
                f"got {row['correct_answer']!r}"
            )
        category = row.get("correct_answer_template") or "all"
        negatives = [(category, row[option]) for option in options if option != right]
        items.append(HardNegativeItem(str(number), image, row[right], negatives))
    contents = hard_negatives(items) if items else translations(image_rows, captions)
    return published_corpus("negbench", contents, part=files.corpus_name(file), images=images, missing=missing)
