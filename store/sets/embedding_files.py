"""Embeddings in files of other programs: .npy, .npz, .safetensors, .parquet, .csv, with or without ids.

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
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

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
from capim.store.types import Embeddings, EncoderSpec, Modality
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
    """The contents of a file of embeddings, or of consecutive items of it.

    Attributes:
        values: Floating, shape ``(rows, dim)``.
        offsets: int64, shape ``(n + 1,)``, or None for one vector per item.
        ids: Strings, length ``n``, or None for the order of the corpus.
        norm: float32, shape ``(n,)``, or None.
        n_tokens: int32, shape ``(n,)``, or None.
        truncated: bool, shape ``(n,)``, or None.
    """

    values: NDArray[Any]
    offsets: NDArray[np.int64] | None = None
    ids: pa.Array | None = None
    norm: NDArray[np.float32] | None = None
    n_tokens: NDArray[np.int32] | None = None
    truncated: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.values) if self.offsets is None else len(self.offsets) - 1

    def part(self, start: int, stop: int) -> EmbeddingFile:
        """Items ``start`` to ``stop`` (exclusive), as a view."""
        columns = {name: getattr(self, name) for name in ("ids", "norm", "n_tokens", "truncated")}
        some: dict[str, Any] = {name: None if one is None else one[start:stop] for name, one in columns.items()}
        if self.offsets is None:
            return EmbeddingFile(values=self.values[start:stop], **some)
        offsets = self.offsets[start : min(stop, len(self)) + 1]
        return EmbeddingFile(values=self.values[offsets[0] : offsets[-1]], offsets=offsets - offsets[0], **some)


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
        contents = {".npy": _read_npy, ".npz": _read_npz, ".safetensors": _read_safetensors, ".csv": _read_csv}[
            path.suffix
        ](path)
    faults = list(_faults(path, contents))
    if faults:
        raise RequestError(faults)

    def read(n_items: int) -> Iterator[EmbeddingFile]:
        for start in range(0, len(contents), n_items):
            # a map of the file for each part: what is read through one counts as memory until it is gone
            again = _read_npy(path, with_ids=False) if path.suffix == ".npy" else contents
            yield again.part(start, start + n_items)

    return EmbeddingParts(n=len(contents), ids=contents.ids, first=contents.part(0, 1), read=read)


@contextmanager
def _as_request_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except RequestError:
        raise
    except (*NOT_ITS_FORMAT, zipfile.BadZipFile, pa.ArrowException) as fault:
        raise RequestError(f"{path} cannot be read as {path.suffix}: {fault}") from fault


def _faults(path: Path, contents: EmbeddingFile) -> Iterator[str]:
    if contents.values.ndim != 2 or contents.values.dtype.kind != "f":
        yield (
            f"{path}: expected floating point numbers of shape (rows, dim), got {contents.values.dtype} of shape "
            f"{contents.values.shape}"
        )
        return
    offsets = contents.offsets
    if offsets is not None and (
        len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(contents.values) or (np.diff(offsets) < 0).any()
    ):
        yield f"{path}: offsets must increase from 0 to {len(contents.values)}, the number of vectors"
        return
    for name in ("ids", "norm", "n_tokens", "truncated"):
        column = getattr(contents, name)
        if column is not None and len(column) != len(contents):
            yield f"{path}: expected {len(contents)} {name}, one per item, got {len(column)}"


def ids_beside(path: Path) -> Path:
    """The file of the ids that belong to a .npy file."""
    return path.with_suffix(".ids.txt")


def _from_named(columns: Mapping[str, NDArray[Any]], ids: pa.Array | None) -> EmbeddingFile:
    names = [name for name in _VECTOR_COLUMNS if name in columns]
    if not names and len(columns) == 1:
        names = list(columns)
    if len(names) != 1:
        raise ValueError(f"expected an array named 'embeddings', got {', '.join(columns) or 'none'}")
    others: dict[str, Any] = {
        name: columns[name].astype(kind) for name, kind in COLUMN_TYPES.items() if name in columns
    }
    if flat := [name for name, column in others.items() if column.ndim != 1]:
        raise ValueError(f"expected one {flat[0]} per item, got shape {others[flat[0]].shape}")
    return EmbeddingFile(values=columns[names[0]], ids=ids, **others)


def _read_npy(path: Path, *, with_ids: bool = True) -> EmbeddingFile:
    beside = ids_beside(path)
    ids = None
    if with_ids and beside.is_file():
        ids = pa.array(beside.read_text(encoding="utf-8").splitlines(), pa.string())
    return EmbeddingFile(values=np.load(path, mmap_mode="r", allow_pickle=False), ids=ids)


def _read_npz(path: Path) -> EmbeddingFile:
    columns = read_npz(path)
    ids = pa.array(columns.pop("ids").astype(str).tolist(), pa.string()) if "ids" in columns else None
    return _from_named(columns, ids)


def _read_safetensors(path: Path) -> EmbeddingFile:
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
    return _from_named(columns, None if ids is None else pa.array(ids, pa.string()))


def _open_parquet(path: Path) -> EmbeddingParts:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        columns, n = file.schema_arrow.names, file.metadata.num_rows
    names = [name for name in _VECTOR_COLUMNS if name in columns]
    if len(names) != 1:
        raise ValueError(f"expected a column named 'embedding', got {', '.join(columns)}")
    id_column = next((name for name in _ID_COLUMNS if name in columns), None)
    ids = None if id_column is None else _ids_of(pq.read_table(path, columns=[id_column]).column(0))
    wanted = [names[0], *(name for name in COLUMN_TYPES if name in columns)]

    def read(n_items: int) -> Iterator[EmbeddingFile]:
        width = None
        with _as_request_errors(path), pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
            # pre-buffered, all that was read stays in memory until the end
            for batch in file.iter_batches(n_items, columns=wanted):
                part = _of_batch(batch, names[0])
                if faults := list(_faults(path, part)):
                    raise RequestError(faults)
                if width not in (None, part.values.shape[1]):
                    raise ValueError(f"vectors have different lengths: {width}, {part.values.shape[1]}")
                width = part.values.shape[1]
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
        if column in batch.schema.names
    }
    values = vectors.flatten().to_numpy(zero_copy_only=False).reshape(-1, int(widths[0]))
    return EmbeddingFile(values=values, **others | {"offsets": offsets})


def _ids_of(column: pa.ChunkedArray) -> pa.Array:
    """The ids of a column of texts or numbers; an id that is missing is empty, as no item's is."""
    return column.cast(pa.string()).fill_null(pa.scalar("")).combine_chunks()


def _read_csv(path: Path) -> EmbeddingFile:
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
    values = np.array(numbers, dtype=np.float32)
    return EmbeddingFile(values=values, ids=None if ids is None else pa.array(ids, pa.string()))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


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
    if len(file.ids) != file.n:
        raise RequestError(f"expected {file.n} ids, one per item, got {len(file.ids)}")
    found = pc.index_in(file.ids, items).fill_null(-1).to_numpy()
    times = np.bincount(found[found >= 0], minlength=n)
    unknown, missing = np.flatnonzero(found < 0), np.flatnonzero(times == 0)
    repeated = np.flatnonzero(times[found] * (found >= 0) > 1)
    faults = []
    if len(repeated):
        faults.append(f"id {file.ids[int(repeated[0])].as_py()!r} comes more than once")
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
    kept = part.norm
    if kept is None:
        owners = np.repeat(np.arange(n), counts)
        kept = (np.bincount(owners, norms, n) / np.maximum(counts, 1)).astype(np.float32)
    embeddings = Embeddings(
        values=np.asarray(unit, dtype=np.float32),
        norms=kept,
        n_tokens=np.zeros(n, np.int32) if part.n_tokens is None else part.n_tokens,
        truncated=np.zeros(n, bool) if part.truncated is None else part.truncated,
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
    contents = EmbeddingFile(
        values=rows.vectors.values,
        offsets=rows.vectors.offsets if multi else None,
        norm=rows.norms,
        n_tokens=rows.n_tokens,
        truncated=rows.truncated,
    )
    _write_file(path, contents, texts(ids.take(rows.ords)))
    return len(contents)


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


def _write_file(path: Path, contents: EmbeddingFile, ids: list[str]) -> None:
    """Writes a file in the format of its suffix, complete or not at all; but for Parquet."""
    if path.suffix not in SUFFIXES:
        raise RequestError(unknown(f"{path}: suffix", path.suffix, SUFFIXES))
    if contents.offsets is not None and path.suffix in (".npy", ".csv"):
        raise RequestError(f"{path}: {path.suffix} holds one vector per item; use .npz, .safetensors or .parquet")
    with replacing(path) as temporary:
        if path.suffix in (".npy", ".npz"):
            with temporary.open("wb") as file:
                if path.suffix == ".npy":
                    np.save(file, contents.values)
                else:
                    arrays: dict[str, Any] = {**_named(contents), "ids": np.array(ids)}
                    np.savez(file, **arrays)
        elif path.suffix == ".safetensors":
            from safetensors.numpy import save_file

            save_file(_named(contents), temporary, metadata={"ids": json.dumps(ids)})
        else:
            _write_csv(temporary, contents, ids)
    if path.suffix == ".npy":
        with replacing(ids_beside(path)) as temporary:
            temporary.write_text("".join(f"{identifier}\n" for identifier in ids), encoding="utf-8")


def _named(contents: EmbeddingFile) -> dict[str, NDArray[Any]]:
    columns = {name: getattr(contents, name) for name in COLUMN_TYPES if getattr(contents, name) is not None}
    return {"embeddings": np.ascontiguousarray(contents.values), **columns}


def _write_csv(path: Path, contents: EmbeddingFile, ids: list[str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *(f"c{component}" for component in range(contents.values.shape[1]))])
        # The shortest decimal number that is read, as float32, as the same stored number.
        rows = contents.values.astype(np.float32)
        writer.writerows([csv_text(identifier), *map(str, row)] for identifier, row in zip(ids, rows, strict=True))


# --- Many imports at once: a manifest in TOML, or a folder with a subfolder per encoder and corpus.


FILES = ("images", "captions")


@dataclass(frozen=True, kw_only=True)
class ImportRow:
    """One encoder's embeddings of one corpus, as named by the user.

    Attributes:
        encoder: Name to register the vectors under.
        corpus: A stored corpus, a name of the table of corpora, a folder or a TOML file.
        images: File with the vectors of the images; formats as in ``store.sets.embedding_files``.
        captions: File with the vectors of the captions.
        revision: Of the encoder; None: that of the import that is stored under this name, else ``unversioned``.
        note: Of the encoder; None: that of the stored one, else none.
    """

    encoder: str
    corpus: str
    images: str | None = None
    captions: str | None = None
    revision: str | None = None
    note: str | None = None


_FIELDS = tuple(field.name for field in fields(ImportRow))


def read_manifest(path: Path) -> list[ImportRow]:
    """The rows of a manifest: tables ``[[set]]`` with the fields of :class:`ImportRow`.

    Paths count from the folder of the manifest.

    Raises:
        RequestError: The file is missing or is not TOML, or rows have wrong fields; all faults together.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"manifest {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"manifest {path} is not valid TOML: {error}") from error
    listed = tables.pop("set", [])
    faults = [f"manifest {path}: unknown table or field {name!r}; expected tables [[set]]" for name in tables]
    if not isinstance(listed, list) or not listed or not all(isinstance(row, dict) for row in listed):
        faults.append(f"manifest {path}: expected at least one table [[set]] with {', '.join(_FIELDS)}")
        raise RequestError(faults)
    for number, row in enumerate(listed, start=1):
        label = f"manifest {path}, set {number}"
        faults += [unknown(f"{label}: field", name, _FIELDS) for name in sorted(row.keys() - _FIELDS)]
        faults += [f"{label}: {name!r} is missing" for name in ("encoder", "corpus") if name not in row]
        if not row.keys() & set(FILES):
            faults.append(f"{label}: give 'images', 'captions' or both")
        faults += [f"{label}: {name} must be text, got {text!r}" for name, text in row.items() if not _is_text(text)]
    if faults:
        raise RequestError(faults)
    return [ImportRow(**{name: _located(name, text, path.parent) for name, text in row.items()}) for row in listed]


def rows_of_folder(folder: Path) -> list[ImportRow]:
    """The files ``ENCODER/CORPUS/images.*`` and ``captions.*`` below a folder, by encoder and corpus.

    Raises:
        RequestError: There is no such folder or no such file, or a file has an unknown suffix or a twin.
    """
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a folder; expected {folder}/ENCODER/CORPUS/images.npy and captions.npy")
    rows, faults = [], []
    for inner in sorted(path for path in folder.glob("*/*") if path.is_dir()):
        found: dict[str, list[Path]] = {}
        for path in sorted(inner.iterdir()):
            if path.stem in FILES and path.suffix in SUFFIXES:
                found.setdefault(path.stem, []).append(path)
        faults += [f"{inner} has several files of {name}: {', '.join(p.name for p in twins)}; keep one"
                   for name, twins in found.items() if len(twins) > 1]  # fmt: skip
        if found:
            files = {name: str(paths[0]) for name, paths in found.items()}
            rows.append(ImportRow(encoder=inner.parent.name, corpus=inner.name, **files))
        else:
            faults.append(f"{inner} has no images or captions with a suffix among {', '.join(SUFFIXES)}")
    if not rows and not faults:
        faults.append(f"{folder} has no folders ENCODER/CORPUS with images.npy and captions.npy")
    if faults:
        raise RequestError(faults)
    return rows


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _located(name: str, text: str, folder: Path) -> str:
    """A path counted from the folder; a corpus stays a name unless there is such a file or folder."""
    if name in FILES or (name == "corpus" and (folder / text).exists()):
        return str(folder / text)
    return text
