"""What a run made and why: each derivation of it beside the newest earlier one of the same thing, in the ledger."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from capim.store import EmbeddingStore
from capim.store.ledger import OUTCOMES_KIND
from capim.store.schema import Batch, Derived, Result

COLUMNS = ("what", "corpus", "encoder", "reason", "n", "seconds", "detail")
_SHOWN = 3  # differences in one cell
_VERSIONS = ("version", "statistics")  # of an identity: what it says of code


@dataclass(kw_only=True)
class _Group:
    """What was made, or found, of one kind, corpus and encoder for the same reason."""

    n: int = 0
    seconds: float | None = None
    details: dict[str, None] = field(default_factory=dict)  # a set in order

    def add(self, n: int, seconds: float | None, details: Iterable[str]) -> None:
        self.n += n
        self.seconds = self.seconds if seconds is None else (self.seconds or 0.0) + seconds
        self.details |= dict.fromkeys(details)

    @property
    def detail(self) -> str:
        details = list(self.details)
        more = f"; {len(details) - _SHOWN} more" if len(details) > _SHOWN else ""
        return "; ".join(details[:_SHOWN]) + more


def reasons(store: EmbeddingStore, run: str) -> list[dict[str, Any]]:
    """One row per kind, corpus, encoder and reason: what the run encoded, derived, and found stored.

    Reasons are ``new input``, ``other setting`` and ``newer code``, several where several differ from the newest
    earlier entry of the same corpus, encoder and figure; ``stored``: found, and not made again.
    """
    entries = _entries(store)
    groups = defaultdict[tuple[str, str, str, str], _Group](_Group)
    batches = store.all(Batch, run=run)
    for row in batches:
        group = groups["embedding", row.corpus, row.encoder, "new input"]
        group.add(row.n_items, row.seconds, [f"{row.modality}s that had no vectors"])
    used, newest = store.keys_of(run), dict[tuple[str, ...], Entry]()
    for entry in sorted(entries, key=lambda entry: entry.row.created):
        about = entry.row.kind, entry.corpus, entry.encoder
        if entry.row.run == run:
            found = [*_differences(newest.get((*about, entry.figure)), entry)]
            reason = ", ".join(dict.fromkeys(name for name, _ in found))
            groups[*about, reason].add(1, entry.row.seconds, (detail for _, detail in found))
        else:
            newest[*about, entry.figure] = entry
            if entry.row.key in used:
                groups[*about, "stored"].add(1, None, [])
    return [
        dict(zip(COLUMNS, (*names, group.n, group.seconds, group.detail), strict=True))
        for names, group in groups.items()
    ]


class Entry(NamedTuple):
    """An entry of the ledger with names for fingerprints and evaluations.

    Attributes:
        row: The entry as it is stored.
        identity: Its identity, from JSON.
        figure: The protocol, metric or analysis.
    """

    row: Derived
    identity: Mapping[str, Any]
    corpus: str
    encoder: str
    figure: str


def _entries(store: EmbeddingStore) -> list[Entry]:
    """Return the ledger, without the outcomes of evaluations."""
    results = store.all(Result)
    evaluations = {row.evaluation: (row.corpus, row.encoder) for row in results}
    corpora = {row.corpus_fingerprint: row.corpus for row in results}
    found: list[Entry] = []
    for row in store.all(Derived):
        if row.kind == OUTCOMES_KIND:
            continue
        identity = json.loads(row.identity)
        subject, first = dict(identity["subject"]), next(iter(identity["inputs"]), "").partition(" ")[0]
        of_corpus, of_encoder = subject.pop("corpus", None), subject.pop("encoder", None)
        corpus, encoder = evaluations.get(first, ("", "")) if of_corpus is None else (of_corpus, "")
        if of_encoder is None:
            of_encoder = encoder if row.kind in ("result", "replicates") else ""
        figure = ", ".join(filter(None, subject.values()))
        found.append(Entry(row, identity, corpora.get(corpus, corpus), of_encoder, figure))
    return found


def _differences(then: Entry | None, now: Entry) -> Iterator[tuple[str, str]]:
    """Reason and detail of each thing that differs from the newest earlier entry."""
    if then is None:
        of = (now.encoder and f"by {now.encoder}", now.corpus and f"on {now.corpus}")
        yield "new input", " ".join(filter(None, ("the first", now.row.kind, *of)))
        return
    before, after = then.identity, now.identity
    if before["inputs"] != after["inputs"]:
        details = [*_input_differences(before["inputs"], after["inputs"], now.figure)]
        yield from (("new input", detail) for detail in details or ["the same encoders in another order"])
    for name in sorted({*before["settings"], *after["settings"]}):
        old, new = (_shown(each["settings"].get(name)) for each in (before, after))
        if old != new:
            yield "other setting", f"{name}: {old} -> {new}"
    figure = after["subject"].get("metric") or after["subject"].get("analysis") or now.row.kind
    for name in _VERSIONS:
        if before[name] != after[name]:
            yield "newer code", f"{figure if name == 'version' else name}: {before[name]} -> {after[name]}"


def _input_differences(before: Iterable[str], after: Iterable[str], figure: str) -> Iterator[str]:
    """What differs between two lists of inputs: encoders with their evaluations, or what else is named there."""
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
    """Name of an encoder (empty: the input names none) -> its inputs, each as ``fingerprint evaluation``."""
    found = defaultdict[str, list[str]](list)
    for each in inputs:
        name, at, rest = each.rpartition("@")
        found[name].append(rest if at else each)
    return found


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
