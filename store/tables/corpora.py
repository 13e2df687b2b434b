"""Corpora as stored: one table per part, each made in one commit, and a row in ``corpora`` written last.

Tables are named by the fingerprint of the corpus and never change. An interrupted write leaves complete tables, which
the next one keeps; the corpus exists as soon as its row in ``corpora`` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.errors import RequestError, WorkError
from capim.store.keys import corpus_table, is_fingerprint
from capim.store.schema import CORPUS_PARTS, texts
from capim.store.tables.connection import Connection, storage_faults
from capim.store.tables.metadata import read, write
from capim.store.tables.rows import now, quoted
from capim.store.types import Corpus, Modality, name_fault

_COUNTED = ("images", "captions", "pairs", "quadruples", "skipped")  # parts whose number of rows is kept


def write_corpus(connection: Connection, corpus: Corpus) -> None:
    """Stores a corpus, without image bytes, once; from then on its name and its location mean this corpus."""
    if fault := name_fault(corpus.name):
        raise RequestError(f"corpus name {corpus.name!r}: {fault}")
    rows = sorted(read(connection, "corpora").to_pylist(), key=lambda row: row["written"], reverse=True)
    stored = next((row for row in rows if row["fingerprint"] == corpus.fingerprint), None)
    if stored is not None:
        by_name = next(row for row in rows if row["name"] == corpus.name)
        here = next((row for row in rows if corpus.location in row["locations"]), None) if corpus.location else stored
        if by_name is not stored or here is not stored:
            locations = _with(stored["locations"], corpus.location)
            write(connection, "corpora", [stored | {"locations": locations, "written": now()}], update=True)
        return
    parts = {part: getattr(corpus, part) for part in CORPUS_PARTS}
    for part, rows in parts.items():
        if rows.num_rows:
            name = corpus_table(part, corpus.name, corpus.fingerprint)
            stored = connection.create(name, rows.schema, rows)
            n = stored.count_rows()
            if n != rows.num_rows:
                raise WorkError(
                    f"table {name!r} has {n} rows, the corpus has {rows.num_rows}",
                    remedy=f"Run `capim store drop --corpus {corpus.name} --yes`, then the same command again",
                )
    row = {
        "name": corpus.name,
        "fingerprint": corpus.fingerprint,
        **{f"n_{part}": parts[part].num_rows for part in _COUNTED},
        "languages": sorted(texts(pc.unique(corpus.captions.column("language")))),
        "licence": corpus.licence,
        "origin": corpus.origin,
        "reference_language": corpus.languages_reference,
        "main_metric": corpus.main_metric,
        "locations": _with([], corpus.location),
        "sample": None if corpus.draw is None else corpus.draw[0],
        "seed": None if corpus.draw is None else corpus.draw[1],
        "written": now(),
    }
    write(connection, "corpora", [row], update=False)


def _with(locations: list[str], location: str) -> list[str]:
    """The locations with this one as the last."""
    return [*(one for one in locations if one != location), location] if location else locations


def corpus_row(connection: Connection, name: str, fingerprint: str | None = None) -> dict[str, object]:
    """The row of ``corpora`` for a name (the newest), a fingerprint given as the name, or both."""
    if fingerprint is None and is_fingerprint(name):
        condition = f"fingerprint = {quoted(name)}"
    else:
        condition = f"name = {quoted(name)}" + (f" AND fingerprint = {quoted(fingerprint)}" if fingerprint else "")
    rows: list[dict[str, object]] = read(connection, "corpora", condition).to_pylist()
    if not rows:
        names = sorted(set(texts(read(connection, "corpora").column("name"))))
        wanted = f"corpus {name!r}" + (f" with fingerprint {fingerprint}" if fingerprint else "")
        raise RequestError(
            f"{wanted} is not in the store {connection.uri}; it holds {', '.join(names) or 'none'}. "
            "Run `capim embed` on this corpus first, or `capim import` for embeddings made elsewhere"
        )
    return max(rows, key=lambda row: str(row["written"]))


def corpus_part(connection: Connection, part: str, name: str, fingerprint: str) -> pa.Table:
    """One table of a stored corpus, in corpus order, with the columns of ``store.schema``."""
    schema = CORPUS_PARTS[part]
    table = connection.find(corpus_table(part, name, fingerprint))
    if table is None:
        return schema.empty_table()
    with storage_faults(f"reading the {part} of corpus {name!r}"):
        rows: pa.Table = table.scanner(columns=schema.names, scan_in_order=True).to_table()
        return rows.cast(schema)


def read_corpus(connection: Connection, name: str, fingerprint: str | None = None) -> Corpus:
    """A stored corpus, without image bytes (``source`` is None)."""
    row = corpus_row(connection, name, fingerprint)
    stored_name, stored_fingerprint = str(row["name"]), str(row["fingerprint"])
    parts: dict[str, Any] = {
        part: corpus_part(connection, part, stored_name, stored_fingerprint) for part in CORPUS_PARTS
    }
    for part in _COUNTED:
        if parts[part].num_rows != row[f"n_{part}"]:
            raise WorkError(
                f"corpus {stored_name!r} has {parts[part].num_rows} of {row[f'n_{part}']} {part}",
                remedy="Restore its tables from a backup, or run `capim store drop --corpus "
                f"{stored_name} --yes`, then the same command again",
            )
    corpus = Corpus(
        name=stored_name,
        licence=str(row["licence"]),
        origin=str(row["origin"]),
        languages_reference=str(row["reference_language"]),
        main_metric=str(row["main_metric"]),
        **parts,
    )
    # Computing the fingerprint of a million captions takes seconds; `capim store verify` does.
    vars(corpus)["fingerprint"] = stored_fingerprint
    return corpus


@dataclass(frozen=True, kw_only=True)
class ItemIndex:
    """The items of one modality of a corpus by position; rows of embedding sets are checked against it.

    Attributes:
        corpus: Name.
        modality: Of the items.
        ids: Arrow strings, shape ``(n_items,)``, in corpus order.
        languages: Arrow strings, captions only.
        translators: Arrow strings, captions only.
    """

    corpus: str
    modality: Modality
    ids: pa.Array
    languages: pa.Array | None
    translators: pa.Array | None

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def ord_of(self) -> dict[str, int]:
        """Item id -> position."""
        return {item: position for position, item in enumerate(texts(self.ids))}

    def subset(self, language: str | None, translator: str | None) -> NDArray[np.int32]:
        """Positions of the captions in one language and by one translator, ascending; None means any.

        Raises:
            RequestError: There are none.
        """
        if language is None and translator is None:
            return np.arange(len(self), dtype=np.int32)
        if self.languages is None or self.translators is None:
            raise RequestError(f"corpus {self.corpus!r}: images have no language or translator to filter by")
        chosen = np.ones(len(self), dtype=bool)
        for wanted, column in ((language, self.languages), (translator, self.translators)):
            if wanted is not None:
                chosen &= pc.equal(column, pa.scalar(wanted)).to_numpy(zero_copy_only=False)
        if not chosen.any():
            both = pa.table({"language": self.languages, "translator": self.translators})
            stored = both.group_by(["language", "translator"]).aggregate([]).to_pylist()
            subsets = ", ".join(sorted(f"{row['language']}/{row['translator']}" for row in stored))
            raise RequestError(
                f"corpus {self.corpus!r} has no captions in language {language or 'any'} by translator "
                f"{translator or 'any'}; it has {subsets}"
            )
        return np.flatnonzero(chosen).astype(np.int32)


def item_index(connection: Connection, name: str, fingerprint: str, modality: Modality) -> ItemIndex:
    """The ids of the images or captions of a stored corpus, by position."""
    corpus_row(connection, name, fingerprint)
    return index_of(name, modality, corpus_part(connection, f"{modality}s", name, fingerprint))


def index_of(corpus: str, modality: Modality, rows: pa.Table) -> ItemIndex:
    """The same from the rows themselves, ``schema.IMAGES`` or ``schema.CAPTIONS``."""
    columns = ["id"] if modality == "image" else ["id", "language", "translator"]
    arrays = [rows.column(column).combine_chunks() for column in columns]
    return ItemIndex(
        corpus=corpus,
        modality=modality,
        ids=arrays[0],
        languages=arrays[1] if modality == "caption" else None,
        translators=arrays[2] if modality == "caption" else None,
    )
