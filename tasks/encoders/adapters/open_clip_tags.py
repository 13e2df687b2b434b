"""open_clip's own names: ``architecture/tag``, of which the package knows the configuration and the repository."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from store.errors import RequestError
from tasks.encoders.checkpoints.weight_files import OPEN_CLIP_WEIGHTS

# open_clip's table of tags is part of a package that imports torchvision; the form alone decides whether to ask it
_FORM = re.compile(r"(?P<architecture>[A-Za-z0-9.-]+)/(?P<tag>[a-z0-9_.-]+)")


@dataclass(frozen=True, kw_only=True)
class OpenClipTag:
    """A model that open_clip knows by name.

    Attributes:
        architecture: Name of a built-in configuration.
        tag: Which weights.
        repository: Where on the hub they are.
        filename: Which file; None: open_clip's default.
        config: The built-in configuration.
        preprocess: Size, mean, standard deviation, interpolation and resize mode that belong to the weights.
    """

    architecture: str
    tag: str
    repository: str
    filename: str | None
    config: Mapping[str, Any]
    preprocess: Mapping[str, Any]

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of the weights' file, in the order of preference."""
        return (*([self.filename] if self.filename else []), *OPEN_CLIP_WEIGHTS)

    def read(self, name: str) -> Mapping[str, Any] | None:
        """The configuration in the form of a repository's own file."""
        return {"model_cfg": self.config} if name == "open_clip_config.json" else None


def open_clip_tag(checkpoint: str) -> OpenClipTag | None:
    """What open_clip knows under ``architecture/tag``; None if this is no such name (but a repository or a folder).

    Raises:
        RequestError: The architecture is known, the tag is not.
    """
    form = _FORM.fullmatch(checkpoint)
    if form is None:
        return None
    from tasks.encoders.torchvision_import import ensure_torchvision

    ensure_torchvision()
    import open_clip

    architecture, tag = form["architecture"], form["tag"]
    config = open_clip.get_model_config(architecture)
    if config is None:
        return None
    weights = open_clip.get_pretrained_cfg(architecture, tag)
    if not weights or not weights.get("hf_hub"):
        known = ", ".join(open_clip.list_pretrained_tags_by_model(architecture)) or "none"
        raise RequestError(f"open_clip has no weights {tag!r} on the hub for {architecture}; known: {known}")
    repository, _, filename = weights["hf_hub"].rpartition("/")
    return OpenClipTag(
        architecture=architecture,
        tag=tag,
        repository=repository,
        filename=filename or None,
        config=config,
        preprocess={k: weights[k] for k in ("mean", "std", "interpolation", "resize_mode") if k in weights},
    )
