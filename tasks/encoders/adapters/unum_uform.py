"""unum-cloud/uform, versions 2 and 3, by the package's own classes.

The package's ``get_model`` cannot load the version 2 repositories that COCO-SM was made with. Its encoders and
processors can, with the pixel mean and deviation that uform 1 had in its code. Features are unnormalised.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from capim.store.errors import RequestError
from capim.store.types import EncoderSpec
from capim.tasks.encoders.adapters.loaded_encoder import LoadedEncoder, Tokenized
from capim.tasks.encoders.checkpoint import folder_of, json_file
from capim.tasks.encoders.pixels import pipeline_of_transform
from capim.tasks.encoders.tensors import DTYPES
from capim.tasks.encoders.weights import read_tensors, weights_file

# from uform 1.x, before version 3 wrote them into the configuration
_MEAN = [0.48145466, 0.4578275, 0.40821073]
_DEVIATION = [0.26862954, 0.26130258, 0.27577711]


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> LoadedEncoder:
    """Load a uform model; pickles only as plain tensors."""
    from uform.torch_encoders import ImageEncoder, TextEncoder
    from uform.torch_processors import ImageProcessor, TextProcessor

    folder = folder_of(spec)
    config = json_file(folder / "torch_config.json") or json_file(folder / "config.json")
    if not config or not (folder / "tokenizer.json").is_file():
        raise RequestError(
            f"encoder {spec.name!r}: {spec.checkpoint} is not a uform checkpoint: it needs torch_config.json or "
            "config.json, and tokenizer.json"
        )
    config["image_encoder"].setdefault("normalization_means", _MEAN)
    config["image_encoder"].setdefault("normalization_deviations", _DEVIATION)
    text = TextEncoder.from_pretrained(config, _weights(folder, "text_encoder", spec))
    image = ImageEncoder.from_pretrained(config, _weights(folder, "image_encoder", spec))
    text_processor, image_processor = TextProcessor(config, str(folder / "tokenizer.json")), ImageProcessor(config)

    def tokens(texts: list[str]) -> Tokenized:
        # like the package, a caption is truncated without keeping its end token
        batch = text_processor(texts)
        lengths = np.asarray([len(row) for row in text_processor._tokenizer.encode_batch(texts)])  # noqa: SLF001
        n_tokens = batch["attention_mask"].sum(dim=1).numpy()
        inputs = {name: values[:, : n_tokens.max()] for name, values in batch.items()}
        return inputs, n_tokens, lengths > batch["input_ids"].shape[1]

    return LoadedEncoder(
        spec,
        device,
        modules=[tower.to(DTYPES[spec.precision]) for tower in (text, image)],
        forwards={
            "image": lambda images: image.encode({"images": images}),
            "caption": lambda **batch: text.encode(batch),
        },
        pixels=lambda images: dict(image_processor(images)),
        tokens=tokens,
        pixel_input="images",
        pixel_pipeline=pipeline_of_transform(image_processor._image_transform),  # noqa: SLF001
        patch_size=int(config["image_encoder"]["patch_size"]),
    )


def _weights(folder: Path, tower: str, spec: EncoderSpec) -> Mapping[str, Any]:
    """Return the weights of one tower: its own file, or its part of the file of both towers."""
    names = (f"{tower}.safetensors", f"{tower}.pt", "torch_weight.pt")
    tensors = read_tensors(weights_file(folder, names, spec))
    return dict(tensors.get(tower, tensors))
