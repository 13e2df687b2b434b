"""The current rows among several stored ones, for reports, exports, comparisons, `capim prune` and `capim query`.

A name of a corpus or an encoder means one state of it: of those with results, the one that was registered last under
the name, so that a run of an earlier revision does not change what the name means. Among several rows that are shown
for the same key (``StoredTable.shown_for``), the newest is current. A row is as new as the last run that used it,
whether that run made it or found it. Rows with the default settings come before all others, so that a run with other
settings does not change other reports. Equal times are decided by run, so that the choice never depends on the order of
storage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias, TypeVar

from capim.store.schema import (
    BY_STATE,
    FIGURE,
    TABLES,
    Comparison,
    Encoder,
    OfStates,
    Ranking,
    Result,
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
Registered: TypeAlias = Mapping[tuple[str, str], datetime]
"""Name and fingerprint of a corpus or an encoder -> when it was registered last; dropped ones are absent."""
_NEVER = datetime.min.replace(tzinfo=UTC)


class KeysOfRun(NamedTuple):
    """The start of a run, and the keys of everything that it used."""

    run: str
    started: datetime
    keys: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class States:
    """The states that names refer to.

    Attributes:
        corpora: Name -> fingerprint of the newest state with results.
        encoders: The same for encoders, by results on these states of the corpora.
        named: Fingerprints of other states that are included because a request names them.
        uses: Uses of derivations by runs (``EmbeddingStore.uses``), which decide which of several rows is newest.
    """

    corpora: Mapping[str, str]
    encoders: Mapping[str, str]
    named: Collection[str] = ()
    uses: Uses = field(default_factory=dict)

    @classmethod
    def of(cls, results: Iterable[Result], uses: Uses, named: Collection[str], registered: Registered) -> States:
        """Return the states in some results."""
        ordered = newest_states_last(results, uses, registered)
        corpora = {row.corpus: row.corpus_fingerprint for row in ordered}
        meant = {*corpora.values(), *named}
        ordered.sort(key=lambda row: registered.get((row.encoder, row.encoder_fingerprint), _NEVER))
        encoders = {row.encoder: row.encoder_fingerprint for row in ordered if row.corpus_fingerprint in meant}
        return cls(corpora=corpora, encoders=encoders, named=named, uses=uses)

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


def newest_states_last(results: Iterable[Result], uses: Uses, registered: Registered) -> list[Result]:
    """Return results by when their corpus was registered, then their encoder, then by the last run that used them."""

    def place(row: Result) -> tuple[object, ...]:
        states = (row.corpus, row.corpus_fingerprint), (row.encoder, row.encoder_fingerprint)
        return *(registered.get(state, _NEVER) for state in states), *age(row, uses)[1:]

    return sorted(results, key=place)


def behind(results: Collection[Result], states: States) -> list[str]:
    """Return sentences on encoders evaluated only on another state of a corpus, or there by another revision only.

    Each has the next command.
    """
    left = {(row.corpus, row.encoder) for row in results if row.corpus in states.corpora}
    left -= {(row.corpus, row.encoder) for row in results if states.has(row)}
    here = {(row.corpus, row.encoder) for row in results if row.corpus_fingerprint == states.corpora.get(row.corpus)}
    sentences = []
    for (corpus, by_revision), pairs in sorted(grouped(sorted(left), lambda pair: (pair[0], pair in here)).items()):
        names = ",".join(name for _, name in pairs)
        lacking = f"on another state of {corpus} only; on {states.corpora[corpus]}, the one shown,"
        if by_revision:
            lacking = f"on {corpus} by an earlier revision only; those of the newest"
        sentences.append(
            f"{names}: results {lacking} by `capim run --corpora {corpus} --encoders {names}`, or by `capim import` "
            "of embeddings made elsewhere."
        )
    return sentences


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


def is_outdated(results: Iterable[Result], uses: Uses) -> Callable[[Result | Comparison | Slice], bool]:
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


def current_results(rows: Iterable[Result], states: States) -> list[Result]:
    """Return the current results: the newest for each key, by the newest version of its metric."""
    found = newest_rows(filter(states.has, rows), "results", FIGURE_OF_STATES, states.uses)
    outdated = is_outdated(found, states.uses)
    return [row for row in found if not outdated(row)]


def current_rows(table: str, rows: Iterable[Any], results: Sequence[Result], states: States) -> list[Any]:
    """Return the current ones among rows of a table other than results.

    Args:
        table: A name of ``schema.TABLES``.
        rows: Rows of this table.
        results: The current results, for comparisons and slices.
        states: The states that names refer to.
    """
    if table == "rankings":
        return current_ranking(rows, states)
    if table == "slices":
        outdated = is_outdated(results, states.uses)
        rows = (row for row in rows if not outdated(row))
    if table == "comparisons":
        families = current_families(rows, results, states).values()
        return [row for _, of_current_states in families for row in of_current_states]
    return newest_rows(filter(states.has, rows), table, uses=states.uses)


def current_families(
    rows: Iterable[Comparison], results: Iterable[Result], states: States
) -> dict[tuple[str, str, str], tuple[list[Comparison], list[Comparison]]]:
    """Return for each corpus, protocol and metric all comparisons of one request, and those of current states.

    Among the requests that compared encoders by a metric, with the newest version of the statistics, the one with most
    pairs of current states counts; then the one with the fewest encoders that have no result among ``results``, the
    current ones; then the newest. So a request for some encoders removes no pair from the comparison of all.
    Comparisons of current states are in the order of their encoders.
    """
    outdated = is_outdated(results, states.uses)
    shown = {figure: {row.encoder for row in of_figure} for figure, of_figure in grouped(results, figure_of).items()}

    def rank(family: list[Comparison]) -> tuple[Any, ...]:
        first = family[0]
        return (
            max(row.statistics_version for row in family),
            sum(map(states.has, family)),
            -len(compared_encoders(family) - shown.get(figure_of(first), set())),
            max(age(row, states.uses) for row in family),
            first.derived or first.run,
        )

    found = {}
    for figure, of_figure in sorted(grouped((row for row in rows if not outdated(row)), figure_of).items()):
        best = max(grouped(of_figure, lambda row: row.derived or row.run).values(), key=rank)
        found[figure] = best, sorted(filter(states.has, best), key=lambda row: (row.encoder_a, row.encoder_b))
    return found


def compared_encoders(comparisons: Iterable[Comparison]) -> set[str]:
    """Return the names of the encoders in some comparisons."""
    return {name for row in comparisons for name in (row.encoder_a, row.encoder_b)}


def current_ranking(rows: Iterable[Ranking], states: States) -> list[Ranking]:
    """Return the ranking of most encoders and corpora, then the newest, among those of these states.

    Corpora that were left out of the ranking at chance also count: otherwise a ranking by older code would be larger.
    """

    def rank(group: list[Ranking]) -> tuple[Any, ...]:
        first, corpora = group[0], json.loads(group[0].corpora)
        weak = sum(row.value is None and len(json.loads(row.headlines)) == first.n_corpora for row in group)
        size = (first.n_encoders + weak) * (first.n_corpora + len(corpora[0].get("not_counted", ())))
        return size, len({row.encoder for row in group}), age(first, states.uses), first.ranking

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
