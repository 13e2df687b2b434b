"""A folder of images with a COCO-format captions file, and optionally a boxes file that gives the objects.

Format: https://cocodataset.org/#format-data ("Image Captioning", "Object Detection").
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from pathlib import Path

from capim.store.errors import RequestError
from capim.store.sets.columns_read import GRADES, NO_OPTION, telling
from capim.store.tables import read_json
from capim.store.types import Corpus
from capim.tasks.corpora import files
from capim.tasks.corpora.build import CaptionRow, ImageRow
from capim.tasks.corpora.images.image_files import locate_images

# COCO's 80 object categories: supercategory -> its categories, and the reverse
CATEGORIES_OF: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("coco_categories.toml").read_text(encoding="utf-8")
)
SUPERCATEGORY_OF = {category: supercategory for supercategory, names in CATEGORIES_OF.items() for category in names}


def read_coco_captions(
    root: str | Path, *, images: str | Path | None = None, captions: str | Path | None = None, name: str | None = None
) -> Corpus:
    """Return the images of a COCO-format captions file, in its order, with their captions in its order.

    Image and caption ids are those of the file; a caption's ``annotation_id`` is its id. Objects are the category
    names of the image's boxes: sorted, and null for images that the boxes file does not list. The boxes file is next to
    the captions file: ``instances_val2017.json`` for ``captions_val2017.json``, else ``instances*.json``.

    Args:
        images: Folder of the image files; unless given, ``root``, and ``root/images`` if it exists.
        captions: The captions file; ``captions.json`` or the only ``captions*.json`` in ``root`` or ``annotations/``.

    Raises:
        RequestError: A folder or file is missing, is not of this format, or names an image that does not exist.
    """
    folder = files.require_folder(root, "corpus folder")
    if captions is not None:
        captions_file = files.require_file(captions, "captions file")
    else:
        patterns = ("captions.json", "captions*.json", "annotations/captions*.json")
        captions_file = files.require_match(folder, *patterns, hint='or name the file with captions = "…"')
    beside = [path for path in (folder / "images", folder) if path.is_dir()]
    same = f"instances{captions_file.stem.removeprefix('captions')}.json"  # captions_val2017, instances_val2017
    boxes_file = files.first_match(captions_file.parent, same, "instances.json", "instances*.json")
    objects = read_objects(boxes_file) if boxes_file is not None else {}

    content = read_json(captions_file)
    of_image: defaultdict[str, list[CaptionRow]] = defaultdict(list)
    entries = files.field(content, "annotations", list, captions_file)
    for position, entry in enumerate(entries):
        where = f"{captions_file}: annotation {position}"
        identifier = str(files.field(entry, "id", int | str, where))
        image = str(files.field(entry, "image_id", int | str, where))
        text = files.field(entry, "caption", str, where)
        of_image[image].append(CaptionRow(identifier, image, text, annotation_id=identifier))
    names = sorted({name for entry in entries for name in entry})
    list(telling(captions_file, ("image_id", "id", "caption"), names, entries, {GRADES: NO_OPTION}))
    rows = []
    for position, entry in enumerate(files.field(content, "images", list, captions_file)):
        where = f"{captions_file}: image {position}"
        identifier = str(files.field(entry, "id", int | str, where))
        key = files.field(entry, "file_name", str, where)
        rows.append(ImageRow(identifier, key, objects=objects.get(identifier)))
    located = locate_images(rows, images or beside, origin=captions_file)
    in_order = dict.fromkeys([*(row.id for row in rows), *of_image])
    in_files = [caption for image in in_order for caption in of_image[image]]
    return located.corpus(name or files.corpus_name(folder), in_files, origin=str(folder))


def read_objects(file: Path) -> dict[str, list[str]]:
    """Return category names per image id, from a COCO boxes file; of a listed image without a box none."""
    content = read_json(file)
    categories = {
        entry["id"]: files.field(entry, "name", str, f"{file}: categories")
        for entry in files.field(content, "categories", list, file)
        if "id" in entry
    }
    objects_of: dict[str, set[str]] = {
        str(files.field(entry, "id", int | str, f"{file}: images")): set()
        for entry in files.field(content, "images", list, file)
    }
    for position, entry in enumerate(files.field(content, "annotations", list, file)):
        where = f"{file}: annotation {position}"
        category = categories.get(files.field(entry, "category_id", int, where))
        if category is None:
            raise RequestError(f"{where}: category_id {entry['category_id']} is not in the categories of the file")
        objects_of.setdefault(str(files.field(entry, "image_id", int | str, where)), set()).add(category)
    return {image: sorted(names) for image, names in objects_of.items()}
