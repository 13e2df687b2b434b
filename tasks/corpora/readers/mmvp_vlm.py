"""MMVP-VLM: pairs of photographs that CLIP confuses, each with a statement, in nine visual patterns (Tong et al. 2024).

https://arxiv.org/abs/2401.06209. A pair counts where both statements choose their image: Winoground's image score.
"""

from __future__ import annotations

from pathlib import Path

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora.files import folder_in, require_folder, require_match
from capim.tasks.corpora.images.image_files import Missing
from capim.tasks.corpora.readers.delimited import rows_with
from capim.tasks.corpora.readers.published import QuadrupleItem, published_corpus, quadruples

_NUMBER, _PATTERN, _STATEMENT = "Question ID", "Type", "Statement"


def read_mmvp_vlm(
    root: str | Path,
    *,
    images: str | Path | None = None,
    prompt: str = "a photo of {}",
    missing: Missing = "error",
) -> Corpus:
    """The pairs in the order of ``Questions.csv``; the tag of a pair is its pattern.

    Questions 1 and 2 are the quadruple ``1-2``, with images and captions ``1-2/0`` and ``1-2/1``.

    Args:
        root: The hub's data set as a folder: ``Questions.csv`` and ``MLLM_VLM Images/<pattern>/<question>.jpg``.
        images: Folder with the folders of patterns; ``root/MLLM_VLM Images`` by default. Without it, texts and
            ids only.
        prompt: Text of a caption, ``{}`` being the statement; by default that of the authors' evaluation.

    Raises:
        RequestError: A file, column or image is missing, or two rows that follow each other are not a pair.
    """
    folder = require_folder(root, "mmvp-vlm folder")
    hint = f"hf download MMVP/MMVP_VLM --repo-type dataset --local-dir {folder}"
    file = require_match(folder, "Questions.csv", hint=hint)
    images = images or folder_in(folder, "MLLM_VLM Images")
    if "{}" not in prompt:
        raise RequestError(f"mmvp-vlm: prompt must have {{}} where the statement belongs, got {prompt!r}")
    rows = rows_with(file, _NUMBER, _PATTERN, _STATEMENT)
    items = []
    for position in range(0, len(rows), 2):
        pair = rows[position : position + 2]
        numbers = [row[_NUMBER].strip() for row in pair]
        patterns = {row[_PATTERN].strip() for row in pair}
        if len(pair) != 2 or len(patterns) != 1:
            raise RequestError(
                f"{file}: row {position + 1}: expected two questions of one pattern one after the other, got "
                f"{' and '.join(numbers)} of {' and '.join(sorted(patterns))}"
            )
        keys = [f"{row[_PATTERN].strip()}/{number}.jpg" for row, number in zip(pair, numbers, strict=True)]
        texts = [prompt.replace("{}", row[_STATEMENT].strip()) for row in pair]
        items.append(QuadrupleItem("-".join(numbers), keys, texts, sorted(patterns)))
    return published_corpus("mmvp-vlm", quadruples(items), images=images, missing=missing)
