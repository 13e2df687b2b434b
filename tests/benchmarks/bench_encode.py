"""Encoding photographs and captions: beside the bare forward pass, CLIP_benchmark's loop and sentence-transformers'.

Run by hand: ``python -m tests.benchmarks.bench_encode [--quick]``. All models have random weights (speed does not
depend on them); everybody gets the same checkpoint, photographs, captions, batch size and threads, in turns, and the
median of the paired ratios counts.

On a CPU the forward pass and the preprocessing share the cores, so the rows of the small model show what a GPU would
see (preprocessing is the bottleneck), and those of the large one what a CPU sees (everybody waits for the same matrix
products). sentence-transformers too sorts captions by length and pads to the longest of a batch: what can be won
over it on a CPU is shown by the bare forward pass over captions without any padding, prepared beforehand.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line has it

from store import EmbeddingStore
from store.types import EncoderSpec
from tasks.corpora import open_corpus
from tasks.corpora.decode import decode_image
from tasks.encoders import load_encoder, resolve
from tasks.encoders.batching import NOMINAL_TOKENS
from tasks.encoders.device import choose_device
from tasks.encoders.encoder import Encoder, Prepared
from tasks.encoders.memory import peak_bytes, usable_cores
from tasks.encoders.pipeline import CaptionWork, ImageWork, encode_stream
from tasks.encoders.torchvision_remedy import ensure_torchvision
from tests.benchmarks.rows import Row

PHOTOS = Path(__file__).resolve().parents[3] / "shared" / "data" / "coco_photos"
BATCH = 32


def run(quick: bool = False) -> list[Row]:
    """All rows; ``quick`` takes fewer photographs and turns."""
    import torch

    ensure_torchvision()
    logging.disable(logging.WARNING)
    torch.set_num_threads(usable_cores())
    turns = 3 if quick else 5
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        n_captions = 128 if quick else 512
        rows = beside_the_peers(folder, turns, n_images=48 if quick else 91, n_captions=n_captions)
        rows += beside_sentence_transformers(folder, turns, n_captions=n_captions)
        rows += beside_the_bare_forward_pass(folder, turns=1 if quick else 3, n_images=16 if quick else 64)
        return rows + full_size(folder, n_images=8 if quick else 64, n_captions=32 if quick else 256)


def beside_the_peers(folder: Path, turns: int, *, n_images: int, n_captions: int) -> list[Row]:
    """Images and captions per second as ratios to two peers' own loops."""
    from sentence_transformers import SentenceTransformer

    from tests.encoders.families.openclip import from_transformers_clip

    checkpoint = folder / "st" / "0_CLIPModel"
    write_clip(checkpoint, vision=(64, 16, 64, 2), text=(512, 6))
    modules = [{"idx": 0, "name": "0", "path": "0_CLIPModel", "type": "sentence_transformers.models.CLIPModel"}]
    (folder / "st" / "modules.json").write_text(json.dumps(modules))
    from_transformers_clip(checkpoint, folder / "openclip")
    ours = load_encoder(
        EncoderSpec(name="small", adapter="hf_dual", checkpoint=str(checkpoint), dim=512), device=device()
    )
    theirs = SentenceTransformer(str(folder / "st"), device=device())
    files, captions = photographs()[:n_images], mixed_captions(n_captions)
    images = {
        "capim": lambda: drain(ours, image_work(files)),
        "sentence-transformers": lambda: theirs.encode(opened(files), batch_size=BATCH, show_progress_bar=False),
        "CLIP_benchmark": clip_benchmark_images(folder / "openclip", files),
    }
    unpadded = without_padding(ours, captions)
    texts = {
        "capim": lambda: drain(ours, caption_work(captions)),
        "sentence-transformers": lambda: theirs.encode(captions, batch_size=BATCH, show_progress_bar=False),
        "CLIP_benchmark": clip_benchmark_captions(folder / "openclip", captions),
        "no padding": lambda: [ours.embed(batch) for batch in unpadded],
    }
    rows = []
    for unit, n, contest, bar in (("images", len(files), images, ">= 1.2"), ("captions", len(captions), texts, ">= 2")):
        seconds = in_turns(contest, turns)
        rates = ", ".join(f"{name} {n / statistics.median(taken):.0f}/s" for name, taken in seconds.items())
        rows += [
            Row(f"{unit} per second, small CLIP", times(seconds, "capim", peer), "times", bar, peer, rates)
            for peer in ("sentence-transformers", "CLIP_benchmark")
        ]
    most = times(seconds, "no padding", "sentence-transformers")
    note = "all captions tokenised beforehand, batches of one length: the most that a loop around this pass can win"
    return [*rows, Row("bare passes without padding, small CLIP", most, "times", "", "sentence-transformers", note)]


def beside_sentence_transformers(folder: Path, turns: int, *, n_captions: int) -> list[Row]:
    """Captions per second through sentence-transformers' own modules, as a ratio to its own loop."""
    from sentence_transformers import SentenceTransformer

    write_minilm(folder / "minilm")
    spec = EncoderSpec(name="minilm", adapter="sentence_transformers", checkpoint=str(folder / "minilm"), dim=384)
    ours = load_encoder(spec, device=device())
    theirs = SentenceTransformer(str(folder / "minilm"), device=device())
    captions = mixed_captions(n_captions)
    contest = {
        "capim": lambda: drain(ours, caption_work(captions)),
        "sentence-transformers": lambda: theirs.encode(captions, batch_size=BATCH, show_progress_bar=False),
    }
    seconds = in_turns(contest, turns)
    rates = ", ".join(f"{name} {n_captions / statistics.median(taken):.0f}/s" for name, taken in seconds.items())
    ratio = times(seconds, "capim", "sentence-transformers")
    return [Row("captions per second, BERT of MiniLM's size", ratio, "times", ">= 2", "sentence-transformers", rates)]


def times(seconds: dict[str, list[float]], ours: str, peer: str) -> float:
    """How many times faster than a peer, the median over the turns."""
    return statistics.median(b / a for a, b in zip(seconds[ours], seconds[peer], strict=True))


def without_padding(encoder: Encoder, captions: Sequence[str]) -> list[Prepared]:
    """Captions in batches of exactly one length, as many as the token budget allows."""
    by_length: dict[int, list[str]] = {}
    for caption in captions:
        by_length.setdefault(int(encoder.prepare_captions([caption]).n_tokens[0]), []).append(caption)
    batches: list[list[str]] = []
    for length, alike in sorted(by_length.items()):
        size = max(1, BATCH * NOMINAL_TOKENS // length)
        batches += [alike[start : start + size] for start in range(0, len(alike), size)]
    return [encoder.prepare_captions(batch) for batch in batches]


def beside_the_bare_forward_pass(folder: Path, *, turns: int, n_images: int) -> list[Row]:
    """The whole flow (read, decode, preprocess, forward, write, seal) as a share of the forward pass alone."""
    from tasks.encoding import EncodeSettings, SetEncoder

    checkpoint = folder / "b16"
    write_clip(checkpoint, vision=(224, 16, 768, 12), text=(128, 2))
    spec = resolve(EncoderSpec(name="vit-b-16", adapter="hf_dual", checkpoint=str(checkpoint), dim=512))
    corpus = open_corpus(str(PHOTOS), sample=n_images)
    encoder = load_encoder(spec, device=device())
    images = [decode_image(corpus.source.read(key)) for key in corpus.images["key"].to_pylist()]
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
    note = f"{n_images / statistics.median(seconds['flow']):.1f} images/s through the flow into a store"
    return [Row("flow / bare forward pass, ViT-B/16", ratio, "share", ">= 0.95", "own forward loop", note)]


def full_size(folder: Path, *, n_images: int, n_captions: int) -> list[Row]:
    """Real sizes with random weights: time and memory on this machine."""
    rows = []
    files, captions = photographs(), mixed_captions()
    for name, vision, text in (
        ("ViT-B/32", (224, 32, 768, 12), (512, 12)),
        ("ViT-L/14-336", (336, 14, 1024, 24), (768, 12)),
    ):
        checkpoint = folder / name.replace("/", "-").lower()
        write_clip(checkpoint, vision=vision, text=text)
        encoder = load_encoder(
            EncoderSpec(name="full", adapter="hf_dual", checkpoint=str(checkpoint), dim=512), device=device()
        )
        for unit, work, n in (
            ("images", image_work((files * 2)[:n_images]), n_images),
            ("captions", caption_work((captions * 2)[:n_captions]), n_captions),
        ):
            begun = time.perf_counter()
            drain(encoder, work, batch_size=16)
            seconds = time.perf_counter() - begun
            note = f"{seconds:.1f} s for {n}; peak memory {peak_bytes(device()) / 2**30:.1f} GiB"
            rows.append(Row(f"{unit} per second, {name} on {device()}", n / seconds, f"{unit}/s", "", "", note))
    return rows


def device() -> str:
    """A GPU where there is one."""
    return choose_device("auto").split(":")[0]


def write_clip(folder: Path, *, vision: tuple[int, int, int, int], text: tuple[int, int]) -> None:
    """A transformers CLIP: (side, patch, width, layers) and (width, layers), 512 dimensions."""
    import torch
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    side, patch, width, layers = vision
    tokenizer = real_clip_tokenizer()
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    config = CLIPConfig(
        projection_dim=512,
        text_config=ids | {
            "vocab_size": len(tokenizer), "hidden_size": text[0], "intermediate_size": 4 * text[0],
            "num_hidden_layers": text[1], "num_attention_heads": text[0] // 64, "max_position_embeddings": 77,
        },
        vision_config={
            "hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": layers,
            "num_attention_heads": max(1, width // 64), "image_size": side, "patch_size": patch,
        },
    )  # fmt: skip
    torch.manual_seed(0)
    CLIPModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    crop = {"height": side, "width": side}
    CLIPImageProcessor(size={"shortest_edge": side}, crop_size=crop).save_pretrained(folder)


def write_minilm(folder: Path) -> None:
    """A sentence-transformers model of the size of all-MiniLM-L6-v2, with CLIP's tokenizer."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel

    tokenizer = real_clip_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    modules = [Transformer(str(folder / "bert"), max_seq_length=256), Pooling(384)]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder))


def real_clip_tokenizer() -> Any:
    """CLIP's own 49,408 entries, from the copy that comes with open_clip: captions have their true lengths."""
    from open_clip.tokenizer import SimpleTokenizer
    from transformers import CLIPTokenizer

    source = SimpleTokenizer()
    names = {"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}
    vocabulary = {names.get(entry, entry): i for entry, i in source.encoder.items()}
    return CLIPTokenizer(vocab=vocabulary, merges=list(source.bpe_ranks), model_max_length=77)


def photographs() -> list[Path]:
    """The photographs of the shared data."""
    return sorted((PHOTOS / "images").iterdir())


def mixed_captions(n: int = 512) -> list[str]:
    """COCO's captions, one in nine of them longer: two to five of them in a row."""
    written = json.loads((PHOTOS / "captions.json").read_text())["annotations"]
    captions = [entry["caption"] for entry in written]
    long = [" ".join(captions[i : i + 2 + i // 8 % 4]) for i in range(0, len(captions), 8)]
    rng = np.random.default_rng(0)
    return [str(caption) for caption in rng.permutation([*captions, *long])[:n]]


def image_work(files: Sequence[Path]) -> ImageWork:
    """Photographs as the flow reads them."""
    ords = np.arange(len(files), dtype=np.int32)
    keys = [f"{i}:{file}" for i, file in enumerate(files)]
    return ImageWork(
        ords=ords,
        keys=keys,
        shas=[None] * len(files),
        read=lambda key: Path(key.split(":", 1)[1]).read_bytes(),
        decode=decode_image,
    )


def caption_work(captions: Sequence[str]) -> CaptionWork:
    """Captions as the flow reads them."""
    return CaptionWork(ords=np.arange(len(captions), dtype=np.int32), texts=captions)


def drain(encoder: Encoder, work: ImageWork | CaptionWork, *, batch_size: int = BATCH) -> None:
    """Encode everything and keep nothing."""
    with closing(encode_stream(encoder, work, batch_size=batch_size)) as stream:
        for _ in stream:
            pass


def opened(files: Sequence[Path]) -> list[object]:
    """What sentence-transformers is given: opened pictures, which it decodes in its loop."""
    from PIL import Image

    return [Image.open(file) for file in files]


def clip_benchmark_images(folder: Path, files: Sequence[Path]) -> Callable[[], object]:
    """CLIP_benchmark's retrieval loop over photographs, with as many loader processes as there are cores."""
    import torch
    from clip_benchmark.datasets.builder import image_captions_collate_fn
    from PIL import Image

    model, transform, _ = open_clip_model(folder)
    model.encode_text = lambda tokens: torch.ones(len(tokens), 512)  # only the images are timed

    class Photographs(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(files)

        def __getitem__(self, index: int) -> tuple[object, list[str]]:
            return transform(Image.open(files[index])), ["-"]

    loader = torch.utils.data.DataLoader(
        Photographs(), batch_size=BATCH, num_workers=usable_cores(), collate_fn=image_captions_collate_fn
    )
    return lambda: their_loop(model, loader, lambda texts: torch.ones(len(texts), 1))


def clip_benchmark_captions(folder: Path, captions: Sequence[str]) -> Callable[[], object]:
    """CLIP_benchmark's retrieval loop over captions; the pictures cost nothing."""
    import torch

    model, _, tokenizer = open_clip_model(folder)
    model.encode_image = lambda pixels: torch.ones(len(pixels), 512)
    batches = [captions[i : i + BATCH] for i in range(0, len(captions), BATCH)]
    loader = [(torch.zeros(len(batch), 1), [[caption] for caption in batch]) for batch in batches]
    return lambda: their_loop(model, loader, tokenizer)


def their_loop(model: object, loader: object, tokenizer: object) -> object:
    """CLIP_benchmark's own ``evaluate``."""
    from clip_benchmark.metrics.zeroshot_retrieval import evaluate

    return evaluate(model, loader, tokenizer, device(), amp=False, recall_k_list=[1])


def open_clip_model(folder: Path) -> tuple[object, object, object]:
    """The same weights as an open_clip model."""
    import open_clip

    model, transform = open_clip.create_model_from_pretrained(f"local-dir:{folder}")
    return model.to(device()).eval(), transform, open_clip.get_tokenizer(f"local-dir:{folder}")


def in_turns(contest: dict[str, Callable[[], object]], turns: int) -> dict[str, list[float]]:
    """Seconds of each, one after the other in every turn, after one turn to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in contest}
    for turn in range(turns + 1):
        for name, work in contest.items():
            begun = time.perf_counter()
            work()
            if turn:
                seconds[name].append(time.perf_counter() - begun)
    return seconds


if __name__ == "__main__":
    for row in run(quick="--quick" in sys.argv):
        print(f"{row.name}: {row.value:.2f} {row.unit} ({row.bar}) vs {row.peer} | {row.note}", flush=True)
