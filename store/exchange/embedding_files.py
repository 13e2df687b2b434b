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
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.errors import RequestError, unknown
from store.exchange.npz import read_npz
from store.files import NOT_ITS_FORMAT, existing_file, replacing
from store.ragged import offsets_of

SUFFIXES = (".npy", ".npz", ".safetensors", ".parquet", ".csv")
_TYPES = {"offsets": np.int64, "norm": np.float32, "n_tokens": np.int32, "truncated": np.bool_}
_ID_COLUMNS = ("id", "item_id")
_VECTOR_COLUMNS = ("embedding", "embeddings", "vector", "vectors")


@dataclass(frozen=True, kw_only=True)
class EmbeddingFile:
    """The contents of a file of embeddings.

    Attributes:
        values: Floating, shape ``(rows, dim)``.
        offsets: int64, shape ``(n + 1,)``, or None for one vector per item.
        ids: Length ``n``, or None for the order of the corpus.
        norm: float32, shape ``(n,)``, or None.
        n_tokens: int32, shape ``(n,)``, or None.
        truncated: bool, shape ``(n,)``, or None.
    """

    values: NDArray[Any]
    offsets: NDArray[np.int64] | None = None
    ids: list[str] | None = None
    norm: NDArray[np.float32] | None = None
    n_tokens: NDArray[np.int32] | None = None
    truncated: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.values) if self.offsets is None else len(self.offsets) - 1


def read_embedding_file(path: Path) -> EmbeddingFile:
    """The contents of a file, whose suffix names the format.

    Raises:
        RequestError: There is no such file, it does not have the format of its suffix, or it holds no matrix.
    """
    readers = {
        ".npy": _read_npy,
        ".npz": _read_npz,
        ".safetensors": _read_safetensors,
        ".parquet": _read_parquet,
        ".csv": _read_csv,
    }
    if path.suffix not in readers:
        raise RequestError(unknown(f"{path}: suffix", path.suffix, SUFFIXES))
    existing_file(path)
    try:
        contents = readers[path.suffix](path)
    except RequestError:
        raise
    except (*NOT_ITS_FORMAT, zipfile.BadZipFile, pa.ArrowException) as fault:
        raise RequestError(f"{path} cannot be read as {path.suffix}: {fault}") from fault
    faults = list(_faults(path, contents))
    if faults:
        raise RequestError(faults)
    return contents


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


def write_embedding_file(path: Path, contents: EmbeddingFile) -> None:
    """Writes a file in the format of its suffix, complete or not at all; Parquet is written by ``exporting``."""
    if path.suffix not in SUFFIXES or path.suffix == ".parquet":
        raise RequestError(unknown(f"{path}: suffix", path.suffix, SUFFIXES))
    if contents.offsets is not None and path.suffix in (".npy", ".csv"):
        raise RequestError(f"{path}: {path.suffix} holds one vector per item; use .npz, .safetensors or .parquet")
    with replacing(path) as temporary:
        if path.suffix in (".npy", ".npz"):
            with temporary.open("wb") as file:
                if path.suffix == ".npy":
                    np.save(file, contents.values)
                else:
                    arrays: dict[str, Any] = {**_named(contents), "ids": np.array(contents.ids)}
                    np.savez(file, **arrays)
        elif path.suffix == ".safetensors":
            from safetensors.numpy import save_file

            save_file(_named(contents), temporary, metadata={"ids": json.dumps(contents.ids)})
        else:
            _write_csv(temporary, contents)
    if path.suffix == ".npy" and contents.ids is not None:
        with replacing(_ids_beside(path)) as temporary:
            temporary.write_text("".join(f"{identifier}\n" for identifier in contents.ids), encoding="utf-8")


def _ids_beside(path: Path) -> Path:
    return path.with_suffix(".ids.txt")


def _named(contents: EmbeddingFile) -> dict[str, NDArray[Any]]:
    columns = {name: getattr(contents, name) for name in _TYPES if getattr(contents, name) is not None}
    return {"embeddings": np.ascontiguousarray(contents.values), **columns}


def _from_named(columns: Mapping[str, NDArray[Any]], ids: list[str] | None) -> EmbeddingFile:
    names = [name for name in _VECTOR_COLUMNS if name in columns]
    if not names and len(columns) == 1:
        names = list(columns)
    if len(names) != 1:
        raise ValueError(f"expected an array named 'embeddings', got {', '.join(columns) or 'none'}")
    others: dict[str, Any] = {name: columns[name].astype(kind) for name, kind in _TYPES.items() if name in columns}
    if flat := [name for name, column in others.items() if column.ndim != 1]:
        raise ValueError(f"expected one {flat[0]} per item, got shape {others[flat[0]].shape}")
    if ids is not None and not (isinstance(ids, list) and all(isinstance(one, str) for one in ids)):
        raise ValueError("expected ids to be a list of texts")
    return EmbeddingFile(values=columns[names[0]], ids=ids, **others)


def _read_npy(path: Path) -> EmbeddingFile:
    beside = _ids_beside(path)
    ids = beside.read_text(encoding="utf-8").splitlines() if beside.is_file() else None
    return EmbeddingFile(values=np.load(path, mmap_mode="r", allow_pickle=False), ids=ids)


def _read_npz(path: Path) -> EmbeddingFile:
    columns = read_npz(path)
    ids = columns.pop("ids").astype(str).tolist() if "ids" in columns else None
    return _from_named(columns, ids)


def _read_safetensors(path: Path) -> EmbeddingFile:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            columns = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            metadata = file.metadata() or {}
    except SafetensorError as fault:
        raise ValueError(str(fault)) from fault
    return _from_named(columns, json.loads(metadata["ids"]) if "ids" in metadata else None)


def _read_parquet(path: Path) -> EmbeddingFile:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    names = [name for name in _VECTOR_COLUMNS if name in table.column_names]
    if len(names) != 1:
        raise ValueError(f"expected a column named 'embedding', got {', '.join(table.column_names)}")
    vectors = cast(pa.ListArray, table.column(names[0]).combine_chunks())
    offsets = None
    if pa.types.is_nested(vectors.flatten().type):
        offsets = offsets_of(vectors.value_lengths().to_numpy(zero_copy_only=False))
        vectors = cast(pa.ListArray, vectors.flatten())
    widths = np.unique(vectors.value_lengths().to_numpy(zero_copy_only=False))
    if len(widths) != 1:
        raise ValueError(f"vectors have different lengths: {', '.join(map(str, widths[:5].tolist()))}")
    ids = next((table.column(name).to_pylist() for name in _ID_COLUMNS if name in table.column_names), None)
    others: dict[str, Any] = {
        name: table.column(name).to_numpy().astype(kind) for name, kind in _TYPES.items() if name in table.column_names
    }
    values = vectors.flatten().to_numpy(zero_copy_only=False).reshape(-1, int(widths[0]))
    return EmbeddingFile(
        values=values, ids=None if ids is None else list(map(str, ids)), **others | {"offsets": offsets}
    )


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
    ids = None if at is None else [row[at] for row in rows]
    numbers = [[float(cell) for position, cell in enumerate(row) if position != at] for row in rows]
    return EmbeddingFile(values=np.array(numbers, dtype=np.float32), ids=ids)


def _write_csv(path: Path, contents: EmbeddingFile) -> None:
    ids = contents.ids or []
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *(f"c{component}" for component in range(contents.values.shape[1]))])
        # The shortest decimal number that is read, as float32, as the same stored number.
        rows = contents.values.astype(np.float32)
        writer.writerows([identifier, *map(str, row)] for identifier, row in zip(ids, rows, strict=True))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
