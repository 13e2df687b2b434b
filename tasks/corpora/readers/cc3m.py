"""Conceptual Captions, validation split: web images and their alternative texts, in tar shards (Sharma et al. 2018)."""

from __future__ import annotations

from pathlib import Path

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.files import require_folder
from capim.tasks.corpora.readers.webdataset import read_webdataset

HUB = CORPORA["cc3m"].hub
SHARDS = "cc3m-validation-*.tar"


def read_cc3m(
    root: str | Path | None = None, *, shards: str = SHARDS, dataset: str = HUB, revision: str | None = None
) -> Corpus:
    """The samples of the shards in their order: about 13,000 of 15,840, without those whose link is dead.

    Args:
        root: Folder of the shards; from the hub unless given, which downloads them into its cache.
        shards: Pattern of their file names.

    Raises:
        RequestError: The shards do not exist and cannot be downloaded, or one is damaged.
    """
    folder = require_folder(root, "shard folder") if root is not None else _fetch(dataset, revision, shards)
    return read_webdataset(
        folder,
        shards=shards,
        name="cc3m-validation",
        licence=CORPORA["cc3m"].licence,
        origin=f"https://huggingface.co/datasets/{dataset}",
    )


def _fetch(dataset: str, revision: str | None, shards: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(dataset, repo_type="dataset", revision=revision, allow_patterns=[shards]))
    except OSError as error:  # HfHubHTTPError is one too
        raise RequestError(
            f"{dataset}: its shards are not in the cache and the hub cannot be reached; connect once, or give a "
            "folder of shards with root"
        ) from error
