"""open_clip's own model names, ``architecture/tag``, for which the package knows configuration and repository."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from capim.store.errors import RequestError
from capim.store.types import EncoderSpec
from capim.tasks.encoders.adapters.table import require_libraries
from capim.tasks.encoders.checkpoints.weight_files import OPEN_CLIP_WEIGHTS

# only a checkpoint of this form is worth importing open_clip, which takes seconds
_FORM = re.compile(r"(?P<architecture>[A-Za-z0-9.-]+)/(?P<tag>[a-z0-9_.-]+)")


@dataclass(frozen=True, kw_only=True)
class OpenClipTag:
    """A model that open_clip knows by name.

    Attributes:
        architecture: Name of a built-in configuration.
        repository: The hub repository of the weights.
        filename: The file of the weights; None: open_clip's default.
        config: The built-in configuration.
        preprocess: Mean, standard deviation, interpolation and resize mode that belong to the weights.
    """

    architecture: str
    repository: str
    filename: str | None
    config: Mapping[str, Any]
    preprocess: Mapping[str, Any]

    @property
    def weights(self) -> tuple[str, ...]:
        """Possible names of the file of the weights, in the order of preference."""
        return (*([self.filename] if self.filename else []), *OPEN_CLIP_WEIGHTS)

    def read(self, name: str) -> Mapping[str, Any] | None:
        """The configuration in the form of a repository's ``open_clip_config.json``."""
        return {"model_cfg": self.config} if name == "open_clip_config.json" else None


def open_clip_tag(spec: EncoderSpec) -> OpenClipTag | None:
    """What open_clip knows about the checkpoint of a spec; None if it is a repository, a folder or of another adapter.

    Raises:
        RequestError: The architecture is known but the tag is not, or open_clip is not installed.
    """
    form = _FORM.fullmatch(spec.checkpoint)
    if spec.adapter != "openclip" or form is None:
        return None
    require_libraries(spec)
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
        repository=repository,
        filename=filename or None,
        config=config,
        preprocess={k: weights[k] for k in ("mean", "std", "interpolation", "resize_mode") if k in weights},
    )
