"""Which of the images that a corpus names are there, under which of the names that COCO's releases gave them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from store.errors import RequestError
from tasks.corpora.files import require_folder
from tasks.corpora.images.source import Folder
from tasks.corpora.rows import ImageRow, SkippedRow

Missing: TypeAlias = Literal["error", "skip"]

_COCO = re.compile(r"^(?:.*/)?(?:COCO_(?:train|val|test)\d{4}_)?(\d{12})\.jpg$")
_SHOWN = 5


def coco_id(file_name: str) -> str | None:
    """The COCO image id in a COCO file name, None where it is none.

    Examples:
        >>> coco_id("val2014/COCO_val2014_000000391895.jpg"), coco_id("000000000285.jpg"), coco_id("1007129816.jpg")
        ('391895', '285', None)
    """
    match = _COCO.match(file_name)
    return str(int(match[1])) if match else None


def coco_names(file_name: str) -> tuple[str, ...]:
    """The names under which a COCO image may lie in a folder, the given one first.

    The 2014 release writes ``val2014/COCO_val2014_000000000285.jpg``, the 2017 release the same image as
    ``000000000285.jpg``; the bytes are the same.

    Examples:
        >>> coco_names("val2014/COCO_val2014_000000000285.jpg")[:3]
        ('val2014/COCO_val2014_000000000285.jpg', 'COCO_val2014_000000000285.jpg', '000000000285.jpg')
        >>> coco_names("red.png")
        ('red.png',)
    """
    match = _COCO.match(file_name)
    if match is None:
        return (file_name,)
    number, bare = match[1], file_name.rpartition("/")[2]
    old = [f"COCO_{split}2014_{number}.jpg" for split in ("val", "train")]
    names = [file_name, bare, f"{number}.jpg", *old]
    names += [f"{name[5:].partition('_')[0]}/{name}" for name in old]
    names += [f"{split}2017/{number}.jpg" for split in ("val", "train")]
    return tuple(dict.fromkeys(names))


def file_name_only(file_name: str) -> tuple[str, ...]:
    """A file name as it is: the names of a corpus that has no others."""
    return (file_name,)


def present(
    rows: Iterable[ImageRow],
    folders: Sequence[Folder],
    *,
    missing: Missing,
    origin: object,
    names: Callable[[str], Sequence[str]] = file_name_only,
) -> tuple[list[ImageRow], list[SkippedRow]]:
    """The rows whose file is there, with the key under which it is, and the others as skipped or as one error.

    Args:
        rows: As a corpus lists them; the key (or id) is the file name.
        folders: Where to look, in turn.
        missing: ``error``, or ``skip`` to list images without a file.
        origin: What names the images, for messages.
        names: The names that a file may have.

    Raises:
        RequestError: Files are missing and that is an error, or a name leaves the folder or cannot be one.
    """
    if missing not in ("error", "skip"):
        raise RequestError(f"missing = {missing!r}: must be 'error' or 'skip'")
    kept: list[ImageRow] = []
    lost: list[ImageRow] = []
    for row in rows:
        candidates = names(row.key or row.id)
        try:
            found = (name for folder in folders for name in candidates if folder.path(name).is_file())
            key = next(found, None)
        except OSError as error:  # the name leaves the folder, or is longer than a file's can be
            raise RequestError(f"{origin}: {error!s:.300}") from error
        if key is None:
            lost.append(row)
        else:
            kept.append(row._replace(key=key))
    if lost and missing == "error":
        shown = ", ".join(row.key or row.id for row in lost[:_SHOWN])
        more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
        raise RequestError(
            f"{origin}: names {len(lost)} images that are not in {', '.join(str(folder.root) for folder in folders)}: "
            f'{shown}{more}; put them there, or leave them out with missing = "skip"'
        )
    return kept, [SkippedRow(row.id, f"no file {row.key or row.id}") for row in lost]


class Located(NamedTuple):
    """A corpus' images with where they lie: rows to keep, their source (None: ids alone), rows left out."""

    rows: list[ImageRow]
    source: Folder | None
    skipped: list[SkippedRow]


def located(
    rows: Iterable[ImageRow],
    images: str | Path | None,
    *,
    missing: Missing,
    origin: object,
    names: Callable[[str], Sequence[str]] = coco_names,
) -> Located:
    """The rows with their files in one folder; where no folder is given, all rows, as ids alone.

    Raises:
        RequestError: As :func:`present`; or the folder does not exist.
    """
    if images is None:
        return Located(list(rows), None, [])
    folder = Folder(require_folder(images, "image folder"))
    kept, skipped = present(rows, (folder,), missing=missing, origin=origin, names=names)
    return Located(kept, folder, skipped)
