"""Which of several stored rows are current: what reports, exports, comparisons, `capim prune` and `capim query` show.

A name of a corpus or an encoder means one state of it, that of its newest result; of several rows that are shown for
the same (``StoredTable.shown_for``), the newest is current. A row is as new as the last run that used it, whether that
run made it or found it. Rows made with the usual settings come before all others, so that a run with settings of its
own changes nothing that is shown elsewhere. Equal times are decided by run, so that the choice never depends on the
order of storage.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from capim.store.schema import TABLES

Row: TypeAlias = Mapping[str, Any]
_ANALYSIS = ("encoder", "corpus", "protocol", "analysis", "metric")  # of slices that one derivation makes together
FIGURE_OF_STATES = ("corpus", "protocol", "metric", "encoder", "encoder_fingerprint", "corpus_fingerprint")
_ENCODERS = (("encoder", "encoder_fingerprint"), ("encoder_a", "fingerprint_a"), ("encoder_b", "fingerprint_b"))


class Use(NamedTuple):
    """Of what is derived: whether it was made with the usual settings, and when the last run began that used it.

    While no run that used it has ended, the time when it was made stands instead.
    """

    usual: bool
    last: datetime


Uses: TypeAlias = Mapping[str | None, Use]
"""Key of a derivation -> its use; of rows whose key is none of these, the time of the row counts."""
NO_USES: Uses = {}


def runs_with_keys(runs: Iterable[Row]) -> list[Row]:
    """Rows of ``runs``, oldest first, each with the keys that it used also where an earlier row has them."""
    ordered = sorted(runs, key=lambda row: row["started"])
    keys = {row["run"]: row["uses"] or () for row in ordered}
    return [{**row, "uses": keys.get(row["same_as"] or row["run"], ())} for row in ordered]


def uses_of(derived: Iterable[Row], runs: Iterable[Row]) -> Uses:
    """The uses of what is derived, from rows of the table ``derived`` and runs with their keys."""
    last: dict[str, datetime] = {key: row["started"] for row in runs for key in row["uses"]}
    return {row["key"]: Use(row["usual"], last.get(row["key"]) or row["created"]) for row in derived}


@dataclass(frozen=True, kw_only=True)
class States:
    """What names mean.

    Attributes:
        corpora: Name -> fingerprint of the state with the newest result.
        encoders: The same, by results on these states of the corpora.
        named: Fingerprints of other states that are meant as well, because somebody asked for them.
    """

    corpora: Mapping[str, str]
    encoders: Mapping[str, str]
    named: Collection[str] = ()

    @classmethod
    def of(cls, results: Iterable[Row], uses: Uses = NO_USES, named: Collection[str] = ()) -> States:
        """The states in rows of ``schema.RESULTS``."""
        ordered = sorted(results, key=lambda row: age(row, uses)[1:])
        corpora = {row["corpus"]: row["corpus_fingerprint"] for row in ordered}
        meant = {*corpora.values(), *named}
        encoders = {row["encoder"]: row["encoder_fingerprint"] for row in ordered if row["corpus_fingerprint"] in meant}
        return cls(corpora=corpora, encoders=encoders, named=named)

    @staticmethod
    def asked(rows: Iterable[Row], named: Collection[object]) -> list[Row]:
        """The rows without other states of what some fingerprints name; all where none is named."""
        found = list(rows)
        for name, state in (("corpus", "corpus_fingerprint"), ("encoder", "encoder_fingerprint")):
            asked = {row[name] for row in found if row[state] in named}
            found = [row for row in found if row[name] not in asked or row[state] in named]
        return found

    def has(self, row: Row) -> bool:
        """Whether a row of any table is about these states; of a ranking, whether all of its corpora are."""
        encoders = ((row[name], row[column]) for name, column in _ENCODERS if name in row)
        of_encoders = all(state in self.named or self.encoders.get(name) == state for name, state in encoders)
        if "corpora" in row:
            ranked = json.loads(row["corpora"])
            return of_encoders and all(self.corpora.get(each["corpus"]) == each["fingerprint"] for each in ranked)
        corpus = self.corpora.get(row["corpus"])
        return of_encoders and corpus is not None and row.get("corpus_fingerprint", corpus) in (corpus, *self.named)


def behind(results: Collection[Row], states: States) -> list[str]:
    """One sentence for each corpus with encoders that were evaluated on another state of it only; says what to type."""
    left = {(row["corpus"], row["encoder"]) for row in results if row["corpus"] in states.corpora}
    left -= {(row["corpus"], row["encoder"]) for row in results if states.has(row)}
    return [
        f"{names}: results on another state of {corpus} only; on {states.corpora[corpus]}, the one shown, by `capim run"
        f" --corpora {corpus} --encoders {names}`, or by `capim import` of embeddings made elsewhere."
        for corpus in sorted({corpus for corpus, _ in left})
        for names in [",".join(sorted(name for of, name in left if of == corpus))]
    ]


def newest_rows(rows: Iterable[Row], table: str, by: Sequence[str] | None = None, uses: Uses = NO_USES) -> list[Row]:
    """Of several rows of a table with the same values of ``by``, by default what they are shown for, the newest.

    Ordered by these values. Of an analysis of an encoder, only the rows that were made together.
    """
    columns = TABLES[table].shown_for if by is None else by
    if columns is None:
        return list(rows)
    ordered = sorted(rows, key=lambda row: age(row, uses))
    if table == "slices":
        newest_key = {tuple(row[name] for name in _ANALYSIS): row["derived"] for row in ordered if row.get("derived")}
        ordered = [r for r in ordered if newest_key.get(tuple(r[n] for n in _ANALYSIS)) in (None, r.get("derived"))]
    newest = {tuple(row[name] for name in columns): row for row in ordered}
    return [newest[values] for values in sorted(newest)]


def is_outdated(results: Iterable[Row], uses: Uses = NO_USES) -> Callable[[Row], bool]:
    """Tells whether a row is by another version of the metric than the newest result of its figure.

    Of a figure (corpus, protocol and metric) that has no result, every comparison is.
    """
    newest = sorted(results, key=lambda row: age(row, uses))
    versions = {_figure(row): row["metric_version"] for row in newest}

    def outdated(row: Row) -> bool:
        version = row["metric_version"]
        if "slice" in row:
            return version is not None and versions.get(_figure(row), version) != version
        return bool(versions.get(_figure(row)) != version)

    return outdated


def current_rows(
    table: str, rows: Iterable[Row], results: Sequence[Row], states: States, uses: Uses = NO_USES
) -> list[Row]:
    """The current ones among rows of a table.

    Args:
        table: A name of ``schema.TABLES``.
        rows: Of this table.
        results: The current results, for comparisons and slices.
        states: What names mean.
        uses: What runs used (``EmbeddingStore.uses``).
    """
    if table == "rankings":
        return current_ranking(rows, states, uses)
    if table == "slices":
        outdated = is_outdated(results, uses)
        return newest_rows((row for row in rows if states.has(row) and not outdated(row)), table, uses=uses)
    if table == "comparisons":
        families = current_families(rows, results, states, uses).values()
        return [row for _, of_current_states in families for row in of_current_states]
    if table != "results":
        return newest_rows(filter(states.has, rows), table, uses=uses)
    found = newest_rows(filter(states.has, rows), table, FIGURE_OF_STATES, uses)
    outdated = is_outdated(found, uses)
    return [row for row in found if not outdated(row)]


def current_families(
    rows: Iterable[Row], results: Iterable[Row], states: States, uses: Uses = NO_USES
) -> dict[tuple[str, str, str], tuple[list[Row], list[Row]]]:
    """Corpus, protocol and metric -> all comparisons of one request, and those of them of current states, by encoder.

    Of the requests that compared encoders by a figure, with the newest version of the statistics, the one with most
    pairs of current states counts; of these the one with fewest encoders that have no result among ``results``, the
    current ones; then the newest. So a request for some encoders takes no pair out of the comparison of all.
    """
    outdated, shown = is_outdated(results, uses), defaultdict(set)
    for row in results:
        shown[_figure(row)].add(row["encoder"])
    figures = _grouped((row for row in rows if not outdated(row)), _figure)
    found = {}
    for figure in sorted(figures):
        families = _grouped(figures[figure], lambda row: row.get("derived") or row["run"])
        fitting = {key: list(filter(states.has, family)) for key, family in families.items()}

        ranks = {
            key: (
                max(row["statistics_version"] for row in family),
                len(fitting[key]),
                -len(compared_encoders(family) - shown[figure]),
                max(age(row, uses) for row in family),
                key,
            )
            for key, family in families.items()
        }
        best = max(ranks, key=lambda key: ranks[key])
        found[figure] = families[best], sorted(fitting[best], key=lambda row: (row["encoder_a"], row["encoder_b"]))
    return found


def compared_encoders(comparisons: Iterable[Row]) -> set[str]:
    """The names of the encoders in some comparisons."""
    return {row[side] for row in comparisons for side in ("encoder_a", "encoder_b")}


def current_ranking(rows: Iterable[Row], states: States, uses: Uses = NO_USES) -> list[Row]:
    """The rows of the ranking of most encoders and corpora, then the newest, of those that are of these states.

    What is not ranked because it is at chance counts: without it, a ranking by older code would be larger.
    """

    def rank(group: list[Row]) -> tuple[Any, ...]:
        first, corpora = group[0], json.loads(group[0]["corpora"])
        weak = sum(row["value"] is None and len(json.loads(row["headlines"])) == first["n_corpora"] for row in group)
        size = (first["n_encoders"] + weak) * (first["n_corpora"] + len(corpora[0].get("not_counted", ())))
        return size, len({row["encoder"] for row in group}), age(first, uses), first["ranking"]

    groups = _grouped(rows, lambda row: row["ranking"]).values()
    chosen: list[Row] = max((group for group in groups if all(map(states.has, group))), key=rank, default=[])
    return sorted(chosen, key=lambda row: (row["estimand"], row["encoder"]))


def _grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def _figure(row: Row) -> tuple[str, str, str]:
    return row["corpus"], row["protocol"], row["metric"]


def age(row: Row, uses: Uses) -> tuple[bool, datetime, datetime, str]:
    """What rows are compared by, the current one last: usual settings, time of the last use, its own time, run."""
    if "written" in row:
        return True, row["written"], row["written"], ""
    usual, last = uses.get(row.get("derived")) or Use(usual=False, last=row["created"])
    return usual, last, row["created"], row["run"]
