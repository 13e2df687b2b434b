"""Corpora as stored: one table per part, made in one step, and a row in ``corpora`` written last.

Tables are named by the corpus' fingerprint and never change. A write that was broken off leaves whole tables at most;
the next one finds and keeps them. Only when the row in ``corpora`` is there does the corpus exist.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from store.errors import RequestError, WorkError
from store.keys import corpus_table, is_fingerprint
from store.tables.connection import Connection, storage_faults
from store.tables.evolution import completed, stored_columns
from store.tables.metadata import insert, now, quoted, read, upsert
from store.tables.schemas import CORPORA, CORPUS_PARTS
from store.types import Corpus, Modality

_LONGEST_NAME = 120  # a table's name holds it beside two fingerprints, and a file name ends at 255
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{_LONGEST_NAME - 1}}}")


def write_corpus(connection: Connection, corpus: Corpus) -> None:
    """Stores a corpus, image bytes excepted, once; from then on its name stands for it."""
    if not _NAME.fullmatch(corpus.name):
        raise RequestError(
            f"corpus name {corpus.name!r}: it names tables, so only ASCII letters, digits, '.', '_' and '-' can be in "
            f"it, it begins with a letter or digit, and has at most {_LONGEST_NAME} of them"
        )
    namesakes = read(connection, "corpora", f"name = {quoted(corpus.name)}").to_pylist()
    if any(row["fingerprint"] == corpus.fingerprint for row in namesakes):
        newest = max(namesakes, key=lambda row: row["written"])
        if newest["fingerprint"] != corpus.fingerprint:
            again = [row | {"written": now()} for row in namesakes if row["fingerprint"] == corpus.fingerprint]
            upsert(connection, "corpora", CORPORA, pa.Table.from_pylist(again, schema=CORPORA))
        return
    parts = {part: getattr(corpus, part) for part in CORPUS_PARTS}
    for part, rows in parts.items():
        if rows.num_rows:
            name = corpus_table(part, corpus.name, corpus.fingerprint)
            stored = connection.create(name, rows.schema, rows)
            n = stored.count_rows()
            if n != rows.num_rows:
                raise WorkError(f"table {name!r} holds {n} rows, the corpus {rows.num_rows}: drop it and run again")
    row = {
        "name": corpus.name,
        "fingerprint": corpus.fingerprint,
        **{f"n_{part}": parts[part].num_rows for part in ("images", "captions", "pairs", "quadruples", "skipped")},
        "languages": sorted(pc.unique(corpus.captions.column("language")).to_pylist()),
        "licence": corpus.licence,
        "origin": corpus.origin,
        "reference_language": corpus.languages_reference,
        "written": now(),
    }
    insert(connection, "corpora", CORPORA, pa.Table.from_pylist([row], schema=CORPORA))


def corpus_row(connection: Connection, name: str, fingerprint: str | None = None) -> dict[str, object]:
    """The row of ``corpora`` for a name (the newest), a fingerprint given as the name, or both."""
    if fingerprint is None and is_fingerprint(name):
        condition = f"fingerprint = {quoted(name)}"
    else:
        condition = f"name = {quoted(name)}" + (f" AND fingerprint = {quoted(fingerprint)}" if fingerprint else "")
    rows: list[dict[str, object]] = read(connection, "corpora", condition).to_pylist()
    if not rows:
        known = sorted(set(read(connection, "corpora").column("name").to_pylist()))
        wanted = f"corpus {name!r}" + (f" with fingerprint {fingerprint}" if fingerprint else "")
        raise RequestError(
            f"{wanted} is not in the store {connection.uri}; it holds {', '.join(known) or 'none'}. "
            "Run `capim embed` on it first"
        )
    return max(rows, key=lambda row: str(row["written"]))


def corpus_part(connection: Connection, part: str, name: str, fingerprint: str) -> pa.Table:
    """One table of a stored corpus, in corpus order, with the columns of ``store.schema``."""
    schema = CORPUS_PARTS[part]
    table = connection.find(corpus_table(part, name, fingerprint))
    if table is None:
        return schema.empty_table()
    with storage_faults(f"reading the {part} of corpus {name!r}"):
        rows = table.scanner(columns=stored_columns(table, schema), scan_in_order=True).to_table()
    return completed(rows, schema)


def read_corpus(connection: Connection, name: str, fingerprint: str | None = None) -> Corpus:
    """A stored corpus, without image bytes (``source`` is None)."""
    row = corpus_row(connection, name, fingerprint)
    stored_name, stored_fingerprint = str(row["name"]), str(row["fingerprint"])
    parts = {part: corpus_part(connection, part, stored_name, stored_fingerprint) for part in CORPUS_PARTS}
    for part in ("images", "captions", "pairs", "quadruples", "skipped"):
        if parts[part].num_rows != row[f"n_{part}"]:
            raise WorkError(
                f"corpus {stored_name!r}: {parts[part].num_rows} of {row[f'n_{part}']} {part} are left; run "
                f"`capim store verify`, or drop the corpus and read it in again"
            )
    corpus = Corpus(
        name=stored_name,
        licence=str(row["licence"]),
        origin=str(row["origin"]),
        languages_reference=str(row["reference_language"]),
        **parts,
    )
    # Computing it again over a million captions takes seconds; `capim store verify` does.
    vars(corpus)["fingerprint"] = stored_fingerprint
    return corpus


@dataclass(frozen=True, kw_only=True)
class ItemIndex:
    """The items of one modality of a corpus by position: what rows of embedding sets are checked against.

    Attributes:
        corpus: Name.
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
        return {item: position for position, item in enumerate(self.ids.to_pylist())}

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
                chosen &= pc.equal(column, wanted).to_numpy(zero_copy_only=False)
        if not chosen.any():
            both = pa.table({"language": self.languages, "translator": self.translators})
            there = both.group_by(["language", "translator"]).aggregate([])
            known = ", ".join(sorted(f"{row['language']}/{row['translator']}" for row in there.to_pylist()))
            raise RequestError(
                f"corpus {self.corpus!r} has no captions in language {language or 'any'} by translator "
                f"{translator or 'any'}; it has {known}"
            )
        return np.flatnonzero(chosen).astype(np.int32)


def item_index(connection: Connection, name: str, fingerprint: str, modality: Modality) -> ItemIndex:
    """The positions and ids of a stored corpus' images or captions."""
    corpus_row(connection, name, fingerprint)
    columns = ["id"] if modality == "image" else ["id", "language", "translator"]
    rows = corpus_part(connection, f"{modality}s", name, fingerprint).select(columns).combine_chunks()
    arrays = [rows.column(column).combine_chunks() for column in columns]
    return ItemIndex(
        corpus=name,
        modality=modality,
        ids=arrays[0],
        languages=arrays[1] if modality == "caption" else None,
        translators=arrays[2] if modality == "caption" else None,
    )
