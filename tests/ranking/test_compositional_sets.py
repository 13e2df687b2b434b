"""Sets for composition on the real texts: those that share an image are one cluster, and when a set is won."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from capim.store.types import Corpus
from capim.tasks.corpora.build import CaptionRow, ImageRow, QuadrupleRow, build_corpus
from capim.tasks.corpora.images.source import crop_key
from capim.tasks.corpora.readers.published import table_reader
from capim.tasks.corpora.readers.published_files import read_aro, read_bivlc
from capim.tasks.ranking.protocols import build_task, drawn_clusters, select_protocols
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.intervals import cluster_robust_error


def clusters(corpus: Corpus, protocol_id: str) -> NDArray[np.int32]:
    """The cluster of every set, in its place among those of the corpus."""
    [protocol] = select_protocols(corpus, [protocol_id])
    found = build_task(corpus, protocol).clusters
    Clusters.of(found, drawn_clusters(corpus, protocol))  # all are drawn
    return found


def quadruples(images: list[tuple[str, str]], *, sha: dict[str, str] | None = None) -> Corpus:
    """One quadruple for each two image keys; captions of its own."""
    key_of = {f"q{k}/{side}": key for k, both in enumerate(images) for side, key in enumerate(both)}
    rows = [ImageRow(id_, key, sha=(sha or {}).get(key)) for id_, key in key_of.items()]
    captions = [CaptionRow(id_, id_, f"caption {id_}") for id_ in key_of]
    sides = [(f"q{k}/0", f"q{k}/1") for k in range(len(images))]
    sets = [QuadrupleRow(f"q{k}", *both, *both, ()) for k, both in enumerate(sides)]
    return build_corpus("quadruples", rows, captions, source=None, quadruples=sets)


def test_quadruples_that_share_a_photograph_are_one_cluster_named_by_the_first() -> None:
    linked = quadruples([("a", "b"), ("c", "d"), ("e", "a"), ("c", "f"), ("d", "e")])
    assert clusters(linked, "winoground").tolist() == [0] * 5
    apart = quadruples([("a", "b"), ("c", "d"), ("e", "a"), ("g", "h")])
    assert clusters(apart, "winoground").tolist() == [0, 1, 0, 3]
    boxes = quadruples([(crop_key("a", 0, 0, 9, 9), "b"), ("c", "d"), (crop_key("a", 5, 5, 9, 9), "f")])
    assert clusters(boxes, "winoground").tolist() == [0, 1, 0]
    bytes_ = quadruples([("a", "b"), ("c", "d"), ("e", "f")], sha={"b": "1" * 32, "e": "1" * 32})
    assert clusters(bytes_, "winoground").tolist() == [0, 1, 0]


def test_bivlcs_quadruples_of_one_photograph_are_one_cluster(shared_data: Path) -> None:
    """2,933 quadruples were resampled as independent, though a COCO photograph stands in up to five of them."""
    corpus = read_bivlc(shared_data / "bivlc" / "ViT-B-32.csv")
    with (shared_data / "bivlc" / "ViT-B-32.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = clusters(corpus, "winoground")
    captions = [row["caption"] for row in rows]
    assert found.tolist() == [captions.index(caption) for caption in captions]
    assert len(set(found.tolist())) == 2390
    group = np.array([row["group_score"] == "True" for row in rows], dtype=float)
    alone, together = (
        cluster_robust_error(group, Clusters.of(labels, len(rows))) for labels in (np.arange(len(rows)), found)
    )
    assert together > 1.02 * alone
    adding = [k for k, row in enumerate(rows) if row["type"] == "add"]
    assert clusters(corpus, "winoground/add").tolist() == found[adding].tolist()


PARTS_OF_PP = ("replace_att", "replace_rel", "swap_att")


@pytest.mark.parametrize(
    ("folder", "options", "protocol", "n_items", "n_images"),
    [
        ("sugar_crepe", {}, "sugarcrepe/micro", 7511, 1560),
        ("sugar_crepe", {}, "sugarcrepe/add_obj", 2062, 908),
        ("sugarcrepe_pp", {"categories": PARTS_OF_PP}, "sugarcrepe-pp/micro", 2860, 1328),
    ],
)
def test_items_of_one_image_are_one_cluster(
    shared_data: Path, folder: str, options: dict[str, Any], protocol: str, n_items: int, n_images: int
) -> None:
    found = clusters(table_reader(protocol.partition("/")[0])(shared_data / folder, **options), protocol)
    assert (len(found), len(np.unique(found))) == (n_items, n_images)


@pytest.mark.parametrize("protocol", ["aro/micro", "aro/on"])
def test_boxes_of_one_photograph_are_one_cluster_in_aro(tmp_path: Path, protocol: str) -> None:
    """Each box was a cluster of its own."""
    items = [
        {
            "image_path": f"{photograph}.jpg",
            "bbox_x": 1, "bbox_y": 1, "bbox_w": 5 + number, "bbox_h": 5,
            "true_caption": f"a {number} on a b", "false_caption": f"a b on a {number}",
            "relation_name": relation,
        }
        for number, (photograph, relation) in enumerate([(1, "on"), (2, "on"), (1, "near"), (3, "near"), (1, "on")])
    ]  # fmt: skip
    (tmp_path / "visual_genome_relation.json").write_text(json.dumps(items))
    corpus = read_aro(tmp_path, part="relation")
    assert clusters(corpus, protocol).tolist() == {"aro/micro": [0, 1, 0, 3, 0], "aro/on": [0, 1, 0]}[protocol]
