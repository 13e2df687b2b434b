"""The reference gate: what it calls reproduced, and what it would have caught on the first day."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capim.store.schema import Result
from capim.store.types import EncoderSpec
from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.corpora.subset import sample_suffix
from capim.tasks.reference.published import (
    SEED,
    Published,
    ReferenceCheck,
    gate_rows,
    judge_figure,
    judge_results,
    published,
)
from tests.command import command
from tests.random_store import SPECS, random_store, row_of

SIGLIP = "google/siglip-so400m-patch14-384"
OPENAI = "openai/clip-vit-large-patch14-336"
LAION = "laion/CLIP-ViT-H-14-laion2B-s32B-b79K"


def judged(value: float, **changed: str) -> ReferenceCheck:
    figure = {"checkpoint": SIGLIP, "corpus": "coco-karpathy", "protocol": "t2i/all", "metric": "R@1"} | changed
    return judge_figure(value, references=published(), **figure)


def result_row(**changed: object) -> Result:
    row: dict[str, object] = {"encoder": "siglip", "encoder_fingerprint": "f"}
    row |= {"corpus": "coco-karpathy", "corpus_fingerprint": "c", "protocol": "t2i/all", "metric": "R@1"}
    row |= {"value": 0.5421, "ci_low": 0.53, "ci_high": 0.55, "n_queries": 25_010, "n_clusters": 5000}
    return row_of(Result, **row | changed)


def judge_rows(*rows: Result, n_images: int = 5000) -> list[ReferenceCheck]:
    spec = EncoderSpec(name="siglip", adapter="hf_dual", checkpoint=SIGLIP, revision="a1", dim=1152)
    found = judge_results(rows, specs={"f": spec}, n_images={"c": n_images}, references=published())
    assert len(gate_rows(found, run="r")) == len(found)
    return [check for _, check in found]


def test_capims_table_is_the_published_one(shared_data: Path) -> None:
    with (shared_data.parent / "reference" / "published.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r.model, r.protocol, r.value, r.source) for r in published()][: len(rows)] == [
        (r["model"], r["protocol"], float(r["value"]), r["source"]) for r in rows
    ]
    figures = [(r.model, r.dataset, r.protocol, r.metric, r.source) for r in published()]
    assert len(figures) == len(set(figures))
    assert all(r.source for r in published())
    assert sum(row.source == SEED for row in published()) == 28


WINOGROUND = {"checkpoint": LAION, "corpus": "winoground", "protocol": "winoground"}
JUDGED = [
    (0.5451, {}, "reproduced", ""),  # three tenths of a point, inclusive
    (0.5391, {}, "reproduced", ""),
    (0.5453, {}, "suspect", ""),
    (0.4155, {"checkpoint": "jinaai/jina-clip-v1"}, "reproduced", ""),  # jina and Winoground have wider tolerances
    (0.3425, {**WINOGROUND, "metric": "winoground_text"}, "reproduced", ""),
    (0.3475, {**WINOGROUND, "metric": "winoground_text"}, "suspect", ""),
    (0.3325, {**WINOGROUND, "metric": "winoground_image"}, "suspect", ""),  # the columns are exchanged
    (0.3540, {"protocol": "t2i/first"}, "suspect", "points from t2i/all"),  # SigLIP with the wrong padding
    (0.4510, {"protocol": "i2t/any5"}, "suspect", ""),
    (0.5150, {"protocol": "t2i/first"}, "other protocol", "points from t2i/all"),  # the right figure of first captions
    (0.5000, {"checkpoint": "me/mine"}, "no reference", ""),
    # the seed never makes a figure suspect
    (0.6000, {"checkpoint": "vidore/colpali-v1.3", "protocol": "i2t/any5"}, "no reference", "image used as query"),
]


@pytest.mark.parametrize(("value", "figure", "verdict", "remark"), JUDGED)
def test_the_verdict_on_a_figure(value: float, figure: dict[str, str], verdict: str, remark: str) -> None:
    found = judged(value, **figure)
    assert found.verdict == verdict
    assert remark in found.remark


def test_the_nearest_of_several_published_figures_is_named() -> None:
    reference: Any = judged(0.3780, checkpoint=OPENAI).reference
    assert reference.source == "CLIP paper, Table 13"


@pytest.mark.parametrize("others", [(), (0.3780,), (0.3720,), (0.3720, 0.3722), (0.3709,), (0.5, 0.6, 0.7)])
@pytest.mark.parametrize("protocol", ["t2i/all", "t2i/first"])
def test_several_published_figures_accept_no_wider_a_range_than_one(others: tuple[float, ...], protocol: str) -> None:
    """Of the values that would be accepted around one figure, two figures 0.7 points apart accepted twice as many."""
    table = [Published("m", "coco-karpathy", "t2i/all", "R@1", v, f"source {v}") for v in (0.3709, *others)]
    figure = {"checkpoint": "m", "corpus": "coco-karpathy", "protocol": protocol, "metric": "R@1"}

    def verdict(value: float) -> str:
        return judge_figure(value, references=table, **figure).verdict

    accepted = sum(verdict(value) != "suspect" for value in np.arange(0.300025, 0.75, 0.00005).tolist())
    width = 0.006 if protocol == "t2i/all" else 0.03
    assert accepted * 0.00005 == pytest.approx(width, rel=0.02)
    if protocol == "t2i/all":
        assert {verdict(value) for value in (0.3709, *others)} == {"reproduced"}


def test_results_are_judged_by_checkpoint_and_headlines_without_reference_are_kept() -> None:
    found = judge_rows(
        result_row(),
        result_row(value=0.354),
        result_row(protocol="i2t/symmetric-first"),
        result_row(metric="MRR"),
        result_row(encoder_fingerprint="unknown"),
        result_row(value=None),
    )
    assert [check.verdict for check in found] == ["reproduced", "suspect", "other protocol"]


@pytest.mark.parametrize(("corpus", "n_images", "verdict", "remark"), [
    ("coco-karpathy", 5000, "reproduced", ""),
    ("coco-karpathy", 4999, "not compared", "part of 4,999 of 5,000 images, not compared"),
    # a run with --sample has a corpus of another name, of which nothing is published
    ("coco-karpathy" + sample_suffix(500, 0), 500, "not compared", "sample of 500 of 5,000 images, not compared"),
    ("coco-karpathy" + sample_suffix(500, 7), 500, "not compared", "sample of 500 of 5,000 images, not compared"),
    ("shapes" + sample_suffix(100, 7), 100, "no reference", ""),
])  # fmt: skip
def test_a_part_of_a_data_set_is_not_compared_and_says_so(
    corpus: str, n_images: int, verdict: str, remark: str
) -> None:
    [found] = judge_rows(result_row(corpus=corpus), n_images=n_images)
    assert (found.verdict, found.remark) == (verdict, remark)
    assert (found.reference is None) == (verdict != "reproduced")


def test_a_value_and_the_published_one_are_one_sentence_on_the_board_in_results_and_in_markdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = replace(read_shapes(n_scenes=24), name="photos")
    random_store(tmp_path / "store", corpus, SPECS[:1], signal=2.0)
    command("evaluate --replicates 100 --quiet --device cpu --protocols t2i/all,i2t/any", tmp_path)
    asked = "results --metrics R@1 --protocols t2i/all,i2t/any --format json"
    ours = {row["protocol"]: row for row in json.loads(command(asked, tmp_path).out)}
    assert {row["published"] for row in ours.values()} == {""}
    table = [
        Published(SPECS[0].checkpoint, "photos", protocol, "R@1", ours[protocol]["value"] + more, "a paper")
        for protocol, more in (("t2i/all", 0.001), ("i2t/any", -0.1))
    ]
    monkeypatch.setattr("capim.tasks.report.published", lambda: table)
    command("analyse --replicates 100 --quiet --analyses errors", tmp_path)
    said = {row["protocol"]: row["published"] for row in json.loads(command(asked, tmp_path).out)}
    for row, verdict in zip(table, ("reproduced", "suspect"), strict=True):
        here = [f"{100 * ours[row.protocol][name]:.1f}" for name in ("value", "ci_low", "ci_high")]
        values = f"published {100 * row.value:.1f} (a paper), here {here[0]} ({here[1]}–{here[2]})"
        assert said[row.protocol] == f"{values}: {verdict}"
    command("report", tmp_path)
    (page,) = tmp_path.glob("reports/*/report.html")
    assert all(f'; {sentence}"' in page.read_text() for sentence in said.values())
    assert all(sentence in page.with_suffix(".md").read_text() for sentence in said.values())
    assert said["i2t/any"] in command("results --protocols i2t/any", tmp_path).out
