"""COCO-SM: the Karpathy test split in 21 languages by three translation systems (unum-cloud/coco-sm).

4,993 images (seven that one system could not translate are excluded) in the order of their file names, with 24,975
captions in each translation. English is in every system's file: its figures belong to that system's table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from store.errors import RequestError
from store.types import Corpus
from tasks.corpora import CORPORA
from tasks.corpora.files import field, read_json, require_file, require_folder
from tasks.corpora.images.image_files import Missing, coco_id, located
from tasks.corpora.readers.multilingual import Translation, multilingual_corpus
from tasks.corpora.rows import ImageRow

LANGUAGES = CORPORA["coco-sm"].languages
TRANSLATORS = ("google", "bing", "nllb")


def read_coco_sm(
    root: str | Path,
    *,
    images: str | Path | None = None,
    languages: Sequence[str] = LANGUAGES,
    translators: Sequence[str] = TRANSLATORS,
    missing: Missing = "error",
) -> Corpus:
    """The translations, system by system and language by language, images in the order of the files.

    Args:
        root: Folder with ``google.json``, ``bing.json`` and ``nllb.json`` (in it or in ``meta/``), and beside them
            ``excluded.txt`` and ``id_mapping.json``, which are checked where they are there.
        images: Folder with COCO images under any of their names; without one, texts and ids alone.
        languages: Which of the 21.
        translators: Which of the three files.
        missing: ``error``, or ``skip`` to list images that are not there as skipped.

    Raises:
        RequestError: A file or language is missing, the files disagree on the images or their order, one of them
            has an excluded image, or the captions are not those of the id mapping.
    """
    folder = require_folder(root, "coco-sm folder")
    folder = folder / "meta" if (folder / "meta").is_dir() else folder
    if absent := [f"{system}.json" for system in translators if not (folder / f"{system}.json").is_file()]:
        raise RequestError(f"{folder}: {', '.join(absent)} not in it; they are at github.com/unum-cloud/coco-sm/meta")
    files: list[str] | None = None
    translations: list[Translation] = []
    for system in translators:
        file = require_file(folder / f"{system}.json", "coco-sm file")
        content = read_json(file)
        for language in languages:
            entries = field(content, language, list, file)
            where = f"{file}: {language}"
            names = [field(entry, "filename", str, f"{where}: entry {i}") for i, entry in enumerate(entries)]
            if files is None:
                files = names
            elif names != files:
                raise RequestError(f"{where}: {_first_difference(files, names)}; all files must list the same images")
            translations += _translations(names, entries, language, system, where)
    names = files or []
    _check_against(folder, names, translations)
    rows = [ImageRow(_id(name), name) for name in names]
    there = located(rows, images, missing=missing, origin=folder)
    return multilingual_corpus(
        "coco-sm",
        there.rows,
        translations,
        source=there.source,
        skipped=there.skipped,
        licence=CORPORA["coco-sm"].licence,
        origin="https://github.com/unum-cloud/coco-sm",
    )


def _id(name: str) -> str:
    return coco_id(name) or Path(name).stem


def _translations(
    names: Sequence[str], entries: Sequence[object], language: str, system: str, where: str
) -> Iterator[Translation]:
    for i, (name, entry) in enumerate(zip(names, entries, strict=True)):
        yield Translation(_id(name), field(entry, "captions", list, f"{where}: entry {i}"), language, system)


def _first_difference(expected: Sequence[str], got: Sequence[str]) -> str:
    if len(expected) != len(got):
        return f"{len(got)} images, expected {len(expected)}"
    at = next(i for i, (one, other) in enumerate(zip(expected, got, strict=True)) if one != other)
    return f"image {at} is {got[at]!r}, expected {expected[at]!r}"


def _check_against(folder: Path, names: Sequence[str], translations: Sequence[Translation]) -> None:
    """Hold the captions against ``excluded.txt`` and ``id_mapping.json`` where these are there."""
    faults = []
    if (folder / "excluded.txt").is_file():
        excluded = set((folder / "excluded.txt").read_text(encoding="utf-8").split())
        found = [name for name in names if name in excluded]
        if found:
            faults.append(f"{folder}: lists {', '.join(found[:3])}, which excluded.txt leaves out")
    if (folder / "id_mapping.json").is_file():
        mapping = field(read_json(folder / "id_mapping.json"), "image2text", dict, folder / "id_mapping.json")
        if len(mapping) != len(names):
            faults.append(f"{folder}: {len(names)} images, id_mapping.json has {len(mapping)}")
        counts = {_id(name): len(mapping.get(str(i), ())) for i, name in enumerate(names)}
        wrong = next((each for each in translations if len(each.texts) != counts[each.image_id]), None)
        if wrong is not None and len(mapping) == len(names):
            faults.append(
                f"{folder}: image {wrong.image_id} has {len(wrong.texts)} captions in {wrong.language} by "
                f"{wrong.translator}, id_mapping.json has {counts[wrong.image_id]}"
            )
    if faults:
        raise RequestError(faults)
