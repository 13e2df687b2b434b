"""A small store with every kind of table, what a run does with it, and everything that it holds."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from capim.store import Corpus, EmbeddingStore, IndexedImage
from capim.store.connection import storage_faults
from capim.store.integrity import HISTORY, verify
from capim.store.rows import delete, read
from capim.store.schema import ANALYSES, CORPUS_PARTS, REGISTERS, texts
from capim.store.sets.reading import open_set
from capim.store.sets.rows import columns_of
from capim.store.types import MODALITIES
from tests.faults.fault import expect
from tests.store.toy import make_block, make_corpus, make_key, make_spec

_BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
_VARYING = {"written", "sealed_at", "version", "write_number", "n_bytes"}
_ENCODERS = ("one", "several")

Contents = dict[str, list[dict[str, Any]]]


def _corpus() -> Corpus:
    """Twelve images with two captions in each of two languages, and a row of every other part."""
    parts: dict[str, dict[str, Any]] = {
        "pairs": {"image_id": "i00000", "caption_id": "en/human/0", "negative_id": "en/human/1", "category": "swap"},
        "quadruples": {"image_0": "i00000", "image_1": "i00001", "caption_0": "en/human/0", "caption_1": "en/human/1"}
        | {"tags": ["a"]},
        "relevance": {"ground_truth": "eccv", "direction": "t2i", "query_id": "en/human/0", "item_id": "i00001"}
        | {"grade": 1},
        "skipped": {"item_id": "i99", "reason": "not an image", "modality": "image"},
    }
    rows: dict[str, Any] = {
        part: pa.Table.from_pylist([{"id": part, **row}], schema=CORPUS_PARTS[part]) for part, row in parts.items()
    }
    return replace(make_corpus(12, languages=("en", "de")), location="./toy", **rows)


def _value(field: pa.Field, seed: int) -> object:
    if pa.types.is_list(field.type):
        return [_value(field.type.value_field, seed + i) for i in range(3)]
    if pa.types.is_string(field.type):
        return "" if field.name.endswith("_tag") else f"{field.name}-{seed}"
    if pa.types.is_binary(field.type):
        return bytes([seed])
    if pa.types.is_temporal(field.type):
        return _BEGUN + timedelta(minutes=seed)
    if pa.types.is_boolean(field.type):
        return bool(seed % 2)
    return seed / 7 if pa.types.is_floating(field.type) else seed


def _analysis(table: str, part: int) -> pa.Table:
    """Some rows of an analysis, those of one evaluation."""
    rows = [{field.name: _value(field, 10 * part + i) for field in ANALYSES[table].columns} for i in range(4)]
    fixed = {"evaluation": f"evaluation-{part}"} if "evaluation" in ANALYSES[table].columns.names else {}
    return pa.Table.from_pylist([row | fixed for row in rows], schema=ANALYSES[table].columns)


def run(store: EmbeddingStore, *, first: bool = False) -> None:
    """What a run does with a store: everything that is not there is made; history is written the first time."""
    corpus = _corpus()
    store.write_corpus(corpus)
    images = [(f"{i:032x}", 8, 6, random.Random(i).randbytes(400), None) for i in range(12)]
    for half in (images[:6], images[6:]):
        store.write_image_index(IndexedImage(*image) for image in half)
    for name in _ENCODERS:
        spec = make_spec(name=name, vectors="multi" if name == "several" else "single")
        store.write_encoder(spec)
        for modality in MODALITIES:
            key, n = make_key(corpus, spec, modality), len(corpus.items(modality))
            missing = {*store.missing(key, n).tolist()}
            for start in range(0, n, 4):
                if missing & {*range(start, start + 4)}:
                    block = make_block(corpus, spec, range(start, start + 4), modality, batch_id=f"batch-{start}")
                    store.put(key, spec, block)
            store.seal(key, n_items=n)
    for table in ANALYSES:
        for part in range(3):
            rows = _analysis(table, part)
            if first and part == 1:  # replaced afterwards, which leaves a deletion file
                older = rows.slice(0, 2)
                store.write_rows(table, older.set_column(0, rows.schema.field(0), pa.array(["old-a", "old-b"])))
                column = rows.schema.names[0]
                delete(store.connection, table, column, ["old-a", "old-b"])
            if first or (table not in HISTORY and len(_stored(store, table, rows)) != len(rows)):
                store.write_rows(table, rows)


def _stored(store: EmbeddingStore, table: str, rows: pa.Table) -> pa.Table:
    column = "evaluation" if "evaluation" in rows.schema.names else rows.schema.names[0]
    return store.rows(table, **{column: texts(rows[column])})


def contents(store: EmbeddingStore) -> Contents:
    """Everything that is stored, as capim reads it, without what differs from write to write."""
    found = {name: store.encoders() if name == "encoders" else read(store.connection, name) for name in REGISTERS}
    found |= {name: store.rows(name) for name in ANALYSES}
    corpus = store.corpus("toy")
    found |= {part: getattr(corpus, part) for part in CORPUS_PARTS}
    pictures = store.thumbnails([f"{i:032x}" for i in range(12)])
    found["thumbnails"] = pa.table({"sha": list(pictures), "bytes": list(pictures.values())})
    for sealed in store.sealed_sets():
        for _ in store.stored_blocks(sealed.key):  # compares the checksums
            pass
        table = open_set(store.connection, sealed.key, sealed)
        with storage_faults("reading"):
            columns = [*columns_of(sealed.key), "item_id", "input_sha", "batch_id"]
            found[sealed.key.table] = table.to_table(columns=columns)
    return {
        name: sorted(({k: v for k, v in row.items() if k not in _VARYING} for row in rows.to_pylist()), key=repr)
        for name, rows in found.items()
    }


def make(folder: Path) -> Contents:
    """The undisturbed store in this folder; returns its contents."""
    store = EmbeddingStore.open(folder, create=True)
    run(store, first=True)
    run(store)
    # each file has a time of its own, so that what is older is the same in every copy
    for number, path in enumerate(sorted(folder.rglob("*"), key=lambda path: path.stat().st_mtime_ns)):
        os.utime(path, (number, number))
    expect({check.state for check in verify(store)} == {"sound"}, f"not sound: {[*verify(store)]}")
    return contents(store)


def grow(folder: Path) -> Contents:
    """Another part of every analysis in the store in this folder; returns its contents."""
    store = EmbeddingStore.open(folder)
    for table in ANALYSES:
        store.write_rows(table, _analysis(table, 3))
    return contents(store)
