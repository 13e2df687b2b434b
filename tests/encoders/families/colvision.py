"""colpali_engine's models in miniature: a language model that sees, with a projection of every token or none.

``kind`` is ``Col`` for one vector per token and patch, ``Bi`` for one vector per item.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.encoders.families import later as transformers
from tests.encoders.families.clip import PATCH, SIDE, TOWER, lively
from tests.encoders.families.vocabulary import WORDS, gemma3_tokenizer, qwen_tokenizer, smolvlm_tokenizer


def colpali(folder: Path, name: str = "ColPali") -> tuple[Any, Any]:
    import colpali_engine.models as col

    from tests.tiny_models.train import colpali_config

    config, processor = colpali_config(folder, WORDS, SIDE, layers=2, width=TOWER["hidden_size"], patch=PATCH)
    return lively(getattr(col, name)(config)), processor


def build_colpali(folder: Path, *, name: str = "ColPali") -> None:
    """A whole ColPali, BiPali or BiPaliProj, as colpali_engine saves it."""
    _save(folder, *colpali(folder, name))


def _save(folder: Path, model: Any, processor: Any) -> None:
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def build_lora(
    folder: Path, base: Path, make: Callable[[Path], tuple[Any, Any]], *, base_name: str, parts: bool = False
) -> None:
    """A LoRA adapter over a model and its processor, which are saved as its base.

    ``parts``: the processor is saved as two, as before transformers had a file for it.
    """
    import torch
    from peft import LoraConfig, get_peft_model

    model, processor = make(base)
    _save(base, model, processor)
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
    for part in (processor.image_processor, processor.tokenizer) if parts else (processor,):
        part.save_pretrained(folder)
    config = json.loads((folder / "adapter_config.json").read_text()) | {"base_model_name_or_path": base_name}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    (folder / "config.json").unlink(missing_ok=True)


def qwen(folder: Path, *, version: str, kind: str = "Col", dim: int = 32) -> tuple[Any, Any]:
    """ColQwen2, 2.5, 3 and 3.5 (versions ``2``, ``2_5``, ``3``, ``3_5``) and their Bi forms: pictures of any size."""
    import colpali_engine.models as col

    tokenizer = qwen_tokenizer(folder)
    model = lively(getattr(col, f"{kind}Qwen{version}")(qwen_config(version, tokenizer, dim=dim)))
    of = getattr(col, f"{kind}Qwen{version}{'_' if version == '2_5' else ''}Processor")
    video = transformers.Qwen2VLVideoProcessor()
    return model, of(image_processor=qwen_pixels(), tokenizer=tokenizer, video_processor=video)


def build_qwen(folder: Path, **which: Any) -> None:
    """A whole model of :func:`qwen`."""
    _save(folder, *qwen(folder, **which))


def qwen_pixels() -> Any:
    """Qwen's image processor for few patches."""

    return transformers.Qwen2VLImageProcessor(min_pixels=56 * 56, max_pixels=28 * 28 * 16)


def qwen_config(version: str, tokenizer: Any, *, dim: int = 32) -> Any:
    """The configuration of a language model that sees, as in :func:`build_qwen`."""
    names = ("image_pad", "video_pad", "vision_start", "vision_end")
    special = {
        f"{name.removesuffix('_pad')}_token_id": tokenizer.convert_tokens_to_ids(f"<|{name}|>") for name in names
    }
    ids = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    text = TOWER | ids | {"vocab_size": len(tokenizer), "num_key_value_heads": 1, "max_position_embeddings": 1024}
    text |= {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}}
    vision: dict[str, Any] = {"depth": 2, "hidden_size": 32, "num_heads": 2, "patch_size": 14, "spatial_merge_size": 2}
    vision |= {"temporal_patch_size": 2, "intermediate_size": 64, "out_hidden_size": dim}
    text |= {"hidden_size": dim, "num_attention_heads": 2 if version.startswith("3") else dim // 16}
    if version == "2":
        vision |= {"embed_dim": 32, "mlp_ratio": 2, "hidden_size": dim}
        return transformers.Qwen2VLConfig(text_config=text, vision_config=vision, **special)
    if version == "2_5":
        vision |= {"fullatt_block_indexes": [1], "window_size": 56}
        return transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **special)
    text |= {"head_dim": 16}
    vision |= {"num_position_embeddings": 16}
    if version == "3":
        vision |= {"deepstack_visual_indexes": [0]}
        return transformers.Qwen3VLConfig(text_config=text, vision_config=vision, **special)
    text |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2}
    text |= {"linear_num_value_heads": 2, "layer_types": ["linear_attention", "full_attention"]}
    return transformers.Qwen3_5Config(text_config=text, vision_config=vision, **special)


def idefics(folder: Path) -> tuple[Any, Any]:
    """vidore/colSmol-256M: Idefics3 (SmolVLM), pictures cut into tiles."""
    import colpali_engine.models as col

    tokenizer = smolvlm_tokenizer(folder)
    text = TOWER | {"model_type": "llama", "vocab_size": len(tokenizer), "num_key_value_heads": 1, "pad_token_id": 0}
    config = transformers.Idefics3Config(
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=0,
        text_config=text | {"max_position_embeddings": 1024, "head_dim": 16},
        vision_config=TOWER | {"image_size": SIDE, "patch_size": PATCH},
    )
    return lively(col.ColIdefics3(config)), _tiled(col.ColIdefics3Processor, tokenizer)


def build_idefics(folder: Path) -> None:
    """A whole model of :func:`idefics`."""
    _save(folder, *idefics(folder))


def build_modernvbert(folder: Path, *, kind: str = "Col", dim: int = 32) -> None:
    """ModernVBERT/colmodernvbert: ModernBERT, which reads in both directions, with Idefics3's tiles."""
    import colpali_engine.models as col

    tokenizer = smolvlm_tokenizer(folder)
    ids = {f"{name}_token_id": 0 for name in ("pad", "bos", "eos", "cls", "sep")}
    text = TOWER | ids | {"hidden_size": dim, "model_type": "modernbert", "vocab_size": len(tokenizer)}
    text |= {"max_position_embeddings": 1024}
    vision = TOWER | {"model_type": "siglip_vision_model", "image_size": SIDE, "patch_size": PATCH}
    config = transformers.ModernVBertConfig(
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        pixel_shuffle_factor=2,
        text_config=text,
        vision_config=vision | {"vision_use_head": False},
    )
    model = getattr(col, f"{kind}ModernVBert")(config)
    _save(folder, lively(model), _tiled(getattr(col, f"{kind}ModernVBertProcessor"), tokenizer))


def _tiled(processor: Any, tokenizer: Any) -> Any:
    edge = {"longest_edge": SIDE}
    pixels = transformers.Idefics3ImageProcessor(
        size={"longest_edge": 2 * SIDE}, max_image_size=edge, do_image_splitting=True
    )
    return processor(image_processor=pixels, tokenizer=tokenizer, image_seq_len=4)


def build_gemma3(folder: Path) -> None:
    """ColGemma3: items in the turns of a conversation, images of one size."""
    import colpali_engine.models as col

    tokenizer = gemma3_tokenizer(folder)
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1}
    text = TOWER | ids | {"vocab_size": len(tokenizer), "num_key_value_heads": 1, "head_dim": 16}
    text |= {"max_position_embeddings": 1024, "query_pre_attn_scalar": 16, "sliding_window": 512}
    config = transformers.Gemma3Config(
        text_config=text,
        vision_config=TOWER | {"image_size": SIDE, "patch_size": PATCH, "vision_use_head": False},
        mm_tokens_per_image=4,
        boi_token_index=tokenizer.convert_tokens_to_ids("<start_of_image>"),
        eoi_token_index=tokenizer.convert_tokens_to_ids("<end_of_image>"),
        image_token_index=tokenizer.convert_tokens_to_ids("<image_soft_token>"),
    )
    lively(col.ColGemma3(config)).save_pretrained(folder)
    pixels = transformers.Gemma3ImageProcessor(size={"height": SIDE, "width": SIDE}, image_seq_length=4)
    processor = col.ColGemmaProcessor3(image_processor=pixels, tokenizer=tokenizer, image_seq_length=4)
    processor.save_pretrained(folder)
