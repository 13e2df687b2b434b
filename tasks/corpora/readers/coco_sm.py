"""COCO-SM: the Karpathy test split in 21 languages by three translation systems (unum-cloud/coco-sm).

4,993 images (seven that one system could not translate are excluded) in the order of their file names, with 24,975
captions in each translation. English is in every system's file: its figures belong to that system's table.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.build import ImageRow
from capim.tasks.corpora.files import field, folder_in, read_json, read_text, require_files, require_folder
from capim.tasks.corpora.images.image_files import Missing, image_id_of
from capim.tasks.corpora.readers.published import Translation, published_corpus, translations

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
        translators: Which of the three files.

    Raises:
        RequestError: A file or language is missing, the files disagree on the images or their order, one of them
            has an excluded image, or the captions are not those of the id mapping.
    """
    folder = require_folder(root, "coco-sm folder")
    folder = folder_in(folder, "meta") or folder
    files: list[str] | None = None
    captions: list[Translation] = []
    hint = "download from github.com/unum-cloud/coco-sm/meta"
    for system, file in zip(
        translators, require_files(folder, [f"{system}.json" for system in translators], hint=hint), strict=True
    ):
        content = read_json(file)
        for language in languages:
            entries = field(content, language, list, file)
            where = f"{file}: {language}"
            names = [field(entry, "filename", str, f"{where}: entry {i}") for i, entry in enumerate(entries)]
            if files is None:
                files = names
            elif names != files:
                raise RequestError(f"{where}: {_first_difference(files, names)}; all files must list the same images")
            captions += [
                Translation(image_id_of(name), field(entry, "captions", list, f"{where}: entry {i}"), language, system)
                for i, (name, entry) in enumerate(zip(names, entries, strict=True))
            ]
    names = files or []
    _check_against_lists(folder, names, captions)
    rows = [ImageRow(image_id_of(name), name) for name in names]
    return published_corpus("coco-sm", translations(rows, captions), images=images, missing=missing)


def _first_difference(expected: Sequence[str], got: Sequence[str]) -> str:
    if len(expected) != len(got):
        return f"expected {len(expected)} images, got {len(got)}"
    at = next(i for i, (one, other) in enumerate(zip(expected, got, strict=True)) if one != other)
    return f"expected {expected[at]!r} as image {at}, got {got[at]!r}"


def _check_against_lists(folder: Path, names: Sequence[str], captions: Sequence[Translation]) -> None:
    """Compare the captions with ``excluded.txt`` and ``id_mapping.json``, if these files exist."""
    faults = []
    if (folder / "excluded.txt").is_file():
        excluded = set(read_text(folder / "excluded.txt").split())
        if listed := [name for name in names if name in excluded]:
            faults.append(f"{folder}: lists {', '.join(listed[:3])}, which excluded.txt leaves out")
    if (file := folder / "id_mapping.json").is_file():
        mapping = field(read_json(file), "image2text", dict, file)
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
