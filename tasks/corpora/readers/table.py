"""The user's own data: a table of captions, pairs or quadruples, and a folder of images."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from store.errors import RequestError
from store.types import Corpus
from tasks.corpora.files import corpus_name, first_match, read_json_lines, require_file
from tasks.corpora.images.image_files import Missing
from tasks.corpora.readers.forms import FormName, corpus_of_rows

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
NAMES = tuple(f"{stem}{suffix}" for stem in ("captions", "metadata", "pairs", "quadruples") for suffix in SUFFIXES)


def read_table(
    root: str | Path,
    *,
    images: str | Path | None = None,
    form: FormName | None = None,
    columns: Mapping[str, str] | None = None,
    language: str = "en",
    reference_language: str = "en",
    ids_only: bool = False,
    missing: Missing = "error",
    name: str | None = None,
    licence: str = "unknown",
) -> Corpus:
    """The corpus of a ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet`` table, in the order of its rows.

    Args:
        root: The table, or the folder with ``captions.csv`` (``.tsv``, ``.jsonl``, ``.parquet``; or ``metadata``,
            ``pairs``, ``quadruples``).
        images: Folder that the image column's paths start from; ``images/`` beside the table if it exists,
            else the table's folder.
        form: ``captions``, ``pairs`` or ``quadruples`` (:mod:`tasks.corpora.readers.forms`); by default taken
            from the table's name.

    Raises:
        RequestError: The table cannot be read, lacks a column, or its rows are at fault; lists every fault.
    """
    path = Path(root).expanduser().absolute()
    file = _table_in(path) if path.is_dir() else require_file(path, "table")
    by_name: FormName = "pairs" if "pairs" in file.stem else "quadruples" if "quadruples" in file.stem else "captions"
    available, rows = _table_rows(file)
    if images is None:
        images = file.parent / "images" if (file.parent / "images").is_dir() else file.parent
    return corpus_of_rows(
        name or corpus_name(path),
        rows,
        available,
        where=str(file),
        form=form or by_name,
        columns=columns or {},
        language=language,
        ids_only=ids_only,
        images=images,
        missing=missing,
        reference_language=reference_language,
        licence=licence,
        origin=str(file),
    )


def _table_in(folder: Path) -> Path:
    if (file := first_match(folder, *NAMES)) is None:
        raise RequestError(f"{folder}: no table in it; looked for {', '.join(NAMES)}")
    return file


def _table_rows(file: Path) -> tuple[list[str], Iterator[Mapping[str, Any]]]:
    """The columns of a table, and an iterator that reads its rows.

    Raises:
        RequestError: The suffix is unknown, or the file is not what its suffix says.
    """
    if file.suffix in (".csv", ".tsv"):
        return _delimited(file, "\t" if file.suffix == ".tsv" else ",")
    if file.suffix == ".jsonl":
        first = next(read_json_lines(file), {})
        return list(first), read_json_lines(file)
    if file.suffix == ".parquet":
        try:
            table = pq.ParquetFile(file)
        except (pa.ArrowInvalid, OSError) as error:
            raise RequestError(f"{file}: not a Parquet file ({error})") from error
        return table.schema_arrow.names, (row for batch in table.iter_batches() for row in batch.to_pylist())
    raise RequestError(f"{file}: expected a table ({', '.join(SUFFIXES)}), got {file.suffix or 'no suffix'}")


def _delimited(file: Path, delimiter: str) -> tuple[list[str], Iterator[Mapping[str, Any]]]:
    with file.open(encoding="utf-8-sig", newline="") as lines:
        try:
            header = next(csv.reader(lines, delimiter=delimiter), [])
        except (csv.Error, UnicodeDecodeError) as error:
            raise RequestError(f"{file}: not a table in UTF-8 ({error})") from error
    if len(set(header)) != len(header):
        twice = next(column for column in header if header.count(column) > 1)
        raise RequestError(f"{file}: two columns are named {twice!r}; rename one of them")

    def rows() -> Iterator[Mapping[str, Any]]:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            try:
                for number, cells in enumerate(csv.reader(lines, delimiter=delimiter)):
                    if number == 0 or not cells:
                        continue
                    if len(cells) != len(header):
                        raise RequestError(
                            f"{file}: row {number}: expected {len(header)} cells as in the header, got {len(cells)}; "
                            "put texts that contain the separator in quotes"
                        )
                    yield dict(zip(header, cells, strict=True))
            except (csv.Error, UnicodeDecodeError) as error:
                raise RequestError(f"{file}: not a table in UTF-8 ({error})") from error

    return header, rows()
