"""A 200,000-image webdataset is listed, hashed and fingerprinted in bounded memory, beside the webdataset package.

Each measurement is a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image

from tests.benchmarks.own_process import alone, peak_gib
from tests.benchmarks.rows import Row
from tests.corpora.own_data import jpeg, shard

PER_SHARD = 10_000


def ours(folder: Path) -> list[Any]:
    """Images, CPU seconds, peak memory in MiB and fingerprint."""
    from capim.tasks.corpora.readers.samples import read_webdataset

    start = time.process_time()
    corpus = read_webdataset(folder, name="synthetic")
    fingerprint = corpus.fingerprint
    return [corpus.images.num_rows, time.process_time() - start, peak_gib() * 1024, fingerprint]


def theirs(folder: Path) -> list[Any]:
    """The same work with the package: every sample read, hashed, its header parsed, its caption decoded."""
    import webdataset  # type: ignore[import-untyped]

    start = time.process_time()
    rows = []
    shards = sorted(map(str, folder.glob("*.tar")))
    for sample in webdataset.WebDataset(shards, shardshuffle=False, empty_check=False):
        with Image.open(io.BytesIO(sample["jpg"])) as image:
            size = image.size
        digest = hashlib.blake2b(sample["jpg"], digest_size=16).hexdigest()
        rows.append((sample["__key__"], digest, size, sample["txt"].decode()))
    return [len(rows), time.process_time() - start, peak_gib() * 1024, ""]


def write_shards(folder: Path, n_images: int) -> None:
    """Shards of small JPEGs, all different, with a caption each."""
    picture = jpeg(0, (32, 32))
    for start in range(0, n_images, PER_SHARD):
        members: dict[str, bytes] = {}
        for i in range(start, min(start + PER_SHARD, n_images)):
            # what follows the end marker is no part of the picture but makes its bytes unique
            members[f"{i:09d}.jpg"] = picture + i.to_bytes(4)
            members[f"{i:09d}.txt"] = f"a picture of item {i}".encode()
        shard(folder / f"{start // PER_SHARD:05d}.tar", members)


def run(quick: bool = False) -> list[Row]:
    """Rows of the results table; ``quick`` takes a tenth of the images."""
    n_images = 20_000 if quick else 200_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_shards(folder, n_images)
        first, again, peer = (alone(work, folder) for work in (ours, ours, theirs))
    if first[0] != n_images or first[3] != again[3]:
        raise RuntimeError(f"{first[0]} of {n_images} images, fingerprints {first[3]} and {again[3]}")
    seconds = min(first[1], again[1])
    what, same = f"webdataset of {n_images:,} images", "the peer reads, hashes and decodes the same samples"
    ratio = f"{what}: CPU time relative to the webdataset package"
    return [
        Row(f"{what}: peak memory", max(first[2], again[2]), "MB", "<= 1000", f"webdataset: {peer[2]:.0f} MB"),
        Row(f"{what}: CPU time to list, hash and fingerprint", seconds, "s", "", f"webdataset: {peer[1]:.1f} s"),
        Row(ratio, seconds / peer[1], "times", "<= 1.5", "webdataset", same),
    ]
