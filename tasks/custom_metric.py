"""Task: a user's metric of the encoders of one corpus: its results, comparisons and slices, like any other metric's."""

from __future__ import annotations

from collections.abc import Sequence

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.schema import texts
from capim.tasks.analyses.table import BY_PART
from capim.tasks.compare import is_diagnosed
from capim.tasks.encoders.device import choose_device
from capim.tasks.metrics.custom import CustomMetric, load_metric
from capim.tasks.ranking.protocols import select_protocols
from capim.tasks.runtime.figures.own_metric import OwnMetric
from capim.tasks.runtime.progress import track
from capim.tasks.runtime.references import EvaluationRef, MetricRef
from capim.tasks.runtime.shell import shell
from capim.tasks.statistics.resampling import Resampling


@shell("custom-metric", run_name="{metric}-{evaluations[0].sets.corpus}")
def custom_metric(
    evaluations: tuple[EvaluationRef, ...],
    metric: str | CustomMetric,
    *,
    store_uri: str,
    protocols: Sequence[str],
    analyses: Sequence[str],
    device: str,
    resampling: Resampling,
    results: bool,
    keep_replicates: bool,
    run: str,
) -> MetricRef:
    """Store comparisons and slices of ``FILE.py:NAME``, and with ``results`` its results; nothing if its code fails.

    ``protocols`` and ``analyses``: all where none is named. A protocol where it applies to no query has no rows.

    Raises:
        RequestError: The metric cannot be loaded or fails, or none of the protocols was evaluated.
    """
    store, sets = EmbeddingStore.open(store_uri), evaluations[0].sets
    own = OwnMetric(
        store=store,
        custom=load_metric(metric),
        corpus=store.corpus(sets.corpus, sets.corpus_fingerprint),
        evaluations=evaluations,
        device=choose_device(device),
        resampling=resampling,
        run=run,
    )
    evaluated = {protocol for evaluation in evaluations for protocol in evaluation.evaluations}
    chosen = [p for p in select_protocols(own.corpus, protocols or sorted(evaluated)) if p.id in evaluated]
    if not chosen:
        raise RequestError(
            f"there are no outcomes of {', '.join(protocols)} on {sets.corpus!r}; run `capim evaluate --corpora "
            f"{sets.corpus} --protocols {','.join(protocols)}` first"
        )
    parts = []
    with track(f"{own.custom.name} · {sets.corpus}", total=len(chosen), unit="protocols") as advance:
        for protocol in chosen:
            sliced = (analyses or BY_PART) if is_diagnosed(protocol) else ()
            parts.append(own.rows(protocol, sliced, results=results, keep_replicates=keep_replicates))
            advance(1)
    rows = own.write(parts, chosen, results=results, all_slices=not analyses)
    return MetricRef(
        results=tuple(texts(rows["results"]["result"])) if "results" in rows else (),
        comparisons=tuple(texts(rows["comparisons"]["comparison"])) if "comparisons" in rows else (),
        left_out=tuple(own.left_out),
    )
