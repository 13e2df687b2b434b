"""The suite detects what goes wrong with real models, and trained models pass it."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from capim.store.types import Embeddings, EncoderSpec
from capim.tasks.encoders import ADAPTERS, catalog, encode_captions, load_encoder, spec_of
from capim.tasks.encoders.adapters import hf_dual, loaded_encoder
from capim.tasks.encoders.adapters.late_interaction import FAMILIES
from capim.tasks.encoders.checkpoint import chosen_weights, folder_of
from capim.tasks.encoders.conformance import CHECKS, check_encoder, check_loaded
from capim.tasks.encoders.pixels import PixelPipeline
from capim.tasks.encoders.tensors import dense_embeddings
from capim.tasks.encoders.weights import MissingWeightsError, read_tensors
from tests.encoders.families.hub import commit
from tests.encoders.families.sentence import small_bert, text_model
from tests.encoders.families.table import CASES, Case


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


def test_siglip_padded_to_the_longest_caption_fails(loaded, monkeypatch) -> None:
    monkeypatch.setitem(hf_dual.FAMILIES, "siglip", replace(hf_dual.FAMILIES["siglip"], padding="longest"))
    assert "independent of batch" in failed(loaded("siglip"))


def test_siglip_with_an_attention_mask_fails(loaded) -> None:
    encoder = loaded("siglip")
    prepare = encoder.prepare_captions

    def with_mask(captions):
        prepared = prepare(captions)
        mask = torch.zeros_like(prepared.inputs["input_ids"])
        mask[:, : int(prepared.n_tokens.max())] = 1  # as a tokenizer would: by the longest of the batch
        return replace(prepared, inputs={**prepared.inputs, "attention_mask": mask})

    encoder.prepare_captions = with_mask
    assert "independent of batch" in failed(encoder)


def test_a_model_that_crops_made_to_squash_fails(loaded) -> None:
    encoder = loaded("clip")
    pipeline = encoder.pixel_pipeline
    encoder.pixel_pipeline = PixelPipeline(
        fit=lambda image: image.resize((56, 56)), mean=pipeline.mean, std=pipeline.std
    )
    assert "resizing as declared" in failed(encoder)


def test_a_model_that_squashes_made_to_crop_fails(loaded) -> None:
    encoder, cropping = loaded("dfn"), loaded("laion")
    encoder.pixel_pipeline = cropping.pixel_pipeline
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


def test_colpali_without_prefix_attention_fails(loaded, monkeypatch) -> None:
    monkeypatch.setitem(FAMILIES, "paligemma", replace(FAMILIES["paligemma"], prefix_attention=False))
    assert "independent of batch" in failed(loaded("colpali"))


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


def weights_in(folder: Path, adapter: str) -> list[Path]:
    names = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    return [folder / name for name in chosen_weights(names, ADAPTERS[adapter].weights)]


def without(file: Path, *parts: str) -> str:
    """Take the first weight out of a file whose name has one of these parts; returns the end of its name."""
    tensors = read_tensors(file)
    towers = [tower for tower in tensors.values() if isinstance(tower, dict)] or [tensors]
    name = next(name for part in parts for name in towers[0] if part in name)
    towers[0].pop(name)
    if file.suffix == ".safetensors":
        save_file(tensors, file, metadata={"format": "pt"})
    else:
        torch.save(tensors, file)
    return ".".join(name.split(".")[-2:])


def copied(spec: EncoderSpec, case: Case, hub_cache: Path, to: Path) -> list[tuple[EncoderSpec, Path]]:
    """A copy of a family's folder, and of its base model if it has one, with every file of weights."""
    snapshots = {path.name: next(path.glob("snapshots/*")) for path in hub_cache.glob("models--*")}
    folder = shutil.copytree(
        snapshots[f"models--{(case.repository or spec.checkpoint).replace('/', '--')}"], to / "model"
    )
    copy, files = replace(spec, checkpoint=str(folder)), weights_in(folder, spec.adapter)
    if (folder / "adapter_config.json").is_file():
        config = json.loads((folder / "adapter_config.json").read_text())
        of_base = snapshots[f"models--{config['base_model_name_or_path'].replace('/', '--')}"]
        config["base_model_name_or_path"] = str(shutil.copytree(of_base, to / "base"))
        (folder / "adapter_config.json").write_text(json.dumps(config))
        files += weights_in(to / "base", spec.adapter)
    return [(copy, file) for file in files]


@pytest.mark.parametrize("name", CASES)
def test_a_checkpoint_that_lacks_a_weight_does_not_load_whatever_loads_it(name, family, hub_cache, tmp_path) -> None:
    case = CASES[name]
    for spec, file in copied(family(name), case, hub_cache, tmp_path):
        whole = file.read_bytes()
        lost = without(file, "mlp.fc1.weight", "fc1", "layers", "blocks", "layer", "")
        [row] = check_encoder(spec, trust_remote_code=case.remote_code)
        assert (row.check, row.result) == ("no missing weights", "fail"), file
        assert re.search(rf"encoder '{name}': 1( of \d+)? weights of the model are not in the files", row.detail)
        assert f"{lost})" in row.detail.replace("lora_A.default.", "lora_A."), file
        assert "copy or save the folder again, with all its weights" in row.detail
        file.write_bytes(whole)


def test_two_lost_weights_of_a_repository_are_counted_and_named_with_the_command(family, hub_cache) -> None:
    spec = family("siglip")
    snapshot = next((hub_cache / f"models--{spec.checkpoint.replace('/', '--')}").glob("snapshots/*"))
    file = snapshot / "model.safetensors"
    whole = file.read_bytes()
    try:
        for _ in range(2):
            without(file, "mlp.fc1.weight")
        command = f"hf download {spec.checkpoint} --revision {commit(spec.checkpoint)} --force-download"
        with pytest.raises(MissingWeightsError, match=rf"2 of \d+ weights .*fc1.weight, .*fc1.weight\).*{command}"):
            load_encoder(spec)
    finally:
        file.write_bytes(whole)


def test_a_shard_that_lacks_a_weight_and_a_pickle_do_not_load(family, tmp_path) -> None:
    from transformers import AutoModel

    spec = family("clip")
    for kind, save in {
        "shards": lambda model, folder: model.save_pretrained(folder, max_shard_size="200KB"),
        "pickle": lambda model, folder: torch.save(model.state_dict(), folder / "pytorch_model.bin"),
    }.items():
        folder = shutil.copytree(folder_of(load_encoder(spec).spec), tmp_path / kind)
        model = AutoModel.from_pretrained(folder)
        (folder / "model.safetensors").unlink()
        save(model, folder)
        changed = replace(spec, checkpoint=str(folder))
        assert load_encoder(changed)
        files = weights_in(folder, "hf_dual")
        assert kind == "pickle" or len(files) > 1
        without(next(f for f in files if any("fc1.weight" in name for name in read_tensors(f))), "fc1.weight")
        with pytest.raises(MissingWeightsError, match=r"1 of 78 weights .*fc1.weight\)"):
            load_encoder(changed)


def test_a_pooler_that_no_vector_needs_may_be_missing_and_is_named(tmp_path) -> None:
    from sentence_transformers.models import Pooling

    spec = text_model(tmp_path / "model", small_bert(tmp_path / "bert"), Pooling(32))
    before = encode_captions(load_encoder(spec), ["a red bus"]).values
    for _ in range(2):
        without(tmp_path / "model" / "model.safetensors", "pooler")
    encoder = load_encoder(spec)
    np.testing.assert_array_equal(encode_captions(encoder, ["a red bus"]).values, before)
    rows = {row.check: row for row in check_encoder(spec)}
    assert rows["no missing weights"].result == "pass"
    assert re.search(r"but for 2 that no vector needs: .*pooler.dense.weight", rows["no missing weights"].detail)


def test_weights_that_code_takes_in_its_own_way_are_found_in_the_files_or_not(tmp_path, monkeypatch) -> None:
    from sentence_transformers.models import Dense, Pooling

    spec = text_model(tmp_path / "model", small_bert(tmp_path / "bert"), Pooling(32), Dense(32, 32))
    before = encode_captions(load_encoder(spec), ["a red bus"]).values

    def assigned(cls: type[Dense], *_: Any, read: bool = True, **__: Any) -> Dense:
        module = cls(32, 32)
        tensors = read_tensors(next(tmp_path.glob("model/*_Dense/*.safetensors"))) if read else {}
        for name, tensor in tensors.items():
            module.get_parameter(name).data = tensor
        return module

    monkeypatch.setattr(Dense, "load", partial(assigned, Dense))
    np.testing.assert_allclose(encode_captions(load_encoder(spec), ["a red bus"]).values, before, atol=2e-6)
    monkeypatch.setattr(Dense, "load", partial(assigned, Dense, read=False))
    with pytest.raises(MissingWeightsError, match=r"2 of \d+ weights .*2.linear.weight, 2.linear.bias\)"):
        load_encoder(spec)


def test_a_wrong_spec_is_an_error_and_not_a_check_result() -> None:
    with pytest.raises(Exception, match="adapter 'nope' is unknown"):
        list(check_encoder(EncoderSpec(name="x", adapter="nope", checkpoint="x", dim=1)))
