"""A workspace: the folder or URI that holds ``store/`` and ``reports/``; and the names of what its store has."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from capim.flows.config import run_config
from capim.store.errors import RequestError, did_you_mean, without_credentials
from capim.store.keys import is_fingerprint
from capim.store.schema import texts

if TYPE_CHECKING:
    import pyarrow as pa

    from capim.store import EmbeddingStore
    from capim.tasks.corpora.naming import Row

_SHOWN = 12  # names in one line


def open_store(workspace: str | None) -> EmbeddingStore:
    """The store of a workspace (None: the default one), for reading.

    Raises:
        RequestError: There is no store; says how to make one.
    """
    from capim.store import EmbeddingStore

    return EmbeddingStore.open(run_config({"workspace": workspace}).store_uri)


def corpus_in(store: EmbeddingStore, what: str) -> Row:
    """The row of the stored corpus that a name, a fingerprint or a path means.

    Raises:
        RequestError: There is none, with the nearest name.
    """
    from capim.tasks.corpora.naming import stored_corpus

    return stored_corpus(what, store.corpora().to_pylist(), uri=store.uri)


def wanted_rows(
    store: EmbeddingStore,
    table: str,
    *,
    encoder: Sequence[str] | None = None,
    corpus: Sequence[str] | None = None,
    protocol: Sequence[str] | None = None,
    metric: Sequence[str] | None = None,
) -> dict[str, list[str]]:
    """What ``EmbeddingStore.rows`` takes for the rows of these names, shell patterns, fingerprints or paths of corpora.

    Raises:
        RequestError: A name that no row has, with the nearest one that some row has.
    """
    from capim.store.query.names import names_with_rows

    given = {"encoder": encoder, "corpus": corpus, "protocol": protocol, "metric": metric}
    wanted = {column: list(names) for column, names in given.items() if names}
    for column in ("encoder", "corpus"):
        names = wanted.get(column, [])
        fingerprints = [name for name in names if is_fingerprint(name)]
        if fingerprints and len(fingerprints) < len(names):
            raise RequestError(f"--{column}: give names or fingerprints, not both; got {', '.join(names)}")
        if fingerprints:
            wanted[f"{column}_fingerprint"] = wanted.pop(column)
    if "corpus" in wanted:
        dropped = {*store.counts(table, "corpus")} - {*store.corpora()["name"].to_pylist()}
        wanted["corpus"] = [
            name if name in dropped or "*" in name else str(corpus_in(store, name)["name"]) for name in wanted["corpus"]
        ]
    return names_with_rows(store, table, wanted)


def in_order(results: pa.Table) -> pa.Table:
    """Results by corpus, protocol and metric, the best value first."""
    import pyarrow.compute as pc

    value = results["value"]
    places = pc.if_else(results["lower_is_better"], value, pc.negate(value))
    order: list[tuple[str, Literal["ascending", "descending"]]]
    order = [("corpus", "ascending"), ("protocol", "ascending"), ("metric", "ascending"), ("place", "ascending")]
    return results.append_column("place", places).sort_by(order).drop_columns("place")


def against_published(slices: pa.Table) -> list[dict[str, Any]]:
    """Results compared with published figures, suspect ones first."""
    rows = []
    for row in slices.to_pylist():
        published = json.loads(row["detail"]) if row["detail"] else {}
        shown = {name: row[name] for name in ("encoder", "corpus", "protocol", "metric", "value")}
        verdict = {"published": published.get("published"), "verdict": row["level_name"], "remark": row["reason"]}
        rows.append({**shown, **verdict, "source": published.get("source")})
    return sorted(rows, key=lambda row: (row["verdict"] != "suspect", row["corpus"], row["protocol"], row["encoder"]))


def found_results(
    store: EmbeddingStore, *, against: str | None = None, **names: Sequence[str] | None
) -> tuple[list[dict[str, Any]], Callable[[], str]]:
    """The stored results of these names, as :func:`wanted_rows` takes them, in order; and why there are none.

    ``against``: ``published`` gives how each figure compares with the published one instead.

    Raises:
        RequestError: A name that no row has, with the nearest one that some row has.
    """
    wanted = wanted_rows(store, "results", **names)
    if against:
        slices = {"analysis": ["reference"], **wanted}
        return against_published(store.rows("slices", **slices)), lambda: no_rows(store, "slices", slices)
    return in_order(store.rows("results", **wanted)).to_pylist(), lambda: no_rows(store, "results", wanted)


def no_rows(store: EmbeddingStore, table: str, wanted: Mapping[str, Sequence[str]]) -> str:
    """Why no row of a table has all of the wanted names: for each column, the names that go with the others."""
    lines = []
    for column in wanted:
        others = {name: list(names) for name, names in wanted.items() if name != column}
        found = sorted({*texts(store.rows(table, **others)[column].drop_null())})
        shown = ", ".join(found[:_SHOWN]) + (" …" if len(found) > _SHOWN else "")
        if found:
            lines.append(f"\n  - instead of {column} {', '.join(wanted[column])}: {shown}")
    if not lines:
        return f"no rows: {without_credentials(store.uri)} has none of this kind; run `capim run` first"
    return f"no rows have all of these{''.join(lines)}"


def unknown_texts(store: EmbeddingStore, statement: str) -> str:
    """Why a statement may have no rows: its texts that nothing in the store is called, each with the nearest name."""
    known = {*texts(store.encoders()["name"]), *texts(store.corpora()["name"])}
    known |= {
        name for column in ("encoder", "corpus", "protocol", "metric") for name in store.counts("results", column)
    }
    given = dict.fromkeys(re.findall(r"'((?:[^']|'')+)'", statement))
    hints = {text: did_you_mean(text, known) for text in given if text not in known}
    return "no rows" + "".join(
        f"\n  - no name in the store is {text!r}; {hint.strip()}" for text, hint in hints.items() if hint
    )
