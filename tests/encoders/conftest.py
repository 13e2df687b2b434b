"""A hub cache with tiny checkpoints of every family, in their true formats, and the hub switched off."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from capim.store.types import EncoderSpec


@pytest.fixture(scope="session")
def hub_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty folder that all loaders of this session use as the hub's cache."""
    import huggingface_hub.constants
    import transformers.dynamic_module_utils as remote_code
    from transformers import PreTrainedConfig

    home = tmp_path_factory.mktemp("huggingface")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(home / "hub"))
        patch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        patch.setattr(remote_code, "HF_MODULES_CACHE", str(home / "modules"))
        # every load of a model writes out its configuration several times, for messages that nobody sees
        patch.setattr(PreTrainedConfig, "__repr__", object.__repr__)
        (home / "hub").mkdir()
        yield home / "hub"


@pytest.fixture(scope="session")
def family(hub_cache: Path, made_once: Callable[[str, Callable[[Path], object]], Path]) -> Callable[[str], EncoderSpec]:
    """Spec of a family of ``families.table.CASES`` by name; its checkpoint is built on first use."""
    from tests.encoders.families.table import spec_in_cache

    @cache
    def spec(name: str) -> EncoderSpec:
        made = made_once(f"family-{name}", lambda place: spec_in_cache(name, place))
        shutil.copytree(made, hub_cache, dirs_exist_ok=True)
        return spec_in_cache(name, hub_cache)

    return spec


@pytest.fixture
def copied_family(family: Callable[[str], EncoderSpec], tmp_path: Path) -> Callable[..., EncoderSpec]:
    """Spec of a copy of a family's folder, ``model``, to be changed; with ``base`` over a copy of its base model."""
    from capim.tasks.encoders import resolve
    from capim.tasks.encoders.checkpoint import base_folder, folder_of

    def copied(name: str, *, base: bool = False) -> EncoderSpec:
        spec = resolve(family(name))
        folder = shutil.copytree(folder_of(spec), tmp_path / "model")
        of_base = base_folder(spec, folder)
        if base and of_base:
            config = json.loads((folder / "adapter_config.json").read_text())
            config["base_model_name_or_path"] = str(shutil.copytree(of_base, tmp_path / "base"))
            (folder / "adapter_config.json").write_text(json.dumps(config))
        return replace(family(name), checkpoint=str(folder))

    return copied
