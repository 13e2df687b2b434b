"""The image files that a corpus names, found under COCO's other names and under names that are not exactly theirs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from capim.store.errors import RequestError
from capim.store.types import ImageSource
from capim.tasks.corpora.files import require_folder
from capim.tasks.corpora.images.file_names import FileNames
from capim.tasks.corpora.images.source import Folder, Folders
from capim.tasks.corpora.rows import Faults, ImageRow, SkippedRow

Missing: TypeAlias = Literal["error", "skip"]

_COCO = re.compile(r"^(?:.*/)?(?:COCO_(?:train|val|test)\d{4}_)?(\d{12})\.jpg$")
_SHOWN = 5


def coco_id(file_name: str) -> str | None:
    """The COCO image id in a file name; None if it is not a COCO file name.

    Examples:
        >>> coco_id("val2014/COCO_val2014_000000391895.jpg"), coco_id("000000000285.jpg"), coco_id("1007129816.jpg")
        ('391895', '285', None)
    """
    match = _COCO.match(file_name)
    return str(int(match[1])) if match else None


def image_id_of(file_name: str) -> str:
    """The COCO image id in a file name, else the file name without folder and suffix."""
    return coco_id(file_name) or Path(file_name).stem


def coco_names(file_name: str) -> tuple[str, ...]:
    """The names that a COCO image may have in a folder, the given one first; of any other file its name only.

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


class LocatedImages(NamedTuple):
    """Images with a file (all images, and no source, if no folder was given), and images left out."""

    rows: list[ImageRow]
    source: ImageSource | None
    skipped: list[SkippedRow]


def locate_images(
    rows: Iterable[ImageRow],
    images: str | Path | Sequence[str | Path] | None,
    *,
    missing: Missing,
    origin: object,
) -> LocatedImages:
    """The images whose file is in one of the folders, with its name there as the key.

    A name that is not a file's is compared as in :mod:`tasks.corpora.images.file_names`.

    Args:
        rows: In corpus order; the key (or id) is the file name.
        images: Folder or folders, searched in order; None for a corpus of ids and texts without image files.
        missing: ``error``, or ``skip`` to leave out images without a file.
        origin: File or data set that names the images, for messages.

    Raises:
        RequestError: A folder does not exist, files are missing and ``missing`` is ``error``, a name fits several
            files, or two names mean one file; lists every fault.
    """
    if images is None:
        return LocatedImages(list(rows), None, [])
    paths = [images] if isinstance(images, str | Path) else images
    search = _Search([Folder(require_folder(path, "image folder")) for path in paths], Faults(str(origin)))
    located: list[ImageRow] = []
    skipped: list[SkippedRow] = []
    for row in rows:
        name = row.key or row.id
        try:
            key = search.file_of(name)
        except OSError as error:  # the name leaves the folder, or is longer than a file name can be
            raise RequestError(f"{origin}: {error!s:.300}") from error
        if key is None:
            skipped.append(SkippedRow(row.id, f"no file {name}"))
        else:
            located.append(row._replace(key=key))
    faults = search.faults.lines()
    if skipped and missing == "error":
        names = [row.reason.removeprefix("no file ") for row in skipped[:_SHOWN]]
        near = [search.names.near(name) for name in names]
        shown = ", ".join(name + (f" (is it {file}?)" if file else "") for name, file in zip(names, near, strict=True))
        more = f" and {len(skipped) - _SHOWN} more" if len(skipped) > _SHOWN else ""
        faults.append(
            f"{origin}: {len(skipped)} of its images are not in {', '.join(map(str, paths))}: {shown}{more}; "
            'put them there, or leave them out with missing = "skip"'
        )
    if faults:
        raise RequestError(faults)
    folders = search.folders
    source = folders[0] if len(folders) == 1 else Folders(tuple(folder.root for folder in folders))
    return LocatedImages(located, source, skipped)


class _Search:
    """Finds the files of names one after the other, and notes names that fit several files or the same one."""

    def __init__(self, folders: Sequence[Folder], faults: Faults) -> None:
        self.folders = folders
        self.faults = faults
        self.names = FileNames([folder.root for folder in folders])
        self._roots = [root for folder in folders for root in (folder.root, folder.root.resolve())]
        self._named: set[str] = set()  # files found by their own name
        self._guessed: dict[str, str] = {}  # file -> another name that it was found by

    def file_of(self, name: str) -> str | None:
        """The file of a name, relative to its folder; None if there is none.

        Raises:
            OSError: The name leaves the folder and fits no file in it.
        """
        inside = self._inside(name)
        outside: OSError | None = None
        try:
            files = (each for folder in self.folders for each in coco_names(inside) if folder.path(each).is_file())
            if (file := next(files, None)) is not None:
                self._named.add(file)
                if file in self._guessed:
                    self._one_file(self._guessed[file], name, file)
                return file
        except PermissionError as error:
            outside = error
        fits = self.names.find(inside)
        if len(fits) > 1:
            shown = ", ".join(fits[:_SHOWN])
            self.faults.add("image names that fit several files; write their path", f"{name!r} ({shown})")
        elif fits:
            other = self._guessed.setdefault(fits[0], name)
            if other != name or fits[0] in self._named:
                self._one_file(fits[0] if other == name else other, name, fits[0])
        elif outside is not None:
            raise outside
        return fits[0] if fits else None

    def _inside(self, name: str) -> str:
        """An absolute path below one of the folders as a path relative to it; any other name as it is."""
        path = Path(name)
        if path.is_absolute() and ".." not in path.parts:
            for root in self._roots:
                if path.is_relative_to(root):
                    return path.relative_to(root).as_posix()
        return name

    def _one_file(self, one: str, other: str, file: str) -> None:
        self.faults.add("image names that mean the same file", f"{one!r} and {other!r} ({file})")
