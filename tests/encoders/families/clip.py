"""transformers dual encoders in miniature, each in its true layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from tests.encoders.families import later as transformers
from tests.encoders.families.vocabulary import (
    bert_tokenizer,
    clip_tokenizer,
    gemma_tokenizer,
    siglip_tokenizer,
    xlm_roberta_tokenizer,
)

SIDE, PATCH, DIM = 56, 14, 32
TOWER: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION = TOWER | {"image_size": SIDE, "patch_size": PATCH}
SQUARE = {"height": SIDE, "width": SIDE}


def lively(model: Any) -> Any:
    """The model with weights large enough that its vectors tell items apart and notice what is done wrong."""
    import torch

    torch.manual_seed(7)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if name.endswith(("ls1.gamma", "ls2.gamma")):
                weights.fill_(1.0)
            if name.endswith("A_log"):  # drawn from 0 to 16: of a miniature's two heads one may forget everything
                weights.copy_(torch.linspace(0.0, 1.0, len(weights)))
            if weights.ndim > 1:
                weights.copy_(torch.randn_like(weights) * (0.5 if "embed" in name else weights.shape[-1] ** -0.5 * 1.4))
    return model


def _save(folder: Path, config: Any, pixels: Any, tokenizer: Any, processor_class: str) -> None:
    """The layout of the hub's repositories: preprocessor_config.json beside the tokenizer, no processor_config.json."""
    lively(transformers.AutoModel.from_config(config)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    pixels.save_pretrained(folder)
    file = folder / "preprocessor_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"processor_class": processor_class}))


def _crop() -> Any:
    return transformers.CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size=SQUARE)


def build_clip(folder: Path, *, dim: int = DIM) -> None:
    """openai/clip-vit-large-patch14-336, facebook/metaclip-h14-fullcc2.5b."""
    tokenizer, act = clip_tokenizer(), {"hidden_act": "quick_gelu"}
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    text = TOWER | act | ids | {"vocab_size": len(tokenizer), "max_position_embeddings": 77}
    config = transformers.CLIPConfig(projection_dim=dim, text_config=text, vision_config=VISION | act)
    _save(folder, config, _crop(), tokenizer, "CLIPProcessor")


def build_metaclip2(folder: Path, *, dim: int = DIM) -> None:
    """facebook/metaclip-2-worldwide-…: MetaCLIP 2 with the tokenizer of XLM-R."""
    tokenizer = xlm_roberta_tokenizer(folder)
    ids = {"eos_token_id": 2, "bos_token_id": 0, "pad_token_id": 1}
    text = TOWER | ids | {"vocab_size": len(tokenizer), "max_position_embeddings": 77}
    config = transformers.MetaClip2Config(projection_dim=dim, text_config=text, vision_config=VISION)
    _save(folder, config, _crop(), tokenizer, "CLIPProcessor")


def build_siglip(folder: Path, *, dim: int = DIM) -> None:
    """google/siglip-so400m-patch14-384: sentencepiece, padded with ``</s>``."""
    tokenizer = siglip_tokenizer(folder)
    width = {"hidden_size": dim}  # of the vector too
    text = TOWER | width | {"vocab_size": tokenizer.vocab_size, "max_position_embeddings": 64}
    config = transformers.SiglipConfig(text_config=text, vision_config=VISION | width)
    _save(folder, config, transformers.SiglipImageProcessor(size=SQUARE), tokenizer, "SiglipProcessor")


def _siglip2_text(folder: Path) -> tuple[Any, dict[str, Any]]:
    """Gemma's tokenizer and the configuration of the tower that reads with it."""
    tokenizer = gemma_tokenizer(folder, add_bos_token=False, add_eos_token=True, model_max_length=64)
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1}
    return tokenizer, TOWER | ids | {"vocab_size": len(tokenizer), "max_position_embeddings": 64}


def build_siglip2(folder: Path, *, dim: int = DIM) -> None:
    """google/siglip2-so400m-patch14-384 (fixed resolution): SigLIP's model, Gemma's tokenizer."""
    tokenizer, text = _siglip2_text(folder)
    width = {"hidden_size": dim}
    config = transformers.SiglipConfig(text_config=text | width, vision_config=VISION | width)
    _save(folder, config, transformers.SiglipImageProcessor(size=SQUARE), tokenizer, "SiglipProcessor")


def build_siglip2_naflex(folder: Path) -> None:
    """google/siglip2-so400m-patch16-naflex: any aspect ratio, patches instead of pixels."""
    tokenizer, text = _siglip2_text(folder)
    vision = TOWER | {"num_patches": 16, "patch_size": 16}
    config = transformers.Siglip2Config(text_config=text, vision_config=vision)
    pixels = transformers.Siglip2ImageProcessor(max_num_patches=16, patch_size=16)
    _save(folder, config, pixels, tokenizer, "Siglip2Processor")


def build_tipsv2(folder: Path, *, dim: int = DIM) -> None:
    """google/tipsv2-b14: DINOv2's eye with a register, a text tower that averages its tokens; nothing is projected."""
    from transformers.models.tipsv2.tokenization_tipsv2 import Tipsv2Tokenizer

    letters = [chr(i) for i in range(33, 127) if not chr(i).isupper()]
    pieces = ["<pad>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *letters]
    tokenizer = Tipsv2Tokenizer(vocab={piece: number for number, piece in enumerate(pieces)}, merges=[])
    text = TOWER | {"vocab_size": len(tokenizer), "max_position_embeddings": 64, "hidden_size": dim}
    vision = {key: value for key, value in VISION.items() if key != "intermediate_size"}
    vision |= {"mlp_ratio": 2, "hidden_size": dim}
    config = transformers.Tipsv2Config(text_config=text, vision_config=vision)
    _save(folder, config, transformers.Tipsv2ImageProcessor(size=SQUARE), tokenizer, "Tipsv2Processor")
    file = folder / "model.safetensors"  # the published ones have no temperature
    save_file(
        {name: t for name, t in load_file(file).items() if name != "temperature"}, file, metadata={"format": "pt"}
    )


def build_altclip(folder: Path) -> None:
    """BAAI/AltCLIP: CLIP's eye, XLM-R's ear."""
    tokenizer = xlm_roberta_tokenizer(folder)
    text = TOWER | {"vocab_size": len(tokenizer), "max_position_embeddings": 130, "project_dim": 32, "pad_token_id": 1}
    text |= {"type_vocab_size": 1}
    config = transformers.AltCLIPConfig(text_config=text, vision_config=VISION, projection_dim=DIM)
    _save(folder, config, _crop(), tokenizer, "AltCLIPProcessor")


def build_chinese_clip(folder: Path) -> None:
    """OFA-Sys/chinese-clip-vit-base-patch16: CLIP's eye, BERT's ear; squashes pictures."""
    tokenizer = bert_tokenizer(folder)
    text = TOWER | {"vocab_size": len(tokenizer), "max_position_embeddings": 128}
    config = transformers.ChineseCLIPConfig(text_config=text, vision_config=VISION, projection_dim=DIM)
    pixels = transformers.ChineseCLIPImageProcessor(size=SQUARE, do_center_crop=False)
    _save(folder, config, pixels, tokenizer, "ChineseCLIPProcessor")
