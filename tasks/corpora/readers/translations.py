"""Published captions in several languages or files, in layouts of more than one table.

* COCO-SM (unum-cloud/coco-sm): COCO's Karpathy test split in 21 languages by three translation systems. Seven images
  that one system could not translate are excluded; English is in every system's file, and its results are in that
  system's table.
* Crossmodal-3600 (Thapliyal et al. 2022, https://google.github.io/crossmodal-3600/): photographs from around the world.
  The captions of different languages were written independently: the English ones are not the originals of the others.
* XTD10 (Aggarwal and Kale 2020, https://github.com/adobe-research/Cross-lingual-Test-Dataset-XTD10): COCO images;
  German and French are from MIC, Japanese from STAIR.
* Multi30K (Elliott et al. 2016, https://github.com/multi30k/dataset, task 1): one English caption per Flickr30k image
  with its human translations.
* Urban1k (Zhang et al. 2024, Long-CLIP, https://arxiv.org/abs/2403.15378): long captions, one a file. Published: R@1 in
  both directions. Most are longer than CLIP's 77 tokens; the analysis ``truncated-captions`` compares queries
  with a truncated caption with the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from capim.store.errors import RequestError
from capim.store.tables import read_json, read_json_lines, read_text
from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA, files
from capim.tasks.corpora.build import ImageRow
from capim.tasks.corpora.images.image_files import Missing, image_id_of
from capim.tasks.corpora.readers.hub import load_split
from capim.tasks.corpora.readers.published import (
    PublishedContents,
    Translation,
    of_images,
    published_corpus,
    translations,
)

TRANSLATORS = ("google", "bing", "nllb")
_XTD10_CODE = {"ja": "jp"}  # as the files spell it


def read_coco_sm(
    root: str | Path,
    *,
    images: str | Path | None = None,
    languages: Sequence[str] = CORPORA["coco-sm"].languages,
    translators: Sequence[str] = TRANSLATORS,
    missing: Missing = "error",
) -> Corpus:
    """The translations, system by system and language by language, images in the order of the files.

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
    captions: list[Translation] = []
    hint = "download from github.com/unum-cloud/coco-sm/meta"
    paths = files.require_files(folder, [f"{system}.json" for system in translators], hint=hint)
    for system, file in zip(translators, paths, strict=True):
        content = read_json(file)
        for language in languages:
            found = []
            for number, entry in enumerate(files.field(content, language, list, file)):
                where = f"{file}: {language}: entry {number}"
                name = files.field(entry, "filename", str, where)
                if not captions:
                    rows.append(ImageRow(image_id_of(name), name))
                texts = files.texts_in(entry, "captions", where)
                found.append(Translation(image_id_of(name), texts, language, system))
            captions += of_images(rows, found, f"{file}: {language}")
    _check_against_lists(folder, [row.key for row in rows], captions)
    return published_corpus("coco-sm", translations(rows, captions), images=images, missing=missing)


def _check_against_lists(folder: Path, names: Sequence[str], captions: Sequence[Translation]) -> None:
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
            wrong = next((each for each in captions if len(each.texts) != counts[each.image_id]), None)
            if wrong is not None:
                faults.append(
                    f"{folder}: expected {counts[wrong.image_id]} captions of image {wrong.image_id} as in "
                    f"{file.name}, got {len(wrong.texts)} in {wrong.language} by {wrong.translator}"
                )
    if faults:
        raise RequestError(faults)


def read_crossmodal3600(
    root: str | Path | None = None,
    *,
    images: str | Path | None = None,
    languages: Sequence[str] = CORPORA["crossmodal3600"].languages,
    missing: Missing = "error",
    dataset: str = CORPORA["crossmodal3600"].hub,
    revision: str | None = None,
) -> Corpus:
    """The captions language by language, images in the order of ``captions.jsonl``.

    Args:
        root: Folder with ``captions.jsonl``; from the hub unless given.
        images: Folder of the images; ``root/images`` by default. Without one, texts and ids only.

    Raises:
        RequestError: A language, file or image is missing.
    """
    files.require_known("crossmodal3600", "languages", languages, CORPORA["crossmodal3600"].languages)
    hub = None
    captions: list[Translation] = []
    if root is None:
        need = ("image_id", "captions", "image")
        splits = {each: load_split(dataset, split=each, revision=revision, need=need) for each in languages}
        hub = splits[languages[0]]
        rows = [ImageRow(str(row["image_id"]), f"image/{i}") for i, row in enumerate(hub.rows())]
        for language, split in splits.items():
            found = [Translation(str(row["image_id"]), row["captions"], language) for row in split.rows()]
            captions += of_images(rows, found, split.name)
    else:
        hint = "it is in captions.zip at https://google.github.io/crossmodal-3600/"
        folder = files.require_folder(root, "crossmodal3600 folder")
        file = files.require_match(folder, "captions.jsonl", "*/captions.jsonl", hint=hint)
        entries = list(read_json_lines(file))
        ids = [files.field(entry, "image/key", str, f"{file}: line {i + 1}") for i, entry in enumerate(entries)]
        rows = [ImageRow(identifier, f"{identifier}.jpg") for identifier in ids]
        for language in languages:
            for identifier, entry in zip(ids, entries, strict=True):
                where = f"{file}: image {identifier}"
                texts = files.texts_in(files.field(entry, language, dict, where), "caption", f"{where}: {language}")
                captions.append(Translation(identifier, texts, language))
        images = images or files.folder_in(file.parent, "images")
    return published_corpus("crossmodal3600", translations(rows, captions), images=images, missing=missing, hub=hub)


def read_xtd10(
    root: str | Path,
    *,
    images: str | Path | None = None,
    languages: Sequence[str] = CORPORA["xtd10"].languages,
    missing: Missing = "error",
) -> Corpus:
    """The captions language by language, images in the order of ``test_image_names.txt``.

    Args:
        root: The repository, or a folder that holds its text files at any depth.

    Raises:
        RequestError: A file or image is missing, or a file has more or fewer lines than there are images.
    """
    folder = files.require_folder(root, "xtd10 folder")
    listed = files.require_match(folder, "test_image_names.txt", "XTD10/test_image_names.txt")
    paths = {}
    for language in languages:
        name = f"test_1kcaptions_{_XTD10_CODE.get(language, language)}.txt"
        paths[language] = files.require_match(folder, name, *(f"{part}/{name}" for part in ("XTD10", "MIC", "STAIR")))
    contents = _line_translations(read_text(listed).splitlines(), paths)
    return published_corpus("xtd10", contents, images=images, missing=missing)


def read_multi30k(
    root: str | Path,
    *,
    images: str | Path | None = None,
    split: str = "test_2016_flickr",
    languages: Sequence[str] = CORPORA["multi30k"].languages,
    missing: Missing = "error",
) -> Corpus:
    """The captions language by language, images in the order of the split's list.

    Args:
        root: The repository, or its ``data/task1``.
        split: ``test_2016_flickr`` (1,000 images), ``val``, ``test_2017_flickr``, ``test_2017_mscoco``,
            ``test_2018_flickr``; Czech is not in all of them.

    Raises:
        RequestError: A file or image is missing, or a file has more or fewer lines than there are images.
    """
    folder = files.require_folder(root, "multi30k folder")
    base = files.folder_in(folder, "data/task1") or folder
    listed = files.require_match(base, f"image_splits/{split}.txt", f"{split}.txt")
    names = [line.split("#")[0].strip() for line in read_text(listed).splitlines()]
    paths = {}
    for language in languages:
        patterns = (f"raw/{split}.{language}.gz", f"raw/{split}.{language}", f"{split}.{language}")
        paths[language] = files.require_match(base, *patterns, hint=f"or leave {language!r} out of languages")
    part = "" if split == "test_2016_flickr" else split
    return published_corpus("multi30k", _line_translations(names, paths), part=part, images=images, missing=missing)


def _line_translations(image_names: Sequence[str], paths: Mapping[str, Path]) -> PublishedContents:
    """Return the rows of one text file per language, plain or gzipped, with one caption per line, in image order."""
    rows = [ImageRow(image_id_of(image), image) for image in image_names]
    captions = []
    for language, file in paths.items():
        texts = read_text(file).removesuffix("\n").split("\n")  # not splitlines, which also splits at other separators
        if len(texts) != len(rows):
            raise RequestError(f"{file}: expected {len(rows)} captions in {language!r}, got {len(texts)}")
        captions += [Translation(row.id, [text], language) for row, text in zip(rows, texts, strict=True)]
    return translations(rows, captions)


def read_urban1k(root: str | Path, *, images: str | Path | None = None, missing: Missing = "error") -> Corpus:
    """The images in the order of their numbers, each with the first line of its caption file.

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
    texts = [Translation(file.stem, [read_text(file).strip().partition("\n")[0].strip()]) for file in paths]
    return published_corpus("urban1k", translations(rows, texts), images=images, missing=missing)
