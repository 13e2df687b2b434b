"""A 200,000-image webdataset is listed, hashed and fingerprinted in bounded memory, beside the webdataset package.

Run by hand: ``python -m tests.benchmarks.bench_corpora``; each measurement is a process of its own, so that its peak
memory is its own.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from PIL import Image

from tests.benchmarks.rows import Row

REPOSITORY = Path(__file__).resolve().parents[2]
PER_SHARD = 10_000

OURS = """
import json, resource, sys, time
from capim.tasks.corpora.readers.webdataset import read_webdataset
start = time.process_time()
corpus = read_webdataset(sys.argv[1], name="synthetic")
fingerprint = corpus.fingerprint
seconds = time.process_time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([corpus.images.num_rows, seconds, peak, fingerprint]))
"""

# The same work with the package: every sample read, hashed, its header parsed, its caption decoded.
PEER = """
import glob, hashlib, io, json, resource, sys, time
import webdataset
from PIL import Image
start = time.process_time()
rows = []
shards = sorted(glob.glob(sys.argv[1] + "/*.tar"))
for sample in webdataset.WebDataset(shards, shardshuffle=False, empty_check=False):
    with Image.open(io.BytesIO(sample["jpg"])) as image:
        size = image.size
    digest = hashlib.blake2b(sample["jpg"], digest_size=16).hexdigest()
    rows.append((sample["__key__"], digest, size, sample["txt"].decode()))
seconds = time.process_time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([len(rows), seconds, peak, ""]))
"""


def write_shards(folder: Path, n_images: int) -> None:
    """Shards of small JPEGs, all different, with a caption each."""
    buffer = io.BytesIO()
    Image.effect_noise((32, 32), 60).convert("RGB").save(buffer, format="JPEG")
    picture = buffer.getvalue()
    for start in range(0, n_images, PER_SHARD):
        with tarfile.open(folder / f"{start // PER_SHARD:05d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for i in range(start, min(start + PER_SHARD, n_images)):
                # what follows the end marker is no part of the picture but makes its bytes unique
                for suffix, data in (("jpg", picture + i.to_bytes(4)), ("txt", f"a picture of item {i}".encode())):
                    member = tarfile.TarInfo(f"{i:09d}.{suffix}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
                tar.members = []  # type: ignore[attr-defined]  # it would keep a header of every member


def measure(code: str, folder: Path) -> tuple[int, float, float, str]:
    """Images, CPU seconds, peak memory in MB and fingerprint, measured in a fresh process."""
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY)
    n_images, seconds, peak, fingerprint = json.loads(done.stdout.splitlines()[-1])
    return n_images, seconds, peak, fingerprint


def run(quick: bool = False) -> list[Row]:
    """Rows of the results table; ``quick`` takes a tenth of the images."""
    n_images = 20_000 if quick else 200_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_shards(folder, n_images)
        first, again = measure(OURS, folder), measure(OURS, folder)
        peer = measure(PEER, folder)
    if first[0] != n_images or first[3] != again[3]:
        raise RuntimeError(f"{first[0]} of {n_images} images, fingerprints {first[3]} and {again[3]}")
    seconds = min(first[1], again[1])
    bar = "" if quick else "<= 1.5"  # the fixed costs of starting weigh on a tenth of the images
    what = f"webdataset of {n_images:,} images"
    return [
        Row(f"{what}: peak memory", max(first[2], again[2]), "MB", "<= 1000", f"webdataset: {peer[2]:.0f} MB"),
        Row(f"{what}: CPU time to list, hash and fingerprint", seconds, "s", "", f"webdataset: {peer[1]:.1f} s"),
        Row(
            f"{what}: CPU time relative to the webdataset package",
            seconds / peer[1],
            "times",
            bar,
            "webdataset",
            "the peer reads, hashes and decodes the same samples",
        ),
    ]


if __name__ == "__main__":
    for row in run(quick="--quick" in sys.argv):
        print(row)
