"""open_clip's repositories in miniature: open_clip_config.json and the weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.encoders.families.clip import TOWER, lively
from tests.encoders.families.vocabulary import clip_tokenizer, xlm_roberta_tokenizer

OPENAI = {"mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711]}
VISION = {"image_size": 56, "layers": 2, "width": 64, "head_width": 32, "patch_size": 14}
TEXT = {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}


def _write(folder: Path, model: dict[str, Any], preprocess: dict[str, Any], *, pickle: bool) -> None:
    import open_clip
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_cfg": model, "preprocess_cfg": preprocess}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    state = lively(open_clip.create_model(f"local-dir:{folder}", pretrained_text=False)).state_dict()
    tensors = {name: tensor.contiguous() for name, tensor in state.items()}
    if pickle:
        torch.save(tensors, folder / "open_clip_pytorch_model.bin")
    else:
        save_file(tensors, folder / "open_clip_model.safetensors")


def build_dfn(folder: Path, *, dim: int = 32) -> None:
    """apple/DFN5B-CLIP-ViT-H-14-378: QuickGELU, squashed pictures, a pickle."""
    preprocess = OPENAI | {"interpolation": "bicubic", "resize_mode": "squash"}
    model = {"embed_dim": dim, "quick_gelu": True, "vision_cfg": VISION, "text_cfg": TEXT}
    _write(folder, model, preprocess, pickle=True)


def build_laion(folder: Path, *, dim: int = 32) -> None:
    """laion/CLIP-ViT-H-14-laion2B-s32B-b79K: GELU, cropped pictures, only mean and deviation written down."""
    _write(folder, {"embed_dim": dim, "vision_cfg": VISION, "text_cfg": TEXT}, OPENAI, pickle=False)


def build_vit_b_32(folder: Path) -> None:
    """openai's ViT-B/32 as open_clip has it, in full size."""
    vision = {"image_size": 224, "layers": 12, "width": 768, "patch_size": 32}
    text = TEXT | {"width": 512, "heads": 8, "layers": 12}
    model = {"embed_dim": 512, "quick_gelu": True, "vision_cfg": vision, "text_cfg": text}
    preprocess = OPENAI | {"interpolation": "bicubic", "resize_mode": "shortest"}
    _write(folder, model, preprocess, pickle=False)


def build_own_tokenizer(folder: Path) -> None:
    """A folder that brings its tokenizer, as converted checkpoints do."""
    tokenizer = clip_tokenizer()
    tokenizer.save_pretrained(folder)
    text = TEXT | {"context_length": 32, "vocab_size": len(tokenizer), "hf_tokenizer_name": "tiny"}
    model = {"embed_dim": 32, "quick_gelu": True, "vision_cfg": VISION, "text_cfg": text}
    _write(folder, model, OPENAI | {"interpolation": "bicubic", "resize_mode": "shortest"}, pickle=False)


def build_siglip_in_open_clip(folder: Path) -> None:
    """timm/ViT-…-SigLIP: a timm image tower, a text tower that sees its padding, a bias."""
    tokenizer = clip_tokenizer(max_length=64)
    tokenizer.save_pretrained(folder)
    vision = {"image_size": 160, "timm_model_name": "test_vit", "timm_model_pretrained": False}
    text = TEXT | {"context_length": 64, "vocab_size": len(tokenizer), "hf_tokenizer_name": "timm/ViT-B-16-SigLIP"}
    text |= {"no_causal_mask": True, "proj_bias": True, "pool_type": "last", "norm_kwargs": {"eps": 1e-6}}
    text |= {"tokenizer_kwargs": {"clean": "canonicalize"}}
    model = {"embed_dim": 32, "init_logit_bias": -10, "custom_text": True, "text_cfg": text}
    model |= {"vision_cfg": vision | {"timm_pool": "", "timm_proj": "linear"}}
    halves = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "resize_mode": "squash"}
    _write(folder, model, halves, pickle=False)


def build_xlm_roberta(folder: Path) -> None:
    """xlm-roberta-base: the configuration and tokenizer that two open_clip models need beside their weights."""
    from transformers import XLMRobertaConfig

    tokenizer = xlm_roberta_tokenizer(folder)
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "vocab_size": len(tokenizer)}
    XLMRobertaConfig(**TOWER, **ids, max_position_embeddings=130, type_vocab_size=1).save_pretrained(folder)


def build_over_xlm_roberta(folder: Path, tower: Path, *, name: str = "xlm-roberta-base", dim: int = 24) -> None:
    """laion/CLIP-ViT-B-32-xlm-roberta-base-laion5B-s13B-b90k: an HF text tower described in another repository."""
    vision = VISION | {"image_size": 64, "patch_size": 32}
    text = {"hf_model_name": str(tower), "hf_tokenizer_name": str(tower), "hf_pooler_type": "mean_pooler"}
    _write(folder, {"embed_dim": dim, "vision_cfg": vision, "text_cfg": text}, OPENAI, pickle=True)
    config = json.loads((folder / "open_clip_config.json").read_text())
    names = {"hf_model_name": name, "hf_tokenizer_name": name}
    config["model_cfg"]["text_cfg"] |= names
    (folder / "open_clip_config.json").write_text(json.dumps(config))


def build_like_clip(folder: Path, source: Path) -> None:
    """A model of the size and with the tokenizer of a transformers CLIP, and weights of its own."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, folder / name)
    config = json.loads((source / "config.json").read_text())
    text, vision = config["text_config"], config["vision_config"]
    model = {
        "embed_dim": config["projection_dim"],
        "quick_gelu": True,
        "vision_cfg": {
            "image_size": vision["image_size"], "layers": vision["num_hidden_layers"], "width": vision["hidden_size"],
            "patch_size": vision["patch_size"],
        },
        "text_cfg": {
            "context_length": text["max_position_embeddings"], "vocab_size": text["vocab_size"],
            "width": text["hidden_size"], "heads": text["num_attention_heads"], "layers": text["num_hidden_layers"],
            "hf_tokenizer_name": "own",
        },
    }  # fmt: skip
    _write(folder, model, OPENAI | {"interpolation": "bicubic", "resize_mode": "shortest"}, pickle=False)
