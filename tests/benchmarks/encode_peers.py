"""The photographs and captions that capim and its peers encode, and the encoding loops of the peers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capim.tasks.encoders.device import choose_device, usable_cores
from tests.shared_data import SHARED_DATA

PHOTOS = SHARED_DATA / "coco_photos"
BATCH = 32


def device() -> str:
    """A GPU where there is one."""
    return choose_device("auto").split(":")[0]


def photographs() -> list[Path]:
    """The photographs of the shared data."""
    return sorted((PHOTOS / "images").iterdir())


def mixed_captions(n: int = 512) -> list[str]:
    """COCO's captions and, as every ninth, two to five captions joined into a longer one."""
    written = json.loads((PHOTOS / "captions.json").read_text())["annotations"]
    captions = [entry["caption"] for entry in written]
    long = [" ".join(captions[i : i + 2 + i // 8 % 4]) for i in range(0, len(captions), 8)]
    rng = np.random.default_rng(0)
    return [str(caption) for caption in rng.permutation([*captions, *long])[:n]]


def opened(files: Sequence[Path]) -> list[object]:
    """Opened pictures, which sentence-transformers decodes in its loop."""
    from PIL import Image

    return [Image.open(file) for file in files]


def peers_of(folder: Path, device: str) -> Any:
    """The CLIP in ``st/0_CLIPModel`` as sentence-transformers loads it; for open_clip one of its size beside it."""
    from sentence_transformers import SentenceTransformer

    from tests.encoders.families.openclip import build_like_clip

    modules = [{"idx": 0, "name": "0", "path": "0_CLIPModel", "type": "sentence_transformers.models.CLIPModel"}]
    (folder / "st" / "modules.json").write_text(json.dumps(modules))
    (folder / "openclip").mkdir()
    build_like_clip(folder / "openclip", folder / "st" / "0_CLIPModel")
    return SentenceTransformer(str(folder / "st"), device=device)


def clip_benchmark_images(folder: Path, files: Sequence[Path], batch: int) -> Callable[[], object]:
    """CLIP_benchmark's retrieval loop over photographs, with as many loader processes as there are cores."""
    import torch
    from clip_benchmark.datasets.builder import image_captions_collate_fn
    from PIL import Image
    from torch.utils.data import DataLoader

    model, transform, _ = open_clip_model(folder)
    model.encode_text = lambda tokens: torch.ones(len(tokens), 512)  # only the images are timed

    def load(some: Sequence[Path]) -> Any:  # by a process of the loader
        return image_captions_collate_fn([(transform(Image.open(file)), ["-"]) for file in some])

    loader: Any = DataLoader(files, batch, num_workers=usable_cores(), collate_fn=load)  # type: ignore[arg-type]
    return lambda: their_loop(model, loader, lambda texts: torch.ones(len(texts), 1))


def clip_benchmark_captions(folder: Path, captions: Sequence[str], batch: int) -> Callable[[], object]:
    """CLIP_benchmark's retrieval loop over captions; the pictures cost nothing."""
    import torch

    model, _, tokenizer = open_clip_model(folder)
    model.encode_image = lambda pixels: torch.ones(len(pixels), 512)
    batches = [captions[i : i + batch] for i in range(0, len(captions), batch)]
    loader = [(torch.zeros(len(each), 1), [[caption] for caption in each]) for each in batches]
    return lambda: their_loop(model, loader, tokenizer)


def their_loop(model: Any, loader: Any, tokenizer: Any) -> object:
    """CLIP_benchmark's own ``evaluate``."""
    from clip_benchmark.metrics.zeroshot_retrieval import evaluate

    return evaluate(model, loader, tokenizer, device(), amp=False, recall_k_list=[1])


def open_clip_model(folder: Path) -> tuple[Any, Any, Any]:
    """The open_clip model that :func:`peers_of` has written."""
    import open_clip

    model, transform = open_clip.create_model_from_pretrained(f"local-dir:{folder}")
    return model.to(device()).eval(), transform, open_clip.get_tokenizer(f"local-dir:{folder}")
