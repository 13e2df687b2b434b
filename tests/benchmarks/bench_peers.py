"""From a folder of photographs to recalls: ``capim run`` compared with CLIP_benchmark's and mteb's retrieval runs.

All get the same open_clip ViT-B/32 (full size, random weights, in the hub's layout), the same files, batches of 64
items and the same threads, and run as separate programs, imports and loading included: CLIP_benchmark by its console
script (its batch size counts images; their captions go along), mteb with its own open_clip encoder, retrieval task and
embedding cache, capim as ``capim run``. Each runs ``TURNS`` times with nothing stored and, where it keeps embeddings,
again with everything stored; the fastest run of each counts. mteb caches per task and role: its first run encodes
every item once for each direction. capim's time includes what it does beyond the peers (intervals, tests, diagnosis,
report).
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, cast

from PIL import Image

from capim.store import EmbeddingStore
from capim.store.types import ImageSource
from capim.tasks.corpora.description import open_corpus
from capim.tasks.encoders.device import usable_cores
from tests.benchmarks.commands import Taken, capim, watched
from tests.benchmarks.encode_peers import PHOTOS
from tests.benchmarks.rows import Row
from tests.encoders.families.hub import add_to_cache
from tests.encoders.families.openclip import build_vit_b_32

CUTOFFS = (1, 5, 10)
BATCH = 64
TURNS = 2
REPOSITORY = "capim/vit-b-32"


class Run(NamedTuple):
    """A program's run: its cost, and its recalls by name."""

    taken: Taken
    recalls: dict[str, float]


def fastest(runs: Iterable[Run]) -> Run:
    """The run that took the least time."""
    return min(runs, key=lambda run: run.taken.seconds)


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` takes 8 photographs and 8 scenes."""
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        data = folder / "data"
        n_images, n_captions = write_data(data, n_photos=8 if quick else 91, n_scenes=8 if quick else 250)
        checkpoint = folder / "vit-b-32"
        build_vit_b_32(checkpoint)
        add_to_cache(folder / "hub" / "hub", REPOSITORY, checkpoint)
        os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub"), "OMP_NUM_THREADS": str(usable_cores())}
        turns = [folder / f"turn-{turn}" for turn in range(1 if quick else TURNS)]
        for turn in turns:
            turn.mkdir()
        cold = fastest(by_capim(turn, data, checkpoint) for turn in turns)
        warm = fastest(by_capim(turn, data, checkpoint) for turn in turns)
        clip_benchmark = fastest(by_clip_benchmark(turn, data, checkpoint) for turn in turns)
        mteb_cold = fastest(by_mteb(turn, data) for turn in turns)
        mteb_warm = fastest(by_mteb(turn, data) for turn in turns)
        low, high = stored(turns[0], "value_ties_lost"), stored(turns[0], "value_ties_won")
    size = f"{n_images} images, {n_captions:,} captions, ViT-B/32"
    rows = [
        Row(
            "time of capim run, nothing stored", cold.taken.seconds, "s", note=f"{size}; {cold.taken.peak_gib:.2f} GiB"
        ),
        Row(
            "time of capim run, all stored",
            warm.taken.seconds,
            "s",
            note=f"the same command again; {warm.taken.peak_gib:.2f} GiB",
        ),
    ]
    contests = (
        ("CLIP_benchmark", clip_benchmark, clip_benchmark, "it stores no embeddings and encodes again"),
        ("mteb", mteb_cold, mteb_warm, "its second run reads its own CachedEmbeddingWrapper"),
    )
    for name, first, again, second_run in contests:
        rows += [
            Row(f"time of {name} relative to capim, nothing stored", first.taken.seconds / cold.taken.seconds,
                "times", ">= 1", name,
                f"{first.taken.seconds:.1f} and {cold.taken.seconds:.1f} s, imports and loading included"),
            Row(f"time of {name} relative to capim, all stored", again.taken.seconds / warm.taken.seconds, "times", "",
                name, f"{again.taken.seconds:.1f} and {warm.taken.seconds:.1f} s; {second_run}"),
            Row(f"peak memory of {name} relative to capim", first.taken.peak_bytes / cold.taken.peak_bytes, "times", "",
                name, f"{first.taken.peak_gib:.2f} and {cold.taken.peak_gib:.2f} GiB, child processes included"),
            Row(f"largest difference of a recall from {name}", apart(cold, first), "", "<= 1e-6",
                name, "R@1, 5, 10 in both directions: any of the relevant items among the first k"),
        ]  # fmt: skip
    shares = [abs(mteb_cold.recalls[f"i2t share@{k}"] - cold.recalls[f"i2t any@{k}"]) for k in CUTOFFS]
    return [
        *rows,
        Row("largest difference of a recall from mteb's recall_at_k, i2t", max(shares), "", "", "mteb",
            "another definition: the share of an image's captions that are found; its hit_rate_at_k is compared above"),
        Row("largest range of a recall due to ties", max(high[m] - low[m] for m in low), "", note="capim, first run"),
        Row("largest change of a recall between the first and the second run", apart(cold, warm), "", "<= 0"),
    ]  # fmt: skip


def write_data(folder: Path, *, n_photos: int, n_scenes: int) -> tuple[int, int]:
    """One folder that all can read: JPEGs, ``captions.json`` (COCO), ``captions.txt`` (CLIP_benchmark's Flickr form).

    Returns:
        Images and captions; captions are told apart by their text, so that no two runs can disagree about equals.
    """
    (folder / "images").mkdir(parents=True)
    scenes = {"name": "scenes", "reader": "shapes", "n_scenes": n_scenes}
    texts: dict[str, list[str]] = {}
    for corpus in (open_corpus(str(PHOTOS), sample=n_photos), open_corpus(scenes)):
        source = cast("ImageSource", corpus.source)
        names = {row["id"]: f"{row['id']}.jpg" for row in corpus.images.to_pylist()}
        for row in corpus.images.to_pylist():
            picture = Image.open(io.BytesIO(source.read(row["key"]))).convert("RGB")
            picture.save(folder / "images" / names[row["id"]], quality=95)
        for row in corpus.captions.to_pylist():
            texts.setdefault(names[row["image_id"]], []).append(row["text"])
    seen: set[str] = set()
    for name, captions in texts.items():
        # CLIP_benchmark's form has a caption per line
        lines = dict.fromkeys(" ".join(text.split()) for text in captions)
        texts[name] = [line for line in lines if line not in seen]
        seen.update(lines)
    places = list(texts)
    annotations = [(name, text) for name, captions in texts.items() for text in captions]
    content: dict[str, Any] = {
        "images": [{"id": at, "file_name": name} for at, name in enumerate(places)],
        "annotations": [
            {"id": at, "image_id": places.index(name), "caption": text} for at, (name, text) in enumerate(annotations)
        ],
    }
    (folder / "captions.json").write_text(json.dumps(content))
    rows = ["image,caption", *(f"{name},{text}" for name, text in annotations)]
    (folder / "captions.txt").write_text("\n".join(rows) + "\n")
    return len(texts), len(annotations)


def by_capim(folder: Path, data: Path, checkpoint: Path) -> Run:
    """``capim run`` into a workspace of the folder; float32 in the store, so that recalls are those of the model."""
    suite = folder / "suite.toml"
    suite.write_text(
        f'corpora = ["{data}"]\ndevice = "cpu"\nbatch_size = {BATCH}\n'
        f'protocols = ["t2i/all", "i2t/any"]\n[[encoder]]\nname = "vit-b-32"\n'
        f'adapter = "openclip"\ncheckpoint = "{checkpoint}"\ndim = 512\nstorage = "float32"\n'
    )
    done = capim("run", suite, "--workspace", folder / "capim")
    recalls = {f"{direction} any@{k}": value for (direction, k), value in stored(folder, "value").items()}
    return Run(done, recalls)


def stored(folder: Path, column: str) -> dict[tuple[str, int], float]:
    """A column of the results by direction and cutoff."""
    rows = EmbeddingStore.open(folder / "capim" / "store").rows("results", metric=[f"R@{k}" for k in CUTOFFS])
    return {(row["protocol"][:3], int(row["metric"][2:])): row[column] for row in rows.to_pylist()}


def by_clip_benchmark(folder: Path, data: Path, checkpoint: Path) -> Run:
    """Its console script's own ``main``, with a stopwatch around its evaluation."""
    target = folder / "clip_benchmark.json"
    taken = watched(
        [Path(sys.executable).with_name("clip_benchmark"), "eval", "--model", "ViT-B-32-quickgelu",
         "--pretrained", checkpoint / "open_clip_model.safetensors", "--dataset", "flickr30k",
         "--dataset_root", data / "images", "--annotation_file", data / "captions.txt", "--task", "zeroshot_retrieval",
         "--recall_k", *map(str, CUTOFFS), "--batch_size", str(BATCH), "--num_workers", str(usable_cores()), "--no_amp",
         "--output", target],
    )  # fmt: skip
    metrics = json.loads(target.read_text())["metrics"]
    names = {"t2i": "image_retrieval_recall", "i2t": "text_retrieval_recall"}
    recalls = {f"{direction} any@{k}": metrics[f"{name}@{k}"] for direction, name in names.items() for k in CUTOFFS}
    return Run(taken, recalls)


def by_mteb(folder: Path, data: Path) -> Run:
    """mteb's evaluation of both directions."""
    target = folder / "mteb.json"
    taken = watched([sys.executable, "-m", "tests.benchmarks.by_mteb", REPOSITORY, data, folder / "mteb-cache", target])
    return Run(taken, json.loads(target.read_text()))


def apart(ours: Run, theirs: Run) -> float:
    """The largest difference of a recall that both know."""
    return max(abs(value - theirs.recalls[name]) for name, value in ours.recalls.items())
