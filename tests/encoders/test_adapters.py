"""Single adapters beyond the suite: the vectors and layouts of their library, and errors with the next step."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from capim.store.errors import RequestError, WorkError
from capim.store.types import EncoderSpec
from capim.store.vectors import Ragged, grids_of, tokens_of
from capim.tasks.encoders import encode_captions, encode_images, load_encoder
from capim.tasks.encoders.adapters import hf_dual
from capim.tasks.encoders.adapters.late_interaction import FAMILIES, KINDS
from capim.tasks.encoders.checkpoint import base_folder, folder_of, json_file
from capim.tasks.encoders.conformance import CHECKS, check_encoder, check_loaded, noise_image
from capim.tasks.encoders.pipeline import CaptionWork, encode_stream
from tests.encoders.families.clip import PATCH
from tests.encoders.families.openclip import build_own_tokenizer
from tests.encoders.families.others import build_coco_sm_module
from tests.encoders.families.sentence import small_bert, text_model
from tests.encoders.families.table import CASES

SINGLE = {"vectors": "single", "storage": "float32"}
PAGES = [Image.new("RGB", size, "red") for size in ((56, 56), (112, 56), (90, 140))]
FAST = ("hf_dual", "openclip", "uform")
PHOTOGRAPHS = [noise_image(96, 80, 3), noise_image(200, 72, 4), noise_image(72, 200, 5)]
CAPTIONS = ["a red circle left of a blue square", "A Green triangle, above a yellow circle!", "", "the " * 200]


@pytest.fixture(scope="module")
def loaded(family) -> Callable[[str], Any]:
    """The encoder of a family by name, loaded once for all tests here; not to be changed."""
    return cache(lambda name: load_encoder(family(name), trust_remote_code=CASES[name].remote_code))


def model_type(spec: EncoderSpec) -> str:
    folder = folder_of(spec)
    return str(json_file((base_folder(spec, folder) or folder) / "config.json")["model_type"])


def unit(features) -> np.ndarray:
    features = getattr(features, "pooler_output", features)
    return torch.nn.functional.normalize(features.float(), dim=-1).numpy()


def assert_same(ours, theirs) -> None:
    np.testing.assert_allclose(ours.values, theirs, atol=2e-6)


Features = tuple[Any, Any]  # of CAPTIONS and of the photographs


def by_transformers(encoder: Any, *, length: int, read: tuple[str, ...]) -> Features:
    """The calls that transformers documents."""
    from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

    folder = folder_of(encoder.spec)
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    pixels = AutoImageProcessor.from_pretrained(folder, backend="pil")(images=PHOTOGRAPHS, return_tensors="pt")
    tokens = tokenizer(CAPTIONS, padding="max_length", truncation=True, max_length=length, return_tensors="pt")
    return model.get_text_features(**{key: tokens[key] for key in read}), model.get_image_features(**pixels)


def by_open_clip(encoder: Any, *, in_folder: bool = False) -> Features:
    """Its own transform and tokenizer, and text of full length; ``in_folder``: only there the tokenizer is found."""
    import open_clip

    repository = f"hf-hub:{encoder.spec.checkpoint.removeprefix('hf-hub:')}"
    identifier = f"local-dir:{folder_of(encoder.spec)}" if in_folder else repository
    model, transform = open_clip.create_model_from_pretrained(identifier)
    model.eval()
    pixels = torch.stack([transform(image) for image in PHOTOGRAPHS])
    return model.encode_text(open_clip.get_tokenizer(identifier)(CAPTIONS)), model.encode_image(pixels)


def by_uform(encoder: Any) -> Features:
    """The package with its full padding."""
    from uform.torch_processors import ImageProcessor, TextProcessor

    folder = folder_of(encoder.spec)
    config, (text, image) = json_file(folder / "config.json"), encoder.modules
    tokens = TextProcessor(config, str(folder / "tokenizer.json"))(CAPTIONS)
    assert tokens["input_ids"].shape[1] == 50
    return text.encode(tokens), image.encode(ImageProcessor(config)(PHOTOGRAPHS))


def by_jina(encoder: Any) -> Features:
    """Its own encode functions."""
    [model] = encoder.modules
    return torch.as_tensor(model.encode_text(CAPTIONS[:2])), torch.as_tensor(model.encode_image(PHOTOGRAPHS))


def by_tipsv2(encoder: Any) -> Features:
    """Its own processor and model."""
    from transformers import AutoModel, AutoProcessor

    folder = folder_of(encoder.spec)
    model, processor = AutoModel.from_pretrained(folder), AutoProcessor.from_pretrained(folder)
    texts = processor(text=CAPTIONS, return_tensors="pt")
    assert texts["input_ids"].shape[1] == 64
    pixels = processor(images=PHOTOGRAPHS, return_tensors="pt")
    return model.get_text_features(**texts), model.get_image_features(**pixels)


LIBRARIES: dict[str, Callable[[Any], Features]] = {
    "clip": partial(by_transformers, length=77, read=("input_ids", "attention_mask")),
    "siglip": partial(by_transformers, length=64, read=("input_ids",)),
    "tipsv2": by_tipsv2,
    "laion": by_open_clip,
    "dfn": by_open_clip,
    "openclip-own-tokenizer": partial(by_open_clip, in_folder=True),
    "openclip-siglip": partial(by_open_clip, in_folder=True),
    "openclip-xlm-roberta": by_open_clip,
    "uform3": by_uform,
    "jina": by_jina,
}


@torch.inference_mode()
@pytest.mark.parametrize("name", LIBRARIES)
def test_vectors_are_those_of_the_familys_own_library(name, loaded) -> None:
    encoder = loaded(name)
    captions, images = map(unit, LIBRARIES[name](encoder))
    known = captions.any(axis=1)  # of an empty caption TIPSv2 makes zeros, and we the vector of padding
    assert known.all() or (name, known.tolist()) == ("tipsv2", [True, True, False, True])
    ours = encode_captions(encoder, CAPTIONS[: len(captions)]).values
    np.testing.assert_allclose(ours[known], captions[known], atol=2e-6)
    assert_same(encode_images(encoder, PHOTOGRAPHS), images)


@torch.inference_mode()
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.adapter == "colvision"])
def test_late_interaction_equals_colpali_engine_one_by_one(name, family, loaded) -> None:
    import colpali_engine.models as col
    from transformers import AutoImageProcessor

    encoder = loaded(name)
    folder, kind, family_of = folder_of(encoder.spec), KINDS[encoder.spec.vectors], FAMILIES[model_type(encoder.spec)]
    class_ = getattr(col, kind + family_of.name)
    # colpali_engine 0.3.18 looks for a table of transformers that version 5 has moved
    moved: dict[str, Any] = {} if hasattr(class_, "_checkpoint_conversion_mapping") else {"key_mapping": {}}
    model = class_.from_pretrained(family(name).checkpoint, dtype=torch.float32, **moved).eval()
    kind = "Col" if name == "bipali" else kind  # nor does its BiPaliProcessor load with transformers 5
    processor = getattr(col, family_of.processor.replace("Col", kind)).from_pretrained(folder)
    processor.image_processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    ours = encode_captions(encoder, CAPTIONS[:2])
    ragged = Ragged.from_counts(ours.values, ours.counts)
    for i, caption in enumerate(CAPTIONS[:2]):  # alone there is no padding, and the library is right
        expected = model(**processor.process_queries([caption]))[0].numpy()
        np.testing.assert_allclose(ragged[i].reshape(expected.shape), expected, atol=2e-6)
    image = PHOTOGRAPHS[0]
    inputs = processor.process_images([image])
    inputs.pop("labels", None)
    expected = model(**inputs)[0].numpy()
    got = encode_images(encoder, [image]).values
    np.testing.assert_allclose(got.reshape(expected.shape), expected, atol=2e-6)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.adapter == "sentence_transformers"])
def test_sentence_transformers_encodes_captions_as_queries_and_images_as_documents(name, loaded) -> None:
    import sentence_transformers

    encoder = loaded(name)
    multi = encoder.spec.vectors == "multi"
    kind = sentence_transformers.MultiVectorEncoder if multi else sentence_transformers.SentenceTransformer
    model: Any = kind(str(folder_of(encoder.spec)), device="cpu")
    captions, images = CAPTIONS[:2], PHOTOGRAPHS
    for ours, theirs, items in (
        (encode_captions(encoder, captions), model.encode_query, captions),
        (encode_images(encoder, images), model.encode_document, images),
    ):
        for got, item in zip(Ragged.from_counts(ours.values, ours.counts), items, strict=True):
            expected = np.asarray(theirs(item, normalize_embeddings=True))
            np.testing.assert_allclose(got.reshape(expected.shape), expected, atol=2e-6)


@pytest.mark.parametrize(  # TIPSv2's processor has no form for Pillow
    "name", [n for n, c in CASES.items() if c.adapter in FAST and n not in ("siglip2-naflex", "tipsv2")]
)
def test_the_fast_way_to_pixels_is_taken(name, loaded) -> None:
    assert loaded(name).pixel_pipeline is not None


def test_a_text_model_of_sentence_transformers_equals_its_own_loop(tmp_path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling

    spec = text_model(tmp_path / "model", small_bert(tmp_path / "bert"), Pooling(32))
    theirs = SentenceTransformer(spec.checkpoint, device="cpu")
    work = CaptionWork(ords=np.arange(3, dtype=np.int32), texts=CAPTIONS[:3])
    for batch in encode_stream(load_encoder(spec), work, batch_size=1):
        expected = theirs.encode([CAPTIONS[i] for i in batch.ords], normalize_embeddings=True)
        assert_same(batch.embeddings, expected)
    with pytest.raises(RequestError, match=r"reads text, not images; .* --only captions"):
        load_encoder(spec).prepare_images([Image.new("RGB", (8, 8))])


def test_a_coco_sm_module_runs_unchanged(tmp_path) -> None:
    build_own_tokenizer(tmp_path / "model")
    build_coco_sm_module(tmp_path / "openclip.py", tmp_path / "model")
    spec = EncoderSpec(name="own", adapter="module", checkpoint=str(tmp_path / "openclip.py"), dim=32)
    which = {name: check for name, check in CHECKS.items() if name != "matching pairs"}
    encoder: Any = load_encoder(spec)
    assert not [v for v in check_loaded(encoder, which) if v.result == "fail"]
    direct = load_encoder(EncoderSpec(name="o", adapter="openclip", checkpoint=str(tmp_path / "model"), dim=32))
    assert_same(encode_captions(encoder, CAPTIONS), encode_captions(direct, CAPTIONS).values)
    assert_same(encode_images(encoder, PHOTOGRAPHS), encode_images(direct, PHOTOGRAPHS).values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("embedding_dim = 4", "does not define model, image_forward_fn, text_forward_fn"),
        ("import nothing_of_that_name", "failed: ModuleNotFoundError"),
        (
            "model = embedding_dim = 4\ndef image_forward_fn(*_): ...\ndef text_forward_fn(*_): ...",
            "has embedding_dim = 4, but the spec has dim = 32",
        ),
        ("def encode_images(images): ...", "does not define encode_captions$"),
    ],
)
def test_a_wrong_module_is_refused(text, message, tmp_path) -> None:
    (tmp_path / "m.py").write_text(text)
    with pytest.raises(RequestError, match=message):
        load_encoder(EncoderSpec(name="m", adapter="module", checkpoint=str(tmp_path / "m.py"), dim=32))


def test_a_template_is_put_around_every_caption_and_changes_the_fingerprint(family, loaded) -> None:
    plain = loaded("clip")
    templated = load_encoder(replace(family("clip"), options={"caption_template": "the {caption}"}))
    assert_same(encode_captions(templated, ["red circle"]), encode_captions(plain, ["the red circle"]).values)
    assert templated.spec.fingerprint != plain.spec.fingerprint


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("clip", {"options": {"caption_template": "a photo"}}, "must contain {caption} exactly once"),
        ("clip", {"options": {"max_length": 500}}, "max_length must be from 3 to 77, got 500"),
        ("clip", {"options": {"max_lenght": 10}}, "option 'max_lenght' is unknown"),
        ("clip", {"adapter": "openclip"}, "no open_clip_config.json.*hf_dual"),
        ("clip", {"adapter_version": 0}, "made with version 0 of adapter 'hf_dual', but this is version 1"),
        ("jina", {}, "brings Python code.*--trust-remote-code"),
        ("colpali", {"adapter": "hf_dual"}, "is a 'paligemma' model; adapter hf_dual loads clip"),
        ("colqwen2", SINGLE, "holds a ColQwen2, so that vectors must be 'multi', got 'single'"),
        ("multi-vector", SINGLE, "is a MultiVectorEncoder, so that vectors must be 'multi', got 'single'"),
        ("multi-vector", {"options": {"caption_role": "search"}},
         "caption_role must be 'query' or 'document' or 'none', got 'search'"),
    ],
)  # fmt: skip
def test_a_spec_that_does_not_fit_its_checkpoint_is_refused_with_the_next_step(name, changes, message, family) -> None:
    with pytest.raises(RequestError, match=message):
        load_encoder(replace(family(name), **changes))


def test_a_shorter_max_length_cuts_there(family) -> None:
    block = encode_captions(load_encoder(replace(family("clip"), options={"max_length": 6})), CAPTIONS[:2])
    assert block.n_tokens.tolist() == [6, 6]
    assert block.truncated.all()


def test_damaged_weights_are_an_error_in_one_line(copied_family, tmp_path) -> None:
    spec = copied_family("clip")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(WorkError, match=r"cannot be loaded .*; the files may be damaged"):
        load_encoder(spec)


def test_a_model_that_does_not_fit_says_what_to_try(family, monkeypatch) -> None:
    monkeypatch.setattr(hf_dual, "load", lambda *_, **__: (_ for _ in ()).throw(torch.OutOfMemoryError("CUDA oom")))
    with pytest.raises(WorkError, match="does not fit into the memory of cpu; try --precision bfloat16"):
        load_encoder(family("clip"))


def test_a_wrong_dimension_is_named(family) -> None:
    encoder: Any = load_encoder(replace(family("clip"), dim=64))
    with pytest.raises(WorkError, match=r"shape \(1, 32\), expected \(1, 64\); is dim = 64 right"):
        encode_captions(encoder, ["a"])


def test_not_a_number_from_the_model_is_an_error_that_names_the_item(family) -> None:
    encoder: Any = load_encoder(family("clip"))
    forward = encoder.forwards["caption"]

    def spoilt(**inputs):
        vectors = forward(**inputs).clone()
        vectors[1, 0] = float("nan")
        return vectors

    encoder.forwards["caption"] = spoilt
    with pytest.raises(WorkError, match=r"NaN, infinite or zero for 1 of 3 captions, first at position 1"):
        encode_captions(encoder, ["a", "b", "c"])


@pytest.mark.parametrize("name", ["colqwen2", "colgemma3", "qwen3-vl-embedding"])
def test_a_caption_that_spells_the_image_token_is_text(name, loaded) -> None:
    encoder = loaded(name)
    alone = encode_captions(encoder, ["a red circle"]).values
    together = encode_captions(encoder, ["a red circle", f"a {encoder.image_token} circle"])
    assert encoder.image_token
    np.testing.assert_allclose(together.values[: len(alone)], alone, atol=2e-6)


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.vectors == "multi"])
def test_layouts_fit_the_vectors_and_cover_the_image(name, loaded) -> None:
    encoder = loaded(name)
    embeddings = encode_images(encoder, PAGES)
    inputs = encoder.prepare_images(PAGES).inputs
    read = [ids[mask.bool()].tolist() for ids, mask in zip(inputs["input_ids"], inputs["attention_mask"], strict=True)]
    assert embeddings.layouts is not None
    for image, layout, count, ids in zip(PAGES, embeddings.layouts, embeddings.counts.tolist(), read, strict=True):
        grids = grids_of(layout)
        assert grids, f"{name}: no grid for {image.size}"
        assert all(grid.first >= 0 and grid.first + grid.rows * grid.columns <= count for grid in grids)
        patches = [one for grid in grids for one in ids[grid.vectors]]
        assert set(patches) == {patches[0]} and len(patches) == ids.count(patches[0]) > 1  # one token for every patch
        area = sum(((box := grid.boxes())[:, 2] - box[:, 0]) @ (box[:, 3] - box[:, 1]) for grid in grids)
        assert area == pytest.approx(2 if len(grids) > 1 else 1)  # tiles, and the whole image once more
    captions = encode_captions(encoder, ["a red bus", "a bus"])
    assert captions.layouts is not None
    for text, layout, count in zip(["a red bus", "a bus"], captions.layouts, captions.counts.tolist(), strict=True):
        tokens = tokens_of(layout)
        assert len(tokens) == count
        assert "bus" in "".join(tokens), text


def test_layouts_follow_the_mask_of_a_multi_vector_encoder(family) -> None:
    """keep_only_token_ids leaves the patches of an image alone; a model that merges vectors has no layout."""
    from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling

    encoder: Any = load_encoder(family("multi-vector"), device="cpu")
    [model] = encoder.modules
    model[2].keep_only_token_ids = [model.tokenizer.convert_tokens_to_ids(model.processor.image_token)]
    embeddings = encode_images(encoder, PAGES)
    assert embeddings.layouts is not None
    for layout, count in zip(embeddings.layouts, embeddings.counts.tolist(), strict=True):
        [grid] = grids_of(layout)
        assert (grid.first, grid.rows * grid.columns) == (0, count)
    model.append(HierarchicalTokenPooling(2))
    assert encoder.prepare_images(PAGES).layouts is None


@pytest.mark.peers
@pytest.mark.parametrize("name", ["colpali", "colqwen2", "colqwen2.5", "colqwen3", "colqwen3.5"])
def test_grids_are_those_of_colpali_engines_similarity_maps(name, loaded) -> None:
    import colpali_engine.models as col
    from colpali_engine.interpretability import get_similarity_maps_from_embeddings
    from transformers import AutoImageProcessor

    encoder = loaded(name)
    folder = folder_of(encoder.spec)
    processor = getattr(col, FAMILIES[model_type(encoder.spec)].processor).from_pretrained(folder)
    processor.image_processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    batch = processor.process_images(PAGES)
    mask = processor.get_image_mask(batch)
    images = encode_images(encoder, PAGES)
    query = torch.from_numpy(encode_captions(encoder, ["a red bus"]).values)
    assert images.layouts is not None and images.offsets is not None
    for row, image in enumerate(PAGES):
        [grid] = grids_of(images.layouts[row])
        size = PATCH if name == "colpali" else encoder.modules[0].spatial_merge_size
        n_patches = processor.get_n_patches(image.size, size)
        vectors = torch.from_numpy(images.values[images.offsets[row] : images.offsets[row + 1]])
        kept = mask[row][batch["attention_mask"][row].bool()]
        [theirs] = get_similarity_maps_from_embeddings(vectors[None], query[None], n_patches, kept[None])
        ours = (query @ vectors[grid.vectors].T).reshape(-1, grid.rows, grid.columns)
        np.testing.assert_allclose(theirs.numpy().swapaxes(1, 2), ours.numpy(), atol=1e-6)


@pytest.mark.parametrize("name", ["clip", "openclip-own-tokenizer", "colqwen2", "qwen3-vl-embedding"])
def test_a_tokenizer_with_ids_beyond_the_vocabulary_is_one_error_in_words(name, copied_family) -> None:
    spec = copied_family(name)
    [file] = Path(spec.checkpoint).rglob("tokenizer.json")
    contents = json.loads(file.read_text())
    vocabulary = contents["model"]["vocab"]
    contents["model"]["vocab"] = {word: n + 50_000 * (n > len(vocabulary) // 2) for word, n in vocabulary.items()}
    contents["added_tokens"] = [one | {"id": contents["model"]["vocab"].get(one["content"], one["id"])}
                                for one in contents["added_tokens"]]  # fmt: skip
    file.write_text(json.dumps(contents))
    [row] = check_encoder(spec)
    assert (row.check, row.result) == ("loads", "fail")
    assert re.search(
        r"the tokenizer of .*model gives token 5\d{4}, but the model has vectors for \d+ tokens", row.detail
    )
