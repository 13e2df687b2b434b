"""Encoding on a card: from photographs and captions to vectors, beside the forward pass alone and the peers' loops.

All models have random weights at true sizes. The flow can be no faster than the slower of its two halves: preparing on
the processor (reading, decoding, resizing) and the forward pass on the card; each is measured alone, in turns with the
flow.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capim.store.types import Embeddings, EncoderSpec, Precision
from capim.tasks.corpora.images.decode import decode_image
from capim.tasks.encoders import load_encoder
from capim.tasks.encoders.conformance import NEIGHBOUR_TOLERANCE
from capim.tasks.encoders.device import usable_cores
from capim.tasks.encoders.encoder import Encoder, Prepared, encode_captions, encode_images
from capim.tasks.encoders.pipeline import find_batch_size
from capim.tasks.encoders.tensors import join
from tests.benchmarks.bench_encode import PEER, against, caption_work, contests, drain, image_work, in_turns
from tests.benchmarks.cost import FROM_FILES
from tests.benchmarks.encode_models import SIZES, write_clip
from tests.benchmarks.encode_peers import mixed_captions, photographs
from tests.benchmarks.gpu_card import Card, peak_gib, reset_peak
from tests.benchmarks.rows import Row

TINY = {"ViT-tiny": ((64, 16, 64, 2), (64, 2))}
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16", "float16")


class PreparesOnly:
    """An encoder without a model: what remains of the flow is the preparation."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.spec, self.device = encoder.spec, encoder.device
        self.joins_images, self.pads_to_longest = encoder.joins_images, encoder.pads_to_longest
        self.modules, self.forwards = encoder.modules, encoder.forwards
        self.prepare_images, self.prepare_captions = encoder.prepare_images, encoder.prepare_captions

    def embed(self, prepared: Prepared) -> Embeddings:
        """The same unit vector for every item."""
        values = np.zeros((len(prepared), self.spec.dim), dtype=np.float32)
        values[:, 0] = 1
        ones = np.ones(len(prepared), dtype=np.float32)
        return Embeddings(values=values, norms=ones, n_tokens=prepared.n_tokens, truncated=prepared.truncated)


def model_rows(name: str, card: Card, *, quick: bool) -> list[Row]:
    """One model in three precisions; the small one beside the peers."""
    vision, text = (SIZES | TINY)[name]
    rows = []
    with tempfile.TemporaryDirectory() as work:
        checkpoint = Path(work) / "st" / "0_CLIPModel"
        write_clip(checkpoint, vision=vision, text=text, device=card.device)
        spec = EncoderSpec(name="clip", adapter="hf_dual", checkpoint=str(checkpoint), dim=512)
        reference = probe(load_encoder(spec, device="cpu"))
        for precision in PRECISIONS:
            encoder = load_encoder(replace(spec, precision=precision), device=card.device)
            vectors = probe(encoder)
            rows.append(closeness(name, precision, vectors, reference))
            reference = vectors if precision == "float32" else reference
            rows += flow_rows(name, encoder, card, turns=1 if quick else 2, quick=quick)
            if precision == "float32" and name != "ViT-L/14-336":
                rows += beside_peers(name, Path(work), encoder, quick=quick)
            del encoder
    return rows


def probe(encoder: Encoder) -> NDArray[np.float32]:
    """The vectors of some photographs and captions."""
    images = [decode_image(file.read_bytes()) for file in photographs()[:8]]
    parts = encode_images(encoder, images), encode_captions(encoder, mixed_captions(32))
    return np.concatenate([part.values for part in parts])


def closeness(name: str, precision: str, vectors: NDArray[np.float32], reference: NDArray[np.float32]) -> Row:
    """How far a precision is from float32 on the card, and float32 on the card from float32 on the processor."""
    other = "float32 on the CPU" if precision == "float32" else "float32 on the card"
    title = f"{name}, {precision}: largest difference of a component from {other}"
    bar, apart = f"<= {NEIGHBOUR_TOLERANCE[precision]:g}", float(np.abs(vectors - reference).max())
    return Row(title, apart, "", bar, note=f"{len(vectors)} photographs and captions; the tolerance of `capim check`")


def flow_rows(name: str, encoder: Encoder, card: Card, *, turns: int, quick: bool) -> list[Row]:
    """From files to vectors, and its two halves alone; images, then captions."""
    precision = encoder.spec.precision
    title = f"{name}, {precision}"
    image_batch = find_batch_size(encoder, "image", start=4 if quick else 64, largest=8 if quick else 256)
    caption_batch = find_batch_size(encoder, "caption", start=4 if quick else 256, largest=8 if quick else 1024)
    forward = forward_rate(encoder, image_batch)
    n = 40 if quick else int(min(1200, 3 * forward) // image_batch + 1) * image_batch
    files, captions = repeated(photographs(), n), repeated(mixed_captions(), 200 if quick else 12_000)
    reset_peak(card.device)
    contest: dict[str, Callable[[], object]] = {
        "flow": lambda: drain(encoder, image_work(files), batch_size=image_batch),
        "preparing": lambda: drain(PreparesOnly(encoder), image_work(files), batch_size=image_batch),
        "forward": bare(encoder, files, image_batch),
    }
    seconds = in_turns(contest, turns)
    rates = {what: n / min(taken) for what, taken in seconds.items()}  # the host's cores are shared: the fastest
    distinct = [f"{i} {caption}" for i, caption in enumerate(captions)]
    of_captions = in_turns({"flow": lambda: drain(encoder, caption_work(distinct), batch_size=caption_batch)}, 1)
    peak = card.float32_rate if precision == "float32" else card.bfloat16_rate
    note = ", ".join(f"{what} {rate:.0f}/s" for what, rate in rates.items())
    note = f"{note}; batches of {image_batch}, {usable_cores()} cores"
    share, bar = rates["flow"] / min(rates["forward"], rates["preparing"]), "" if quick else ">= 0.9"
    flops, memory = image_flops(encoder), f"peak memory {peak_gib(card.device):.1f} GiB"
    of_product, per_image = rates["forward"] * flops / peak, f"{flops / 1e9:.1f} GFLOP an image; {memory}"
    per_second = len(distinct) / statistics.median(of_captions["flow"])
    different = f"{len(distinct):,} different captions, batches of {caption_batch}"
    return [
        Row(f"{title}: {FROM_FILES}", share, "", bar, "its own halves", note),
        Row(f"{title}: forward pass as a share of the card's fastest product", of_product, "", note=per_image),
        Row(f"{title}: captions per second", per_second, "captions/s", note=different),
    ]


def forward_rate(encoder: Encoder, batch_size: int) -> float:
    """Images per second of the forward pass over one batch."""
    work = bare(encoder, repeated(photographs(), batch_size), batch_size)
    return batch_size / in_turns({"forward": work}, 1)["forward"][0]


def bare(encoder: Encoder, files: Sequence[Path], batch_size: int) -> Callable[[], object]:
    """The forward passes over as many images, prepared beforehand, in pinned memory; few batches, used again."""
    distinct = list(dict.fromkeys(files))[:batch_size]
    single = [encoder.prepare_images([decode_image(file.read_bytes())]) for file in distinct]
    batch = join(repeated(single, batch_size), pinned=encoder.device.startswith("cuda"))

    def run() -> None:
        for _ in range(len(files) // batch_size):
            encoder.embed(batch)

    return run


def image_flops(encoder: Encoder) -> float:
    """Operations of one image: two per weight of a linear layer and token, and attention."""
    model: Any = encoder.modules[0]
    config = model.config.vision_config
    tokens = (config.image_size // config.patch_size) ** 2 + 1
    width, layers = config.hidden_size, config.num_hidden_layers
    weights = 4 * width**2 + 2 * width * config.intermediate_size
    patches = 2.0 * (tokens - 1) * 3 * config.patch_size**2 * width
    return layers * (2.0 * tokens * weights + 4.0 * tokens**2 * width) + patches


def beside_peers(name: str, folder: Path, encoder: Encoder, *, quick: bool) -> list[Row]:
    """Images and captions per second, float32, relative to sentence-transformers' and CLIP_benchmark's own loops."""
    batch = 8 if quick else 256
    files = repeated(photographs(), 40 if quick else 768)
    captions = [f"{i} {caption}" for i, caption in enumerate(repeated(mixed_captions(), 100 if quick else 6000))]
    images, texts = contests(folder, encoder, files, captions, batch)
    title, bars = f"{name}, float32", {PEER: ">= 2", "CLIP_benchmark": ">= 1"}
    of_images, _ = against(f"images per second, {title}", images, len(files), bars, turns=1)
    of_captions, _ = against(f"captions per second, {title}", texts, len(captions), bars, turns=1)
    return of_images + of_captions


def repeated(items: Sequence[Any], n: int) -> list[Any]:
    """The first ``n`` of the items, over and over."""
    return [items[i % len(items)] for i in range(n)]
