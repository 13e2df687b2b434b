"""The user's own data: a table of captions, pairs or quadruples, and a folder of images.

Texts with separators are read strictly: a quote that swallows rows is an error. The separator is the first of ``,``,
tab, ``|`` and ``;`` in the first line (a ``.tsv`` file has tabs). Cells of files with commas or semicolons may be
quoted; other files are read as written, quotes included, unless all of their quotes are paired as in a CSV file. A file
without a header is read if it has two columns and one of them holds image files; Flickr8k's ``name.jpg#0`` is the image
and the caption's number.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, TypeGuard

import pyarrow as pa
import pyarrow.parquet as pq

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora.files import corpus_name, opened_text, read_json, read_json_lines, require_file
from capim.tasks.corpora.images.image_files import Missing, is_image_name, without_image_suffix
from capim.tasks.corpora.readers import forms

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".txt", ".token")
STEMS = ("captions", "metadata", "pairs", "quadruples")  # of tables that are found before any other

_SEPARATORS = ",\t|;"
_QUOTING = ",;"  # separators of files whose cells may be quoted
_NUMBERED = re.compile(r"^(.+)#(\d+)$")  # Flickr8k's name of a caption
_IDENTIFIER = re.compile(r"\S*[\d_]\S*")
_GLANCE = 100  # rows of a JSON Lines file that are read to see its columns


def read_table(
    root: str | Path,
    *,
    images: str | Path | None = None,
    form: forms.FormName | None = None,
    columns: forms.Columns | None = None,
    language: str = "en",
    reference_language: str = "en",
    ids_only: bool = False,
    split: str | None = None,
    missing: Missing = "error",
    name: str | None = None,
    licence: str = "unknown",
) -> Corpus:
    """The corpus of a table, in the order of its rows.

    A table is a ``.csv``, ``.tsv`` or ``.txt`` file with separators, JSON lines, Parquet, or
    JSON: a list of objects (or the only one in an object), or an object from file names to captions.

    Args:
        root: The table, or the folder that holds it: under one of ``STEMS``, else as the only one that fits a form.
        images: Folder that the image column's paths start from; unless given, the table's folder, and ``images/``
            beside the table if it exists.
        form: ``captions``, ``pairs`` or ``quadruples`` (:mod:`tasks.corpora.readers.forms`); by default taken
            from the table's name or its columns.
        split: The rows to read of a table with a column ``split``; unless given, those of ``test``, or all if there are
            none.

    Raises:
        RequestError: The table cannot be read, lacks a column, or its rows are at fault; lists every fault.
    """
    path = Path(root).expanduser().absolute()
    file = named_table(path) or any_table(path) if path.is_dir() else require_file(path, "table")
    if file is None:
        raise RequestError(
            f"{path}: no table in it; looked for {', '.join(f'{stem}.csv' for stem in STEMS)} and the like, and for "
            "any other table with a column of images and one of captions"
        )
    available, rows = table_rows(file)
    read = forms.of_languages(
        forms.of_split(forms.TableRows(str(file), available, rows, str(file)), split, columns=columns or {}),
        columns or {},
    )
    beside = [folder for folder in (file.parent / "images", file.parent) if folder.is_dir()]
    form = form or forms.form_of(file.stem, read.available) or "captions"
    options = forms.RowOptions(form, columns or {}, language, reference_language, ids_only)
    name = name or corpus_name(path)
    return forms.corpus_of_rows(name, read, options, images=images or beside, missing=missing, licence=licence)


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
    state = file.stat()
    found = _seen(file, state.st_mtime_ns, state.st_size)
    if isinstance(found, RequestError):
        raise RequestError(found.faults)
    return [*found]


def columns_or_none(file: Path) -> list[str] | None:
    """As :func:`table_columns`; None for a file that is no table."""
    try:
        return table_columns(file)
    except RequestError:
        return None


@lru_cache(maxsize=256)
def _seen(file: Path, _mtime: int, _size: int) -> list[str] | RequestError:
    """The columns of a file in one state, or its fault: every layout asks, and large files are read whole."""
    try:
        if file.suffix.lower() in (".jsonl", ".ndjson"):
            return _columns_of(islice(read_json_lines(file), _GLANCE))
        return table_rows(file)[0]
    except RequestError as error:
        return error


def is_coco(file: Path) -> bool:
    """True if a JSON file may be one of COCO's: an object with annotations, not one from names of images."""
    if file.suffix.lower() != ".json" or not file.stat().st_size:
        return False
    with file.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as content:
        start, *key = content[:1000].decode("utf-8-sig", errors="replace").split('"', 2)
        annotated = content.find(b'"annotations"') >= 0
    return annotated and start.strip() == "{" and not is_image_name(key[0])


def shards_in(folder: Path) -> list[Path]:
    """The Parquet files of a data set in a folder of the hub's layout."""
    return sorted(folder.glob("*.parquet")) or sorted(folder.glob("data/*.parquet"))


def holds_images(file: Path) -> bool:
    """True if a Parquet file has a column of bytes, or of structs with bytes in them."""
    try:
        schema = pq.read_schema(file)
    except (pa.ArrowInvalid, OSError):
        return False
    types = [
        kind.field("bytes").type if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0 else kind
        for kind in schema.types
    ]
    return any(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) for kind in types)


def table_rows(file: Path) -> tuple[list[str], Iterator[Mapping[str, Any]]]:
    """The columns of a table, and an iterator that reads its rows.

    Raises:
        RequestError: The suffix is unknown, or the file is not what its suffix says.
    """
    suffix = file.suffix.lower()
    if suffix in (".csv", ".tsv", ".txt", ".token"):
        return delimited_rows(file)
    if suffix in (".jsonl", ".ndjson", ".json"):
        entries = _objects(file) if suffix == ".json" else list(read_json_lines(file))
        return _columns_of(entries), iter(entries)
    if suffix == ".parquet":
        try:
            table = pq.ParquetFile(file, pre_buffer=False)  # else what was read stays in memory until the end
        except (pa.ArrowInvalid, OSError) as error:
            raise RequestError(f"{file}: not a Parquet file ({error})") from error
        return table.schema_arrow.names, (row for batch in table.iter_batches() for row in batch.to_pylist())
    raise RequestError(f"{file}: expected a table ({', '.join(SUFFIXES)}), got {file.suffix or 'no suffix'}")


def _fits(file: Path) -> bool:
    columns = columns_or_none(file)
    return columns is not None and forms.form_of(file.stem, columns) is not None


def _only(folder: Path, files: list[Path]) -> Path | None:
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise RequestError(
            f"{folder}: several tables could be its captions: {names}; name one in place of the folder, as in "
            f'`capim check {files[0]}`, or in {folder / "corpus.toml"} with reader = "table" and '
            f'root = "{files[0].name}"'
        )
    return files[0] if files else None


def _columns_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(column for row in rows for column in row))


def _objects(file: Path) -> list[dict[str, Any]]:
    """The rows of a JSON file: a list of objects, the only such list in an object, or an object of objects.

    An object from the names of image files may hold a caption or several in place of objects.
    """
    content = read_json(file)
    if isinstance(content, dict) and any(map(is_image_name, content)):
        return [{"image": name, **(of if isinstance(of, dict) else {"caption": of})} for name, of in content.items()]
    if isinstance(content, dict):
        lists = list(filter(_are_objects, content.values()))
        content = lists[0] if len(lists) == 1 else list(content.values())
    if _are_objects(content):
        return content
    raise RequestError(
        f"{file}: expected a list of objects, the only one in an object, or an object from the names of image files to "
        "their captions"
    )


def _are_objects(value: object) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and bool(value) and all(isinstance(entry, dict) for entry in value)


def delimited_rows(file: Path) -> tuple[list[str], Iterator[Mapping[str, Any]]]:
    """The columns of a file, and an iterator that reads its rows; empty lines are left out.

    Raises:
        RequestError: It is not UTF-8, two columns have one name, a row has more or fewer cells than the header, a
            quote is not closed, or a cell holds what looks like rows of its own.
    """
    with opened_text(file, "a table in UTF-8", newline="") as lines:
        first = next((line for line in lines if line.strip()), "")
    separator = "\t" if file.suffix.lower() == ".tsv" else next((c for c in first if c in _SEPARATORS), ",")
    quoted = separator in _QUOTING or _paired_quotes(file, separator)
    header = [cell.strip() for cell in next(_records(file, separator, quoted=quoted), [])]
    headless = any(map(_is_image, header))
    columns = _columns_of_first(header, file) if headless else header
    if len(set(columns)) != len(columns):
        twice = next(column for column in columns if columns.count(column) > 1)
        raise RequestError(f"{file}: two columns are named {twice!r}; rename one of them")

    def rows() -> Iterator[Mapping[str, Any]]:
        records = _records(file, separator, quoted=quoted)
        for number, cells in enumerate(islice(records, int(not headless), None), start=1):
            if len(cells) != len(header):
                raise RequestError(
                    f"{file}: row {number}: expected {len(header)} cells as in the header, got {len(cells)}; "
                    "put texts that contain the separator in quotes"
                )
            row = dict(zip(columns, map(str.strip, cells) if separator == "|" else cells, strict=False))
            if numbered := headless and _NUMBERED.match(row["image"]):
                row |= {"image": numbered[1], "ordinal": numbered[2]}
            yield row

    return columns, rows()


def rows_with(file: Path, *columns: str) -> list[Mapping[str, Any]]:
    """The rows of a file that has at least these columns.

    Raises:
        RequestError: A column is missing, or as :func:`delimited_rows`.
    """
    has, rows = delimited_rows(file)
    if lacking := [column for column in columns if column not in has]:
        raise RequestError(f"{file}: no column {', '.join(lacking)}; it has {', '.join(has) or 'none'}")
    return list(rows)


def _is_image(cell: str) -> bool:
    numbered = _NUMBERED.match(cell)
    return is_image_name(numbered[1] if numbered else cell)


def _columns_of_first(first: Sequence[str], file: Path) -> list[str]:
    """The columns of a file without a header, by its first row."""
    if len(first) != 2:
        raise RequestError(
            f"{file}: its first line is a row ({', '.join(first)!r:.60}); write a line with the names of its "
            f"{len(first)} columns above it, for instance image,caption"
        )
    names = ["image", "caption"] if _is_image(first[0]) else ["caption", "image"]
    return [*names, "ordinal"] if any(map(_NUMBERED.match, first)) else names


def _records(file: Path, separator: str, *, quoted: bool) -> Iterator[list[str]]:
    """The cells of every record that is not empty.

    Raises:
        RequestError: Its quotes are not those of a CSV file, or it is not UTF-8.
    """
    with opened_text(file, "a table in UTF-8", newline="") as lines:
        reader = csv.reader(
            lines,
            delimiter=separator,
            quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
            skipinitialspace=separator != "\t",
            strict=True,
        )
        while True:
            line = reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                if reader.line_num == line and "field limit" in str(error):
                    most = csv.field_size_limit()
                    raise RequestError(f"{file}: line {line}: a cell has more than {most:,} characters") from error
                raise RequestError(
                    f"{file}: line {line}: a quote is opened here that no quote at the end of a cell closes "
                    f"({error}, line {reader.line_num}); double the quotes within a text, and quote the whole text"
                ) from error
            if quoted and (row := _row_within(cells, separator)) is not None:
                raise RequestError(
                    f"{file}: line {line}: a quote is opened here and closed lines later, which makes one cell of "
                    f"them; within it, {row!r:.60} looks like a row of its own; double the quotes within a text, and "
                    "quote the whole text"
                )
            if cells:
                yield cells


def _row_within(cells: Sequence[str], separator: str) -> str | None:
    """A line within a cell that has as many cells as the row, and file names or numbers where the row has them.

    Where the row has none, every line of the cell but its first, or but its last, has as many cells as the row.
    """
    for place, cell in enumerate(cells):
        lines = cell.splitlines()
        if len(lines) < 2:
            continue
        parts = [[part.strip(' "') for part in line.split(separator)] for line in lines]
        if marks := [n for n, other in enumerate(cells) if n != place and _is_identifier(other)]:
            for line, own in zip(lines, parts, strict=True):
                if len(own) >= len(cells) and all(_is_identifier(own[n]) for n in marks):
                    return line
        elif any(all(len(own) == len(cells) for own in some) for some in (parts[1:], parts[:-1])):
            return lines[1] if len(parts[1]) == len(cells) else lines[0]
    return None


def _is_identifier(cell: str) -> bool:
    return is_image_name(cell) or _IDENTIFIER.fullmatch(cell) is not None


def _paired_quotes(file: Path, separator: str) -> bool:
    """True if a file has quotes, and every one of them opens, closes or is doubled as in a CSV file."""
    with opened_text(file, "a table in UTF-8", newline="") as lines:
        if not any('"' in line for line in lines):
            return False
    try:
        return len({len(cells) for cells in _records(file, separator, quoted=True)}) == 1
    except RequestError:
        return False
