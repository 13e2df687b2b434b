"""Flow `watch`: checks for regressions since the pinned run.

Encodes a sample of every stored set again, whose vectors must not change, then evaluates, and tests the figures of
changed encoders against their outcomes in the pinned run, query by query and as one family. The first watch of a
figure pins itself; ``config.baseline`` pins another run. Drops add up from watch to watch, since the baseline stays.
Changes of weights, libraries, data and device are findings too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from capim.flows.benchmark import evaluate_step
from capim.flows.config import RunConfig
from capim.flows.embed import embed_step, paired
from capim.flows.execution import announce, call, run_flow
from capim.flows.request import check_request
from capim.flows.runs import recorded_run
from capim.store.errors import WorkError
from capim.tasks.reference.changes import WatchFinding, WatchRule
from capim.tasks.runtime.open_corpora import OpenCorpora
from capim.tasks.runtime.references import encoder_name
from capim.tasks.runtime.task import artifact_key, show_table
from capim.tasks.watch import WatchedFigures, check_baseline, watch_libraries, watch_metrics, watch_vectors


@dataclass(frozen=True, kw_only=True)
class WatchRef:
    """The findings of a watch, and in ``summary`` what was compared with which run; one line each."""

    run: str
    findings: tuple[WatchFinding, ...]
    summary: tuple[str, ...]


class RegressionError(WorkError):
    """A watch found a regression; carries all findings, failures first, and the summary of the watch."""

    def __init__(self, findings: tuple[WatchFinding, ...], summary: tuple[str, ...] = ()) -> None:
        order = ("fail", "warn", "note")
        self.findings = tuple(sorted(findings, key=lambda finding: order.index(finding.verdict)))
        self.summary = summary
        problem = "; ".join(f"[{f.verdict}] {f.subject}: {f.message}" for f in self.findings)
        super().__init__("\n  - ".join([f"regression: {problem}", *summary]))

    @property
    def short(self) -> str:
        """The first failure, how many findings there are beside it, and the summary."""
        first, *others = self.findings
        more = f"; {len(others)} more findings" if others else ""
        line = f"regression: [{first.verdict}] {first.subject}: {first.message}{more}"
        return "\n  - ".join([line, *self.summary])

    def __reduce__(self) -> tuple[type[RegressionError], tuple[object, ...]]:
        return (type(self), (self.findings, self.summary))


@run_flow("watch", hours=24)
def watch(config: RunConfig, rule: WatchRule = WatchRule()) -> WatchRef:  # noqa: B008 - frozen; the form shows it
    """Compare with the pinned run.

    Args:
        config: Encoders and corpora to watch, and ``baseline``, a run to pin; ``seed`` draws the sample.
        rule: Which differences fail, which warn, and how many false alarms a year may have.

    Raises:
        RequestError: Among other faults, the run to pin has no figures of these encoders.
        RegressionError: At least one finding fails.
    """
    opened = OpenCorpora()
    encoders = tuple(encoder_name(entry) for entry in config.encoders)
    faults: list[str] = call(check_baseline, config.baseline, store_uri=config.store_uri, encoders=encoders)
    request = check_request(config, opened, known=faults)
    with recorded_run(config, "watch") as run:
        encoded, missing = embed_step(config, run, request, opened)
        embedded = paired(encoded)
        corpora = {reference.corpus.name: reference.corpus for reference in embedded}.values()
        findings = [WatchFinding("note", f"data of {c.name}", change) for c in corpora for change in c.changes]
        for spec in request.encoders:
            of_spec = [reference for reference in embedded if reference.sets.encoder_fingerprint == spec.fingerprint]
            vectors: list[WatchFinding] = call(
                watch_vectors,
                spec,
                of_spec,
                opened,
                store_uri=config.store_uri,
                device=config.device.partition(",")[0],
                trust_remote_code=config.trusts(spec.name),
                rule=rule,
                seed=config.seed,
                run=run,
            )
            findings += vectors
        evaluated, unscored = evaluate_step(config, run, tuple(reference.sets for reference in embedded))
        findings += [WatchFinding("fail", each.subject, each.reason) for each in (*missing, *unscored)]
        figures: WatchedFigures = call(
            watch_metrics,
            evaluated,
            store_uri=config.store_uri,
            run=run,
            baseline=config.baseline,
            rule=rule,
            resampling=config.resampling,
        )
        libraries: list[WatchFinding] = call(watch_libraries, figures.baselines, store_uri=config.store_uri)
        findings += [*figures.findings, *libraries]
        description = "; ".join([f"Regression watch {run}", *figures.summary, f"rule: {asdict(rule)}"])
        show_table(artifact_key("watch", config.store_uri), [finding._asdict() for finding in findings], description)
        failed = [finding for finding in findings if finding.verdict == "fail"]
        if failed:
            subjects = "; ".join(dict.fromkeys(finding.subject for finding in failed))
            first = str(failed[0].message)
            announce("capim.regression", config.workspace, n_regressions=len(failed), first=first, subjects=subjects)
            raise RegressionError(tuple(findings), figures.summary)
    return WatchRef(run=run, findings=tuple(findings), summary=figures.summary)
