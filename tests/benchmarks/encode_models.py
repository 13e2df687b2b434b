"""Checkpoints with random weights, in the sizes of real models and with CLIP's tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES = {"ViT-B/32": ((224, 32, 768, 12), (512, 12)), "ViT-L/14-336": ((336, 14, 1024, 24), (768, 12))}
"""Of real models: (side, patch, width, layers) of the image tower, (width, layers) of the text tower."""


def products_alone(model: Any, n_tokens: int, device: str) -> Callable[[], None]:
    """Every linear layer of a model applied to as many tokens, a thousand at a time, in place of the whole model."""
    import torch

    layers = [module.to(device) for module in model.modules() if isinstance(module, torch.nn.Linear)]
    pieces = [min(1024, n_tokens - start) for start in range(0, n_tokens, 1024)]
    widths = {layer.in_features for layer in layers}
    tokens = {(n, width): torch.randn(n, width, device=device) for n in set(pieces) for width in widths}

    def run() -> None:
        with torch.inference_mode():
            for n in pieces:
                for layer in layers:
                    layer(tokens[n, layer.in_features])

    return run


def write_clip(folder: Path, *, vision: tuple[int, int, int, int], text: tuple[int, int], device: str = "cpu") -> None:
    """A transformers CLIP: (side, patch, width, layers) and (width, layers), 512 dimensions.

    ``device`` draws the weights.
    """
    import torch
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    side, patch, width, layers = vision
    tokenizer = real_clip_tokenizer()
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    config = CLIPConfig(
        projection_dim=512,
        text_config=ids | {
            "vocab_size": len(tokenizer), "hidden_size": text[0], "intermediate_size": 4 * text[0],
            "num_hidden_layers": text[1], "num_attention_heads": text[0] // 64, "max_position_embeddings": 77,
        },
        vision_config={
            "hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": layers,
            "num_attention_heads": max(1, width // 64), "image_size": side, "patch_size": patch,
        },
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        model = CLIPModel(config)
    model.cpu().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    crop = {"height": side, "width": side}
    CLIPImageProcessor(size={"shortest_edge": side}, crop_size=crop).save_pretrained(folder)


def write_minilm(folder: Path) -> None:
    """A sentence-transformers model of the size of all-MiniLM-L6-v2, with CLIP's tokenizer."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel

    tokenizer = real_clip_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    modules = [Transformer(str(folder / "bert"), max_seq_length=256), Pooling(384)]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder))


def real_clip_tokenizer() -> Any:
    """CLIP's own 49,408 entries, from the copy that comes with open_clip: captions have their true lengths."""
    from open_clip.tokenizer import SimpleTokenizer
    from transformers import CLIPTokenizer

    source = SimpleTokenizer()
    names = {"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}
    vocabulary = {names.get(entry, entry): i for entry, i in source.encoder.items()}
    return CLIPTokenizer(vocab=vocabulary, merges=list(source.bpe_ranks), model_max_length=77)
