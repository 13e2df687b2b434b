"""Crossmodal-3600: 3,600 photographs from around the world, human captions in 36 languages (Thapliyal et al. 2022).

https://google.github.io/crossmodal-3600/. The captions of different languages were written independently: the English
ones are not the originals of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from capim.store.errors import RequestError
from capim.store.types import Corpus, ImageSource
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.build import ImageRow
from capim.tasks.corpora.files import field, folder_in, read_json_lines, require_folder, require_known, require_match
from capim.tasks.corpora.images.image_files import Missing
from capim.tasks.corpora.readers.hub import load_split
from capim.tasks.corpora.readers.published import Translation, published_corpus, translations

LANGUAGES = CORPORA["crossmodal3600"].languages
HUB = CORPORA["crossmodal3600"].hub


def read_crossmodal3600(
    root: str | Path | None = None,
    *,
    images: str | Path | None = None,
    languages: Sequence[str] = LANGUAGES,
    missing: Missing = "error",
    dataset: str = HUB,
    revision: str | None = None,
) -> Corpus:
    """The captions language by language, images in the order of ``captions.jsonl``.

    Args:
        root: Folder with ``captions.jsonl``; from the hub unless given.
        images: Folder of the images; ``root/images`` by default. Without one, texts and ids only.

    Raises:
        RequestError: A language, file or image is missing.
    """
    require_known("crossmodal3600", "languages", languages, LANGUAGES)
    source, origin = None, ""
    if root is None:
        rows, captions, source = _from_hub(dataset, revision, languages)
        images, origin = None, f"https://huggingface.co/datasets/{dataset}"
    else:
        folder = require_folder(root, "crossmodal3600 folder")
        hint = "it is in captions.zip at https://google.github.io/crossmodal-3600/"
        file = require_match(folder, "captions.jsonl", "*/captions.jsonl", hint=hint)
        entries = list(read_json_lines(file))
        ids = [field(entry, "image/key", str, f"{file}: line {i + 1}") for i, entry in enumerate(entries)]
        rows = [ImageRow(identifier, f"{identifier}.jpg") for identifier in ids]
        captions = [
            Translation(identifier, _captions(entry, language, f"{file}: image {identifier}"), language)
            for language in languages
            for identifier, entry in zip(ids, entries, strict=True)
        ]
        images = images or folder_in(file.parent, "images")
    contents = translations(rows, captions)
    return published_corpus("crossmodal3600", contents, images=images, missing=missing, source=source, origin=origin)


def _captions(entry: object, language: str, where: str) -> list[str]:
    texts: list[str] = field(field(entry, language, dict, where), "caption", list, f"{where}: {language}")
    return texts


def _from_hub(
    dataset: str, revision: str | None, languages: Sequence[str]
) -> tuple[list[ImageRow], list[Translation], ImageSource]:
    splits = {
        language: load_split(dataset, split=language, revision=revision, need=("image_id", "captions", "image"))
        for language in languages
    }
    first = splits[languages[0]]
    rows = [ImageRow(str(row["image_id"]), f"image/{i}") for i, row in enumerate(first.rows())]
    captions: list[Translation] = []
    for language, split in splits.items():
        captions_of = {str(row["image_id"]): row["captions"] for row in split.rows()}
        if captions_of.keys() != {row.id for row in rows}:
            raise RequestError(f"{split.name}: its images are not those of split {languages[0]}")
        captions += [Translation(row.id, captions_of[row.id], language) for row in rows]
    return rows, captions, first.source
