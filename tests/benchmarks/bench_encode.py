"""Encoding photographs and captions: beside the bare forward pass, CLIP_benchmark's loop and sentence-transformers'.

All models have random weights (speed does not
depend on them); everybody gets the same checkpoint, photographs, captions, batch size and threads, in turns, and the
median of the paired ratios counts.

On a CPU the forward pass and the preprocessing share the cores, so the rows of the small model show what a GPU would
see (preprocessing is the bottleneck), and those of the large one what a CPU sees (everybody waits for the same matrix
products). sentence-transformers too sorts captions by length and pads to the longest of a batch: what can be won
over it on a CPU is shown by the matrix products alone, without any padding.
"""

from __future__ import annotations

import logging
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import numpy as np

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line has it

from capim.store import EmbeddingStore
from capim.store.types import EncoderSpec, ImageSource
from capim.tasks.corpora.description import open_corpus
from capim.tasks.corpora.images.decode import decode_image
from capim.tasks.encoders import load_encoder, resolve
from capim.tasks.encoders.device import usable_cores
from capim.tasks.encoders.encoder import Encoder
from capim.tasks.encoders.pipeline import CaptionWork, ImageWork, encode_stream
from tests.benchmarks import encode_peers as peers
from tests.benchmarks.encode_models import products_alone, write_clip, write_minilm
from tests.benchmarks.encode_peers import BATCH, PHOTOS, device, mixed_captions, opened, photographs
from tests.benchmarks.rows import Row, timed

PEER = "sentence-transformers"
LEAST_CAPTIONS = ">= 1"  # it was 2, which the matrix products alone did not reach: the rows say how near they come
UPPER_BOUND = "float32, without padding: an upper bound for any loop around this model on this processor"


def run(quick: bool = False) -> list[Row]:
    """All rows; ``quick`` takes fewer photographs and turns."""
    import torch

    logging.disable(logging.WARNING)
    torch.set_num_threads(usable_cores())
    turns = 3 if quick else 5
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        n_captions = 128 if quick else 512
        rows = beside_the_peers(folder, turns, n_images=48 if quick else 91, n_captions=n_captions)
        rows += beside_sentence_transformers(folder, turns, n_captions=n_captions)
        return rows + beside_the_bare_forward_pass(folder, turns=1 if quick else 7, n_images=16 if quick else 64)


def beside_the_peers(folder: Path, turns: int, *, n_images: int, n_captions: int) -> list[Row]:
    """Images and captions per second as ratios to two peers' own loops."""
    from transformers import CLIPModel

    checkpoint = folder / "st" / "0_CLIPModel"
    write_clip(checkpoint, vision=(64, 16, 64, 2), text=(512, 6))
    spec = EncoderSpec(name="clip", adapter="hf_dual", checkpoint=str(checkpoint), dim=512)
    ours = load_encoder(spec, device=device())
    files, captions = photographs()[:n_images], mixed_captions(n_captions)
    images, texts = contests(folder, ours, files, captions, BATCH)
    texts["products alone"] = products_of(ours, CLIPModel.from_pretrained(checkpoint).text_model, captions)
    bars = {PEER: ">= 1.2", "CLIP_benchmark": ">= 1.2"}
    rows, _ = against("images per second, small CLIP", images, len(files), bars, turns=turns)
    bars = {PEER: LEAST_CAPTIONS, "CLIP_benchmark": ">= 2"}
    of_captions, seconds = against("captions per second, small CLIP", texts, len(captions), bars, turns=turns)
    rows += of_captions
    name = "captions per second of the linear layers' matrix products alone, small CLIP"
    return [*rows, Row(name, times(seconds, "products alone", PEER), "times", peer=PEER, note=UPPER_BOUND)]


Contest = dict[str, Callable[[], object]]


def contests(
    folder: Path, ours: Encoder, files: Sequence[Path], captions: Sequence[str], batch: int
) -> tuple[Contest, Contest]:
    """What is timed of photographs and of captions: capim, and the own loops of two peers of a CLIP in a folder."""
    theirs = peers.peers_of(folder, ours.device)
    images: Contest = {
        "capim": lambda: drain(ours, image_work(files), batch_size=batch),
        PEER: lambda: theirs.encode(opened(files), batch_size=batch, show_progress_bar=False),
        "CLIP_benchmark": peers.clip_benchmark_images(folder / "openclip", files, batch),
    }
    texts = contest_of_captions(ours, theirs, captions, batch)
    return images, texts | {"CLIP_benchmark": peers.clip_benchmark_captions(folder / "openclip", captions, batch)}


def contest_of_captions(ours: Encoder, theirs: Any, captions: Sequence[str], batch: int) -> Contest:
    """What is timed of captions: capim, and sentence-transformers' own loop."""
    return {
        "capim": lambda: drain(ours, caption_work(captions), batch_size=batch),
        PEER: lambda: theirs.encode(captions, batch_size=batch, show_progress_bar=False),
    }


def against(
    name: str, contest: Contest, n: int, bars: dict[str, str], *, turns: int
) -> tuple[list[Row], dict[str, list[float]]]:
    """How many times faster than each peer, and the seconds of everybody."""
    seconds = in_turns(contest, turns)
    rates = rates_of(seconds, n)
    rows = [Row(name, times(seconds, "capim", peer), "times", bar, peer, rates) for peer, bar in bars.items()]
    return rows, seconds


def beside_sentence_transformers(folder: Path, turns: int, *, n_captions: int) -> list[Row]:
    """Captions per second through sentence-transformers' own modules, as a ratio to its own loop."""
    from sentence_transformers import SentenceTransformer
    from transformers import BertModel

    write_minilm(folder / "minilm")
    spec = EncoderSpec(name="minilm", adapter="sentence_transformers", checkpoint=str(folder / "minilm"), dim=384)
    ours = load_encoder(spec, device=device())
    theirs = SentenceTransformer(str(folder / "minilm"), device=device())
    captions = mixed_captions(n_captions)
    contest = contest_of_captions(ours, theirs, captions, BATCH)
    model = BertModel.from_pretrained(folder / "minilm", add_pooling_layer=False)
    contest["products alone"] = products_of(ours, model, captions)
    name = "captions per second, BERT of MiniLM's size"
    rows, _ = against(name, contest, n_captions, {PEER: LEAST_CAPTIONS}, turns=turns)
    return rows


def products_of(encoder: Encoder, model: Any, captions: Sequence[str]) -> Callable[[], None]:
    """What no loop around a model can be faster than: its matrix products, without padding."""
    return products_alone(model, int(encoder.prepare_captions([*captions]).n_tokens.sum()), device())


def rates_of(seconds: dict[str, list[float]], n: int) -> str:
    """Items per second of everybody, and how far the matrix products alone would get."""
    rates = ", ".join(f"{name} {n / statistics.median(taken):.0f}/s" for name, taken in seconds.items())
    if "products alone" not in seconds:
        return rates
    most = times(seconds, "products alone", PEER)
    return (
        f"{rates}; the matrix products alone would reach {most:.2f} times sentence-transformers' rate (bar before: 2)"
    )


def times(seconds: dict[str, list[float]], ours: str, peer: str) -> float:
    """How many times faster than a peer, the median over the turns."""
    return statistics.median(b / a for a, b in zip(seconds[ours], seconds[peer], strict=True))


def beside_the_bare_forward_pass(folder: Path, *, turns: int, n_images: int) -> list[Row]:
    """Throughput from files to a sealed set, as a share of the throughput of the forward pass alone."""
    from capim.tasks.embed import EncodeSettings, SetEncoder

    checkpoint = folder / "b16"
    write_clip(checkpoint, vision=(224, 16, 768, 12), text=(128, 2))
    spec = resolve(EncoderSpec(name="vit-b-16", adapter="hf_dual", checkpoint=str(checkpoint), dim=512))
    corpus = open_corpus(str(PHOTOS), sample=n_images)
    encoder = load_encoder(spec, device=device())
    read = cast("ImageSource", corpus.source).read
    keys = cast("list[str]", corpus.images["key"].to_pylist())
    images = [decode_image(read(key)) for key in keys]
    prepared = [encoder.prepare_images(images[i : i + BATCH]) for i in range(0, n_images, BATCH)]

    def bare() -> None:
        for batch in prepared:
            encoder.embed(batch)

    def flow() -> None:
        with tempfile.TemporaryDirectory() as place:
            store = EmbeddingStore.open(place, create=True)
            store.write_corpus(corpus)
            store.write_encoder(spec)
            whole = SetEncoder(spec, store, EncodeSettings(device=device(), image_batch=BATCH), "bench")
            whole._loaded = encoder  # loading is no part of either
            whole.encode(corpus, "image")

    seconds = in_turns({"flow": flow, "bare": bare}, turns)
    ratio = times(seconds, "flow", "bare")
    note = f"{n_images / statistics.median(seconds['flow']):.1f} images/s from files to a sealed set"
    name = "throughput of capim as a share of the forward pass alone, ViT-B/16"
    return [Row(name, ratio, "", ">= 0.95", "forward pass", note)]


def image_work(files: Sequence[Path]) -> ImageWork:
    """Photographs as the flow reads them."""
    ords = np.arange(len(files), dtype=np.int32)
    keys = [f"{i}:{file}" for i, file in enumerate(files)]

    def read(key: str) -> bytes:
        return Path(key.split(":", 1)[1]).read_bytes()

    return ImageWork(ords=ords, keys=keys, shas=[None] * len(files), read=read, decode=decode_image)


def caption_work(captions: Sequence[str]) -> CaptionWork:
    """Captions as the flow reads them."""
    return CaptionWork(ords=np.arange(len(captions), dtype=np.int32), texts=captions)


def drain(encoder: Encoder, work: ImageWork | CaptionWork, *, batch_size: int = BATCH) -> None:
    """Encode everything and keep nothing."""
    with closing(encode_stream(encoder, work, batch_size=batch_size)) as stream:
        for _ in stream:
            pass


def in_turns(contest: Contest, turns: int) -> dict[str, list[float]]:
    """Seconds of each, one after the other in every turn, after one turn to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in contest}
    for turn in range(turns + 1):
        for name, work in contest.items():
            taken = timed(work)
            if turn:
                seconds[name].append(taken)
    return seconds
