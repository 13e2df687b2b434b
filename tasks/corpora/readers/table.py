"""The user's own data: a table of captions, pairs or quadruples, and a folder of images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora.files import corpus_name, read_json, read_json_lines, require_file
from capim.tasks.corpora.images.image_files import Missing, is_image_name, without_image_suffix
from capim.tasks.corpora.readers.columns import Columns, FormName, form_of
from capim.tasks.corpora.readers.delimited import delimited_rows
from capim.tasks.corpora.readers.forms import corpus_of_rows

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".txt", ".token")
STEMS = ("captions", "metadata", "pairs", "quadruples")  # of tables that are found before any other

_GLANCE = 100  # rows of a JSON Lines file that are read to see its columns


def read_table(
    root: str | Path,
    *,
    images: str | Path | None = None,
    form: FormName | None = None,
    columns: Columns | None = None,
    language: str = "en",
    reference_language: str = "en",
    ids_only: bool = False,
    missing: Missing = "error",
    name: str | None = None,
    licence: str = "unknown",
) -> Corpus:
    """The corpus of a table, in the order of its rows.

    A table is a ``.csv``, ``.tsv`` or ``.txt`` file (:mod:`tasks.corpora.readers.delimited`), JSON lines, Parquet, or
    JSON: a list of objects, or an object from file names to captions.

    Args:
        root: The table, or the folder that holds it: under one of ``STEMS``, else as the only one that fits a form.
        images: Folder that the image column's paths start from; unless given, the table's folder, and ``images/``
            beside the table if it exists.
        form: ``captions``, ``pairs`` or ``quadruples`` (:mod:`tasks.corpora.readers.forms`); by default taken
            from the table's name or its columns.

    Raises:
        RequestError: The table cannot be read, lacks a column, or its rows are at fault; lists every fault.
    """
    path = Path(root).expanduser().absolute()
    file = _require_table(path) if path.is_dir() else require_file(path, "table")
    available, rows = table_rows(file)
    beside = [folder for folder in (file.parent / "images", file.parent) if folder.is_dir()]
    return corpus_of_rows(
        name or corpus_name(path),
        rows,
        available,
        where=str(file),
        form=form or form_of(file.stem, available) or "captions",
        columns=columns or {},
        language=language,
        ids_only=ids_only,
        images=images or beside,
        missing=missing,
        reference_language=reference_language,
        licence=licence,
        origin=str(file),
    )


def named_table(folder: Path) -> Path | None:
    """The table of a folder that has one of the usual names; None if there is none, or it is COCO's JSON.

    Raises:
        RequestError: There are several.
    """
    files = [file for file in tables_in(folder) if file.stem in STEMS and not is_coco(file)]
    return _only(folder, [file for file in files if _fits(file)] or files)


def any_table(folder: Path) -> Path | None:
    """The table of a folder that has the columns of a form, whatever its name; None if there is none.

    A text file beside an image of the same name is not looked at.

    Raises:
        RequestError: There are several.
    """
    images = {without_image_suffix(file.name) for file in folder.iterdir()}
    return _only(folder, [file for file in tables_in(folder) if file.stem not in images and _fits(file)])


def tables_in(folder: Path) -> list[Path]:
    """The files of a folder that may be tables by their suffix, sorted."""
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())


def table_columns(file: Path) -> list[str]:
    """The columns of a table, seen at a glance: a column that later rows alone have is not among them.

    Raises:
        RequestError: It is not a table.
    """
    if file.suffix.lower() in (".jsonl", ".ndjson"):
        return _columns_of(islice(read_json_lines(file), _GLANCE))
    return table_rows(file)[0]


def is_coco(file: Path, *keys: str) -> bool:
    """Whether a JSON file may be one of COCO's: an object whose first key is one of these, or at least no image's."""
    if file.suffix.lower() != ".json":
        return False
    with file.open("rb") as stream:
        start = stream.read(1000).decode("utf-8-sig", errors="replace").split('"', 2)
    if start[0].strip() != "{" or len(start) < 2:
        return False
    return start[1] in keys if keys else not is_image_name(start[1])


def table_rows(file: Path) -> tuple[list[str], Iterator[Mapping[str, Any]]]:
    """The columns of a table, and an iterator that reads its rows.

    Raises:
        RequestError: The suffix is unknown, or the file is not what its suffix says.
    """
    suffix = file.suffix.lower()
    if suffix in (".csv", ".tsv", ".txt", ".token"):
        return delimited_rows(file)
    if suffix in (".jsonl", ".ndjson"):
        lines = list(read_json_lines(file))
        return _columns_of(iter(lines)), iter(lines)
    if suffix == ".json":
        entries = _objects(read_json(file), file)
        return _columns_of(iter(entries)), iter(entries)
    if suffix == ".parquet":
        try:
            table = pq.ParquetFile(file, pre_buffer=False)  # else what was read stays in memory until the end
        except (pa.ArrowInvalid, OSError) as error:
            raise RequestError(f"{file}: not a Parquet file ({error})") from error
        return table.schema_arrow.names, (row for batch in table.iter_batches() for row in batch.to_pylist())
    raise RequestError(f"{file}: expected a table ({', '.join(SUFFIXES)}), got {file.suffix or 'no suffix'}")


def _require_table(folder: Path) -> Path:
    if (file := named_table(folder) or any_table(folder)) is None:
        names = ", ".join(f"{stem}.csv" for stem in STEMS)
        raise RequestError(
            f"{folder}: no table in it; looked for {names} and the like, and for any other table with a column of "
            "images and one of captions"
        )
    return file


def _fits(file: Path) -> bool:
    try:
        return form_of(file.stem, table_columns(file)) is not None
    except RequestError:
        return False


def _only(folder: Path, files: list[Path]) -> Path | None:
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise RequestError(
            f"{folder}: several tables could be its captions: {names}; name one in place of the folder, as in "
            f'`capim corpora check {files[0]}`, or in {folder / "corpus.toml"} with reader = "table" and '
            f'root = "{files[0].name}"'
        )
    return files[0] if files else None


def _columns_of(rows: Iterator[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(column for row in rows for column in row))


def _objects(content: object, file: Path) -> list[dict[str, Any]]:
    """The rows of a JSON file: a list of objects, or an object from file names to a caption or several."""
    if isinstance(content, dict) and any(map(is_image_name, content)):
        return [{"image": name, "caption": captions} for name, captions in content.items()]
    if isinstance(content, list) and all(isinstance(entry, dict) for entry in content):
        return content
    raise RequestError(
        f"{file}: expected a list of objects, or an object from the names of image files to their captions"
    )
