"""The user's own data: a table of captions, pairs or quadruples (:mod:`store.tables`), and a folder of images."""

from __future__ import annotations

from functools import lru_cache
from mmap import ACCESS_READ, mmap
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from capim.store.errors import RequestError
from capim.store.forms import FORMS, NO_COLUMNS, Columns, usual_column
from capim.store.sets.matching import whole_number
from capim.store.tables import SUFFIXES, glance, is_image_name, open_table, suffix_of, uncompressed
from capim.store.types import Corpus
from capim.tasks.corpora.files import corpus_name, require_file
from capim.tasks.corpora.images.image_files import image_id_of, without_image_suffix
from capim.tasks.corpora.readers import forms

STEMS = ("captions", "metadata", "pairs", "quadruples")  # of tables that are found before any other


def read_table(
    root: str | Path,
    *,
    images: str | Path | None = None,
    form: forms.FormName | None = None,
    columns: Columns | None = None,
    language: str = "en",
    reference_language: str = "en",
    ids_only: bool = False,
    split: str | None = None,
    name: str | None = None,
) -> Corpus:
    """Return the corpus of a table, in the order of its rows.

    Args:
        root: The table, or the folder that holds it: under one of ``STEMS``, else as the only one that fits a form.
        images: Folder that the image column's paths start from; unless given, the table's folder, and ``images/``
            next to the table if it exists.
        form: ``captions``, ``pairs`` or ``quadruples`` (:mod:`capim.store.forms`); by default taken
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
    _refuse_ids_of_others(file, columns or {})
    available, rows = open_table(file)
    read = forms.rows_to_read(forms.TableRows(str(file), available, rows, str(file)), split, columns or {})
    beside = [folder for folder in (file.parent / "images", file.parent) if folder.is_dir()]
    form = form or forms.own_form(uncompressed(file).stem, read.available, columns or {})
    options = forms.RowOptions(form, columns or {}, language, reference_language, ids_only)
    return forms.corpus_of_rows(name or corpus_name(path), read, options, images=images or beside)


def _refuse_ids_of_others(file: Path, columns: Columns) -> None:
    """Raise ``RequestError`` if the images are ids of another table of the folder, which has the names of files."""
    available, rows = open_table(file)
    ours, row = FORMS["captions"].find("image", available), next(rows, {})
    if ours is None or "image" in columns or is_image_name(cell := str(row.get(ours))):
        return
    for other in tables_in(file.parent):
        key = usual_column((ours, "id"), _names_of(other)) if other != file else None
        for each in open_table(other).rows if key is not None else ():
            name = next(filter(is_image_name, map(str, each.values())), cell)
            if str(each.get(str(key))) == cell and whole_number(image_id_of(name)) != whole_number(cell):
                raise RequestError(
                    f"{file}: {ours} {cell!r} is an id in {other.name}, which has the name of its file, {name!r}: join "
                    f"the two, in a table with a column of the names (--columns image={ours} if ids are such names)"
                )


def _names_of(file: Path) -> list[str]:
    """Return the columns of a table; none of what is no table."""
    try:
        return table_columns(file)
    except RequestError:
        return []


def named_table(folder: Path) -> Path | None:
    """Return the table of a folder that has one of the usual names; None if there is none, or it is COCO's JSON.

    Raises:
        RequestError: There are several.
    """
    files = [file for file in tables_in(folder) if uncompressed(file).stem in STEMS and not is_coco(file)]
    return _only(folder, [file for file in files if _fits(file)] or files)


def any_table(folder: Path, columns: Columns = NO_COLUMNS) -> Path | None:
    """Return the table of a folder that has the columns of a form, whatever its name; None if there is none.

    A text file next to an image of the same name is not looked at.

    Raises:
        RequestError: There are several.
    """
    images = {without_image_suffix(file.name) for file in folder.iterdir() if is_image_name(file.name)}
    others = [file for file in tables_in(folder) if uncompressed(file).stem not in images]
    return _only(folder, [file for file in others if _fits(file, columns)])


def tables_in(folder: Path) -> list[Path]:
    """Return the files of a folder that may be tables by their suffix, sorted."""
    return sorted(file for file in folder.iterdir() if suffix_of(file) in SUFFIXES and file.is_file())


def table_columns(file: Path) -> list[str]:
    """Return the columns of a table from its first rows: a column that occurs only in later rows is not among them.

    Raises:
        RequestError: It is not a table.
    """
    state = file.stat()
    found = _seen(file, state.st_mtime_ns, state.st_size)
    if isinstance(found, RequestError):
        raise RequestError(found.faults)
    return [*found]


@lru_cache(maxsize=256)
def _seen(file: Path, _mtime: int, _size: int) -> list[str] | RequestError:
    """Return the columns of a file in one state, or its fault: every layout asks, and large files are read whole."""
    try:
        return glance(file)
    except RequestError as error:
        return error


def is_coco(file: Path) -> bool:
    """True if a JSON file may be one of COCO's: an object with annotations, not one from names of images."""
    return _is_coco_with(file)


def is_boxes(file: Path) -> bool:
    """True if a JSON file may be one of COCO's with boxes of categories and without captions."""
    return _is_coco_with(file, b'"category_id"') and not _is_coco_with(file, b'"caption"')


def _is_coco_with(file: Path, *keys: bytes) -> bool:
    if suffix_of(file) != ".json" or file.suffix.lower() == ".gz" or not file.stat().st_size:
        return False
    with file.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as content:
        start, *key = content[:1000].decode("utf-8-sig", errors="replace").split('"', 2)
        annotated = all(content.find(key) >= 0 for key in (b'"annotations"', *keys))
    return annotated and start.strip() == "{" and not is_image_name(key[0])


def shards_in(folder: Path) -> list[Path]:
    """Return the Parquet files of a data set in a folder of the hub's layout."""
    return sorted(folder.glob("*.parquet")) or sorted(folder.glob("data/*.parquet"))


def holds_images(file: Path) -> bool:
    """True if a Parquet file has a column of bytes, or of structs with bytes in them."""
    try:
        schema = pq.read_schema(file)
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError):
        return False
    types = [
        kind.field("bytes").type if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0 else kind
        for kind in schema.types
    ]
    return any(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) for kind in types)


def form_of_file(file: Path, columns: Columns = NO_COLUMNS) -> str | None:
    """Return the form of a table by the names of its columns and what the user calls them; None for any other file."""
    available = _names_of(file)
    return forms.form_of(uncompressed(file).stem, available, columns) if available else None


def _fits(file: Path, columns: Columns = NO_COLUMNS) -> bool:
    return form_of_file(file, columns) in forms.FORM_NAMES


def _only(folder: Path, files: list[Path]) -> Path | None:
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise RequestError(
            f"{folder}: several tables could be its captions: {names}; name one in place of the folder, as in "
            f'`capim check {files[0]}`, or in {folder / "corpus.toml"} with reader = "table" and '
            f'root = "{files[0].name}"; if they are parts of one table, join them, as with '
            "duckdb.read_parquet('*.parquet').write_parquet(FILE)"
        )
    return files[0] if files else None
