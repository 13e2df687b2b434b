"""Comparisons of the encoders of one corpus by figures over several protocols: RSUM and means over languages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from capim.store import EmbeddingStore
from capim.store.types import Corpus, EvalProtocol
from capim.tasks.metrics.crosslingual import language_part
from capim.tasks.metrics.headline import DIRECTIONS, planned_figures
from capim.tasks.results.combined import Values, combined_figures, language_values, rsum_values
from capim.tasks.results.comparison import encoder_key, figure_rows
from capim.tasks.results.languages import part_of
from capim.tasks.runtime.references import EvaluationRef
from capim.tasks.runtime.stored import read_outcomes
from capim.tasks.scoring.outcomes import Outcomes
from capim.tasks.scoring.protocols.layout import drawn_clusters, drawn_images
from capim.tasks.scoring.protocols.selection import protocols_of
from capim.tasks.statistics.resampling import Resampling


def combined_rows(
    store: EmbeddingStore, corpus: Corpus, evaluations: Sequence[EvaluationRef], *, resampling: Resampling, run: str
) -> pa.Table:
    """Rows of ``schema.COMPARISONS``; an encoder is compared by a figure if all its protocols were evaluated."""
    values = {
        encoder_key(each.sets.encoder, each.sets.encoder_fingerprint): _values(store, corpus, each)
        for each in evaluations
    }
    return figure_rows(
        combined_figures(values),
        corpus=corpus.name,
        corpus_fingerprint=corpus.fingerprint,
        run=run,
        resampling=resampling,
        headline=planned_figures(protocols_of(corpus)),
    )


def _values(store: EmbeddingStore, corpus: Corpus, evaluation: EvaluationRef) -> Values:
    protocols = protocols_of(corpus)

    def outcomes(wanted: Sequence[EvalProtocol]) -> Iterator[Outcomes]:
        """Of all these protocols, one after the other; nothing unless all were evaluated."""
        if all(protocol.id in evaluation.evaluations for protocol in wanted):
            yield from (read_outcomes(store, evaluation.evaluations[protocol.id], protocol) for protocol in wanted)

    directions = [protocol for protocol in protocols if protocol.id in DIRECTIONS]
    languages = [protocol for protocol in protocols if language_part(protocol) is not None]
    parts = [part_of(each, drawn=drawn_clusters(corpus, each.protocol)) for each in outcomes(languages)]
    return {
        **rsum_values(outcomes(directions), drawn=drawn_images(corpus)),
        **language_values(parts, reference=corpus.languages_reference),
    }
