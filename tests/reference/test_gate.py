"""The reference gate: what it calls reproduced, and what it would have caught on the first day."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from capim.store.errors import RequestError
from capim.store.schema import RESULTS
from capim.store.types import EncoderSpec
from capim.tasks.corpora.subset import sample_suffix
from capim.tasks.reference.published import (
    SEED,
    CheckedResult,
    Published,
    ReferenceCheck,
    gate_rows,
    judge_figure,
    judge_results,
    published,
    published_name,
)

SIGLIP = "google/siglip-so400m-patch14-384"
LAION = "laion/CLIP-ViT-H-14-laion2B-s32B-b79K"


def judged(value: float, **changed: str) -> ReferenceCheck:
    figure = {"checkpoint": SIGLIP, "corpus": "coco-karpathy", "protocol": "t2i/all", "metric": "R@1"} | changed
    return judge_figure(value, references=published(), **figure)


def result_row(**changed: object) -> dict[str, object]:
    row: dict[str, object] = dict.fromkeys(RESULTS.names)
    row |= {
        "encoder": "siglip",
        "encoder_fingerprint": "f",
        "corpus": "coco-karpathy",
        "corpus_fingerprint": "c",
        "protocol": "t2i/all",
        "metric": "R@1",
        "value": 0.5421,
        "ci_low": 0.53,
        "ci_high": 0.55,
        "n_queries": 25_010,
        "n_clusters": 5000,
    }
    return row | changed


def judge_rows(*rows: dict[str, object], n_images: int = 5000) -> list[str]:
    return [each.check.verdict for each in judge_table(*rows, n_images=n_images)]


def judge_table(*rows: dict[str, object], n_images: int) -> list[CheckedResult]:
    import pyarrow as pa

    fields = [field.with_nullable(True) for field in RESULTS]
    spec = EncoderSpec(name="siglip", adapter="hf_dual", checkpoint=SIGLIP, revision="a1", dim=1152)
    found = judge_results(
        pa.Table.from_pylist(list(rows), schema=pa.schema(fields)),
        specs={"f": spec},
        n_images={"c": n_images},
        references=published(),
    )
    assert gate_rows(found, run="r").num_rows == len(found)
    return found


def test_capims_table_is_the_published_one(shared_data: Path) -> None:
    with (shared_data.parent / "reference" / "published.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r.model, r.protocol, r.value, r.source) for r in published()] == [
        (r["model"], r["protocol"], float(r["value"]), r["source"]) for r in rows
    ]
    assert all(r.source for r in published())


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.5421, "reproduced"), (0.5451, "reproduced"), (0.5391, "reproduced"), (0.5453, "suspect")]
)
def test_the_tolerance_is_three_tenths_of_a_point_inclusive(value: float, verdict: str) -> None:
    assert judged(value).verdict == verdict


def test_jina_and_winoground_have_wider_tolerances() -> None:
    assert judged(0.4155, checkpoint="jinaai/jina-clip-v1").verdict == "reproduced"
    figure = {"checkpoint": LAION, "corpus": "winoground", "protocol": "winoground", "metric": "winoground_text"}
    assert judged(0.3425, **figure).verdict == "reproduced"
    assert judged(0.3475, **figure).verdict == "suspect"


def test_one_of_several_published_figures_is_enough() -> None:
    figure = {"checkpoint": "openai/clip-vit-large-patch14-336"}
    assert judged(0.3780, **figure).verdict == judged(0.3709, **figure).verdict == "reproduced"
    reference = judged(0.3780, **figure).reference
    assert reference is not None
    assert reference.source == "CLIP paper, Table 13"


@pytest.mark.parametrize("others", [(), (0.3780,), (0.3720,), (0.3720, 0.3722), (0.3709,), (0.5, 0.6, 0.7)])
@pytest.mark.parametrize("protocol", ["t2i/all", "t2i/first"])
def test_several_published_figures_accept_no_wider_a_range_than_one(others: tuple[float, ...], protocol: str) -> None:
    """Of the values that would be accepted around one figure, two figures 0.7 points apart accepted twice as many."""
    table = [Published("m", "coco-karpathy", "t2i/all", "R@1", v, f"source {v}") for v in (0.3709, *others)]
    grid = np.arange(0.300025, 0.75, 0.00005)
    accepted = sum(
        judge_figure(
            value, checkpoint="m", corpus="coco-karpathy", protocol=protocol, metric="R@1", references=table
        ).verdict
        != "suspect"
        for value in grid.tolist()
    )
    width = 0.006 if protocol == "t2i/all" else 0.03
    assert accepted * 0.00005 == pytest.approx(width, rel=0.02)
    if protocol == "t2i/all":
        figures = {"checkpoint": "m", "corpus": "coco-karpathy", "protocol": protocol, "metric": "R@1"}
        verdicts = {judge_figure(v, references=table, **figures).verdict for v in (0.3709, *others)}
        assert verdicts == {"reproduced"}


def test_siglip_with_the_wrong_padding_is_suspect_under_every_protocol() -> None:
    assert judged(0.354).verdict == "suspect"
    assert judged(0.354, protocol="t2i/first").verdict == "suspect"
    assert judged(0.451, protocol="i2t/any5").verdict == "suspect"


def test_the_right_first_caption_figure_is_another_protocol_not_suspect() -> None:
    finding = judged(0.515, protocol="t2i/first")
    assert finding.verdict == "other protocol"
    assert finding.reference is not None
    assert finding.reference.protocol == "t2i/all"


def test_exchanged_winoground_columns_are_recognised() -> None:
    figure = {"checkpoint": LAION, "corpus": "winoground", "protocol": "winoground", "metric": "winoground_image"}
    finding = judged(0.3325, **figure)
    assert finding.verdict == "suspect"
    assert "exchanged" in finding.remark


def test_an_unknown_model_has_no_reference() -> None:
    assert judged(0.5, checkpoint="me/mine") == ReferenceCheck("no reference")


def test_the_seed_never_makes_a_figure_suspect() -> None:
    finding = judged(0.60, checkpoint="vidore/colpali-v1.3", protocol="i2t/any5")
    assert finding.verdict == "no reference"
    assert "image used as query" in finding.remark


def test_results_are_judged_by_checkpoint_and_headlines_without_reference_are_kept() -> None:
    verdicts = judge_rows(
        result_row(),
        result_row(value=0.354),
        result_row(protocol="i2t/symmetric-first"),
        result_row(metric="MRR"),
        result_row(encoder_fingerprint="unknown"),
        result_row(value=None),
    )
    assert verdicts == ["reproduced", "suspect", "other protocol"]


def test_a_part_of_a_data_set_is_not_compared_and_says_so() -> None:
    assert judge_rows(result_row(value=0.9), n_images=100) == ["not compared"]
    assert judge_rows(result_row(), n_images=5000) == ["reproduced"]
    assert judge_rows(result_row(), n_images=4999) == ["not compared"]


@pytest.mark.parametrize("seed", [0, 7])
def test_a_sample_is_not_compared_whatever_its_name(seed: int) -> None:
    """A run with --sample has a corpus of another name, of which nothing is published: no gate had said why."""
    name = "coco-karpathy" + sample_suffix(500, seed)
    [found] = judge_table(result_row(corpus=name), n_images=500)
    assert (found.check.verdict, found.check.reference) == ("not compared", None)
    assert found.check.remark == "sample of 500 of 5,000 images, not compared"
    [other] = judge_table(result_row(corpus="shapes" + sample_suffix(100, seed)), n_images=100)
    assert other.check.verdict == "no reference"


def test_a_checkpoint_is_found_under_its_open_clip_name() -> None:
    assert published_name(f"hf-hub:{LAION}", published()) == LAION
    table = [Published("open_clip:ViT-B-32/laion", "d", "t2i/all", "R@1", 0.5, "us")]
    assert published_name("ViT-B-32/laion", table) == "open_clip:ViT-B-32/laion"


def test_a_users_table_works_and_its_faults_are_listed(tmp_path: Path) -> None:
    good = tmp_path / "good.csv"
    good.write_text("model,dataset,protocol,metric,value,source\nm,d,t2i/all,R@1,0.5,us\n")
    assert published(good) == [Published("m", "d", "t2i/all", "R@1", 0.5, "us")]
    bad = tmp_path / "bad.csv"
    bad.write_text("model,dataset,protocol,metric,value,source\nm,d,p,R@1,x,us\nm,d,p,R@1,,us\n")
    with pytest.raises(RequestError, match="2 faults"):
        published(bad)
    with pytest.raises(RequestError, match="cannot read the table of published figures"):
        published(tmp_path / "absent.csv")
    short = tmp_path / "short.csv"
    short.write_text("model,value\nm,1\n")
    with pytest.raises(RequestError, match="lacks the columns dataset, protocol, metric, source"):
        published(short)


def test_every_seed_row_is_marked_as_the_seeds() -> None:
    assert sum(row.source == SEED for row in published()) == 28
