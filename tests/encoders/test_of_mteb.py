"""Models of mteb's table: their vectors are those of mteb's own ``encode``, and they pass the conformance suite."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.store.vectors import Ragged
from capim.tasks.encoders import catalog, encode_captions, encode_images, entry_from, load_encoder, resolve
from capim.tasks.encoders.conformance import check_encoder, six_scenes
from capim.tasks.encoders.identity import roles_line
from capim.tasks.encoders.of_mteb import TASK, rows, why_not
from tests.encoders.families.of_mteb import BASE_COMMIT, CASES, spec_in_cache
from tests.encoders.families.recipe import PALIGEMMA

pytestmark = [
    pytest.mark.peers,
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_spec("mteb") is None, reason="the peers extra is not installed"),
]


@pytest.fixture(scope="module")
def mteb_cache(hub_cache: Path) -> Iterator[Path]:
    """A cache beside that of the other families, which have some of the names at other commits."""
    from huggingface_hub import constants

    place = hub_cache.with_name("mteb")
    place.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_CACHE", str(place))
        yield place


def by_mteb(name: str, items: list[Any], column: str, role: str) -> list[NDArray[np.float32]]:
    """The vectors of each item by mteb's own loader and data, as mteb returns them."""
    import datasets
    import mteb
    from mteb._create_dataloaders import create_dataloader

    task = mteb.get_task(TASK).metadata
    dataset = datasets.Dataset.from_dict({column: items})
    if column == "image":
        dataset = dataset.cast_column("image", datasets.Image())
    loader = create_dataloader(dataset, task_metadata=task, prompt_type=mteb.types.PromptType(role), batch_size=6)
    model: Any = mteb.get_model_meta(name).load_model(device="cpu")
    found = (getattr(model, "encode", None) or model._encode)(
        loader, task_metadata=task, hf_split="test", hf_subset="default", prompt_type=mteb.types.PromptType(role)
    )
    return [np.asarray(each.detach().float() if hasattr(each, "detach") else each) for each in found]


def unit(vectors: list[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
    """Of each item its vectors of unit norm, without those that are padding."""
    items = [np.atleast_2d(each) for each in vectors]
    items = [each[(each != 0).any(axis=1)] for each in items]
    return [each / np.linalg.norm(each, axis=1, keepdims=True) for each in items]


@pytest.mark.parametrize("name", CASES)
def test_vectors_are_those_of_mteb(name: str, mteb_cache: Path) -> None:
    spec = spec_in_cache(name, mteb_cache)
    encoder = load_encoder(spec, trust_remote_code=True)
    images, captions = six_scenes()
    for block, theirs in (
        (encode_images(encoder, images), by_mteb(name, images, "image", "document")),
        (encode_captions(encoder, captions), by_mteb(name, captions, "text", "query")),
    ):
        ours = list(Ragged.from_counts(block.values, block.counts))
        assert len(ours) == len(theirs) == 6
        for one, other in zip(ours, unit(theirs), strict=True):
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.slow
def test_a_model_of_mteb_passes_the_suite(mteb_cache: Path) -> None:
    spec = spec_in_cache("openai/clip-vit-base-patch32", mteb_cache)
    results = {each.check: each for each in check_encoder(spec)}
    assert {"no missing weights", "weights in the model", "loads offline"} <= results.keys()
    assert results["no missing weights"].result == "pass"
    faults = [each for each in results.values() if each.result == "fail" and each.check != "matching pairs"]
    assert not faults


def test_its_identity_is_mtebs_revision_version_task_and_base(mteb_cache: Path) -> None:
    import mteb

    spec = resolve(spec_in_cache("vidore/colpali-v1.3", mteb_cache))
    meta = mteb.get_model_meta("vidore/colpali-v1.3")
    assert (spec.revision, spec.precision, spec.vectors) == (meta.revision, "float16", "multi")
    assert spec.options == {
        "task": TASK, "caption_role": "query", "image_role": "document",
        "revision:mteb": mteb.__version__, f"revision:{PALIGEMMA}": BASE_COMMIT,
    }  # fmt: skip
    assert resolve(spec) == spec
    assert roles_line(spec) == f"captions as query, images as document, with mteb's prompts for {TASK}"
    other = replace(spec, options={**spec.options, "task": "VidoreDocVQARetrieval"})
    assert other.fingerprint != spec.fingerprint
    with pytest.raises(RequestError, match=r"made with mteb 1\.0, but .* is here"):
        resolve(replace(spec, options={**spec.options, "revision:mteb": "1.0"}))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"checkpoint": "openai/clip-vit-base-patch33"}, "model of mteb for images .* is unknown.*did you mean"),
        ({"checkpoint": "Cohere/Cohere-embed-v4.0"}, "runs at a service: adapter 'http'"),
        ({"checkpoint": "Qwen/Qwen3-VL-Reranker-2B"}, "is a cross-encoder model, which has no vectors"),
        ({"checkpoint": "mteb/baseline-random-encoder"}, "is random"),
    ],
)
def test_a_row_that_cannot_be_an_encoder_is_refused(row: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        entry_from("x", {"adapter": "mteb", **row})


def test_a_row_takes_dimension_kind_and_licence_from_the_table_and_says_what_is_not_installed(mteb_cache: Path) -> None:
    entry = entry_from("x", {"adapter": "mteb", "checkpoint": "jinaai/jina-clip-v1"})
    assert (entry.dim, entry.vectors, entry.licence) == (768, "single", "apache-2.0")
    with pytest.raises(RequestError, match=r"mteb's jinaai/jina-clip-v1 needs transformers<5"):
        load_encoder(entry.spec, trust_remote_code=True)


def test_code_of_a_repository_runs_by_consent_alone(mteb_cache: Path) -> None:
    import mteb

    name = "google/tipsv2-b14"
    place = mteb_cache / "models--google--tipsv2-b14" / "snapshots" / str(mteb.get_model_meta(name).revision)
    place.mkdir(parents=True)
    with pytest.raises(RequestError, match=r"runs Python code of its repository .* it with --trust-remote-code"):
        load_encoder(entry_from("x", {"adapter": "mteb", "checkpoint": name}).spec)


def test_every_model_of_the_table_is_listed_with_memory_licence_and_what_it_needs() -> None:
    import mteb

    table = {row["name"]: dict(row) for row in rows()}
    assert len(table) > 200
    colqwen = table["vidore/colqwen2-v1.0"]
    assert sorted(colqwen.pop("trained_on")) == sorted(catalog()["colqwen2-v1.0"].trained_on)
    assert colqwen | {"needs": ""} == {
        "name": "vidore/colqwen2-v1.0", "vectors": "multi", "dim": 128, "millions": 2210.0, "memory_mb": 7200,
        "context": 32768, "released": "2025-11-03", "languages": "eng-Latn",
        "licence": "apache-2.0", "revision": mteb.get_model_meta("vidore/colqwen2-v1.0").revision, "needs": "",
    }  # fmt: skip
    assert sum(not row["needs"] for row in table.values()) > 90
    assert all(why_not(mteb.get_model_meta(name)) == "" for name in CASES)
