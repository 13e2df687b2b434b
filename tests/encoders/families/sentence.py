"""sentence-transformers folders in miniature, as its version 6 saves them, and what it reads without one."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from capim.store.types import EncoderSpec
from tests.encoders.families import later as transformers
from tests.encoders.families.clip import TOWER, build_clip, lively
from tests.encoders.families.colvision import qwen_config, qwen_pixels
from tests.encoders.families.vocabulary import bert_tokenizer, qwen_tokenizer

PROMPTS = {"query": "Find the image of this text.", "document": "Represent the image."}


def build_clip_module(folder: Path) -> None:
    """sentence-transformers/clip-ViT-B-32: modules.json and a transformers CLIP in 0_CLIPModel."""
    build_clip(folder / "0_CLIPModel")
    modules = [{"idx": 0, "name": "0", "path": "0_CLIPModel", "type": "sentence_transformers.models.CLIPModel"}]
    (folder / "modules.json").write_text(json.dumps(modules))


def build_single(folder: Path, *, dim: int = 32) -> None:
    """Qwen/Qwen3-VL-Embedding-2B: prompts as a system message, the last token's vector."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.sentence_transformer.modules import Pooling

    modules = [_qwen3_vl(dim), Pooling(dim, pooling_mode="lasttoken"), Normalize()]
    SentenceTransformer(modules=modules, prompts=PROMPTS, device="cpu").save_pretrained(str(folder))


def build_multi(folder: Path, *, dim: int = 16) -> None:
    """A ``MultiVectorEncoder`` with a projection of its own and prompts."""
    import torch
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    torch.manual_seed(0)
    project = Dense(32, dim, bias=False, activation_function=torch.nn.Identity(), module_input_name="token_embeddings")
    modules = [_qwen3_vl(), project, MultiVectorMask(), Normalize(module_input_name="token_embeddings")]
    MultiVectorEncoder(modules=modules, prompts=PROMPTS, device="cpu").save_pretrained(str(folder))


def build_for_retrieval(folder: Path) -> None:
    """vidore/colqwen2-v1.0-hf: ColQwen2 as transformers has it, without any file of sentence-transformers."""

    tokenizer = qwen_tokenizer(folder)
    tokenizer.model_max_length = 512  # where captions are truncated
    lively(
        transformers.ColQwen2ForRetrieval(transformers.ColQwen2Config(vlm_config=qwen_config("2", tokenizer)))
    ).save_pretrained(folder)
    transformers.ColQwen2Processor(image_processor=qwen_pixels(), tokenizer=tokenizer).save_pretrained(folder)


def _qwen3_vl(dim: int = 32) -> Any:
    """The module that reads text and images, in a folder of its own until it is saved again."""
    from sentence_transformers.base.modules import Transformer

    with TemporaryDirectory() as name:
        tokenizer = qwen_tokenizer(Path(name))
        tokenizer.model_max_length = 512
        model = lively(transformers.Qwen3VLModel(qwen_config("3", tokenizer, dim=dim)))
        model.save_pretrained(name)
        transformers.Qwen3VLProcessor(
            image_processor=qwen_pixels(),
            tokenizer=tokenizer,
            video_processor=transformers.Qwen3VLVideoProcessor(),
            chat_template=tokenizer.chat_template,
        ).save_pretrained(name)
        return Transformer(name)


def small_bert(folder: Path) -> Any:
    """A module of a BERT that reads text, in its folder."""
    from sentence_transformers.models import Transformer

    tokenizer = bert_tokenizer(folder)
    transformers.BertModel(transformers.BertConfig(vocab_size=len(tokenizer), **TOWER)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Transformer(str(folder))


def text_model(folder: Path, *modules: Any) -> EncoderSpec:
    """The spec of a sentence-transformers model of these modules, saved to a folder."""
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(modules=list(modules), device="cpu").save(str(folder))
    return EncoderSpec(name="t", adapter="sentence_transformers", checkpoint=str(folder), dim=32)
