"""The stored layout of late-interaction vectors names the patches and tokens that the model was given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from capim.store.types import EncoderSpec
from capim.store.vectors import grids_of, tokens_of
from capim.tasks.encoders import encode_captions, encode_images, load_encoder
from capim.tasks.encoders.adapters.late_interaction import FAMILIES
from capim.tasks.encoders.checkpoint import folder_of
from tests.encoders.families.colvision import PATCH
from tests.encoders.families.table import CASES

IMAGES = [Image.new("RGB", size, "red") for size in ((56, 56), (112, 56), (90, 140))]


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.vectors == "multi"])
def test_layouts_fit_the_vectors_and_cover_the_image(name: str, family: Callable[[str], EncoderSpec]) -> None:
    encoder: Any = load_encoder(family(name), device="cpu")
    embeddings = encode_images(encoder, IMAGES)
    inputs = encoder.prepare_images(IMAGES).inputs
    read = [ids[mask.bool()].tolist() for ids, mask in zip(inputs["input_ids"], inputs["attention_mask"], strict=True)]
    assert embeddings.layouts is not None
    for image, layout, count, ids in zip(IMAGES, embeddings.layouts, embeddings.counts.tolist(), read, strict=True):
        grids = grids_of(layout)
        assert grids, f"{name}: no grid for {image.size}"
        assert all(grid.first >= 0 and grid.first + grid.rows * grid.columns <= count for grid in grids)
        patches = [one for grid in grids for one in ids[grid.first : grid.first + grid.rows * grid.columns]]
        assert set(patches) == {patches[0]} and len(patches) == ids.count(patches[0]) > 1  # one token for every patch
        area = sum(((box := grid.boxes())[:, 2] - box[:, 0]) @ (box[:, 3] - box[:, 1]) for grid in grids)
        assert area == pytest.approx(2 if len(grids) > 1 else 1)  # tiles, and the whole image once more
    captions = encode_captions(encoder, ["a red bus", "a bus"])
    assert captions.layouts is not None
    for text, layout, count in zip(["a red bus", "a bus"], captions.layouts, captions.counts.tolist(), strict=True):
        tokens = tokens_of(layout)
        assert len(tokens) == count
        assert "bus" in "".join(tokens), text


def test_layouts_follow_the_mask_of_a_multi_vector_encoder(family: Callable[[str], EncoderSpec]) -> None:
    """keep_only_token_ids leaves the patches of an image alone; a model that merges vectors has no layout."""
    from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling

    encoder: Any = load_encoder(family("multi-vector"), device="cpu")
    [model] = encoder.modules
    model[2].keep_only_token_ids = [model.tokenizer.convert_tokens_to_ids(model.processor.image_token)]
    embeddings = encode_images(encoder, IMAGES)
    assert embeddings.layouts is not None
    for layout, count in zip(embeddings.layouts, embeddings.counts.tolist(), strict=True):
        [grid] = grids_of(layout)
        assert (grid.first, grid.rows * grid.columns) == (0, count)
    model.append(HierarchicalTokenPooling(2))
    assert encoder.prepare_images(IMAGES).layouts is None


@pytest.mark.peers
@pytest.mark.parametrize("name", ["colpali", "colqwen2", "colqwen2.5", "colqwen3", "colqwen3.5"])
def test_grids_are_those_of_colpali_engines_similarity_maps(name: str, family: Callable[[str], EncoderSpec]) -> None:
    import colpali_engine.models as col
    import torch
    from colpali_engine.interpretability import get_similarity_maps_from_embeddings
    from transformers import AutoConfig, AutoImageProcessor

    encoder: Any = load_encoder(family(name), device="cpu")
    folder = folder_of(encoder.spec)
    processor = getattr(col, FAMILIES[AutoConfig.from_pretrained(folder).model_type].processor).from_pretrained(folder)
    processor.image_processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    batch = processor.process_images(IMAGES)
    mask = processor.get_image_mask(batch)
    images = encode_images(encoder, IMAGES)
    query = torch.from_numpy(encode_captions(encoder, ["a red bus"]).values)
    assert images.layouts is not None and images.offsets is not None
    for row, image in enumerate(IMAGES):
        [grid] = grids_of(images.layouts[row])
        size = PATCH if name == "colpali" else encoder.modules[0].spatial_merge_size
        n_patches = processor.get_n_patches(image.size, size)
        vectors = torch.from_numpy(images.values[images.offsets[row] : images.offsets[row + 1]])
        kept = mask[row][batch["attention_mask"][row].bool()]
        [theirs] = get_similarity_maps_from_embeddings(vectors[None], query[None], n_patches, kept[None])
        ours = (query @ vectors[grid.first : grid.first + grid.rows * grid.columns].T).reshape(
            -1, grid.rows, grid.columns
        )
        np.testing.assert_allclose(theirs.numpy().swapaxes(1, 2), ours.numpy(), atol=1e-6)
