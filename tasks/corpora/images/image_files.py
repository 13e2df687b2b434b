"""The image files that a corpus names, found under names that are not exactly theirs.

A name is compared without regard to case and to the form of accented letters. It may have another image suffix or none,
it may lack the folders above the file, or have folders that are not there, such as those of another machine; a number
may lack its leading zeros, or have the prefix of COCO's release of 2014 (``COCO_val2014_000000000285.jpg`` is
``000000000285.jpg`` of 2017); it may be an address with the file's name in it. A name that fits several files is never
guessed.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from capim.store.errors import RequestError, nearest, some
from capim.store.sets.columns_read import tell
from capim.store.tables import is_image_name, plain_path, skips_bad_rows
from capim.store.types import Corpus, ImageSource
from capim.tasks.corpora.build import CaptionRow, Faults, ImageRow, SkippedRow, build_corpus
from capim.tasks.corpora.files import require_folder
from capim.tasks.corpora.images.source import Folders, path_in

_COCO = re.compile(r"^(?:.*/)?(?:COCO_(?:train|val|test)\d{4}_)?(\d{12})\.jpg$")
_COCO_2014 = re.compile(r"^coco_(?:train|val|test)2014_(?=\d{12}$)")
_SHOWN = 5
_ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar")


def without_image_suffix(name: str) -> str:
    """Return the name without an image suffix; any other suffix stays.

    Examples:
        >>> without_image_suffix("deep/a.JPG"), without_image_suffix("scan.v2")
        ('deep/a', 'scan.v2')
    """
    return name.rpartition(".")[0] if is_image_name(name) else name


def files_below(folder: Path) -> Iterator[str]:
    """Yield the paths of all files below a folder, relative and with ``/``, sorted; hidden ones are left out.

    Linked folders are entered, each once.
    """
    seen: set[str] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__MACOSX")
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        above = Path(place).relative_to(folder)
        yield from ((above / name).as_posix() for name in sorted(files) if not name.startswith("."))


def images_below(folder: Path) -> list[str]:
    """Return the paths of all image files below a folder, as of :func:`files_below`."""
    return [file for file in files_below(folder) if is_image_name(file)]


class _ImageFiles:
    """The image files below some folders; these are listed when a name is first looked up that no file has."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._roots = [root for folder in folders for root in (folder, folder.resolve())]

    def find(self, name: str) -> tuple[list[str], bool]:
        """Return the files of a name, relative to their folder, and whether they have another name.

        Raises:
            OSError: The name leaves the folder and fits no file in it.
        """
        inside, outside = self._inside(name), None
        try:
            if any(path_in(folder, inside).is_file() for folder in self._folders):
                return [inside], False
        except PermissionError as error:
            outside = error
        fits = self.fitting(inside) or self.fitting(plain_path(inside))
        if outside is not None and not fits:
            raise outside
        return fits, True

    def _inside(self, name: str) -> str:
        """Return an absolute path below one of the folders as a path relative to it; any other name as it is."""
        path = Path(name)
        if path.is_absolute() and ".." not in path.parts:
            for root in self._roots:
                if path.is_relative_to(root):
                    return path.relative_to(root).as_posix()
        return name

    def fitting(self, name: str) -> list[str]:
        """Return the files that a name fits, relative to their folder: none, the one, or those it cannot tell apart.

        The longest part of the path that fits any file decides. For the same part, the name as it is comes before the
        name with another suffix or none, the very place before a folder below it, and the same case before another.
        """
        parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
        for start in range(len(parts)):
            path = "/".join(parts[start:])
            for fold in (_fold, _fold_stem):
                folded = fold(path)
                places = self._by_last_part[fold].get(folded.rpartition("/")[2], ())
                fits = {file: place for place, file in places if f"/{place}".endswith(f"/{folded}")}
                here = [file for file, place in fits.items() if place == folded and start == 0]
                if fits:
                    return here or [file for file in fits if f"/{file}".endswith(f"/{path}")] or list(fits)
        return []

    def near(self, name: str) -> str | None:
        """Return the file with the most similar name and the same numbers; None if there is none."""
        stem = _fold_stem(name.replace("\\", "/").rpartition("/")[2])
        stems = self._by_last_part[_fold_stem]
        alike = {other: files[0][1] for other, files in stems.items() if _numbers(other) == _numbers(stem)}
        close = nearest(stem, alike, cutoff=0.7)
        return None if close is None else alike[close]

    @cached_property
    def by_path(self) -> dict[Path, str]:
        """Return every image file with its name relative to the first of the folders that it is below."""
        by_path: dict[Path, str] = {}
        for folder in self._folders:
            for file in images_below(folder):
                by_path.setdefault(folder / file, file)
        return by_path

    @cached_property
    def _by_last_part(self) -> dict[Callable[[str], str], dict[str, list[tuple[str, str]]]]:
        """Return how a path is folded -> last part of a folded path -> the folded paths with it, and their files."""
        groups: dict[Callable[[str], str], dict[str, list[tuple[str, str]]]] = {_fold: {}, _fold_stem: {}}
        for fold, group in groups.items():
            for file in self.by_path.values():
                group.setdefault((place := fold(file)).rpartition("/")[2], []).append((place, file))
        return groups


def any_below(folder: Path, names: Iterable[str]) -> bool:
    """True if a name, compared as in this module, is that of an image file below the folder."""
    search = _ImageFiles((folder,))
    return any(map(search.fitting, names))


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _fold_stem(name: str) -> str:
    """Return the name without image suffix and COCO's prefix of 2014, and a number without its leading zeros."""
    folder, slash, stem = _fold(without_image_suffix(name)).rpartition("/")
    stem = _COCO_2014.sub("", stem)
    number = stem.isascii() and stem.isdigit()
    return folder + slash + ((stem.lstrip("0") or "0") if number else stem)


def _numbers(name: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"[0-9]+", name)]


def coco_id(file_name: str) -> str | None:
    """Return the COCO image id in a file name; None if it is not a COCO file name.

    Examples:
        >>> coco_id("val2014/COCO_val2014_000000391895.jpg"), coco_id("000000000285.jpg"), coco_id("1007129816.jpg")
        ('391895', '285', None)
    """
    match = _COCO.match(file_name)
    return str(int(match[1])) if match else None


def image_id_of(file_name: str) -> str:
    """Return the COCO image id in a file name, else the file name without folder and suffix."""
    return coco_id(file_name) or Path(file_name).stem


def _beside(folders: Sequence[Path], name: str) -> Path | None:
    """Return a folder next to those that were searched, or in one that is next to them, with a file of this name."""
    others = (each for folder in folders for each in sorted(folder.parent.iterdir()) if each.is_dir())
    last = name.replace("\\", "/").rpartition("/")[2]
    names = (last, *(f"{last}{suffix}" for suffix in (".jpg", ".png"))) if last and "://" not in name else ()
    return next((each for each in others if each not in folders and any((each / n).is_file() for n in names)), None)


class LocatedImages(NamedTuple):
    """Images with a file (all images, and no source, if no folder was given), and images left out."""

    rows: list[ImageRow]
    source: ImageSource | None
    skipped: list[SkippedRow]

    def tell_unnamed(self, where: object, way: str = "") -> None:
        """Warn of image files below the folders that are none of these images; ``way`` ends the line."""
        folders = self.source.roots if isinstance(self.source, Folders) else ()
        named = {folder / row.key.replace("\\", "/") for row in self.rows for folder in folders}
        if unnamed := [file for path, file in _ImageFiles(folders).by_path.items() if path not in named]:
            tell(
                f"warning: {where}: {len(unnamed):,} images of the folder are in no row read, first {unnamed[0]!r}{way}"
            )

    def corpus(self, name: str, captions: Iterable[CaptionRow], **more: Any) -> Corpus:
        """Return the corpus of these images; see :func:`tasks.corpora.build.build_corpus`."""
        return build_corpus(name, self.rows, captions, source=self.source, **{"skipped": self.skipped, **more})


def locate_images(
    rows: Iterable[ImageRow], images: str | Path | Sequence[str | Path] | None, *, origin: object
) -> LocatedImages:
    """Return the images with a file in one of the folders, with its name there as the key.

    A name that is not a file's is compared as in :mod:`tasks.corpora.images.image_files`.

    Args:
        rows: In corpus order; the key (or id) is the file name.
        images: Folder or folders, searched in order; None for a corpus of ids and texts without image files.
        origin: File or data set that names the images, for messages.

    Raises:
        RequestError: A folder does not exist, files are missing and are not to be left out, a name fits
            several files, or two names mean one file; lists every fault.
    """
    if images is None:
        return LocatedImages(list(rows), None, [])
    paths = [images] if isinstance(images, str | Path) else images
    folders = tuple(require_folder(path, "image folder") for path in paths)
    search, faults = _ImageFiles(folders), Faults(str(origin))
    located: list[ImageRow] = []
    skipped: list[SkippedRow] = []
    first_of: dict[str, tuple[str, bool]] = {}  # file -> the first name that means it, and whether it has another
    for row in rows:
        name = row.key or row.id
        try:
            files, guessed = search.find(name)
        except OSError as error:  # the name leaves the folder, or is longer than a file name can be
            raise RequestError(f"{origin}: {error!s:.300}, and no image in it has the last part as its name") from error
        if not files:
            skipped.append(SkippedRow(row.id, f"no file {name}"))
            continue
        located.append(row._replace(key=files[0]))
        if len(files) > 1:
            fits = ", ".join(files[:_SHOWN])
            faults.add("image names that fit several files; write their path", f"{name!r} ({fits})")
            continue
        first, first_guessed = first_of.setdefault(files[0], (name, guessed))
        if first != name and (guessed or first_guessed):
            faults.add("image names that mean the same file", f"{first!r} and {name!r} ({files[0]})")
    lines = faults.lines()
    if skipped and not skips_bad_rows():
        absent = [f"{row.reason.removeprefix('no file '):.200}" for row in skipped]
        shown = [f"{name} (is it {near}?)" if (near := search.near(name)) else name for name in absent[:_SHOWN]]
        listed, beside = some([*shown, *absent[_SHOWN:]], _SHOWN), _beside(folders, absent[0])
        lines.append(
            f"{origin}: {len(skipped)} of its images are not in {', '.join(map(str, paths))}: {listed}; "
            'put them there, or leave them out with missing = "skip"'
            + (f'; they may be in {beside}: images = "{beside}"' if beside else "")
            + "".join(f"; unpack {each.name} first" for each in folders[-1].iterdir() if each.suffix in _ARCHIVES)
            + ("; these are addresses: download the images first" if "://" in absent[0] else "")
            + ("" if located else "; ids are enough for embeddings made elsewhere (ids_only, docs/embeddings.md)")
        )
    if lines:
        raise RequestError(lines)
    return LocatedImages(located, Folders(folders), skipped)
