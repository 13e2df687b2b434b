"""XTD10: 1,000 COCO images with a human caption in each of 11 languages (Aggarwal and Kale 2020).

https://github.com/adobe-research/Cross-lingual-Test-Dataset-XTD10; German and French are from MIC, Japanese from STAIR.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from store.errors import RequestError
from store.types import Corpus
from tasks.corpora import CORPORA
from tasks.corpora.files import first_existing, require_folder
from tasks.corpora.images.image_files import Missing, coco_id, located
from tasks.corpora.readers.multilingual import Translation, multilingual_corpus
from tasks.corpora.rows import ImageRow

LANGUAGES = CORPORA["xtd10"].languages
_FILE_CODE = {"ja": "jp"}  # as the files spell it


def read_xtd10(
    root: str | Path,
    *,
    images: str | Path | None = None,
    languages: Sequence[str] = LANGUAGES,
    missing: Missing = "error",
) -> Corpus:
    """The captions language by language, images in the order of ``test_image_names.txt``.

    Args:
        root: The repository, or a folder that holds its text files at any depth.
        images: Folder with COCO images under any of their names; without one, texts and ids alone.
        languages: Which of the eleven.
        missing: ``error``, or ``skip`` to list images that are not there as skipped.

    Raises:
        RequestError: A file or image is missing, or a file has another number of lines than there are images.
    """
    folder = require_folder(root, "xtd10 folder")
    listed = first_existing(None, folder, "test_image_names.txt", "XTD10/test_image_names.txt")
    if listed is None:
        raise RequestError(f"{folder}: no test_image_names.txt in it or in XTD10/ below it")
    names = listed.read_text(encoding="utf-8").splitlines()
    rows = [ImageRow(coco_id(name) or Path(name).stem, name) for name in names]
    translations = []
    for language in languages:
        wanted = f"test_1kcaptions_{_FILE_CODE.get(language, language)}.txt"
        file = first_existing(None, folder, wanted, f"XTD10/{wanted}", f"MIC/{wanted}", f"STAIR/{wanted}")
        if file is None:
            raise RequestError(f"{folder}: no {wanted} in it or in XTD10/, MIC/ or STAIR/ below it")
        texts = file.read_text(encoding="utf-8").splitlines()
        if len(texts) != len(rows):
            raise RequestError(f"{file}: {len(texts)} captions for {len(rows)} images")
        translations += [Translation(row.id, [text], language) for row, text in zip(rows, texts, strict=True)]
    there = located(rows, images, missing=missing, origin=listed)
    return multilingual_corpus(
        "xtd10",
        there.rows,
        translations,
        source=there.source,
        skipped=there.skipped,
        licence=CORPORA["xtd10"].licence,
        origin="https://github.com/adobe-research/Cross-lingual-Test-Dataset-XTD10",
    )
