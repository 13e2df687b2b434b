"""Winoground: 400 examples of two images and two captions with the same words (Thrush et al. 2022).

The tags of "Why is Winoground Hard?" (Diwan et al. 2022, https://arxiv.org/abs/2211.00768) are added if their file is
given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.files import (
    field,
    folder_in,
    read_json,
    read_json_lines,
    require_file,
    require_folder,
    require_match,
)
from capim.tasks.corpora.readers.hub import load_split
from capim.tasks.corpora.readers.published import QuadrupleItem, published_corpus, quadruples

HUB = CORPORA["winoground"].hub
UNTAGGED = "No Tag"


def read_winoground(
    root: str | Path | None = None,
    *,
    images: str | Path | None = None,
    tags: str | Path | None = None,
    dataset: str = HUB,
    revision: str | None = None,
) -> Corpus:
    """The examples in their order: images ``0/0``, ``0/1``, ``1/0`` …, and captions by the same ids.

    A quadruple's tags are its ``collapsed_tag`` (Object, Relation, Both), ``1 Main Pred`` or ``2 Main Preds``, its
    linguistic tag and secondary tag, and those of the tags file (``No Tag`` if it has none).

    Args:
        root: Folder with ``examples.jsonl`` and the unpacked images; from the hub unless given (gated: accept the
            terms on its page once).
        images: Folder of the images; ``images/`` beside the examples if it exists, else ``root``.
        tags: ``new_tag_assignments.json`` of "Why is Winoground Hard?".

    Raises:
        RequestError: Access is missing (the message says how to get it), or a file or field is missing.
    """
    source = None
    if root is None:
        need = ("image_0", "image_1", "caption_0", "caption_1")
        loaded = load_split(dataset, split="test", revision=revision, need=need)
        examples: list[Mapping[str, Any]] = list(loaded.rows())
        source, origin = loaded.source, f"https://huggingface.co/datasets/{dataset}"
    else:
        folder = require_folder(root, "winoground folder")
        file = require_match(folder, "examples.jsonl", "data/examples.jsonl")
        examples, origin = list(read_json_lines(file)), str(file)
        images = images or folder_in(file.parent, "images") or folder
    assigned = None if tags is None else _assignments(require_file(tags, "tags file"))
    items = []
    for position, example in enumerate(examples):
        identifier, where = str(example.get("id", position)), f"{origin}: example {position}"
        sides = [f"image_{side}" for side in (0, 1)]
        if root is None:
            keys = [f"{side}/{position}" for side in sides]
        else:
            names = [field(example, side, str, where) for side in sides]
            keys = [name if Path(name).suffix else f"{name}.png" for name in names]
        captions = [field(example, f"caption_{side}", str, where) for side in (0, 1)]
        items.append(QuadrupleItem(identifier, keys, captions, _tags(identifier, example, assigned)))
    folder_of_images = None if root is None else images
    return published_corpus("winoground", quadruples(items), images=folder_of_images, source=source, origin=origin)


def _assignments(file: Path) -> dict[str, list[str]]:
    content = read_json(file)
    if not isinstance(content, dict) or not all(isinstance(tags, list) for tags in content.values()):
        raise RequestError(f"{file}: expected an object from example id to a list of tags")
    return content


def _tags(identifier: str, example: Mapping[str, Any], assigned: Mapping[str, Iterable[str]] | None) -> list[str]:
    tags = [str(example[key]) for key in ("collapsed_tag", "tag", "secondary_tag") if example.get(key)]
    predicates = example.get("num_main_preds")
    if predicates:
        tags.insert(1, f"{predicates} Main Pred{'s' if predicates != 1 else ''}")
    if assigned is not None:
        tags += list(assigned.get(identifier, ())) or [UNTAGGED]
    return list(dict.fromkeys(tags))
