"""A full diagnosis of nine encoders on COCO-sized outcomes: 5,000 images, 25,000 captions, both directions.

Run by hand: ``python -m tests.benchmarks.bench_diagnose``. Outcomes come from noisy vectors of 32 components, scored
as real ones are and kept as Arrow files; the measured process reads them back and runs every analysis that works from
outcomes, with 10,000 bootstrap draws, to the rows that would be stored.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.rows import Row

REPOSITORY = Path(__file__).resolve().parents[2]

SHARED = """
import random, sys
import numpy as np, pyarrow as pa
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.corpora.readers.coco_captions import SUPERCATEGORY_OF
from capim.tasks.ranking.protocols import build_task, select_protocols
folder, n_images, n_encoders = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(0)
words = "a the man woman riding holding red blue two several next to behind without street table dog horse on".split()
names = list(SUPERCATEGORY_OF)
images = [ImageRow(f"{i}", objects=rng.sample(names, 3)) for i in range(n_images)]
captions = [
    CaptionRow(f"{i}-{k}", f"{i}", " ".join(rng.choices(words, k=rng.randint(6, 16))), k)
    for i in range(n_images) for k in range(5)
]
corpus = build_corpus("synthetic", images, captions, source=None)
protocols = select_protocols(corpus, ["t2i/all", "i2t/any"])
"""
MAKE = """
from capim.tasks.ranking.cosine import score_dense
generator = np.random.default_rng(0)
truth = generator.normal(size=(n_images, 32))
unit = lambda m: (m / np.linalg.norm(m, axis=1, keepdims=True)).astype(np.float32)
for encoder in range(n_encoders):
    pictures = unit(truth + 0.6 * generator.normal(size=truth.shape))
    texts = unit(np.repeat(truth, 5, axis=0) + (0.7 + 0.05 * encoder) * generator.normal(size=(5 * n_images, 32)))
    for name, outcomes in score_dense(pictures, texts, [build_task(corpus, p) for p in protocols]).items():
        rows = outcomes.to_arrow(evaluation=f"{encoder}", encoder=f"e{encoder}", encoder_fingerprint=f"{encoder}",
                                 corpus=corpus.name, corpus_fingerprint=corpus.fingerprint)
        with pa.OSFile(f"{folder}/{name.replace('/', '-')}-{encoder}.arrow", "wb") as sink:
            with pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_table(rows)
"""
MEASURE = """
import json, resource, time
from capim.tasks.analyses.analysis import AnalysisInput
from capim.tasks.analyses.analysis import slice_rows
from capim.tasks.analyses.table import diagnose
from capim.tasks.statistics.draws import Resampling
from capim.tasks.ranking.outcomes import Outcomes
start = time.perf_counter()
n_rows = 0
for protocol in protocols:
    outcomes = {}
    for encoder in range(n_encoders):
        rows = pa.ipc.open_file(f"{folder}/{protocol.id.replace('/', '-')}-{encoder}.arrow").read_all()
        outcomes[f"e{encoder}"] = Outcomes.from_arrow(rows, protocol)
    data = AnalysisInput(corpus=corpus, protocol=protocol, outcomes=outcomes, resampling=Resampling(replicates=10_000))
    n_rows += len(slice_rows(diagnose(data), corpus=corpus, protocol=protocol.id,
                             fingerprints={name: name for name in outcomes}, run="bench"))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
print(json.dumps([time.perf_counter() - start, time.process_time(), peak, n_rows]))
"""


def run(quick: bool = False) -> list[Row]:
    """Seconds, peak memory and rows of the diagnosis; ``quick``: 500 images and three encoders."""
    size = ("500", "3") if quick else ("5000", "9")
    with tempfile.TemporaryDirectory() as folder:
        _python(SHARED + MAKE, folder, *size)
        seconds, cpu, peak, n_rows = json.loads(_python(SHARED + MEASURE, folder, *size))
    what = f"{size[1]} encoders, {size[0]} images, t2i/all and i2t/any, 10,000 draws"
    return [
        Row("diagnosis: time", seconds, "s", "<= 60", note=what),
        Row(
            "diagnosis: CPU time",
            cpu,
            "s",
            note="one thread",
        ),
        Row("diagnosis: peak memory", peak, "GiB", "<= 2", note="a separate process, corpus and outcomes included"),
        Row("diagnosis: rows", n_rows, "rows", note=what),
    ]


def _python(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}  # small products: a second one mostly waits for the first
    done = subprocess.run(command, cwd=REPOSITORY, env=one_thread, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


if __name__ == "__main__":
    for row in run():
        sys.stdout.write(f"{row}\n")
