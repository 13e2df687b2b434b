"""Labelled images: folders that are classes, a table with a column of labels, COCO's boxes, CLIP_benchmark's shards.

Every class becomes captions that describe no image, one for each prompt, and every label a row of the ground truth
``label``: the image, and the first prompt of its class. Images are encoded once, and prompts are short texts.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from capim.store.errors import RequestError, did_you_mean
from capim.store.forms import NO_COLUMNS, Columns
from capim.store.schema import LABEL
from capim.store.sets.columns_read import CAPTIONS, GRADES, NO_OPTION, SPLIT, SPLITS, TEXTS, tell
from capim.store.tables import open_table, read_json, read_text
from capim.store.types import Corpus
from capim.tasks.corpora.build import CaptionRow, Faults, ImageRow, RelevanceRow, SkippedRow
from capim.tasks.corpora.files import corpus_name, require_folder, unlisted
from capim.tasks.corpora.images.image_files import LocatedImages, images_below, locate_images
from capim.tasks.corpora.readers.coco_captions import read_objects
from capim.tasks.corpora.readers.forms import LABELS_IN_CELLS, TableRows, is_empty, rows_by_role
from capim.tasks.corpora.readers.samples import TarShards, lines_of, samples_of
from capim.tasks.corpora.readers.table import holds_images, is_coco

PROMPTS: Mapping[str, Mapping[str, str | list[str]]] = tomllib.loads(
    Path(__file__).with_name("prompts.toml").read_text(encoding="utf-8")
)
"""Name of a published list -> its ``source`` and ``prompts``."""
_WAYS: Mapping[str, str] = {
    GRADES: NO_OPTION,
    SPLITS: NO_OPTION,
    **dict.fromkeys(
        (CAPTIONS, TEXTS),
        'read them as captions with reader = "table" and columns.caption = "{column}" (--columns caption={column})',
    ),
}
_CLASSES, _TEMPLATES = "classnames.txt", "zeroshot_classification_templates.txt"


def read_labels(
    root: str | Path,
    *,
    images: str | Path | None = None,
    prompts: str | Sequence[str] | None = None,
    classes: Mapping[str, str] | None = None,
    columns: Columns | None = None,
    separator: str | None = None,
    language: str = "en",
    name: str | None = None,
) -> Corpus:
    """Images and their classes, in the order of the paths or rows; classes by name.

    Args:
        root: A folder with one folder per class; a table with an image and a label in each row (a list of labels, or
            several rows of an image, for several); COCO's ``instances_*.json``; or a folder with CLIP_benchmark's
            ``classnames.txt`` and shards, ``*.tar`` or ``test/*.tar``, with line numbers as ``.cls``.
        images: Folder of the image files; unless given, the table's.
        prompts: Texts in which ``{}`` is the class, or the name of a list of ``prompts.toml``; by default ``photo``,
            of CLIP_benchmark's shards their ``zeroshot_classification_templates.txt``.
        classes: Label -> how the prompts name it (``{"n02084071": "dog"}``); by default the label, ``_`` as a blank.
        columns: Column of the ``image`` and of the ``label`` of a table, where they have no usual names.
        separator: Between several labels in one cell of a table.
        language: Of the prompts.

    Raises:
        RequestError: There is no label or only one class, a prompt has no ``{}``, or an image is missing; lists
            every fault.
    """
    path, faults = Path(root).expanduser().absolute(), Faults(str(root))
    labels, names, located = _shards(path) if is_sharded(path) else (_labels(path, columns, separator), {}, None)
    classes = {**names, **(classes or {})}
    texts = _prompts(prompts or _templates(path) or "photo")
    known = sorted({label for of_image in labels.values() for label in of_image})
    for image in (image for image, of_image in labels.items() if not of_image):
        faults.add("images without a label", repr(image))
    for text in texts:
        if "{}" not in text:
            faults.add("prompts without {}, where the class goes", repr(text))
    for label in sorted(classes.keys() - {*known, *names}):
        faults.add(f"classes has a label that no image has; {did_you_mean(label, known)}it names", repr(label))
    if len(known) < 2:
        faults.add("fewer than two classes; a class is a folder, or a value of the column label", ", ".join(known))
    faults.raise_any()
    if located is None:
        folder = images or (path if path.is_dir() else path.parent)
        located = locate_images([ImageRow(image) for image in labels], folder, origin=path)
    if path.is_file():
        located.tell_unnamed(path)
    said = prompts_of(known, texts, classes, language)
    true = (RelevanceRow(LABEL, "i2t", row.id, f"{label}#0") for row in located.rows for label in labels[row.id])
    return located.corpus(name or corpus_name(path), said, relevance=true, origin=str(path))


def is_sharded(folder: Path) -> bool:
    """True if a folder holds CLIP_benchmark's names of classes and shards."""
    return (folder / _CLASSES).is_file() and any(_tars(folder))


def _tars(folder: Path) -> list[Path]:
    return sorted(folder.glob("test/*.tar")) or sorted(folder.glob("*.tar"))


def _templates(path: Path) -> list[str]:
    """Return CLIP_benchmark's prompts next to its shards, in which ``{c}`` is the class; none where there are none."""
    file = path / _TEMPLATES
    return [line.replace("{c}", "{}") for line in lines_of(read_text(file))] if file.is_file() else []


def _shards(folder: Path) -> tuple[dict[str, list[str]], dict[str, str], LocatedImages]:
    """Return image -> label, label -> name, and the images; a name of several classes gets the number of its class."""
    called, faults = lines_of(read_text(folder / _CLASSES)), Faults(str(folder))
    label_of = [name if called.count(name) == 1 else f"{name} {n}" for n, name in enumerate(called)]
    labels, located = dict[str, list[str]](), LocatedImages([], TarShards(folder), [])
    for file, sample, image, texts in samples_of(folder, _tars(folder), "cls"):
        number = texts[0].strip() if texts else ""
        if image is None:
            located.skipped.append(SkippedRow(sample, f"no image in {file.name}"))
        elif not number.isdecimal() or int(number) >= len(called):
            faults.add(f"samples where .cls is not a line number of {_CLASSES}, from 0", f"{sample} ({number!r})")
        else:
            located.rows.append(image)
            labels[sample] = [label_of[int(number)]]
    faults.raise_any()
    return labels, dict(zip(label_of, called, strict=True)), located


def are_classes(folder: Path) -> bool:
    """True if a folder holds images only in folders: two or more, its classes, not named like splits."""
    within = [image.rpartition("/")[0] for image in images_below(folder)]
    return len(set(within)) > 1 and "" not in within and not all(map(SPLIT.fullmatch, within))


def _labels(path: Path, columns: Columns | None, separator: str | None) -> dict[str, list[str]]:
    """Return image -> its labels."""
    if path.is_dir():
        found = {image: [Path(image).parent.name] for image in images_below(require_folder(path, "folder of classes"))}
        if not found:
            raise RequestError(f"{path}: no images in it; expected a folder for each class, with its images")
        return found
    of_image: dict[str, list[str]] = {}
    if is_coco(path):
        name_of = dict[str, str]()
        for image in read_json(path)["images"]:
            key, file = str(image["id"]), str(image.get("file_name", image["id"]))
            if name_of.setdefault(key, file) != file:
                both = f"{name_of[key]!r} and of {file!r}"
                raise RequestError(f"{path}: image id {key!r} is that of {both}; give each image its own")
        objects = {image: categories for image, categories in read_objects(path).items() if categories}
        if strange := [image for image in objects if image not in name_of]:
            raise RequestError(
                f"{path}: its annotations name {len(strange)} images that its list `images` does not have, "
                f"first {strange[0]!r}; add them there, or leave their annotations out"
            )
        for image, categories in objects.items():
            of_image.setdefault(name_of[image], []).extend(categories)
    else:
        if path.suffix.lower() == ".parquet" and holds_images(path):
            raise RequestError(f"{path}: {LABELS_IN_CELLS}")
        for row in rows_by_role("labels", TableRows(str(path), *open_table(path)), columns or NO_COLUMNS, _WAYS):
            cell = unlisted(row["label"])
            cells = cell if isinstance(cell, list) else str(cell).split(separator) if separator else [cell]
            texts = [str(each).strip() for each in cells if not is_empty(each)]
            of_image.setdefault(str(row["image"]), []).extend(texts)
        _tell_of_several(path, of_image)
    return {name: list(dict.fromkeys(labels)) for name, labels in of_image.items()}


def _tell_of_several(path: Path, labels: Mapping[str, Sequence[str]]) -> None:
    """Warn of labels that look like several others in one cell: ``Cardiomegaly|Emphysema``."""
    known = {label for of_image in labels.values() for label in of_image}
    for separator in "|;,/":
        parted = {label: {*map(str.strip, label.split(separator))} for label in sorted(known) if separator in label}
        sure = separator in "|;"  # hardly in the name of a class
        if several := [label for label, parts in parted.items() if len(parts) > 1 and (sure or parts <= known)]:
            tell(
                f"warning: {path}: {len(several)} labels look like several others, first {several[0]!r}; cut them with "
                f'separator = "{separator}"'
            )


def _prompts(prompts: str | Sequence[str]) -> list[str]:
    if not isinstance(prompts, str):
        return list(prompts)
    if "{}" in prompts:
        return [prompts]
    if prompts not in PROMPTS:
        raise RequestError(
            f"prompts {prompts!r} are unknown; {did_you_mean(prompts, PROMPTS)}known: {', '.join(PROMPTS)}; "
            'or write a list, as in prompts = ["a photo of a {}."]'
        )
    return list(PROMPTS[prompts]["prompts"])


def prompts_of(
    known: Sequence[str], prompts: Sequence[str], classes: Mapping[str, str], language: str
) -> Iterator[CaptionRow]:
    """Return every prompt of every class; the number of the prompt is the ordinal."""
    for label in known:
        called = classes.get(label, label.replace("_", " "))
        for at, prompt in enumerate(prompts):
            text = prompt.replace("{}", called)
            yield CaptionRow(f"{label}#{at}", None, text, ordinal=at, language=language, query_group=label)
