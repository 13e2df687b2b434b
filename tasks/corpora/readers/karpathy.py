"""Karpathy's splits of COCO and Flickr30k, in the five forms in which they are distributed.

* Karpathy's own ``dataset_coco.json`` and ``dataset_flickr30k.json`` (Karpathy and Fei-Fei 2015,
  https://cs.stanford.edu/people/karpathy/deepimagesent/): ``{"images": [{"filename", "sentences": [{"raw"}] …}]}``;
* the ALBEF form, ``coco_karpathy_test.json``: ``[{"image": "val2014/…jpg", "caption": ["…", …]}]``;
* one object per image with ``file_name``, ``captions``, ``annotation_ids`` and ``objects``;
* rows of ``yerevann/coco-karpathy`` on the hub: ``filename``, ``sentences``, ``sentids``, ``cocoid``;
* ``test_1k_flickr.csv`` of ``nlphuji/flickr_1k_test_image_text_retrieval`` on the hub, with the images in a ZIP file
  next to it: ``filename``, ``raw`` (the captions as JSON).

All forms give the same entries, so the same images have the same fingerprint whatever form they were read from.
COCO: test 5K (25,010 captions) and val 5K; images of the hub's rows come from images.cocodataset.org. Flickr30k: test
1K, five captions per image (Young et al. 2014).

COCO's test split has two extra ground truths, Crisscrossed Captions (Parekh et al. 2021, https://arxiv.org/abs/2004.15020)
and ECCV Caption (Chun et al. 2022, https://arxiv.org/abs/2204.03359). Both are read from the files that the
``eccv_caption`` package publishes, without importing it. They name captions by COCO annotation id: captions 0 to 4 of
every image, and two sixth captions (``SIXTH_CAPTIONS``).
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from capim.store.errors import RequestError
from capim.store.files import reading
from capim.store.tables import read_json, rows_with
from capim.store.types import Corpus, ImageSource
from capim.tasks.corpora import CORPORA, pinned
from capim.tasks.corpora.build import CaptionRow, ImageRow, RelevanceRow
from capim.tasks.corpora.files import field, require_file, require_match, texts_in
from capim.tasks.corpora.images.image_files import coco_id, image_id_of
from capim.tasks.corpora.images.source import CACHE, Downloads, Zipped
from capim.tasks.corpora.readers.coco_captions import read_objects
from capim.tasks.corpora.readers.hub import HubSplit, files_of, load_split
from capim.tasks.corpora.readers.published import PublishedContents, published_corpus

IMAGES = "http://images.cocodataset.org"
FIVE = 5  # the published annotation ids are those of captions 0 to 4

# ECCV Caption's positives of images 575916 and 421999 hold two annotation ids that are not among the 25,000 of captions
# 0 to 4. COCO numbers the captions of an image upwards and these two follow on the fifth ids of the only images with
# six captions that show the like: a bowl of fruit, and a zebra on a dirt road. Without them R would be one too small
# for two queries, and mAP@R would differ from the eccv_caption package. Image id -> annotation id of its caption 5.
SIXTH_CAPTIONS = {"575916": "144675", "446459": "467259"}


def read_coco_karpathy(
    root: str | Path | None = None,
    *,
    images: str | Path | None = None,
    split: Literal["test", "val"] = "test",
    dataset: str = CORPORA["coco-karpathy"].hub,
    revision: str | None = None,
    objects: str | Path | None = None,
    ids_only: bool = False,
) -> Corpus:
    """Return the split in Karpathy's order; image ids are COCO's, annotation ids those of captions 0 to 4.

    Args:
        root: Captions file, or the folder with it; from the hub unless given.
        images: Folder with COCO images under any of their names (2014, 2017, with or without ``val2014/``). Without
            one, a local captions file gives texts and ids only, and images of the hub's rows are downloaded.
        objects: COCO's boxes file of the images, if the captions file has no objects.
        ids_only: Use no images, for embeddings made elsewhere; also for Flickr30k.

    Raises:
        RequestError: A file, folder, split or package is missing, or a file is in none of the known forms.
    """
    on_hub = "validation" if split == "val" else split
    patterns = ("dataset_coco.json", f"coco_karpathy_{split}.json", f"coco_{split}.json", f"{split}_*.json")
    if root is None:
        hub = load_split(dataset, split=on_hub, revision=revision or pinned(dataset))
        read = _Split(list(_entries(hub.rows(), hub.name)), hub.origin, hub, Downloads(IMAGES, CACHE))
    else:
        read = _split(root, patterns, split)
    labels = {} if objects is None else read_objects(require_file(objects, "objects file"))
    published_ids = karpathy_test_annotation_ids() if split == "test" else {}
    captions = [
        CaptionRow(f"{entry.id}#{n}", entry.id, text, n, annotation_id=_annotation_id(entry, n, published_ids))
        for entry in read.entries
        for n, text in enumerate(entry.captions)
    ]
    positives: Iterable[RelevanceRow] = ()
    if split == "test":
        caption_of = {row.annotation_id: row.id for row in captions if row.annotation_id}
        positives = extra_positives(caption_of, {entry.id for entry in read.entries})
    read = read._replace(entries=[e._replace(objects=labels.get(e.id, e.objects)) for e in read.entries])
    return _corpus("coco-karpathy", split, read, captions, images, positives, ids_only=ids_only)


def read_flickr30k_karpathy(
    root: str | Path | None = None,
    *,
    images: str | Path | None = None,
    split: str = "test",
    dataset: str = CORPORA["flickr30k-karpathy"].hub,
    revision: str | None = None,
    ids_only: bool = False,
) -> Corpus:
    """Return the split in Karpathy's order; an image's id is its file's name without ``.jpg``.

    Args:
        root: ``dataset_flickr30k.json``, an ALBEF-form file, or the folder with it; from the hub unless given.
        split: ``test``, ``val`` or ``train``; the hub's copy has ``test`` only.

    Raises:
        RequestError: A file, folder or split is missing, or a file is in none of the known forms.
    """
    patterns = ("dataset_flickr30k.json", f"flickr30k_{split}.json")
    read = _flickr_on_hub(dataset, split, revision) if root is None else _split(root, patterns, split)
    captions = [CaptionRow(f"{e.id}#{n}", e.id, text, n) for e in read.entries for n, text in enumerate(e.captions)]
    return _corpus("flickr30k-karpathy", split, read, captions, images, ids_only=ids_only)


def _flickr_on_hub(dataset: str, split: str, revision: str | None) -> _Split:
    """Return the test split of a CSV file and the ZIP file next to it; ``datasets`` would need a script for it."""
    if split != "test":
        raise RequestError(f"{dataset}: no split {split!r}; it has test. Give root (dataset_flickr30k.json)")
    folder = Path(dataset) if Path(dataset).is_dir() else files_of(dataset, revision or pinned(dataset), "*flickr*")
    table, archive = require_match(folder, "test_1k_flickr.csv"), require_match(folder, "images_flickr_1k_test.zip")
    rows = []
    with reading(archive), zipfile.ZipFile(archive) as opened:
        members = {Path(name).name: name for name in opened.namelist()}
    for number, row in enumerate(rows_with(table, "filename", "raw"), start=1):
        try:
            rows.append({"filename": row["filename"], "captions": json.loads(row["raw"])})
        except json.JSONDecodeError as error:
            where = f"{table.name}: row {number}"
            raise RequestError(f"{where}: raw: expected captions as a JSON list ({error})") from None
    entries = [e._replace(file_name=members.get(e.file_name, e.file_name)) for e in _entries(rows, table)]
    origin = dataset if Path(dataset).is_dir() else f"https://huggingface.co/datasets/{dataset}"
    return _Split(entries, origin, others=Zipped(archive))


class KarpathyEntry(NamedTuple):
    """One image of a split: its file, captions, and what some of the forms hold in addition."""

    id: str
    file_name: str
    captions: Sequence[str]
    annotation_ids: Sequence[str] = ()
    objects: Sequence[str] | None = None


class _Split(NamedTuple):
    """The entries of a split, where they were read from, a file or the hub, and what else holds the images there."""

    entries: Sequence[KarpathyEntry]
    origin: str
    hub: HubSplit | None = None
    others: ImageSource | None = None


def _corpus(
    reader: str,
    split: str,
    read: _Split,
    captions: Iterable[CaptionRow],
    images: str | Path | None,
    positives: Iterable[RelevanceRow] = (),
    *,
    ids_only: bool,
) -> Corpus:
    """Return the corpus of a split, with images from a folder, else from the hub's data set, else from ``others``."""
    if ids_only:
        read, images = read._replace(hub=None, others=None), None
    hub = read.hub if images is None else None
    keys = [entry.file_name for entry in read.entries]
    if hub is not None and hub.images:
        keys = [f"{hub.images[0]}/{position}" for position in range(len(keys))]
    rows = [ImageRow(e.id, key, objects=e.objects) for e, key in zip(read.entries, keys, strict=True)]
    contents = PublishedContents(rows, captions, relevance=positives)
    part = "" if split == "test" else split
    return published_corpus(
        reader, contents, images=images, part=part, hub=hub, origin=read.origin, downloads=read.others
    )


def _split(root: str | Path, patterns: Sequence[str], split: str) -> _Split:
    """Return a split from a captions file, or from the first file of a folder that matches one of the patterns."""
    root = Path(root)
    file = require_match(root, *patterns) if root.is_dir() else require_file(root, "captions file")
    content = read_json(file)
    if isinstance(content, Mapping):
        every = field(content, "images", list, file)
        splits = [field(image, "split", str, f"{file}: image {position}") for position, image in enumerate(every)]
        if split not in splits:
            raise RequestError(f"{file}: no images of split {split!r}; it has {', '.join(sorted({*splits})) or 'none'}")
        content = [image for image, each in zip(every, splits, strict=True) if each == split]
    elif not isinstance(content, list) or not content:
        raise RequestError(f"{file}: expected Karpathy's JSON (an object with 'images') or a list of images")
    else:
        named = [name for name in ("train", "val", "test") if name in file.stem.replace("-", "_").split("_")]
        if named and split not in named:
            raise RequestError(f"{file}: expected split {split!r}, got a file of split {named[-1]!r} by its name")
    return _Split(list(_entries(content, file)), str(file))


def _entries(rows: Iterable[object], origin: object) -> Iterator[KarpathyEntry]:
    for position, row in enumerate(rows):
        where = f"{origin}: image {position}"
        if not isinstance(row, Mapping):
            raise RequestError(f"{where}: expected an object, got {type(row).__name__}")
        names = ("file_name", "filename", "image_path", "image")
        name_field = next((key for key in names if isinstance(row.get(key), str)), None)
        text_field = next((key for key in ("captions", "sentences", "caption") if key in row), None)
        if name_field is None or text_field is None:
            raise RequestError(
                f"{where}: expected a file name ({', '.join(names)}) and captions (captions, sentences, caption); "
                f"it has {', '.join(map(str, row))}"
            )
        folder = str(row.get("filepath") or "")
        name = f"{folder}/{row[name_field]}" if folder and name_field == "filename" else str(row[name_field])
        texts = row[text_field]
        if isinstance(texts, list):
            texts = [each.get("raw") if isinstance(each, Mapping) else each for each in texts]
        ids = row.get("annotation_ids", row.get("sentids", ()))
        yield KarpathyEntry(
            id=str(row.get("image_id", row.get("cocoid", image_id_of(name)))),
            # Flickr30k's images lie in one folder, whatever folder a captions file puts before their names
            file_name=name if coco_id(name) else Path(name).name,
            captions=texts_in({text_field: texts}, text_field, where),
            annotation_ids=[str(each) for each in ids][:FIVE] if isinstance(ids, Sequence) else [],
            objects=row.get("objects"),
        )


def _annotation_id(entry: KarpathyEntry, ordinal: int, published_ids: Mapping[str, Sequence[str]]) -> str | None:
    """Return the annotation id of captions 0 to 4, from the file or else the ground truths; of a sixth from the latter.

    Sixth captions in the file are ignored, so that all forms of the split have the same fingerprint.
    """
    if ordinal == FIVE:
        return SIXTH_CAPTIONS.get(entry.id) if published_ids else None
    ids = entry.annotation_ids or published_ids.get(entry.id, ())
    return ids[ordinal] if ordinal < len(ids) else None


def extra_positives(caption_of: Mapping[str, str], images: Collection[str]) -> Iterator[RelevanceRow]:
    """Yield the positives with both query and item in the corpus, in the order of the published files.

    Args:
        caption_of: COCO annotation id -> caption id of the corpus.
        images: Image ids of the corpus, which are COCO's.

    Raises:
        RequestError: The package is not installed.
    """
    image_of = {image: image for image in images}
    for truth in ("cxc", "eccv"):
        for file, direction, queries, known in (
            ("caption_to_image", "t2i", caption_of, image_of),
            ("image_to_caption", "i2t", image_of, caption_of),
        ):
            for query, items in read_json(_data() / f"{truth}_{file}.json").items():
                found = (known[str(item)] for item in items if query in queries and str(item) in known)
                yield from (RelevanceRow(truth, direction, queries[query], item) for item in found)


@cache
def karpathy_test_annotation_ids() -> Mapping[str, tuple[str, ...]]:
    """Return COCO image id -> annotation ids of its captions 0 to 4, for the Karpathy test split.

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
            "pip install eccv_caption"
        )
    return Path(package.submodule_search_locations[0]) / "data"
