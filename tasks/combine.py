"""Tasks: two encoders as one, by fused scores or lists, or by one that orders the results of another again."""

from __future__ import annotations

from collections.abc import Sequence

from capim.tasks.ranking.two_stage import reciprocal_rank_fusion, two_stage, weighted_sum
from capim.tasks.runtime.combining import combined_spec, result_slices, text_to_image
from capim.tasks.runtime.progress import track
from capim.tasks.runtime.references import EvaluationRef
from capim.tasks.runtime.shell import shell
from capim.tasks.statistics.resampling import Resampling


@shell("fuse", run_name="fuse-{members[0].sets.corpus}")
def fuse(
    members: tuple[EvaluationRef, ...],
    *,
    store_uri: str,
    weights: Sequence[float],
    resampling: Resampling,
    run: str,
) -> str:
    """Fuse encoders by the weighted sum of their scores, or without weights by reciprocal rank fusion.

    Returns:
        The name of the fused encoder: ``A-with-B``, or ``A-with-B-weighted``.
    """
    retrieval = text_to_image(store_uri, members[0].sets, run)
    name = "-with-".join(member.sets.encoder for member in members)
    if weights:
        name += "-weighted"
        options = {"rule": "weighted-sum", "weights": ", ".join(f"{weight:g}" for weight in weights)}
        shape = (len(retrieval.corpus.captions), len(retrieval.corpus.images))
        scores = [retrieval.all_scores(member) for member in members]
        fused = weighted_sum(scores, weights, retrieval.task, shape=shape)
    else:
        options = {"rule": "reciprocal-rank"}
        fused = reciprocal_rank_fusion([retrieval.outcomes(member) for member in members], retrieval.task)
    spec = combined_spec(name, "fusion", members, options)
    results = retrieval.results(fused, spec, resampling, keep=True)
    setting = " ".join(options.values()).replace("-", " ")
    retrieval.write_slices(spec, result_slices(results, "fusion", setting))
    return name


@shell("rerank", run_name="rerank-{first.sets.encoder}-{second.sets.encoder}-{first.sets.corpus}")
def rerank(
    first: EvaluationRef,
    second: EvaluationRef,
    *,
    store_uri: str,
    depths: Sequence[int],
    resampling: Resampling,
    run: str,
) -> str:
    """Re-rank the first N results of one encoder with another, at every depth N.

    Accuracy and cost at every depth become slices; the largest depth is stored as an encoder.

    Returns:
        The name of that encoder: ``FIRST-then-SECOND``.
    """
    retrieval = text_to_image(store_uri, first.sets, run)
    name = f"{first.sets.encoder}-then-{second.sets.encoder}"
    with track(f"{name} · {first.sets.corpus}", total=len(depths), unit="depths") as advance:
        second_scores = retrieval.pair_scores(second)
        reached = two_stage(retrieval.outcomes(first), retrieval.task, second_scores, sorted(set(depths)))
        advance(len(depths))
    slices = []
    for depth in reached:
        spec = combined_spec(name, "two-stage", [first, second], {"depth": depth.n})
        results = retrieval.results(depth.outcomes, spec, resampling, keep=depth is reached[-1])
        cost = {"n": depth.n, "pairs_per_query": depth.n, "seconds_per_query": depth.seconds_per_query}
        slices += result_slices(results, "two-stage", str(depth.n), cost)
    retrieval.write_slices(spec, slices)
    return name
