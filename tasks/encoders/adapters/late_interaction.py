"""The families of colpali_engine: how each is loaded, and how it encodes captions as queries and images as documents.

Read without colpali_engine and torch, so that a spec can be resolved without loading a model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isqrt
from typing import Any, Literal

from capim.store.types import Modality, VectorKind
from capim.store.vectors import UNKNOWN, PatchGrid, layout_of_grids, layout_of_tokens

AUGMENTATION_TOKENS = 10  # that colpali_engine's process_queries puts after a query
# prefix of the class names of colpali_engine, by the kind of vectors
KINDS: dict[VectorKind, str] = {"multi": "Col", "single": "Bi"}
_QWEN_IMAGE = "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Describe the image.<|im_end|><|endoftext|>"


@dataclass(frozen=True, kw_only=True)
class LateInteractionFamily:
    """Settings of colpali_engine to load and run one architecture.

    Attributes:
        name: Name of its models, after ``Col`` (one vector per token and patch) or ``Bi`` (one vector per item).
        processor: Class of the processor of both; that of the ``Bi`` model differs in scoring only.
        augmentation: The token that ``process_queries`` repeats after a query; None: the tokenizer's padding token.
        image_prompt: The text that is given to the model with every image.
        query_prefix: The text before every query.
        augmented: Kinds of models for which ``process_queries`` repeats the token after a query.
        chat: True if items are turns of a conversation, in the tokenizer's chat template.
        projection: The layer of the ``Col`` model with the vectors as outputs, not yet normalised.
        joins_images: True if all images have tensors of one shape.
        prefix_attention: True if captions need ``token_type_ids`` of zeros: without them PaliGemma attends causally
            with padding and in both directions without it, and a caption's vectors would depend on its neighbours.
        language_head: True if the model computes logits; one row of them is enough, as the vocabulary has 257,216
            entries.
        padding: Side on which captions are padded.
        dim: Components of a vector of the ``Col`` model, unless its configuration says otherwise.
    """

    name: str
    processor: str
    augmentation: str | None
    image_prompt: str
    query_prefix: str = ""
    augmented: tuple[VectorKind, ...] = ("multi", "single")
    chat: bool = False
    projection: str = "custom_text_proj"
    joins_images: bool = False
    prefix_attention: bool = False
    language_head: bool = False
    padding: Literal["left", "right"] = "left"
    dim: int = 128

    def query_template(self, tokenizer: Mapping[str, Any], vectors: VectorKind = "multi") -> str:
        """Return the output of colpali_engine's ``process_queries``, from 0.3.11 on, for ``{caption}``.

        For ColPali, 0.3.4 to 0.3.10 wrote ``Query: `` before it and a newline after it, 0.3.0 to 0.3.3 ``Question: ``.
        ``tokenizer`` is the contents of ``tokenizer_config.json``.

        Examples:
            >>> FAMILIES["paligemma"].query_template({"pad_token": "<pad>"}).count("<pad>")
            10
            >>> FAMILIES["gemma3"].query_template({})
            'Query: {caption}'
        """
        token = self.augmentation or tokenizer.get("pad_token") or "<pad>"
        text = str(token["content"] if isinstance(token, Mapping) else token)
        return self.query_prefix + "{caption}" + text * (AUGMENTATION_TOKENS if vectors in self.augmented else 0)


def _qwen(version: str, processor: str, dim: int = 128) -> LateInteractionFamily:
    return LateInteractionFamily(
        name=f"Qwen{version}", processor=processor, augmentation="<|endoftext|>", image_prompt=_QWEN_IMAGE, dim=dim
    )


# by the model_type of config.json; ColQwen2_5Omni is left out: it cannot be built with transformers 5
FAMILIES: dict[str, LateInteractionFamily] = {
    "paligemma": LateInteractionFamily(
        name="Pali",
        processor="ColPaliProcessor",
        augmentation=None,
        image_prompt="<image><bos>Describe the image.",
        joins_images=True,
        prefix_attention=True,
        language_head=True,
        padding="right",
    ),
    "qwen2_vl": _qwen("2", "ColQwen2Processor"),
    "qwen2_5_vl": _qwen("2_5", "ColQwen2_5_Processor"),
    "qwen3_vl": _qwen("3", "ColQwen3Processor", dim=320),
    "qwen3_5": _qwen("3_5", "ColQwen3_5Processor"),
    "idefics3": LateInteractionFamily(
        name="Idefics3",
        processor="ColIdefics3Processor",
        augmentation="<end_of_utterance>",
        image_prompt="<|im_start|>User:<image>Describe the image.<end_of_utterance>\nAssistant:",
        projection="linear",
    ),  # ColSmol
    "modernvbert": LateInteractionFamily(
        name="ModernVBert",
        processor="ColModernVBertProcessor",
        augmentation="<end_of_utterance>",
        image_prompt="<|begin_of_text|>User:<image>Describe the image.<end_of_utterance>\nAssistant:",
    ),
    "gemma3": LateInteractionFamily(
        name="Gemma3",
        processor="ColGemmaProcessor3",
        augmentation="<eos>",
        augmented=("single",),
        image_prompt="Describe this image",
        query_prefix="Query: ",
        chat=True,
        joins_images=True,
    ),
}


# --- The meaning of each vector of a late-interaction model, from the inputs of the model.
#
# The image tokens among the inputs represent patches, row by row. One run of them is one grid: of the image, of one
# tile if a row and a column are named before it (Idefics3, SmolVLM), or of the whole image next to its tiles.


_TILE = re.compile(r"row_(\d+)_col_(\d+)")


def layouts_of(
    modality: Modality, inputs: Any, kept: Any, *, tokenizer: Any, processor: Any, image_token: str
) -> tuple[str, ...]:
    """Return, for each caption, its tokens; for each image, its grids of patches.

    Args:
        modality: Kind of the items.
        inputs: Inputs of the model, with ``input_ids`` and ``attention_mask``.
        kept: Mask of the tokens with a vector, shape ``(n, longest)``.
        tokenizer: Names the tokens.
        processor: Merges patches, by ``merge_size``.
        image_token: The token of a patch.
    """
    read, sizes = inputs["attention_mask"].bool(), inputs.get("image_grid_thw")
    rows = zip(inputs["input_ids"], read, kept.bool(), strict=True)
    if modality == "caption":
        return tuple(layout_of_tokens(tokenizer.convert_ids_to_tokens(ids[has].tolist())) for ids, _, has in rows)
    merge = getattr(processor.image_processor, "merge_size", 1)
    grids = [None] * len(read) if sizes is None else [(h // merge, w // merge) for _, h, w in sizes.tolist()]
    return tuple(
        image_layout(
            tokenizer.convert_ids_to_tokens(ids[real].tolist()), image_token, kept=has[real].tolist(), grid=grid
        )
        for (ids, real, has), grid in zip(rows, grids, strict=True)
    )


def image_layout(
    tokens: Sequence[str], image_token: str, *, kept: Sequence[bool] = (), grid: tuple[int, int] | None = None
) -> str:
    """Return the layout of one image; empty if its run of tokens is neither ``grid`` nor a square, or lacks vectors.

    Args:
        tokens: Inputs of the model for the image, without padding.
        image_token: The token of a patch.
        kept: Mask of the tokens with a vector; by default all.
        grid: Rows and columns of patches, if the processor reports them.

    Examples:
        >>> image_layout(["<p>"] * 4 + ["describe"], "<p>")
        '[[0,2,2,0.0,0.0,1.0,1.0]]'
        >>> image_layout(["<s>"] + ["<p>"] * 6, "<p>", grid=(2, 3))
        '[[1,2,3,0.0,0.0,1.0,1.0]]'
        >>> image_layout(["<s>", "<t>", "<p>"], "<p>", kept=[False, True, True])
        '[[1,1,1,0.0,0.0,1.0,1.0]]'
        >>> image_layout(["<s>", "<p>"], "<p>", kept=[True, False])
        ''
    """
    kept = kept or [True] * len(tokens)
    of_image = groupby(range(len(tokens)), key=lambda position: tokens[position] == image_token)
    runs = [list(run) for is_image, run in of_image if is_image]
    # row and column of each tile, from 1
    found = [_TILE.search(tokens[run[0] - 1]) if run[0] else None for run in runs]
    tiles = [(int(names[1]), int(names[2])) if names else None for names in found]
    high, wide = (max((tile[axis] for tile in tiles if tile), default=1) for axis in (0, 1))
    grids = []
    for run, tile in zip(runs, tiles, strict=True):
        rows, columns = grid or (isqrt(len(run)), isqrt(len(run)))
        if rows * columns != len(run) or not all(kept[position] for position in run):
            return UNKNOWN
        row, column = tile or (1, 1)
        box = ((column - 1) / wide, (row - 1) / high, 1 / wide, 1 / high) if tile else (0.0, 0.0, 1.0, 1.0)
        grids.append(PatchGrid(sum(kept[: run[0]]), rows, columns, *box))
    return layout_of_grids(grids)
