"""Extra ground truths of COCO's Karpathy test split: Crisscrossed Captions and ECCV Caption.

Both are read from the files that the ``eccv_caption`` package publishes (Parekh et al. 2021,
https://arxiv.org/abs/2004.15020; Chun et al. 2022, https://arxiv.org/abs/2204.03359), without importing it. They name
captions by COCO annotation id: captions 0 to 4 of every image, and two sixth captions (``SIXTH_CAPTIONS``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np

from capim.store.errors import RequestError
from capim.tasks.corpora.build import RelevanceRow
from capim.tasks.corpora.files import read_json

GroundTruth: TypeAlias = Literal["cxc", "eccv"]
GROUND_TRUTHS: tuple[GroundTruth, ...] = get_args(GroundTruth)

# ECCV Caption's positives of images 575916 and 421999 hold two annotation ids that are not among the 25,000 of captions
# 0 to 4. COCO numbers the captions of an image upwards and these two follow on the fifth ids of the only images with
# six captions that show the like: a bowl of fruit, and a zebra on a dirt road. Without them R would be one too small
# for two queries, and mAP@R would differ from the eccv_caption package. Image id -> annotation id of its caption 5.
SIXTH_CAPTIONS = {"575916": "144675", "446459": "467259"}


def extra_positives(
    caption_of: Mapping[str, str], images: Collection[str], *, truths: Collection[GroundTruth] = GROUND_TRUTHS
) -> Iterator[RelevanceRow]:
    """The positives whose query and item are both in the corpus, in the order of the published files.

    Args:
        caption_of: COCO annotation id -> caption id of the corpus.
        images: Image ids of the corpus, which are COCO's.
        truths: Ground truths to read.

    Raises:
        RequestError: The package is not installed.
    """
    for truth in truths:
        folder = _data()
        for query, items in read_json(folder / f"{truth}_caption_to_image.json").items():
            if query in caption_of:
                yield from (RelevanceRow(truth, "t2i", caption_of[query], str(i)) for i in items if str(i) in images)
        for query, items in read_json(folder / f"{truth}_image_to_caption.json").items():
            if query in images:
                captions = (caption_of[str(item)] for item in items if str(item) in caption_of)
                yield from (RelevanceRow(truth, "i2t", query, caption) for caption in captions)


@cache
def karpathy_test_annotation_ids() -> Mapping[str, tuple[str, ...]]:
    """COCO image id -> annotation ids of its captions 0 to 4, for the Karpathy test split.

    For captions files that do not have them (ALBEF form).
    """
    folder = _data()
    image_of = read_json(folder / "original_caption_to_image.json")
    ids_of: dict[str, list[str]] = {}
    for annotation in np.load(folder / "coco_test_ids.npy").tolist():
        ids_of.setdefault(str(image_of[str(annotation)][0]), []).append(str(annotation))
    return {image: tuple(annotations) for image, annotations in ids_of.items()}


def _data() -> Path:
    package = find_spec("eccv_caption")
    if package is None or not package.submodule_search_locations:
        raise RequestError(
            "the CxC and ECCV Caption ground truths come with the package eccv_caption, which is not installed: "
            "pip install eccv_caption, or leave them out with ground_truths = []"
        )
    return Path(package.submodule_search_locations[0]) / "data"
