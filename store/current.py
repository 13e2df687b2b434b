"""The current rows among several stored ones, for reports, exports, comparisons, `capim prune` and `capim query`.

A name of a corpus or an encoder means one state of it, that of its newest result. Among several rows that are shown for
the same key (``StoredTable.shown_for``), the newest is current. A row is as new as the last run that used it, whether
that run made it or found it. Rows with the default settings come before all others, so that a run with other settings
does not change other reports. Equal times are decided by run, so that the choice never depends on the order of
storage.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias, TypeVar

from capim.store.schema import (
    BY_STATE,
    FIGURE,
    TABLES,
    Comparison,
    Encoder,
    LedgerEntry,
    OfStates,
    Ranking,
    Result,
    Run,
    Slice,
    StoredCorpus,
)
from capim.store.types import SetKey

R = TypeVar("R")
K = TypeVar("K")
S = TypeVar("S", bound=OfStates)
FIGURE_OF_STATES = (*FIGURE, *BY_STATE)


class Use(NamedTuple):
    """Use of a derivation: whether it has the default settings, and the start of the last run that used it.

    Until a run that used it has ended, the time when it was made is used instead.
    """

    usual: bool
    last: datetime


Uses: TypeAlias = Mapping[str | None, Use]
"""Key of a derivation -> its use; rows with other keys have the time of the row."""
NO_USES: Uses = {}


class KeysOfRun(NamedTuple):
    """The start of a run, and the keys of everything that it used."""

    run: str
    started: datetime
    keys: Sequence[str]


def keys_of_runs(runs: Iterable[Run]) -> list[KeysOfRun]:
    """Return the keys that each run used, oldest first, even if the row of an earlier run has them."""
    ordered = sorted(runs, key=lambda row: row.started)
    keys = {row.run: row.uses or () for row in ordered}
    return [KeysOfRun(row.run, row.started, keys.get(row.same_as or row.run, ())) for row in ordered]


def uses_of(derived: Iterable[LedgerEntry], runs: Iterable[KeysOfRun]) -> Uses:
    """Return the uses of derivations, from entries of the ledger and the keys that runs used."""
    last = {key: run.started for run in runs for key in run.keys}
    return {row.key: Use(row.usual, last.get(row.key) or row.created) for row in derived}


@dataclass(frozen=True, kw_only=True)
class States:
    """The states that names refer to.

    Attributes:
        corpora: Name -> fingerprint of the state with the newest result.
        encoders: The same for encoders, by results on these states of the corpora.
        named: Fingerprints of other states that are included because a request names them.
    """

    corpora: Mapping[str, str]
    encoders: Mapping[str, str]
    named: Collection[str] = ()

    @classmethod
    def of(cls, results: Iterable[Result], uses: Uses = NO_USES, named: Collection[str] = ()) -> States:
        """Return the states in some results."""
        ordered = sorted(results, key=lambda row: age(row, uses)[1:])
        corpora = {row.corpus: row.corpus_fingerprint for row in ordered}
        meant = {*corpora.values(), *named}
        encoders = {row.encoder: row.encoder_fingerprint for row in ordered if row.corpus_fingerprint in meant}
        return cls(corpora=corpora, encoders=encoders, named=named)

    @staticmethod
    def asked(rows: Iterable[S], named: Collection[object]) -> list[S]:
        """Return the rows without other states of the names with these fingerprints; all rows without fingerprints."""
        found = list(rows)
        meant = {row.corpus for row in found if row.corpus_fingerprint in named}
        found = [row for row in found if row.corpus not in meant or row.corpus_fingerprint in named]
        meant = {row.encoder for row in found if row.encoder_fingerprint in named}
        return [row for row in found if row.encoder not in meant or row.encoder_fingerprint in named]

    def has(self, row: OfStates | SetKey | Comparison | Ranking) -> bool:
        """True if a row is about these states; for a ranking, if all of its corpora are."""
        if isinstance(row, Ranking):
            ranked = json.loads(row.corpora)
            of_corpora = all(self.corpora.get(each["corpus"]) == each["fingerprint"] for each in ranked)
            return of_corpora and self.has_encoder(row.encoder, row.encoder_fingerprint)
        corpus = self.corpora.get(row.corpus)
        if corpus is None or row.corpus_fingerprint not in (corpus, *self.named):
            return False
        if isinstance(row, Comparison):
            of_a = self.has_encoder(row.encoder_a, row.fingerprint_a)
            return of_a and self.has_encoder(row.encoder_b, row.fingerprint_b)
        return self.has_encoder(row.encoder, row.encoder_fingerprint)

    def has_encoder(self, name: str, fingerprint: str) -> bool:
        """True if an encoder is in one of these states."""
        return fingerprint in self.named or self.encoders.get(name) == fingerprint


def behind(results: Collection[Result], states: States) -> list[str]:
    """Return a sentence for each corpus with encoders evaluated only on another state of it, with the next command."""
    left = {(row.corpus, row.encoder) for row in results if row.corpus in states.corpora}
    left -= {(row.corpus, row.encoder) for row in results if states.has(row)}
    return [
        f"{names}: results on another state of {corpus} only; on {states.corpora[corpus]}, the one shown, by `capim run"
        f" --corpora {corpus} --encoders {names}`, or by `capim import` of embeddings made elsewhere."
        for corpus in sorted({corpus for corpus, _ in left})
        for names in [",".join(sorted(name for of, name in left if of == corpus))]
    ]


def newest_rows(rows: Iterable[R], table: str, by: Sequence[str] | None = None, uses: Uses = NO_USES) -> list[R]:
    """Return the newest of several rows of a table with equal values of ``by``, by default the table's ``shown_for``.

    Ordered by these values. For an analysis of an encoder, only the rows that were made together.
    """
    columns = TABLES[table].shown_for if by is None else by
    if columns is None:
        return list(rows)
    ordered: list[Any] = sorted(rows, key=lambda row: age(row, uses))
    if table == "slices":
        newest_key = {_analysis(row): row.derived for row in ordered if row.derived}
        ordered = [row for row in ordered if newest_key.get(_analysis(row)) in (None, row.derived)]
    newest = {tuple(getattr(row, name) for name in columns): row for row in ordered}
    return [newest[values] for values in sorted(newest)]


def _analysis(row: Any) -> tuple[str, ...]:
    """Return the common key of slices that one derivation makes together."""
    return row.encoder, row.corpus, row.protocol, row.analysis, row.metric


def is_outdated(results: Iterable[Result], uses: Uses = NO_USES) -> Callable[[Result | Comparison | Slice], bool]:
    """Return a function that is True for a row by another version of the metric than the newest result for its key.

    Without such a result (of a corpus, protocol and metric), every comparison is outdated.
    """
    newest = sorted(results, key=lambda row: age(row, uses))
    versions = {figure_of(row): row.metric_version for row in newest}

    def outdated(row: Result | Comparison | Slice) -> bool:
        version = row.metric_version
        if isinstance(row, Slice):
            return version is not None and versions.get(figure_of(row), version) != version
        return versions.get(figure_of(row)) != version

    return outdated


def current_results(rows: Iterable[Result], states: States, uses: Uses = NO_USES) -> list[Result]:
    """Return the current results: the newest for each key, by the newest version of its metric."""
    found = newest_rows(filter(states.has, rows), "results", FIGURE_OF_STATES, uses)
    outdated = is_outdated(found, uses)
    return [row for row in found if not outdated(row)]


def current_rows(
    table: str, rows: Iterable[Any], results: Sequence[Result], states: States, uses: Uses = NO_USES
) -> list[Any]:
    """Return the current ones among rows of a table.

    Args:
        table: A name of ``schema.TABLES``.
        rows: Rows of this table.
        results: The current results, for comparisons and slices.
        states: The states that names refer to.
        uses: Uses of derivations by runs (``EmbeddingStore.uses``).
    """
    if table == "results":
        return current_results(rows, states, uses)
    if table == "rankings":
        return current_ranking(rows, states, uses)
    if table == "slices":
        outdated = is_outdated(results, uses)
        return newest_rows((row for row in rows if states.has(row) and not outdated(row)), table, uses=uses)
    if table == "comparisons":
        families = current_families(rows, results, states, uses).values()
        return [row for _, of_current_states in families for row in of_current_states]
    return newest_rows(filter(states.has, rows), table, uses=uses)


def current_families(
    rows: Iterable[Comparison], results: Iterable[Result], states: States, uses: Uses = NO_USES
) -> dict[tuple[str, str, str], tuple[list[Comparison], list[Comparison]]]:
    """Return for each corpus, protocol and metric all comparisons of one request, and those of current states.

    Among the requests that compared encoders by a metric, with the newest version of the statistics, the one with most
    pairs of current states counts; then the one with the fewest encoders that have no result among ``results``, the
    current ones; then the newest. So a request for some encoders removes no pair from the comparison of all.
    Comparisons of current states are in the order of their encoders.
    """
    outdated, shown = is_outdated(results, uses), defaultdict(set)
    for row in results:
        shown[figure_of(row)].add(row.encoder)
    figures = grouped((row for row in rows if not outdated(row)), figure_of)
    found = {}
    for figure in sorted(figures):
        families = grouped(figures[figure], lambda row: row.derived or row.run)
        fitting = {key: list(filter(states.has, family)) for key, family in families.items()}

        ranks = {
            key: (
                max(row.statistics_version for row in family),
                len(fitting[key]),
                -len(compared_encoders(family) - shown[figure]),
                max(age(row, uses) for row in family),
                key,
            )
            for key, family in families.items()
        }
        best = max(ranks, key=lambda key: ranks[key])
        found[figure] = families[best], sorted(fitting[best], key=lambda row: (row.encoder_a, row.encoder_b))
    return found


def compared_encoders(comparisons: Iterable[Comparison]) -> set[str]:
    """Return the names of the encoders in some comparisons."""
    return {name for row in comparisons for name in (row.encoder_a, row.encoder_b)}


def current_ranking(rows: Iterable[Ranking], states: States, uses: Uses = NO_USES) -> list[Ranking]:
    """Return the ranking of most encoders and corpora, then the newest, among those of these states.

    Corpora that were left out of the ranking at chance also count: otherwise a ranking by older code would be larger.
    """

    def rank(group: list[Ranking]) -> tuple[Any, ...]:
        first, corpora = group[0], json.loads(group[0].corpora)
        weak = sum(row.value is None and len(json.loads(row.headlines)) == first.n_corpora for row in group)
        size = (first.n_encoders + weak) * (first.n_corpora + len(corpora[0].get("not_counted", ())))
        return size, len({row.encoder for row in group}), age(first, uses), first.ranking

    groups = grouped(rows, lambda row: row.ranking).values()
    chosen: list[Ranking] = max((group for group in groups if all(map(states.has, group))), key=rank, default=[])
    return sorted(chosen, key=lambda row: (row.estimand, row.encoder))


def grouped(rows: Iterable[R], key: Callable[[R], K]) -> dict[K, list[R]]:
    """Return the rows by a key, each group in their order."""
    groups: dict[K, list[R]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def figure_of(row: Result | Comparison | Slice) -> tuple[str, str, str]:
    """Return the key of a row's result: its corpus, protocol and metric."""
    return row.corpus, row.protocol, row.metric


def age(row: Any, uses: Uses) -> tuple[bool, datetime, datetime, str]:
    """Return the sort key of rows, the current one last: default settings, time of the last use, its own time, run.

    The time of rows of registers is when they were written, that of others when they were made and last used.
    """
    if isinstance(row, Encoder | StoredCorpus):
        return True, row.written, row.written, ""
    usual, last = uses.get(getattr(row, "derived", None)) or Use(usual=False, last=row.created)
    return usual, last, row.created, row.run
