"""Published corpora: the forms of their rows, and the reader of those that are tables.

* translations: captions of the same images in several languages, as of COCO-SM, xFlickr&CO and XTD10;
* hard negatives: images with captions and hard negative captions, as of ARO, CREPE, NegBench and SugarCrepe;
* quadruples: two images and the caption of each, as of Winoground, BiVLC and MMVP-VLM.

A corpus of one of the first two forms, in tables, has no code of its own: ``table`` of its entry in
``corpora.toml`` says where they are and what their columns mean (:class:`PublishedTable`).
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias, get_type_hints

from capim.store.errors import RequestError, some
from capim.store.tables import read_json, read_json_lines, read_text
from capim.store.types import Corpus, ImageSource
from capim.tasks.corpora import CORPORA, CorpusEntry, files, pinned
from capim.tasks.corpora.build import CaptionRow, ImageRow, PairRow, QuadrupleRow, RelevanceRow
from capim.tasks.corpora.images.image_files import image_id_of, locate_images
from capim.tasks.corpora.images.source import Crops, crop_key
from capim.tasks.corpora.readers.hub import HubSplit, load_split

Box: TypeAlias = tuple[int, int, int, int]  # left, top, width and height in pixels
Images: TypeAlias = str | Path | Sequence[str | Path] | None


UNPUBLISHED = "not the published set: "
"""Begins the origin of the user's own rows in the form of a published corpus; their place follows when it is known."""


class PublishedContents(NamedTuple):
    """The rows of a corpus; the key of an image is the name of its file, or its key in the source."""

    images: Sequence[ImageRow]
    captions: Iterable[CaptionRow]
    pairs: Sequence[PairRow] = ()
    quadruples: Sequence[QuadrupleRow] = ()
    relevance: Iterable[RelevanceRow] = ()
    boxes: Mapping[str, Box] = MappingProxyType({})  # of the images that are a box of their file, by id


def published_corpus(
    reader: str,
    contents: PublishedContents,
    *,
    images: Images = None,
    part: str = "",
    categories: Sequence[str] = (),
    hub: HubSplit | None = None,
    origin: str = "",
    downloads: ImageSource | None = None,
) -> Corpus:
    """Return the corpus of these rows, without images that were left out and what refers to them.

    Rows of files that are not as many as the published ones are the user's own: see :data:`UNPUBLISHED`.

    Args:
        reader: Its key in ``CORPORA``, and the name of the corpus.
        images: Folder, or folders, of the image files; None if there are none.
        part: What of the data set it is, put after the name; empty for the usual part.
        categories: The parts that the rows are of, if they are several.
        hub: The split read from the hub, which reads the images if it holds any.
        origin: Where it was read from, if neither on the hub nor at the address in the table of corpora.
        downloads: Reads the images where neither a folder nor the hub holds them.
    """
    entry = CORPORA[reader]
    origin = hub.origin if hub is not None else origin or entry.origin
    items = contents.quadruples or {pair.negative_id for pair in contents.pairs}
    n_published = sum(entry.counts.get(each, 0) for each in categories or (part,))
    own = hub is None and downloads is None and n_published not in (0, len(items))
    if own:
        origin = f"{UNPUBLISHED}{len(items):,} of {n_published:,} of {reader}"
    embedded = hub is not None and bool(hub.images)
    located = locate_images(contents.images, None if embedded else images, origin=origin)
    located = located._replace(source=hub if embedded else located.source or downloads)
    if boxes := contents.boxes:
        rows = [row._replace(key=crop_key(row.key, *boxes[row.id])) if row.id in boxes else row for row in located.rows]
        located = located._replace(rows=rows, source=located.source and Crops(located.source))
    return located.corpus(
        f"{reader}-{part}" if part else reader,
        contents.captions,
        pairs=contents.pairs,
        quadruples=contents.quadruples,
        relevance=contents.relevance,
        licence=CorpusEntry.licence if own else entry.licence,
        origin=origin,
    )


def captions_in(
    language: str,
    images: Sequence[ImageRow],
    found: Sequence[tuple[str, Sequence[str]]],
    where: object,
    *,
    translator: str = "human",
) -> Iterator[CaptionRow]:
    """Return one translator's captions in one language, in the order of the images; they are made one by one.

    A caption's id is ``image#language-translator-ordinal`` (``-translator`` only if it is not human), so that the
    translations of one caption differ in the middle only.

    Args:
        found: Id of an image and its captions, in the order of their originals.

    Raises:
        RequestError: Not every image is there exactly once.
    """
    expected, got = [row.id for row in images], [image for image, _ in found]
    if sorted(expected) != sorted(got):
        other = sorted((Counter(expected) - Counter(got)) | (Counter(got) - Counter(expected)))
        raise RequestError(
            f"{where}: expected the {len(images)} images of the first language, each once, got {len(got)}; "
            f"not so: {some(other)}"
        )
    texts_of, name = dict(found), language if translator == "human" else f"{language}-{translator}"
    return (
        CaptionRow(f"{image}#{name}-{ordinal}", image, text, ordinal, language, translator)
        for image in expected
        for ordinal, text in enumerate(texts_of[image])
    )


class HardNegativeItem(NamedTuple):
    """One image, or a box of it, with its caption and its hard negatives.

    Attributes:
        id: Id of the item and of its caption.
        image: Items of the same image have rows with the same id.
        caption: The caption that describes the image.
        negatives: ``(category, text)`` of each hard negative.
        box: The box; None for the complete image.
        further: More captions that describe the image; their ids are ``id/2``, ``id/3`` …
    """

    id: str
    image: ImageRow
    caption: str
    negatives: Sequence[tuple[str, str]]
    box: Box | None = None
    further: Sequence[str] = ()


def hard_negatives(items: Sequence[HardNegativeItem], *, numbered: bool = True) -> PublishedContents:
    """Return the rows of these items: all captions, then all negatives, and a pair for each caption and negative.

    The pairs of a caption share its ``caption_id``, so that "wins against all its negatives" follows from the pairs.
    Negatives have no image. Pairs and negatives are numbered within their item, ``item/0`` and
    ``item/negative-0``, unless every item has one negative, with the id ``item/negative``.
    """
    captions, negatives, pairs = [], [], []
    for item in items:
        ends = ["", *(f"/{n}" for n in range(2, 2 + len(item.further)))]
        texts = zip(ends, (item.caption, *item.further), strict=True)
        captions += [CaptionRow(f"{item.id}{end}", item.image.id, text) for end, text in texts]
        for n, (category, text) in enumerate(item.negatives):
            pair = f"{item.id}/{n}" if numbered else item.id
            negative = f"{item.id}/negative-{n}" if numbered else f"{item.id}/negative"
            negatives.append(CaptionRow(negative, None, text))
            pairs += [PairRow(f"{pair}{end}", item.image.id, f"{item.id}{end}", negative, category) for end in ends]
    images: dict[str, ImageRow] = {}
    for item in items:
        if (first := images.setdefault(item.image.id, item.image)).key != item.image.key:
            both = f"{first.key!r} and {item.image.key!r}"
            raise RequestError(f"image {item.image.id!r} of two files, {both}; name them apart")
    boxes = {item.image.id: item.box for item in items if item.box is not None}
    return PublishedContents([*images.values()], [*captions, *negatives], pairs, boxes=boxes)


class QuadrupleItem(NamedTuple):
    """One quadruple: its id, the keys and the captions of its two images, and its parts."""

    id: str
    keys: Sequence[str]
    captions: Sequence[str]
    tags: Sequence[str] = ()


def quadruples(items: Iterable[QuadrupleItem]) -> PublishedContents:
    """Return the rows of these items; the images and the captions of one have the ids ``id/0`` and ``id/1``."""
    images, captions, rows = [], [], []
    for item in items:
        ids = (f"{item.id}/0", f"{item.id}/1")
        images += [ImageRow(*row) for row in zip(ids, item.keys, strict=True)]
        captions += [CaptionRow(id_, id_, text) for id_, text in zip(ids, item.captions, strict=True)]
        rows.append(QuadrupleRow(item.id, *ids, *ids, item.tags))
    return PublishedContents(images, captions, quadruples=rows)


class PublishedTable(NamedTuple):
    """A corpus in tables (files, or splits on the hub) of captions, or of captions and hard negatives.

    In names of files and splits, ``{part}`` is a category, or one of the corpus' languages: there is a table of each;
    ``{split}`` is the split.

    Attributes:
        file: Name of a table in the folder of the corpus, or patterns of it, the first with a match: JSON lines, or
            JSON (a list of items, or an object of them); with ``listed`` a text with a caption in each line.
        columns: Role -> column: ``image`` (a file name; else the id with ``.jpg``), ``caption`` (a text or several);
            of captions ``id`` (of the image; else from its file name) and ``split``; of hard negatives ``negative``
            and, for a second caption, ``further``, and ``id`` (of the item within its category; else its place).
        listed: Patterns of the name of the list of images, one a line, which the lines of captions follow.
        nested: True if the captions of every language are an object of their own in a row.
        hint: Where the files can be had.
        images: Folder of the images next to the tables, if it is not named.
        categories: Of hard negatives.
        splits: Values of the column ``split``, or of ``{split}``; one is read, the first by default.
        spelled: Part -> its name in names of files, where it is another.
        split: Of the hub.
        hub_columns: Role -> column on the hub, where it is another.
        configs: Category -> configuration on the hub.
    """

    file: str | Sequence[str]
    columns: Mapping[str, str] = MappingProxyType({"image": "image", "caption": "caption"})
    listed: Sequence[str] = ()
    nested: bool = False
    hint: str = ""
    images: str = ""
    categories: Sequence[str] = ()
    splits: Sequence[str] = ()
    spelled: Mapping[str, str] = MappingProxyType({})
    split: str = ""
    hub_columns: Mapping[str, str] = MappingProxyType({})
    configs: Mapping[str, str] = MappingProxyType({})


def table_reader(name: str) -> Callable[..., Corpus]:
    """Return the reader of a corpus with a table in its entry, with the options that apply to it."""
    entry = CORPORA[name]
    table = PublishedTable(**entry.table)
    in_parts = "{part}" in "".join((*table.file, table.split))
    languages = entry.languages if in_parts and not table.categories else ()
    choices = {"languages": languages, "categories": table.categories, "split": table.splits}
    usual: dict[str, Any] = {"split": next(iter(table.splits), ""), "dataset": entry.hub, "revision": None}
    reader = partial(_read_tables, name, table, **(choices | usual))
    hints, parameters = get_type_hints(_read_tables), []
    for option, parameter in inspect.signature(reader).parameters.items():
        if values := choices.get(option):
            one = Literal.__getitem__(tuple(values))
            hints[option] = one if option == "split" else Sequence[one]  # type: ignore[valid-type]
        elif option in choices or (option in ("dataset", "revision") and not entry.hub):
            continue
        default = parameter.default
        if option == "root" and not entry.hub:
            hints[option], default = str | Path, inspect.Parameter.empty
        parameters.append(parameter.replace(default=default, annotation=hints[option]))
    attributes = {"__name__": f"read_{name.replace('-', '_')}", "__doc__": _read_tables.__doc__}
    vars(reader).update(attributes, __annotations__=hints, __signature__=inspect.Signature(parameters))
    return reader


def _read_tables(
    name: str,
    table: PublishedTable,
    root: str | Path | None = None,
    *,
    images: Images = None,
    languages: Sequence[str],
    categories: Sequence[str],
    split: str,
    dataset: str,
    revision: str | None,
) -> Corpus:
    """Return the rows of the tables in their order, language by language or category by category.

    Args:
        root: Folder of the files; from the hub unless given, where it is there.
        images: Folder, or folders, of the images; without one, texts and ids only.

    Raises:
        RequestError: A file, field or image is missing, or the languages disagree on the images or their order.
    """
    parts, hub = categories or languages or ("",), None
    tables: dict[str, Iterable[Row]] = {}
    if root is None:
        table = table._replace(columns={**table.columns, **table.hub_columns}, nested=False)
        for part in parts:
            split_of_hub, config = table.split.format(part=part), table.configs.get(part)
            commit = revision or pinned(dataset)
            loaded = load_split(dataset, split=split_of_hub, config=config, revision=commit, or_only=True)
            hub, place = hub or loaded, loaded.name
            tables[part] = rows_of(loaded)
    else:
        folder = files.require_folder(root, f"{name} folder")
        named = {part: _named(table.file, table.spelled.get(part, part), split) for part in parts}
        listed = {"": _named(table.listed, "", split)} if table.listed else {}
        paths = files.require_files(folder, listed | named, hint=table.hint)
        first = next(iter(paths.values()))
        images, place = images or (files.folder_in(first.parent, table.images) if table.images else None), str(first)
        names = _image_names(paths.pop("")) if listed else None
        rows = {
            file: [*rows_of(file)] if names is None else _lines(file, names) for file in dict.fromkeys(paths.values())
        }
        tables = {part: rows[file] for part, file in paths.items()}
    if "negative" in table.columns:
        contents = hard_negatives(list(_negatives(table, tables)), numbered=False)
    else:
        contents = _captions(name, table, tables, split, hub)
        if split and not contents.images:
            raise RequestError(f"{place}: no images of split {split!r} in it")
    part = split if split not in table.splits[:1] else ""
    return published_corpus(name, contents, part=part, categories=categories, images=images, hub=hub)


Row: TypeAlias = tuple[str, object, Mapping[str, Any]]  # its place, for messages; its number; its cells


def _named(patterns: str | Sequence[str], part: str, split: str) -> list[str]:
    each = [patterns] if isinstance(patterns, str) else patterns
    return [pattern.format(part=part, split=split) for pattern in each]


def _image_names(file: Path) -> list[str]:
    return [line.partition("#")[0].strip() for line in read_text(file).splitlines()]


def _lines(file: Path, images: Sequence[str]) -> list[Row]:
    """Return the lines of a text as the captions of these images."""
    texts = read_text(file).removesuffix("\n").split("\n")  # not splitlines, which also splits at other separators
    if len(texts) != len(images):
        raise RequestError(f"{file}: expected {len(images)} captions, one a line, got {len(texts)}")
    rows = enumerate(zip(images, texts, strict=True))
    return [(f"{file}: line {n + 1}", n, {"image": image, "caption": text}) for n, (image, text) in rows]


def rows_of(source: Path | HubSplit) -> Iterator[Row]:
    """Yield the rows of a split on the hub, or of a JSON file: lines, a list, or an object with numbers as keys."""
    if isinstance(source, HubSplit):
        yield from ((f"{source.name}: row {n}", n, row) for n, row in enumerate(source.rows()))
    elif source.suffix != ".json":
        yield from ((f"{source}: line {n}", n, row) for n, row in enumerate(read_json_lines(source), start=1))
    else:
        content = read_json(source)
        if not isinstance(content, dict | list):
            raise RequestError(f"{source}: expected a list of items, got {type(content).__name__}")
        items = content.items() if isinstance(content, dict) else enumerate(content)
        yield from ((f"{source}: item {number}", number, row) for number, row in items)


def _negatives(table: PublishedTable, tables: Mapping[str, Iterable[Row]]) -> Iterator[HardNegativeItem]:
    columns = table.columns
    for category, rows in tables.items():
        for where, number, row in rows:
            roles = ("image", "caption", "negative", *(["further"] if "further" in columns else []))
            name, caption, negative, *further = (files.field(row, columns[role], str, where) for role in roles)
            item = f"{category}/{row.get(columns.get('id', 'id'), number)}"
            yield HardNegativeItem(
                item, ImageRow(image_id_of(name), name), caption, [(category, negative)], further=further
            )


def _captions(
    name: str, table: PublishedTable, tables: Mapping[str, Iterable[Row]], split: str, hub: HubSplit | None
) -> PublishedContents:
    """Return the captions of every language, in the order of the images of the first."""
    columns, first = table.columns, next(iter(tables))
    images: list[ImageRow] = []
    captions: list[Iterator[CaptionRow]] = []
    for language, rows in tables.items():
        found = []
        for where, number, row in rows:
            if "split" in columns and files.field(row, columns["split"], str, where) != split:
                continue
            if "id" in columns:
                identifier = str(files.field(row, columns["id"], int | str, where))
            else:
                identifier = image_id_of(files.field(row, columns["image"], str, where))
            if language == first:
                key = f"{identifier}.jpg"
                if hub is not None and hub.images:
                    key = f"{hub.images[0]}/{number}"
                elif "image" in columns:
                    key = files.field(row, columns["image"], str, where)
                images.append(ImageRow(identifier, key))
            said = files.field(row, language, dict, where) if table.nested else row
            texts = files.texts_in(said, columns["caption"], where)  # the hub has lists as texts
            found.append((identifier, texts))
        captions.append(captions_in(language or "en", images, found, f"{name}: {language}"))
    return PublishedContents(images, chain.from_iterable(captions))
