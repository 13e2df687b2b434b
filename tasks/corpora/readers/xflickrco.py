"""xFlickr&CO: human captions in 8 languages of 1,000 Flickr30k and 1,000 COCO test images (IGLUE, Bugliarello 2022)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.build import ImageRow
from capim.tasks.corpora.files import field, read_json_lines, require_files, require_folder, require_known
from capim.tasks.corpora.images.image_files import Missing
from capim.tasks.corpora.readers.forms import unlisted
from capim.tasks.corpora.readers.hub import load_split
from capim.tasks.corpora.readers.published import Translation, published_corpus, translations

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
        images: Folder, or folders, of Flickr30k and COCO images; without one, local files give texts and ids only.
        languages: Languages to read, of the eight; English is the reference and comes first where it is among them.

    Raises:
        RequestError: A file, language or image is missing, or the languages disagree on the images or their order.
    """
    require_known("xflickrco", "languages", languages, LANGUAGES)
    lines: dict[str, Iterable[Mapping[str, Any]]]
    source, origin = None, ""
    if root is None:
        splits = {language: load_split(dataset, split=language, revision=revision) for language in languages}
        lines = {language: split.rows() for language, split in splits.items()}
        source, origin = splits[languages[0]].source, f"https://huggingface.co/datasets/{dataset}"
    else:
        folder, names = require_folder(root, "xflickrco folder"), [f"{language}.jsonl" for language in languages]
        files = require_files(folder, names, hint="download from github.com/e-bug/iglue")
        lines = {language: read_json_lines(file) for language, file in zip(languages, files, strict=True)}
    rows: list[ImageRow] = []
    captions: list[Translation] = []
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
                expected = f"image {rows[number].id}" if number < len(rows) else "no more images"
                raise RequestError(f"{where}: expected {expected} as in {languages[0]}, got image {identifier}")
            texts: Any = unlisted(field(entry, "sentences", list | str, where))  # the hub has lists as texts
            captions.append(Translation(identifier, [texts] if isinstance(texts, str) else texts, language))
        if number + 1 != len(rows):
            raise RequestError(
                f"xflickrco: {language}: expected {len(rows)} images as in {languages[0]}, got {number + 1}"
            )
    images = None if root is None else images
    contents = translations(rows, captions)
    return published_corpus("xflickrco", contents, images=images, missing=missing, source=source, origin=origin)
