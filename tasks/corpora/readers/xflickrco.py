"""xFlickr&CO: human captions in 8 languages of 1,000 Flickr30k and 1,000 COCO test images (IGLUE, Bugliarello 2022)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from store.errors import RequestError
from store.types import Corpus, ImageSource
from tasks.corpora import CORPORA
from tasks.corpora.files import field, read_json_lines, require_folder
from tasks.corpora.images.image_files import Missing, coco_names, present
from tasks.corpora.images.source import Folder, Folders
from tasks.corpora.readers.hub import load_split
from tasks.corpora.readers.multilingual import Translation, multilingual_corpus
from tasks.corpora.rows import ImageRow, SkippedRow

LANGUAGES = CORPORA["xflickrco"].languages
HUB = CORPORA["xflickrco"].hub


def read_xflickrco(
    root: str | Path | None = None,
    *,
    images: str | Path | Sequence[str | Path] | None = None,
    languages: Sequence[str] = LANGUAGES,
    missing: Missing = "error",
    dataset: str = HUB,
    revision: str | None = None,
) -> Corpus:
    """The captions language by language, images in the order of the English file; ids are Flickr's and COCO's.

    Args:
        root: Folder with ``en.jsonl``, ``de.jsonl`` …; from the hub unless given.
        images: Folder, or folders, of Flickr30k and COCO images; without one, local files give texts and ids alone.
        languages: Which of the eight; English is the reference and comes first where it is among them.
        missing: ``error``, or ``skip`` to list images that are not there as skipped.
        dataset: Hub id, where no ``root`` is given; one split per language.
        revision: Of the hub data set.

    Raises:
        RequestError: A file, language or image is missing, or the languages disagree on the images or their order.
    """
    if unknown := sorted(set(languages) - set(LANGUAGES)):
        raise RequestError(f"xflickrco: unknown languages {', '.join(unknown)}; known: {', '.join(LANGUAGES)}")
    skipped: list[SkippedRow] = []
    source: ImageSource | None = None
    if root is None:
        splits = {language: load_split(dataset, split=language, revision=revision) for language in languages}
        lines: dict[str, Iterable[Mapping[str, Any]]] = {language: each.rows() for language, each in splits.items()}
        source, origin = splits[languages[0]].source, f"https://huggingface.co/datasets/{dataset}"
    else:
        folder = require_folder(root, "xflickrco folder")
        if absent := [f"{language}.jsonl" for language in languages if not (folder / f"{language}.jsonl").is_file()]:
            raise RequestError(f"{folder}: {', '.join(absent)} not in it; they are at github.com/e-bug/iglue")
        lines = {language: read_json_lines(folder / f"{language}.jsonl") for language in languages}
        origin = "https://github.com/e-bug/iglue"
    rows: list[ImageRow] = []
    translations: list[Translation] = []
    for language, entries in lines.items():
        first = not rows
        number = -1
        for number, entry in enumerate(entries):
            where = f"xflickrco: {language}: line {number + 1}"
            identifier = str(field(entry, "id", int | str, where))
            if first:
                key = f"image/{number}" if root is None else field(entry, "img_path", str, where)
                rows.append(ImageRow(identifier, key))
            elif number >= len(rows) or rows[number].id != identifier:
                raise RequestError(f"{where}: image {identifier}, which is not image {number + 1} of {languages[0]}")
            texts = field(entry, "sentences", list | str, where)
            translations.append(Translation(identifier, [texts] if isinstance(texts, str) else texts, language))
        if number + 1 != len(rows):
            raise RequestError(f"xflickrco: {language} has {number + 1} images, {languages[0]} has {len(rows)}")
    if root is not None and images is not None:
        given = [images] if isinstance(images, str | Path) else images
        folders = tuple(Folder(require_folder(each, "image folder")) for each in given)
        rows, skipped = present(rows, folders, missing=missing, origin=root, names=coco_names)
        source = Folders(tuple(each.root for each in folders))
    return multilingual_corpus(
        "xflickrco",
        rows,
        translations,
        source=source,
        skipped=skipped,
        licence=CORPORA["xflickrco"].licence,
        origin=origin,
    )
