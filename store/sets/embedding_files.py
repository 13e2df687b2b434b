"""Embeddings in files of other programs, read and written: .npy, .npz, .safetensors, .parquet, .csv.

| file | vectors | ids (optional) |
|---|---|---|
| .npy | the array, shape (n, dim) | file ``<name>.ids.txt``, one per line, or the like |
| .npz, .pt | the array ``embeddings``, that of this side, or the only one | any list of texts or whole numbers |
| .safetensors | the same | ``ids`` in the metadata, a JSON list |
| .parquet | column ``embedding`` (a list, or a list of lists), or one for each component | texts, whole numbers |
| .csv, .tsv | every numeric column, but for whole numbers among real ones | the others |
| .json, .jsonl | the list of numbers in each row | the others |

The column of ids is found by its content (:mod:`capim.store.sets.matching`). Files may also have ``offsets``
or ``lengths``, ``norm``, ``n_tokens`` and ``truncated``. With ``offsets`` (shape (items + 1,)), ``lengths`` (shape
(items,)) or a list of lists in Parquet, the file is a multi-vector set: item ``i`` has rows
``offsets[i]:offsets[i + 1]``. So is an array of three dimensions: vectors that its ``attention_mask`` leaves out, and
without a mask zeros at the end of an item, are padding, which is counted and left out; of ``.npy`` and Parquet, which
are read in parts, it is a fault. ``norm`` is the norm before normalisation.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store.embedding_store import EmbeddingStore
from capim.store.errors import RequestError, csv_text, unknown
from capim.store.files import existing_file, reading, replacing
from capim.store.forms import FORMS, renamed
from capim.store.schema import texts
from capim.store.sets.columns_read import tell
from capim.store.sets.rows import ROWS_AT_ONCE, StoredRows
from capim.store.sets.vector_files import (
    COLUMN_TYPES,
    WHOLE,
    WIDE,
    chosen_array,
    ids_beside,
    in_counted_order,
    mapped,
    read_contents,
    side_of,
)
from capim.store.sets.writing import UNIT_TOLERANCE, Block
from capim.store.types import Embeddings, EncoderSpec, Modality, VectorKind
from capim.store.vectors import offsets_of, positions_within

SUFFIXES = (".npy", ".npz", ".safetensors", ".parquet", ".csv")
"""Suffixes of the formats in which vectors are written."""
_BUFFER = 8 << 20  # bytes of a Parquet column at a time: a group of rows may not fit into memory
_OF_IDS = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_dictionary,
    pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal,
)  # fmt: skip
"""Types of Parquet columns that may be ids: pandas makes whole numbers with gaps real, and texts categories."""
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
        """Return `single` where an item has one vector, else `multi`."""
        return "single" if self.offsets is None else "multi"

    def take(self, items: NDArray[np.integer]) -> EmbeddingFile:
        """Return some of the items, by their positions here."""
        columns = {name: column[items] for name, column in self.columns.items()}
        if self.offsets is None:
            return EmbeddingFile(values=self.values[items], columns=columns)
        counts = self.offsets[items + 1] - self.offsets[items]
        rows = positions_within(counts) + np.repeat(self.offsets[items], counts)
        return EmbeddingFile(values=self.values[rows], offsets=offsets_of(counts), columns=columns)


@dataclass(frozen=True, kw_only=True)
class EmbeddingParts:
    """A file of embeddings that need not fit into memory.

    Attributes:
        n: Items.
        columns: Name -> cells that may be ids, ``n`` each.
        others: The same, of columns with the name of the other modality.
        components: Names of the components of vectors, where each has a column.
        first: Its first items, without values where there are none; all parts have their form.
        array: The name of the array of vectors.
        names: All columns and arrays, by the names of their roles.
        available: Its columns and arrays by the names that the file has.
        read: Yields the items in the order of the file, at most so many at a time.
    """

    n: int
    columns: Mapping[str, Sequence[object]]
    others: Mapping[str, Sequence[object]]
    components: Sequence[str]
    first: EmbeddingFile
    read: Callable[[int], Iterator[EmbeddingFile]]
    array: str
    names: Sequence[str]
    available: Sequence[str]


def open_embedding_file(
    path: Path, modality: Modality | None = None, n_items: int | None = None, named: Sequence[tuple[str, str]] = ()
) -> EmbeddingParts:
    """Return the contents of a file, with the format from its suffix; ``.npy`` and ``.parquet`` are read part by part.

    Args:
        path: A file; or a folder of numbered ``.npy`` files. ``FILE:NAME`` is the array or column NAME of a file.
        modality: The wanted modality, where a file holds both.
        n_items: How many the corpus has, to tell arrays apart by their shape.
        named: Roles and their columns or arrays, as the user names them; those that the file does not have are not
            meant.

    Raises:
        RequestError: If there is no such file, if it does not have the format of its suffix, or if it holds no matrix;
            reading its parts raises it too.
    """
    name = ""
    if not path.exists() and ":" in path.name and path.with_name(path.name.rpartition(":")[0]).exists():
        name = path.name.rpartition(":")[2]
        path = path.with_name(path.name.rpartition(":")[0])
    with reading(path):
        if path.suffix == ".parquet" and not path.is_dir():
            return _open_parquet(existing_file(path), name, modality, named)
        arrays, columns, components = read_contents(path)
        available = [*arrays, *columns]
        role_of = _roles(available, named, path)
        arrays = {role_of[each]: arrays[each] for each in arrays if each in role_of}
        columns = {role_of[each]: columns[each] for each in columns if each in role_of}
        name = name or ("vector" if "vector" in role_of.values() else "")
        if name and name not in arrays:
            raise ValueError(f"no array {name!r}; it has {', '.join(arrays)}")
        name = name or chosen_array(arrays, modality, n_items)
        contents = _of_named(arrays, name)
        n = len(contents)
        own, others = _of_side({key: cells for key, cells in columns.items() if len(cells) == n}, modality)
        alone = len(columns) == 1 and len({*map(side_of, arrays)} - {None}) < 2
        strict = {key: cells for key, cells in columns.items() if key == "ids" or alone}
        _refuse_faults(path, contents, strict)
        if contents.offsets is not None and path.suffix != ".npy":
            mask = FORMS["vectors"].find("mask", arrays)
            contents = _without_padding(path, contents, contents.offsets, None if mask is None else arrays[mask])

    def read(n_items: int) -> Iterator[EmbeddingFile]:
        for start in range(0, n, n_items):
            # a map of the file for each part: pages read through a map count as memory until it is gone
            again = _of_named({name: mapped(path)}, name) if path.suffix == ".npy" else contents
            yield again.take(np.arange(start, min(start + n_items, n)))

    return EmbeddingParts(
        n=n,
        columns=own,
        others=others,
        components=components,
        first=contents.take(np.arange(min(n, 1))),
        read=read,
        array=name,
        names=[*role_of.values()],
        available=available,
    )


def _of_side(
    columns: Mapping[str, Sequence[object]], modality: Modality | None
) -> tuple[dict[str, Sequence[object]], dict[str, Sequence[object]]]:
    """Return the columns of a modality, or of any, and those of the other one, by their names."""
    own = {name: cells for name, cells in columns.items() if side_of(name) in (None, modality)}
    return own, {name: cells for name, cells in columns.items() if name not in own}


def _refuse_faults(path: Path, contents: EmbeddingFile, ids: Mapping[str, Sequence[object]] | None = None) -> None:
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
    lengths |= {name: len(cells) for name, cells in (ids or {}).items()}
    wrong = [
        f"{path}: expected {len(contents)} {name}, one per item, got {n}"
        for name, n in lengths.items()
        if n != len(contents)
    ]
    if wrong:
        raise RequestError(wrong)


def _of_named(arrays: Mapping[str, NDArray[Any]], name: str) -> EmbeddingFile:
    """Return the vectors of an array; of three dimensions, those of each item: ``(n, 1, dim)`` is one per item."""
    values = arrays[name]
    others: dict[str, Any] = {
        column: arrays[column].astype(kind) for column, kind in COLUMN_TYPES.items() if column in arrays
    }
    if flat := [column for column, cells in others.items() if cells.ndim != 1]:
        raise ValueError(f"expected one {flat[0]} per item, got shape {others[flat[0]].shape}")
    lengths = others.pop("lengths", None)
    offsets = others.pop("offsets", None if lengths is None else offsets_of(lengths))
    if values.ndim == 3 and offsets is None:
        if values.shape[1] != 1:
            offsets = np.arange(len(values) + 1, dtype=np.int64) * values.shape[1]
        values = values.reshape(-1, values.shape[2])
    return EmbeddingFile(values=values, offsets=offsets, columns=others)


def _without_padding(
    path: Path, file: EmbeddingFile, offsets: NDArray[np.int64], mask: NDArray[Any] | None
) -> EmbeddingFile:
    """Return the vectors without padding: without what the mask leaves out, or the zeros at the end of an item.

    An item of nothing but zeros stays, and is an error of its own.

    Raises:
        ValueError: If the mask has not one entry for each vector.
    """
    owners = np.repeat(np.arange(len(file)), np.diff(offsets))
    if mask is not None and mask.size != len(file.values):
        raise ValueError(
            f"expected a mask with one entry for each of {len(file.values)} vectors, got shape {mask.shape}"
        )
    said = np.asarray((file.values if mask is None else mask.reshape(-1, 1)).any(axis=1))
    last = np.full(len(file), -1)
    np.maximum.at(last, owners[said], np.flatnonzero(said))
    kept = said if mask is not None else (np.arange(len(said)) <= last[owners]) | (last[owners] < 0)
    if kept.all():
        return file
    by = "the mask" if mask is not None else "zeros at the end of items"
    tell(f"{path}: {(~kept).sum():,} of {len(kept):,} vectors are padding by {by}, left out")
    counts = np.bincount(owners[kept], minlength=len(file))
    return EmbeddingFile(values=file.values[kept], offsets=offsets_of(counts), columns=file.columns)


def _roles(names: Sequence[str], named: Sequence[tuple[str, str]], path: Path) -> dict[str, str]:
    """Return column or array -> the role that the user names it for, else its own name."""
    return renamed(names, {role: column for role, column in named if column in names}, FORMS["vectors"], path)


def _open_parquet(path: Path, name: str, modality: Modality | None, named: Sequence[tuple[str, str]]) -> EmbeddingParts:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        schema, n = file.schema_arrow, file.metadata.num_rows
    role_of = _roles(schema.names, named, path)
    name = name or dict(named).get("vector", "")
    nested = {each.name: str(each.type) for each in schema if "list<" in str(each.type)}
    vectors = {each: np.empty((0, 0)) for each, kind in nested.items() if ": int" not in kind and ": uint" not in kind}
    if nested and not (vectors or name):
        raise ValueError(WHOLE.format(next(iter(nested))))
    real = [
        each.name for each in schema if pa.types.is_floating(each.type) and role_of.get(each.name) not in COLUMN_TYPES
    ]
    wide = [] if name or vectors else [real[at] for at in in_counted_order(real)]
    if not (name or vectors) and len(wide) < WIDE:
        raise ValueError(f"expected a column named 'embedding', got {', '.join(schema.names)}")
    array = "embeddings" if wide else name or chosen_array(vectors, modality)
    listed = [each.name for each in schema if any(is_kind(each.type) for is_kind in _OF_IDS) and each.name not in wide]
    cells = pq.read_table(path, columns=[each for each in listed if role_of.get(each) not in COLUMN_TYPES])
    listed_by_role = {role_of[each]: cells[each].to_pylist() for each in cells.column_names if each in role_of}
    own, of_other_side = _of_side(listed_by_role, modality)
    others = {role: column for column, role in role_of.items() if role in ("norm", "n_tokens", "truncated")}

    def read(n_items: int) -> Iterator[EmbeddingFile]:
        widths = set[int]()
        with reading(path), pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
            # pre-buffered, all that was read stays in memory until the end
            for batch in file.iter_batches(n_items, columns=[*(wide or [array]), *others.values()]):
                part = _of_batch(batch, wide or array, others)
                _refuse_faults(path, part)
                widths.add(part.values.shape[1])
                if len(widths) > 1:
                    raise ValueError(f"vectors have different lengths: {', '.join(map(str, sorted(widths)))}")
                yield part

    first = next(read(_GLANCE), EmbeddingFile(values=np.empty((0, 0), np.float32)))
    return EmbeddingParts(
        n=n,
        columns=own,
        others=of_other_side,
        components=wide,
        first=first,
        read=read,
        array=role_of.get(array, array),
        names=[*([array] if wide else ()), *(role for column, role in role_of.items() if column not in wide)],
        available=schema.names,
    )


def _of_batch(batch: pa.RecordBatch, name: str | Sequence[str], others: Mapping[str, str]) -> EmbeddingFile:
    """Return the items of a batch: of a column of vectors, or of columns of their components."""
    columns: dict[str, Any] = {
        role: batch.column(column).to_numpy(zero_copy_only=False).astype(COLUMN_TYPES[role])
        for role, column in others.items()
    }
    if not isinstance(name, str):
        components = [batch.column(each).to_numpy(zero_copy_only=False) for each in name]
        return EmbeddingFile(values=np.column_stack(components), columns=columns)
    vectors = cast(pa.ListArray, batch.column(name))
    offsets = None
    if pa.types.is_nested(vectors.flatten().type):
        offsets = offsets_of(vectors.value_lengths().to_numpy(zero_copy_only=False))
        vectors = cast(pa.ListArray, vectors.flatten())
    widths = np.unique(vectors.value_lengths().to_numpy(zero_copy_only=False))
    if len(widths) != 1:
        raise ValueError(f"vectors have different lengths: {', '.join(map(str, widths[:5].tolist()))}")
    values = vectors.flatten().to_numpy(zero_copy_only=False).reshape(-1, int(widths[0]))
    return EmbeddingFile(values=values, offsets=offsets, columns=columns)


# --- Files of embeddings as blocks for the store: in the order of the file, with unit norm.


def blocks_of(
    file: EmbeddingParts, positions: NDArray[np.integer], spec: EncoderSpec
) -> Iterator[tuple[Block, NDArray[np.floating]]]:
    """Yield blocks of the items in the order of the file, each with its unit vectors in the precision of the file."""
    start = 0
    for part in file.read(ROWS_AT_ONCE[spec.vectors]):
        ords = positions[start : start + len(part)].astype(np.int32)
        start += len(part)
        kept = ords >= 0  # the others are of items that the corpus left out
        if not kept.any():
            continue
        ords = ords[kept]
        embeddings, unit = _embeddings(part if kept.all() else part.take(np.flatnonzero(kept)))
        block = Block(
            ords=ords, embeddings=embeddings, input_shas=[""] * len(ords), batch_id=f"import-{spec.fingerprint}"
        )
        yield block, unit


def are_unit_float16(file: EmbeddingParts) -> bool:
    """True if float16 holds the vectors as they are stored: others than of unit norm are divided by their norm."""
    return file.first.values.dtype.itemsize <= 2 and all(
        (_norms_and_scale(part.values)[1] == 1.0).all() for part in file.read(ROWS_AT_ONCE[file.first.vectors])
    )


def _norms_and_scale(values: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the norm of each vector, and its divisor."""
    norms = np.sqrt(np.square(values, dtype=np.float64).sum(axis=1))
    scale = np.where(np.abs(norms - 1.0) <= UNIT_TOLERANCE, 1.0, norms)
    return norms, np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)  # check_block names the row and the id


def _embeddings(part: EmbeddingFile) -> tuple[Embeddings, NDArray[np.floating]]:
    """Return the items as unit vectors; vectors of unit norm stay as they are, to the last bit."""
    n, values = len(part), np.asarray(part.values)
    counts = np.ones(n, np.int64) if part.offsets is None else np.diff(part.offsets)
    norms, scale = _norms_and_scale(values)
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


def export_embeddings(store: EmbeddingStore, path: Path, *, encoder: str, corpus: str, modality: Modality) -> int:
    """Write a sealed set as it is stored (float16 or float32, unit norm), in the format of the file's suffix.

    Formats as in ``store.sets.embedding_files``; importing the file gives the same set, bit for bit, except that
    ``.npy`` and ``.csv`` hold only vectors and ids. Parquet is written in bounded memory, others hold the set in it.

    Returns:
        Number of written items.

    Raises:
        RequestError: If there is no such set, or the format cannot hold it.
        WorkError: If a row was changed on disk, or the file cannot be written; no file is left then.
    """
    key = store.key(encoder=encoder, corpus=corpus, modality=modality)
    ids, multi = store.item_index(key).ids, key.vectors == "multi"
    if path.suffix == ".parquet":
        _write_parquet(path, store.stored_blocks(key, window=ROWS_AT_ONCE[key.vectors]), ids, multi)
        return len(ids)
    [rows] = store.stored_blocks(key, window=len(ids))
    columns = {"norm": rows.norms, "n_tokens": rows.n_tokens, "truncated": rows.truncated}
    columns |= {"offsets": rows.vectors.offsets} if multi else {}
    _write_file(path, np.ascontiguousarray(rows.vectors.values), columns, texts(ids.take(rows.ords)))
    return len(ids)


def _write_parquet(path: Path, blocks: Iterator[StoredRows], ids: pa.Array, multi: bool) -> None:
    import pyarrow.parquet as pq

    tables = (_table_of(rows, ids, multi) for rows in blocks)
    first = next(tables)
    with replacing(path) as temporary, pq.ParquetWriter(temporary, first.schema, compression="none") as writer:
        for table in chain([first], tables):
            writer.write_table(table)


def _table_of(rows: StoredRows, ids: pa.Array, multi: bool) -> pa.Table:
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
    return pa.table(columns)


def _write_file(path: Path, values: NDArray[Any], columns: Mapping[str, NDArray[Any]], ids: list[str]) -> None:
    """Write a file in the format of its suffix, complete or not at all; :func:`_write_parquet` writes Parquet."""
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
