"""Embeddings and rows of a store, written to files for other programs."""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store.embedding_store import EmbeddingStore
from capim.store.errors import RequestError, csv_text, unknown
from capim.store.exchange.embedding_files import COLUMN_TYPES, SUFFIXES, EmbeddingFile, ids_beside
from capim.store.files import replacing
from capim.store.schema import texts
from capim.store.sets.decoding import StoredRows, joined
from capim.store.types import Modality

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

    Formats as in ``store.exchange.embedding_files``; importing the file gives the same set, bit for bit. Parquet is
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
        images: File with the vectors of the images; formats as in ``store.exchange.embedding_files``.
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
