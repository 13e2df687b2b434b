"""The files of a spec: resolved offline, fixed in the fingerprint, an error when they or one of them do not exist."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capim.store.errors import RequestError
from capim.store.types import EncoderSpec
from capim.tasks.encoders import catalog, encode_captions, encode_images, entry_from, load_encoder, resolve, spec_of
from capim.tasks.encoders.checkpoint import digest_of, folder_of, local_path, open_clip_tag, repository_of
from capim.tasks.encoders.conformance import CHECKS, SHORT, six_scenes
from capim.tasks.encoders.of_mteb import facts_of
from capim.tasks.encoders.weights import read_tensors
from tests.encoders.families.hub import add_to_cache, commit

IMAGES = "has no preprocessor_config.json, which says how images are resized"
TOKENS = "has no tokenizer"


def spec(**fields: Any) -> EncoderSpec:
    return EncoderSpec(**{"name": "x", "adapter": "hf_dual", "checkpoint": "a/b", "dim": 8, **fields})


def test_related_repositories_are_pinned_and_enter_the_fingerprint(family) -> None:
    for name, others in {
        "colpali-lora": ["vidore/colpaligemma-3b-pt-448-base"],
        "openclip-xlm-roberta": ["xlm-roberta-base"],
        "jina": ["jinaai/jina-clip-implementation", "jinaai/jina-bert-flash-implementation"],
    }.items():
        resolved = resolve(family(name))
        assert {k: v for k, v in resolved.options.items() if k.startswith("revision:")} == {
            f"revision:{other}": commit(other) for other in others
        }
        assert resolve(resolved) == resolved
        moved = {**resolved.options, f"revision:{others[0]}": "0" * 40}
        assert replace(resolved, options=moved).fingerprint != resolved.fingerprint


@pytest.mark.parametrize("checkpoint", ["package:tiny/none", "/nowhere/model", "./nowhere", "model.py"])
def test_a_path_that_does_not_exist_is_named(checkpoint) -> None:
    with pytest.raises(RequestError, match="does not exist"):
        local_path(checkpoint)


def test_a_missing_package_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        RequestError, match=r"encoder 'x' needs uform, torchvision; install it with: pip install 'capim\[uform\]'"
    ):
        load_encoder(spec(adapter="uform"))


@pytest.mark.parametrize("device", ["gpu", "cuda:7", "mps"])
def test_a_device_that_is_not_there_is_refused(device, family) -> None:
    with pytest.raises(RequestError, match="device"):
        load_encoder(family("clip"), device=device)


def test_an_unknown_name_lists_the_catalog_and_all_faults_of_a_row_are_named_together() -> None:
    with pytest.raises(RequestError, match="encoder 'nope' is unknown; known: tiny-clip"):
        spec_of("nope")
    with pytest.raises(RequestError) as raised:
        entry_from("own", {"adapter": "clippy", "dimension": 3, "dim": 3})
    assert len(raised.value.faults) == 3


def test_open_clips_own_names_lead_to_a_repository() -> None:
    tag = open_clip_tag(spec(adapter="openclip", checkpoint="xlm-roberta-base-ViT-B-32/laion5b_s13b_b90k"))
    assert tag is not None
    assert tag.repository == "laion/CLIP-ViT-B-32-xlm-roberta-base-laion5B-s13B-b90k"
    assert open_clip_tag(spec(adapter="openclip", checkpoint="laion/CLIP-ViT-H-14-laion2B-s32B-b79K")) is None


def test_open_clips_models_in_the_catalog_are_in_the_package_with_these_dimensions_and_contexts() -> None:
    tags = {entry.name: open_clip_tag(entry.spec) for entry in catalog().values() if entry.adapter == "openclip"}
    known = {name: tag.config for name, tag in tags.items() if tag}
    assert {"mobileclip2-s4", "pe-core-l", "eva02-l", "dfn2b-l"} <= known.keys()
    for name, config in known.items():
        read = config["embed_dim"], config["text_cfg"].get("context_length")
        assert read == (catalog()[name].dim, catalog()[name].context), name


def test_a_commit_in_the_catalog_has_a_source_and_a_row_without_one_is_unpinned() -> None:
    sources = {name: entry.pinned_by for name, entry in catalog().items() if entry.revision != "main"}
    assert all(re.fullmatch(r"mteb|github\.com/[\w.-]+/[\w.-]+, \S+", source) for source in sources.values())
    assert not any(entry.pinned_by for name, entry in catalog().items() if name not in sources)
    assert all(re.fullmatch(r"[0-9a-f]{40}", catalog()[name].revision) for name in sources)


@pytest.mark.slow  # the import of mteb
def test_facts_and_commits_of_mtebs_table_in_the_catalog_are_those_of_the_installed_mteb() -> None:
    mteb = pytest.importorskip("mteb")
    table = {meta.name: meta for meta in mteb.get_model_metas()}
    known = {name: table[of] for name, entry in catalog().items() if (of := repository_of(entry.checkpoint)) in table}
    assert len(known) == 21
    for name, entry in catalog().items():
        facts = facts_of(known[name]) if name in known else {}
        assert (entry.released, entry.memory_mb) == (facts.get("released", ""), facts.get("memory_mb")), name
        assert sorted(entry.trained_on) == sorted(facts.get("trained_on", [])), name
        assert entry.pinned_by != "mteb" or entry.revision == known[name].revision, name
        if facts:
            assert entry.context == facts["context"], name
            assert entry.parameters == pytest.approx(facts["parameters"], rel=0.01), name


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory) -> Path:
    """The files of an architecture that open_clip knows as ``tinytower``."""
    import open_clip

    from tests.encoders.families.openclip import OPENAI, TEXT, VISION, _write

    folder = tmp_path_factory.mktemp("tower")
    model = {"embed_dim": 32, "quick_gelu": True, "vision_cfg": VISION, "text_cfg": TEXT}
    _write(folder, model, OPENAI, pickle=False)
    (folder / "open_clip_config.json").unlink()
    (folder / "tinytower.json").write_text(json.dumps(model))
    open_clip.add_model_config(folder / "tinytower.json")
    return folder


@pytest.fixture(scope="module")
def tiny_architecture(tiny_folder) -> dict[str, Any]:
    """Its weights."""
    return read_tensors(tiny_folder / "open_clip_model.safetensors")


def test_a_model_by_open_clips_name_loads_from_the_pinned_commit(tiny_folder, hub_cache, monkeypatch) -> None:
    import open_clip

    from tests.encoders.families.openclip import OPENAI

    add_to_cache(hub_cache, "timm/tinytower", tiny_folder)
    known = {"hf_hub": "timm/tinytower/", "quick_gelu": True, "resize_mode": "squash", "interpolation": "bicubic"}
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "tinytower", {"openai": known | OPENAI})
    encoder: Any = load_encoder(spec(adapter="openclip", checkpoint="tinytower/openai", dim=32))
    assert encoder.spec.revision == commit("timm/tinytower")
    assert CHECKS["resizing as declared"](encoder) == "squash"


def as_trained(tensors: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """What ``open_clip_train`` writes as ``epoch_3.pt`` (main.py, ``checkpoint_dict``)."""
    import torch

    model = torch.nn.ParameterDict({name.replace(".", "/"): tensor for name, tensor in tensors.items()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    named = {prefix + name: tensor for name, tensor in tensors.items()}
    return {"epoch": 3, "name": "mine", "state_dict": named, "optimizer": optimizer.state_dict()}


@pytest.mark.parametrize("prefix", ["", "module.", "module._orig_mod.", "_orig_mod.module."])
def test_a_checkpoint_of_open_clips_training_loads_by_its_architecture(prefix, tiny_architecture, tmp_path) -> None:
    import torch

    file = tmp_path / "epoch_3.pt"
    torch.save(as_trained(tiny_architecture, prefix), file)
    (tmp_path / "plain").mkdir()
    torch.save(tiny_architecture, tmp_path / "plain" / "epoch_3.pt")
    named, plain = (
        load_encoder(spec(adapter="openclip", checkpoint=f"tinytower@{folder}/epoch_3.pt", dim=32))
        for folder in (tmp_path, tmp_path / "plain")
    )
    assert named.spec.revision == digest_of(file)
    images = six_scenes()[0][:2]
    np.testing.assert_array_equal(encode_images(named, images).values, encode_images(plain, images).values)
    assert CHECKS["weights in the model"](named).startswith("all ")
    file.write_bytes(file.read_bytes() + b" ")
    assert resolve(replace(named.spec, revision="main")).fingerprint != named.spec.fingerprint


def test_a_moving_average_beside_the_weights_has_to_be_chosen(tiny_architecture, tmp_path) -> None:
    import torch

    average = {f"module.{name}": tensor * 1.5 for name, tensor in tiny_architecture.items()}
    file = tmp_path / "epoch_3.pt"
    torch.save(as_trained(tiny_architecture) | {"state_dict_ema": average}, file)
    both = spec(adapter="openclip", checkpoint=f"tinytower@{file}", dim=32)
    with pytest.raises(
        RequestError, match=r"holds several sets of weights; append .* use: #state_dict or #state_dict_ema"
    ):
        load_encoder(both)
    with pytest.raises(
        RequestError, match=r"holds no weights 'ema'; it holds epoch, name, state_dict, optimizer, state"
    ):
        load_encoder(replace(both, checkpoint=f"{both.checkpoint}#ema"))
    encoders = [
        load_encoder(replace(both, checkpoint=f"{both.checkpoint}#{key}")) for key in ("state_dict", "state_dict_ema")
    ]
    first, second = (encode_captions(encoder, [SHORT]).values for encoder in encoders)
    assert np.abs(first - second).max() > 1e-3
    assert encoders[0].spec.fingerprint != encoders[1].spec.fingerprint


def test_the_preprocessing_of_a_training_is_that_of_the_tag_that_it_began_with(
    tiny_architecture, tmp_path, monkeypatch
) -> None:
    import open_clip
    import torch

    torch.save(as_trained(tiny_architecture), tmp_path / "epoch_3.pt")
    known = {"hf_hub": "timm/none/", "resize_mode": "squash", "interpolation": "bicubic"}
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "tinytower", {"began": known})
    for name, resizing in (("tinytower", "crop"), ("tinytower/began", "squash")):
        encoder = load_encoder(spec(adapter="openclip", checkpoint=f"{name}@{tmp_path}/epoch_3.pt", dim=32))
        assert CHECKS["resizing as declared"](encoder) == resizing


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        ("tinytower@{}/nothing.pt", r"checkpoint 'tinytower@.*' does not exist \(.*/nothing.pt\)"),
        ("tinytowel@{}/epoch_3.pt", "architecture 'tinytowel' is unknown; did you mean 'tinytower'"),
        ("{}/epoch_3.pt", r"has no open_clip_config.json; expected hf-hub:.*\(ViT-B-32@/path/epoch_3.pt\)"),
    ],
)
def test_a_form_that_open_clip_does_not_have_is_an_error_with_all_forms(
    checkpoint, message, tiny_architecture, tmp_path
) -> None:
    (tmp_path / "epoch_3.pt").write_bytes(b"x")
    with pytest.raises(RequestError, match=message):
        load_encoder(spec(adapter="openclip", checkpoint=checkpoint.format(tmp_path), dim=32))


@pytest.fixture
def spec_without(copied_family):
    """A spec of a copy of a family's folder, in which some files are missing."""

    def copied(name: str, *patterns: str):
        spec = copied_family(name)
        for file in [file for pattern in patterns for file in Path(spec.checkpoint).rglob(pattern)]:
            file.unlink()
        return spec

    return copied


def follow(advice: str, original: Path) -> None:
    """What ``hf download ORIGINAL --include PATTERN --local-dir FOLDER`` does, with ORIGINAL in a folder."""
    *_, include, pattern, local_dir, folder = shlex.split(re.sub("^.*hf download", "", advice))
    assert (include, local_dir) == ("--include", "--local-dir")
    for file in original.glob(pattern):
        shutil.copy(file, folder)


@pytest.mark.parametrize(
    ("name", "missing", "message"),
    [
        ("clip", ["preprocessor_config.json"], IMAGES),
        ("clip", ["tokenizer*"], TOKENS),
        ("siglip2", ["tokenizer.json"], TOKENS),
        ("sentence-transformers", ["preprocessor_config.json"], IMAGES),
    ],
)
def test_what_the_error_of_an_incomplete_folder_says_makes_it_whole(
    name, missing, message, family, spec_without
) -> None:
    spec = spec_without(name, *missing)
    with pytest.raises(RequestError, match=f"model.* {message}.*trained from \\(ORIGINAL\\): hf download") as error:
        load_encoder(spec)
    whole = load_encoder(family(name))
    follow(str(error.value), next(folder_of(whole.spec).rglob("preprocessor_config.json")).parent)
    mended = load_encoder(spec)
    np.testing.assert_array_equal(encode_captions(mended, [SHORT]).values, encode_captions(whole, [SHORT]).values)
    images = six_scenes()[0][:2]
    np.testing.assert_array_equal(encode_images(mended, images).values, encode_images(whole, images).values)


def test_the_original_is_named_where_the_folder_knows_it(spec_without, hub_cache) -> None:
    spec = spec_without("colpali-lora", "preprocessor_config.json", "processor_config.json")
    base = "vidore/colpaligemma-3b-pt-448-base"
    with pytest.raises(RequestError, match=f"hf download {base} --include 'preprocessor_config.json' --local-dir"):
        load_encoder(spec)


def test_a_repository_of_the_hub_is_copied_before_it_is_completed(family, hub_cache, monkeypatch) -> None:
    spec = family("chinese-clip")
    folder = folder_of(resolve(spec))
    file = folder / "preprocessor_config.json"
    contents = file.read_text()
    file.unlink()
    try:
        with pytest.raises(RequestError) as error:
            load_encoder(spec)
    finally:
        file.write_text(contents)
    assert f'hf download {spec.checkpoint} --local-dir ./model, set checkpoint = "./model", and hf' in str(error.value)


@pytest.mark.parametrize(
    ("missing", "message"),
    [("config.json", "has no config.json, which names"), ("model.safetensors", "has no weights .*model.*safetensors")],
)
def test_bare_weights_and_a_bare_configuration_are_no_model(missing, message, spec_without) -> None:
    with pytest.raises(RequestError, match=f'{message}.*call save_pretrained, or .*adapter = "module"'):
        load_encoder(spec_without("clip", missing))
