"""Why a caption and an image match: shares of tokens add up to the stored score, and maps point at what is named."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

import capim
from capim.reports.rows.gallery import map_key, match_maps
from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.vectors import Ragged
from capim.tasks.analyses.vectors import explain_pair, explain_pairs
from capim.tasks.corpora.images.decode import decode_image
from capim.tasks.encoders import encode_captions, encode_images, load_encoder
from capim.tasks.ranking.maxsim_products import pair_scores, token_similarities
from tests.benchmarks.pointing import pointing_game
from tests.command import command
from tests.reports.app.stores import asking
from tests.reports.pages import cases

CORPUS = "shapes-sample12"


@pytest.fixture(scope="session")
def store(small_demo: Path) -> EmbeddingStore:
    return EmbeddingStore.open(small_demo / "store")


def test_shares_add_up_to_every_stored_score(store: EmbeddingStore) -> None:
    captions = store.items(CORPUS, "caption")["id"].to_pylist()
    outcomes = store.rows("outcomes", encoder="tiny-colpali", corpus=CORPUS, protocol="t2i/all").slice(0, 20)
    scores = {
        (captions.index(row["query_id"]), ord_): score
        for row in outcomes.to_pylist()
        for ord_, score in list(zip(row["top_ords"], row["top_scores"], strict=True))[:3]
    }
    assert len(scores) == 60
    explained = explain_pairs(store, encoder="tiny-colpali", corpus=CORPUS, pairs=[*scores])
    for found, score in zip(explained, scores.values(), strict=True):
        assert found.score == pytest.approx(score, rel=1e-6)
        assert len(found.tokens) == len(found.shares) == len(found.similarities)
        assert found.similarities.max(axis=1) == pytest.approx(found.shares, abs=1e-6)
        [grid] = found.grids
        assert (grid.rows, grid.columns) == (4, 4)


def test_shares_add_up_for_any_vectors() -> None:
    generator = np.random.default_rng(3)
    for n_tokens, n_patches in ((1, 1), (1, 3), (7, 16), (40, 1030), (17, 31)):
        caption, image = (generator.normal(size=(n, 128)).astype(np.float32) for n in (n_tokens, n_patches))
        caption, image = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (caption, image))
        similarities, shares = token_similarities(caption, image)
        assert similarities.shape == (n_tokens, len(image))
        [score] = pair_scores(Ragged.of([caption]), image, "cpu")
        assert np.add.reduceat(shares, [0])[0] == score
        assert float(shares.astype(np.float64).sum()) == pytest.approx(float(score), rel=1e-6)


def test_maps_point_at_the_thing_that_a_token_names(store: EmbeddingStore) -> None:
    game = pointing_game(store, encoder="tiny-colpali", corpus=CORPUS)
    assert game.n_images == 12
    assert game.difference.low is not None
    assert game.difference.low > 0
    assert game.hits > 2 * game.any_patch


@pytest.mark.slow
def test_maps_of_a_page_point_at_the_answer_to_the_question(tmp_path: Path) -> None:
    command("embed --corpora pages --encoders tiny-colpali-pages --device cpu", tmp_path)
    game = pointing_game(EmbeddingStore.open(tmp_path / "store"), encoder="tiny-colpali-pages", corpus="pages")
    assert game.n_images > 12
    assert game.difference.low is not None
    assert game.difference.low > 0
    assert game.hits > 2 * game.any_patch


@pytest.mark.parametrize("suffix", [".png", ".json"])
def test_the_command_writes_a_picture_or_data(
    small_demo: Path, store: EmbeddingStore, suffix: str, tmp_path: Path
) -> None:
    target = tmp_path / f"maps{suffix}"
    caption, image = (str(store.items(CORPUS, modality)["id"][1]) for modality in ("caption", "image"))
    pair = f"--encoder tiny-colpali --corpus {CORPUS} --query {caption} --item {image}"
    command(f"explain {pair} --to {target}", small_demo)
    if suffix == ".json":
        [found] = json.loads(target.read_text())
        assert sum(token["share"] for token in found["tokens"]) == pytest.approx(found["score"], rel=1e-6)
        assert all(len(token["similarities"]) >= 16 for token in found["tokens"])
    else:
        with Image.open(target) as picture:
            assert picture.width > 1000
    command(f"explain {pair} --to {tmp_path / 'maps.html'}", small_demo, code=2)


def test_a_saved_page_of_a_pair_has_its_maps_inside(small_demo: Path) -> None:
    workspace = capim.open(small_demo, quiet=True)
    [found] = explain_pairs(workspace.store, encoder="tiny-colpali", corpus=CORPUS, pairs=[(1, 0)])
    with asking(workspace.store) as client:
        page = client.get(f"/match?encoder=tiny-colpali&corpus={CORPUS}&caption=1&image=0&as=html").text
    assert page.count("data:image/png") == 1 + len(found.tokens)
    assert "/match.png" not in page


def test_all_faults_of_a_request_come_together(store: EmbeddingStore) -> None:
    with pytest.raises(RequestError) as error:
        explain_pair(store, encoder="tiny-clip", corpus=CORPUS, caption="nobody", image="nothing")
    one_vector, caption, image = error.value.faults
    assert "has one vector per item" in one_vector
    assert caption.startswith("corpus 'shapes-sample12': caption 'nobody' is unknown; ")
    assert "known: scene-" in image


def test_failures_of_a_late_interaction_encoder_have_maps(small_demo: Path) -> None:
    [page] = (small_demo / "reports").glob("*/report.html")
    answers = [text for case in cases(page.read_text()) for text in case["view"].split('<div class="answer">')[1:]]
    mapped = [answer for answer in answers if 'class="maps"' in answer]
    assert mapped
    assert all("<h3>tiny-colpali " in answer for answer in mapped)
    assert all("matches the expected image" in answer for answer in mapped)


def test_maps_are_in_the_order_of_the_cases_so_that_equal_rows_give_equal_bytes(store: EmbeddingStore) -> None:
    [found] = explain_pairs(store, encoder="tiny-colpali", corpus=CORPUS, pairs=[(0, 0)])
    names = [f"corpus-{n}" for n in range(12)]
    sealed = [SimpleNamespace(key=SimpleNamespace(encoder="late", corpus=n, modality="image")) for n in names]
    source: Any = SimpleNamespace(sealed_sets=lambda: sealed)
    ranked = SimpleNamespace(encoder="late", top=())
    cases: Any = [SimpleNamespace(direction="t2i", corpus=n, query=0, image=0, lists=[ranked]) for n in names]
    specs: Any = {"late": SimpleNamespace(vectors="multi", fingerprint="f")}
    corpora: Any = dict.fromkeys(names, SimpleNamespace(fingerprint="c"))
    thumbnails = {found.sha: store.thumbnails([found.sha])[found.sha]}
    maps = match_maps(source, cases, specs, corpora, thumbnails, lambda **_: [found])
    assert list(maps) == [map_key(name, "late", 0, 0) for name in names]


# --- `capim search`


def test_a_text_and_an_image_are_searched_for_together_as_the_sum_of_their_unit_vectors(
    small_demo: Path, tmp_path: Path
) -> None:
    opened = capim.open(small_demo)
    where: Any = {"encoder": "tiny-clip", "corpus": CORPUS, "device": "cpu"}
    images = opened.vectors(encoder="tiny-clip", corpus=CORPUS, modality="image")
    [sha] = opened.sql(f"SELECT sha FROM images WHERE id = '{images.ids[3]}' LIMIT 1").sha
    picture = tmp_path / "picture.jpg"
    picture.write_bytes(opened.store.thumbnails([sha])[sha])
    encoder = load_encoder(opened.store.encoder("tiny-clip"), device="cpu")
    total = encode_captions(encoder, ["a red circle"]).values[0]
    total = total + encode_images(encoder, [decode_image(picture.read_bytes())]).values[0]
    query = total / np.linalg.norm(total)
    found = opened.search("a red circle", image=picture, k=12, **where)
    np.testing.assert_allclose(found.score, np.sort(images.matrix @ query)[::-1], atol=1e-6)
    assert [*found.id] == [*opened.search(vector=query, k=12, encoder="tiny-clip", corpus=CORPUS).id]
