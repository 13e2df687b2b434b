"""The documents of a judged corpus: rows of a table with images or their files, or the images of a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from capim.store.errors import RequestError
from capim.tasks.corpora.build import Faults, ImageRow, SkippedRow
from capim.tasks.corpora.images.image_files import (
    LocatedImages,
    Missing,
    files_below,
    is_image_name,
    locate_images,
    without_image_suffix,
)
from capim.tasks.corpora.readers.judged_files import NAMES, JudgedFiles


def documents_of(
    files: JudgedFiles,
    subsets: Sequence[str],
    judged: Sequence[str],
    images: str | Path | Sequence[str | Path] | None,
    ids_only: bool,
    missing: Missing,
    faults: Faults,
) -> LocatedImages:
    """The documents, which all subsets have in common; without a table of them the images of the folder."""
    table = files.table("documents", subsets[0])
    beside: list[str | Path] = [images] if isinstance(images, str | Path) else list(images or ())
    if not beside and files.folder is not None:
        beside = [folder for folder in (files.folder / "images", files.folder) if folder.is_dir()]
    if table is None:
        if not beside or ids_only:
            rows = [ImageRow(each) for each in dict.fromkeys(judged)] if ids_only else []
            if not rows:
                raise RequestError(f"{files.place}: no documents; looked for {', '.join(NAMES['documents'])}")
            return LocatedImages(rows, None, [])
        return _image_files(Path(beside[0]), set(judged), files, missing)
    rows = [_page(row, number, faults) for number, row in enumerate(table.rows, start=1)]
    ids = [row.id for row in rows]
    for subset in subsets[1:]:
        if not files.shared(subset) or [str(row["id"]) for row in files.require("documents", subset).rows] != ids:
            raise RequestError(
                f"{files.place}: subsets {subsets[0]} and {subset} have different documents; read one at a time with "
                f'subsets = ["{subset}"]'
            )
    if ids_only:
        return LocatedImages(rows, None, [])
    if subsets[0] and (pictures := files.table("images", subsets[0])) is not None and pictures.source is not None:
        key_of = {str(row["id"]): str(row["image"]) for row in pictures.rows}
        rows = [row._replace(key=key_of.get(row.key, "")) for row in rows]
        table = table._replace(source=pictures.source, absent=pictures.absent | {""})
    if table.source is not None:
        empty = [SkippedRow(row.id, "the data set holds no image") for row in rows if row.key in table.absent]
        if empty and missing == "error":
            raise RequestError(
                f"{table.where}: {len(empty)} documents hold no image, the first {empty[0].item_id!r}; leave them out "
                'with missing = "skip"'
            )
        return LocatedImages([row for row in rows if row.key not in table.absent], table.source, empty)
    if not beside:
        raise RequestError(f"{table.where}: it holds no images; give their folder with images, or set ids_only = true")
    return locate_images(rows, beside, missing=missing, origin=table.where)


def text_or_none(cell: object) -> str | None:
    """A cell as text; None for one that holds nothing."""
    return None if cell is None else str(cell)


def _page(row: Mapping[str, Any], number: int, faults: Faults) -> ImageRow:
    if row["id"] in (None, ""):
        faults.add("documents without an id", f"row {number}")
    page = row.get("page")
    return ImageRow(
        str(row["id"]),
        str(row.get("image") or row["id"]),
        text=text_or_none(row.get("text")),
        document=text_or_none(row.get("document")),
        page=int(str(page)) if str(page).isdigit() else None,
    )


def _image_files(folder: Path, judged: set[str], files: JudgedFiles, missing: Missing) -> LocatedImages:
    """The images of a folder; ids are the names of their files, without the suffix unless judgements have it."""
    found = sorted(file for file in files_below(folder) if is_image_name(file))
    whole = not judged.isdisjoint(found)
    rows = [ImageRow(file if whole else without_image_suffix(file), file) for file in found]
    if not rows:
        raise RequestError(f"{files.place}: no documents: neither a table of them nor images in {folder}")
    return locate_images(rows, folder, missing=missing, origin=files.place)
