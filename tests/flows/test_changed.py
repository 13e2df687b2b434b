"""A folder that changed since it was stored: what is said of it, and of encoders on an earlier state of it only."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capim.store import EmbeddingStore
from tests.command import command, json_rows

pytestmark = pytest.mark.slow  # whole suites of commands

QUICK = "--replicates 100 --protocols t2i/all"


def vectors(encoder: str, corpus: str = "") -> str:
    """Import random vectors of an encoder."""
    seed = np.random.default_rng(ord(encoder[0]))
    for side in ("images", "captions"):
        np.save(f"{side}.npy", seed.normal(size=(8, 4)).astype(np.float32))
    given = f"{corpus and f'--corpus {corpus}'} --encoder {encoder} --images images.npy --captions captions.npy"
    return command(f"import {given} --by-position").err


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working folder, with two models on a folder of photographs, one of them also on two that changed."""
    folder = tmp_path_factory.mktemp("work")
    here = Path.cwd()
    os.chdir(folder)
    try:
        (folder / "shop").mkdir()
        for n in range(8):
            Image.new("RGB", (8, 8), (20 * n, 9, 9)).save(folder / "shop" / f"{n}.png")
        (folder / "shop" / "captions.csv").write_text("image,caption\n" + "".join(f"{n}.png,n {n}\n" for n in range(8)))
        for encoder in "ab":
            vectors(encoder, "./shop")
        command(f"evaluate {QUICK}")
        for n in (2, 5):
            Image.new("RGB", (8, 8), (9, 9, 20 * n)).save(folder / "shop" / f"{n}.png")
    finally:
        os.chdir(here)
    return folder


@pytest.fixture
def changed(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(shop)
    return shop


def test_a_folder_that_changed_since_it_was_stored_is_said_to_have(changed: Path) -> None:
    said = command("report --corpora ./shop").err
    assert "corpus shop changed since it was stored (images with other contents: '2.png', '5.png')" in said
    [state] = fingerprints(changed)
    assert f"used is the stored state {state} of 2" in said
    assert "`capim embed --corpora shop --encoders …` encodes what changed" in said


def fingerprints(folder: Path) -> list[str]:
    return [corpus.fingerprint for corpus in EmbeddingStore.open(folder / "workspace" / "store").corpora()]


def test_the_only_corpus_of_the_store_is_the_stored_one(changed: Path) -> None:
    before = fingerprints(changed)
    assert "corpus: shop, the only one of the store" in vectors("only")
    assert fingerprints(changed) == before


def test_encoders_with_an_earlier_state_only_are_named_and_a_fingerprint_that_is_asked_for_is_shown(
    changed: Path,
) -> None:
    store = EmbeddingStore.open(changed / "workspace" / "store")
    [earlier] = (corpus.fingerprint for corpus in store.corpora())
    vectors("b", "./shop")
    command(f"evaluate {QUICK}")
    newer = store.states().corpora["shop"]
    assert newer != earlier
    why = f"a: results on another state of shop only; on {newer}, the one shown, by `capim run --corpora shop --enc"
    page = command("report")
    assert why in page.page.with_name("report.md").read_text().partition("\n## ")[0].replace("\\", "")
    assert why in command("results").err
    assert why in command("choose --weights shop:t2i/all=1", code=1).err
    for asked in (f"--corpora {earlier}", f"--corpora {earlier} --encoders a,b"):
        text = command(f"report {asked}").page.with_name("report.md").read_text()
        assert f"Shown is the state {earlier} of shop, as asked for." in text
        assert "Only" not in text.partition("\n")[0]
    encoder = store.encoder("a").fingerprint
    assert {row["corpus_fingerprint"] for row in json_rows(f"results --corpora {earlier}")} == {earlier}
    text = command(f"report --corpora {earlier} --encoders {encoder}").page.with_name("report.md").read_text()
    assert f"Shown is the state {encoder} of a" in text
