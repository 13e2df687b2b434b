"""Images with a text file of the same name: ``a.jpg`` and ``a.txt``, next to each other or in two folders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from capim.store.errors import RequestError
from capim.store.tables import read_text, skips_bad_rows
from capim.store.types import Corpus
from capim.tasks.corpora.build import CaptionRow, Faults, ImageRow, SkippedRow
from capim.tasks.corpora.files import corpus_name, require_folder
from capim.tasks.corpora.images import image_files

Lines: TypeAlias = Literal["one", "each"]

_NO_CAPTIONS = ("readme", "license", "licence", "notice", "changelog", "requirements", "classes")


def read_image_texts(
    root: str | Path,
    *,
    images: str | Path | None = None,
    captions_in_file: Lines | None = None,
    language: str = "en",
    name: str | None = None,
) -> Corpus:
    """Return the images of a folder that have a text file, in the order of the paths of the text files.

    An image's id is the path of its text without ``.txt``. ``README.txt`` and its like are no captions.

    Args:
        root: Folder of the text files, searched with all folders below it.
        images: Folder of the images; ``root`` unless given.
        captions_in_file: ``one`` if a whole text is one caption, ``each`` if each of its lines is one. It has to be
            given if any text has several lines.

    Raises:
        RequestError: There is no text file, a text or an image is missing, or a text is empty; lists every fault.
    """
    folder = require_folder(root, "corpus folder")
    faults = Faults(str(folder))
    texts = {file.removesuffix(".txt"): read_text(folder / file) for file in text_files(folder)}
    if not texts:
        raise RequestError(f"{folder}: no text files in it; expected a .txt file with the name of each image")
    if captions_in_file is None:
        refuse_several([f"{name}.txt" for name, text in texts.items() if len(lines_of(text)) > 1], folder)
    captions = list(_captions(texts.items(), captions_in_file == "each", language, faults))
    rows = [ImageRow(name) for name in texts]
    located = image_files.locate_images(rows, images or folder, origin=folder)
    described = {row.key for row in located.rows}
    bare = [
        file
        for file in image_files.images_below(Path(images or folder))
        if file not in described and image_files.without_image_suffix(file) not in texts
    ]
    if not skips_bad_rows():
        for file in bare:
            faults.add('images without a text file; write it, or leave them out with missing = "skip"', repr(file))
    faults.raise_any()
    located.skipped.extend(SkippedRow(file, "no text file") for file in bare)
    return located.corpus(name or corpus_name(folder), captions, origin=str(folder))


def text_files(folder: Path) -> Iterator[str]:
    """Return the paths of the texts below a folder, relative to it; ``README.txt`` and its like are left out."""
    for file in image_files.files_below(folder):
        if file.endswith(".txt") and Path(file).stem.lower() not in _NO_CAPTIONS:
            yield file


def refuse_several(names: Sequence[str], where: object) -> None:
    """Raise ``RequestError`` for texts of several lines without an option that says if each line is a caption."""
    if names:
        raise RequestError(
            f"{where}: {len(names)} text files have several lines, the first {names[0]}; write captions_in_file = "
            '"each" if each line is a caption, or captions_in_file = "one" if a text is one caption'
        )


def lines_of(text: str) -> list[str]:
    """Return the lines of a text that are not blank, without the blanks around them."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def _captions(texts: Iterable[tuple[str, str]], each_line: bool, language: str, faults: Faults) -> Iterator[CaptionRow]:
    for name, text in texts:
        lines = lines_of(text) if each_line else [text.strip()]
        if not any(lines):
            faults.add("text files without text", f"{name}.txt")
        for number, line in enumerate(lines):
            yield CaptionRow(f"{name}#{number}", name, line, language=language)
