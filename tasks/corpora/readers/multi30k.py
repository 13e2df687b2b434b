"""Multi30K: one English caption per Flickr30k image with its human German, French and Czech translation.

Elliott et al. 2016, https://github.com/multi30k/dataset (task 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.files import folder_in, read_text, require_folder, require_match
from capim.tasks.corpora.images.image_files import Missing
from capim.tasks.corpora.readers.published import line_translations, published_corpus

LANGUAGES = CORPORA["multi30k"].languages


def read_multi30k(
    root: str | Path,
    *,
    images: str | Path | None = None,
    split: str = "test_2016_flickr",
    languages: Sequence[str] = LANGUAGES,
    missing: Missing = "error",
) -> Corpus:
    """The captions language by language, images in the order of the split's list.

    Args:
        root: The repository, or its ``data/task1``.
        split: ``test_2016_flickr`` (1,000 images), ``val``, ``test_2017_flickr``, ``test_2017_mscoco``,
            ``test_2018_flickr``; Czech is not in all of them.

    Raises:
        RequestError: A file or image is missing, or a file has more or fewer lines than there are images.
    """
    folder = require_folder(root, "multi30k folder")
    base = folder_in(folder, "data/task1") or folder
    listed = require_match(base, f"image_splits/{split}.txt", f"{split}.txt")
    names = [line.split("#")[0].strip() for line in read_text(listed).splitlines()]
    files = {}
    for language in languages:
        patterns = (f"raw/{split}.{language}.gz", f"raw/{split}.{language}", f"{split}.{language}")
        files[language] = require_match(base, *patterns, hint=f"or leave {language!r} out of languages")
    part = "" if split == "test_2016_flickr" else split
    return published_corpus("multi30k", line_translations(names, files), part=part, images=images, missing=missing)
