"""Where the files of a model are: in this package, in a folder, or in a hub repository at one commit."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from capim.store.errors import RequestError
from capim.store.types import EncoderSpec
from capim.tasks.encoders.checkpoints.hub import snapshot
from capim.tasks.encoders.checkpoints.weight_files import OTHER_WEIGHTS, WEIGHT_FILES

# --- Other repositories that a checkpoint needs: a base model, a tokenizer, code. They are pinned to a commit too.
#
# ``resolve`` writes the commit of each into the spec's options as ``revision:<repository>``, so that it enters the
# fingerprint; loaders read that commit from there.


PIN = "revision:"
ReadJson = Callable[[str], Mapping[str, Any] | None]  # file name -> contents, or None if there is no such file


def related_repositories(adapter: str, read: ReadJson) -> list[str]:
    """The other repositories (or local folders) that a checkpoint of an adapter names, without duplicates.

    Examples:
        >>> files = {"adapter_config.json": {"base_model_name_or_path": "vidore/base"}}
        >>> related_repositories("colvision", files.get)
        ['vidore/base']
    """
    names: list[str | None] = []
    if adapter == "colvision":
        names = [(read("adapter_config.json") or {}).get("base_model_name_or_path")]
    elif adapter == "openclip":
        text = (read("open_clip_config.json") or {}).get("model_cfg", {}).get("text_cfg", {})
        names = [text.get("hf_model_name")]
        # a checkpoint with its own tokenizer still names another repository, but does not need it
        if not read("tokenizer_config.json"):
            names.append(text.get("hf_tokenizer_name"))
    elif adapter == "jina":
        config = read("config.json") or {}
        names = [reference.split("--")[0] for reference in config.get("auto_map", {}).values() if "--" in reference]
        names.append(config.get("text_config", {}).get("hf_model_name_or_path"))
    return list(dict.fromkeys(name for name in names if name))


@contextlib.contextmanager
def adapter_over_pinned_base(folder: Path, base: Path) -> Iterator[Path]:
    """A copy of a LoRA checkpoint that names its base model by folder, not by a repository that may change."""
    with tempfile.TemporaryDirectory(prefix="capim-adapter-") as name:
        pinned = Path(name)
        for file in folder.iterdir():
            (pinned / file.name).symlink_to(file.resolve())
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        config |= {"base_model_name_or_path": str(base.resolve()), "revision": None}
        (pinned / "adapter_config.json").unlink()
        (pinned / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
        yield pinned


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
    """The folder or file that a checkpoint names on this machine; None if it names a hub repository.

    Raises:
        RequestError: It looks like a path, but does not exist.
    """
    checkpoint = repository_of(checkpoint)
    if checkpoint.startswith("package:"):
        path = PACKAGE / checkpoint.removeprefix("package:")
    else:
        path = Path(checkpoint).expanduser()
    if path.exists():
        return path
    if _HUB_ID.fullmatch(checkpoint) and not checkpoint.endswith(".py"):
        return None
    raise RequestError(f"checkpoint {checkpoint!r} does not exist ({path.absolute()})")


def digest_of(path: Path) -> str:
    """``sha256-`` and 16 hexadecimal digits over the names and contents of a folder's files, or over one file.

    Links are followed; hidden files and ``__pycache__`` do not count.
    """
    files = [path] if path.is_file() else sorted(_files_in(path))
    if not files:
        raise RequestError(f"checkpoint folder {path} is empty")
    total = hashlib.sha256()
    for file in files:
        total.update(file.relative_to(path).as_posix().encode() if file != path else b"")
        with file.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return f"sha256-{total.hexdigest()[:16]}"


def folder_of(spec: EncoderSpec) -> Path:
    """The folder with the files of a resolved spec, downloaded from the hub if necessary."""
    path = local_path(spec.checkpoint)
    weights = WEIGHT_FILES.get(spec.adapter, OTHER_WEIGHTS)
    return path or snapshot(repository_of(spec.checkpoint), spec.revision, weights)


def related_folder(spec: EncoderSpec, repository: str, weights: Sequence[str] = ()) -> Path:
    """The folder of another repository that a resolved spec needs, at its pinned commit, downloaded if necessary.

    ``weights`` are patterns of its weights; none where only its configuration or code is needed.
    """
    return local_path(repository) or snapshot(repository, str(spec.options[PIN + repository]), weights)


def base_folder(spec: EncoderSpec, folder: Path) -> Path | None:
    """The folder of the base model of a LoRA checkpoint; None for a complete checkpoint."""
    config = json_file(folder / "adapter_config.json")
    if config is None:
        return None
    return related_folder(spec, str(config["base_model_name_or_path"]), WEIGHT_FILES[spec.adapter])


def json_file(file: Path) -> dict[str, Any] | None:
    """The contents of a JSON file, or None if there is no such file."""
    if not file.is_file():
        return None
    contents: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return contents


def _files_in(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """The files of a folder and of its folders; ``above`` are the folders that lead to it, which a link may name."""
    here = folder.resolve()
    for entry in folder.iterdir() if here not in above else ():
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        if entry.is_dir():
            yield from _files_in(entry, above | {here})
        elif entry.is_file():
            yield entry
