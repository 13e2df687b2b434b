"""Vectors beyond memory on one machine: imported, sealed, verified and evaluated, by the commands that a user types.

A tenth of the images is measured
first: growth is the exponent between the two sizes. Needs 2.2 times the vectors on the disk of temporary files: 23 GB
at 10,000,000 x 512 float16.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from tests.benchmarks.commands import Taken, capim
from tests.benchmarks.made import by_number, ids_of, unit
from tests.benchmarks.own_process import alone
from tests.benchmarks.rows import Row

N_IMAGES, DIM, N_QUERIES, BLOCK = 10_000_000, 512, 1000, 8192
STAGES = {
    "import of .npy": "import --corpus bench --encoder e --images {0}/images.npy --captions {0}/captions.npy",
    "verify": "store verify",
    "evaluate": "evaluate --protocols t2i/all --replicates 100 --memory 2GiB",
    "drop": "store drop --encoder e --yes",
    "import of .parquet": "import --corpus bench --encoder other --images {0}/images.parquet",
}


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` takes a thousandth of the images."""
    n = N_IMAGES // (1000 if quick else 1)
    sizes = (n // 10, n)
    small, large = map(of_size, sizes)
    rows = []
    for stage in STAGES:
        busy = [small[stage].processor, large[stage].processor]
        note = f"{n:,} x {DIM} float16, {N_QUERIES:,} captions"
        tenth = f"a tenth: {small[stage].seconds:.1f} s, {small[stage].peak_gib:.2f} GiB"
        growth = f"{note}; {busy[0]:.1f} and {busy[1]:.1f} s"
        exponent = float(np.log10(busy[1] / busy[0]))
        rows += [
            Row(f"{stage}: time", large[stage].seconds, "s", note=note),
            Row(f"{stage}: peak memory", large[stage].peak_gib, "GiB", "<= 24", note=f"{note}; {tenth}"),
            Row(f"growth exponent of CPU time: {stage}", exponent, "", "" if quick else "<= 1.15", note=growth),
        ]
    return rows


def of_size(n: int) -> dict[str, Taken]:
    """The cost of every stage; a file of vectors is there only while it is imported."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        alone(write_corpus, Path(folder), n)
        for stage, words in STAGES.items():
            kind = stage.rpartition(".")[2]
            if stage.startswith("import"):
                alone(write_npy if kind == "npy" else write_parquet, Path(folder), n)
            found[stage] = capim(*words.format(folder).split(), "--workspace", Path(folder, "workspace"))
            Path(folder, f"images.{kind}").unlink(missing_ok=True)
            sys.stderr.write(f"  {n:,}: {stage} {found[stage].seconds:.0f} s\n")
    return found


def vectors(n: int) -> Iterator[NDArray[np.float16]]:
    """Random unit vectors in blocks: of ``DIM`` blocks the first is drawn, the others have its columns, rotated."""
    for block in range(-(-n // BLOCK)):
        if block % DIM == 0:
            rows = np.random.default_rng(block).standard_normal((BLOCK, DIM), np.float32)
            drawn = unit(rows).astype(np.float16)
        yield np.roll(drawn, block % DIM, axis=1)[: n - block * BLOCK]


def write_corpus(folder: Path, n: int) -> None:
    EmbeddingStore.open(folder / "workspace" / "store", create=True).write_corpus(by_number(n, N_QUERIES))


def write_npy(folder: Path, n: int) -> None:
    with (folder / "images.npy").open("wb") as file:
        form = {"descr": "<f2", "fortran_order": False, "shape": (n, DIM)}
        np.lib.format.write_array_header_1_0(file, form)
        for block in vectors(n):
            block.tofile(file)
    np.save(folder / "captions.npy", next(vectors(N_QUERIES)))


def write_parquet(folder: Path, n: int) -> None:
    writer, start = None, 0
    for block in vectors(n):
        values = pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), DIM)
        ids = ids_of(np.arange(start, start + len(block)))
        rows = pa.table({"id": ids, "embedding": values})
        writer = writer or pq.ParquetWriter(folder / "images.parquet", rows.schema, compression="none")
        writer.write_table(rows)
        start += len(block)
    if writer is not None:
        writer.close()
