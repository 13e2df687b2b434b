"""Winoground: 400 examples of two images and two captions with the same words (Thrush et al. 2022).

With the tags of "Why is Winoground Hard?" (Diwan et al. 2022, https://arxiv.org/abs/2211.00768) where their file is
given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from store.errors import RequestError
from store.types import Corpus, ImageSource
from tasks.corpora import CORPORA
from tasks.corpora.build import build_corpus
from tasks.corpora.files import field, first_existing, read_json, read_json_lines, require_file, require_folder
from tasks.corpora.images.image_files import present
from tasks.corpora.images.source import Folder
from tasks.corpora.readers.hub import load_split
from tasks.corpora.rows import CaptionRow, ImageRow, QuadrupleRow

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
    linguistic tag and secondary tag, and those of the tags file (``No Tag`` where that has none for it).

    Args:
        root: Folder with ``examples.jsonl`` and the unpacked images; from the hub unless given (gated: accept the
            terms on its page once).
        images: Folder of the images; ``root/images`` where there is one, else ``root``.
        tags: ``new_tag_assignments.json`` of "Why is Winoground Hard?".
        dataset: Hub id, where no ``root`` is given.
        revision: Of the hub data set.

    Raises:
        RequestError: Access is missing (says how to get it), or a file or field is.
    """
    needed = ("image_0", "image_1", "caption_0", "caption_1")
    source: ImageSource
    if root is None:
        loaded = load_split(dataset, split="test", revision=revision, need=needed)
        examples: list[Mapping[str, Any]] = list(loaded.rows())
        keys = [(f"image_0/{i}", f"image_1/{i}") for i in range(len(examples))]
        source, origin = loaded.source, f"https://huggingface.co/datasets/{dataset}"
    else:
        folder = require_folder(root, "winoground folder")
        file = first_existing(None, folder, "examples.jsonl", "data/examples.jsonl")
        if file is None:
            raise RequestError(f"{folder}: no examples.jsonl in it or in data/ below it")
        examples = list(read_json_lines(file))
        pictures = require_folder(images, "image folder") if images is not None else file.parent / "images"
        source, origin = Folder(pictures if pictures.is_dir() else folder), str(file)
        keys = [
            (_file(example, "image_0", f"{file}: example {i}"), _file(example, "image_1", f"{file}: example {i}"))
            for i, example in enumerate(examples)
        ]
    assigned = None if tags is None else _assignments(require_file(tags, "tags file"))
    rows = [
        ImageRow(f"{_id(example, i)}/{side}", keys[i][side]) for i, example in enumerate(examples) for side in (0, 1)
    ]
    if isinstance(source, Folder):
        rows, _ = present(rows, (source,), missing="error", origin=origin)
    return build_corpus(
        "winoground",
        rows,
        (
            CaptionRow(
                f"{_id(example, i)}/{side}",
                f"{_id(example, i)}/{side}",
                field(example, f"caption_{side}", str, f"{origin}: example {i}"),
            )
            for i, example in enumerate(examples)
            for side in (0, 1)
        ),
        source=source,
        quadruples=(_quadruple(_id(example, i), example, assigned) for i, example in enumerate(examples)),
        licence=CORPORA["winoground"].licence,
        origin=origin,
    )


def _id(example: Mapping[str, Any], position: int) -> str:
    return str(example.get("id", position))


def _file(example: Mapping[str, Any], key: str, where: str) -> str:
    name: str = field(example, key, str, where)
    return name if Path(name).suffix else f"{name}.png"


def _assignments(file: Path) -> dict[str, list[str]]:
    content = read_json(file)
    if not isinstance(content, dict) or not all(isinstance(tags, list) for tags in content.values()):
        raise RequestError(f"{file}: expected an object from example id to a list of tags")
    return content


def _quadruple(
    identifier: str, example: Mapping[str, Any], assigned: Mapping[str, Iterable[str]] | None
) -> QuadrupleRow:
    own = [str(example[key]) for key in ("collapsed_tag", "tag", "secondary_tag") if example.get(key)]
    predicates = example.get("num_main_preds")
    if predicates:
        own.insert(1, f"{predicates} Main Pred{'s' if predicates != 1 else ''}")
    added = [] if assigned is None else list(assigned.get(identifier, ())) or [UNTAGGED]
    sides = [f"{identifier}/{side}" for side in (0, 1)]
    return QuadrupleRow(identifier, sides[0], sides[1], sides[0], sides[1], list(dict.fromkeys([*own, *added])))
