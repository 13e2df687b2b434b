"""Many imports at once: a manifest in TOML, or a folder with a subfolder per encoder and corpus."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from capim.store.errors import RequestError, unknown
from capim.store.exchange.embedding_files import SUFFIXES

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
