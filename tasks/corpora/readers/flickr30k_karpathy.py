"""Flickr30k, Karpathy's split: test 1K, five captions per image (Young et al. 2014; Karpathy and Fei-Fei 2015)."""

from __future__ import annotations

from pathlib import Path

from store.errors import RequestError
from store.types import Corpus, ImageSource
from tasks.corpora import CORPORA
from tasks.corpora.build import build_corpus
from tasks.corpora.files import first_existing, require_file
from tasks.corpora.images.image_files import Missing, located
from tasks.corpora.readers.hub import load_split
from tasks.corpora.readers.karpathy import entries_of_rows, read_karpathy_file
from tasks.corpora.rows import CaptionRow, ImageRow, SkippedRow

HUB = CORPORA["flickr30k-karpathy"].hub


def read_flickr30k_karpathy(
    root: str | Path | None = None,
    *,
    images: str | Path | None = None,
    split: str = "test",
    dataset: str = HUB,
    revision: str | None = None,
    missing: Missing = "error",
) -> Corpus:
    """The split in Karpathy's order; an image's id is its file's name without ``.jpg``.

    Args:
        root: ``dataset_flickr30k.json``, an ALBEF-form file, or the folder with it; from the hub unless given.
        images: Folder of the images; without one a local captions file gives texts and ids alone.
        split: ``test``, ``val`` or ``train``; the hub's copy has ``test`` alone.
        dataset: Hub id, where no ``root`` is given.
        revision: Of the hub data set.
        missing: ``error``, or ``skip`` to list images that are not in ``images`` as skipped.

    Raises:
        RequestError: A file, folder or split is missing, or a file is of none of the known forms.
    """
    skipped: list[SkippedRow] = []
    source: ImageSource | None = None
    if root is None:
        loaded = load_split(dataset, split=split, revision=revision, need=("image",))
        entries = [
            entry._replace(id=Path(entry.file_name).stem) for entry in entries_of_rows(loaded.rows(), loaded.name)
        ]
        rows = [ImageRow(entry.id, f"image/{position}") for position, entry in enumerate(entries)]
        source, origin = loaded.source, f"https://huggingface.co/datasets/{dataset}"
    else:
        file = _captions_file(Path(root), split)
        entries = read_karpathy_file(file, split=split)
        named = (ImageRow(entry.id, Path(entry.file_name).name) for entry in entries)
        rows, source, skipped = located(named, images, missing=missing, origin=file)
        origin = str(file)
    kept = {row.id for row in rows}
    return build_corpus(
        "flickr30k-karpathy" if split == "test" else f"flickr30k-karpathy-{split}",
        rows,
        (
            CaptionRow(f"{entry.id}#{ordinal}", entry.id, text, ordinal)
            for entry in entries
            if entry.id in kept
            for ordinal, text in enumerate(entry.captions)
        ),
        source=source,
        skipped=skipped,
        licence=CORPORA["flickr30k-karpathy"].licence,
        origin=origin,
    )


def _captions_file(root: Path, split: str) -> Path:
    if not root.is_dir():
        return require_file(root, "captions file")
    file = first_existing(None, root, "dataset_flickr30k.json", f"flickr30k_{split}.json")
    if file is None:
        raise RequestError(f"{root}: no captions file in it; looked for dataset_flickr30k.json, flickr30k_{split}.json")
    return file
