"""unum-cloud/uform, versions 2 and 3, from the package's own classes.

The package's public ``get_model`` cannot load the version 2 repositories that COCO-SM was made with; its encoders and
processors can, once the pixel mean and deviation that uform 1 had in its code are added. Features come unnormalised.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL.Image import Image

from store.errors import RequestError
from store.types import Embeddings, EncoderSpec, Modality
from tasks.encoders.captions import Template
from tasks.encoders.checkpoints.checkpoint import folder_of
from tasks.encoders.checkpoints.weights import MissingWeightsError
from tasks.encoders.encoder import Prepared
from tasks.encoders.pixels import Recipe, agrees, in_rgb
from tasks.encoders.tensors import DTYPES, dense_embeddings, move

# what uform 1.x normalised with, before version 3 wrote it into the configuration
_MEAN = [0.48145466, 0.4578275, 0.40821073]
_DEVIATION = [0.26862954, 0.26130258, 0.27577711]


class UForm:
    """A uform model; see :class:`tasks.encoders.encoder.Encoder`."""

    joins_images = True
    pads_to_longest = True

    def __init__(
        self, spec: EncoderSpec, text: Any, image: Any, config: Mapping[str, Any], tokenizer: Path, device: str
    ):
        from uform.torch_processors import ImageProcessor, TextProcessor

        self.spec = spec
        self.device = device
        dtype = DTYPES[spec.precision]
        self._text = text.to(device=torch.device(device), dtype=dtype).eval()
        self._image = image.to(device=torch.device(device), dtype=dtype).eval()
        self.modules = (text, image)
        self.forwards: dict[Modality, Callable[..., Any]] = {
            "image": lambda images: self._image.encode({"images": images}),
            "caption": lambda **tokens: self._text.encode(tokens),
        }
        self._text_processor = TextProcessor(config, str(tokenizer))
        self._image_processor = ImageProcessor(config)
        self._recipe = self._fast_recipe(config["image_encoder"])
        self._template = Template.of(spec)
        self._patch = int(config["image_encoder"]["patch_size"])

    def prepare_images(self, images: Sequence[Image]) -> Prepared:
        """Pixels as the package's processor makes them."""
        upright = in_rgb(images)
        pixels = self._recipe.tensor(upright) if self._recipe else self._image_processor(upright)["images"]
        patches = (pixels.shape[-2] // self._patch) * (pixels.shape[-1] // self._patch)
        return Prepared(
            modality="image",
            inputs={"images": pixels},
            n_tokens=np.full(len(images), patches, dtype=np.int32),
            truncated=np.zeros(len(images), dtype=np.bool_),
        )

    def prepare_captions(self, captions: Sequence[str]) -> Prepared:
        """Token ids and mask; the package cuts a long caption without keeping its end token, and so do we."""
        texts = [self._template.fill(caption) for caption in captions]
        tokens = self._text_processor(texts)
        lengths = np.asarray([len(row) for row in self._text_processor._tokenizer.encode_batch(texts)])  # noqa: SLF001
        mask = tokens["attention_mask"]
        n_tokens = mask.sum(dim=1)
        width = int(n_tokens.max())
        return Prepared(
            modality="caption",
            inputs={"input_ids": tokens["input_ids"][:, :width], "attention_mask": mask[:, :width]},
            n_tokens=n_tokens.numpy().astype(np.int32),
            truncated=lengths > tokens["input_ids"].shape[1],
        )

    def embed(self, prepared: Prepared) -> Embeddings:
        """Projected features, normalised."""
        with torch.inference_mode():
            inputs = move(prepared.inputs, torch.device(self.device), DTYPES[self.spec.precision])
            return dense_embeddings(self.forwards[prepared.modality](**inputs), prepared, self.spec)

    def _fast_recipe(self, config: Mapping[str, Any]) -> Recipe | None:
        steps = [step for step in self._image_processor._image_transform.transforms]  # noqa: SLF001, C416

        def fit(image: Image) -> Image:
            for step in steps[:-2]:
                image = step(image)
            return image

        recipe = Recipe(
            fit=fit,
            mean=tuple(config["normalization_means"]),
            std=tuple(config["normalization_deviations"]),
        )
        return recipe if agrees(recipe, lambda image: self._image_processor([image])["images"][0]) else None


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> UForm:
    """Load a uform model; pickles only as plain tensors."""
    from uform.torch_encoders import ImageEncoder, TextEncoder

    folder = folder_of(spec)
    file = next((folder / n for n in ("torch_config.json", "config.json") if (folder / n).is_file()), None)
    if file is None or not (folder / "tokenizer.json").is_file():
        raise RequestError(
            f"encoder {spec.name!r}: {spec.checkpoint} is no uform checkpoint: it lacks config or tokenizer.json"
        )
    config = json.loads(file.read_text(encoding="utf-8"))
    config["image_encoder"].setdefault("normalization_means", _MEAN)
    config["image_encoder"].setdefault("normalization_deviations", _DEVIATION)
    try:
        text = TextEncoder.from_pretrained(config, _state(folder, "text_encoder", spec))
        image = ImageEncoder.from_pretrained(config, _state(folder, "image_encoder", spec))
    except RuntimeError as error:
        raise MissingWeightsError(f"encoder {spec.name!r}: {spec.checkpoint} does not fit: {error}") from error
    return UForm(spec, text, image, config, folder / "tokenizer.json", device)


def _state(folder: Path, tower: str, spec: EncoderSpec) -> Mapping[str, torch.Tensor]:
    """The weights of one tower: its own file, or its part of the file of both."""
    from safetensors.torch import load_file

    if (folder / f"{tower}.safetensors").is_file():
        tensors: Mapping[str, torch.Tensor] = load_file(folder / f"{tower}.safetensors")
        return tensors
    for name in (f"{tower}.pt", "torch_weight.pt"):
        if (folder / name).is_file():
            state = torch.load(folder / name, map_location="cpu", weights_only=True)
            return dict(state.get(tower, state))
    raise MissingWeightsError(f"encoder {spec.name!r}: {folder} holds no weights of the {tower}; download it again")
