"""colpali_engine's models in miniature: a language model that sees, and a projection to 128 dimensions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.encoders.families.clip import lively
from tests.encoders.families.vocabulary import gemma_tokenizer, qwen_tokenizer, smolvlm_tokenizer

SIDE, PATCH = 56, 14
PATCHES = (SIDE // PATCH) ** 2


def _colpali(folder: Path) -> tuple[Any, Any]:
    from colpali_engine.models import ColPali, ColPaliProcessor
    from transformers import PaliGemmaConfig, SiglipImageProcessor

    pixels = SiglipImageProcessor(size={"height": SIDE, "width": SIDE})
    pixels.image_seq_length = PATCHES
    processor = ColPaliProcessor(image_processor=pixels, tokenizer=gemma_tokenizer(folder))
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1}
    tower = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = tower | ids | {"model_type": "gemma", "vocab_size": len(processor.tokenizer), "num_key_value_heads": 1}
    text |= {"head_dim": 16, "num_image_tokens": PATCHES, "max_position_embeddings": 256}
    vision = tower | {"model_type": "siglip_vision_model", "image_size": SIDE, "patch_size": PATCH}
    vision |= {"projection_dim": 32, "num_image_tokens": PATCHES, "vision_use_head": False}
    config = PaliGemmaConfig(
        image_token_index=processor.image_token_id,
        projection_dim=32,
        hidden_size=32,
        **ids,
        text_config=text,
        vision_config=vision,
    )
    return lively(ColPali(config)), processor


def build_colpali(folder: Path) -> None:
    """A whole ColPali, as colpali_engine saves it."""
    model, processor = _colpali(folder)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def build_colpali_lora(folder: Path, base: Path, *, base_name: str) -> None:
    """vidore/colpali-v1.3: a LoRA adapter without config.json, over vidore/colpaligemma-3b-pt-448-base."""
    import torch
    from peft import LoraConfig, get_peft_model

    model, processor = _colpali(base)
    model.save_pretrained(base)
    processor.save_pretrained(base)
    target = (
        r"(.*(model)(?!.*visual).*(down_proj|gate_proj|up_proj|k_proj|q_proj|v_proj|o_proj).*$|.*(custom_text_proj).*$)"
    )
    adapted = get_peft_model(model, LoraConfig(r=4, lora_alpha=4, target_modules=target, init_lora_weights="gaussian"))
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weights in adapted.named_parameters():
            if "lora_B" in name:
                weights.copy_(torch.randn_like(weights) * 0.3)
    adapted.save_pretrained(folder)
    processor.image_processor.save_pretrained(folder)
    processor.tokenizer.save_pretrained(folder)
    config = json.loads((folder / "adapter_config.json").read_text()) | {"base_model_name_or_path": base_name}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    (folder / "config.json").unlink(missing_ok=True)


def build_colqwen(folder: Path, *, version: str) -> None:
    """vidore/colqwen2-v1.0 (version ``2``) and vidore/colqwen2.5-v0.2 (version ``2_5``): pictures of any size."""
    import colpali_engine.models as col
    import transformers

    tokenizer = qwen_tokenizer(folder)
    special = {
        f"{kind}_token_id": tokenizer.convert_tokens_to_ids(f"<|{token}|>")
        for kind, token in (
            ("image", "image_pad"),
            ("video", "video_pad"),
            ("vision_start", "vision_start"),
            ("vision_end", "vision_end"),
        )
    }  # fmt: skip
    text: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
    }
    text |= {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 1024}
    text |= {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}}
    text |= {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    vision: dict[str, Any] = {"depth": 2, "hidden_size": 32, "num_heads": 2, "patch_size": 14, "spatial_merge_size": 2}
    vision |= {"temporal_patch_size": 2}
    if version == "2":
        vision |= {"embed_dim": 32, "mlp_ratio": 2}
        config = transformers.Qwen2VLConfig(text_config=text, vision_config=vision, **special)
        model, processor = col.ColQwen2(config), col.ColQwen2Processor
    else:
        vision |= {"intermediate_size": 64, "out_hidden_size": 32, "fullatt_block_indexes": [1], "window_size": 56}
        config = transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **special)
        model, processor = col.ColQwen2_5(config), col.ColQwen2_5_Processor
    lively(model).save_pretrained(folder)
    processor(
        image_processor=transformers.Qwen2VLImageProcessor(min_pixels=56 * 56, max_pixels=28 * 28 * 16),
        tokenizer=tokenizer,
        video_processor=transformers.Qwen2VLVideoProcessor(),
    ).save_pretrained(folder)


def build_colsmol(folder: Path) -> None:
    """vidore/colSmol-256M: Idefics3 (SmolVLM), pictures cut into tiles."""
    from colpali_engine.models import ColIdefics3, ColIdefics3Processor
    from transformers import Idefics3Config, Idefics3ImageProcessor

    tokenizer = smolvlm_tokenizer(folder)
    image = tokenizer.convert_tokens_to_ids("<image>")
    tower = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = tower | {"model_type": "llama", "vocab_size": len(tokenizer), "num_key_value_heads": 1, "pad_token_id": 0}
    config = Idefics3Config(
        image_token_id=image,
        scale_factor=2,
        pad_token_id=0,
        text_config=text | {"max_position_embeddings": 1024, "head_dim": 16},
        vision_config=tower | {"image_size": SIDE, "patch_size": PATCH},
    )
    lively(ColIdefics3(config)).save_pretrained(folder)
    edge = {"longest_edge": SIDE}
    pixels = Idefics3ImageProcessor(size={"longest_edge": 2 * SIDE}, max_image_size=edge, do_image_splitting=True)
    ColIdefics3Processor(image_processor=pixels, tokenizer=tokenizer, image_seq_len=4).save_pretrained(folder)
