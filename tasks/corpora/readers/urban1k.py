"""Urban1k: 1,000 photographs of streets with one long caption each (Zhang et al. 2024, Long-CLIP).

https://arxiv.org/abs/2403.15378. Published: R@1 in both directions. Most captions are longer than CLIP's 77 tokens; the
analysis ``truncated-captions`` compares queries whose caption an encoder truncated with the others.
"""

from __future__ import annotations

from pathlib import Path

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora.build import ImageRow
from capim.tasks.corpora.files import folder_in, read_text, require_folder
from capim.tasks.corpora.images.image_files import Missing
from capim.tasks.corpora.readers.published import Translation, published_corpus, translations


def read_urban1k(root: str | Path, *, images: str | Path | None = None, missing: Missing = "error") -> Corpus:
    """The images in the order of their numbers, each with the first line of its caption file.

    Args:
        root: The unpacked ``Urban1k.zip`` of the hub's data set: ``caption/<name>.txt`` and ``image/<name>.jpg``.
        images: Folder of the images; ``root/image`` by default. Without it, texts and ids only.

    Raises:
        RequestError: A folder, caption or image is missing.
    """
    folder = require_folder(root, "urban1k folder")
    files = sorted((folder / "caption").glob("*.txt"), key=lambda file: (len(file.stem), file.stem))
    if not files:
        raise RequestError(
            f"{folder}: no caption/*.txt in it; unpack Urban1k.zip of "
            "huggingface.co/datasets/BeichenZhang/Urban1k there"
        )
    images = images or folder_in(folder, "image")
    rows = [ImageRow(file.stem, f"{file.stem}.jpg") for file in files]
    texts = [Translation(file.stem, [read_text(file).strip().partition("\n")[0].strip()], "en") for file in files]
    return published_corpus("urban1k", translations(rows, texts), images=images, missing=missing)
