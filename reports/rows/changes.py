"""Two reports of the same things: what changed, whether it is more than chance, and why it may have.

Works on the ``results.json`` of reports, so the store that an old report came from need not be there any more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from store.errors import RequestError

Row: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[str, str, str, str]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One report's rows, as its ``results.json`` holds them.

    Attributes:
        name: What the reader calls it: the path given.
        results: Result rows by corpus, protocol, metric and encoder.
        comparisons: Comparison rows.
        encoders: Encoder name to its identity and fingerprint.
        corpora: Corpus name to its facts and fingerprint.
        versions: Library to version, over all runs of the report.
        devices: What it was encoded on.
    """

    name: str
    results: Mapping[Key, Row]
    comparisons: Sequence[Row]
    encoders: Mapping[str, Mapping[str, Any]]
    corpora: Mapping[str, Mapping[str, Any]]
    versions: Mapping[str, str]
    devices: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One figure in both reports.

    Attributes:
        key: Corpus, protocol, metric, encoder.
        old: Its row in the old report.
        new: Its row in the new report.
        difference: New minus old; None where one has no value.
        p: p-value of the difference, or an upper bound of it; None where nothing can be said.
        p_adjusted: The same after Holm's correction over all figures that have a p.
        basis: ``same rows``, ``paired test``, ``unpaired bound`` or ``none``.
    """

    key: Key
    old: Row
    new: Row
    difference: float | None
    p: float | None
    basis: str
    p_adjusted: float | None = None


def load_snapshot(path: str | Path) -> Snapshot:
    """The snapshot of a report.

    Args:
        path: A report's folder, its ``report.html`` or its ``results.json``.

    Raises:
        RequestError: There is no such report, or it was not written by capim.
    """
    place = Path(path)
    file = place / "results.json" if place.is_dir() else place.with_name("results.json")
    if not file.is_file():
        raise RequestError(f"{str(path)!r} is no report: {file} is not there; name a folder that `capim report` wrote")
    try:
        document = json.loads(file.read_text("utf-8"))
        return snapshot_of(document, name=str(path))
    except (ValueError, KeyError, TypeError) as fault:
        raise RequestError(f"{file} cannot be read as a report's results ({fault}); make the report again") from fault


def snapshot_of(document: Mapping[str, Any], *, name: str) -> Snapshot:
    """The snapshot in a parsed ``results.json``."""
    if not str(document["schema"]).startswith("capim-report/"):
        raise ValueError(f"schema {document['schema']!r}, expected capim-report/…")
    versions: dict[str, str] = {}
    for run in document["runs"]:
        versions |= {library: str(version) for library, version in json.loads(run["versions"] or "{}").items()}
    return Snapshot(
        name=name,
        results={(r["corpus"], r["protocol"], r["metric"], r["encoder"]): r for r in document["results"]},
        comparisons=tuple(document["comparisons"]),
        encoders=document["encoders"],
        corpora=document["corpora"],
        versions=versions,
        devices=tuple(document["devices"]),
    )


def changes(old: Snapshot, new: Snapshot) -> list[Change]:
    """Every figure that both have, in the order of corpus, protocol, metric and encoder."""
    tests = _paired_tests([*old.comparisons, *new.comparisons])
    found = [
        _change(key, old.results[key], new.results[key], tests) for key in sorted(old.results.keys() & new.results)
    ]
    adjusted = iter(holm([c.p for c in found if c.p is not None]))
    return [c if c.p is None else replace(c, p_adjusted=next(adjusted)) for c in found]


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values (1979), in the order given.

    Examples:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for place, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def _change(key: Key, old: Row, new: Row, tests: Mapping[tuple[str, ...], float]) -> Change:
    if old["value"] is None or new["value"] is None:
        return Change(key=key, old=old, new=new, difference=None, p=None, basis="none")
    difference = new["value"] - old["value"]
    if old["evaluation"] == new["evaluation"]:
        return Change(key=key, old=old, new=new, difference=difference, p=None, basis="same rows")
    pair = (*key[:3], *sorted((old["encoder_fingerprint"], new["encoder_fingerprint"])))
    if old["corpus_fingerprint"] == new["corpus_fingerprint"] and pair in tests:
        return Change(key=key, old=old, new=new, difference=difference, p=tests[pair], basis="paired test")
    p = unpaired_bound(difference, old["standard_error"], new["standard_error"])
    return Change(
        key=key, old=old, new=new, difference=difference, p=p, basis="none" if p is None else "unpaired bound"
    )


def _paired_tests(comparisons: Sequence[Row]) -> dict[tuple[str, ...], float]:
    """Corpus, protocol, metric and the two fingerprints (sorted) to the p of their paired test."""
    return {
        (r["corpus"], r["protocol"], r["metric"], *sorted((r["fingerprint_a"], r["fingerprint_b"]))): r["p_sign_flip"]
        for r in comparisons
        if r["p_sign_flip"] is not None
    }


def unpaired_bound(difference: float, old_error: float | None, new_error: float | None) -> float | None:
    """An upper bound of the p-value of a difference between two figures of one model on one corpus.

    The two figures come from the same queries and so vary together; the standard error of their difference is at
    most ``sqrt(a² + b²)``, its value were they independent. The normal p from that error is therefore too large,
    never too small: a small one can be believed, a large one says that a paired test is needed.

    Returns:
        The bound, or None where a standard error is missing or both are zero.

    Examples:
        >>> round(unpaired_bound(0.05, 0.02, 0.015), 4)
        0.0455
        >>> unpaired_bound(0.05, None, 0.01)
    """
    if old_error is None or new_error is None or not (old_error or new_error):
        return None
    return math.erfc(abs(difference) / math.hypot(old_error, new_error) / math.sqrt(2))


def causes(old: Snapshot, new: Snapshot) -> list[tuple[str, str, str, str]]:
    """What differs between the two besides the figures: what it is about, which setting, old and new value."""
    found = []
    for kind, before, after in (("encoder", old.encoders, new.encoders), ("corpus", old.corpora, new.corpora)):
        for name in sorted(before.keys() & after.keys()):
            for setting in sorted(before[name].keys() | after[name].keys()):
                a, b = before[name].get(setting), after[name].get(setting)
                if a != b:
                    found.append((f"{kind} {name}", setting, _text(a), _text(b)))
    for library in sorted(old.versions.keys() | new.versions.keys()):
        a, b = old.versions.get(library), new.versions.get(library)
        if a != b:
            found.append(("library", library, _text(a), _text(b)))
    if old.devices != new.devices:
        found.append(("device", "name", ", ".join(old.devices), ", ".join(new.devices)))
    for setting in ("seed", "replicates", "interval_method"):
        a, b = ({str(r[setting]) for r in s.results.values()} for s in (old, new))
        if a != b:
            found.append(("statistics", setting, ", ".join(sorted(a)), ", ".join(sorted(b))))
    return found


def _text(value: object) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
