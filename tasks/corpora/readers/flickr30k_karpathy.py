"""Flickr30k, Karpathy's split: test 1K, five captions per image (Young et al. 2014; Karpathy and Fei-Fei 2015)."""

from __future__ import annotations

from pathlib import Path

from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.build import CaptionRow, build_corpus
from capim.tasks.corpora.images.image_files import Missing
from capim.tasks.corpora.readers.karpathy import split_from_file, split_from_hub

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
        split: ``test``, ``val`` or ``train``; the hub's copy has ``test`` only.

    Raises:
        RequestError: A file, folder or split is missing, or a file is in none of the known forms.
    """
    if root is None:
        read = split_from_hub(dataset, split=split, revision=revision)
    else:
        patterns = ("dataset_flickr30k.json", f"flickr30k_{split}.json")
        read = split_from_file(Path(root), *patterns, split=split, images=images, missing=missing)
    return build_corpus(
        "flickr30k-karpathy" if split == "test" else f"flickr30k-karpathy-{split}",
        read.images,
        (
            CaptionRow(f"{entry.id}#{ordinal}", entry.id, text, ordinal)
            for entry in read.entries
            for ordinal, text in enumerate(entry.captions)
        ),
        source=read.source,
        skipped=read.skipped,
        licence=CORPORA["flickr30k-karpathy"].licence,
        origin=read.origin,
    )
