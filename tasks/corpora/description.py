"""Open a corpus by what the user writes to name it: a name, a path, a TOML file or a mapping.

A description names a reader of ``CORPORA`` and its options; paths start from the folder of the file:

.. code-block:: toml

    reader = "table"
    root = "catalogue/captions.csv"
    images = "catalogue/photos"
    columns = { image = "file", caption = "title_de" }
    language = "de"
    missing = "skip"                     # leave out images without a file instead of refusing the corpus

A corpus of the user's own data is named after the file unless ``name`` is given; published corpora keep their names.

Options that several readers share:

* ``root``: file or folder of the data; where a reader can do without it, it reads the hub;
* ``images``: folder of the image files, COCO's under any of their names; without one, texts and ids only, unless the
  data set holds the images;
* ``missing``: ``"error"`` (default), or ``"skip"`` to leave out images without a file, and rows that lack a cell or
  cannot be read;
* ``split``, ``languages``, ``translators``, ``categories``: the parts to read;
* ``dataset``, ``config``, ``revision``: hub id (or a folder in the hub's layout), configuration, and branch, tag or
  commit, used without ``root``;
* ``licence`` of images and captions; ``language`` (BCP-47) of captions without one in their row;
  ``reference_language`` that cross-lingual metrics compare with;
* ``form`` and ``columns`` of a table (role -> column, for roles without a column of a usual name):
  :mod:`capim.store.forms`; ``ids_only``: read ids and texts without images, for embeddings made elsewhere
  (``docs/embeddings.md``).
"""

from __future__ import annotations

import importlib
import inspect
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, create_model

from capim.store.errors import RequestError, did_you_mean
from capim.store.forms import NO_COLUMNS, Columns
from capim.store.plugins import OWN
from capim.store.schema import texts
from capim.store.tables import SUFFIXES, skipping_bad_rows
from capim.store.types import Corpus, name_fault
from capim.tasks.corpora import CORPORA, JUDGED_TASKS, named_elsewhere
from capim.tasks.corpora.files import corpus_name
from capim.tasks.corpora.images.image_files import any_below
from capim.tasks.corpora.layouts import Recognised, recognise_file, recognise_folder
from capim.tasks.corpora.readers.judged import task_reader
from capim.tasks.corpora.readers.published import UNPUBLISHED, table_reader
from capim.tasks.corpora.subset import sample_corpus

Missing: TypeAlias = Literal["error", "skip"]

# pydantic's error type -> the expected type in TOML's terms, where pydantic's own message does not use them
_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "is_instance_of": "a list of texts",
    "sequence_str": "a list of texts",
    "mapping_type": "a table of texts",
}


@dataclass(frozen=True, kw_only=True)
class ReaderCall:
    """A reader and the options to call it with.

    Attributes:
        reader: The function.
        options: Its keyword arguments, ``missing`` and ``licence``; paths are absolute.
        name: Name that replaces the corpus' own; None to keep it.
        place: The file or folder that own data are named after; None if the description names the corpus, or if it is
            a known one.
        recognised: What a folder or file was recognised as; None for a name, a TOML file or a mapping.
    """

    reader: Callable[..., Corpus]
    options: Mapping[str, object]
    name: str | None = None
    place: Path | None = None
    recognised: Recognised | None = None

    @property
    def usual_name(self) -> str:
        """The name that the corpus will have, as far as it is known before it is read."""
        known = self.reader.__name__.removeprefix("read_").replace("_", "-")
        after = known if self.place is None else corpus_name(self.place)
        return str(self.options.get("name") or self.name or after)

    def with_option(self, option: str, value: object) -> ReaderCall:
        """Return the call with an option, unless it is None; raise ``RequestError`` for a reader without it."""
        if value is None:
            return self
        if option not in (known := _options_of(self.reader)):
            raise RequestError(f"{self.usual_name}: its reader has no option {option!r}; it takes {', '.join(known)}")
        return replace(self, options={**self.options, option: value})

    def read(self) -> Corpus:
        """Return the corpus; own files in the form of a published corpus are named after their place.

        Images of a recognised corpus are read from its folder if one of them is there, also where a description would
        have to name their folder.
        """
        parameters = inspect.signature(self.reader).parameters
        options = {option: value for option, value in self.options.items() if option in parameters}
        with skipping_bad_rows(self.options.get("missing") == "skip"):
            corpus = self.reader(**options)
            if self.recognised is not None and corpus.source is None and "root" in options and "images" in parameters:
                place = Path(str(options["root"]))
                folder = place if place.is_dir() else place.parent
                if any_below(folder, texts(corpus.images["key"])):
                    corpus = self.reader(**options, images=folder)
        if corpus.origin.startswith(UNPUBLISHED) and (root := self.options.get("root")):
            name = f"{corpus.name}-{corpus_name(Path(str(root)))}"
            corpus = replace(corpus, name=name, origin=f"{root} ({corpus.origin})")
        licence = str(self.options.get("licence", corpus.licence))
        return replace(corpus, name=self.name or corpus.name, licence=licence)


def open_corpus(what: str | Path | Mapping[str, object], *, sample: int | None = None, seed: int = 0) -> Corpus:
    """Read and check one corpus.

    Args:
        what: A name of ``CORPORA``; or the path of a folder, captions file or TOML description; or the contents of
            such a description: ``{"reader": "coco-captions", "root": "photos", "name": "holidays"}``.
        sample: Number of images to draw, with all their captions; all images unless given.
        seed: Random seed of the draw.

    Raises:
        RequestError: The corpus is unknown, incomplete or faulty; lists every fault found.
    """
    corpus = reader_call(what).read()
    return corpus if sample is None else sample_corpus(corpus, sample, seed=seed)


def reader_call(what: str | Path | Mapping[str, object], columns: Columns = NO_COLUMNS) -> ReaderCall:
    """Return the reader and the options that a description means; only the description itself is read.

    Args:
        what: As for :func:`open_corpus`; relative paths start from the working folder.
        columns: Role -> column, as if the description named them.

    Raises:
        RequestError: The name is unknown, the path does not exist, or options are unknown, missing or of a wrong type.
    """
    base = Path.cwd()
    if isinstance(what, Mapping):
        named = f"corpus {what['name']!r}" if isinstance(what.get("name"), str) else "corpus description"
        return _with_columns(_from_mapping(what, base, named), columns)
    text = str(what)
    if text in CORPORA:
        here = f" (the folder here is ./{text})" if (base / text).is_dir() else ""
        return _with_columns(_from_mapping({"reader": text}, base, f"corpus {text!r}{here}"), columns)
    path = (base / Path(text).expanduser()).absolute()
    if path.is_dir():
        if not (path / "corpus.toml").is_file():
            return _from_recognised(recognise_folder(path, columns), path, f"folder {path}", columns)
        path /= "corpus.toml"
    if path.is_file():
        return _from_file(path, columns)
    if known := named_elsewhere(text):
        raise RequestError(f"corpus {known}")
    if os.sep in text or text.startswith(".") or Path(text).suffix:
        raise RequestError(f"corpus {text!r}: no such folder or file in {base}; check the path")
    raise RequestError(
        f"corpus {text!r} is unknown; {did_you_mean(text, CORPORA)}known names: {_known()}; or give a folder of images "
        "with captions, or a TOML file that describes one"
    )


def load_reader(name: str) -> Callable[..., Corpus]:
    """Return the reader of a corpus of ``CORPORA``.

    Raises:
        RequestError: The corpus comes from a package, and its reader cannot be imported.
    """
    if name in JUDGED_TASKS:
        return task_reader(name)
    if CORPORA[name].table:
        return table_reader(name)
    module, function = CORPORA[name].module or name.replace("-", "_"), f"read_{name.replace('-', '_')}"
    package = CORPORA.package(name)
    try:
        where = importlib.import_module(f"capim.tasks.corpora.readers.{module}" if package == OWN else module)
        reader: Callable[..., Corpus] = getattr(where, function)
    except (ImportError, AttributeError) as error:
        if package == OWN:
            raise
        raise RequestError(
            f"corpus {name!r} of package {package}: no reader {function} in {module} ({error})"
        ) from error
    return reader


def _known() -> str:
    names = ", ".join(name for name in CORPORA if name not in JUDGED_TASKS)
    return f"{names}, and {len(JUDGED_TASKS)} of document pages (capim list corpora)"


def _with_columns(call: ReaderCall, columns: Columns) -> ReaderCall:
    return call.with_option(
        "columns", {**cast("Columns", call.options.get("columns") or {}), **columns} if columns else None
    )


def _from_recognised(found: Recognised, path: Path, where: str, columns: Columns) -> ReaderCall:
    found = found._replace(content={**found.content, **({"columns": dict(columns)} if columns else {})})
    call = _from_mapping(found.content, path if path.is_dir() else path.parent, where)
    return replace(call, recognised=found, place=path if "name" in found.content else call.place)


def _from_file(path: Path, columns: Columns) -> ReaderCall:
    if (found := recognise_file(path, columns)) is not None:
        return _from_recognised(found, path, str(path), columns)
    if path.suffix in (".zip", ".7z", ".rar", ".gz", ".tgz"):
        raise RequestError(f"{path} is an archive: unpack it, and give its contents")
    if path.suffix != ".toml":
        raise RequestError(
            f"{path}: expected a .toml description, a table ({', '.join(SUFFIXES)}), a COCO-format .json or a "
            f".tar shard; got {path.suffix or 'no suffix'}"
        )
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"{path}: not TOML: {error}") from error
    call = _with_columns(_from_mapping(content, path.parent, str(path)), columns)
    if "name" in inspect.signature(call.reader).parameters and "name" not in call.options:
        place = path.parent if path.stem == "corpus" else path
        return replace(call, options={**call.options, "name": corpus_name(place)}, place=place)
    return call


def _valid_name(name: str) -> str:
    if fault := name_fault(name):
        raise ValueError(fault.removeprefix("expected "))
    return name


class _Description(BaseModel):
    """Options that every description may hold, for any reader."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reader: str
    name: Annotated[str, AfterValidator(_valid_name)] | None = None


def description_model(reader: Callable[..., Corpus]) -> type[BaseModel]:
    """Return the pydantic model of a description of this reader: its options, and what every description may hold."""
    options = {name: each for name, each in _options_of(reader).items() if name not in _Description.model_fields}
    return create_model("Description", __base__=_Description, **options)


def _options_of(reader: Callable[..., Corpus]) -> dict[str, Any]:
    """Return the options of a reader: name -> type and default (``...`` without one).

    What a reader of images may do with missing ones, and the licence of data of the user's own, need no parameter.
    """
    hints = get_type_hints(reader, include_extras=True)
    options: dict[str, Any] = {
        name: (str | Path if hints[name] is Path else hints[name], ... if each.default is each.empty else each.default)
        for name, each in inspect.signature(reader).parameters.items()
    }
    if "images" in options:
        options.setdefault("missing", (Missing, "error"))
    if "name" in options:
        options.setdefault("licence", (str, "unknown"))
    return options


def _from_mapping(content: Mapping[str, object], base: Path, where: str) -> ReaderCall:
    name = content.get("reader")
    if not isinstance(name, str) or name not in CORPORA:
        if name is None and {"encoders", "encoder", "corpora", "corpus"} & content.keys():
            raise RequestError(f"{where} is a suite, which names corpora: run it with `capim run {where}`")
        got = "no reader is named" if name is None else f"reader {name!r} is unknown"
        raise RequestError(f"{where}: {got}; {did_you_mean(str(name), CORPORA)}set reader to one of {_known()}")
    reader = load_reader(name)
    model = description_model(reader)
    try:
        settings: Any = model.model_validate(dict(content))
    except ValidationError as error:
        raise RequestError(_faults(error, content, model, where)) from error
    known, hints, paths = _options_of(reader), get_type_hints(reader), path_options(content, base)
    options = {
        option: _absolute(value, base) if option in paths else value
        for option, value in content.items()
        if option in known
    }
    options |= {option: Path(str(options[option])) for option in options if hints.get(option) is Path}
    unnamed = "name" in known and "name" not in content
    return ReaderCall(
        reader=reader,
        options=options,
        name=None if "name" in known else settings.name,
        place=Path(str(options.get("root") or options.get("dataset"))) if unnamed else None,
    )


def _faults(
    error: ValidationError, content: Mapping[str, object], model: type[BaseModel], where: str
) -> tuple[str, ...]:
    """Return one line for every invalid option: its name, its value, and the expected value."""
    lines: dict[object, str] = {}
    for fault in error.errors(include_url=False):
        option = str(fault["loc"][0])
        if fault["type"] == "missing":
            needs = CORPORA[str(content["reader"])].needs
            line = f"missing option {option!r}; reader {content['reader']!r} needs {needs}"
        elif fault["type"] == "extra_forbidden":
            near = did_you_mean(option, model.model_fields)
            takes = ", ".join(each for each in model.model_fields if each != "reader")
            line = f"unknown option {option!r} of reader {content['reader']!r}; {near or f'it takes {takes}'}"
        else:
            line = f"{option} must be {_expected(fault, model)}, got {content[option]!r}"
        lines.setdefault(option, f"{where}: {line}")
    return tuple(lines.values())


def _expected(fault: Mapping[str, Any], model: type[BaseModel]) -> str:
    hint = str(model.model_fields[fault["loc"][0]].annotation)
    if "Path" in hint:
        return "a path or a list of paths" if "Sequence" in hint else "a path"
    message: str = fault["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    words: str = _EXPECTED.get(fault["type"], message)
    if len(fault["loc"]) > 1:  # an item of a list or table
        return "a table of texts" if "Mapping" in hint else f"a list of {words.replace('text', 'texts')}"
    return words


def path_options(content: Mapping[str, object], base: Path) -> set[str]:
    """Return the options of a description that hold paths; a data set is a folder if there is one, else a hub id."""
    name = content.get("reader")
    known = _options_of(load_reader(name)) if isinstance(name, str) and name in CORPORA else {}
    paths = {option for option in content.keys() & known.keys() if "Path" in str(known[option][0])}
    data = content.get("dataset")
    return paths | ({"dataset"} if data and (base / Path(str(data)).expanduser()).exists() else set())


def _absolute(value: object, base: Path) -> object:
    """Return a path, or the paths of a list, made absolute."""
    if isinstance(value, str | Path):
        return str((base / Path(value).expanduser()).absolute())
    return [_absolute(each, base) for each in value] if isinstance(value, list | tuple) else value
