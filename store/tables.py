"""Tables of users: CSV and similar, JSON, JSON lines, Parquet and Arrow, each also as ``.gz``; one reader for all.

Delimited text is read strictly: a quote that swallows rows is an error. The separator is the first of ``,``, tab, ``|``
and ``;`` in the first line, or the one in Excel's line ``sep=;`` (a ``.tsv`` file has tabs). Cells of files with commas
or semicolons may be quoted; other files are read as written, quotes included, unless all of their quotes are paired as
in a CSV file. A file without a header is read if it has two columns and one of them holds image files; Flickr8k's
``name.jpg#0`` is the image and the caption's number. Text is UTF-8, or UTF-16 with a byte order mark.

Unreadable rows are all reported, with line and reason, after the last row; or left out and counted, if the user says
so (:func:`skipping_bad_rows`).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO, TypeGuard, cast
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from capim.store.errors import RequestError, text_of_csv, unknown
from capim.store.files import existing_file, reading
from capim.store.sets.columns_read import tell

DELIMITED = (".csv", ".tsv", ".txt", ".token")
JSON_LINES = (".jsonl", ".ndjson", ".jsonlines")
PARQUET = (".parquet", ".parq")
ARROW = (".arrow", ".feather")
TYPED = (*JSON_LINES, ".json", *PARQUET, *ARROW)
"""Suffixes of tables with cells that may be numbers or lists."""
NAMED = (".csv", ".tsv", *TYPED)
"""Suffixes of tables with named columns."""
SUFFIXES = (*NAMED, ".txt", ".token")
IMAGE_SUFFIXES = (
    *(".jpg", ".jpeg", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".jp2"),
    *(".ppm", ".pgm", ".pbm", ".pnm"),
    *(".heic", ".heif"),  # no format that is read, so that they are listed as left out
)
GLANCE = 100  # rows of JSON lines that are read to find their columns
LISTED = 20  # faulty rows that are named
_AT_ONCE = 1024  # rows of Parquet and Arrow; often only the first row is requested
_SEPARATORS = ",\t|;"
_QUOTING = ",;"  # separators of files with possibly quoted cells
_EXCEL = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_NUMBERED = re.compile(r"^(.+)#(\d+)$")  # Flickr8k's name of a caption
_IDENTIFIER = re.compile(r"\S*[\d_]\S*")


class Table(NamedTuple):
    """A table: the names of its columns, and its rows, which are read on demand.

    Columns of JSON are those of all rows; a row may lack some of them.
    """

    columns: list[str]
    rows: Iterator[Mapping[str, Any]]


def uncompressed(path: Path) -> Path:
    """Return the name of a file without the suffix of its compression."""
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


def suffix_of(path: Path) -> str:
    """Return the suffix of a file in lower case, without that of its compression.

    Examples:
        >>> suffix_of(Path("run.trec.gz")), suffix_of(Path("A.CSV")), suffix_of(Path("x.gz"))
        ('.trec', '.csv', '')
    """
    return uncompressed(path).suffix.lower()


def is_image_name(name: str) -> bool:
    """True if a name ends with the suffix of an image file, in any case."""
    return name.lower().endswith(IMAGE_SUFFIXES)


def plain_path(name: str) -> str:
    """Return the path of a URL, or a path, without blanks around it and with percent-encoded characters decoded.

    Examples:
        >>> plain_path("https://cdn.example/a/my%20dog.jpg?w=100"), plain_path("my%20dog.jpg ")
        ('/a/my dog.jpg', 'my dog.jpg')
    """
    return unquote(urlsplit(name).path if "://" in name else name.strip())


def open_table(file: Path, *, key: str = "", headless: bool = True) -> Table:
    """Return a table by the suffix of its file.

    Args:
        file: The file.
        key: Column of the keys of a JSON object of objects; "" leaves them out.
        headless: True if the first line may be a row.

    Raises:
        RequestError: If the suffix is unknown, or if the contents do not match it; while rows are read, also if
            some of them are faulty.
    """
    suffix = suffix_of(file)
    if suffix in DELIMITED:
        return _delimited(file, headless=headless)
    if suffix in JSON_LINES or suffix == ".json":
        rows = json_rows(file, read_json(file), key=key) if suffix == ".json" else [*read_json_lines(file)]
        return Table(_columns_of(rows), iter(rows))
    if suffix in (*PARQUET, *ARROW):
        return _columnar(file)
    raise RequestError(f"{file}: expected a table ({', '.join(SUFFIXES)}), got {suffix or 'no suffix'}")


def glance(file: Path) -> list[str]:
    """Return the columns of a table; for JSON lines, those of the first rows."""
    if suffix_of(file) in JSON_LINES:
        return _columns_of(islice(read_json_lines(file), GLANCE))
    return open_table(file).columns


def first_row(file: Path) -> Mapping[str, Any] | None:
    """Return the first row of a table with typed cells; None if it is empty. Reads little more than this row."""
    return next(read_json_lines(file) if suffix_of(file) in JSON_LINES else iter(open_table(file).rows), None)


def rows_with(file: Path, *columns: str) -> list[Mapping[str, Any]]:
    """Return the rows of a table that has at least these columns.

    Raises:
        RequestError: If a column is missing, or as :func:`open_table`.
    """
    has, rows = open_table(file)
    if lacking := [column for column in columns if column not in has]:
        raise RequestError(f"{file}: no column {', '.join(lacking)}; it has {', '.join(has) or 'none'}")
    return list(rows)


def read_row_file(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of results; the keys of a JSON object of objects are cells of ``query``.

    Empty text cells are None; the quotes by which ``write_csv`` defuses formulas are removed.

    Raises:
        RequestError: If there is no such file, if it has no row, or as :func:`open_table`.
    """
    if suffix_of(path) not in NAMED:
        raise RequestError(unknown(f"{path}: suffix", suffix_of(path), NAMED))
    rows: list[Any] = [*open_table(existing_file(path), key="query", headless=False).rows]
    if not rows:
        raise RequestError(f"{path}: it has no rows")
    if suffix_of(path) in DELIMITED:
        return [{text_of_csv(name): text_of_csv(cell) or None for name, cell in row.items()} for row in rows]
    return rows


# --- Text and JSON.


@contextmanager
def opened_text(file: Path, what: str = "UTF-8 text", *, newline: str | None = None) -> Iterator[TextIO]:
    """Open a text file of the user; reading raises ``RequestError`` if it is unreadable or has another encoding."""
    try:
        with _opened(file) as content:
            marked = content.peek(2)[:2] in (b"\xff\xfe", b"\xfe\xff")  # type: ignore[attr-defined]
            yield io.TextIOWrapper(content, encoding="utf-16" if marked else "utf-8-sig", newline=newline)
    except UnicodeDecodeError as error:
        raise RequestError(f"{file}: not {what} (byte {error.start}); save it as UTF-8") from error
    except (OSError, EOFError, zlib.error) as error:
        raise RequestError(f"{file}: cannot be read ({getattr(error, 'strerror', None) or error})") from error


def _opened(file: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(file) if file.suffix.lower() == ".gz" else file.open("rb"))


def read_text(file: Path) -> str:
    """Return the text of a file; raise ``RequestError`` if it cannot be read or is not UTF-8."""
    with opened_text(file) as stream:
        return stream.read()


def read_json(file: Path) -> Any:
    """Return the contents of a JSON file, of JSON lines a list; raise ``RequestError`` with the line of an error."""
    try:
        return json.loads(read_text(file), object_pairs_hook=_with_distinct_keys)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and error.colno == 1:  # below a value that is complete
            return [*read_json_lines(file)]
        raise RequestError(f"{file}: not JSON at line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise RequestError(f"{file}: its lists and objects are nested too deeply for the JSON reader") from error
    except _RepeatedKeyError as error:
        raise RequestError(f"{file}: an object in it {error}: write its values as a list") from error


class _RepeatedKeyError(Exception):
    """A JSON object has a key twice."""


def _with_distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(key, n)] = Counter(key for key, _ in pairs).most_common(1)
        raise _RepeatedKeyError(f"has the key {key!r} {n} times")
    return found


def read_json_lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yield one object per line, without empty lines; at the end, raise an error with all lines without an object."""
    faults = Faults(file)
    with opened_text(file) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line, object_pairs_hook=_with_distinct_keys)
            except _RepeatedKeyError as error:
                faults.add(f"line {number} {error}")
                continue
            except (json.JSONDecodeError, RecursionError) as error:
                faults.add(f"line {number} is not JSON: {getattr(error, 'msg', 'nested too deeply')}")
                continue
            if isinstance(row, dict):
                yield row
            else:
                faults.add(f"line {number} holds {type(row).__name__}, expected an object")
    faults.raise_any()


def json_rows(file: Path, content: object, *, key: str = "") -> list[dict[str, Any]]:
    """Return the rows of JSON: a list of objects, the only such list in an object, or an object of objects.

    An object by names may hold a caption or several in place of objects; its keys are cells of ``image`` if they are
    image files, else of ``key``. If another column is named for them, anything but objects (a summary) is left out.
    """
    if isinstance(content, dict) and any(map(is_image_name, content)):
        return _rows_by_name(content, "image")
    if isinstance(content, dict):
        lists = list(filter(_are_objects, content.values()))
        if len(lists) == 1:
            content = lists[0]
        elif key:
            content = [{key: name, **row} for name, row in content.items() if isinstance(row, dict)]
        elif _are_named(content.values()):
            content = _rows_by_name(content, "key")
    if _are_objects(content):
        return content
    named = [str(name) for name, of in content.items() if _are_objects(of)] if isinstance(content, dict) else []
    if key and isinstance(content, list) and content:
        number, row = next((at, row) for at, row in enumerate(content, start=1) if not isinstance(row, dict))
        raise RequestError(f"{file}: row {number} holds {type(row).__name__}, expected an object")
    raise RequestError(
        f"{file}: expected a list of objects, the only one in an object, or an object of objects, one per row "
        '(pandas: to_json(FILE, orient="records"))'
        + (f"; it has the lists {', '.join(named)}: save one, or both joined, as a file of its own" if named else "")
    )


def _rows_by_name(content: Mapping[str, Any], column: str) -> list[dict[str, Any]]:
    return [{column: name, **(of if isinstance(of, dict) else {"caption": of})} for name, of in content.items()]


def _are_named(values: Iterable[object]) -> bool:
    """True if all are rows, or all are captions or lists of them; columns of pandas, by numbers, are neither."""
    each = [*values]
    are_rows = all(isinstance(row, dict) and "0" not in row for row in each)
    return are_rows or all(isinstance(of, str | list) and all(isinstance(text, str) for text in of) for of in each)


def _are_objects(value: object) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and bool(value) and all(isinstance(entry, dict) for entry in value)


def _columns_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(column for row in rows for column in row))


# --- Parquet and Arrow.


def _columnar(file: Path) -> Table:
    suffix = suffix_of(file)
    found: Iterator[pa.RecordBatch]
    try:
        if suffix in PARQUET:
            import pyarrow.parquet as pq

            parquet = pq.ParquetFile(file, pre_buffer=False)  # otherwise all data read stay in memory until the end
            schema, found = parquet.schema_arrow, parquet.iter_batches(_AT_ONCE)
        else:
            schema, found = _arrow(file)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        kind = "a Parquet file" if suffix in PARQUET else "an Arrow file"
        raise RequestError(f"{file}: not {kind} ({error})") from error
    _refuse_repeated(schema.names, file)
    return Table(schema.names, _rows_of(file, found))


def _rows_of(file: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    with reading(file):
        for batch in batches:
            for start in range(0, batch.num_rows, _AT_ONCE):
                yield from batch.slice(start, _AT_ONCE).to_pylist()


def _arrow(file: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the batches of a file or a stream in Arrow's format; ``datasets`` writes streams."""
    from pyarrow import ipc

    content = pa.memory_map(str(file))
    try:
        opened = ipc.open_file(content)
    except pa.ArrowInvalid:
        stream = ipc.open_stream(pa.memory_map(str(file)))
        return stream.schema, iter(stream)
    return opened.schema, (opened.get_batch(number) for number in range(opened.num_record_batches))


# --- Delimited text.


_SKIPS: ContextVar[bool] = ContextVar("skips_bad_rows", default=False)


@contextmanager
def skipping_bad_rows(skips: bool) -> Iterator[None]:
    """In this block, leave rows that cannot be read out of tables and count them, if ``skips``."""
    token = _SKIPS.set(skips)
    try:
        yield
    finally:
        _SKIPS.reset(token)


def skips_bad_rows() -> bool:
    """True within :func:`skipping_bad_rows`."""
    return _SKIPS.get()


class Faults:
    """Rows of a file that cannot be read."""

    def __init__(self, file: Path) -> None:
        self.file, self.lines, self.n = file, list[str](), 0

    def add(self, fault: str) -> None:
        """Note a row."""
        self.n += 1
        self.lines += [fault] if self.n <= LISTED else []

    def raise_any(self) -> None:
        """Raise with the first rows, and the number of others; or tell of them, where they are left out."""
        if self.lines and _SKIPS.get():
            tell(f"warning: {self.file}: {self.n:,} rows cannot be read and are left out, first {self.lines[0]}")
        elif self.lines:
            more = [f"{self.n - LISTED} more rows cannot be read"] if self.n > LISTED else []
            *others, last = (f"{self.file}: {line}" for line in (*self.lines, *more))
            how = 'leave such rows out with missing = "skip" (check: --missing skip; import: --skip-bad-rows)'
            raise RequestError([*others, f"{last}; {how}"])


class _Form(NamedTuple):
    """The format of a delimited file: its separator, whether cells may be quoted, and the lines above the header."""

    separator: str
    quoted: bool
    n_above: int = 0


def _form_of(file: Path) -> _Form:
    with opened_text(file, "a table in UTF-8", newline="") as lines:
        first = next((line for line in lines if line.strip()), "")
    if "\0" in first:  # UTF-16 without its mark
        raise RequestError(f"{file}: not a table in UTF-8 (it has zero bytes); save it as UTF-8")
    if excel := _EXCEL.fullmatch(first.strip()):
        return _Form(excel[1], quoted=True, n_above=1)
    separator = "\t" if suffix_of(file) == ".tsv" else next((c for c in first if c in _SEPARATORS), ",")
    return _Form(separator, separator in _QUOTING or _paired_quotes(file, _Form(separator, quoted=True)))


def _delimited(file: Path, *, headless: bool) -> Table:
    """Return the columns of a file, and an iterator that reads its rows; empty lines are left out.

    Raises:
        RequestError: If it is not text, if two columns have one name, if rows have more or fewer cells than the header,
            if a quote is not closed, or if a cell seems to hold rows of its own.
    """
    form = _form_of(file)
    header = [cell.strip() for cell in next(_records(file, form), [])]
    headless = headless and (any(map(_is_image, header)) or _is_numbered_row(header))
    columns = _columns_of_first(header, file) if headless else header
    _refuse_repeated(columns, file)

    def rows() -> Iterator[Mapping[str, Any]]:
        faults = Faults(file)
        for number, cells in enumerate(islice(_records(file, form), int(not headless), None), start=1):
            if len(cells) != len(header):
                hint = "; put texts that contain the separator in quotes, and the names of columns into the first line"
                fault = f"row {number}: expected {len(header)} cells as in the header, got {len(cells)}"
                faults.add(fault if faults.n else fault + hint)
                continue
            row = dict(zip(columns, map(str.strip, cells) if form.separator == "|" else cells, strict=False))
            if numbered := headless and _NUMBERED.match(row["image"]):
                row |= {"image": numbered[1], "ordinal": numbered[2]}
            yield row
        faults.raise_any()

    return Table(columns, rows())


def _refuse_repeated(columns: Sequence[str], file: Path) -> None:
    if twice := [column for column, count in Counter(columns).items() if count > 1]:
        raise RequestError(f"{file}: two columns are named {twice[0]!r}; rename one of them")


def _is_image(cell: str) -> bool:
    numbered = _NUMBERED.match(cell)
    return is_image_name(numbered[1] if numbered else cell)


def _is_numbered_row(header: Sequence[str]) -> bool:
    """True if a line is the numbered name of an image without suffix, and its caption: ``COCO_42#0``, a text."""
    names = [cell for cell in header if _NUMBERED.match(cell) and " " not in cell]
    return len(header) == 2 and len(names) == 1 and any(" " in cell or not cell.isascii() for cell in header)


def _columns_of_first(first: Sequence[str], file: Path) -> list[str]:
    """Return the columns of a file without a header, by its first row."""
    if len(first) != 2:
        raise RequestError(
            f"{file}: its first line is a row ({', '.join(first)!r:.60}); write a line with the names of its "
            f"{len(first)} columns above it, for instance image,caption"
        )
    is_first = _is_image(first[0]) or (_NUMBERED.match(first[0]) and not _is_image(first[1]))
    names = ["image", "caption"] if is_first else ["caption", "image"]
    return [*names, "ordinal"] if any(map(_NUMBERED.match, first)) else names


def records(file: Path) -> Iterator[list[str]]:
    """Yield the cells of every line of delimited text, including the header."""
    yield from _records(file, _form_of(file))


def _records(file: Path, form: _Form) -> Iterator[list[str]]:
    """Yield the cells of every record that is not empty.

    Raises:
        RequestError: If its quotes are not those of a CSV file, or if it is not text.
    """
    with opened_text(file, "a table in UTF-8", newline="") as lines:
        for _ in range(form.n_above):
            next(lines)
        reader = csv.reader(
            lines,
            delimiter=form.separator,
            quoting=csv.QUOTE_MINIMAL if form.quoted else csv.QUOTE_NONE,
            skipinitialspace=form.separator != "\t",
            strict=True,
        )
        while True:
            line = reader.line_num + 1 + form.n_above
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                last = reader.line_num + form.n_above
                if last == line and "field limit" in str(error):
                    most = csv.field_size_limit()
                    raise RequestError(f"{file}: line {line}: a cell has more than {most:,} characters") from error
                raise RequestError(
                    f"{file}: line {line}: a quote is opened here that no quote at the end of a cell closes "
                    f"({error}, line {last}); double the quotes within a text, and quote the whole text"
                ) from error
            if form.quoted and (row := _row_within(cells, form.separator)) is not None:
                raise RequestError(
                    f"{file}: line {line}: a quote is opened here and closed lines later, which makes one cell of "
                    f"them; within it, {row!r:.60} looks like a row of its own; double the quotes within a text, and "
                    "quote the whole text"
                )
            if cells:
                yield cells


def _row_within(cells: Sequence[str], separator: str) -> str | None:
    """Return a line within a cell with as many cells as the row, and file names or numbers in the same places.

    If the row has neither, every line of the cell but its first, or but its last, has as many cells as the row.
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


def _paired_quotes(file: Path, form: _Form) -> bool:
    """True if a file has quotes, and every one of them opens, closes or is doubled as in a CSV file."""
    with opened_text(file, "a table in UTF-8", newline="") as lines:
        if not any('"' in line for line in lines):
            return False
    try:
        return len({len(cells) for cells in _records(file, form)}) == 1
    except RequestError:
        return False
