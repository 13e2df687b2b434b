"""What holds of every analysis on a corpus of every kind where an image repeats another, and some are named by nothing.

A new analysis is found here by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from capim.store.types import Corpus, EncoderSpec, Modality
from capim.store.vectors import Ragged
from capim.tasks.analyses.analysis import AnalysisInput, SingleVectors
from capim.tasks.analyses.table import ANALYSES, slices_of
from capim.tasks.ranking.evaluate import evaluate
from capim.tasks.ranking.protocols import protocols_of
from capim.tasks.report import analysed
from tests.repeated import DIM, KINDS, QUICK, clusters_of, outcomes_of, repeated, vectors_of

SPEC = EncoderSpec(name="one", adapter="x", checkpoint="x", revision="1", dim=DIM)
SPECS = {"one": SPEC, "two": replace(SPEC, name="two", precision="bfloat16"), "many": replace(SPEC, vectors="multi")}


def stored(corpus: Corpus, encoder: str) -> SingleVectors | None:
    """What the store has of an encoder with one vector per item."""
    if encoder == "many":
        return None
    sides = vectors_of(corpus, [*SPECS].index(encoder))
    return SingleVectors(**sides, **{f"{side[:-1]}_norms": np.ones(len(of), np.float32) for side, of in sides.items()})


def of_many(corpus: Corpus) -> dict[str, Ragged]:
    """The vectors of the last encoder, two for each item."""
    one, other = (vectors_of(corpus, seed) for seed in (3, 4))
    both = {side: np.stack([of, other[side]], axis=1).reshape(-1, DIM) for side, of in one.items()}
    return {side: Ragged.from_counts(of, np.full(len(of) // 2, 2)) for side, of in both.items()}


def items(corpus: Corpus, encoder: str, modality: Modality, ords: NDArray[np.int32]) -> Ragged:
    """The vectors of some items, numbered from 0."""
    single = stored(corpus, encoder)
    if single is None:
        every = of_many(corpus)[f"{modality}s"]
    else:
        side = single.images if modality == "image" else single.captions
        every = Ragged.from_counts(side, np.ones(len(side)))
    return replace(every.take(ords), ords=np.arange(len(ords), dtype=np.int32))


def inputs(corpus: Corpus) -> Iterator[AnalysisInput]:
    """What analyses get under every protocol that `capim analyse` looks at, of two or three encoders."""

    def blocks(side: Ragged) -> Any:
        return lambda ords=None: [side if ords is None else side.take(ords)]

    for protocol in analysed(corpus, protocols_of(corpus)):
        outcomes = outcomes_of(corpus, protocol.id)[protocol.id]
        if protocol.kind == "retrieval":
            outcomes |= evaluate(corpus, [protocol], **{side: blocks(of) for side, of in of_many(corpus).items()})
        yield AnalysisInput(
            corpus=corpus,
            protocol=protocol,
            outcomes=dict(zip(SPECS, outcomes.values(), strict=False)),
            specs=SPECS,
            resampling=QUICK,
            vectors=partial(stored, corpus),
            items=partial(items, corpus),
        )


@pytest.fixture(scope="module")
def data() -> list[AnalysisInput]:
    return [each for make in KINDS.values() for each in inputs(repeated(make()))]


@pytest.mark.parametrize("name", [name for name, analysis in ANALYSES.items() if analysis.function])
def test_an_analysis_counts_photographs_where_images_repeat_or_are_named_by_nothing(
    data: list[AnalysisInput], name: str
) -> None:
    made = {}
    for each in data:
        if ANALYSES[name].applies(each.protocol):
            made[each.protocol.id, each.corpus.name] = slices = [*slices_of(ANALYSES[name], each)]
            n_photographs = len(np.unique(clusters_of(each.corpus, each.queries)))
            for found in slices:
                assert found.n_clusters <= n_photographs, found
    assert any(made.values()), "it has no slices of these corpora: add to `inputs` what it looks at"


@pytest.mark.parametrize("name", [name for name, analysis in ANALYSES.items() if analysis.function])
def test_an_analysis_reads_and_gives_what_its_row_says(data: list[AnalysisInput], name: str) -> None:
    """What it does not need is missing here, and so are the other encoders where it is of one encoder alone."""
    analysis = ANALYSES[name]
    whole = next(each for each in data if analysis.applies(each.protocol))
    absent: dict[str, Any] = {"vectors": None, "specs": None}
    lacking = replace(whole, **{each: value for each, value in absent.items() if each not in analysis.needs})
    together = [*analysis.run(lacking)]
    if analysis.scope == "one encoder" and not analysis.measures:
        alone = analysis.run(replace(lacking, outcomes={"one": whole.outcomes["one"]}))
        of_one = [each for each in together if each.encoder == "one"]
        assert [repr(replace(each, detail=None)) for each in alone] == [
            repr(replace(each, detail=None)) for each in of_one
        ]
