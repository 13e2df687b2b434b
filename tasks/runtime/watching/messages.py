"""What a watch tells about its figures: findings that are no test, and a summary with the next step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capim.store import EmbeddingStore
from capim.store.types import Corpus, EvalProtocol
from capim.tasks.metrics import METRICS
from capim.tasks.reference.changes import setting_changes
from capim.tasks.reference.regression import WatchFinding, WatchRule, judge_settings
from capim.tasks.runtime.references import SetsRef
from capim.tasks.runtime.watching.baseline import FigureId, Pinned

HISTORY = '`capim query "SELECT * FROM watched"`'
Results = Mapping[tuple[str, str, str], Mapping[str, Any]]
"""Evaluation, protocol and metric -> a row of ``schema.RESULTS``."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Figure:
    """A figure of the watch; ``pinned`` is None where it is watched for the first time."""

    id: FigureId
    metric: str
    evaluation: str
    sets: SetsRef
    corpus: Corpus
    protocol: EvalProtocol
    pinned: Pinned | None

    @property
    def before(self) -> Pinned:
        """The pinned run, or an empty one."""
        return self.pinned or Pinned(run="", evaluation="")


def not_comparable(lost: Sequence[Figure], results: Results, since: Mapping[str, str]) -> list[WatchFinding]:
    """A warning for every encoder and corpus with figures that have nothing to be compared with."""
    findings: dict[str, WatchFinding] = {}
    for figure in lost:
        known = (figure.before.evaluation, figure.id.protocol, figure.metric) in results
        why = "the corpus has changed since" if known else "the store no longer has the outcomes of the run of"
        subject = f"{figure.id.encoder} on {figure.id.corpus}"
        message = f"figures are not comparable: {why} {since[figure.before.run]}; nothing was tested"
        findings.setdefault(subject, WatchFinding("warn", subject, message))
    return list(findings.values())


def exploratory(
    changed: Sequence[Figure], stored: Sequence[Mapping[str, Any]], rule: WatchRule, since: Mapping[str, str]
) -> list[WatchFinding]:
    """A note for every encoder and corpus whose other metrics have large drops, with the largest."""
    of_evaluation: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for row in stored:
        known = METRICS.get(row["metric"])
        if known is not None and known.reduce == "mean" and not row["lower_is_better"] and row["value"] is not None:
            of_evaluation[row["evaluation"]][row["metric"], row["metric_version"]] = row["value"]
    drops: dict[str, list[tuple[float, str, str]]] = defaultdict(list)
    for figure in changed:
        now = of_evaluation[figure.evaluation]
        for (metric, version), old in of_evaluation[figure.before.evaluation].items():
            fall = old - now.get((metric, version), old)
            if metric != figure.metric and fall >= rule.fail_drop:
                name = f"{figure.id.protocol} {metric}"
                drops[f"{figure.id.encoder} on {figure.id.corpus}"].append((fall, name, since[figure.before.run]))
    findings = []
    for subject, found in drops.items():
        fall, name, baseline = max(found)
        message = (
            f"other metrics, not tested: {len(found)} fell by {rule.least_drop} or more, most of all "
            f"{name} by {100 * fall:.1f} points since {baseline}"
        )
        findings.append(WatchFinding("note", subject, message))
    return findings


def weights(store: EmbeddingStore, changed: Sequence[Figure], results: Results) -> list[WatchFinding]:
    """Notes of what differs between the encoders of changed figures and those of the baseline."""
    pairs = {
        (figure.sets, results[figure.before.evaluation, figure.id.protocol, figure.metric]["encoder_fingerprint"])
        for figure in changed
    }
    found = [
        finding
        for sets, earlier in sorted(pairs, key=lambda pair: (pair[0].encoder, pair[1]))
        for finding in judge_settings(
            setting_changes(
                f"weights of {sets.encoder}",
                store.encoder(earlier).identity(),
                store.encoder(sets.encoder_fingerprint).identity(),
            )
        )
    ]
    return list(dict.fromkeys(found))


def summary_lines(
    figures: Sequence[Figure],
    states: Mapping[str, int],
    since: Mapping[str, str],
    *,
    run: str,
    level: float,
    rule: WatchRule,
) -> tuple[str, ...]:
    """What was compared, at which level, and the next step."""
    n_first = states["baseline"]
    lines = []
    if n_first:
        lines.append(f"run {run} is the baseline of {_count(n_first)}, which were watched for the first time")
    if since:
        pinned = ", ".join(f"run {baseline} of {date}" for baseline, date in since.items())
        lines.append(
            f"{_count(len(figures) - n_first)} (the main metric of each protocol), tested as one family, compared with "
            f"pinned {pinned}: {states['unchanged']} unchanged, {states['fail']} failed"
        )
        lines.append(
            f"alarm level of this watch {level:.2g}: at most {100 * rule.alpha:g} % of years with up to one watch a "
            "day have a false alarm"
        )
    if states["fail"] or states["warn"] or states["not comparable"]:
        lines.append(
            f"all figures of all watches: {HISTORY}; if the changes are intended, repeat the watch with "
            f"`--baseline {run}`, which pins this run"
        )
    return tuple(lines)


def _count(n: int) -> str:
    return f"{n} figure{'s' if n != 1 else ''}"
