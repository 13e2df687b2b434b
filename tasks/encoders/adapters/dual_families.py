"""The dual encoders of transformers: how each architecture takes its captions. Read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class DualEncoderFamily:
    """How one architecture takes its captions.

    Attributes:
        padding: ``longest``: to the longest caption of the batch, because the model ignores padding. ``fixed``: always
            to the model's length, because it was trained to see the padding.
        mask: True if the attention mask is passed. SigLIP was trained without one, and passing it changes its vectors.
        lower_case: True if captions are lower-cased as in training; not every tokenizer does it.
        max_length: Tokens, where the text tower has more positions than the model was trained with.
    """

    padding: Literal["longest", "fixed"]
    mask: bool
    lower_case: bool = False
    max_length: int | None = None


FAMILIES: dict[str, DualEncoderFamily] = {
    # also MetaCLIP 1; attention is causal, so that padding after the end of a caption cannot reach it, masked or not
    "clip": DualEncoderFamily(padding="longest", mask=False),
    "metaclip_2": DualEncoderFamily(padding="longest", mask=False),
    # https://huggingface.co/docs/transformers/model_doc/siglip: trained with padding="max_length", no mask
    "siglip": DualEncoderFamily(padding="fixed", mask=False, lower_case=True),  # also SigLIP 2 at fixed resolution
    "siglip2": DualEncoderFamily(padding="fixed", mask=False, lower_case=True),  # SigLIP 2 NaFlex
    "tipsv2": DualEncoderFamily(padding="fixed", mask=True),  # Tipsv2Processor; its tokenizer lower-cases
    "altclip": DualEncoderFamily(padding="longest", mask=True, max_length=77),
    # context_length of cn_clip.tokenize
    "chinese_clip": DualEncoderFamily(padding="longest", mask=True, max_length=52),
}
