"""The suite detects what goes wrong with real models, and trained models pass it."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from capim.store.types import Embeddings, EncoderSpec
from capim.tasks.encoders import catalog, encode_captions, load_encoder, pixels, resolve, spec_of
from capim.tasks.encoders.adapters.late_interaction import FAMILIES
from capim.tasks.encoders.adapters.recognition import DUAL_FAMILIES
from capim.tasks.encoders.checkpoint import folder_of
from capim.tasks.encoders.conformance import CHECKS, check_encoder, check_loaded
from capim.tasks.encoders.weights import MissingWeightsError, read_tensors
from tests.encoders.families.hub import commit
from tests.encoders.families.sentence import small_bert, text_model
from tests.encoders.families.table import CASES


@pytest.fixture
def loaded(family):
    return lambda name: load_encoder(family(name), trust_remote_code=CASES[name].remote_code)


@pytest.mark.parametrize("name", [n for n, entry in catalog().items() if entry.checkpoint.startswith("package:")])
def test_trained_models_pass_every_check(name) -> None:
    results = list(check_encoder(spec_of(name)))
    # one has been trained on pages, and never saw coloured shapes
    untrained = {"matching pairs"} if name == "tiny-colpali-pages" else set()
    assert {v.check for v in results if v.result != "pass"} <= untrained


def squashing(encoder: Any) -> None:
    encoder.pixel_pipeline = replace(encoder.pixel_pipeline, fit=lambda image: image.resize((56, 56)))


def cropping(encoder: Any) -> None:
    fit = partial(pixels._resize_and_crop, edge=56, crop=(56, 56), resample=Image.Resampling.BICUBIC)
    encoder.pixel_pipeline = replace(encoder.pixel_pipeline, fit=fit)


def not_normalised(encoder: Any) -> None:
    embed = encoder.embed
    encoder.embed = lambda batch: replace((unit := embed(batch)), values=unit.values * unit.norms[:, None])


def zero_padded(encoder: Any) -> None:
    embed = encoder.embed

    def padded(prepared) -> Embeddings:
        block = embed(prepared)
        longest = int(block.counts.max())
        items = np.split(block.values, block.offsets[1:-1])
        values = np.concatenate([np.pad(item, ((0, longest - len(item)), (0, 0))) for item in items])
        return replace(block, values=values, offsets=np.arange(len(items) + 1) * longest)

    encoder.embed = padded


def without_marks_of_truncation(encoder: Any) -> None:
    prepare = encoder.prepare_captions
    encoder.prepare_captions = lambda captions: replace(prepare(captions), truncated=np.zeros(len(captions), np.bool_))


def without_its_adapter(encoder: Any) -> None:
    for name, weights in encoder.modules[0].named_parameters():
        if "lora_B" in name:
            weights.data.zero_()


@pytest.mark.parametrize(
    ("name", "spoil", "checks"),
    [
        ("clip", squashing, ["resizing as declared"]),
        ("dfn", cropping, ["resizing as declared"]),
        ("clip", not_normalised, ["shapes and norms"]),
        ("colpali", zero_padded, ["shapes and norms", "independent of batch"]),
        ("uform2", lambda encoder: encoder.modules[0].train(), ["repeated calls"]),
        ("clip", without_marks_of_truncation, ["truncation"]),
        ("colpali-lora", without_its_adapter, ["weights in the model"]),
    ],
)
def test_what_is_wrong_with_a_model_fails_its_check(name, spoil, checks, loaded) -> None:
    encoder = loaded(name)
    spoil(encoder)
    assert {v.result for v in check_loaded(encoder, {check: CHECKS[check] for check in checks})} == {"fail"}


@pytest.mark.parametrize(
    ("name", "families", "kind", "change"),
    [
        ("siglip", DUAL_FAMILIES, "siglip", {"padding": "longest"}),
        ("colpali", FAMILIES, "paligemma", {"prefix_attention": False}),
    ],
)
def test_captions_that_are_padded_or_read_in_another_way_than_their_family_fail(
    name, families, kind, change, loaded, monkeypatch
) -> None:
    monkeypatch.setitem(families, kind, replace(families[kind], **change))
    [found] = check_loaded(loaded(name), {"independent of batch": CHECKS["independent of batch"]})
    assert found.result == "fail"


def without(file: Path, part: str) -> str:
    """Take the first weight out of a file whose name has this part; returns the end of its name."""
    tensors = read_tensors(file)
    name = next(name for name in tensors if part in name)
    tensors.pop(name)
    if file.suffix == ".safetensors":
        save_file(tensors, file, metadata={"format": "pt"})
    else:
        torch.save(tensors, file)
    return ".".join(name.split(".")[-2:])


def test_a_checkpoint_that_lacks_a_weight_is_one_failed_check_with_the_next_step(copied_family, tmp_path) -> None:
    """What else may be wrong with a weight, in all families: test_weights.py."""
    spec = copied_family("clip")
    lost = without(tmp_path / "model" / "model.safetensors", "mlp.fc1.weight")
    [row] = check_encoder(spec)
    assert (row.check, row.result) == ("no missing weights", "fail")
    assert re.search(rf"encoder 'clip': 1 of \d+ weights of the model are not in the files .*{lost}\)", row.detail)
    assert "copy or save the folder again, with all its weights" in row.detail


def test_two_lost_weights_of_a_repository_are_counted_and_named_with_the_command(family) -> None:
    spec = family("siglip")
    file = folder_of(resolve(spec)) / "model.safetensors"
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
        files = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
        assert len(files) > 1 or kind == "pickle"
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
    row = next(row for row in check_encoder(spec) if row.check == "no missing weights")
    assert row.result == "pass"
    assert re.search(r"but for 2 that no vector needs: .*pooler.dense.weight", row.detail)


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
