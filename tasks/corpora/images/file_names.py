"""Image files found by names that are not exactly theirs.

A name is compared without regard to case and to the form of accented letters. It may have another image suffix or none,
it may lack the folders above the file, or have folders that are not there, such as those of another machine; a number
may lack its leading zeros. A name that fits several files is never guessed.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from capim.store.errors import nearest

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")


def is_image_name(name: str) -> bool:
    """Whether a name ends with the suffix of an image file, in any case."""
    return name.lower().endswith(IMAGE_SUFFIXES)


def without_image_suffix(name: str) -> str:
    """The name without an image suffix; any other suffix stays.

    Examples:
        >>> without_image_suffix("deep/a.JPG"), without_image_suffix("scan.v2")
        ('deep/a', 'scan.v2')
    """
    return name.rpartition(".")[0] if is_image_name(name) else name


def files_below(folder: Path) -> Iterator[str]:
    """The paths of all files below a folder, relative and with ``/``, sorted; hidden files and folders are left out.

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


class FileNames:
    """The image files below some folders; the folders are read when a name is first looked up."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    def find(self, name: str) -> list[str]:
        """The files that a name fits, as paths relative to their folder: none, the one, or those it cannot tell apart.

        The longest part of the path that fits any file decides. For the same part, the name as it is comes before the
        name with another suffix or none, the very place before a folder below it, and the same case before another.
        """
        parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
        for start in range(len(parts)):
            path = "/".join(parts[start:])
            for folded, index in ((_fold(path), self._by_name), (_fold_stem(path), self._by_stem)):
                places = index.get(folded.rpartition("/")[2], ())
                fits = {file: place for place, file in places if f"/{place}".endswith(f"/{folded}")}
                here = [file for file, place in fits.items() if place == folded and start == 0]
                if fits:
                    return here or [file for file in fits if f"/{file}".endswith(f"/{path}")] or list(fits)
        return []

    def near(self, name: str) -> str | None:
        """The file whose name is most like this one and has the same numbers; None if there is none."""
        stem = _fold_stem(name.replace("\\", "/").rpartition("/")[2])
        alike = {other: files[0][1] for other, files in self._by_stem.items() if _numbers(other) == _numbers(stem)}
        close = nearest(stem, alike, cutoff=0.7)
        return None if close is None else alike[close]

    @cached_property
    def _files(self) -> list[str]:
        """Every image file once, relative to the first of the folders that it is below."""
        by_path: dict[Path, str] = {}
        for folder in self._folders:
            for file in filter(is_image_name, files_below(folder)):
                by_path.setdefault(folder / file, file)
        return list(by_path.values())

    @cached_property
    def _by_name(self) -> dict[str, list[tuple[str, str]]]:
        return _by_last_part((_fold(file), file) for file in self._files)

    @cached_property
    def _by_stem(self) -> dict[str, list[tuple[str, str]]]:
        return _by_last_part((_fold_stem(file), file) for file in self._files)


def _by_last_part(files: Iterator[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    groups: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for place, file in files:
        groups[place.rpartition("/")[2]].append((place, file))
    return dict(groups)


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _fold_stem(name: str) -> str:
    """The name without image suffix; a name of digits without leading zeros, as an image's number is often given."""
    folder, slash, stem = _fold(without_image_suffix(name)).rpartition("/")
    number = stem.isascii() and stem.isdigit()
    return folder + slash + ((stem.lstrip("0") or "0") if number else stem)


def _numbers(name: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"[0-9]+", name)]
