"""A protocol of a package in a few lines: the nearest images share a category; figures, intervals and the report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capim.store import EmbeddingStore
from tests.command import command
from tests.packaging.conftest import Packages
from tests.reports.pages import tables

PACKAGE = """
import numpy as np
from capim.tasks.protocols import Protocol, ProtocolRule
from capim.tasks.ranking.tasks import among_others

def sharing_categories(layout, protocol):
    objects = layout.corpus.images["objects"].to_pylist()
    pairs = [(image, name) for image, names in enumerate(objects) for name in names or ()]
    images, names = zip(*pairs)
    groups = np.unique(names, return_inverse=True)[1]
    return among_others(layout, protocol, np.array(images, np.int32), groups)

RULE = ProtocolRule(
    protocol=Protocol("i2i/category", "i2i", "retrieval", "category", description="Others with an object in common"),
    build=sharing_categories,
    obstacle=lambda layout: "it names no objects" if layout.corpus.images["objects"].null_count else None,
)
"""


def test_the_nearest_images_share_a_category(tmp_path: Path, packages: Packages) -> None:
    points = {"capim.protocols": "i2i/category = shared_category:RULE"}
    packages("capim-category", "1.0", points, shared_category=PACKAGE)
    assert len([line for line in PACKAGE.splitlines() if line]) < 20
    command("run --corpora shapes --encoders tiny-clip --sample 60 --replicates 200 --quiet", tmp_path)
    store = EmbeddingStore.open(tmp_path / "store")
    [row] = store.current("results", protocol=["i2i/category"], metric=["R@1"])
    corpus = store.corpus(row["corpus"], row["corpus_fingerprint"])
    vectors = store.vectors(encoder="tiny-clip", corpus=row["corpus_fingerprint"], modality="image").matrix
    objects = [set(names or ()) for names in corpus.images["objects"].to_pylist()]
    scores = vectors @ vectors.T
    np.fill_diagonal(scores, -np.inf)
    hits = [bool(objects[at] & objects[best]) for at, best in enumerate(scores.argmax(axis=1))]
    asked = [any(own & other for k, other in enumerate(objects) if k != at) for at, own in enumerate(objects)]
    assert row["value"] == pytest.approx(np.mean([hit for hit, asks in zip(hits, asked, strict=True) if asks]))
    assert row["ci_low"] < row["value"] < row["ci_high"]
    [report] = (tmp_path / "reports").glob("*/report.html")
    assert any("i2i/category" in str(table) for table in tables(report.read_text()))
