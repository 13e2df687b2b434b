"""A full diagnosis of nine encoders on COCO-sized outcomes: 5,000 images, 25,000 captions, both directions.

Outcomes come from noisy vectors of 32 components, scored
as real ones are and kept as Arrow files; the measured process reads them back and runs every analysis that works from
outcomes, with 10,000 bootstrap draws, to the rows that would be stored.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from capim.store.types import Corpus
from capim.tasks.analyses.analysis import AnalysisInput, slice_rows
from capim.tasks.analyses.table import diagnose
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.corpora.readers.coco_captions import SUPERCATEGORY_OF
from capim.tasks.ranking.cosine import score_dense
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_task, select_protocols
from capim.tasks.statistics.draws import Resampling
from tests.benchmarks.made import unit
from tests.benchmarks.own_process import alone, peak_gib
from tests.benchmarks.rows import Row

PROTOCOLS = ["t2i/all", "i2t/any"]
WORDS = [
    "a",
    "the",
    "man",
    "woman",
    "riding",
    "holding",
    "red",
    "blue",
    "two",
    "several",
    "next",
    "to",
    "behind",
    "without",
    "street",
    "table",
    "dog",
    "horse",
    "on",
]
N_DIMENSIONS = 32


def run(quick: bool = False) -> list[Row]:
    """Seconds, peak memory and rows of the diagnosis; ``quick``: 500 images and three encoders."""
    n_images, n_encoders = (500, 3) if quick else (5000, 9)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OMP_NUM_THREADS"] = "1"  # small products: a second thread mostly waits for the first
        alone(make, Path(folder), n_images, n_encoders)
        seconds, cpu, peak, n_rows = alone(measure, Path(folder), n_images, n_encoders)
    what = f"{n_encoders} encoders, {n_images} images, t2i/all and i2t/any, 10,000 draws"
    return [
        Row("diagnosis: time", seconds, "s", "<= 60", note=what),
        Row("diagnosis: CPU time", cpu, "s", note="one thread"),
        Row("diagnosis: peak memory", peak, "GiB", "<= 2", note="a separate process, corpus and outcomes included"),
        Row("diagnosis: rows", n_rows, "rows", note=what),
    ]


def corpus_of(n_images: int) -> Corpus:
    """Five captions of 6 to 16 words for every image, which shows three objects."""
    rng = random.Random(0)
    names = list(SUPERCATEGORY_OF)
    images = [ImageRow(f"{i}", objects=rng.sample(names, 3)) for i in range(n_images)]
    captions = [
        CaptionRow(f"{i}-{k}", f"{i}", " ".join(rng.choices(WORDS, k=rng.randint(6, 16))), k)
        for i in range(n_images)
        for k in range(5)
    ]
    return build_corpus("synthetic", images, captions, source=None)


def make(folder: Path, n_images: int, n_encoders: int) -> None:
    """Score noisy vectors, and keep the outcomes as Arrow files."""
    corpus, rng = corpus_of(n_images), np.random.default_rng(0)
    tasks = [build_task(corpus, protocol) for protocol in select_protocols(corpus, PROTOCOLS)]
    truth = rng.normal(size=(n_images, N_DIMENSIONS))
    for encoder in range(n_encoders):
        pictures = unit(truth + 0.6 * rng.normal(size=truth.shape)).astype(np.float32)
        noise = (0.7 + 0.05 * encoder) * rng.normal(size=(5 * n_images, N_DIMENSIONS))
        captions = unit(np.repeat(truth, 5, axis=0) + noise).astype(np.float32)
        who = {"evaluation": f"{encoder}", "encoder": f"e{encoder}", "encoder_fingerprint": f"{encoder}"}
        who |= {"corpus": corpus.name, "corpus_fingerprint": corpus.fingerprint}
        for name, outcomes in score_dense(pictures, captions, tasks).items():
            rows = outcomes.to_arrow(**who)
            with pa.OSFile(f"{file_of(folder, name, encoder)}", "wb") as sink, pa.ipc.new_file(sink, rows.schema) as to:
                to.write_table(rows)


def measure(folder: Path, n_images: int, n_encoders: int) -> list[float]:
    """Wall-clock and CPU seconds, peak GiB and rows."""
    corpus = corpus_of(n_images)
    start, n_rows = time.perf_counter(), 0
    for protocol in select_protocols(corpus, PROTOCOLS):
        outcomes = {}
        for encoder in range(n_encoders):
            rows = pa.ipc.open_file(f"{file_of(folder, protocol.id, encoder)}").read_all()
            outcomes[f"e{encoder}"] = Outcomes.from_arrow(rows, protocol)
        resampling = Resampling(replicates=10_000)
        data = AnalysisInput(corpus=corpus, protocol=protocol, outcomes=outcomes, resampling=resampling)
        prints = {name: name for name in outcomes}
        rows = slice_rows(diagnose(data), corpus=corpus, protocol=protocol.id, fingerprints=prints, run="bench")
        n_rows += len(rows)
    return [time.perf_counter() - start, time.process_time(), peak_gib(), n_rows]


def file_of(folder: Path, protocol: str, encoder: int) -> Path:
    """The outcomes of an encoder."""
    return folder / f"{protocol.replace('/', '-')}-{encoder}.arrow"
