"""Task: fuse several encoders into one, by reciprocal ranks or by a weighted sum of scores."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.runtime.combining import combined_spec, result_slices, text_to_image
from tasks.runtime.references import EvaluationRef
from tasks.runtime.shell import shell
from tasks.scoring.fusion import reciprocal_rank_fusion, weighted_sum
from tasks.statistics.resampling import Resampling


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
