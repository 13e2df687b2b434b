"""Repositories that a checkpoint needs beside its own: a base model, a tokenizer, code. They are pinned like it.

``resolve`` writes the commit of each into the spec's options as ``revision:<repository>``, so that it enters the
fingerprint; loaders take the folder of that commit from here.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

PIN = "revision:"
ReadJson = Callable[[str], Mapping[str, Any] | None]  # file name -> contents, or None if there is no such file


def companions(adapter: str, read: ReadJson) -> list[str]:
    """The other repositories (or local folders) that a checkpoint of an adapter names, without duplicates.

    Examples:
        >>> files = {"adapter_config.json": {"base_model_name_or_path": "vidore/base"}}
        >>> companions("colvision", files.get)
        ['vidore/base']
    """
    find = _FINDERS.get(adapter)
    return list(dict.fromkeys(find(read))) if find else []


def _of_colvision(read: ReadJson) -> list[str]:
    config = read("adapter_config.json")
    return [str(config["base_model_name_or_path"])] if config else []


def _of_openclip(read: ReadJson) -> list[str]:
    config = read("open_clip_config.json")
    text = (config or {}).get("model_cfg", {}).get("text_cfg", {})
    names = [text.get("hf_model_name"), text.get("hf_tokenizer_name")]
    # a checkpoint that holds its own tokenizer names it, but does not need another repository for it
    if read("tokenizer_config.json"):
        names = names[:1]
    return [name for name in names if name]


def _of_jina(read: ReadJson) -> list[str]:
    config = read("config.json") or {}
    code = [reference.split("--")[0] for reference in config.get("auto_map", {}).values() if "--" in reference]
    text = config.get("text_config", {}).get("hf_model_name_or_path")
    return [*code, *([text] if text else [])]


_FINDERS: dict[str, Callable[[ReadJson], list[str]]] = {
    "colvision": _of_colvision,
    "openclip": _of_openclip,
    "jina": _of_jina,
}


@contextlib.contextmanager
def adapter_over_pinned_base(folder: Path, base: Path) -> Iterator[Path]:
    """A folder with an adapter's files that names its base by folder instead of by a repository that may move."""
    with tempfile.TemporaryDirectory(prefix="capim-adapter-") as name:
        pinned = Path(name)
        for file in folder.iterdir():
            (pinned / file.name).symlink_to(file.resolve())
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        config |= {"base_model_name_or_path": str(base.resolve()), "revision": None}
        (pinned / "adapter_config.json").unlink()
        (pinned / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
        yield pinned
