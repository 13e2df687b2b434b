"""A folder of images and a COCO-format captions file, with the boxes file for the objects where there is one.

Format: https://cocodataset.org/#format-data ("Image Captioning", "Object Detection").
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from store.errors import RequestError
from store.types import Corpus
from tasks.corpora.build import build_corpus
from tasks.corpora.files import corpus_name, field, first_existing, read_json, require_folder
from tasks.corpora.images.image_files import Missing, present
from tasks.corpora.images.source import Folder
from tasks.corpora.rows import CaptionRow, ImageRow


def read_coco_captions(
    root: str | Path,
    *,
    images: str | Path | None = None,
    captions: str | Path | None = None,
    instances: str | Path | None = None,
    missing: Missing = "error",
    name: str | None = None,
    licence: str = "unknown",
) -> Corpus:
    """The images of a COCO-format captions file, in its order, with their captions in its order.

    Image and caption ids are COCO's; the caption's is its ``annotation_id`` too. Objects are the category names of
    the image's boxes: sorted, null for images that the boxes file does not list.

    Args:
        root: The folder that holds the rest.
        images: Folder of the image files; ``root/images`` where there is one, else ``root``.
        captions: The captions file; ``captions.json`` or the only ``captions*.json`` in ``root`` or ``annotations/``.
        instances: The boxes file; ``instances*.json`` beside the captions file where there is one.
        missing: ``error``, or ``skip`` to list images without a file as skipped.
        name: Of the corpus; the folder's name unless given.
        licence: Of the images and captions.

    Raises:
        RequestError: A folder or file is missing, is not of this format, or names an image that is not there.
    """
    folder = require_folder(root, "corpus folder")
    captions_file = first_existing(captions, folder, "captions.json", "captions*.json", "annotations/captions*.json")
    if captions_file is None:
        raise RequestError(f'{folder}: no captions*.json in it; name the file with captions = "…"')
    if images is not None:
        image_folder = require_folder(images, "image folder")
    else:
        image_folder = folder / "images" if (folder / "images").is_dir() else folder
    boxes_file = first_existing(instances, captions_file.parent, "instances.json", "instances*.json")
    objects = read_objects(boxes_file) if boxes_file is not None else {}

    content = read_json(captions_file)
    of_image: defaultdict[str, list[CaptionRow]] = defaultdict(list)
    for position, entry in enumerate(field(content, "annotations", list, captions_file)):
        where = f"{captions_file}: annotation {position}"
        identifier = str(field(entry, "id", int | str, where))
        image = str(field(entry, "image_id", int | str, where))
        text = field(entry, "caption", str, where)
        of_image[image].append(CaptionRow(identifier, image, text, annotation_id=identifier))
    rows = []
    for position, entry in enumerate(field(content, "images", list, captions_file)):
        where = f"{captions_file}: image {position}"
        identifier = str(field(entry, "id", int | str, where))
        key = field(entry, "file_name", str, where)
        rows.append(ImageRow(identifier, key, objects=objects.get(identifier)))
    listed = {row.id for row in rows}
    source = Folder(image_folder)
    kept, skipped = present(rows, (source,), missing=missing, origin=captions_file)
    left_out = {row.image_id for row in skipped}
    in_order = [row.id for row in kept] + [image for image in of_image if image not in listed]
    return build_corpus(
        name or corpus_name(folder),
        kept,
        (caption for image in in_order if image not in left_out for caption in of_image[image]),
        source=source,
        skipped=skipped,
        licence=licence,
        origin=str(folder),
    )


def read_objects(file: Path) -> dict[str, list[str]]:
    """Category names per image id from a COCO boxes file; images that it lists without a box have an empty list."""
    content = read_json(file)
    categories = {
        entry["id"]: field(entry, "name", str, f"{file}: categories")
        for entry in field(content, "categories", list, file)
        if "id" in entry
    }
    found: dict[str, set[str]] = {
        str(field(entry, "id", int | str, f"{file}: images")): set() for entry in field(content, "images", list, file)
    }
    for position, entry in enumerate(field(content, "annotations", list, file)):
        where = f"{file}: annotation {position}"
        category = categories.get(field(entry, "category_id", int, where))
        if category is None:
            raise RequestError(f"{where} has category_id {entry['category_id']}, which is not among its categories")
        found.setdefault(str(field(entry, "image_id", int | str, where)), set()).add(category)
    return {image: sorted(names) for image, names in found.items()}
