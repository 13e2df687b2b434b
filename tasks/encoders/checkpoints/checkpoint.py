"""Where a model's files are: in this package, in a folder, or on the hub at one commit.

Files are always loaded from one folder at one commit, never by a name that may move.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from store.errors import RequestError
from store.types import EncoderSpec
from tasks.encoders.checkpoints.hub import snapshot
from tasks.encoders.checkpoints.related_repositories import PIN
from tasks.encoders.checkpoints.weight_files import WEIGHT_FILES

PACKAGE = Path(__file__).parents[1]
_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")


def repository_of(checkpoint: str) -> str:
    """A checkpoint without open_clip's scheme.

    Examples:
        >>> repository_of("hf-hub:apple/DFN5B-CLIP-ViT-H-14-378")
        'apple/DFN5B-CLIP-ViT-H-14-378'
    """
    return checkpoint.removeprefix("hf-hub:").removeprefix("local-dir:")


def local_path(checkpoint: str) -> Path | None:
    """The folder or file that a checkpoint names on this machine, or None if it names a repository of the hub.

    Raises:
        RequestError: It looks like a path but nothing is there.
    """
    checkpoint = repository_of(checkpoint)
    if checkpoint.startswith("package:"):
        path = PACKAGE / checkpoint.removeprefix("package:")
    elif Path(checkpoint).expanduser().exists():
        path = Path(checkpoint).expanduser()
    elif _HUB_ID.fullmatch(checkpoint) and not checkpoint.endswith(".py"):
        return None
    else:
        path = Path(checkpoint).expanduser()
    if not path.exists():
        raise RequestError(f"checkpoint {checkpoint!r} is not there ({path.absolute()})")
    return path


def digest_of(path: Path) -> str:
    """``sha256-`` and 16 hexadecimal digits over the names and contents of a folder's files, or over one file."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if _counts(file, path))
    if not files:
        raise RequestError(f"checkpoint folder {path} is empty")
    total = hashlib.sha256()
    for file in files:
        total.update(file.relative_to(path).as_posix().encode() if file != path else b"")
        with file.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return f"sha256-{total.hexdigest()[:16]}"


def _counts(file: Path, folder: Path) -> bool:
    parts = file.relative_to(folder).parts
    return file.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in parts)


def folder_of(spec: EncoderSpec) -> Path:
    """The folder that holds the files of a resolved spec; fetched from the hub if need be."""
    path = local_path(spec.checkpoint)
    return (
        path
        if path is not None
        else snapshot(repository_of(spec.checkpoint), spec.revision, WEIGHT_FILES[spec.adapter])
    )


def companion_folder(spec: EncoderSpec, name: str, weights: Sequence[str] = ()) -> Path:
    """The folder of a companion repository of a resolved spec at its pinned commit; fetched if need be.

    Args:
        spec: Resolved.
        name: Of the companion.
        weights: Patterns of the weights to fetch with it; none where only its configuration or code is needed.
    """
    path = local_path(name)
    return path if path is not None else snapshot(name, str(spec.options[PIN + name]), weights)


def base_folder(spec: EncoderSpec, folder: Path) -> Path | None:
    """The folder of the base model that an adapter checkpoint belongs to; None for a whole checkpoint."""
    config = folder / "adapter_config.json"
    if not config.is_file():
        return None
    name = str(json.loads(config.read_text(encoding="utf-8"))["base_model_name_or_path"])
    return companion_folder(spec, name, WEIGHT_FILES[spec.adapter])
