"""XTD10: 1,000 COCO images with a human caption in each of 11 languages (Aggarwal and Kale 2020).

https://github.com/adobe-research/Cross-lingual-Test-Dataset-XTD10; German and French are from MIC, Japanese from STAIR.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.files import read_text, require_folder, require_match
from capim.tasks.corpora.images.image_files import Missing
from capim.tasks.corpora.readers.published import line_translations, published_corpus

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

    Raises:
        RequestError: A file or image is missing, or a file has more or fewer lines than there are images.
    """
    folder = require_folder(root, "xtd10 folder")
    listed = require_match(folder, "test_image_names.txt", "XTD10/test_image_names.txt")
    files = {}
    for language in languages:
        name = f"test_1kcaptions_{_FILE_CODE.get(language, language)}.txt"
        files[language] = require_match(folder, name, *(f"{part}/{name}" for part in ("XTD10", "MIC", "STAIR")))
    contents = line_translations(read_text(listed).splitlines(), files)
    return published_corpus("xtd10", contents, images=images, missing=missing)
