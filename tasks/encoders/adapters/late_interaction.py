"""The late-interaction families of colpali_engine: how each is loaded, and how it takes a caption as a query.

Read without colpali_engine and torch, so that a spec can be resolved without loading a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

AUGMENTATION_TOKENS = 10  # that colpali_engine's process_queries puts after a query


@dataclass(frozen=True, kw_only=True)
class LateInteractionFamily:
    """How colpali_engine loads and runs one architecture.

    Attributes:
        model: Class of the model.
        processor: Class of its processor.
        augmentation: The token that ``process_queries`` repeats after a query; None: the tokenizer's padding token.
        projection: The layer whose outputs are the vectors, not yet normalised.
        joins_images: All images give tensors of one shape.
        prefix_attention: Captions need ``token_type_ids`` of zeros: without them PaliGemma attends causally when
            there is padding and in both directions when there is none, and a caption's vectors would depend on its
            neighbours.
        language_head: The model computes logits, of which one row is enough: the vocabulary has 257,216 entries.
        padding: Side on which captions are padded.
    """

    model: str
    processor: str
    augmentation: str | None
    projection: str = "custom_text_proj"
    joins_images: bool = False
    prefix_attention: bool = False
    language_head: bool = False
    padding: Literal["left", "right"] = "left"

    def query_template(self, tokenizer: Mapping[str, Any]) -> str:
        """What ``process_queries`` of colpali_engine, from 0.3.11 on, makes of ``{caption}``.

        No family here has a query prefix. ``tokenizer`` is the contents of ``tokenizer_config.json``.

        Examples:
            >>> FAMILIES["paligemma"].query_template({"pad_token": "<pad>"}).count("<pad>")
            10
        """
        token = self.augmentation or tokenizer.get("pad_token") or "<pad>"
        text = str(token["content"] if isinstance(token, Mapping) else token)
        return "{caption}" + text * AUGMENTATION_TOKENS


FAMILIES: dict[str, LateInteractionFamily] = {
    "paligemma": LateInteractionFamily(
        model="ColPali",
        processor="ColPaliProcessor",
        augmentation=None,
        joins_images=True,
        prefix_attention=True,
        language_head=True,
        padding="right",
    ),
    "qwen2_vl": LateInteractionFamily(model="ColQwen2", processor="ColQwen2Processor", augmentation="<|endoftext|>"),
    "qwen2_5_vl": LateInteractionFamily(
        model="ColQwen2_5", processor="ColQwen2_5_Processor", augmentation="<|endoftext|>"
    ),
    "idefics3": LateInteractionFamily(
        model="ColIdefics3",
        processor="ColIdefics3Processor",
        augmentation="<end_of_utterance>",
        projection="linear",
    ),  # ColSmol
}
