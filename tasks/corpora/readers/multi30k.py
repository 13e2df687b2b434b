"""Multi30K: one English caption per Flickr30k image with its human German, French and Czech translation.

Elliott et al. 2016, https://github.com/multi30k/dataset (task 1).
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

from store.errors import RequestError
from store.types import Corpus
from tasks.corpora import CORPORA
from tasks.corpora.files import first_existing, require_folder
from tasks.corpora.images.image_files import Missing, located
from tasks.corpora.readers.multilingual import Translation, multilingual_corpus
from tasks.corpora.rows import ImageRow

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
        images: Folder of the Flickr30k (or COCO) images; without one, texts and ids alone.
        split: ``test_2016_flickr`` (1,000 images), ``val``, ``test_2017_flickr``, ``test_2017_mscoco``,
            ``test_2018_flickr``; Czech is not in all of them.
        languages: Which of the four.
        missing: ``error``, or ``skip`` to list images that are not there as skipped.

    Raises:
        RequestError: A file or image is missing, or a file has another number of lines than there are images.
    """
    folder = require_folder(root, "multi30k folder")
    base = folder / "data" / "task1" if (folder / "data" / "task1").is_dir() else folder
    listed = first_existing(None, base, f"image_splits/{split}.txt", f"{split}.txt")
    if listed is None:
        raise RequestError(f"{base}: no image_splits/{split}.txt below it; splits are named as in the repository")
    names = [line.split("#")[0].strip() for line in listed.read_text(encoding="utf-8").splitlines()]
    rows = [ImageRow(Path(name).stem, name) for name in names]
    translations = []
    for language in languages:
        file = first_existing(
            None, base, f"raw/{split}.{language}.gz", f"raw/{split}.{language}", f"{split}.{language}"
        )
        if file is None:
            raise RequestError(f"{base}: no raw/{split}.{language}.gz below it; leave {language!r} out of languages")
        texts = _lines(file)
        if len(texts) != len(rows):
            raise RequestError(f"{file}: {len(texts)} captions for {len(rows)} images")
        translations += [Translation(row.id, [text], language) for row, text in zip(rows, texts, strict=True)]
    there = located(rows, images, missing=missing, origin=listed)
    return multilingual_corpus(
        "multi30k" if split == "test_2016_flickr" else f"multi30k-{split}",
        there.rows,
        translations,
        source=there.source,
        skipped=there.skipped,
        licence=CORPORA["multi30k"].licence,
        origin="https://github.com/multi30k/dataset",
    )


def _lines(file: Path) -> list[str]:
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError) as error:
        raise RequestError(f"{file}: cannot be read ({error})") from error
    return data.decode("utf-8").removesuffix("\n").split("\n")
