"""Other repositories that a checkpoint needs: a base model, a tokenizer, code. They are pinned to a commit too.

``resolve`` writes the commit of each into the spec's options as ``revision:<repository>``, so that it enters the
fingerprint; loaders read that commit from there.
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
