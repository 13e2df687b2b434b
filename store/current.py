"""Which of several stored rows are current: what reports, exports, comparisons, `capim prune` and `capim query` show.

A name of a corpus or an encoder means one state of it, that of its newest result; of several rows that are shown for
the same (``StoredTable.shown_for``), the newest is current. Equal times are decided by run, so that the choice never
depends on the order of storage.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from capim.store.schema import TABLES

Row: TypeAlias = Mapping[str, Any]
_ENCODERS = (("encoder", "encoder_fingerprint"), ("encoder_a", "fingerprint_a"), ("encoder_b", "fingerprint_b"))


@dataclass(frozen=True, kw_only=True)
class States:
    """What names mean.

    Attributes:
        corpora: Name -> fingerprint of the state with the newest result.
        encoders: The same, by results on these states of the corpora.
    """

    corpora: Mapping[str, str]
    encoders: Mapping[str, str]

    @classmethod
    def of(cls, results: Iterable[Row], stored: Collection[str] | None = None) -> States:
        """The states in rows of ``schema.RESULTS``; only on corpora with a fingerprint in ``stored``, if given."""
        ordered = sorted((row for row in results if stored is None or row["corpus_fingerprint"] in stored), key=_age)
        corpora = {row["corpus"]: row["corpus_fingerprint"] for row in ordered}
        here = (row for row in ordered if corpora[row["corpus"]] == row["corpus_fingerprint"])
        return cls(corpora=corpora, encoders={row["encoder"]: row["encoder_fingerprint"] for row in here})

    def has(self, row: Row) -> bool:
        """Whether a row of any table is about these states; of a ranking, whether all of its corpora are."""
        of_encoders = all(self.encoders.get(row[name]) == row[column] for name, column in _ENCODERS if name in row)
        if "corpora" in row:
            ranked = json.loads(row["corpora"])
            return of_encoders and all(self.corpora.get(each["corpus"]) == each["fingerprint"] for each in ranked)
        corpus = self.corpora.get(row["corpus"])
        return of_encoders and corpus is not None and row.get("corpus_fingerprint", corpus) == corpus


def newest_rows(rows: Iterable[Row], table: str, by: Sequence[str] | None = None) -> list[Row]:
    """Of several rows of a table with the same values of ``by``, by default what they are shown for, the newest.

    Ordered by these values.
    """
    columns = TABLES[table].shown_for if by is None else by
    if columns is None:
        return list(rows)
    newest = {tuple(row[name] for name in columns): row for row in sorted(rows, key=_age)}
    return [newest[values] for values in sorted(newest)]


def is_outdated(results: Iterable[Row]) -> Callable[[Row], bool]:
    """Tells whether a row of results or comparisons is by another version of the metric than its newest result.

    Of a figure (corpus, protocol and metric) that has no result, every row is.
    """
    versions = {_figure(row): row["metric_version"] for row in sorted(results, key=_age)}
    return lambda row: row["metric_version"] != versions.get(_figure(row))


def current_rows(table: str, rows: Iterable[Row], results: Sequence[Row], states: States) -> list[Row]:
    """The current ones among rows of a table.

    Args:
        table: A name of ``schema.TABLES``.
        rows: Of this table.
        results: The current results, for comparisons.
        states: What names mean. Watches are of all states.
    """
    if table == "watched":
        return newest_rows(rows, table)
    if table == "rankings":
        return current_ranking(rows, states)
    if table == "comparisons":
        families = current_families(rows, results, states).values()
        return [row for _, of_current_states in families for row in of_current_states]
    found = newest_rows(filter(states.has, rows), table)
    if table != "results":
        return found
    outdated = is_outdated(found)
    return [row for row in found if not outdated(row)]


def current_families(
    rows: Iterable[Row], results: Iterable[Row], states: States
) -> dict[tuple[str, str, str], tuple[list[Row], list[Row]]]:
    """Corpus, protocol and metric -> all comparisons of one request, and those of them of current states, by encoder.

    Of the runs that compared encoders by a figure, the one with most pairs of current states counts; of these the one
    with fewest encoders that have no result among ``results``, the current ones; then the newest. So a request for some
    encoders takes no pair out of the comparison of all.
    """
    outdated, shown = is_outdated(results), defaultdict(set)
    for row in results:
        shown[_figure(row)].add(row["encoder"])
    figures = _grouped((row for row in rows if not outdated(row)), _figure)
    found = {}
    for figure in sorted(figures):
        families = _grouped(figures[figure], lambda row: row["run"])
        fitting = {run: list(filter(states.has, of_run)) for run, of_run in families.items()}
        others = {run: len(compared_encoders(of_run) - shown[figure]) for run, of_run in families.items()}
        newest = {run: max(row["created"] for row in of_run) for run, of_run in families.items()}
        best = max(families, key=lambda run: (len(fitting[run]), -others[run], newest[run], run))
        found[figure] = families[best], sorted(fitting[best], key=lambda row: (row["encoder_a"], row["encoder_b"]))
    return found


def compared_encoders(comparisons: Iterable[Row]) -> set[str]:
    """The names of the encoders in some comparisons."""
    return {row[side] for row in comparisons for side in ("encoder_a", "encoder_b")}


def current_ranking(rows: Iterable[Row], states: States) -> list[Row]:
    """The rows of the ranking of most encoders and corpora, then the newest, of those that are of these states."""

    def rank(group: list[Row]) -> tuple[Any, ...]:
        first = group[0]
        return first["n_encoders"] * first["n_corpora"], len(group), first["created"], first["ranking"]

    groups = _grouped(rows, lambda row: row["ranking"]).values()
    chosen: list[Row] = max((group for group in groups if all(map(states.has, group))), key=rank, default=[])
    return sorted(chosen, key=lambda row: (row["estimand"], row["statistic"], row["encoder"]))


def _grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def _figure(row: Row) -> tuple[str, str, str]:
    return row["corpus"], row["protocol"], row["metric"]


def _age(row: Row) -> tuple[Any, str]:
    return (row["written"], "") if "written" in row else (row["created"], row["run"])
