"""A folder where two images have the same bytes and two have no captions, from its vectors to its report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.command import command, json_rows
from tests.corpora.own_data import png, write

N, TWINS, BARE = 24, (1, 20), (5, 23)
ASKED = [image for image in range(N) if image not in BARE]
OWN = np.repeat(ASKED, 2)
PHOTOGRAPH = np.where(TWINS[1] == OWN, TWINS[0], OWN)
QUICK = "--replicates 100 --quiet"


def folder_of_photographs(folder: Path) -> Path:
    """In COCO's format, with two captions of every image that has any."""
    images = [{"id": at, "file_name": f"{at}.png"} for at in range(N)]
    captions = [
        {"id": at, "image_id": int(image), "caption": f"picture {image} in {at % 2} words"}
        for at, image in enumerate(OWN)
    ]
    colours = {at: (at if at != TWINS[1] else TWINS[0], 9, 9) for at in range(N)}
    pictures = {f"images/{at}.png": png(colour) for at, colour in colours.items()}
    return write(folder, {**pictures, "captions.json": json.dumps({"images": images, "annotations": captions})})


def vectors(seed: int) -> dict[str, NDArray[np.float32]]:
    """Captions near their images; equal bytes have equal vectors."""
    rng = np.random.default_rng(seed)
    images = rng.normal(size=(N, 16))
    images[TWINS[1]] = images[TWINS[0]]
    sides = {"images": images, "captions": images[OWN] + 1.5 * rng.normal(size=(len(OWN), 16))}
    return {side: (of / np.linalg.norm(of, axis=1, keepdims=True)).astype(np.float32) for side, of in sides.items()}


def hits(of: dict[str, NDArray[np.float32]], k: int) -> dict[str, NDArray[np.float64]]:
    """Expected hits among the first ``k`` in both directions, written out."""
    scores = of["captions"].astype(np.float64) @ of["images"].T
    own = scores[np.arange(len(OWN)), OWN][:, None]
    above, level = (scores > own + 1e-6).sum(axis=1), (np.abs(scores - own) <= 1e-6).sum(axis=1)
    best = np.array([scores[image == OWN, image].max() for image in ASKED])
    ranks = 1 + (scores[:, ASKED] > best + 1e-6).sum(axis=0)
    return {"t2i/all": np.clip(k - above, 0, level) / level, "i2t/any": (ranks <= k).astype(np.float64)}


@pytest.mark.slow
def test_a_repeated_and_an_uncaptioned_image_are_evaluated_compared_analysed_and_reported_as_numpy_has_them(
    tmp_path: Path,
) -> None:
    """`capim run` ended with operands that could not be broadcast, or an index that did not fit."""
    corpus, workspace = folder_of_photographs(tmp_path / "photographs"), tmp_path / "workspace"
    found = {name: vectors(seed) for seed, name in enumerate(("one", "other"))}
    for name, sides in found.items():
        for side, values in sides.items():
            np.save(tmp_path / f"{side}.npy", values)
        given = " ".join(f"--{side} {tmp_path}/{side}.npy" for side in sides)
        command(f"import --encoder {name} --corpus {corpus} {given}", workspace)
    for words in ("evaluate --device cpu", "compare", "analyse"):
        command(f"{words} {QUICK}", workspace)
    expected, rsum = {}, dict.fromkeys(found, 0.0)
    for name, sides in found.items():
        for k in (1, 5, 10):
            for protocol, found_first in hits(sides, k).items():
                rsum[name] += 100 * found_first.mean()
                expected[name, protocol, f"R@{k}"] = found_first.mean()
        expected[name, "t2i/all+i2t/any", "RSUM"] = rsum[name]
    results = {(r["encoder"], r["protocol"], r["metric"]): r for r in json_rows("results", workspace)}
    assert {key: results[key]["value"] for key in expected} == pytest.approx(expected)
    assert {results[key]["n_clusters"] for key in expected} == {len(np.unique(PHOTOGRAPH))} == {21}
    compared = {(r["protocol"], r["metric"]): r for r in json_rows('query "SELECT * FROM comparisons"', workspace)}
    for protocol, metric in {key[1:] for key in expected}:
        row = compared[protocol, metric]
        one, other = (expected[row[side], protocol, metric] for side in ("encoder_a", "encoder_b"))
        assert (row["difference"], row["n_clusters"]) == (pytest.approx(one - other), 21)
    sliced = json_rows("query \"SELECT * FROM slices WHERE analysis = 'ordinal' AND encoder = 'one'\"", workspace)
    first = {r["level_name"]: (r["value"], r["n_clusters"]) for r in sliced if r["feature"] == "caption 0"}
    of_first, of_second = (hits(found["one"], 1)["t2i/all"][at::2].mean() for at in (0, 1))
    assert first == {
        "with": (pytest.approx(of_first), 21),
        "without": (pytest.approx(of_second), 21),
        "difference": (pytest.approx(of_first - of_second), 21),
    }
    page = command("report", workspace).page.with_name("report.md").read_text("utf-8")
    assert f"{rsum['one']:.1f}" in page
