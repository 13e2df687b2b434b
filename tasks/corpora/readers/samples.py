"""Samples: an image and its text of the same name, as files (``a.jpg``, ``a.txt``, also in two folders) or in shards.

The shards of webdataset are tar files in which the files of one sample follow one another and share the name up to the
first dot. They are read once from front to back to list and hash their members, with one sample in memory at a time;
after that, an image takes one seek and one read. https://github.com/webdataset/webdataset
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

from capim.store.errors import RequestError
from capim.store.tables import IMAGE_SUFFIXES, read_text, skips_bad_rows
from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA, pinned
from capim.tasks.corpora.build import CaptionRow, Faults, ImageRow, SkippedRow
from capim.tasks.corpora.files import corpus_name, require_folder, texts_in
from capim.tasks.corpora.images import image_files
from capim.tasks.corpora.images.decode import image_facts
from capim.tasks.corpora.images.source import path_in
from capim.tasks.corpora.readers.hub import files_of

Lines: TypeAlias = Literal["one", "each"]

_NO_CAPTIONS = ("readme", "license", "licence", "notice", "changelog", "requirements", "classes")
_NAME = re.compile(r"^((?:.*/)?[^./][^.]*)\.([^/]+)$")
_KEY = re.compile(r"^(\d+)\+(\d+)@(.+)$")
_CC3M = "cc3m-validation-*.tar"
_LARGEST_TEXT = 1 << 20
_GLANCE = 100  # files of a shard, by which the ends of their names are shown


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


@dataclass(frozen=True)
class TarShards:
    """Members of uncompressed tar files below one folder; a key is ``offset+size@shard``."""

    root: Path

    def read(self, key: str) -> bytes:
        """Return the bytes of one member; raise ``OSError`` if the shard does not exist or has become shorter."""
        match = _KEY.match(key)
        if match is None:
            raise FileNotFoundError(f"{key!r} is not the key of a member; expected offset+size@shard")
        offset, size = int(match[1]), int(match[2])
        with path_in(self.root, match[3]).open("rb") as file:
            file.seek(offset)
            data = file.read(size)
        if len(data) != size:
            raise OSError(f"{match[3]}: ends before byte {offset + size}; has the file changed?")
        return data


def read_webdataset(
    root: str | Path,
    *,
    shards: str = "*.tar",
    caption: str = "txt",
    captions_in_file: Lines | None = None,
    language: str = "en",
    name: str | None = None,
) -> Corpus:
    """Return the samples of all shards, in the order of the shards' names and then of their members.

    A sample's id is its name; samples without an image or without a caption are listed as skipped.

    Args:
        shards: Pattern of their file names.
        caption: Suffix of the caption file: ``txt`` (its text), or ``json`` (a text, or list of texts, in its
            field ``caption``).
        captions_in_file: ``one`` if a whole text is one caption, ``each`` if each of its lines is one, as in the shards
            of CLIP_benchmark. It has to be given if any text has several lines.

    Raises:
        RequestError: No file matches, a shard is compressed, damaged or cut short, or sample names repeat; a shard
            that is cut is never a smaller corpus.
    """
    folder = require_folder(root, "shard folder")
    files = sorted(file for file in folder.glob(shards) if file.is_file())  # a pipe never ends
    if not files:
        raise RequestError(f"{folder}: no file matches shards = {shards!r}; check the folder and the pattern")
    found, captions, several = image_files.LocatedImages([], TarShards(folder), []), list[CaptionRow](), list[str]()
    for file, sample, image, texts in samples_of(folder, files, caption.lower()):
        if image is None or not texts:
            lacking = "no image" if image is None else f"no {caption} caption"
            found.skipped.append(SkippedRow(sample, f"{lacking} in {file.name}"))
            continue
        lines = lines_of(texts[0]) if caption.lower() != "json" else []
        if len(lines) > 1:
            several.append(f"{sample}.{caption} in {file.name}")
        said = lines if lines and captions_in_file == "each" else texts
        captions.extend(CaptionRow(f"{sample}#{n}", sample, text, n, language) for n, text in enumerate(said))
        found.rows.append(image)
    if captions_in_file is None:
        refuse_several(several, folder)
    try:
        return found.corpus(name or corpus_name(folder), captions, origin=str(folder))
    except RequestError as error:
        if found.rows or not found.skipped:
            raise
        with tarfile.open(files[0], "r:") as tar:
            ends = ", ".join(dict.fromkeys(end for _, end, _ in islice(_named_members(tar), _GLANCE)))
        way = 'name that of the captions with caption = "…"; an image ends with its suffix alone, as in name.jpg'
        raise RequestError([*error.faults, f"{files[0]}: its files end with {ends}: {way}"]) from error


def read_cc3m(
    root: str | Path | None = None, *, dataset: str = CORPORA["cc3m"].hub, revision: str | None = None
) -> Corpus:
    """Conceptual Captions, validation split (Sharma et al. 2018): web images and their alternative texts.

    The samples of the shards in their order: about 13,000 of 15,840, without those with a dead link.

    Args:
        root: Folder of the shards; from the hub unless given, which downloads them into its cache.

    Raises:
        RequestError: The shards do not exist and cannot be downloaded, or one is damaged.
    """
    if root is None:
        root = files_of(dataset, revision or pinned(dataset), _CC3M)
    corpus = read_webdataset(root, shards=_CC3M, captions_in_file="one", name="cc3m-validation")
    return replace(corpus, licence=CORPORA["cc3m"].licence, origin=f"https://huggingface.co/datasets/{dataset}")


def samples_of(
    folder: Path, files: Iterable[Path], suffix: str
) -> Iterator[tuple[Path, str, ImageRow | None, Sequence[str]]]:
    """Yield shard, name, image, and texts of the member with a suffix, of every sample of shards below a folder."""
    for file in files:
        for sample, image, texts in _samples(file, file.relative_to(folder).as_posix(), suffix):
            yield file, sample, image, texts


def _samples(file: Path, shard: str, caption: str) -> Iterator[tuple[str, ImageRow | None, Sequence[str]]]:
    try:
        with tarfile.open(file, "r:") as tar, file.open("rb") as data:
            for identifier, members in groupby(_named_members(tar), key=itemgetter(0)):
                image: ImageRow | None = None
                texts: Sequence[str] = ()
                ends: set[str] = set()
                for _, suffix, member in members:
                    if suffix in ends:
                        raise RequestError(f"{file}: {member.name} is in it twice; write each sample once")
                    ends.add(suffix)
                    if f".{suffix}" in IMAGE_SUFFIXES and image is None:
                        facts = image_facts(_contents(data, member, file))
                        image = ImageRow(identifier, f"{member.offset_data}+{member.size}@{shard}", *facts)
                    elif suffix == caption and member.size <= _LARGEST_TEXT:
                        where = f"{file}: {member.name}"
                        texts = _texts(_contents(data, member, file), caption, where)
                yield identifier, image, texts
            _require_end(tar.offset, data, file)
    except tarfile.ReadError as error:
        raise RequestError(f"{file}: not an uncompressed tar file, or damaged ({error}); unpack .gz first") from error


def _named_members(tar: tarfile.TarFile) -> Iterator[tuple[str, str, tarfile.TarInfo]]:
    """Yield sample name, suffix and member of every file in a shard."""
    for member in tar:
        tar.members = []  # type: ignore[attr-defined]  # else the list of all members grows with the shard
        match = _NAME.match(member.name.removeprefix("./"))
        if member.isreg() and match is not None:
            yield match[1], match[2].lower(), member


def _require_end(offset: int, data: BinaryIO, file: Path) -> None:
    """Raise ``RequestError`` unless the archive ends where no further member was found, with zeros as every tar file.

    ``tarfile`` takes a damaged header, and a file that is cut between members, for the end.
    """
    data.seek(offset)
    end = data.read(tarfile.BLOCKSIZE)
    if len(end) < tarfile.BLOCKSIZE or any(end):
        raise RequestError(f"{file}: damaged or cut short at byte {offset:,}; download it again")
    while rest := data.read(1 << 20):
        if any(rest):
            raise RequestError(f"{file}: holds more after the end of the archive; split it into one file per archive")


def _contents(data: BinaryIO, member: tarfile.TarInfo, file: Path) -> bytes:
    data.seek(member.offset_data)
    content = data.read(member.size)
    if len(content) != member.size:
        raise RequestError(f"{file}: cut short within {member.name}; download it again")
    return content


def _texts(content: bytes, caption: str, where: str) -> Sequence[str]:
    try:
        text = content.decode("utf-8")
        if caption != "json":
            return (text.strip("\r\n"),)
        value = json.loads(text)
    except ValueError as error:
        raise RequestError(f"{where}: not {'JSON' if caption == 'json' else 'UTF-8 text'} ({error})") from error
    given = value.get("caption") if isinstance(value, dict) else None
    return () if given is None else texts_in(value, "caption", where)
