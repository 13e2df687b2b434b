"""Flow `watch`: does everything still give what it gave in the last good run?

Encodes a small sample of every stored set again (same fingerprint: the vectors have to be the same), evaluates, and
tests every metric of a changed encoder against its own past, query by query. A regression fails the run, which thus
is no good run: the next one compares with the same past. What changed (weights, libraries, data, device) is said too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from prefect import flow

from flows.config import RunConfig
from flows.embed import embed
from flows.evaluate import evaluate
from flows.execution import announce, call, timeout_seconds
from flows.request import check_request
from flows.runs import recorded_run
from store.errors import WorkError
from tasks.reference.regression import Finding, WatchRule
from tasks.runtime.artifacts import show_table
from tasks.watch import watch_libraries, watch_metrics, watch_vectors


@dataclass(frozen=True, kw_only=True)
class WatchRef:
    """What a watch found."""

    run: str
    findings: tuple[Finding, ...]


@flow(
    name="watch",
    flow_run_name="watch {config.title}",
    timeout_seconds=timeout_seconds(24),
)
def watch(config: RunConfig, rule: WatchRule = WatchRule()) -> WatchRef:  # noqa: B008 - frozen; the form shows it
    """Compare with the last good run.

    Args:
        config: Encoders and corpora to watch; ``seed`` draws the sample.
        rule: When a difference fails, and when it warns.

    Raises:
        WorkError: A regression; lists all of them, with what changed.
    """
    specs = check_request(config)
    with recorded_run(config, "watch") as run:
        findings: list[Finding] = call(watch_libraries, store_uri=config.store_uri, run=run)
        embedded = call(embed, config, run)
        corpora = {reference.corpus.name: reference.corpus for reference in embedded}.values()
        findings += [Finding("note", f"data of {c.name}", change) for c in corpora for change in c.changes]
        for spec in specs:
            mine = [reference for reference in embedded if reference.sets.encoder_fingerprint == spec.fingerprint]
            vectors: list[Finding] = call(
                watch_vectors,
                spec,
                mine,
                store_uri=config.store_uri,
                device=config.device.partition(",")[0],
                rule=rule,
                seed=config.seed,
            )
            findings += vectors
        for evaluation in call(evaluate, config, run, tuple(reference.sets for reference in embedded)):
            metrics: list[Finding] = call(
                watch_metrics,
                evaluation,
                store_uri=config.store_uri,
                run=run,
                rule=rule,
                resampling=config.resampling,
            )
            findings += metrics
        show_table("watch", [finding._asdict() for finding in findings], f"Regression watch {run}: {asdict(rule)}")
        failed = [finding for finding in findings if finding.verdict == "fail"]
        if failed:
            announce("capim.regression", config.workspace, n_regressions=len(failed), first=str(failed[0].message))
            raise WorkError(_told(findings))
    return WatchRef(run=run, findings=tuple(findings))


def _told(findings: list[Finding]) -> str:
    """All findings on one line, the failures first."""
    order = ("fail", "warn", "note")
    ranked = sorted(findings, key=lambda finding: order.index(finding.verdict))
    return "regression: " + "; ".join(f"[{f.verdict}] {f.subject}: {f.message}" for f in ranked)
