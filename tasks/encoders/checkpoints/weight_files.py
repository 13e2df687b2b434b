"""The files of a repository that hold the weights; many repositories hold them in several formats."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

OPEN_CLIP_WEIGHTS = (
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.safetensors",
    "open_clip_pytorch_model.bin",
)
_TRANSFORMERS = ("adapter_model.safetensors", "model*.safetensors", "adapter_model.bin", "pytorch_model*.bin")

# By adapter, in the order of preference: safetensors first, pickles only where there are none.
WEIGHT_FILES: dict[str, tuple[str, ...]] = {
    "hf_dual": _TRANSFORMERS,
    "colvision": _TRANSFORMERS,
    "jina": ("model.safetensors", "pytorch_model.bin"),
    "openclip": OPEN_CLIP_WEIGHTS,
    "uform": ("*_encoder.safetensors", "*_encoder.pt", "torch_weight.pt"),
    "sentence_transformers": (
        "model*.safetensors",
        "*/model*.safetensors",
        "pytorch_model*.bin",
        "*/pytorch_model*.bin",
    ),
}
OTHER_WEIGHTS = (*_TRANSFORMERS, "*.safetensors", "*.bin", "*.pt")  # of adapters that are not capim's
_HEAVY = (
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".ot", ".onnx", ".onnx_data", ".gguf", ".tflite",
    ".mlmodel", ".npz", ".tar", ".zip",
)  # fmt: skip


def chosen_weights(files: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The files of each folder that match the first pattern with any match there.

    Examples:
        >>> chosen_weights(["model.safetensors", "open_clip_pytorch_model.bin"], WEIGHT_FILES["openclip"])
        ['open_clip_pytorch_model.bin']
        >>> files = ["model.safetensors", "pytorch_model.bin", "2_Dense/model.safetensors"]
        >>> chosen_weights(files, WEIGHT_FILES["sentence_transformers"])
        ['2_Dense/model.safetensors', 'model.safetensors']
    """
    chosen: dict[str, list[str]] = {}
    for pattern in patterns:
        matches: dict[str, list[str]] = {}
        for file in files:
            # a star does not match the "/" of another folder
            if fnmatchcase(file, pattern) and file.count("/") == pattern.count("/"):
                matches.setdefault(file.rpartition("/")[0], []).append(file)
        chosen = matches | chosen
    return sorted(file for of_folder in chosen.values() for file in of_folder)


def needed_files(files: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """All files of a repository except weights in other formats.

    Examples:
        >>> needed_files(["config.json", "model.safetensors", "pytorch_model.bin"], WEIGHT_FILES["hf_dual"])
        ['config.json', 'model.safetensors']
    """
    chosen = set(chosen_weights(files, patterns))
    return [file for file in files if file in chosen or not file.endswith(_HEAVY)]
