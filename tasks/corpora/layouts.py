"""Recognises a user's folder or file as a corpus.

A folder with a ``corpus.toml`` is what that file says. Any other folder is compared with ``files`` of ``corpora.toml``,
then with the layouts of own data, from top to bottom; the first layout that fits is used. A layout that fits in several
ways is an error that lists them. ``docs/own_data.md`` shows every layout with an example.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from capim.store.errors import RequestError
from capim.store.forms import FORMS, NO_COLUMNS, Columns
from capim.store.tables import SUFFIXES, open_table, suffix_of, uncompressed
from capim.tasks.corpora import OWN_CORPORA
from capim.tasks.corpora.files import corpus_name
from capim.tasks.corpora.images.image_files import files_below, images_below, without_image_suffix
from capim.tasks.corpora.readers import table
from capim.tasks.corpora.readers.hub import is_saved
from capim.tasks.corpora.readers.judged import is_judged_folder
from capim.tasks.corpora.readers.labels import are_classes, is_sharded
from capim.tasks.corpora.readers.samples import text_files

Content: TypeAlias = dict[str, object]

CAPTIONS_FILES = ("coco-karpathy", "flickr30k-karpathy")  # readers that accept their file in place of its folder
COCO_FILES = ("captions.json", "captions_*.json", "annotations/captions_*.json")

_SHOWN = 3
_SUBFOLDERS = 20
_SPLITS = ("train", "training", "val", "valid", "validation", "dev", "test", "testing")
_WEIGHTS = (".safetensors", ".bin", ".pt")
# Suffixes of tables to people.
_NOT_READ = (".xlsx", ".xls", ".ods", ".yaml", ".yml", ".xml", ".caption", ".eng", ".pkl", ".h5", ".sqlite", ".db")
_NOT_CAPTIONS = ("instances", "person_keypoints", "panoptic", "stuff")  # COCO's files of other tasks


class Recognised(NamedTuple):
    """The description that a folder or file means, and how it was recognised, in words."""

    content: Content
    how: str


def recognise_folder(folder: Path, columns: Columns = NO_COLUMNS) -> Recognised:
    """Return the corpus in a folder without a ``corpus.toml``; ``columns`` are those that the user names.

    Raises:
        RequestError: No layout fits, or one fits in several ways; names the files found and the lines to write.
    """
    if (found := _recognised(folder, columns)) is not None:
        return found
    if (folder / "config.json").is_file() and any(file.suffix in _WEIGHTS for file in folder.iterdir()):
        raise RequestError(f"folder {folder} holds a model, not a corpus: give it as --encoders")
    if not any(folder.iterdir()):
        raise RequestError(f"folder {folder} is empty; expected images with a captions file, or tar shards")
    looked = (
        f"folder {folder}: no corpus found in it; looked for corpus.toml, {COCO_FILES[0]}, a table with columns of "
        "images and captions, tar shards, text files next to images, and published corpora (docs/own_data.md)"
    )
    raise RequestError([looked, *_hints(folder, columns)])


def recognise_file(path: Path, columns: Columns = NO_COLUMNS) -> Recognised | None:
    """Return the corpus of one file; None if its suffix is that of no captions file."""
    suffix = suffix_of(path)
    if suffix == ".tar":
        return _as("webdataset", "one tar shard", root=path.parent, shards=path.name, name=corpus_name(path))
    for reader in CAPTIONS_FILES:
        if path.name in OWN_CORPORA[reader].files:
            return _as(reader, f"the corpus {reader}, by the name {path.name}", root=path)
    beside: Content = {"images": str(path.parent.parent)} if path.parent.name == "annotations" else {}
    if table.is_boxes(path):
        return _as("labels", "labelled images, by COCO's boxes (docs/labels.md)", root=path, name=corpus_name(path))
    if table.is_coco(path):
        named: Content = {**beside, "name": corpus_name(path)} if beside else {}
        return _as("coco-captions", "captions in COCO's format", root=path.parent, captions=path, **named)
    if suffix not in SUFFIXES:
        return None
    found = _table(path, path, columns)
    return found._replace(content={**found.content, **beside}) if found.content["reader"] == "table" else found


def _as(reader: str, how: str, **options: object) -> Recognised:
    """Return what a reader reads with these options."""
    return Recognised({"reader": reader, **{option: str(value) for option, value in options.items()}}, how)


def toml_lines(content: Mapping[str, object], folder: Path) -> list[str]:
    """Return the lines of a ``corpus.toml`` in a folder that says the same as a description."""
    lines = []
    for key, value in content.items():
        if isinstance(value, Mapping):
            roles = {role if role.isidentifier() else f'"{role}"': names for role, names in value.items()}
            lines += [f"{key}.{role} = {json.dumps(names, ensure_ascii=False)}" for role, names in roles.items()]
            continue
        text = str(value)
        path = Path(text)
        if path.is_absolute() and path.is_relative_to(folder):
            text = path.relative_to(folder).as_posix()
        lines.append(f"{key} = {json.dumps(text, ensure_ascii=False)}")
    return lines


def _recognised(folder: Path, columns: Columns = NO_COLUMNS) -> Recognised | None:
    for reader, entry in OWN_CORPORA.items():
        if (file := next((file for pattern in entry.files for file in folder.glob(pattern)), None)) is not None:
            return _as(reader, f"the corpus {reader}, by {_at(file, folder)}", root=folder)
    return next((found for found in _own_layouts(folder, columns) if found is not None), None)


def _own_layouts(folder: Path, columns: Columns) -> Iterator[Recognised | None]:
    """Return what every layout of own data makes of a folder, in their order."""
    name = corpus_name(folder)
    yield _coco(folder)
    if is_saved(folder):
        yield _as("hub", "a data set of save_to_disk", dataset=folder, name=name)
    if is_judged_folder(folder):
        yield _as("judged", "queries, documents and judgements", dataset=folder, name=name)
    file = table.named_table(folder)
    yield _within(folder, "annotations", columns) if file is None else _table(file, folder, columns)
    if is_sharded(folder):
        how = "labelled images, in CLIP_benchmark's shards (docs/labels.md)"
        yield _as("labels", how, root=folder, name=name)
    for place, shown in ((folder, "*.tar"), (folder / "test", "test/*.tar")):
        if next(place.glob("*.tar"), None) is not None:
            yield _as("webdataset", f"shards of webdataset, {shown}", root=place, name=name)
    yield _splits(folder, columns)
    yield _parquet(folder)
    yield _within(folder, "data", columns)
    if (file := table.any_table(folder, columns)) is not None:
        yield _table(file, folder, columns)
    of_forms = {file: table.form_of_file(file, columns) for file in table.tables_in(folder)}
    for form in _READERS:
        if len(files := [file for file in of_forms if of_forms[file] == form]) == 1 and form != "labels":
            yield _table(files[0], folder, columns)
    images = {_stem(file) for file in images_below(folder)}
    if any(_stem(file.removesuffix(".txt")) in images for file in text_files(folder)):
        yield _as("image-texts", "images with a text file of the same name each", root=folder)
    yield _labelled(folder, [file for file in of_forms if of_forms[file] == "labels"], columns)


def _coco(folder: Path) -> Recognised | None:
    """Return captions in COCO's format: ``captions.json`` and the like, else the only JSON file of this format."""
    files = next((found for each in COCO_FILES if (found := sorted(filter(table.is_coco, folder.glob(each))))), [])
    if not files:
        every = (file for pattern in ("*.json", "annotations/*.json") for file in folder.glob(pattern))
        files = sorted(file for file in every if table.is_coco(file) and not file.stem.startswith(_NOT_CAPTIONS))
    boxes = list(filter(table.is_boxes, files))
    if len(files) == len(boxes) == 1:
        how = f"labelled images, by COCO's boxes in {_at(boxes[0], folder)} (docs/labels.md)"
        return _as("labels", how, root=boxes[0], name=corpus_name(folder))
    files = [file for file in files if file not in boxes]
    if len(files) > 1:
        names = ", ".join(_at(file, folder) for file in files)
        raise RequestError(
            f"folder {folder}: several captions files in COCO's format: {names}; name one in place of the folder, as "
            f"in `capim check {files[0]}`"
        )
    if not files:
        return None
    how = f"captions in COCO's format, in {_at(files[0], folder)}"
    return _as("coco-captions", how, root=folder, captions=files[0])


def _within(folder: Path, inner: str, columns: Columns) -> Recognised | None:
    """Return a table in a folder next to the images."""
    if not (folder / inner).is_dir():
        return None
    file = table.named_table(folder / inner)
    if inner == "data" and file is None:
        file = table.any_table(folder / inner, columns)
    if file is None:
        return None
    found = _table(file, folder, columns)
    return found._replace(content={**found.content, "images": str(folder)})


def _labelled(folder: Path, tables: Sequence[Path], columns: Columns) -> Recognised | None:
    """Return the only table of images and labels; else folders that are classes, none of them a corpus of its own."""
    if len(tables) == 1:
        return _table(tables[0], folder, columns)
    if not are_classes(folder) or any(map(_is_corpus, _folders(folder)[:_SUBFOLDERS])):
        return None
    how = "labelled images, a folder for each class (docs/labels.md)"
    return _as("labels", how, root=folder, name=corpus_name(folder))


def _splits(folder: Path, columns: Columns) -> Recognised | None:
    """Return ``test``, or the only one, of splits that are folders, each with its table: ``train/metadata.jsonl``."""
    tables = {
        sub.name: file
        for sub in _folders(folder)
        if (file := table.named_table(sub)) is not None
        and (uncompressed(file).stem == "metadata" or sub.name in _SPLITS)
    }
    if not tables:
        return None
    split = next(iter(tables)) if len(tables) == 1 else "test"
    if split not in tables:
        raise RequestError(
            f"folder {folder}: several splits, {', '.join(tables)}, and none is called test; name one in place of the "
            f"folder, as in `capim check {folder / next(iter(tables))}`"
        )
    found = _table(tables[split], folder, columns)
    return found._replace(how=f"{found.how} (split {split} of {', '.join(tables)})")


def _parquet(folder: Path) -> Recognised | None:
    """Return the corpus of Parquet files that hold images: a data set in the hub's layout, or img2dataset's shards."""
    files = table.shards_in(folder)
    if not files or not table.holds_images(files[0]):
        return None
    dataset = files[0] if len(files) == 1 else folder
    if table.form_of_file(files[0]) == "questions":
        reader, how = "judged", "queries with their pages, in Parquet files (docs/judged.md)"
    else:
        reader, how = "hub", f"{len(files)} Parquet files with images in them"
    return _as(reader, how, dataset=dataset, name=corpus_name(folder))


_READERS = {  # form of a table -> its reader, the option that names the table, and how it is recognised
    "questions": ("judged", "dataset", "queries with their pages, {} (docs/judged.md)"),
    "composed": ("image-queries", "root", "images with texts that change them, {} (docs/labels.md)"),
    "ratings": ("image-queries", "root", "rated pairs of images, {} (docs/labels.md)"),
    "labels": ("labels", "root", "labelled images, by the table {} (docs/labels.md)"),
}


def _table(file: Path, path: Path, columns: Columns) -> Recognised:
    """Return a table as the corpus of a path: itself, or the folder that it was found in."""
    name, at, form = corpus_name(path), _at(file, path), table.form_of_file(file, columns)
    if form != "questions" and file.suffix.lower() == ".parquet" and table.holds_images(file):
        return _as("hub", f"images and captions in {file.name}", dataset=file, name=name)
    reader, root, how = _READERS.get(form or "", ("table", "root", "a table, {}"))
    return _as(reader, how.format(at), **{root: file, "name": name})


_HINTED = ("captions", "quadruples", "questions", "composed", "ratings")  # the first that lacks least is meant


def _hints(folder: Path, given: Columns) -> Iterator[str]:
    """Return hints on an unrecognised folder: its contents, and the changes that would make it a corpus."""
    inner = [folder, *_folders(folder)[:_SUBFOLDERS]]
    by_folder = ([file for file in table.tables_in(each) if suffix_of(file) != ".txt"] for each in inner)
    tables = next(filter(None, by_folder), [])
    for file in tables[:_SHOWN]:
        if table.is_boxes(file):
            yield f"{_at(file, folder)} has COCO's boxes, of labelled images (docs/labels.md): `capim check {file}`"
            continue
        try:
            columns, rows = open_table(file)
        except RequestError as error:
            yield from error.faults
            continue
        found = {
            name: [role for role in FORMS[name].needs if role in given or FORMS[name].find(role, columns)]
            for name in _HINTED
        }
        form = max(found, key=lambda name: len(found[name]))
        named = {role: names for role, names in given.items() if role in FORMS[form].roles}
        reader, option, _ = _READERS.get(form, ("table", "root", ""))
        try:
            FORMS[form].columns(columns, named, where=file.name, first=next(rows, None))
        except RequestError as error:
            faults = "; ".join(error.faults)
            line = f'{faults}; write this into {folder / "corpus.toml"}, with reader = "{reader}" and {option} = '
            yield f'{line}"{_at(file, folder)}"'
    if corpora := [sub for sub in inner[1:] if _is_corpus(sub)]:
        yield f"the corpus may be a folder in it: {' or '.join(map(str, corpora[:_SHOWN]))}"
    images = images_below(folder)
    if images and not tables:
        folders = list(dict.fromkeys(file.rpartition("/")[0] for file in images if "/" in file))
        shown = ", ".join(folders[:_SHOWN]) + (" …" if len(folders) > _SHOWN else "")
        where = f" in the folders {shown}" if folders else ""
        other = sorted(file for file in files_below(folder) if Path(file).suffix.lower() in _NOT_READ)
        unread = (
            f" ({', '.join(other[:_SHOWN])}: not read; save it as a table of {', '.join(SUFFIXES)})" if other else ""
        )
        loose = next((file for file in images if "/" not in file), "")
        classes = f"; as folders of classes (docs/labels.md), {loose} has none" if loose and len(folders) > 1 else ""
        yield (
            f"folder {folder} has {len(images):,} images{where}, and no captions{unread}: write captions.csv with the "
            f"columns image,caption, or a .txt file next to each image{classes}"
        )


def _is_corpus(folder: Path) -> bool:
    try:
        return (folder / "corpus.toml").is_file() or _recognised(folder) is not None
    except RequestError:
        return True


def _folders(folder: Path) -> list[Path]:
    return sorted(sub for sub in folder.iterdir() if sub.is_dir() and not sub.name.startswith((".", "__")))


def _at(file: Path, folder: Path) -> str:
    return file.name if file == folder else file.relative_to(folder).as_posix()


def _stem(file: str) -> str:
    return without_image_suffix(file).rpartition("/")[2].casefold()
