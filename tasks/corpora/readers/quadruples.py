"""Published quadruples, two images and the caption of each: Winoground, BiVLC and MMVP-VLM.

* Winoground: 400 examples of two images and two captions with the same words (Thrush et al. 2022). The tags of "Why is
  Winoground Hard?" (Diwan et al. 2022, https://arxiv.org/abs/2211.00768) are added if their file is given.
* BiVLC: SugarCrepe's captions and negatives with an image for each (Miranda et al. 2024,
  https://arxiv.org/abs/2406.09952). The images of the negatives were generated. Its I2T, T2I and group scores are
  Winoground's text, image and group scores.
* MMVP-VLM: photographs that CLIP confuses, each with a statement, in nine visual patterns (Tong et al. 2024,
  https://arxiv.org/abs/2401.06209). A pair counts where both statements choose their image: Winoground's image score.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from capim.store.errors import RequestError
from capim.store.tables import read_json, rows_with
from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA, files
from capim.tasks.corpora.images.image_files import Missing
from capim.tasks.corpora.readers.hub import HubSplit, load_split
from capim.tasks.corpora.readers.published import QuadrupleItem, published_corpus, quadruples, rows_of

UNTAGGED = "No Tag"
_BIVLC = ("caption", "negative_caption", "type", "subtype")
_MMVP = ("Question ID", "Type", "Statement")


def read_winoground(
    root: str | Path | None = None,
    *,
    images: str | Path | None = None,
    tags: str | Path | None = None,
    dataset: str = CORPORA["winoground"].hub,
    revision: str | None = None,
    ids_only: bool = False,
    missing: Missing = "error",
) -> Corpus:
    """The examples in their order: images ``0/0``, ``0/1``, ``1/0`` …, and captions by the same ids.

    A quadruple's tags are its ``collapsed_tag`` (Object, Relation, Both), ``1 Main Pred`` or ``2 Main Preds``, its
    linguistic tag and secondary tag, and those of the tags file (``No Tag`` if it has none).

    Args:
        root: Folder with ``examples.jsonl`` and the unpacked images; from the hub unless given (gated: accept the
            terms on its page once).
        images: Folder of the images; ``images/`` next to the examples if it exists, else ``root``.
        tags: ``new_tag_assignments.json`` of "Why is Winoground Hard?".
        ids_only: Use no images, for answers or embeddings that were made elsewhere.

    Raises:
        RequestError: Access is missing (the message says how to get it), or a file or field is missing.
    """
    hub = None
    source: Path | HubSplit
    if root is None:
        need = ("image_0", "image_1", "caption_0", "caption_1")
        source = hub = load_split(dataset, split="test", revision=revision, need=need)
    else:
        folder = files.require_folder(root, "winoground folder")
        source = files.require_match(folder, "examples.jsonl", "data/examples.jsonl")
        images = images or files.folder_in(source.parent, "images") or folder
    assigned = None if tags is None else read_json(tags_file := files.require_file(tags, "tags file"))
    if assigned is not None and not (
        isinstance(assigned, dict) and all(isinstance(each, list) for each in assigned.values())
    ):
        raise RequestError(f"{tags_file}: expected an object from example id to a list of tags")
    items = []
    for position, (where, _, example) in enumerate(rows_of(source)):
        identifier = str(example.get("id", position))
        keys = [f"image_{side}/{position}" for side in (0, 1)]
        if hub is None:
            names = [files.field(example, f"image_{side}", str, where) for side in (0, 1)]
            keys = [name if Path(name).suffix else f"{name}.png" for name in names]
        captions = [files.field(example, f"caption_{side}", str, where) for side in (0, 1)]
        own = [str(example[key]) for key in ("collapsed_tag", "tag", "secondary_tag") if example.get(key)]
        if predicates := example.get("num_main_preds"):
            own.insert(1, f"{predicates} Main Pred{'s' if predicates != 1 else ''}")
        if assigned is not None:
            own += list(assigned.get(identifier, ())) or [UNTAGGED]
        items.append(QuadrupleItem(identifier, keys, captions, list(dict.fromkeys(own))))
    origin = str(source) if hub is None else hub.origin
    if ids_only:
        hub = images = None
    return published_corpus("winoground", quadruples(items), images=images, missing=missing, hub=hub, origin=origin)


def read_bivlc(
    root: str | Path | None = None,
    *,
    split: str = "test",
    dataset: str = CORPORA["bivlc"].hub,
    revision: str | None = None,
) -> Corpus:
    """The rows in their order; ids are positions: quadruple ``0`` with images and captions ``0/0`` and ``0/1``.

    The tags of a quadruple are its type (replace, swap, add) and its subtype (obj, att, rel).

    Args:
        root: Folder in the layout of the hub's data set (``data/test-*.parquet``); or a CSV file with the columns
            ``caption``, ``negative_caption``, ``type`` and ``subtype``, which gives texts and ids only, for answers of
            models that were computed elsewhere; there the same caption means the same photograph. From the hub
            unless given.

    Raises:
        RequestError: A folder, file, column or value is missing.
    """
    table = None if root is None else Path(root).expanduser().absolute()
    hub = None
    rows: Iterable[Mapping[str, Any]]
    if table is not None and table.is_file():
        rows, origin = rows_with(table, *_BIVLC), str(table)
    else:
        folder = dataset if table is None else str(files.require_folder(table, "bivlc folder or CSV file"))
        hub = load_split(folder, split=split, revision=revision, need=("image", "negative_image", *_BIVLC))
        rows, origin = hub.rows(), hub.origin
    items = []
    shown: dict[str, int] = {}  # caption -> the first row with its photograph, where there are no images to tell
    for position, row in enumerate(rows):
        caption, negative, kind, subtype = (files.field(row, name, str, f"{origin}: row {position}") for name in _BIVLC)
        of_caption = position if hub is not None else shown.setdefault(caption, position)
        keys = (f"image/{of_caption}", f"negative_image/{position}")
        items.append(QuadrupleItem(str(position), keys, (caption, negative), (kind, subtype)))
    return published_corpus("bivlc", quadruples(items), hub=hub, origin=origin)


def read_mmvp_vlm(root: str | Path, *, images: str | Path | None = None, missing: Missing = "error") -> Corpus:
    """The pairs in the order of ``Questions.csv``; the tag of a pair is its pattern.

    A caption is "a photo of" the statement, as in the authors' evaluation. Questions 1 and 2 are the quadruple ``1-2``,
    with images and captions ``1-2/0`` and ``1-2/1``.

    Args:
        root: The hub's data set as a folder: ``Questions.csv`` and ``MLLM_VLM Images/<pattern>/<question>.jpg``.
        images: Folder with the folders of patterns; ``root/MLLM_VLM Images`` by default. Without it, texts and
            ids only.

    Raises:
        RequestError: A file, column or image is missing, or two rows that follow each other are not a pair.
    """
    folder = files.require_folder(root, "mmvp-vlm folder")
    hint = f"hf download MMVP/MMVP_VLM --repo-type dataset --local-dir {folder}"
    file = files.require_match(folder, "Questions.csv", hint=hint)
    images = images or files.folder_in(folder, "MLLM_VLM Images")
    rows = [tuple(row[column].strip() for column in _MMVP) for row in rows_with(file, *_MMVP)]
    items = []
    for position in range(0, len(rows), 2):
        pair = rows[position : position + 2]
        numbers, patterns = [number for number, _, _ in pair], sorted({pattern for _, pattern, _ in pair})
        if len(pair) != 2 or len(patterns) != 1:
            raise RequestError(
                f"{file}: row {position + 1}: expected two questions of one pattern one after the other, got "
                f"{' and '.join(numbers)} of {' and '.join(patterns)}"
            )
        keys = [f"{pattern}/{number}.jpg" for number, pattern, _ in pair]
        texts = [f"a photo of {statement}" for _, _, statement in pair]
        items.append(QuadrupleItem("-".join(numbers), keys, texts, patterns))
    return published_corpus("mmvp-vlm", quadruples(items), images=images, missing=missing)
