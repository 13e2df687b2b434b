"""Published corpora in layouts that are no tables.

Captions:

* COCO-SM (unum-cloud/coco-sm): COCO's Karpathy test split in 21 languages by three translation systems. Seven images
  that one system could not translate are excluded; English is in every system's file, and its results are in that
  system's table.
* Urban1k (Zhang et al. 2024, Long-CLIP, https://arxiv.org/abs/2403.15378): long captions, one a file. Published: R@1 in
  both directions. Most are longer than CLIP's 77 tokens.

Captions against hard negatives:

* ARO: Attribution, Relation and Order (Yuksekgonul et al. 2023, https://arxiv.org/abs/2210.01936). In relation and
  attribution, the image is the box of a Visual Genome photograph that the caption describes. In order, each caption has
  four negatives, which are shuffles of its words; the paper counts a caption as correct if it wins against all four
  (chance 20%).
* CREPE: systematicity and productivity (Ma et al. 2023, https://arxiv.org/abs/2212.07796). An item is a box of a Visual
  Genome photograph with its caption and several hard negatives; the paper's result is the rank of the caption among its
  negatives.
* NegBench: captions with negation, as multiple choice or for retrieval (Alhamoud et al. 2025,
  https://arxiv.org/abs/2501.09425). Each CSV file is a corpus of its own, named after the file. The authors' code takes
  the first of equal scores; here a question is wrong if its right caption ties with another (docs/metrics.md).

Quadruples, two images and the caption of each:

* Winoground: 400 examples of two images and two captions with the same words (Thrush et al. 2022). The tags of "Why is
  Winoground Hard?" (Diwan et al. 2022, https://arxiv.org/abs/2211.00768) are added if their file is given.
* BiVLC: SugarCrepe's captions and negatives with an image for each (Miranda et al. 2024,
  https://arxiv.org/abs/2406.09952). The images of the negatives were generated. Its I2T, T2I and group scores are
  Winoground's text, image and group scores.
* MMVP-VLM: photographs that CLIP confuses, each with a statement, in nine visual patterns (Tong et al. 2024,
  https://arxiv.org/abs/2401.06209). A pair counts where both statements choose their image: Winoground's image score.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias

from capim.store.errors import RequestError
from capim.store.sets.columns_read import tell
from capim.store.tables import read_json, read_text, rows_with
from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA, files, pinned
from capim.tasks.corpora.build import ImageRow
from capim.tasks.corpora.images.image_files import image_id_of
from capim.tasks.corpora.readers.hub import HubSplit, load_split
from capim.tasks.corpora.readers.published import (
    HardNegativeItem,
    PublishedContents,
    QuadrupleItem,
    captions_in,
    hard_negatives,
    published_corpus,
    quadruples,
    rows_of,
)

TRANSLATORS = ("google", "bing", "nllb")
Part: TypeAlias = Literal["relation", "attribution", "coco-order", "flickr-order"]
ARO_HUB: dict[Part, str] = {
    "relation": CORPORA["aro"].hub,
    "attribution": "mteb/ARO-Visual-Attribution",
    "coco-order": "mteb/ARO-COCO-order",
    "flickr-order": "mteb/ARO-Flickr-Order",
}
_SHUFFLES = ("shuffle_nouns_and_adj", "shuffle_allbut_nouns_and_adj", "shuffle_within_trigrams", "shuffle_trigrams")
_PRODUCTIVITY = re.compile(r"prod_vg_hard_negs_(atom|swap|negate)_complexity_(\d+)\.csv$")
_SYSTEMATICITY = re.compile(r"syst_vg_hard_negs_(seen|unseen)_compounds_in_(\w+)\.csv$")
_BOX = ("x", "y", "width", "height")
_PATHS = ("image_path", "filepath")
_UNTAGGED = "No Tag"
_BIVLC = ("caption", "negative_caption", "type", "subtype")
_MMVP = ("Question ID", "Type", "Statement")


def read_aro(
    root: str | Path | None = None,
    *,
    part: Part = "relation",
    images: str | Path | None = None,
    revision: str | None = None,
) -> Corpus:
    """Return one part of ARO; the category is the relation, the pair of attributes, or the kind of shuffling.

    Args:
        root: Folder with the part's ``visual_genome_*.json`` (only relation and attribution have files); from the
            hub unless given.
        part: ``relation``, ``attribution``, ``coco-order`` or ``flickr-order``.
        images: Folder of Visual Genome images; ``root/images`` by default. Without one, texts and ids only.

    Raises:
        RequestError: A file, image or field is missing.
    """
    hub, column = None, None
    source: Path | HubSplit
    if root is None:
        source = hub = load_split(ARO_HUB[part], split="test", revision=revision or pinned(ARO_HUB[part]))
        column = next((name for name in ("image", "images") if name in hub.images), None)
        if column is None:
            raise RequestError(f"{hub.name}: no column 'image' or 'images' with images")
    else:
        folder = files.require_folder(root, "aro folder")
        images = images or files.folder_in(folder, "images")
        if part not in ("relation", "attribution"):
            raise RequestError(
                f"aro: {part} has no files (its negatives are drawn at random); leave out root to read the hub"
            )
        hint = "it is linked from github.com/mertyg/vision-language-models-are-bows"
        source = files.require_match(folder, f"visual_genome_{part}.json", hint=hint)
        other = "attribution" if part == "relation" else "relation"
        if (folder / f"visual_genome_{other}.json").is_file():
            tell(f'warning: {folder}: visual_genome_{other}.json is not read; part = "{other}" reads it')
    items = [_aro_item(*each, column) for each in rows_of(source)]
    return published_corpus("aro", hard_negatives(items), part=part, images=images, hub=hub)


def _aro_item(where: str, number: object, row: Mapping[str, Any], column: str | None) -> HardNegativeItem:
    """Return one item; in the files, which have no column of images, its image is a box of a photograph."""
    box, identifier = None, str(number)
    if column is None:
        x, y, width, height = (
            int(files.field(row, f"bbox_{side}", int | float, where)) for side in ("x", "y", "w", "h")
        )
        box = (x, y, width, height)
    key = files.field(row, "image_path", str, where) if column is None else f"{column}/{number}"
    if "true_caption" in row:
        category = str(row.get("relation_name") or "all")
        if isinstance(attributes := row.get("attributes"), Sequence) and not isinstance(attributes, str):
            category = "_".join(map(str, attributes))
        caption, negative = (files.field(row, f"{kind}_caption", str, where) for kind in ("true", "false"))
        return HardNegativeItem(identifier, ImageRow(identifier, key), caption, [(category, negative)], box)
    texts = [files.field(row, f"hard_text_{n}", str, where) for n in range(1, 5)]
    caption = files.field(row, "correct_caption", str, where)
    return HardNegativeItem(identifier, ImageRow(identifier, key), caption, list(zip(_SHUFFLES, texts, strict=True)))


def read_crepe(root: str | Path, *, images: str | Path | None = None, train_set: str = "cc12m") -> Corpus:
    """Return all items of the CSV files below a folder, file by file in the order of their names.

    Categories: ``productivity/atom/4`` (kind of negative, complexity) and ``systematicity/seen/comp`` (compounds seen
    in the training set, kind of negative).

    Args:
        root: Folder with ``prod_vg_hard_negs_*.csv`` and ``syst_vg_hard_negs_*.csv``, at any depth.
        images: Folder of Visual Genome images, as they are or in ``VG_100K`` and ``VG_100K_2``; without one,
            texts and ids only.
        train_set: Training set of the systematicity files: ``cc12m``, ``yfcc`` or ``laion``.

    Raises:
        RequestError: The folder has no such files, a column or image is missing, or negatives are not a list of texts.
    """
    folder = files.require_folder(root, "crepe folder")
    items = [item for file in sorted(folder.rglob("*.csv")) for item in _crepe_items(file, train_set)]
    if not items:
        raise RequestError(
            f"{folder}: no prod_vg_hard_negs_*.csv or syst_vg_hard_negs_*_in_{train_set}.csv below it; "
            "they are at github.com/RAIVNLab/CREPE"
        )
    folders = None
    if images is not None:
        base = files.require_folder(images, "image folder")
        folders = [base, *(folder for name in ("VG_100K", "VG_100K_2") if (folder := base / name).is_dir())]
    return published_corpus("crepe", hard_negatives(items), images=folders)


def _crepe_items(file: Path, train_set: str) -> Iterator[HardNegativeItem]:
    productivity, systematicity = _PRODUCTIVITY.search(file.name), _SYSTEMATICITY.search(file.name)
    if productivity:
        columns = {"hard_negs": f"productivity/{productivity[1]}/{productivity[2]}"}
    elif systematicity and systematicity[2] == train_set:
        columns = {f"valid_hard_negs_{kind}": f"systematicity/{systematicity[1]}/{kind}" for kind in ("atom", "comp")}
    else:
        return
    rows = rows_with(file, *sorted({"image_id", "caption", *_BOX}))
    if rows and not set(columns) & set(rows[0]):
        raise RequestError(f"{file}: no column {', '.join(sorted(columns))}; it has {', '.join(rows[0])}")
    for number, row in enumerate(rows):
        where, identifier = f"{file}: row {number}", f"{file.stem}/{number}"
        try:
            x, y, width, height = (round(float(row[side])) for side in _BOX)
        except (TypeError, ValueError) as error:
            given = [row[side] for side in _BOX]
            raise RequestError(f"{where}: expected a box of four numbers, got {given}") from error
        negatives = [
            (category, text)
            for column, category in columns.items()
            if row.get(column) not in (None, "", "[]")
            for text in files.texts_in(row, column, where, single=False)
        ]
        image = ImageRow(identifier, f"{row['image_id'].removesuffix('.0')}.jpg")
        yield HardNegativeItem(identifier, image, row["caption"], negatives, (x, y, width, height))


def read_negbench(root: str | Path, *, images: str | Path | None = None) -> Corpus:
    """Return the rows of one CSV file, in their order.

    A file with ``correct_answer`` holds questions: ``caption_0``, ``caption_1`` …, one of them right; the category
    is its template (positive, negative, hybrid). A file with ``captions`` holds images with several captions.

    Args:
        root: The CSV file, or a folder with one.
        images: Folder of the images, by their names without folders (COCO val2017, VOC2007); without one, texts and
            ids only.

    Raises:
        RequestError: The file, a column or an image is missing, or a cell has invalid content.
    """
    path = Path(root).expanduser().absolute()
    hint = "the files are linked from https://github.com/m1k2zoo/negbench"
    file = files.require_match(path, "*.csv", hint=hint) if path.is_dir() else files.require_file(path, "negbench file")
    rows = rows_with(file)
    header = list(rows[0]) if rows else []
    column = next((name for name in _PATHS if name in header), None)
    if column is None or not {"captions", "correct_answer"} & set(header):
        raise RequestError(
            f"{file}: expected a column {' or '.join(_PATHS)}, and correct_answer (multiple choice) or captions "
            f"(retrieval); it has {', '.join(header) or 'no rows'}"
        )
    names = [row[column].replace("\\", "/") for row in rows]
    image_rows = [ImageRow(image_id_of(name), name.rpartition("/")[2]) for name in names]
    if len({row.id for row in image_rows}) != len(set(names)):
        raise RequestError(f"{file}: images in different folders have the same name; rename them in column {column}")
    if "captions" in header:
        found = [
            (image.id, files.texts_in(row, "captions", f"{file}: row {number}", single=False))
            for number, (row, image) in enumerate(zip(rows, image_rows, strict=True))
        ]
        contents = PublishedContents(image_rows, captions_in("en", image_rows, found, file))
    else:
        items = [_question(file, number, row, image_rows[number]) for number, row in enumerate(rows)]
        contents = hard_negatives(items)
    return published_corpus("negbench", contents, part=files.corpus_name(file), images=images)


def _question(file: Path, number: int, row: Mapping[str, Any], image: ImageRow) -> HardNegativeItem:
    """Return the right caption of a question, with the others as its negatives."""
    options = [option for n in range(len(row)) if (option := f"caption_{n}") in row]
    right = f"caption_{row['correct_answer'].strip().removesuffix('.0')}"
    if right not in options or len(options) < 2:
        raise RequestError(
            f"{file}: row {number}: expected correct_answer to be the number of one of "
            f"{', '.join(options) or 'caption_0 …'}, got {row['correct_answer']!r}"
        )
    category = row.get("correct_answer_template") or "all"
    return HardNegativeItem(
        str(number), image, row[right], [(category, row[option]) for option in options if option != right]
    )


def read_winoground(
    root: str | Path | None = None,
    *,
    images: str | Path | None = None,
    tags: str | Path | None = None,
    dataset: str = CORPORA["winoground"].hub,
    revision: str | None = None,
    ids_only: bool = False,
) -> Corpus:
    """Return the examples in their order: images ``0/0``, ``0/1``, ``1/0`` …, and captions by the same ids.

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
        source = hub = load_split(dataset, split="test", revision=revision or pinned(dataset), need=need)
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
            own += list(assigned.get(identifier, ())) or [_UNTAGGED]
        items.append(QuadrupleItem(identifier, keys, captions, list(dict.fromkeys(own))))
    origin = str(source) if hub is None else hub.origin
    if ids_only:
        hub = images = None
    return published_corpus("winoground", quadruples(items), images=images, hub=hub, origin=origin)


def read_bivlc(
    root: str | Path | None = None, *, dataset: str = CORPORA["bivlc"].hub, revision: str | None = None
) -> Corpus:
    """Return the rows in their order; ids are positions: quadruple ``0`` with images and captions ``0/0`` and ``0/1``.

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
        need = ("image", "negative_image", *_BIVLC)
        hub = load_split(folder, split="test", revision=revision or pinned(folder), need=need)
        rows, origin = hub.rows(), hub.origin
    items = []
    shown: dict[str, int] = {}  # caption -> the first row with its photograph, where there are no images to tell
    for position, row in enumerate(rows):
        caption, negative, kind, subtype = (files.field(row, name, str, f"{origin}: row {position}") for name in _BIVLC)
        of_caption = position if hub is not None else shown.setdefault(caption, position)
        keys = (f"image/{of_caption}", f"negative_image/{position}")
        items.append(QuadrupleItem(str(position), keys, (caption, negative), (kind, subtype)))
    return published_corpus("bivlc", quadruples(items), hub=hub, origin=origin)


def read_mmvp_vlm(root: str | Path, *, images: str | Path | None = None) -> Corpus:
    """Return the pairs in the order of ``Questions.csv``; the tag of a pair is its pattern.

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
    return published_corpus("mmvp-vlm", quadruples(items), images=images)


def read_coco_sm(
    root: str | Path,
    *,
    images: str | Path | None = None,
    languages: Sequence[str] = CORPORA["coco-sm"].languages,
    translators: Sequence[str] = TRANSLATORS,
) -> Corpus:
    """Return the translations, system by system and language by language, images in the order of the files.

    Args:
        root: Folder with ``google.json``, ``bing.json`` and ``nllb.json`` (in it or in ``meta/``), and next to them
            ``excluded.txt`` and ``id_mapping.json``, which are checked where they are there.
        translators: Which of the three files.

    Raises:
        RequestError: A file or language is missing, the files disagree on the images or their order, one of them
            has an excluded image, or the captions are not those of the id mapping.
    """
    folder = files.require_folder(root, "coco-sm folder")
    folder = files.folder_in(folder, "meta") or folder
    rows: list[ImageRow] = []
    read: dict[tuple[str, str], list[tuple[str, list[str]]]] = {}  # by system and language: images and their captions
    hint = "download from github.com/unum-cloud/coco-sm/meta"
    paths = files.require_files(folder, {system: [f"{system}.json"] for system in translators}, hint=hint)
    for system, file in paths.items():
        content = read_json(file)
        for language in languages:
            found = read[system, language] = []
            for number, entry in enumerate(files.field(content, language, list, file)):
                where = f"{file}: {language}: entry {number}"
                name = files.field(entry, "filename", str, where)
                if len(read) == 1:
                    rows.append(ImageRow(image_id_of(name), name))
                found.append((image_id_of(name), files.texts_in(entry, "captions", where)))
    captions = [
        captions_in(language, rows, found, f"{paths[system]}: {language}", translator=system)
        for (system, language), found in read.items()
    ]
    _check_against_lists(folder, [row.key for row in rows], read)
    contents = PublishedContents(rows, chain.from_iterable(captions))
    return published_corpus("coco-sm", contents, images=images)


def _check_against_lists(
    folder: Path, names: Sequence[str], read: Mapping[tuple[str, str], Sequence[tuple[str, Sequence[str]]]]
) -> None:
    """Compare the captions with ``excluded.txt`` and ``id_mapping.json``, if these files exist."""
    faults = []
    if (folder / "excluded.txt").is_file():
        excluded = set(read_text(folder / "excluded.txt").split())
        if listed := [name for name in names if name in excluded]:
            faults.append(f"{folder}: lists {', '.join(listed[:3])}, which excluded.txt leaves out")
    if (file := folder / "id_mapping.json").is_file():
        mapping = files.field(read_json(file), "image2text", dict, file)
        if len(mapping) != len(names):
            faults.append(f"{folder}: expected {len(mapping)} images as in {file.name}, got {len(names)}")
        else:
            counts = {image_id_of(name): len(mapping.get(str(i), ())) for i, name in enumerate(names)}
            faults += [
                f"{folder}: expected {counts[image]} captions of image {image} as in {file.name}, got {len(texts)} in "
                f"{language} by {system}"
                for (system, language), found in read.items()
                for image, texts in found
                if len(texts) != counts[image]
            ][:1]
    if faults:
        raise RequestError(faults)


def read_urban1k(root: str | Path, *, images: str | Path | None = None) -> Corpus:
    """Return the images in the order of their numbers, each with the first line of its caption file.

    Args:
        root: The unpacked ``Urban1k.zip`` of the hub's data set: ``caption/<name>.txt`` and ``image/<name>.jpg``.
        images: Folder of the images; ``root/image`` by default. Without it, texts and ids only.

    Raises:
        RequestError: A folder, caption or image is missing.
    """
    folder = files.require_folder(root, "urban1k folder")
    paths = sorted((folder / "caption").glob("*.txt"), key=lambda file: (len(file.stem), file.stem))
    if not paths:
        raise RequestError(
            f"{folder}: no caption/*.txt in it; unpack Urban1k.zip of "
            "huggingface.co/datasets/BeichenZhang/Urban1k there"
        )
    images = images or files.folder_in(folder, "image")
    rows = [ImageRow(file.stem, f"{file.stem}.jpg") for file in paths]
    found = [(file.stem, [read_text(file).strip().partition("\n")[0].strip()]) for file in paths]
    contents = PublishedContents(rows, captions_in("en", rows, found, folder))
    return published_corpus("urban1k", contents, images=images)
