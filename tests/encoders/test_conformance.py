"""The suite detects what goes wrong with real models, and trained models pass it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from store.types import Embeddings, EncoderSpec
from tasks.encoders import catalog, load_encoder, spec_of
from tasks.encoders.adapters import loaded_encoder
from tasks.encoders.conformance.suite import CHECKS, check_encoder, check_loaded
from tasks.encoders.pixels import PixelPipeline
from tasks.encoders.tensors import dense_embeddings
from tests.encoders.families.table import CASES


def failed(encoder) -> dict[str, str]:
    which = {name: check for name, check in CHECKS.items() if name not in ("matching pairs", "speed")}
    return {v.check: v.detail for v in check_loaded(encoder, which) if v.result == "fail"}


@pytest.fixture
def loaded(family):
    return lambda name: load_encoder(family(name), trust_remote_code=CASES[name].remote_code)


@pytest.mark.parametrize("name", [n for n, entry in catalog().items() if entry.checkpoint.startswith("package:")])
def test_trained_models_pass_every_check(name) -> None:
    results = list(check_encoder(spec_of(name)))
    # one has been trained on pages, and never saw coloured shapes
    untrained = {"matching pairs"} if name == "tiny-colpali-pages" else set()
    assert {v.check for v in results if v.result != "pass"} <= untrained


def test_siglip_padded_to_the_longest_caption_fails(loaded) -> None:
    encoder = loaded("siglip")
    encoder._family = replace(encoder._family, padding="longest")
    encoder.pads_to_longest = True
    assert "independent of batch" in failed(encoder)


def test_siglip_with_an_attention_mask_fails(loaded) -> None:
    encoder = loaded("siglip")
    prepare = encoder.prepare_captions

    def with_mask(captions):
        prepared = prepare(captions)
        mask = prepared.inputs["input_ids"] != encoder._tokenizer.pad_token_id
        mask[:, : int(prepared.n_tokens.max())] = True  # as a tokenizer would: by the longest of the batch
        return replace(prepared, inputs={**prepared.inputs, "attention_mask": mask.long()})

    encoder.prepare_captions = with_mask
    assert "independent of batch" in failed(encoder)


def test_a_model_that_crops_made_to_squash_fails(loaded) -> None:
    encoder = loaded("clip")
    pipeline = encoder._pixel_pipeline
    encoder._pixel_pipeline = PixelPipeline(
        fit=lambda image: image.resize((56, 56)), mean=pipeline.mean, std=pipeline.std
    )
    assert "resizing as declared" in failed(encoder)


def test_a_model_that_squashes_made_to_crop_fails(loaded) -> None:
    encoder, cropping = loaded("dfn"), loaded("laion")
    encoder._pixel_pipeline = cropping._pixel_pipeline
    assert "resizing as declared" in failed(encoder)


def test_vectors_that_are_not_normalised_fail(loaded, monkeypatch) -> None:
    encoder = loaded("clip")

    def raw(features, prepared, spec):
        unit = dense(features, prepared, spec)
        return replace(unit, values=unit.values * unit.norms[:, None])

    dense = dense_embeddings
    monkeypatch.setattr(loaded_encoder, "dense_embeddings", raw)
    assert "shapes and norms" in failed(encoder)


def test_zero_padded_multi_vectors_fail(loaded) -> None:
    encoder = loaded("colpali")
    embed = encoder.embed

    def padded(prepared) -> Embeddings:
        block = embed(prepared)
        longest = int(block.counts.max())
        items = np.split(block.values, block.offsets[1:-1])
        values = np.concatenate([np.pad(item, ((0, longest - len(item)), (0, 0))) for item in items])
        return replace(block, values=values, offsets=np.arange(len(items) + 1) * longest)

    encoder.embed = padded
    faults = failed(encoder)
    assert "shapes and norms" in faults
    assert "independent of batch" in faults


def test_colpali_without_prefix_attention_fails(loaded) -> None:
    encoder = loaded("colpali")
    encoder._family = replace(encoder._family, prefix_attention=False)
    assert "independent of batch" in failed(encoder)


def test_a_model_in_training_mode_fails(loaded) -> None:
    encoder = loaded("uform2")
    encoder.modules[0].train()
    assert "repeated calls" in failed(encoder)


def test_captions_truncated_without_being_marked_fail(loaded) -> None:
    encoder = loaded("clip")
    prepare = encoder.prepare_captions
    encoder.prepare_captions = lambda captions: replace(
        (p := prepare(captions)), truncated=np.zeros(len(p), dtype=np.bool_)
    )
    assert "truncation" in failed(encoder)


def test_an_adapter_that_is_not_applied_fails(loaded) -> None:
    encoder = loaded("colpali-lora")
    with torch.no_grad():
        for name, weights in encoder.modules[0].named_parameters():
            if "lora_B" in name:
                weights.zero_()
    assert "weights in the model" in failed(encoder)


def test_an_adapter_file_without_some_of_its_weights_does_not_load(family, hub_cache, tmp_path) -> None:
    snapshot = next((hub_cache / f"models--{family('colpali-lora').checkpoint.replace('/', '--')}").glob("snapshots/*"))
    folder = shutil.copytree(snapshot, tmp_path / "adapter")
    file = folder / "adapter_model.safetensors"
    save_file(
        {k: v for k, v in load_file(file).items() if "custom_text_proj" not in k}, file, metadata={"format": "pt"}
    )
    spec = replace(family("colpali-lora"), checkpoint=str(folder))
    results = list(check_encoder(spec))
    assert [(v.check, v.result) for v in results] == [("no missing weights", "fail")]
    assert "custom_text_proj" in results[0].detail


@pytest.mark.parametrize("name", ["clip", "colpali", "colpali-lora", "dfn", "uform2", "jina"])
def test_a_checkpoint_that_lacks_a_weight_does_not_load(name, family, hub_cache, tmp_path) -> None:
    spec = family(name)
    repository = (CASES[name].repository or spec.checkpoint).replace("/", "--")
    folder = shutil.copytree(next((hub_cache / f"models--{repository}").glob("snapshots/*")), tmp_path / name)
    base = name == "colpali-lora"
    if base:
        config = json.loads((folder / "adapter_config.json").read_text())
        of_base = config["base_model_name_or_path"].replace("/", "--")
        config["base_model_name_or_path"] = str(tmp_path / "base")
        (folder / "adapter_config.json").write_text(json.dumps(config))
        shutil.copytree(next((hub_cache / f"models--{of_base}").glob("snapshots/*")), tmp_path / "base")
    drop_one_weight(tmp_path / "base" if base else folder)
    results = list(check_encoder(replace(spec, checkpoint=str(folder)), trust_remote_code=CASES[name].remote_code))
    assert [(v.check, v.result) for v in results] == [("no missing weights", "fail")]


def drop_one_weight(folder) -> None:
    for file in folder.glob("*.safetensors"):
        tensors = load_file(file)
        tensors.pop(next(name for name in sorted(tensors) if "layers" in name or "blocks" in name))
        save_file(tensors, file, metadata={"format": "pt"})
        return
    for file in (*folder.glob("*.bin"), *folder.glob("*.pt")):
        tensors = torch.load(file, weights_only=True)
        towers = [t for t in tensors.values() if isinstance(t, dict)] or [tensors]
        towers[0].pop(next(name for name in towers[0] if "blocks" in name))
        torch.save(tensors, file)
        return


def test_a_wrong_spec_is_an_error_and_not_a_check_result() -> None:
    with pytest.raises(Exception, match="adapter 'nope' is unknown"):
        list(check_encoder(EncoderSpec(name="x", adapter="nope", checkpoint="x", dim=1)))
