"""Real tokenizers with a few hundred entries, in the formats of the real ones; the same in every process."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

from tests.encoders.families import later as transformers
from tests.tiny_models import word_tokenizers
from tests.tiny_models.word_tokenizers import merges_of, numbered

COLOURS = ("red", "blue", "green", "yellow", "purple")
SHAPES = ("circle", "square", "triangle")
RELATIONS = ("left of", "to the right of", "above", "below", "next to")
TEXTS = [
    f"{article} {c1} {s1} {relation} {article} {c2} {s2}"
    for article, c1, s1, relation, c2, s2 in product(("a", "the", "one"), COLOURS, SHAPES, RELATIONS, COLOURS, SHAPES)
] + ["un cercle rouge a gauche de un carre bleu", "ein roter Kreis links von einem blauen Quadrat"]
WORDS = sorted({word for text in TEXTS for word in text.split()})
_GEMMA3_CHAT = (
    "{{ bos_token }}{% for message in messages %}<start_of_turn>{{ message['role'] }}\n"
    "{% for item in message['content'] %}{% if item['type'] == 'image' %}<start_of_image>"
    "{% else %}{{ item['text'] | trim }}{% endif %}{% endfor %}<end_of_turn>\n{% endfor %}"
)
_QWEN_CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for item in message['content'] %}{% if item['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ item['text'] }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def clip_tokenizer(max_length: int = 77) -> Any:
    """Byte-level BPE as CLIP's: bytes, bytes with ``</w>``, merges, then the two special tokens."""
    return word_tokenizers.clip_tokenizer(WORDS, max_length=max_length)


def gemma_tokenizer(folder: Path, **extra: Any) -> Any:
    """Gemma's form: BPE over pieces that begin with ``▁``, bytes for the rest."""
    word_tokenizers.write_gemma_tokenizer(WORDS, folder, extra)
    return transformers.AutoTokenizer.from_pretrained(folder)


def gemma3_tokenizer(folder: Path) -> Any:
    """Gemma 3's form: Gemma's with tokens for turns and images, and a chat template."""
    images = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
    extra: dict[str, Any] = images | {"padding_side": "left", "chat_template": _GEMMA3_CHAT}
    extra["additional_special_tokens"] = [*images.values(), "<start_of_turn>", "<end_of_turn>"]
    return gemma_tokenizer(folder, **extra)


def xlm_roberta_tokenizer(folder: Path) -> Any:
    """XLM-R's form: Unigram, ``<s>``, ``<pad>``, ``</s>``, ``<unk>`` as the first four ids."""
    config: dict[str, Any] = {"tokenizer_class": "XLMRobertaTokenizer", "model_max_length": 512, "bos_token": "<s>"}
    config |= {"eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>"}
    config |= {"unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"}
    return _saved(_unigram(), folder, config)


def bert_tokenizer(folder: Path) -> Any:
    """BERT's form: WordPiece, lower-casing, with vocab.txt."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    letters = [chr(i) for i in range(33, 127) if not chr(i).isupper()]
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters, *(f"##{letter}" for letter in letters)]
    vocabulary = numbered(entries)
    tokenizer = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512, "pad_token": "[PAD]"}
    config |= {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    return _saved(tokenizer, folder, config)


def siglip_tokenizer(folder: Path) -> Any:
    """SigLIP's form: a real spiece.model, ``</s>`` also for padding, no attention mask."""
    import sentencepiece
    from transformers import SiglipTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_prefix=str(folder / "spiece"), vocab_size=320, model_type="unigram",
        character_coverage=1.0, hard_vocab_limit=False, minloglevel=2, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
    )  # fmt: skip
    (folder / "spiece.vocab").unlink()
    return SiglipTokenizer(str(folder / "spiece.model"), model_max_length=64)


def qwen_tokenizer(folder: Path) -> Any:
    """Qwen2's form: byte-level BPE with a chat template, padded on the left with ``<|endoftext|>``."""
    names = ("endoftext", "im_start", "im_end", "vision_start", "vision_end", "vision_pad", "image_pad", "video_pad")
    config: dict[str, Any] = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>"}
    config |= {"pad_token": "<|endoftext|>", "padding_side": "left"}
    config |= {"model_max_length": 32768, "chat_template": _QWEN_CHAT}
    return _saved(_byte_level([f"<|{name}|>" for name in names]), folder, config)


def smolvlm_tokenizer(folder: Path) -> Any:
    """SmolVLM's form: byte-level BPE with tokens for pictures and their tiles."""
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<fake_token_around_image>", "<global-img>"]
    names += ["<end_of_utterance>", *(f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7))]
    config: dict[str, Any] = {"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"}
    config |= {"bos_token": "<|im_start|>", "unk_token": "<|endoftext|>", "model_max_length": 8192}
    return _saved(_byte_level(names), folder, config)


def _byte_level(special: list[str]) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    merges = merges_of([list(word) for word in WORDS] + [["Ġ", *word] for word in WORDS])
    entries = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(a + b for a, b in merges)]
    vocabulary = numbered(entries)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    return tokenizer


def plain_unigram(folder: Path) -> int:
    """uform's form: one tokenizer.json and nothing else; returns how many entries it has."""
    tokenizer = _unigram()
    tokenizer.save(str(folder / "tokenizer.json"))
    return int(tokenizer.get_vocab_size())


def _unigram() -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    letters = [chr(i) for i in range(33, 127)]
    pieces = [(f"▁{word}", -3.0) for word in WORDS] + [(letter, -9.0) for letter in ("▁", *letters)]
    special = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    tokenizer = Tokenizer(models.Unigram([*special, *pieces], unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


def _saved(tokenizer: Any, folder: Path, config: dict[str, Any]) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return transformers.AutoTokenizer.from_pretrained(folder)
