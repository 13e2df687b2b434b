"""jina-clip, uform and COCO-SM's modules in miniature."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.encoders.families.clip import lively
from tests.encoders.families.openclip import OPENAI
from tests.encoders.families.vocabulary import bert_tokenizer, plain_unigram

REMOTE_CODE = Path(__file__).with_name("jina_remote_code")
CODE, TOWER = "jinaai/jina-clip-implementation", "jinaai/jina-bert-flash-implementation"


def build_jina(folder: Path, code: Path, tower: Path, *, dim: int = 32, tower_name: str = TOWER) -> None:
    """jinaai/jina-clip-v1: weights here, code in a second repository, the text tower's configuration in a third."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModel, BertConfig

    from capim.tasks.encoders.adapters.jina import restore_clip_loss

    restore_clip_loss()
    for file in REMOTE_CODE.glob("*.txt"):  # named .txt here, so that no tool takes it for code of ours
        shutil.copy(file, code / f"{file.stem}.py")
    tokenizer = bert_tokenizer(folder)
    BertConfig(
        vocab_size=len(tokenizer), hidden_size=dim, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=512, pad_token_id=0,
    ).save_pretrained(tower)  # fmt: skip
    text: dict[str, Any] = {"embed_dim": dim, "model_type": "jina_clip_text", "pooler_type": "mean_pooler"}
    vision = {"embed_dim": dim, "width": 32, "image_size": 32, "patch_size": 16, "layers": 2, "head_width": 16}
    config: dict[str, Any] = {"model_type": "jina_clip", "architectures": ["JinaCLIPModel"], "torch_dtype": "float32"}
    config |= {"projection_dim": dim, "logit_scale_init_value": 2.6592, "vision_config": vision}

    def write(where: Path, prefix: str, text_tower: str) -> None:
        names = {"AutoConfig": "configuration_clip.JinaCLIPConfig", "AutoModel": "modeling_clip.JinaCLIPModel"}
        whole: dict[str, Any] = config | {"auto_map": {kind: prefix + name for kind, name in names.items()}}
        whole["text_config"] = text | {"hf_model_name_or_path": text_tower}
        (where / "config.json").write_text(json.dumps(whole))
        pixels: dict[str, Any] = {"auto_map": {"AutoImageProcessor": prefix + "processing_clip.JinaCLIPImageProcessor"}}
        pixels |= {"image_processor_type": "JinaCLIPImageProcessor", "size": 32, "resize_mode": "shortest", **OPENAI}
        (where / "preprocessor_config.json").write_text(json.dumps(pixels))

    whole = folder.with_name(f"{folder.name}-whole")
    shutil.copytree(code, whole)
    write(whole, "", str(tower))
    model = AutoModel.from_config(AutoConfig.from_pretrained(whole, trust_remote_code=True), trust_remote_code=True)
    torch.manual_seed(0)
    tensors = {name: tensor.clone().contiguous() for name, tensor in lively(model).state_dict().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    write(folder, f"{CODE}--", tower_name)


def build_uform(folder: Path, *, version: int, dim: int = 16) -> None:
    """unum-cloud/uform-vl-multilingual-v2 (one pickle of two towers) and the layout of version 3 (one file each)."""
    import torch
    from uform.torch_encoders import ImageEncoder, TextEncoder

    text = {"model_type": "bert", "dim": 24, "context_dim": 32, "vocab_size": plain_unigram(folder), "padding_idx": 1}
    text |= {"num_layers": 3, "num_heads": 2, "embedding_dim": dim, "multimodal_layers_ids": [2], "pooling": "mean"}
    text |= {"head_one_neuron": False, "max_position_embeddings": 50, "dropout_prob": 0.1}
    image: dict[str, Any] = {"dim": 32, "patch_size": 16, "image_size": 64, "num_layers": 2, "num_heads": 2}
    image |= {"embedding_dim": dim, "pooling": "cls"}
    torch.manual_seed(0)
    towers = {"text_encoder": lively(TextEncoder(**text)), "image_encoder": lively(ImageEncoder(**image))}
    if version == 2:
        (folder / "torch_config.json").write_text(json.dumps({"text_encoder": text, "image_encoder": image}))
        # the real file holds Parameters
        state = {name: dict(tower.named_parameters()) for name, tower in towers.items()}
        torch.save(state, folder / "torch_weight.pt")
        return
    image |= {"normalization_means": OPENAI["mean"], "normalization_deviations": OPENAI["std"]}
    (folder / "config.json").write_text(json.dumps({"text_encoder": text, "image_encoder": image}))
    for name, tower in towers.items():
        torch.save(tower.state_dict(), folder / f"{name}.pt")


COCO_SM_MODULE = """\
import open_clip
import torch

MODEL = "local-dir:{folder}"


def image_forward_fn(model, images, device, transform):
    images = torch.stack([transform(image) for image in images]).to(device)
    return model.encode_image(images)


def text_forward_fn(model, texts, device, transform):
    return model.encode_text(transform(texts).to(device))


embedding_dim = 32
model, image_preprocess = open_clip.create_model_from_pretrained(MODEL)
text_preprocess = open_clip.get_tokenizer(MODEL)
"""


def build_coco_sm_module(file: Path, open_clip_folder: Path) -> None:
    """A model file as COCO-SM's README describes it, over an open_clip folder."""
    file.write_text(COCO_SM_MODULE.format(folder=open_clip_folder))
