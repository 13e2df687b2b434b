"""A workspace: the folder or URI that holds ``store/`` and ``reports/``; and the names of what its store has."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from capim.flows.config import run_config
from capim.flows.terminal.output import RESULT_COLUMNS, Row, folded, show_rows
from capim.flows.terminal.parser import PLURALS, Commands, declare, names
from capim.store.errors import RequestError, did_you_mean, plain, without_credentials
from capim.store.keys import is_fingerprint
from capim.store.schema import texts

if TYPE_CHECKING:
    import pyarrow as pa

    from capim.store import EmbeddingStore
    from capim.tasks.corpora.naming import Row
    from capim.tasks.runtime.references import RankingRef


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


# --- `results`, and the ranking that `compare` prints: stored rows on standard output.


LIKE_THESE = "corpora like these"


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Add the command that prints results."""
    parser = declare(commands, common, "results", results, rows=True)
    for (name, several), metavar in zip(PLURALS.items(), ("X,Y", "A,B", "P,Q", "M,N"), strict=True):
        parser.add_argument(f"--{name}", type=names, metavar=metavar, help=f"only these {several} (or shell patterns)")
    parser.add_argument("--against", choices=("published",), help="compare with published figures")


def results(args: argparse.Namespace) -> int:
    """Print stored results: one row per encoder, corpus, protocol and metric.

    The table shows the main columns; --format json and csv print all of them, among them the interval method, seed,
    replicates and sealed embedding sets of every figure.

    With --against published, print how each figure compares with the published one instead: reproduced, other
    protocol, suspect, not compared (a sample of the published data set), or no reference.
    Exit code 1 if there are no rows.

    Example: capim results --corpus shapes --protocol t2i/all --metric R@1 --format json
    """
    names = {name: getattr(args, name) for name in PLURALS}
    rows, why = found_results(open_store(args.workspace), against=args.against, **names)
    return show_rows(args, rows, columns=None if args.against else RESULT_COLUMNS, none=why)


def print_ranking(args: argparse.Namespace, store_uri: str, reference: RankingRef) -> None:
    """Print the ranking: one line per encoder as a table, the stored rows as JSON or CSV.

    What the headlines are and which encoders are left out follows on standard error; also why there is no ranking.
    """
    from capim.store import EmbeddingStore

    rows: list[dict[str, Any]] = []
    if reference.ranking:
        rows = EmbeddingStore.open(store_uri).rows("rankings", ranking=reference.ranking).to_pylist()
    as_table = args.format in (None, "table")
    if rows or not as_table:
        show_rows(args, _lines(rows) if as_table else rows, keep=("ranks", "encoder"), none=lambda: reference.reason)
    if as_table:
        for line in _words(rows) if rows else [reference.reason] * bool(reference.reason):
            sys.stderr.writelines(f"{part}\n" for part in folded(plain(line), sys.stderr))


def _words(rows: Sequence[Row]) -> list[str]:
    """What the columns are, and what is not in the table."""
    from capim.reports.rows.standing import same_photographs

    first, level = rows[0], f"{100 * rows[0]['level']:g} %"
    described = "; ".join(f"{corpus['corpus']} ({corpus['headline']})" for corpus in json.loads(first["corpora"]))
    like_these = {row["reason"] for row in rows if row["estimand"] == LIKE_THESE and row["rank_low"] is None}
    return [
        f"macro_mean: mean over {described}; low, high: its {level} interval",
        "borda: share of the other encoders that it is above, mean over the corpora",
        f"ranks: those that it can hold, for all encoders together with {level} confidence; 1: tied with the best",
        *same_photographs(json.loads(first["corpora"])),
        *(f"{LIKE_THESE}: {reason}" for reason in sorted(like_these)),
        *(f"{row['encoder']}: {row['reason']}" for row in rows if row["value"] is None),
    ]


def _lines(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One row per ranked encoder, the best macro mean first."""
    found = {(row["encoder_fingerprint"], row["estimand"], row["statistic"]): row for row in rows}
    means = [row for row in rows if (row["estimand"], row["statistic"]) == ("these corpora", "macro mean")]
    lines = []
    for row in sorted((row for row in means if row["value"] is not None), key=lambda r: (-r["value"], r["encoder"])):
        borda = found[row["encoder_fingerprint"], "these corpora", "borda"]
        like_these = found[row["encoder_fingerprint"], LIKE_THESE, "macro mean"]
        tested = {"ranks_like_these": _ranks(like_these)} if like_these["rank_low"] else {}
        lines.append(
            {
                "ranks": _ranks(row),
                **tested,
                "encoder": row["encoder"],
                "macro_mean": row["value"],
                "low": row["ci_low"],
                "high": row["ci_high"],
                "borda": borda["value"],
                **json.loads(row["headlines"]),
            }
        )
    return lines


def _ranks(row: Row) -> str:
    low, high = row["rank_low"], row["rank_high"]
    return f"{low}" if low == high else f"{low}–{high}"
