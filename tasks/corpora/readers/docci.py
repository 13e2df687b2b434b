"""DOCCI: photographs with one long, detailed description each, many of them contrasting (Onoe et al. 2024).

https://arxiv.org/abs/2404.19753. The paper publishes no retrieval protocol; others publish R@1 in both directions over
the test split.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora.build import ImageRow
from capim.tasks.corpora.files import field, folder_in, read_json_lines, require_folder, require_match
from capim.tasks.corpora.images.image_files import Missing
from capim.tasks.corpora.readers.published import Translation, published_corpus, translations

_FILE = "docci_descriptions.jsonlines"


def read_docci(
    root: str | Path,
    *,
    images: str | Path | None = None,
    split: Literal["test", "train", "qual_dev", "qual_test"] = "test",
    missing: Missing = "error",
) -> Corpus:
    """The images of one split in the order of the file, ids as in it (``test_00000``).

    Args:
        root: Folder with ``docci_descriptions.jsonlines``.
        images: Folder of the images; ``root/images`` by default. Without it, texts and ids only.
        split: ``test`` (5,000 images), ``train`` (9,647), ``qual_dev`` or ``qual_test`` (100 each).

    Raises:
        RequestError: A file, field or image is missing, or the file has no images of the split.
    """
    folder = require_folder(root, "docci folder")
    hint = f"download {_FILE} and docci_images.tar.gz from https://google.github.io/docci/ and unpack the images there"
    file = require_match(folder, _FILE, hint=hint)
    images = images or folder_in(folder, "images")
    rows, texts = [], []
    for number, entry in enumerate(read_json_lines(file), start=1):
        where = f"{file}: line {number}"
        if field(entry, "split", str, where) != split:
            continue
        identifier = field(entry, "example_id", str, where)
        rows.append(ImageRow(identifier, field(entry, "image_file", str, where)))
        texts.append(Translation(identifier, [field(entry, "description", str, where)], "en"))
    if not rows:
        raise RequestError(f"{file}: no images of split {split!r} in it")
    part = "" if split == "test" else split
    return published_corpus("docci", translations(rows, texts), part=part, images=images, missing=missing)
