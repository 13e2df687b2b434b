"""Makes ``tests/golden/store-format-N.tar.gz`` with the code at hand: once for each format, before its first release.

``PYTHONPATH=. python tests/store/make_golden.py`` writes the archive of ``schema.FORMAT`` unless it is there: a store
that was made by an older release is kept for ever, so that tests see whether this one still reads it.
"""

from __future__ import annotations

import importlib.util
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from store import EmbeddingStore, SurveyedImage
from store.schema import FORMAT, OUTCOMES, RESULTS, RUNS

HERE = Path(__file__).parent
TARGET = HERE.parent / "golden" / f"store-format-{FORMAT}.tar.gz"
MOMENT = datetime(2026, 11, 20, tzinfo=UTC)


def rows(schema: pa.Schema, **given: object) -> pa.Table:
    """One row; required columns that are not given hold "x", 1 or a fixed moment."""

    def filler(field: pa.Field) -> object:
        if pa.types.is_timestamp(field.type):
            return MOMENT
        return "x" if pa.types.is_string(field.type) else 1

    return pa.Table.from_pylist([{f.name: filler(f) for f in schema if not f.nullable} | given], schema=schema)


def fill(uri: Path) -> None:
    spec = importlib.util.spec_from_file_location("store_fixtures", HERE / "conftest.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    store = EmbeddingStore.open(uri, create=True)
    corpus = made._corpus(20)
    made._fill(store, corpus, made._spec(), step=20)
    made._fill(store, corpus, made._spec(name="late", vectors="multi"), step=20)
    begun = made._spec(name="begun", revision="r0")
    store.write_encoder(begun)
    store.put(made._key(corpus, begun, "caption"), begun, made._block(corpus, begun, range(12), "caption"))
    store.write_survey([SurveyedImage("a", 4, 3, b"jpeg", None)])
    store.write_rows("outcomes", rows(OUTCOMES, evaluation="old", query_id="q1"))
    store.write_rows("results", rows(RESULTS, result="old", value=0.5))
    store.write_rows("runs", rows(RUNS, run="old"))


if __name__ == "__main__":
    if TARGET.exists():
        sys.exit(f"{TARGET} is there and stays")
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder) / "store")
        with tarfile.open(TARGET, "w:gz") as archive:
            archive.add(Path(folder) / "store", arcname="store")
