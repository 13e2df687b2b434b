"""Diagnosis, ablations and the gate on the tiny models: tables that are not empty and point the right way."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from capim.store.schema import BATCHES
from capim.store.types import Corpus, EncoderSpec
from capim.store.vectors import Ragged
from capim.tasks.analyses.ablations import device_rows, forward_precision, restricted, sample_queries, vector_forms
from capim.tasks.analyses.analysis import (
    AnalysisInput,
    LateInteractionVectors,
    SingleVectors,
    StoredVectors,
)
from capim.tasks.analyses.content import QUADRUPLE_METRICS
from capim.tasks.analyses.misses import WITHOUT
from capim.tasks.analyses.table import ANALYSES, diagnose
from capim.tasks.corpora.images.decode import decode_image
from capim.tasks.corpora.readers.shapes import read_shapes, read_shapes_winoground
from capim.tasks.encoders import encode_captions, encode_images, load_encoder, resolve, spec_of
from capim.tasks.encoders.encoder import Encoder
from capim.tasks.metrics import METRICS
from capim.tasks.ranking.evaluate import evaluate
from capim.tasks.ranking.protocols import select_protocols
from capim.tasks.statistics.draws import Resampling
from tests.results.thirty import retrieval_task

pytestmark = pytest.mark.slow
MODELS = ("tiny-clip", "tiny-clip-plain", "tiny-colpali")
SCENES = 150


def embed(encoder: Encoder, corpus: Corpus) -> StoredVectors:
    """As the store would give it back: multi-vectors rounded to float16."""
    source: Any = corpus.source
    pictures = [decode_image(source.read(key)) for key in corpus.images["key"].to_pylist()]
    texts: list[Any] = corpus.captions["text"].to_pylist()
    images, captions = encode_images(encoder, pictures), encode_captions(encoder, texts)
    if images.offsets is None or captions.offsets is None:
        norms = {"image_norms": images.norms, "caption_norms": captions.norms}
        return SingleVectors(images=images.values, captions=captions.values, **norms)
    sides = [
        Ragged.from_counts(side.values.astype(np.float16).astype(np.float32), np.diff(side.offsets))
        for side in (images, captions)
        if side.offsets is not None
    ]
    return LateInteractionVectors(images=sides[0], captions=sides[1])


def subject_of(
    corpus: Corpus, embedded: dict[str, StoredVectors], protocol_id: str, specs: dict[str, EncoderSpec]
) -> AnalysisInput:
    [protocol] = select_protocols(corpus, [protocol_id])

    def read(side: Any) -> Any:
        """The vectors, or all of them or some as the store gives blocks of several."""
        return (lambda ords=None: [side if ords is None else side.take(ords)]) if isinstance(side, Ragged) else side

    return AnalysisInput(
        corpus=corpus,
        protocol=protocol,
        outcomes={
            name: evaluate(corpus, [protocol], images=read(of.images), captions=read(of.captions))[protocol_id]
            for name, of in embedded.items()
        },
        specs=specs,
        resampling=Resampling(replicates=100),
        vectors=embedded.__getitem__,
    )


@pytest.fixture(scope="module")
def specs() -> dict[str, EncoderSpec]:
    return {name: resolve(spec_of(name)) for name in MODELS}


@pytest.fixture(scope="module")
def encoders(specs: dict[str, EncoderSpec]) -> dict[str, Encoder]:
    return {name: load_encoder(spec) for name, spec in specs.items()}


@pytest.fixture(scope="module")
def shapes(encoders: dict[str, Encoder], specs: dict[str, EncoderSpec]) -> AnalysisInput:
    corpus = read_shapes(n_scenes=SCENES)
    return subject_of(corpus, {name: embed(e, corpus) for name, e in encoders.items()}, "t2i/all", specs)


@pytest.fixture(scope="module")
def winoground(encoders: dict[str, Encoder], specs: dict[str, EncoderSpec]) -> AnalysisInput:
    corpus = read_shapes_winoground(n_quadruples=100)
    return subject_of(corpus, {name: embed(e, corpus) for name, e in encoders.items()}, "winoground", specs)


@pytest.fixture(scope="module")
def diagnosed(shapes: AnalysisInput) -> list[Any]:
    return list(diagnose(shapes))


def levels_of(slices: list[Any], encoder: str, analysis: str, feature: str, metric: str = "R@1") -> dict[str, Any]:
    """Name of the level -> its slice."""
    asked = (encoder, analysis, feature, metric)
    return {s.level_name: s for s in slices if (s.encoder, s.analysis, s.feature, s.metric) == asked}


def values_of(*asked: Any, **more: Any) -> dict[str, float]:
    return {level: each.interval.value for level, each in levels_of(*asked, **more).items()}


def test_a_caption_alone_wins_no_quadruple(winoground: AnalysisInput) -> None:
    slices = list(diagnose(winoground, ["baselines"]))
    assert {s.metric: s.interval.value for s in slices} == dict.fromkeys(QUADRUPLE_METRICS, 0)


def test_scoring_in_bfloat16_ties_scores_and_the_row_says_how_many(diagnosed) -> None:
    scored = levels_of(diagnosed, "tiny-clip", "precision", "scored in")
    ties = {level: each.detail["n_tied"] for level, each in scored.items()}
    assert ties["float32"] == 0 < ties["float16"] < ties["bfloat16"]
    assert ties["bfloat16"] > 15


def test_what_changes_nothing_changes_nothing_and_what_takes_away_costs_accuracy(diagnosed, shapes) -> None:
    hits = float(METRICS["R@1"].value(shapes.outcomes["tiny-clip"]))
    stored, scored = (values_of(diagnosed, "tiny-clip", "precision", f"{verb} in") for verb in ("stored", "scored"))
    truncation, pca, norm = (
        values_of(diagnosed, "tiny-clip", each, "") for each in ("truncation", "pca", "normalisation")
    )
    for same in (stored["float32"], scored["float32"], truncation["64 components"], norm["L2"]):
        assert same == pytest.approx(hits)
    assert pca["64 components"] == pytest.approx(hits, abs=0.005)
    whole = stored["float16"]
    assert stored["binary"] < whole - 0.1
    assert truncation["8 components"] < whole - 0.2
    assert norm["none"] < whole
    pooled = values_of(diagnosed, "tiny-colpali", "pooling", "")
    assert pooled["1 of 6"] < pooled["1 of 1"]
    assert "1 of 4" in pooled
    sizes = levels_of(diagnosed, "tiny-clip", "precision", "stored in")
    assert {level: each.detail["bytes_per_item"] for level, each in sizes.items()} == {
        "float32": 256, "float16": 128, "bfloat16": 128, "int8": 64, "binary": 8,
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name, analysis in ANALYSES.items() if analysis.function])
def test_an_analysis_reads_and_gives_what_its_row_says(name: str, shapes, winoground, diagnosed) -> None:
    """What it does not need is missing here, and so are the other encoders where it is of one encoder alone."""
    analysis = ANALYSES[name]
    data = next((data for data in (shapes, winoground) if analysis.applies(data.protocol)), None)
    if data is None:
        pytest.skip("it applies to none of the corpora")
    absent: dict[str, Any] = {"vectors": None, "specs": None, "truncated": None}
    lacking = replace(data, **{each: value for each, value in absent.items() if each not in analysis.needs})
    if analysis.scope == "all encoders":
        assert {each.analysis for each in analysis.run(lacking)} <= analysis.tables.keys()
        return
    alone = replace(lacking, outcomes={"tiny-clip": data.outcomes["tiny-clip"]})
    together = [each for each in diagnosed if each.analysis in analysis.tables and each.encoder == "tiny-clip"]
    made = [repr(replace(each, detail=None)) for each in analysis.run(alone)]
    assert (
        analysis.on_request
        or data is winoground
        or made == [repr(replace(each, detail=None)) for each in together if each.metric != WITHOUT]
    )


def test_a_sample_of_queries_keeps_its_gallery_and_answers(shapes: AnalysisInput) -> None:
    judgement = retrieval_task(shapes.corpus)
    few = sample_queries(judgement, 40, seed=1)
    assert len(few.queries) == 40
    assert np.array_equal(few.galleries[0], judgement.galleries[0])
    for at, query in enumerate(few.queries):
        [place] = np.flatnonzero(judgement.queries == query)
        assert few.relevant[few.offsets[at]] == judgement.relevant[judgement.offsets[place]]


def test_a_part_of_the_gallery_is_searched_by_the_captions_of_its_images_alone(shapes: AnalysisInput) -> None:
    part = restricted(retrieval_task(shapes.corpus), np.array([3, 8, 40], np.int32))
    assert part.clusters.tolist() == [3] * 5 + [8] * 5 + [40] * 5
    assert part.relevant.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert part.galleries[0].tolist() == [0, 1, 2]


def test_late_interaction_on_a_part_of_the_images_says_so(shapes: AnalysisInput) -> None:
    vectors: Any = shapes.vectors("tiny-colpali")
    few = np.arange(0, SCENES, 3, dtype=np.int32)
    part = LateInteractionVectors(images=vectors.images.take(few), captions=vectors.captions)
    only = replace(shapes, outcomes={"tiny-colpali": shapes.outcomes["tiny-colpali"]}, vectors=lambda _: part)
    assert {(s.metric, s.n_queries) for s in vector_forms(only)} == {("R@1 among 50 images", 250)}


def test_a_forward_pass_in_another_precision_is_compared_pairwise(shapes, specs) -> None:
    half = resolve(replace(spec_of("tiny-clip"), name="tiny-clip-bf16", precision="bfloat16"))
    both = {"tiny-clip": shapes.vectors("tiny-clip"), "tiny-clip-bf16": embed(load_encoder(half), shapes.corpus)}
    subject = subject_of(shapes.corpus, both, "t2i/all", {"tiny-clip": specs["tiny-clip"], "tiny-clip-bf16": half})
    rows = {(s.feature, s.level_name): s for s in forward_precision(subject)}
    assert {s.encoder for s in rows.values()} == {"tiny-clip-bf16"}
    assert abs(rows["minus tiny-clip", ""].interval.value) < 0.05
    assert 0.99 < rows["cosine with tiny-clip", "images"].interval.value < 1


def test_throughput_is_given_per_device() -> None:
    def batch(device: str, seconds: float, warmup: bool = False) -> dict[str, object]:
        row: dict[str, object] = {field.name: "x" for field in BATCHES if pa.types.is_string(field.type)}
        row |= {"batch_id": device, "device": device, "modality": "image", "n_items": 10, "batch_size": 10}
        return row | {"warmup": warmup, "forward_seconds": seconds, "created": datetime.now(UTC)}

    rows = [batch("fast", 0.1), batch("fast", 0.2), batch("fast", 9, warmup=True), batch("slow", 1), batch("slow", 2)]
    corpus = read_shapes(n_scenes=2)
    table = device_rows(pa.Table.from_pylist(rows, schema=BATCHES), corpus=corpus, run="r")
    assert {row["level_name"]: row["value"] for row in table.to_pylist()} == {"fast": 75, "slow": 7.5}
    alone = device_rows(pa.Table.from_pylist(rows[:2], schema=BATCHES), corpus=corpus, run="r")
    assert alone.num_rows == 0
