"""Queries whose caption is longer than the model reads, with an encoder that reads twelve tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from capim.tasks.analyses.analysis import AnalysisInput, Slice
from capim.tasks.analyses.table import diagnose
from capim.tasks.corpora.readers.translations import read_urban1k
from capim.tasks.encoders import encode_captions, load_encoder, resolve, spec_of
from capim.tasks.ranking.cosine import score_dense
from capim.tasks.ranking.protocols import build_task, select_protocols
from capim.tasks.statistics.draws import Resampling

SHORT, LONG = "a red circle", "a red circle left of a blue square " * 4


@pytest.fixture
def street(tmp_path: Path) -> Path:
    """Six images in the layout of Urban1k, the odd ones with a long caption."""
    (tmp_path / "caption").mkdir()
    for number in range(6):
        (tmp_path / "caption" / f"{number}.txt").write_text(LONG if number % 2 else SHORT)
    return tmp_path


def slices(street: Path, protocol_id: str, truncated: dict[str, np.ndarray]) -> list[Slice]:
    """Image and caption vectors are equal where the caption is short, and opposite where it is long."""
    corpus = read_urban1k(street)
    [protocol] = select_protocols(corpus, [protocol_id])
    images = np.eye(6, dtype=np.float32)
    captions = np.where((np.arange(6) % 2 == 1)[:, None], -images, images)
    outcomes = score_dense(images, captions, [build_task(corpus, protocol)])[protocol_id]
    data = AnalysisInput(
        corpus=corpus,
        protocol=protocol,
        outcomes={"short-context": outcomes, "long-context": outcomes},
        resampling=Resampling(replicates=50),
        truncated=truncated,
    )
    return list(diagnose(data, ["truncated-captions"]))


@pytest.mark.parametrize("protocol", ["t2i/all", "i2t/any"])
def test_an_encoder_of_short_context_is_compared_where_it_reads_all_and_where_it_does_not(
    street: Path, protocol: str
) -> None:
    spec = resolve(replace(spec_of("tiny-clip"), options={**spec_of("tiny-clip").options, "max_length": 12}))
    texts = [text or "" for text in read_urban1k(street).captions["text"].to_pylist()]
    truncated = encode_captions(load_encoder(spec), texts).truncated
    assert truncated.tolist() == [False, True] * 3
    found = slices(street, protocol, {"short-context": truncated})
    assert {s.encoder for s in found} == {"short-context"}
    value = {s.level_name: s.interval.value for s in found}
    assert value["share"] == 0.5
    assert value["without"] == 1
    assert value["with"] < 1
    assert value["difference"] == pytest.approx(value["with"] - 1)
    assert {s.n_queries for s in found if s.level_name in ("with", "without")} == {3}


def test_where_nothing_is_truncated_there_are_no_slices_and_where_all_is_only_the_share(street: Path) -> None:
    assert slices(street, "t2i/all", {}) == []
    [share] = slices(street, "t2i/all", {"long-context": np.ones(6, dtype=bool)})
    assert (share.encoder, share.level_name, share.interval.value) == ("long-context", "share", 1)
