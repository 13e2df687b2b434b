"""From what a user writes (a name, a folder, a TOML file, a mapping) to one call of one reader.

A description names a reader of ``CORPORA`` and its options; paths start from the file's own folder:

.. code-block:: toml

    reader = "table"                     # captions.csv, .tsv, .jsonl or .parquet
    root = "catalogue/captions.csv"
    images = "catalogue/photos"
    columns = { image = "file", caption = "title_de" }
    language = "de"
    missing = "skip"                     # list images without a file instead of refusing the corpus
    sample = 500                         # optional, drawn with sample_seed

Own data is called by the file's name unless it says ``name``; corpora of the field keep theirs.
"""

from __future__ import annotations

import importlib
import inspect
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from store.errors import RequestError
from store.types import Corpus
from tasks.corpora import CORPORA
from tasks.corpora.files import corpus_name
from tasks.corpora.options import option_fault, takes_paths
from tasks.corpora.readers.table import NAMES, SUFFIXES
from tasks.corpora.subset import sample_corpus


class FolderLayout(NamedTuple):
    """How the files of a folder tell which reader is meant: any of these patterns matches something in it."""

    patterns: tuple[str, ...]
    reader: str


# The first that matches decides.
FOLDER_LAYOUTS: tuple[FolderLayout, ...] = (
    FolderLayout(("captions.json", "captions_*.json", "annotations/captions_*.json"), "coco-captions"),
    FolderLayout(("dataset_coco.json", "coco_karpathy_test.json", "test_5k.json"), "coco-karpathy"),
    FolderLayout(("dataset_flickr30k.json", "flickr30k_test.json"), "flickr30k-karpathy"),
    FolderLayout(("examples.jsonl", "data/examples.jsonl"), "winoground"),
    FolderLayout(("swap_obj.json",), "sugarcrepe"),
    FolderLayout(("prod_vg_hard_negs_*.csv", "syst_vg_hard_negs_*.csv"), "crepe"),
    FolderLayout(("google.json", "meta/google.json"), "coco-sm"),
    FolderLayout(("test_image_names.txt", "XTD10/test_image_names.txt"), "xtd10"),
    FolderLayout(("image_splits", "data/task1/image_splits"), "multi30k"),
    FolderLayout(NAMES, "table"),
    FolderLayout(("en.jsonl",), "xflickrco"),
    FolderLayout(("*.tar",), "webdataset"),
)


@dataclass(frozen=True, kw_only=True)
class ReaderCall:
    """A reader and the options to call it with: known to exist, not yet known to be right.

    Attributes:
        entry: Key of ``CORPORA``.
        reader: The function.
        options: What it is called with; paths are absolute.
        name: What the corpus is to be called where the reader does not take that itself.
        sample: Draw so many images.
        seed: Of the draw.
    """

    entry: str
    reader: Callable[..., Corpus]
    options: Mapping[str, object]
    name: str | None = None
    sample: int | None = None
    seed: int = 0

    def read(self) -> Corpus:
        """The corpus, or its draw."""
        corpus = self.reader(**self.options)
        if self.name is not None:
            corpus = replace(corpus, name=self.name)
        return corpus if self.sample is None else sample_corpus(corpus, self.sample, seed=self.seed)


def plan(what: str | Path | Mapping[str, object], *, base: Path | None = None) -> ReaderCall:
    """Which reader is meant and with what options; reads nothing but the description itself.

    Args:
        what: As for :func:`tasks.corpora.open_corpus`.
        base: Folder that relative paths start from; the working folder unless given.

    Raises:
        RequestError: The name is unknown, the path does not exist, or options are unknown, missing or mistyped.
    """
    base = base or Path.cwd()
    if isinstance(what, Mapping):
        return _from_mapping(what, base, "corpus description")
    text = str(what)
    if text in CORPORA:
        return _from_mapping({"reader": text}, base, f"corpus {text!r}")
    path = (base / Path(text).expanduser()).absolute()
    if path.is_dir():
        return _from_folder(path)
    if path.is_file():
        return _from_file(path)
    raise RequestError(_unknown(text))


def _unknown(text: str) -> str:
    if os.sep in text or text.startswith(".") or Path(text).suffix:
        return f"corpus {text!r}: no such folder or file; check the path (known names: {', '.join(CORPORA)})"
    close = get_close_matches(text, CORPORA, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return (
        f"corpus {text!r} is unknown; {hint}known: {', '.join(CORPORA)}; or give a folder of images with captions, "
        "or a TOML file that describes one"
    )


def _from_folder(folder: Path) -> ReaderCall:
    description = folder / "corpus.toml"
    if description.is_file():
        return _from_file(description)
    for layout in FOLDER_LAYOUTS:
        if any(next(folder.glob(pattern), None) is not None for pattern in layout.patterns):
            return _from_mapping({"reader": layout.reader, "root": str(folder)}, folder, f"folder {folder}")
    if not any(folder.iterdir()):
        raise RequestError(f"folder {folder}: it is empty; expected images with a captions file, or tar shards")
    looked_for = ", ".join(dict.fromkeys(layout.patterns[0] for layout in FOLDER_LAYOUTS))
    raise RequestError(
        f"folder {folder}: no corpus found in it; looked for corpus.toml, {looked_for} and the like; "
        "describe it in a corpus.toml (reader, root …)"
    )


def _from_file(path: Path) -> ReaderCall:
    if path.suffix in SUFFIXES:
        return _from_mapping({"reader": "table", "root": str(path)}, path.parent, str(path))
    if path.suffix == ".tar":
        one = {"reader": "webdataset", "root": str(path.parent), "shards": path.name, "name": corpus_name(path)}
        return _from_mapping(one, path.parent, str(path))
    if path.suffix == ".json":
        one = {"reader": "coco-captions", "root": str(path.parent), "captions": str(path)}
        return _from_mapping(one, path.parent, str(path))
    if path.suffix != ".toml":
        raise RequestError(
            f"{path}: a corpus is a .toml description, a table ({', '.join(SUFFIXES)}), a COCO-format .json or a "
            f".tar shard; got {path.suffix or 'no suffix'}"
        )
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"{path}: not TOML: {error}") from error
    call = _from_mapping(content, path.parent, str(path))
    if "name" in inspect.signature(call.reader).parameters and "name" not in call.options:
        usual = corpus_name(path.parent if path.stem == "corpus" else path)
        return replace(call, options={**call.options, "name": usual})
    return call


def _from_mapping(content: Mapping[str, object], base: Path, where: str) -> ReaderCall:
    entry = content.get("reader")
    if not isinstance(entry, str) or entry not in CORPORA:
        got = "no reader is named" if entry is None else f"reader {entry!r} is unknown"
        raise RequestError(f"{where}: {got}; set reader to one of {', '.join(CORPORA)}")
    module, _, function = CORPORA[entry].reader.partition(":")
    reader: Callable[..., Corpus] = getattr(importlib.import_module(module), function)
    parameters = inspect.signature(reader).parameters
    sample, seed, name = content.get("sample"), content.get("sample_seed", 0), content.get("name")
    faults = [
        f"{where}: {option} must be a whole number from {lowest} on, got {value!r}"
        for option, value, lowest in (("sample", sample, 1), ("sample_seed", seed, 0))
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < lowest)
    ]
    if name is not None and (not isinstance(name, str) or corpus_name(Path(name)) != name):
        faults.append(f"{where}: name may hold only ASCII letters, digits, '.', '_' and '-', got {name!r}")
    own = {"reader", "sample", "sample_seed", "name"}
    options = {key: value for key, value in content.items() if key not in own}
    if "name" in parameters and name is not None:
        options["name"] = name
    unknown = [option for option in options if option not in parameters]
    if unknown:
        faults.append(
            f"{where}: reader {entry!r} does not know {', '.join(map(repr, unknown))}; "
            f"it takes {', '.join(dict.fromkeys([*parameters, 'name', 'sample', 'sample_seed']))}"
        )
    lacking = [option for option in CORPORA[entry].required if option not in options]
    if lacking:
        faults.append(f"{where}: reader {entry!r} needs {', '.join(lacking)} ({CORPORA[entry].needs})")
    for option in [option for option in options if option in parameters]:
        if fault := option_fault(reader, option, options[option]):
            faults.append(f"{where}: {fault}")
        elif takes_paths(reader, option):
            options[option] = _absolute(options[option], base)
    if faults:
        raise RequestError(faults)
    return ReaderCall(
        entry=entry,
        reader=reader,
        options=options,
        name=name if isinstance(name, str) and "name" not in parameters else None,
        sample=sample if isinstance(sample, int) else None,
        seed=seed if isinstance(seed, int) else 0,
    )


def _absolute(value: object, base: Path) -> object:
    """Paths, alone or in a list or a table, made absolute; anything else as it is, for the reader to judge."""
    if isinstance(value, str | Path):
        return str((base / Path(value).expanduser()).absolute())
    if isinstance(value, list | tuple):
        return [_absolute(each, base) for each in value]
    if isinstance(value, Mapping):
        return {key: _absolute(each, base) for key, each in value.items()}
    return value
