"""A model by its public name: its own files say which adapter loads it, and nothing else does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from capim.flows.config import RunConfig
from capim.flows.embed import _resolved
from capim.store.errors import RequestError
from capim.store.types import EncoderSpec
from capim.tasks.encoders import entry_from, entry_of, resolve
from capim.tasks.encoders.catalog import recognised, row_of_spec, stored_name
from capim.tasks.encoders.public_names import _recognised
from tests.encoders.families.hub import commit
from tests.encoders.families.table import CASES

Family = Callable[[str], EncoderSpec]


@pytest.mark.parametrize("name", CASES)
def test_a_hub_id_is_recognised_by_the_files_of_its_repository(name: str, family: Family) -> None:
    spec, case = family(name), CASES[name]
    row, by = _recognised(spec.checkpoint)
    assert (row["adapter"], row["dim"], row["vectors"]) == (case.adapter, case.dim, case.vectors), by
    if case.adapter != "openclip":  # a row may leave out the scheme of open_clip's names
        found = entry_from(spec.name, row).spec
        assert resolve(found).fingerprint == resolve(spec).fingerprint


def test_a_run_names_the_newest_commit_of_a_model_without_a_pin(
    family: Family, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = family("clip")
    row = {"name": "mine", "adapter": spec.adapter, "checkpoint": spec.checkpoint, "dim": spec.dim}
    found, unanswered, faults = _resolved(RunConfig(encoders=(row,)))
    assert (len(found), unanswered, faults) == (1, {}, [])
    said = capsys.readouterr().err
    assert said == f"mine: unpinned; the newest commit of {spec.checkpoint} is {commit(spec.checkpoint)}\n"
    _resolved(RunConfig(encoders=({**row, "revision": commit(spec.checkpoint)},)))
    assert capsys.readouterr().err == ""


def test_a_name_of_the_catalogs_checkpoint_is_its_row() -> None:
    for public in ("openai/clip-vit-large-patch14-336", "hf-hub:laion/CLIP-ViT-H-14-laion2B-s32B-b79K"):
        entry = entry_of(public)
        assert stored_name(public) == entry.name
        assert recognised(public) == f"{public} is {entry.name} of the catalog"


def test_a_name_of_open_clip_is_read_from_its_table() -> None:
    entry = entry_of("ViT-B-32/laion2b_s34b_b79k")
    assert (entry.name, entry.adapter, entry.dim) == ("ViT-B-32-laion2b_s34b_b79k", "openclip", 512)
    with pytest.raises(
        RequestError, match=r"open_clip has no weights 'laion9b' on the hub for ViT-B-32; known: openai"
    ):
        entry_of("ViT-B-32/laion9b")


def test_a_stored_model_gives_the_row_that_described_it_with_its_facts() -> None:
    spec = entry_of("colqwen2.5").spec
    assert {"training", "trained_on"} <= spec.facts.keys()
    assert entry_from(spec.name, row_of_spec(spec)).spec == spec


CLIP = {"model_type": "clip", "architectures": ["CLIPModel"], "projection_dim": 8}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config": CLIP, "open_clip_config": {"model_cfg": {"embed_dim": 8}}},
         r"fits hf_dual \(by model type 'clip' .*\) and openclip \(by open_clip_config.json\); .* rows into"),
        ({"config": {"model_type": "bert"}}, "no adapter recognises its files"),
        ({"modules": [{"path": "", "type": "x"}]}, "modules.json gives no dimension; write a row with it"),
        ({"config": {"model_type": "paligemma", "architectures": ["PaliGemmaModel"]}}, "no adapter recognises"),
    ],
)  # fmt: skip
def test_files_that_fit_several_adapters_or_none_are_an_error_with_the_rows(
    files: dict[str, object], message: str, tmp_path: Path
) -> None:
    for name, contents in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(contents))
    with pytest.raises(RequestError, match=message):
        entry_of(str(tmp_path))


def test_a_folder_is_read_again_after_a_training_has_written_to_it(tmp_path: Path) -> None:
    for dim in (8, 16):
        (tmp_path / "config.json").write_text(json.dumps({**CLIP, "projection_dim": dim}))
        assert entry_of(str(tmp_path)).dim == dim


def test_a_folder_with_the_name_of_a_catalogs_model_gets_another_one(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from capim.tasks.encoders.checkpoint import folder_of

    folder = shutil.copytree(folder_of(resolve(family("clip"))), tmp_path / "mine" / "tiny-clip")
    assert stored_name(str(folder)) == "tiny-clip-of-mine"
    assert entry_of(str(folder)).dim == CASES["clip"].dim
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError, match=r"for the model in this folder write \./mine"):
        entry_of("mine")
