"""Flow `watch`: checks for regressions since the last completed run.

Encodes a sample of every stored set again, whose vectors must not change, then evaluates, and tests the metrics of
every changed encoder against its earlier outcomes, query by query. A regression fails the run, so that the next watch
compares with the same earlier run. Changes of weights, libraries, data and device are findings too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from prefect import flow

from flows.config import RunConfig
from flows.embed import embed_step, paired
from flows.evaluate import evaluate_step
from flows.execution import announce, call, task_runner, timeout_seconds
from flows.request import check_request
from flows.runs import recorded_run
from store.errors import WorkError
from tasks.reference.regression import WatchFinding, WatchRule
from tasks.runtime.artifacts import show_table
from tasks.runtime.open_corpora import OpenCorpora
from tasks.watch import watch_libraries, watch_metrics, watch_vectors


@dataclass(frozen=True, kw_only=True)
class WatchRef:
    """The findings of a watch."""

    run: str
    findings: tuple[WatchFinding, ...]


class RegressionError(WorkError):
    """A watch found a regression; carries all findings, failures first."""

    def __init__(self, findings: tuple[WatchFinding, ...]) -> None:
        order = ("fail", "warn", "note")
        self.findings = tuple(sorted(findings, key=lambda finding: order.index(finding.verdict)))
        super().__init__("regression: " + "; ".join(f"[{f.verdict}] {f.subject}: {f.message}" for f in self.findings))

    def __reduce__(self) -> tuple[type[RegressionError], tuple[tuple[WatchFinding, ...]]]:
        return (type(self), (self.findings,))


@flow(
    name="watch",
    flow_run_name="watch {config.title}",
    task_runner=task_runner(),
    timeout_seconds=timeout_seconds(24),
)
def watch(config: RunConfig, rule: WatchRule = WatchRule()) -> WatchRef:  # noqa: B008 - frozen; the form shows it
    """Compare with the last completed run.

    Args:
        config: Encoders and corpora to watch; ``seed`` draws the sample.
        rule: Which differences fail, and which warn.

    Raises:
        RegressionError: At least one finding fails.
    """
    opened = OpenCorpora()
    request = check_request(config, opened)
    with recorded_run(config, "watch") as run:
        findings: list[WatchFinding] = call(watch_libraries, store_uri=config.store_uri, run=run)
        encoded, missing = embed_step(config, run, request, opened)
        embedded = paired(encoded)
        corpora = {reference.corpus.name: reference.corpus for reference in embedded}.values()
        findings += [WatchFinding("note", f"data of {c.name}", change) for c in corpora for change in c.changes]
        for spec in request.encoders:
            of_spec = [reference for reference in embedded if reference.sets.encoder_fingerprint == spec.fingerprint]
            vectors: list[WatchFinding] = call(
                watch_vectors,
                spec,
                of_spec,
                opened,
                store_uri=config.store_uri,
                device=config.device.partition(",")[0],
                rule=rule,
                seed=config.seed,
            )
            findings += vectors
        evaluated, unscored = evaluate_step(config, run, tuple(reference.sets for reference in embedded))
        findings += [WatchFinding("fail", each.subject, each.reason) for each in (*missing, *unscored)]
        for evaluation in evaluated:
            metrics: list[WatchFinding] = call(
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
            raise RegressionError(tuple(findings))
    return WatchRef(run=run, findings=tuple(findings))
