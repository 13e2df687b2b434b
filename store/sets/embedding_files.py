"""Embeddings in files of other programs, read and written: .npy, .npz, .safetensors, .parquet, .csv.

| file | vectors | ids (optional) | other columns |
|---|---|---|---|
| .npy | the array, shape (n, dim) | file ``<name>.ids.txt``, one per line | |
| .npz | ``embeddings`` (or the only array) | ``ids`` | ``offsets``, ``norm``, ``n_tokens``, ``truncated`` |
| .safetensors | ``embeddings`` | ``ids`` in the metadata, a JSON list | as .npz |
| .parquet | column ``embedding`` (a list, or a list of lists) | ``id`` | ``norm``, ``n_tokens``, ``truncated`` |
| .csv | every numeric column | column ``id`` | |

With ``offsets`` (shape (items + 1,)), or a list of lists in Parquet, the file is a multi-vector set: item ``i`` has
rows ``offsets[i]:offsets[i + 1]``. ``norm`` is the norm before normalisation.
"""

from __future__ import annotations

import csv
import json
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.lib import format as npy
from numpy.typing import NDArray

from capim.store.embedding_store import EmbeddingStore
from capim.store.errors import RequestError, csv_text, text_of_csv, unknown
from capim.store.files import NOT_ITS_FORMAT, existing_file, replacing
from capim.store.schema import texts
from capim.store.sets.rows import StoredRows, joined
from capim.store.sets.writing import UNIT_TOLERANCE, Block
from capim.store.types import Embeddings, EncoderSpec, Modality, VectorKind
from capim.store.vectors import offsets_of

# --- Arrays of an ``.npz`` file, whose shapes are checked before anything is expanded.


_SMALL = 256 << 20  # bytes that are expanded whatever they were compressed to
_MOST_TIMES = 50  # vectors compress to 4/5; only arrays that repeat one value shrink to less


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays by name.

    Raises:
        ValueError: An array has another size than its shape says, or the file expands to more than 50 times its size.
    """
    with zipfile.ZipFile(path) as archive:
        expanded = sum(_expanded(archive, member) for member in archive.infolist())
    size = path.stat().st_size
    if expanded > max(_SMALL, _MOST_TIMES * size):
        raise ValueError(f"{size:,} bytes would expand to {expanded:,}; save it without compression (numpy.savez)")
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _expanded(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """The bytes of one array, from its header."""
    with archive.open(member) as file:
        read = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
        n_bytes = math.prod(shape) * dtype.itemsize
        if not dtype.hasobject and n_bytes != member.file_size - file.tell():
            raise ValueError(f"array {member.filename!r} holds other than the {n_bytes:,} bytes of its shape {shape}")
    return n_bytes


SUFFIXES = (".npy", ".npz", ".safetensors", ".parquet", ".csv")
COLUMN_TYPES = {"offsets": np.int64, "norm": np.float32, "n_tokens": np.int32, "truncated": np.bool_}
_ID_COLUMNS = ("id", "item_id")
_VECTOR_COLUMNS = ("embedding", "embeddings", "vector", "vectors")
_BUFFER = 8 << 20  # bytes of a Parquet column at a time: a group of rows may not fit into memory
_GLANCE = 8  # items of a Parquet file that show its form


@dataclass(frozen=True, kw_only=True)
class EmbeddingFile:
    """The vectors of a file of embeddings, or of consecutive items of it.

    Attributes:
        values: Floating, shape ``(rows, dim)``.
        offsets: int64, shape ``(n + 1,)``, or None for one vector per item.
        columns: Those of ``norm``, ``n_tokens`` and ``truncated`` that the file has, each of shape ``(n,)``.
    """

    values: NDArray[Any]
    offsets: NDArray[np.int64] | None = None
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values) if self.offsets is None else len(self.offsets) - 1

    @property
    def vectors(self) -> VectorKind:
        """Whether an item has one vector or several."""
        return "single" if self.offsets is None else "multi"

    def part(self, start: int, stop: int) -> EmbeddingFile:
        """Items ``start`` to ``stop`` (exclusive), as a view."""
        columns = {name: column[start:stop] for name, column in self.columns.items()}
        if self.offsets is None:
            return EmbeddingFile(values=self.values[start:stop], columns=columns)
        offsets = self.offsets[start : min(stop, len(self)) + 1]
        values = self.values[offsets[0] : offsets[-1]]
        return EmbeddingFile(values=values, offsets=offsets - offsets[0], columns=columns)


@dataclass(frozen=True, kw_only=True)
class EmbeddingParts:
    """A file of embeddings that need not fit into memory.

    Attributes:
        n: Items.
        ids: Strings, length ``n``, or None for the order of the corpus.
        first: Its first items, without values where there are none; all parts have their form.
        read: Yields the items in the order of the file, at most so many at a time.
    """

    n: int
    ids: pa.Array | None
    first: EmbeddingFile
    read: Callable[[int], Iterator[EmbeddingFile]]


def open_embedding_file(path: Path) -> EmbeddingParts:
    """The contents of a file, whose suffix names the format; ``.npy`` and ``.parquet`` are read part by part.

    Raises:
        RequestError: There is no such file, it does not have the format of its suffix, or it holds no matrix; reading
            its parts raises it too.
    """
    if path.suffix not in SUFFIXES:
        raise RequestError(unknown(f"{path}: suffix", path.suffix, SUFFIXES))
    existing_file(path)
    with _as_request_errors(path):
        if path.suffix == ".parquet":
            return _open_parquet(path)
        readers = {".npy": _read_npy, ".npz": _read_npz, ".safetensors": _read_safetensors, ".csv": _read_csv}
        columns, listed = readers[path.suffix](path)
        contents = _of_named(columns)
        ids = None if listed is None else pa.array(listed, pa.string())
    _refuse_faults(path, contents, ids)

    def read(n_items: int) -> Iterator[EmbeddingFile]:
        for start in range(0, len(contents), n_items):
            # a map of the file for each part: what is read through one counts as memory until it is gone
            again = EmbeddingFile(values=_mapped(path)) if path.suffix == ".npy" else contents
            yield again.part(start, start + n_items)

    return EmbeddingParts(n=len(contents), ids=ids, first=contents.part(0, 1), read=read)


_Read: TypeAlias = tuple[dict[str, NDArray[Any]], list[str] | None]
"""The arrays of a file by name, and the ids if it has any."""


@contextmanager
def _as_request_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except RequestError:
        raise
    except (*NOT_ITS_FORMAT, zipfile.BadZipFile, pa.ArrowException) as fault:
        raise RequestError(f"{path} cannot be read as {path.suffix}: {fault}") from fault


def _refuse_faults(path: Path, contents: EmbeddingFile, ids: pa.Array | None = None) -> None:
    values, offsets = contents.values, contents.offsets
    if values.ndim != 2 or values.dtype.kind != "f":
        raise RequestError(
            f"{path}: expected floating point numbers of shape (rows, dim), got {values.dtype} of shape {values.shape}"
        )
    if offsets is not None and (
        len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(values) or (np.diff(offsets) < 0).any()
    ):
        raise RequestError(f"{path}: offsets must increase from 0 to {len(values)}, the number of vectors")
    lengths = {name: len(column) for name, column in contents.columns.items()}
    lengths |= {} if ids is None else {"ids": len(ids)}
    wrong = [
        f"{path}: expected {len(contents)} {name}, one per item, got {n}"
        for name, n in lengths.items()
        if n != len(contents)
    ]
    if wrong:
        raise RequestError(wrong)


def ids_beside(path: Path) -> Path:
    """The file of the ids that belong to a .npy file."""
    return path.with_suffix(".ids.txt")


def _of_named(columns: Mapping[str, NDArray[Any]]) -> EmbeddingFile:
    names = [name for name in _VECTOR_COLUMNS if name in columns] or list(columns)
    if len(names) != 1:
        raise ValueError(f"expected an array named 'embeddings', got {', '.join(columns) or 'none'}")
    others: dict[str, Any] = {
        name: columns[name].astype(kind) for name, kind in COLUMN_TYPES.items() if name in columns
    }
    if flat := [name for name, column in others.items() if column.ndim != 1]:
        raise ValueError(f"expected one {flat[0]} per item, got shape {others[flat[0]].shape}")
    return EmbeddingFile(values=columns[names[0]], offsets=others.pop("offsets", None), columns=others)


def _mapped(path: Path) -> NDArray[Any]:
    values: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return values


def _read_npy(path: Path) -> _Read:
    beside = ids_beside(path)
    ids = beside.read_text(encoding="utf-8").splitlines() if beside.is_file() else None
    return {"embeddings": _mapped(path)}, ids


def _read_npz(path: Path) -> _Read:
    columns = read_npz(path)
    ids = columns.pop("ids").astype(str).tolist() if "ids" in columns else None
    return columns, ids


def _read_safetensors(path: Path) -> _Read:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            columns = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            metadata = file.metadata() or {}
    except SafetensorError as fault:
        raise ValueError(str(fault)) from fault
    ids = json.loads(metadata["ids"]) if "ids" in metadata else None
    if ids is not None and not (isinstance(ids, list) and all(isinstance(one, str) for one in ids)):
        raise ValueError("expected ids to be a list of texts")
    return columns, ids


def _read_csv(path: Path) -> _Read:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    if not rows:
        raise ValueError("the file is empty")
    has_header = not _is_number(rows[0][-1])
    header = rows.pop(0) if has_header else []
    at = next((header.index(name) for name in _ID_COLUMNS if name in header), None)
    if at is None and rows and not has_header and not _is_number(rows[0][0]):
        at = 0
    ids = None if at is None else [text_of_csv(row[at]) for row in rows]
    numbers = [[float(cell) for position, cell in enumerate(row) if position != at] for row in rows]
    return {"embeddings": np.array(numbers, dtype=np.float32)}, ids


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _open_parquet(path: Path) -> EmbeddingParts:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        columns, n = file.schema_arrow.names, file.metadata.num_rows
    names = [name for name in _VECTOR_COLUMNS if name in columns]
    if len(names) != 1:
        raise ValueError(f"expected a column named 'embedding', got {', '.join(columns)}")
    ids = None
    if id_column := next((name for name in _ID_COLUMNS if name in columns), None):
        texts_or_numbers = pq.read_table(path, columns=[id_column]).column(0)
        # an id that is missing is empty, as no item's is
        ids = texts_or_numbers.cast(pa.string()).fill_null(pa.scalar("")).combine_chunks()
    wanted = [names[0], *(name for name in COLUMN_TYPES if name in columns)]

    def read(n_items: int) -> Iterator[EmbeddingFile]:
        widths = set[int]()
        with _as_request_errors(path), pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
            # pre-buffered, all that was read stays in memory until the end
            for batch in file.iter_batches(n_items, columns=wanted):
                part = _of_batch(batch, names[0])
                _refuse_faults(path, part)
                widths.add(part.values.shape[1])
                if len(widths) > 1:
                    raise ValueError(f"vectors have different lengths: {', '.join(map(str, sorted(widths)))}")
                yield part

    first = next(read(_GLANCE), EmbeddingFile(values=np.empty((0, 0), np.float32)))
    return EmbeddingParts(n=n, ids=ids, first=first, read=read)


def _of_batch(batch: pa.RecordBatch, name: str) -> EmbeddingFile:
    vectors = cast(pa.ListArray, batch.column(name))
    offsets = None
    if pa.types.is_nested(vectors.flatten().type):
        offsets = offsets_of(vectors.value_lengths().to_numpy(zero_copy_only=False))
        vectors = cast(pa.ListArray, vectors.flatten())
    widths = np.unique(vectors.value_lengths().to_numpy(zero_copy_only=False))
    if len(widths) != 1:
        raise ValueError(f"vectors have different lengths: {', '.join(map(str, widths[:5].tolist()))}")
    others: dict[str, Any] = {
        column: batch.column(column).to_numpy(zero_copy_only=False).astype(kind)
        for column, kind in COLUMN_TYPES.items()
        if column in batch.schema.names and column != "offsets"
    }
    values = vectors.flatten().to_numpy(zero_copy_only=False).reshape(-1, int(widths[0]))
    return EmbeddingFile(values=values, offsets=offsets, columns=others)


# --- Files of embeddings as blocks for the store: in the order of the file, with unit norm.


_ROWS = {"single": 8192, "multi": 64}


def positions_of(file: EmbeddingParts, items: pa.Array, corpus: str) -> NDArray[np.int32]:
    """For each item of the file its position among the ids of the corpus, ``items``; shape ``(n,)``.

    Raises:
        RequestError: Ids are unknown, missing or repeated, or a file without ids has another number of items.
    """
    n = len(items)
    if file.ids is None and file.n != n:
        raise RequestError(f"expected the {n} items of {corpus}, got {file.n} without ids; give ids or all items")
    if file.ids is None or file.ids.equals(items):
        return np.arange(n, dtype=np.int32)
    found = pc.index_in(file.ids, items).fill_null(-1).to_numpy()
    times = np.bincount(found[found >= 0], minlength=n)
    unknown, missing = np.flatnonzero(found < 0), np.flatnonzero(times == 0)
    repeated = np.flatnonzero(times[found] * (found >= 0) > 1)
    faults = []
    if len(repeated):
        faults.append(f"id {file.ids[int(repeated[0])].as_py()!r} occurs more than once")
    if len(unknown):
        first = file.ids[int(unknown[0])].as_py()
        faults.append(f"{len(unknown)} ids are not in {corpus}, first {first!r} at row {unknown[0]}")
    if len(missing):
        first = items[int(missing[0])].as_py()
        faults.append(f"{len(missing)} of {n} items of {corpus} are not in the file, first {first!r}")
    if faults:
        raise RequestError(faults)
    positions: NDArray[np.int32] = found.astype(np.int32)
    return positions


def blocks_of(
    file: EmbeddingParts, positions: NDArray[np.int32], items: pa.Array, spec: EncoderSpec
) -> Iterator[tuple[Block, NDArray[np.floating]]]:
    """Blocks of the items in the order of the file, each with its unit vectors in the precision of the file."""
    start = 0
    for part in file.read(_ROWS[spec.vectors]):
        ords = positions[start : start + len(part)]
        start += len(part)
        embeddings, unit = _embeddings(part)
        block = Block(
            ords=ords,
            ids=texts(items.take(ords)),
            embeddings=embeddings,
            input_shas=[""] * len(part),
            batch_id=f"import-{spec.fingerprint}",
        )
        yield block, unit


def _embeddings(part: EmbeddingFile) -> tuple[Embeddings, NDArray[np.floating]]:
    """The items as unit vectors; vectors of unit norm stay as they are, to the last bit."""
    n, values = len(part), np.asarray(part.values)
    counts = np.ones(n, np.int64) if part.offsets is None else np.diff(part.offsets)
    norms = np.sqrt(np.square(values, dtype=np.float64).sum(axis=1))
    scale = np.where(np.abs(norms - 1.0) <= UNIT_TOLERANCE, 1.0, norms)
    scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)  # check_block names the row and the id
    unit = values
    if not (scale == 1.0).all():
        unit = (values / scale[:, None]).astype(np.float64 if values.dtype == np.float64 else np.float32)
    norm = part.columns.get("norm")
    if norm is None:
        owners = np.repeat(np.arange(n), counts)
        norm = (np.bincount(owners, norms, n) / np.maximum(counts, 1)).astype(np.float32)
    embeddings = Embeddings(
        values=np.asarray(unit, dtype=np.float32),
        norms=norm,
        n_tokens=part.columns.get("n_tokens", np.zeros(n, np.int32)),
        truncated=part.columns.get("truncated", np.zeros(n, bool)),
        offsets=part.offsets,
    )
    return embeddings, unit


_WINDOW = {"single": 8192, "multi": 256}


def export_embeddings(
    store: EmbeddingStore,
    path: Path,
    *,
    encoder: str,
    corpus: str,
    modality: Modality,
    language: str | None = None,
    translator: str | None = None,
) -> int:
    """Writes a sealed set as it is stored (float16 or float32, unit norm), in the format of the file's suffix.

    Formats as in ``store.sets.embedding_files``; importing the file gives the same set, bit for bit. Parquet is
    written in bounded memory, the other formats hold the set in memory.

    Returns:
        Items written.

    Raises:
        RequestError: There is no such set, or the format cannot hold it.
        WorkError: A row was changed on disk, or the file cannot be written; no file is left then.
    """
    key = store.key(encoder=encoder, corpus=corpus, modality=modality)
    ids, multi = store.item_index(key).ids, key.vectors == "multi"
    blocks = store.stored_blocks(key, language=language, translator=translator, window=_WINDOW[key.vectors])
    if path.suffix == ".parquet":
        return _write_parquet(path, blocks, ids, multi)
    rows = joined(list(blocks))
    columns = {"norm": rows.norms, "n_tokens": rows.n_tokens, "truncated": rows.truncated}
    columns |= {"offsets": rows.vectors.offsets} if multi else {}
    _write_file(path, np.ascontiguousarray(rows.vectors.values), columns, texts(ids.take(rows.ords)))
    return len(rows.ords)


def _write_parquet(path: Path, blocks: Iterator[StoredRows], ids: pa.Array, multi: bool) -> int:
    import pyarrow.parquet as pq

    written, writer = 0, None
    with replacing(path) as temporary:
        try:
            for rows in blocks:
                values, offsets = rows.vectors.values, rows.vectors.offsets
                vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
                columns: dict[str, pa.Array] = {
                    "id": ids.take(rows.ords),
                    "ord": pa.array(rows.ords),
                    "embedding": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), vectors) if multi else vectors,
                    "norm": pa.array(rows.norms),
                    "n_tokens": pa.array(rows.n_tokens),
                    "truncated": pa.array(rows.truncated),
                }
                table = pa.table(columns)
                writer = writer or pq.ParquetWriter(temporary, table.schema, compression="none")
                writer.write_table(table)
                written += len(table)
        finally:
            if writer is not None:
                writer.close()
    return written


def _write_file(path: Path, values: NDArray[Any], columns: Mapping[str, NDArray[Any]], ids: list[str]) -> None:
    """Writes a file in the format of its suffix, complete or not at all; but for Parquet."""
    if path.suffix not in SUFFIXES:
        raise RequestError(unknown(f"{path}: suffix", path.suffix, SUFFIXES))
    if "offsets" in columns and path.suffix in (".npy", ".csv"):
        raise RequestError(f"{path}: {path.suffix} holds one vector per item; use .npz, .safetensors or .parquet")
    with replacing(path) as temporary:
        if path.suffix == ".safetensors":
            from safetensors.numpy import save_file

            save_file({"embeddings": values, **columns}, temporary, metadata={"ids": json.dumps(ids)})
        elif path.suffix == ".csv":
            with temporary.open("w", newline="", encoding="utf-8") as lines:
                writer = csv.writer(lines)
                writer.writerow(["id", *(f"c{component}" for component in range(values.shape[1]))])
                # The shortest decimal number that is read, as float32, as the same stored number.
                for identifier, row in zip(ids, values.astype(np.float32), strict=True):
                    writer.writerow([csv_text(identifier), *map(str, row)])
        else:
            with temporary.open("wb") as file:
                if path.suffix == ".npy":
                    np.save(file, values)
                else:
                    arrays: dict[str, Any] = {"embeddings": values, "ids": np.array(ids), **columns}
                    np.savez(file, **arrays)
    if path.suffix == ".npy":
        with replacing(ids_beside(path)) as temporary:
            temporary.write_text("".join(f"{identifier}\n" for identifier in ids), encoding="utf-8")
