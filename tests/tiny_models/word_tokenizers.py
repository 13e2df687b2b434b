"""Tokenizers in CLIP's and Gemma's own formats in which every word of the shapes world is one token.

Nothing is trained: merges are written down word by word, left to right, so the files are the same bytes in every
run. (Trained BPE, WordPiece and sentencepiece vocabularies differ from process to process.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

if TYPE_CHECKING:
    from transformers import CLIPTokenizer

_PIECE = re.compile(r"[^\W_]+|[^\w\s]")
_UNKNOWN = "<unk>"
_GEMMA_WORDS = ("Describe", "the", "image", ".", "\n", "Query:", "Question:")  # what ColPali's prompts say


def words_of(captions: Iterable[str]) -> list[str]:
    """The distinct words and punctuation marks of the captions, sorted.

    Examples:
        >>> words_of(["two shapes: a star", "a star"])
        [':', 'a', 'shapes', 'star', 'two']
    """
    return sorted({piece for caption in captions for piece in _PIECE.findall(caption)})


def clip_tokenizer(words: Sequence[str], *, max_length: int) -> CLIPTokenizer:
    """CLIP's byte-level BPE with ``</w>``; ids in CLIP's order: bytes, bytes at a word's end, merges, specials."""
    from transformers import CLIPTokenizer

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    spelled = []
    for word in sorted({word.lower() for word in words}):
        symbols = list("".join(piece for piece, _ in to_bytes.pre_tokenize_str(word)))
        spelled.append([*symbols[:-1], symbols[-1] + "</w>"])
    merges = merges_of(spelled)
    tokens = [*alphabet, *(a + "</w>" for a in alphabet), *(a + b for a, b in merges)]
    return CLIPTokenizer(
        vocab=numbered([*tokens, "<|startoftext|>", "<|endoftext|>"]), merges=merges, model_max_length=max_length
    )


def write_gemma_tokenizer(words: Sequence[str], folder: Path, extra: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Gemma's BPE with byte fallback, as ``tokenizer.json`` and ``tokenizer_config.json`` in a folder.

    ``extra`` is added to the configuration.
    """
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces = sorted({*words, *_GEMMA_WORDS})
    letters = "▁abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'?!"
    merges = merges_of([list(f"▁{piece}") for piece in pieces] + [list(piece) for piece in pieces])
    characters = sorted({*letters, *(character for piece in pieces for character in piece)})
    vocab = numbered([*specials, *characters, *(a + b for a, b in merges)])
    model = models.BPE(vocab=vocab, merges=merges, unk_token=_UNKNOWN, byte_fallback=True, fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<image>", *extra.get("additional_special_tokens", [])]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "add_bos_token": True,
        "add_eos_token": False,
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "additional_special_tokens": ["<image>"],
        "model_max_length": 8192,
        "processor_class": "PaliGemmaProcessor",
        "tokenizer_class": "GemmaTokenizer",
        "padding_side": "right",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config | dict(extra), indent=2))


def merges_of(spelled: Iterable[Sequence[str]]) -> list[tuple[str, str]]:
    """Merges that make each symbol list one token: known merges first, as BPE will; else the leftmost pair.

    Examples:
        >>> merges_of([["a", "b", "c"], ["b", "c"]])
        [('a', 'b'), ('ab', 'c'), ('b', 'c')]
    """
    ranks: dict[tuple[str, str], int] = {}
    for word in spelled:
        symbols = list(word)
        while len(symbols) > 1:
            pairs = list(pairwise(symbols))
            at = min(range(len(pairs)), key=lambda i: (ranks.get(pairs[i], len(ranks)), i))
            ranks.setdefault(pairs[at], len(ranks))
            symbols[at : at + 2] = ["".join(pairs[at])]
    return list(ranks)


def numbered(tokens: Iterable[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}
