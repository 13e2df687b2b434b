"""The arrays and the columns of ids in a file of vectors, in the many forms in which people keep them.

Nothing that is pickled is read, because reading it would run its code: ``REFUSED`` says how to save it instead.
"""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy
from numpy.typing import NDArray

from capim.store.errors import RequestError, is_number, some, text_of_csv, unknown
from capim.store.files import NOT_ITS_FORMAT, existing_file, is_vector
from capim.store.forms import FORMS, IDS, REFUSED, SIDES, words_of
from capim.store.sets.columns_read import tell
from capim.store.sets.matching import USUAL, plain_name
from capim.store.tables import json_rows, open_table, read_json, read_json_lines, records
from capim.store.types import MODALITIES, Modality
from capim.store.vectors import offsets_of

COLUMN_TYPES = {
    "offsets": np.int64,
    "lengths": np.int64,
    "norm": np.float32,
    "n_tokens": np.int32,
    "truncated": np.bool_,
}
VECTOR_NAMES = FORMS["vectors"].names("vector")
ARRAYS = (".npy", ".npz", ".safetensors", ".pt", ".pth")
TABLES = (".parquet", ".csv", ".tsv", ".json", ".jsonl")
READ = (*ARRAYS, *TABLES)
WHOLE = (
    "{} holds whole numbers and is no embedding; it looks like a run: call the columns query_id and items, and import "
    "it with --run FILE; vectors of whole numbers are read from an .npz file of floating point numbers"
)
WIDE = 4  # columns of real numbers, at least, among which whole numbers are not components
_SMALL = 256 << 20  # bytes that are expanded whatever they were compressed to
_MOST_TIMES = 50  # vectors compress to 4/5; only arrays that repeat one value shrink to less
_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
_IDS = re.compile(r"(^|_)(ids?|names?|filenames?|paths?|keys?)$")
_TAIL = re.compile(r"[._-]?(embeddings?|embeds?|embs?|features?|feats?|vectors?|vecs?)$")
_BESIDE = re.compile(
    r"[._-]?(((image|img)s?[._-]?)?(ids?|names?|files?|filenames?|file_names?|paths?|keys?|texts?|captions?))?$"
)
_OF_IDS = re.compile(r"ids?$|names?$|files?$|paths?$|keys?$")
_OF_ROWS = re.compile(r"[._-]?(ids?|names?|filenames?|metadata|meta|index)?")


class Contents(NamedTuple):
    """The contents of a file.

    Attributes:
        arrays: Name -> array of numbers.
        columns: Name -> cells that may be ids, one a row.
        components: Names of the components of vectors, where each has a column.
    """

    arrays: Mapping[str, NDArray[Any]]
    columns: Mapping[str, Sequence[object]]
    components: Sequence[str] = ()


def side_of(name: str) -> Modality | None:
    """Return what the name of a file or an array says that its vectors are of.

    Examples:
        >>> side_of("img_emb_0.npy"), side_of("text_features"), side_of("image_text"), side_of("embeddings")
        ('image', 'caption', None, None)
    """
    sides = [side for side in MODALITIES if words_of(name) & {*SIDES[side]}]
    return sides[0] if len(sides) == 1 else None


def read_contents(path: Path) -> Contents:
    """Return the arrays and columns of a file other than Parquet, or of a folder of numbered ``.npy`` files.

    Raises:
        RequestError: If there is no such file, or if its suffix is not one of vectors; says what to do instead.
        ValueError: If it does not have the format of its suffix.
    """
    if path.is_dir():
        return _read_shards(path)
    if path.suffix.lower() in REFUSED:
        raise RequestError(f"{path}: {REFUSED[path.suffix.lower()]}")
    if path.suffix not in READ:
        raise RequestError(unknown(f"{path}: suffix", path.suffix, READ))
    contents = _READERS[path.suffix](existing_file(path))
    if path.suffix not in ARRAYS or contents.columns or len(contents.arrays) != 1:
        return contents
    [values] = contents.arrays.values()
    return contents._replace(columns=_columns_beside(path, len(values) if values.ndim else 0))


def mapped(path: Path) -> NDArray[Any]:
    """Return a ``.npy`` file as a memory map; raise ``RequestError`` if it holds objects."""
    with path.open("rb") as file:
        if file.read(6) == npy.MAGIC_PREFIX and b"'|O'" in file.read(120):
            raise RequestError(f"{path}: it holds Python objects; {REFUSED['.pkl']}")
    values: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return values


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays by name.

    Raises:
        ValueError: If an array has not the size of its shape, or if the file expands to more than 50 times its size.
    """
    with zipfile.ZipFile(path) as archive:
        expanded = sum(_expanded(archive, member) for member in archive.infolist())
    size = path.stat().st_size
    if expanded > max(_SMALL, _MOST_TIMES * size):
        raise ValueError(f"{size:,} bytes would expand to {expanded:,}; save it without compression (numpy.savez)")
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _expanded(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Return the size of one array in bytes, from its header."""
    with archive.open(member) as file:
        read = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
        n_bytes = math.prod(shape) * dtype.itemsize
        if dtype.hasobject:
            raise ValueError(
                f"array {member.filename!r} holds Python objects, and reading them runs code; save ids as text, with "
                "ids.astype(str), and items of several vectors as numpy.concatenate(items) with their lengths"
            )
        if n_bytes != member.file_size - file.tell():
            raise ValueError(f"array {member.filename!r} does not hold the {n_bytes:,} bytes of its shape {shape}")
    return n_bytes


def _columns_beside(path: Path, n_rows: int) -> Mapping[str, Sequence[object]]:
    """Return the ids of an array from a file next to it: ``images.ids.txt``; ``img_names.json`` for ``img_emb.npy``.

    Files without the name of the array (``filenames.txt``, ``metadata.csv``) count, too, and so does a table with the
    same name as it. What was read is reported, and what has another number of rows.

    Raises:
        RequestError: If a file whose name says that it holds these ids does not.
    """
    if ids_beside(path).is_file():
        return {"ids": _cells(ids_beside(path)) or []}
    found: dict[str, Sequence[object]] = {}
    read, left = list[str](), dict[str, str]()
    for other in sorted(set(path.parent.iterdir()) - {path}):
        starts = [start for start in (path.stem, _TAIL.sub("", path.stem), "") if other.stem.startswith(start)]
        named = [start for start in starts if _BESIDE.fullmatch(other.stem[len(start) :])]
        columns: dict[str, Sequence[object]] = {}
        if named and other.suffix in (".txt", ".json", ".npy"):
            cells = _cells(other)
            says = _OF_IDS.search(other.stem[len(named[0]) :]) if named[0] else None
            if says and len(cells or []) != n_rows:
                has = "no list of texts" if cells is None else f"{len(cells)} lines"
                raise RequestError(
                    f"{path}: {other.name} next to it holds {has}, expected {n_rows}, one id for each row: mend it, or "
                    "move it away for rows in the order of the corpus"
                )
            columns = {} if cells is None else {"ids" if not found and any(starts) else other.stem: cells}
        elif other.suffix in (".csv", ".tsv", ".parquet") and any(
            _OF_ROWS.fullmatch(other.stem[len(start) :]) for start in starts
        ):
            names, lines = open_table(other)
            rows = [*lines]
            columns = {name: [row.get(name) for row in rows] for name in names}
        if columns and (n := len(next(iter(columns.values())))) != n_rows:
            left[other.name] = f"{n} rows in {other.name}"
        elif columns:
            found |= columns
            read.append(other.name)
    if read:
        tell(f"{path}: ids are looked for in {', '.join(read)}, next to it")
    found = found or {**_metadata_of([path], [n_rows], path.parent.parent / "metadata")}
    if left and not found:
        tell(f"warning: {path}: {n_rows} rows, and no ids of them next to it: {some([*left.values()], 3)}")
    return found


def ids_beside(path: Path) -> Path:
    """Return the file with the ids of a .npy file."""
    return path.with_suffix(".ids.txt")


def _cells(path: Path) -> list[object] | None:
    """Return the texts or numbers of a list, or of an object text -> place in it; None for a file of another kind."""
    try:
        if path.suffix == ".txt":
            return [*path.read_text(encoding="utf-8").rstrip("\r\n").splitlines()]
        if path.suffix == ".npy":
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            return array.tolist() if array.ndim == 1 and array.dtype.kind in "USiu" else None
        listed = json.loads(path.read_text(encoding="utf-8"))
    except NOT_ITS_FORMAT:
        return None
    if isinstance(listed, dict):
        places = [at for at in listed.values() if isinstance(at, int)]
        return sorted(listed, key=listed.__getitem__) if sorted(places) == [*range(len(listed))] else None
    return listed if isinstance(listed, list) and all(isinstance(one, str | int) for one in listed) else None


def _read_safetensors(path: Path) -> Contents:
    from safetensors import SafetensorError, safe_open

    def read(framework: str, array: Callable[[Any], NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], Mapping[str, str]]:
        with safe_open(path, framework=framework) as file:
            return {name: array(file.get_tensor(name)) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118

    try:
        arrays, metadata = read("numpy", np.asarray)
    except (TypeError, AttributeError):  # NumPy has neither bfloat16 nor float8
        arrays, metadata = read("pt", _array)
    except SafetensorError as fault:
        raise ValueError(str(fault)) from fault
    ids = json.loads(metadata["ids"]) if "ids" in metadata else None
    if ids is not None and not (isinstance(ids, list) and all(isinstance(one, str) for one in ids)):
        raise ValueError("expected ids to be a list of texts")
    return named_contents(arrays if ids is None else {**arrays, "ids": np.array(ids)})


def _read_torch(path: Path) -> Contents:
    """Return tensors by name, a list of them, or one; only weights are read, nothing is run."""
    import torch

    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as fault:
        raise RequestError(f"{path}: not a file of tensors only; {REFUSED['.pkl']} ({str(fault)[:80]!r})") from fault

    def plain(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return [*map(_array, value.unbind())] if value.is_nested else _array(value)
        if isinstance(value, list | tuple):
            return [plain(each) for each in value]
        return {name: plain(each) for name, each in value.items()} if isinstance(value, dict) else value

    contents = plain(loaded)
    return named_contents(contents if isinstance(contents, dict) else {"embeddings": contents})


def _array(tensor: Any) -> NDArray[Any]:
    """Return the numbers of a tensor; of types with fewer bits than float16, and of bfloat16, as float32."""
    wide = tensor.element_size() > 1 and str(tensor.dtype) != "torch.bfloat16"
    values: NDArray[Any] = (tensor if wide or not tensor.is_floating_point() else tensor.float()).detach().numpy()
    return values


def named_contents(named: Mapping[Any, Any]) -> Contents:
    """Return arrays, lists of arrays and lists of ids by name; or one vector, or matrix of vectors, for each id."""
    vectors = [np.asarray(each) for each in named.values() if isinstance(each, np.ndarray)]
    forms = {(each.ndim, each.shape, each.dtype.kind) for each in vectors}
    if len(vectors) == len(named) > 1 and len(forms) == 1 and next(iter(forms))[::2] == (1, "f"):
        return Contents({"embeddings": np.stack(vectors)}, {"ids": list(named)})
    others = {"mask", *COLUMN_TYPES, *VECTOR_NAMES}
    are_items = not any(side_of(str(name)) or str(name).lower() in others for name in named)
    if len(vectors) == len(named) > 2 and are_items and {(ndim, kind) for ndim, _, kind in forms} == {(2, "f")}:
        return Contents(_stacked("embeddings", vectors), {"ids": [*map(str, named)]})
    arrays: dict[str, NDArray[Any]] = {}
    columns: dict[str, Sequence[object]] = {}
    for name, each in named.items():
        if isinstance(each, list) and each and all(isinstance(one, np.ndarray) for one in each):
            arrays |= _stacked(str(name), each)
        elif isinstance(each, list) and not any(isinstance(one, list | dict) for one in each):
            columns[str(name)] = each
        elif isinstance(each, np.ndarray) and _may_be_ids(str(name), each):
            if each.ndim != 1:
                raise ValueError(f"expected one of {name} per item, got shape {each.shape}")
            columns[str(name)] = each.astype(str).tolist()
        elif isinstance(each, np.ndarray):
            arrays[str(name)] = each
    return Contents(arrays, columns)


def _may_be_ids(name: str, each: NDArray[Any]) -> bool:
    real = each.dtype.kind == "f" and name.lower() not in VECTOR_NAMES and bool((each % 1 == 0).all())
    numbers = each.ndim == 1 and (each.dtype.kind in "iu" or real)
    return name not in COLUMN_TYPES and (numbers or each.dtype.kind in "US" or bool(_IDS.search(name.lower())))


def _stacked(name: str, each: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return a list of vectors as a matrix; of matrices (late interaction) as one with offsets."""
    if each[0].ndim == 1:
        return {name: np.stack(each)}
    return {name: np.concatenate(each), "offsets": offsets_of(np.array([len(one) for one in each]))}


def _read_csv(path: Path) -> Contents:
    rows = [*records(path)]
    if not rows:
        raise ValueError("the file is empty")
    n = len(rows[0])
    if other := next(((at, len(row)) for at, row in enumerate(rows, start=1) if len(row) != n), None):
        raise ValueError(f"line {other[0]} has {other[1]} cells, expected {n} as in line 1")
    rows = _with_points(rows)
    counted = [cell for cell in rows[0] if is_number(cell)]  # pandas counts components that have no names
    has_header = len(counted) > 1 and counted in ([str(n + at) for n in range(len(counted))] for at in (0, 1))
    has_header = has_header or not (is_number(rows[0][-1]) or rows[0][-1].startswith("["))
    header = rows.pop(0) if has_header else [""] * len(rows[0])
    cells = list(zip(*rows, strict=True)) or [()] * len(header)
    numbers: list[int] = []
    lists = next((at for at, column in enumerate(cells) if column and all(c.startswith("[") for c in column)), None)
    if lists is not None:
        vectors = _matrix(map(_listed, cells[lists]))
        rest = [at for at in range(len(cells)) if at != lists]
    else:
        named = [plain_name(name) in USUAL or (has_header and not name) for name in header]  # "": pandas' index
        named = [usual or number for usual, number in zip(named, _not_components(header, cells), strict=True)]
        rest = [
            at for at, column in enumerate(cells) if named[at] or (column and not all(is_number(c) for c in column))
        ]
        numbers = [at for at in range(len(cells)) if at not in rest]
        for at in rest:
            wrong = [row for row, cell in enumerate(cells[at]) if not is_number(cell)]
            if not named[at] and 2 * len(wrong) < len(rows):
                got = f"{cells[at][wrong[0]]!r} in row {wrong[0] + 1}"
                raise ValueError(f"column {header[at] or at + 1}: expected numbers, or `id` as its name, got {got}")
        if len(rest) > 1 and [*cells[rest[0]]] == [*map(str, range(len(rows)))] and not header[rest[0]]:
            rest = rest[1:]  # pandas' index
        numbers = [numbers[at] for at in in_counted_order([header[at] for at in numbers])]
        if not numbers:
            raise ValueError(f"no column of numbers, between commas, semicolons, tabs or |; it has {some(header, 20)}")
        vectors = np.array([[float(row[at]) for at in numbers] for row in rows], dtype=np.float32)
    ids = {header[at] or "id": [*map(text_of_csv, cells[at])] for at in rest}
    return Contents({"embeddings": vectors}, ids, [header[at] for at in numbers])


def _listed(cell: str) -> list[float]:
    try:
        listed: list[float] = json.loads(cell)
    except ValueError as fault:
        way = "NumPy prints its arrays rounded: save them as Parquet, or with numpy.savez"
        raise ValueError(f"expected a list of numbers like [0.1, 0.2], got {cell!r:.40}; {way}") from fault
    return listed


def in_counted_order(names: Sequence[str]) -> list[int]:
    """Return the places of components in the order of the numbers in their names; as they are without such names.

    Raises:
        ValueError: If most are called ``f0``, ``f1``, …, and others are not.

    Examples:
        >>> in_counted_order(["f0", "f1", "f10", "f2"]), in_counted_order(["b", "a"])
        ([0, 1, 3, 2], [0, 1])
    """
    stems = [name.rstrip("0123456789") for name in names]
    usual, n_usual = Counter(stems).most_common(1)[0] if stems else ("", 0)
    others = [name for name, stem in zip(names, stems, strict=True) if stem != usual]
    if others and 2 * n_usual > len(names):
        raise ValueError(f"column {others[0]} is not called like the components, {usual}0 and so on: leave it out")
    counts = [name[len(usual) :] for name in names]
    if others or not all(counts) or len({*map(int, counts)}) < len(names):
        return [*range(len(names))]
    return sorted(range(len(names)), key=lambda at: int(counts[at]))


def _with_points(rows: list[list[str]]) -> list[list[str]]:
    """Return the rows with points for decimal commas, in columns that have nothing else below the first row."""
    below = rows[1:] or rows
    commas = {at for at in range(len(rows[0])) if all(_COMMA.fullmatch(row[at]) for row in below)}
    if not commas:
        return rows
    return [[cell.replace(",", ".") if at in commas else cell for at, cell in enumerate(row)] for row in rows]


def _not_components(header: Sequence[str], cells: Sequence[Sequence[str]]) -> list[bool]:
    """Return which columns are whole numbers among real ones: ids, if no two are equal.

    Raises:
        ValueError: If some are equal, and the name is not a usual one.
    """
    whole = [all(re.fullmatch(r"-?\d+", cell) for cell in column) for column in cells]
    real = [not is_whole and all(map(is_number, column)) for is_whole, column in zip(whole, cells, strict=True)]
    if sum(real) < WIDE or sum(real) <= sum(whole):
        return [False] * len(cells)
    found = [is_whole and (at < real.index(True) or len({*cells[at]}) > 1) for at, is_whole in enumerate(whole)]
    for at, column in enumerate(cells):
        if found[at] and len({*column}) < len(column) and plain_name(header[at]) not in USUAL:
            raise ValueError(
                f"column {header[at] or at + 1} holds whole numbers among columns of real ones, some twice, first "
                f"{column[0]}: leave it out, name it `query` if they are ids, or write {column[0]}.0 for a component"
            )
    return found


def _read_json(path: Path) -> Contents:
    """Return lists of numbers: of objects in an array, in lines or in ``data``; of columns; or of id -> list."""
    content: Any = [*read_json_lines(path)] if path.suffix == ".jsonl" else read_json(path)
    if isinstance(content, dict) and content and all(map(is_vector, content.values())):
        return Contents({"embeddings": _matrix(content.values())}, {"ids": list(content)})
    if are_vectors(content):
        return Contents({"embeddings": _matrix(content)}, {})
    if isinstance(content, dict) and any(map(are_vectors, content.values())):
        return named_contents({name: _matrix(each) if are_vectors(each) else each for name, each in content.items()})
    rows = [dict(flat(row)) for row in json_rows(path, content, key="id")]
    names = dict.fromkeys(chain.from_iterable(rows))
    last = {name: name.rpartition(".")[2] for name in names}
    own = {n: end if [*last.values()].count(end) == 1 and end not in IDS["rows"] else n for n, end in last.items()}
    cells: dict[str, list[Any]] = {own[name]: [row.get(name) for row in rows] for name in names}
    lists = {name: column for name, column in cells.items() if all(map(is_vector, column))}
    real = {name: column for name, column in lists.items() if not _are_whole(column)}
    ids = {name: column for name, column in cells.items() if not any(isinstance(one, list | dict) for one in column)}
    if not lists:
        lacking = {name: [at for at, one in enumerate(column) if not is_vector(one)] for name, column in cells.items()}
        name = min(lacking, key=lambda name: len(lacking[name]), default="")
        got = f"{some([*names], 20)}; several vectors of an item are read from Parquet or .npz"
        if name and len(lacking[name]) < len(rows):
            got = f"{str(cells[name][lacking[name][0]])!r:.40} as {name} in row {lacking[name][0] + 1}"
        raise ValueError(f"expected a list of numbers in every row, got {got}")
    return Contents({name: _matrix(column) for name, column in (real or lists).items()}, ids)


def are_vectors(value: object) -> bool:
    """True if a value read from JSON is a list of vectors."""
    return isinstance(value, list) and bool(value) and all(map(is_vector, value))


def flat(row: Mapping[str, Any], above: str = "", depth: int = 5) -> Iterator[tuple[str, Any]]:
    """Yield the cells of a row, of objects in it (``payload.file``) and of lists of one object."""
    for name, cell in row.items():
        one = cell[0] if isinstance(cell, list) and len(cell) == 1 else cell
        if isinstance(one, dict) and depth:
            yield from flat(one, f"{above}{name}.", depth - 1)
        else:
            yield above + name, cell


def _matrix(rows: Iterable[list[float]]) -> NDArray[np.float32]:
    listed = [*rows]
    if _are_whole(listed):
        raise ValueError(WHOLE.format(f"{listed[0]!r:.40}"))
    if other := next((at for at, row in enumerate(listed) if len(row) != len(listed[0])), 0):
        raise ValueError(f"row {other + 1} has {len(listed[other])} numbers, expected {len(listed[0])} as in row 1")
    matrix: NDArray[np.float32] = np.array(listed, dtype=np.float32)
    return matrix


def _are_whole(rows: Sequence[Sequence[float]]) -> bool:
    return bool(rows) and all(isinstance(number, int) for row in rows for number in row)


def _read_shards(folder: Path) -> Contents:
    """Return numbered ``.npy`` files as one array, as clip-retrieval writes them, with ``../metadata/*.parquet``."""
    shards = sorted(folder.glob("*.npy"), key=_order)
    if not shards:
        way = "name a file of vectors; join a table in parts: duckdb.read_parquet('*.parquet').write_parquet(FILE)"
        raise RequestError(f"{folder}: a folder without .npy files; {way}")
    arrays = [mapped(path) for path in shards]
    columns = _metadata_of(shards, [*map(len, arrays)], folder, folder.parent / "metadata", folder.parent)
    return Contents({"embeddings": np.concatenate(arrays)}, columns)


def _metadata_of(shards: Sequence[Path], lengths: Sequence[int], *places: Path) -> dict[str, list[object]]:
    """Return the columns of the shards' Parquet files, in the first folder that has them.

    Raises:
        RequestError: If the folder ``metadata`` has not a table for each shard, or a table not a row for each vector.
    """
    for place in places:
        tables = sorted(place.glob("*.parquet"), key=_order)
        if len(shards) == 1:
            tables = [table for table in tables if _numbers(table)[-1:] in ([], _numbers(shards[0])[-1:])]
        if not tables or (len(tables) != len(shards) and place.name != "metadata"):
            continue
        import pyarrow.parquet as pq

        n_rows = [pq.read_metadata(path).num_rows for path in tables]
        if n_rows != [*lengths] and place.name == "metadata":
            has, expected = (some([*map(str, counts)], 12) for counts in (n_rows, lengths))
            raise RequestError(
                f"{place}: tables of {has} rows, expected {expected}, a row for each vector: mend them, or move them "
                "away for rows in the order of the corpus"
            )
        if n_rows != [*lengths]:
            continue
        tell(f"{shards[0].parent}: ids are looked for in {place}")
        rows = pa.concat_tables([pq.read_table(path) for path in tables], promote_options="default")
        flat = [name for name in rows.column_names if not pa.types.is_nested(rows[name].type)]
        return {name: rows[name].to_pylist() for name in flat}
    return {}


def _order(path: Path) -> tuple[list[int], str]:
    """Return the sort key of numbered files: those with the same numbers, or none, by their names."""
    return _numbers(path), path.name


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.stem)]


_READERS: Mapping[str, Callable[[Path], Contents]] = {
    ".npy": lambda path: Contents({"embeddings": mapped(path)}, {}),
    ".npz": lambda path: named_contents(read_npz(path)),
    ".safetensors": _read_safetensors,
    ".pt": _read_torch,
    ".pth": _read_torch,
    **dict.fromkeys((".csv", ".tsv"), _read_csv),
    **dict.fromkeys((".json", ".jsonl"), _read_json),
}


def chosen_array(
    arrays: Mapping[str, NDArray[Any]], modality: Modality | None = None, n_items: int | None = None
) -> str:
    """Return the name of the array of vectors: the usual name, the only one, or the one that fits by name or shape.

    Args:
        arrays: The arrays of a file.
        modality: The wanted modality, where a file holds both.
        n_items: How many items of it the corpus has.

    Raises:
        ValueError: If several fit, or none.
    """
    names = [name for name, each in arrays.items() if name not in COLUMN_TYPES]
    wide = [name for name in names if arrays[name].ndim in (2, 3)] or names
    usual = [name for name in wide if name.lower() in VECTOR_NAMES]
    own = [name for name in wide if modality is not None and side_of(name) == modality]
    sized = [name for name in wide if n_items is not None and len(arrays[name]) == n_items]
    for found in (own, usual, wide, [name for name in sized if name in usual] or sized):
        if len(found) == 1 and (found is not wide or side_of(found[0]) in (None, modality)):
            return found[0]
    shown = ", ".join(f"{name} ({' x '.join(map(str, arrays[name].shape))})" for name in names)
    way = "save them with numpy.savez(FILE, embeddings=…, ids=…), or name it: FILE:NAME"
    raise ValueError(f"expected an array named 'embeddings', got {shown or 'none'}; {way}")
