"""A hub cache laid out as huggingface_hub would have left it, so that real loaders work by real names, offline."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path


def commit(repository: str) -> str:
    """The made-up commit under which :func:`add_to_cache` files a repository."""
    return hashlib.sha1(repository.encode()).hexdigest()


def place_of(cache: Path, repository: str) -> Path:
    """Where the cache keeps a repository."""
    return cache / f"models--{repository.replace('/', '--')}"


def add_to_cache(cache: Path, repository: str, folder: Path, at: str = "") -> None:
    """Copy a folder into the cache as the ``main`` of a repository, which is the commit ``at`` or a made-up one."""
    place, at = place_of(cache, repository), at or commit(repository)
    shutil.copytree(folder, place / "snapshots" / at)
    for absent in {"config.json", "processor_config.json"} - {path.name for path in folder.iterdir()}:
        none = place / ".no_exist" / at / absent  # as a download notes it
        none.parent.mkdir(parents=True, exist_ok=True)
        none.touch()
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(at)
