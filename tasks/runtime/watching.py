"""What a regression watch compares: stored vectors with fresh ones, and outcomes with those of earlier runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from store import EmbeddingStore
from store.schema import texts
from store.types import Corpus, EvalProtocol, Modality
from tasks.corpora.images.decode import decode_image
from tasks.encoders import Encoder, encode_captions, encode_images
from tasks.metrics import METRICS
from tasks.reference.changes import FigureChange, adjust
from tasks.results.comparison import EncoderOutcomes, compared_metrics, comparison_rows
from tasks.runtime.references import EvaluationRef, SetsRef
from tasks.runtime.stored import read_multivectors, read_outcomes
from tasks.scoring.protocols.layout import cluster_count
from tasks.statistics.resampling import Resampling

Vectors = list[NDArray[np.float32]]


def stored_vectors(store: EmbeddingStore, sets: SetsRef, modality: Modality, ords: NDArray[np.int32]) -> Vectors:
    """Stored vectors of these items (``ords`` ascending), each of shape ``(n_vectors, dim)``."""
    encoder, corpus = sets.encoder_fingerprint, sets.corpus_fingerprint
    if store.encoder(encoder).vectors == "single":
        matrix = store.vectors(encoder=encoder, corpus=corpus, modality=modality).matrix
        return [matrix[i : i + 1] for i in ords]
    return list(read_multivectors(store, encoder, corpus, modality, ords))


def fresh_vectors(encoder: Encoder, corpus: Corpus, modality: Modality, ords: NDArray[np.int32]) -> Vectors:
    """The same items encoded now in one batch; empty for images of a corpus without image bytes."""
    if modality == "caption":
        embeddings = encode_captions(encoder, texts(corpus.captions["text"].take(ords)))
    elif corpus.source is None:
        return []
    else:
        keys = texts(corpus.images["key"].take(ords))
        embeddings = encode_images(encoder, [decode_image(corpus.source.read(key)) for key in keys])
    return np.split(embeddings.values, np.cumsum(embeddings.counts)[:-1])


def earlier_evaluations(store: EmbeddingStore, now: EvaluationRef, run: str) -> dict[str, dict[str, Any]]:
    """The newest results of the same encoder name and corpus from completed runs other than ``run``.

    Returns:
        Protocol id -> a results row; only of protocols whose outcomes are different ones now: an evaluation of the same
        vectors has the same id.
    """
    completed = set(store.rows("runs", state="completed")["run"].to_pylist())
    rows = store.rows("results", corpus_fingerprint=now.sets.corpus_fingerprint, encoder=now.sets.encoder)
    columns = ["protocol", "evaluation", "encoder_fingerprint", "run"]
    return {
        row["protocol"]: row
        for row in rows.sort_by("created").select(columns).to_pylist()
        if row["run"] in completed and row["run"] != run and row["evaluation"] not in now.evaluations.values()
    }


def figure_changes(
    store: EmbeddingStore,
    corpus: Corpus,
    protocol: EvalProtocol,
    now: EvaluationRef,
    earlier: str,
    *,
    resampling: Resampling,
) -> list[FigureChange]:
    """The change of every metric since the evaluation ``earlier``, tested query by query, by ascending p."""
    encoders = [
        EncoderOutcomes(encoder=name, fingerprint=name, outcomes=read_outcomes(store, evaluation, protocol))
        for name, evaluation in (("now", now.evaluations[protocol.id]), ("earlier", earlier))
    ]
    compared = comparison_rows(
        encoders,
        compared_metrics(encoders),
        corpus=corpus.name,
        corpus_fingerprint=corpus.fingerprint,
        run="",
        n_clusters=cluster_count(corpus, protocol),
        resampling=resampling,
    )
    changes = adjust(
        [
            FigureChange(
                key=(corpus.name, protocol.id, row["metric"], now.sets.encoder),
                difference=row["difference"],
                p=row["p_sign_flip"],
                basis="paired test",
                lower_is_better=not METRICS[row["metric"]].higher_is_better,
            )
            for row in compared.to_pylist()
        ]
    )
    return sorted(changes, key=lambda change: change.p or 0.0)
