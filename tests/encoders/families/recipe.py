"""How a repository in miniature is made: its own files, and those of the other repositories that it names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tests.encoders.families import colvision, openclip, others
from tests.encoders.families.hub import add_to_cache, place_of

PALIGEMMA = "vidore/colpaligemma-3b-pt-448-base"


class Recipe(NamedTuple):
    """How a repository is made, and which others it needs.

    Attributes:
        build: Fills a folder; gets those of the others by name.
        others: Their names.
    """

    build: Callable[[Path, dict[str, Path]], None]
    others: tuple[str, ...] = ()

    def write(self, place: Path) -> dict[str, Path]:
        """The files, below a folder; returns where those of the others are."""
        import torch

        related = {other: place / f"needs {number}" for number, other in enumerate(self.others)}
        for folder in (place / "repository", *related.values()):
            folder.mkdir(parents=True)
        torch.manual_seed(0)  # what the constructor draws and `lively` leaves, whatever was built before
        self.build(place / "repository", related)
        return related

    def cache(self, cache: Path, repository: str, *, at: str = "", others_at: str = "") -> None:
        """File the repositories in a hub cache that does not have them yet; ``at``: the commit, else a made-up one."""
        if place_of(cache, repository).exists():
            return
        with TemporaryDirectory() as place:
            related = self.write(Path(place))
            add_to_cache(cache, repository, Path(place) / "repository", at)
            for other, folder in related.items():
                add_to_cache(cache, other, folder, others_at)


def alone(build: Callable[..., None], **which: Any) -> Recipe:
    """A repository that needs no other."""
    return Recipe(lambda folder, _: build(folder, **which))


def lora(
    make: Callable[..., tuple[Any, Any]] = colvision.colpali, base: str = PALIGEMMA, *, parts: bool = True, **which: Any
) -> Recipe:
    """A LoRA adapter over a base model."""

    def build(folder: Path, related: dict[str, Path]) -> None:
        colvision.build_lora(folder, related[base], partial(make, **which), base_name=base, parts=parts)

    return Recipe(build, (base,))


def over_xlm_roberta(name: str = "xlm-roberta-base", dim: int = 24) -> Recipe:
    """An open_clip model whose text tower is described elsewhere."""

    def build(folder: Path, related: dict[str, Path]) -> None:
        openclip.build_xlm_roberta(related[name])
        openclip.build_over_xlm_roberta(folder, related[name], name=name, dim=dim)

    return Recipe(build, (name,))


def jina(dim: int = 32, tower: str = others.TOWER) -> Recipe:
    """A jina-clip: weights, code and the configuration of the text tower in a repository each."""

    def build(folder: Path, related: dict[str, Path]) -> None:
        others.build_jina(folder, related[others.CODE], related[tower], dim=dim, tower_name=tower)

    return Recipe(build, (others.CODE, tower))
