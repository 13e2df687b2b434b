"""A folder without a file that its model needs: the error names it, and what it says to do makes the folder whole."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from capim.store.errors import RequestError
from capim.tasks.encoders import encode_captions, encode_images, load_encoder, resolve
from capim.tasks.encoders.checkpoint import folder_of
from capim.tasks.encoders.conformance import SHORT, six_scenes

IMAGES = "has no preprocessor_config.json, which says how images are resized"
TOKENS = "has no tokenizer"


@pytest.fixture
def spec_without(family, tmp_path):
    """A spec of a copy of a family's folder, in which some files are missing."""

    def copied(name: str, *patterns: str):
        folder = shutil.copytree(folder_of(resolve(family(name))), tmp_path / "my-model")
        for file in [file for pattern in patterns for file in folder.rglob(pattern)]:
            file.unlink()
        return replace(family(name), checkpoint=str(folder))

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
    with pytest.raises(RequestError, match=f"my-model.* {message}.*trained from \\(ORIGINAL\\): hf download") as error:
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


def test_a_folder_with_the_processors_of_transformers_5_is_whole(spec_without) -> None:
    assert load_encoder(spec_without("colqwen2"))  # processor_config.json holds the image processor
