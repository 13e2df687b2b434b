"""Crossmodal-3600: 3,600 photographs from around the world, human captions in 36 languages (Thapliyal et al. 2022).

https://google.github.io/crossmodal-3600/. The captions of different languages were written independently: the English
ones are not the originals of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from store.errors import RequestError
from store.types import Corpus, ImageSource
from tasks.corpora import CORPORA
from tasks.corpora.files import field, first_existing, read_json_lines, require_folder
from tasks.corpora.images.image_files import Missing, present
from tasks.corpora.images.source import Folder
from tasks.corpora.readers.hub import load_split
from tasks.corpora.readers.multilingual import Translation, multilingual_corpus
from tasks.corpora.rows import ImageRow, SkippedRow

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
        images: Folder of the images; ``root/images`` where there is one. Without one, texts and ids alone.
        languages: Which of the 36.
        missing: ``error``, or ``skip`` to list images that are not there as skipped.
        dataset: Hub id, where no ``root`` is given; one split per language.
        revision: Of the hub data set.

    Raises:
        RequestError: A language, file or image is missing.
    """
    if unknown := sorted(set(languages) - set(LANGUAGES)):
        raise RequestError(f"crossmodal3600: unknown languages {', '.join(unknown)}; known: {', '.join(LANGUAGES)}")
    skipped: list[SkippedRow] = []
    source: ImageSource | None = None
    if root is None:
        rows, translations, source = _from_hub(dataset, revision, languages)
        origin = f"https://huggingface.co/datasets/{dataset}"
    else:
        folder = require_folder(root, "crossmodal3600 folder")
        file = first_existing(None, folder, "captions.jsonl", "*/captions.jsonl")
        if file is None:
            raise RequestError(f"{folder}: no captions.jsonl in it; it is in captions.zip of the data set's page")
        entries = list(read_json_lines(file))
        ids = [field(entry, "image/key", str, f"{file}: line {i + 1}") for i, entry in enumerate(entries)]
        rows = [ImageRow(identifier, f"{identifier}.jpg") for identifier in ids]
        translations = [
            Translation(identifier, _captions(entry, language, f"{file}: image {identifier}"), language)
            for language in languages
            for identifier, entry in zip(ids, entries, strict=True)
        ]
        pictures = require_folder(images, "image folder") if images is not None else file.parent / "images"
        if pictures.is_dir():
            source = Folder(pictures)
            rows, skipped = present(rows, (Folder(pictures),), missing=missing, origin=file)
        origin = "https://google.github.io/crossmodal-3600/"
    return multilingual_corpus(
        "crossmodal3600",
        rows,
        translations,
        source=source,
        skipped=skipped,
        licence=CORPORA["crossmodal3600"].licence,
        origin=origin,
    )


def _captions(entry: object, language: str, where: str) -> list[str]:
    spoken = field(entry, language, dict, where)
    texts: list[str] = field(spoken, "caption", list, f"{where}: {language}")
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

    def translations() -> Iterator[Translation]:
        for language, split in splits.items():
            of_image = {str(row["image_id"]): row["captions"] for row in split.rows()}
            if of_image.keys() != {row.id for row in rows}:
                raise RequestError(f"{split.name}: has other images than {languages[0]}")
            yield from (Translation(row.id, of_image[row.id], language) for row in rows)

    return rows, list(translations()), first.source
