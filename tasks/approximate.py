"""Task: compare approximate indexes with exact search."""

from __future__ import annotations

from collections.abc import Sequence

from store.errors import RequestError
from store.query.indexes import KINDS, indexed
from tasks.diagnosis.slices import Slice
from tasks.runtime.combining import text_to_image
from tasks.runtime.progress import track
from tasks.runtime.references import EvaluationRef
from tasks.runtime.shell import shell
from tasks.scoring.approximate import measure
from tasks.statistics.bootstrap import Interval


@shell("approximate", run_name="approximate-{exact.sets.encoder}-{exact.sets.corpus}")
def approximate(exact: EvaluationRef, *, store_uri: str, kinds: Sequence[str] = KINDS, run: str) -> int:
    """Measure what LanceDB's indexes lose in R@k and gain in speed; returns the number of slices stored.

    Raises:
        RequestError: A late-interaction encoder, an unknown index, or too few images.
    """
    retrieval = text_to_image(store_uri, exact.sets, run)
    spec = retrieval.store.encoder(exact.sets.encoder_fingerprint)
    if spec.vectors == "multi":
        raise RequestError(f"encoder {spec.name!r} has many vectors per item; indexes need a single-vector encoder")
    outcomes = retrieval.outcomes(exact)
    images = retrieval.matrix(spec.fingerprint, "image")
    queries = retrieval.matrix(spec.fingerprint, "caption")[retrieval.task.queries]
    slices = []
    with track(f"{spec.name} · {exact.sets.corpus} · indexes", total=len(kinds), unit="indexes") as advance:
        for kind in kinds:
            with indexed(images, kind) as search:
                slices += [
                    Slice(
                        encoder=spec.name,
                        analysis="ann",
                        feature=kind,
                        level_name=f"top {measured.k}",
                        metric=f"R@{measured.k}",
                        interval=Interval(value=measured.hit),
                        n_queries=len(outcomes),
                        n_clusters=len(images),
                        detail={
                            "queries_per_second": measured.queries_per_second,
                            "recall": measured.recall,
                            "exact": measured.exact_hit,
                            "change": measured.hit_change,
                            "p95_seconds": measured.p95_seconds,
                            "batch": measured.batch,
                        },
                    )
                    for measured in measure(search, queries, outcomes, retrieval.task, name=kind, batch=64)
                ]
            advance(1)
    return retrieval.write_slices(spec, slices)
