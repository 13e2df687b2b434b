"""Explains why a run made, or would make, each derivation: it is compared with the newest earlier one."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from capim.store import EmbeddingStore
from capim.store.ledger import OUTCOMES_KIND
from capim.store.schema import Batch, LedgerEntry, Result, Subject
from capim.tasks.derive import Derivation

NEW_INPUT = "new input"
STORED = "stored"  # the reason for which nothing was made
_SHOWN = 3  # differences in one cell
_VERSIONS = ("version", "statistics")  # keys of an identity that describe code


class Reason(NamedTuple):
    """Derivations of a kind, corpus and encoder that a run made, or found, for one reason: a row of `capim why`."""

    what: str
    corpus: str
    encoder: str
    reason: str
    n: int
    seconds: float | None
    detail: str


def reasons(store: EmbeddingStore, run: str) -> list[Reason]:
    """Return what the run encoded, derived, and found stored, with the reasons.

    Reasons are ``new input``, ``other setting`` and ``newer code``, several where several differ from the newest
    earlier entry of the same corpus, encoder and result; ``stored``: found, and not made again.
    """
    groups = defaultdict[tuple[str, str, str, str], list[tuple[int, float, list[str]]]](list)
    for row in store.all(Batch, run=run):
        detail = f"{row.modality}s that had no vectors"
        groups["embedding", row.corpus, row.encoder, NEW_INPUT].append((row.n_items, row.seconds, [detail]))
    used, earlier = store.keys_of(run), Earlier(store)
    for entry in earlier.entries:
        identity = json.loads(entry.identity)
        kind, corpus, encoder, _ = earlier.about(identity)
        if entry.run == run:
            found = earlier.differences(identity)
            reason = ", ".join(dict.fromkeys(name for name, _ in found))
            groups[kind, corpus, encoder, reason].append((1, entry.seconds, [detail for _, detail in found]))
        else:
            earlier.take(identity)
            if entry.key in used:
                groups[kind, corpus, encoder, STORED].append((1, 0.0, []))
    rows = []
    for names, group in groups.items():
        details = [*dict.fromkeys(detail for *_, of_one in group for detail in of_one)]
        more = f"; {len(details) - _SHOWN} more" if len(details) > _SHOWN else ""
        seconds = None if names[3] == STORED else sum(each for _, each, _ in group)
        rows.append(Reason(*names, sum(n for n, *_ in group), seconds, "; ".join(details[:_SHOWN]) + more))
    return rows


Identity: TypeAlias = Mapping[str, Any]
"""Identity of a derivation (``tasks.derive.Derivation.identity``)."""


class Earlier:
    """The latest earlier identity of each derivation, as far as it was read from the ledger.

    Attributes:
        entries: The ledger, oldest first, without outcomes.
    """

    def __init__(self, store: EmbeddingStore) -> None:
        results = store.all(Result)
        self._evaluations = {row.evaluation: (row.corpus, row.encoder) for row in results}
        self._corpora = {row.corpus_fingerprint: row.corpus for row in results}
        entries = [row for row in store.all(LedgerEntry) if row.kind != OUTCOMES_KIND]
        self.entries = sorted(entries, key=lambda entry: entry.created)
        self._newest: dict[tuple[str, ...], Identity] = {}

    def take(self, identity: Identity) -> None:
        """Note what a thing was made of."""
        self._newest[self.about(identity)] = identity

    def about(self, identity: Identity) -> tuple[str, str, str, str]:
        """Return kind, corpus and encoder by name, and the result: the protocol, metric or analysis."""
        kind, subject = identity["kind"], Subject.of(identity)
        first = next(iter(identity["inputs"]), "").partition(" ")[0]
        corpus, encoder = self._evaluations.get(first, ("", "")) if subject.corpus is None else ("", "")
        if subject.corpus is not None:
            corpus = self._corpora.get(subject.corpus, subject.corpus)
        of_encoder = encoder if kind in ("result", "replicates") else ""
        encoder = of_encoder if subject.encoder is None else subject.encoder
        figure = ", ".join(filter(None, (subject.analysis, subject.facts, subject.metric, subject.protocol)))
        return kind, corpus, encoder, figure

    def differences(self, now: Identity) -> list[tuple[str, str]]:
        """Return reason and detail of each difference from what the same thing was made of the last time."""
        kind, corpus, encoder, figure = about = self.about(now)
        then = self._newest.get(about)
        if then is None:
            of = (encoder and f"by {encoder}", corpus and f"on {corpus}")
            return [(NEW_INPUT, " ".join(filter(None, ("the first", kind, *of))))]
        found = []
        if then["inputs"] != now["inputs"]:
            details = [*_input_differences(then["inputs"], now["inputs"], figure)]
            found += [(NEW_INPUT, detail) for detail in details or ["the same encoders in another order"]]
        for name in sorted({*then["settings"], *now["settings"]}):
            old, new = (_shown(each["settings"].get(name)) for each in (then, now))
            if old != new:
                found.append(("other setting", f"{name}: {old} -> {new}"))
        code = name_in(Subject.of(now)) or kind
        for name in _VERSIONS:
            if then[name] != now[name]:
                found.append(("newer code", f"{code if name == 'version' else name}: {then[name]} -> {now[name]}"))
        return found

    def why(self, todo: Iterable[Derivation]) -> str:
        """Return the reasons for which these are to be made, without details."""
        found = (self.differences(json.loads(each.identity)) for each in todo)
        return ", ".join(dict.fromkeys(reason for differences in found for reason, _ in differences))


def name_in(subject: Subject) -> str:
    """Return the name of the metric or analysis in the subject of a derivation; empty if it has none."""
    return subject.metric or subject.analysis or ""


def _input_differences(before: Iterable[str], after: Iterable[str], figure: str) -> Iterator[str]:
    """Yield the differences between two lists of inputs: encoders with their evaluations, or other inputs."""
    old, new = _by_encoder(before), _by_encoder(after)
    for encoder in dict.fromkeys([*old, *new]):
        if encoder not in old or encoder not in new:
            yield f"{encoder} is {'new' if encoder in new else 'left out'}"
        elif old[encoder] != new[encoder]:
            gone = [each for each in old[encoder] if each not in new[encoder]]
            come = [each for each in new[encoder] if each not in old[encoder]]
            change = f"{', '.join(gone) or 'none'} -> {', '.join(come) or 'none'}"
            yield f"{encoder}: {change}" if encoder else f"{figure}: {change}"


def _by_encoder(inputs: Iterable[str]) -> dict[str, list[str]]:
    """Return name of an encoder (empty: the input names none) -> its inputs, each as ``fingerprint evaluation``."""
    found = defaultdict[str, list[str]](list)
    for each in inputs:
        name, at, rest = each.rpartition("@")
        found[name].append(rest if at else each)
    return found


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
