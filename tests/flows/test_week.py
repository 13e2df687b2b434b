"""A team's week with one store, day by day, from the command line; every value is that of numpy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from PIL import Image

from capim.store import EmbeddingStore
from capim.store.schema import Result
from tests.command import Printed, command

pytestmark = pytest.mark.slow

Hits: TypeAlias = np.ndarray[Any, Any]
N, CODES = 60, ("de", "en")
CATEGORY = np.array(["shoes", "bags", "hats"] * (N // 3))
QUICK = "--replicates 100 --quiet"
TESTED = f"{QUICK} --permutations 1000"


class Shop:
    """Sixty photographs with a title in two languages and a category, and vectors of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.workspace = folder, folder / "workspace"
        self.photograph(range(N), shade=0)
        rows = [f"p{i}.png,p{i}-{code},{code} title {i},{code},{CATEGORY[i]}" for i in range(N) for code in CODES]
        (folder / "shop.csv").write_text("\n".join(["image,caption_id,caption,language,category", *rows]) + "\n")
        (folder / "shop.toml").write_text('reader = "table"\nroot = "shop.csv"\ncolumns = { objects = ["category"] }\n')

    def photograph(self, items: Sequence[int] | range, *, shade: int) -> None:
        """Take the photographs of some items, again if there are any."""
        for i in items:
            pixels = np.full((8, 8, 3), (i, 3 * i % 256, shade), np.uint8)
            Image.fromarray(pixels).save(self.folder / f"p{i}.png")

    def imports(self, encoder: str, noise: float, *words: str) -> dict[str, Hits]:
        """Import an encoder's vectors and evaluate them; return which captions of each language find their image."""
        drawn = np.random.default_rng(int(1000 * noise))
        images = drawn.normal(size=(N, 12))
        captions = {code: images + noise * drawn.normal(size=images.shape) for code in CODES}
        np.savez(
            self.folder / "vectors.npz",
            images=images,
            image_ids=np.array([f"p{i}.png" for i in range(N)]),
            captions=np.concatenate([*captions.values()]),
            caption_ids=np.array([f"p{i}-{code}" for code in CODES for i in range(N)]),
        )
        self.run(f"import {self.folder}/vectors.npz --encoder {encoder} --corpus {self.folder}/shop.toml", *words)
        of_images, *of_captions = (
            each / np.linalg.norm(each, axis=1, keepdims=True) for each in (images, *captions.values())
        )
        first = [(each @ of_images.T).argmax(axis=1) for each in of_captions]
        return {code: found == np.arange(N) for code, found in zip(CODES, first, strict=True)}

    def run(self, *words: str, code: int = 0) -> Printed:
        """Run a command in the workspace."""
        return command(" ".join(words), self.workspace, code=code)

    def night(self, *words: str, code: int = 0) -> list[dict[str, Any]]:
        """Evaluate and judge everything that is stored; return what the gate says."""
        self.run(f"evaluate {QUICK}")
        return self.run(f"watch {TESTED} --format json", *words, code=code).rows

    def values(self, *words: str) -> dict[tuple[str, str], float]:
        """Return the stored R@1 of captions by encoder, or encoder and revision, and language."""
        protocols = ",".join(f"t2i/{code}/human" for code in CODES)
        rows = self.run(f"results --metrics R@1 --protocols {protocols} --format json", *words).rows
        found = {}
        for row in rows:
            name = f"{row['encoder']}@{row['revision']}" if "revision" in row else row["encoder"]
            found[name, row["protocol"].split("/")[1]] = row["value"]
        assert len(found) == len(rows), "one state of each"
        return found


def by_numpy(**found: dict[str, Hits]) -> dict[tuple[str, str], Any]:
    """Return the same of these hits."""
    return {
        (name.replace("_at_", "@"), code): pytest.approx(of.mean(), abs=1e-12)
        for name, each in found.items()
        for code, of in each.items()
    }


def test_a_week(tmp_path: Path) -> None:
    shop = Shop(tmp_path)

    # Monday: three models; the first night pins them.
    first = shop.imports("ours", 1.0, "--revision v1")
    theirs, old = shop.imports("theirs", 1.2), shop.imports("old", 1.4)
    assert [row["verdict"] for row in shop.night()] == ["pinned"] * 3
    assert shop.values() == by_numpy(ours=first, theirs=theirs, old=old)
    assert shop.night("--strict") == [], "nothing changed"

    # Tuesday: a second revision is better, and where.
    second = shop.imports("ours", 0.6, "--revision v2")
    assert "fail" not in {row["verdict"] for row in shop.night("--strict")}
    assert shop.values() == by_numpy(ours=second, theirs=theirs, old=old), "a name is its newest revision"
    both = by_numpy(ours_at_v1=first, ours_at_v2=second)
    assert shop.values("--encoders ours@v1,ours@v2") == both
    rows = shop.run(f"compare --encoders ours@v2,ours@v1 --metrics R@1 {TESTED} --format json").rows
    compared = {row["protocol"]: row["difference"] for row in rows}
    for code in CODES:
        difference = second[code].mean() - first[code].mean()
        assert compared[f"t2i/{code}/human"] == pytest.approx(difference, abs=1e-12)
    shop.run(f"evaluate {QUICK} --encoders ours@v1")
    assert shop.values() == by_numpy(ours=second, theirs=theirs, old=old), "the newest, whatever was evaluated last"

    # Wednesday: a third one is a regression, which the gate stops; it is taken out again.
    third = shop.imports("ours", 4.0, "--revision v3")
    failed = [row for row in shop.night("--strict", code=1) if row["verdict"] == "fail"]
    drops = {row["protocol"]: (row["before"], row["now"]) for row in failed if row["metric"] == "R@1"}
    for code in CODES:
        assert drops[f"t2i/{code}/human"][1] == pytest.approx(third[code].mean(), abs=1e-12)
    shop.run("store drop --encoder ours@v3 --results --yes")
    assert shop.values() == by_numpy(ours=second, theirs=theirs, old=old)

    # Thursday: five photographs are taken again. Results on the earlier ones are named until all are imported again.
    shop.photograph(range(5), shade=9)
    second = shop.imports("ours", 0.65, "--revision v2")
    shop.run(f"evaluate {QUICK} --corpora {tmp_path}/shop.toml")
    said = shop.run("results --metrics R@1 --protocols t2i/de/human")
    assert [line.split()[0] for line in said.out.splitlines()[2:]] == ["ours"]
    assert "old,theirs: results on another state of shop only" in said.err
    theirs, old = shop.imports("theirs", 1.2), shop.imports("old", 1.4)
    shop.night()
    assert shop.values() == by_numpy(ours=second, theirs=theirs, old=old)

    # Friday: a model leaves with its results; another comes with its facts, which limit the choice.
    shop.run("store drop --encoder old --results --yes")
    assert "old" not in {row.encoder for row in EmbeddingStore.open(shop.workspace / "store").all(Result)}
    large = shop.imports("large", 0.4, "--licence cc-by-nc-4.0 --parameters 900")
    shop.run("import --encoder ours --licence mit --parameters 86")
    shop.night()
    shop.run(f"compare {TESTED}")
    assert shop.values() == by_numpy(ours=second, theirs=theirs, large=large)
    chosen = shop.run("choose --weights shop:t2i/de=3,shop:t2i/en=1 --limits licence=free --format json")
    [kept] = chosen.rows
    mean = 100 * (0.75 * second["de"].mean() + 0.25 * second["en"].mean())
    assert (kept["encoder"], kept["mean"]) == ("ours", pytest.approx(mean, abs=1e-9))
    assert "not ranked: large: licence: cc-by-nc-4.0" in chosen.err

    # Saturday: is it better on shoes, in German?
    asked = f"compare --encoders large,theirs --slice category=shoes --languages de --protocols t2i/de/human {TESTED}"
    [row] = shop.run(f"{asked} --format json").rows
    shoes = CATEGORY == "shoes"
    a, b = (each["de"][shoes] for each in (large, theirs))
    assert (row["value_a"], row["difference"]) == (
        pytest.approx(a.mean(), abs=1e-12),
        pytest.approx(a.mean() - b.mean(), abs=1e-12),
    )
    assert (row["n_queries"], row["n_looks"]) == (N // 3, 1)

    # Sunday: the page and the frame of a notebook say the same, and the store is sound.
    page = Path(shop.run("report --quiet").out.strip())
    answer = json.loads(page.with_name("results.json").read_text())
    assert {row["encoder"] for row in answer["results"]} == {"ours", "theirs", "large"}
    shop.run("store verify")
