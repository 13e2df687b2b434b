"""What a store keeps of its history, for `capim store prune`: the newest runs, and all that reports show.

Kept are the results that a report shows (for every encoder, corpus, protocol and metric the newest, of the newest state
of the encoder and the corpus), all that the newest runs wrote, and the baselines of watches. Of the rest go: results,
outcomes, replicates, comparisons, slices and rankings; embedding sets of earlier states of an encoder or a corpus,
whose results all go; states of a corpus or an encoder without sets; thumbnails of images that are in no corpus any
more; records of older runs that no kept row names.

Runs go on meanwhile. All stays that belongs to what the names of encoders and corpora have meant since the oldest
running run began, outcomes without results even where no run is known to run: the next one goes on from them. Before
anything is removed, the plan is made again: what it does not name twice stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import pyarrow as pa

from capim.store.embedding_store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.keys import SET_PREFIXES, corpus_table
from capim.store.maintenance.inventory import stored_sets
from capim.store.schema import CORPUS_PARTS, OUTCOMES
from capim.store.tables.rows import delete, now, read

Row: TypeAlias = Mapping[str, Any]
_EVALUATED = ("outcomes", "replicates")
_LONGEST_RUN = timedelta(days=14)  # a run that began before has died on a host that no run was on since


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """What a store does not keep.

    Attributes:
        rows: Table -> the column that rows are chosen by, the values of what goes, and the number of rows.
        tables: Of embedding sets and corpora, whole.
        runs: Ids of all kept runs, oldest first; reports of other runs go too.
        running: Ids of those that have not ended, whose rows and what they may read stay.
        keep: How many of the newest runs are kept.
    """

    rows: Mapping[str, tuple[str, tuple[str, ...], int]]
    tables: tuple[str, ...]
    runs: tuple[str, ...]
    running: tuple[str, ...]
    keep: int


def plan_pruning(store: EmbeddingStore, *, keep: int) -> Pruning:
    """What :func:`prune` removes, if the newest ``keep`` runs are kept, at least one; changes nothing."""
    if keep < 1:
        raise RequestError(f"--keep {keep}: keep at least the newest run (--keep 1)")
    runs = store.rows("runs").to_pylist()
    running = [row for row in runs if row["state"] == "running" and row["started"] > now() - _LONGEST_RUN]
    since = min((row["started"] for row in running), default=now())
    newest = sorted({*sorted(row["run"] for row in runs)[-keep:], *(row["run"] for row in running)})
    described, described_corpora = store.encoders().to_pylist(), store.corpora().to_pylist()
    meant, current = _meant(described, since), _meant(described_corpora, since)

    def in_use(row: Row) -> bool:
        """Whether a run may be at work on it."""
        return row["encoder_fingerprint"] in meant and row["corpus_fingerprint"] in current

    watched = _newest(store.rows("watched").to_pylist(), ("encoder", "corpus", "protocol"))
    pinned = {row[name] for row in watched for name in ("evaluation", "baseline_evaluation")}
    every = store.rows("results").to_pylist()
    shown = {row["result"] for row in _shown(every)}
    kept = [
        row
        for row in every
        if row["result"] in shown or row["run"] in newest or row["evaluation"] in pinned or (running and in_use(row))
    ]
    finished = {row["evaluation"] for row in every}
    unfinished = {row["evaluation"] for row in _evaluations(store) if row["evaluation"] not in finished and in_use(row)}
    evaluations = {row["evaluation"] for row in kept} | pinned | unfinished
    pairs = {(row["encoder_fingerprint"], row["corpus_fingerprint"]) for row in kept}
    corpora = {corpus for _, corpus in pairs}

    def lives(row: Row) -> bool:
        """Whether a comparison or a slice is about kept results, or of a kept run."""
        sides = [row[name] for name in ("encoder_fingerprint", "fingerprint_a", "fingerprint_b") if name in row]
        return row["run"] in newest or all((side, row["corpus_fingerprint"]) in pairs for side in sides)

    def ranks(row: Row) -> bool:
        return row["run"] in newest or any(row["encoder_fingerprint"] == encoder for encoder, _ in pairs)

    rows = {}
    for table in _EVALUATED:  # before the results: what is left of both when this is killed goes the next time
        counted = store.counts(table, "evaluation")
        gone = tuple(sorted(counted.keys() - evaluations))
        rows[table] = ("evaluation", gone, sum(counted[each] for each in gone))
    rows["results"] = _left_out(every, "result", {row["result"] for row in kept})
    for table, key, stays in (
        ("comparisons", "comparison", lives),
        ("slices", "slice", lives),
        ("rankings", "ranking", ranks),
    ):
        rows[table] = _unless(stays, store.rows(table).to_pylist(), key)
    sets, left, encoders = _superseded_sets(
        store, {(r["encoder_fingerprint"], r["corpus_fingerprint"]) for r in every}, pairs
    )
    batches = store.rows("batches").to_pylist()
    rows["batches"] = _left_out(batches, "set_name", {row["set_name"] for row in batches} - {*sets})
    old = [row for row in described_corpora if row["fingerprint"] not in current | corpora | left]
    rows["corpora"] = ("fingerprint", tuple(row["fingerprint"] for row in old), len(old))
    if not running:  # a run writes the thumbnails of a corpus before the corpus
        rows["image_index"] = _vanished_images(store, [row for row in described_corpora if row not in old])
    used = meant | {encoder for encoder, _ in pairs} | encoders
    rows["encoders"] = _left_out(described, "fingerprint", used)
    named = {row["baseline"] for row in watched} | {row["run"] for row in kept}
    for table in ("comparisons", "slices", "rankings", "batches"):
        key, gone, _ = rows[table]
        named |= {row["run"] for row in store.rows(table).to_pylist() if row[key] not in gone}
    stay = {*newest, *named}
    rows["runs"] = _left_out(store.rows("runs").to_pylist(), "run", stay)
    rows["watched"] = _left_out(store.rows("watched").to_pylist(), "run", stay | {row["run"] for row in watched})
    names = {*store.connection.names()}
    parts = [corpus_table(part, row["name"], row["fingerprint"]) for row in old for part in CORPUS_PARTS]
    return Pruning(
        rows={table: found for table, found in rows.items() if found[2]},
        tables=(*sets, *(name for name in parts if name in names)),
        runs=tuple(newest),
        running=tuple(row["run"] for row in running),
        keep=keep,
    )


def prune(store: EmbeddingStore, plan: Pruning) -> Pruning:
    """Removes what a plan names, but for what is in use by now; returns what went.

    `capim store compact` then frees the space.
    """
    connection, plan = store.connection, _of_both(plan, plan_pruning(store, keep=plan.keep))
    delete(connection, "sets", "set_name", [name for name in plan.tables if name.startswith(SET_PREFIXES)])
    for table, (column, values, _) in plan.rows.items():
        delete(connection, table, column, values)
    for name in plan.tables:
        connection.drop(name)
    return plan


def _of_both(earlier: Pruning, later: Pruning) -> Pruning:
    """What goes by two plans; of rows that share a value, their number is that of the shorter plan."""
    rows = {}
    for table in earlier.rows.keys() & later.rows.keys():
        (column, values, n), (_, others, n_others) = earlier.rows[table], later.rows[table]
        if both := tuple(value for value in values if value in {*others}):
            rows[table] = (column, both, min(n, n_others))
    ordered = {table: rows[table] for table in earlier.rows if table in rows}
    return replace(later, rows=ordered, tables=tuple(name for name in earlier.tables if name in later.tables))


def _meant(rows: list[dict[str, Any]], since: datetime) -> set[str]:
    """The fingerprints of what each name has meant at any time since then."""
    before = _newest([row for row in rows if row["written"] <= since], ("name",), time="written")
    return {row["fingerprint"] for row in (*before, *(row for row in rows if row["written"] > since))}


def _evaluations(store: EmbeddingStore) -> list[dict[str, str]]:
    """The evaluations that have outcomes, and what they are of."""
    columns = ["evaluation", "encoder_fingerprint", "corpus_fingerprint"]
    rows = read(store.connection, "outcomes", pa.schema([OUTCOMES.field(name) for name in columns]))
    found: list[dict[str, str]] = rows.group_by(columns).aggregate([]).to_pylist()
    return found


def _shown(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results that a report shows: as ``reports.rows.reading`` chooses them."""
    corpus_of = {row["corpus"]: row["corpus_fingerprint"] for row in sorted(results, key=_age)}
    current = [row for row in results if corpus_of[row["corpus"]] == row["corpus_fingerprint"]]
    encoder_of = {row["encoder"]: row["encoder_fingerprint"] for row in sorted(current, key=_age)}
    current = [row for row in current if encoder_of[row["encoder"]] == row["encoder_fingerprint"]]
    return _newest(current, ("corpus", "protocol", "metric", "encoder"))


def _age(row: Row) -> tuple[object, str]:
    return row["created"], row["run"]


def _newest(rows: list[dict[str, Any]], key: tuple[str, ...], *, time: str = "created") -> list[dict[str, Any]]:
    """Of several rows with the same values of these columns the newest."""
    return [*{tuple(row[name] for name in key): row for row in sorted(rows, key=lambda row: row[time])}.values()]


def _left_out(rows: list[dict[str, Any]], key: str, kept: set[str]) -> tuple[str, tuple[str, ...], int]:
    return _unless(lambda row: row[key] in kept, rows, key)


def _unless(stays: Callable[[Row], bool], rows: list[dict[str, Any]], key: str) -> tuple[str, tuple[str, ...], int]:
    gone = [row[key] for row in rows if not stays(row)]
    return key, tuple(sorted({*gone})), len(gone)


def _vanished_images(store: EmbeddingStore, corpora: list[dict[str, Any]]) -> tuple[str, tuple[str, ...], int]:
    """Thumbnails of images that none of these corpora has; what cannot be decoded stays known."""
    index = store.connection.find("image_index")
    if index is None:
        return "sha", (), 0
    indexed = index.to_table(columns=["sha"], filter="thumbnail IS NOT NULL")["sha"].to_pylist()
    gone = {*indexed}.difference(*(store.items(row["fingerprint"], "image")["sha"].to_pylist() for row in corpora))
    return "sha", tuple(sorted(gone)), len(gone)


def _superseded_sets(
    store: EmbeddingStore, evaluated: set[tuple[str, str]], kept: set[tuple[str, str]]
) -> tuple[list[str], set[str], set[str]]:
    """Sets whose results all go, and the fingerprints of the corpora and of the encoders of the others."""
    keys = stored_sets(store)
    gone = [
        name
        for name, key in sorted(keys.items())
        if (key.encoder_fingerprint, key.corpus_fingerprint) in evaluated - kept
    ]
    left = [key for name, key in keys.items() if name not in gone]
    return gone, {key.corpus_fingerprint for key in left}, {key.encoder_fingerprint for key in left}
