"""A hub cache laid out as huggingface_hub would have left it, so that real loaders work by real names, offline."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path


def commit(repository: str) -> str:
    """The made-up commit under which :func:`add_to_cache` files a repository."""
    return hashlib.sha1(repository.encode()).hexdigest()


def add_to_cache(cache: Path, repository: str, folder: Path) -> Path:
    """Copy a folder into the cache as the ``main`` of a repository; returns the snapshot."""
    base = cache / f"models--{repository.replace('/', '--')}"
    snapshot = base / "snapshots" / commit(repository)
    shutil.copytree(folder, snapshot)
    (base / "refs").mkdir()
    (base / "refs" / "main").write_text(commit(repository))
    return snapshot
