"""Shell: score one encoder on one corpus; outcomes and results into the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store import EmbeddingStore
from store.errors import RequestError
from store.schema import RESULTS
from store.types import Corpus, EvalProtocol, Modality, digest16
from tasks.analysis.clusters import cluster_count
from tasks.analysis.languages import Part, language_rows, part_of
from tasks.analysis.replicates import replicate_rows
from tasks.analysis.resampling import METHODS, Resampling
from tasks.analysis.rsum import rsum_row
from tasks.analysis.summary import Provenance, result_rows
from tasks.asked import asked_protocols
from tasks.encoders.device import choose_device
from tasks.metrics import metrics_of
from tasks.metrics.crosslingual import language_part
from tasks.progress import track
from tasks.references import EvaluationRef, SetsRef
from tasks.scoring.evaluate import SCORER_VERSION, evaluate
from tasks.scoring.languages import CaptionParts
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols import protocols_of, select
from tasks.shell import shell
from tasks.stored_outcomes import in_query_order, read_outcomes

HEADLINES = ("t2i/all", "i2t/any")
PARTS_AT_ONCE = 21  # languages of one translator whose outcomes are in memory together: at COCO's size half a GiB


@shell("score", kind="score", run_name="score-{sets.encoder}-{sets.corpus}")
def score(
    sets: SetsRef,
    *,
    store_uri: str,
    protocols: Sequence[str],
    device: str,
    resampling: Resampling,
    run: str,
    keep_replicates: bool = False,
) -> EvaluationRef:
    """Outcomes and results of one encoder on one corpus; what was scored before is read, not scored again."""
    store = EmbeddingStore.open(store_uri)
    corpus = store.corpus(sets.corpus, sets.corpus_fingerprint)
    asked = asked_protocols(corpus, protocols, vectors=store.encoder(sets.encoder_fingerprint).vectors)
    tags = _tags(store, sets)
    scored_from = [sets.encoder_fingerprint, sets.corpus_fingerprint, tags["image_digest"], tags["caption_digest"]]
    evaluations = {p.id: digest16([*scored_from, p.id, SCORER_VERSION]) for p in asked}
    both = digest16([evaluations[p] for p in HEADLINES]) if evaluations.keys() >= set(HEADLINES) else ""
    spoken = _all_languages(corpus, asked)
    together = digest16([evaluations[p.id] for p in spoken]) if spoken else ""
    known = _refreshed(store, [*evaluations.values(), both, together], run, resampling=resampling)
    # comparisons and slices need the outcomes too, which a damaged store may have lost
    there = store.values("outcomes", "protocol", evaluation=list(evaluations.values()))
    if keep_replicates:
        there &= store.values("replicates", "protocol", evaluation=list(evaluations.values()))
    todo = [protocol for protocol in asked if protocol.id not in known & there]
    parts: dict[str, Part] = {}
    whose = {name: getattr(sets, name) for name in SetsRef.__dataclass_fields__}
    whence = {**whose, "image_tag": tags["image_tag"], "caption_tag": tags["caption_tag"], "run": run}
    fresh: set[str] = set()
    with track(f"{sets.encoder} · {sets.corpus} · scoring", total=len(asked), unit="protocols") as advance:
        advance(len(asked) - len(todo))
        for outcomes, is_fresh in _outcomes(store, sets, corpus, todo, evaluations, device):
            protocol = outcomes.protocol
            fresh |= {protocol.id} if is_fresh else set()
            n_clusters = cluster_count(corpus, protocol)
            if protocol in spoken:
                parts[protocol.id] = part_of(outcomes, n_clusters=n_clusters)
            source = Provenance(**whence, evaluation=evaluations[protocol.id])
            metrics = metrics_of(outcomes)
            results = result_rows(outcomes, metrics, source, n_clusters=n_clusters, resampling=resampling)
            store.write_rows("results", results, replace="result")
            if keep_replicates:
                drawn = replicate_rows(outcomes, metrics, source, n_clusters=n_clusters, resampling=resampling)
                store.write_rows("replicates", drawn, replace="result")
            advance(1)
    if both and ("+".join(HEADLINES) not in known or not {protocol.id for protocol in todo}.isdisjoint(HEADLINES)):
        t2i, i2t = (read_outcomes(store, evaluations[p.id], p) for p in select(corpus, HEADLINES))
        row = rsum_row(
            t2i,
            i2t,
            Provenance(**whence, evaluation=both),
            n_clusters=len(corpus.images),
            resampling=resampling,
        )
        store.write_rows("results", row, replace="result")
    if spoken and (parts or not any("*" in name for name in known)):
        for protocol in spoken:
            if protocol.id not in parts:
                stored = read_outcomes(store, evaluations[protocol.id], protocol)
                parts[protocol.id] = part_of(stored, n_clusters=len(corpus.images))
        rows = language_rows(
            list(parts.values()),
            Provenance(**whence, evaluation=together),
            reference=corpus.languages_reference,
            resampling=resampling,
        )
        store.write_rows("results", rows, replace="result")
    return EvaluationRef(sets=sets, evaluations=evaluations, n_scored=len(fresh))


def _all_languages(corpus: Corpus, asked: Sequence[EvalProtocol]) -> list[EvalProtocol]:
    """The protocols per language and translator; none unless all that the corpus has are asked."""
    spoken = [protocol for protocol in asked if language_part(protocol) is not None]
    if not spoken:
        return []
    every = {protocol.id for protocol in protocols_of(corpus) if language_part(protocol) is not None}
    return spoken if {protocol.id for protocol in spoken} == every else []


def _tags(store: EmbeddingStore, sets: SetsRef) -> dict[str, str]:
    tags = {}
    modalities: tuple[Modality, ...] = ("image", "caption")
    for modality in modalities:
        key = store.key(encoder=sets.encoder_fingerprint, corpus=sets.corpus_fingerprint, modality=modality)
        sealed = store.sealed(key)
        if sealed is None:
            raise RequestError(f"{modality}s of {sets.corpus!r} by {sets.encoder!r} are not sealed; run `capim embed`")
        tags[f"{modality}_tag"], tags[f"{modality}_digest"] = sealed.tag, sealed.digest
    return tags


def _refreshed(store: EmbeddingStore, evaluations: Sequence[str], run: str, resampling: Resampling) -> set[str]:
    """Protocols whose results were computed in this very way before; they become this run's, the newest, unchanged."""
    rows = store.rows("results", evaluation=[evaluation for evaluation in evaluations if evaluation]).to_pylist()
    how = (resampling.replicates, resampling.seed, resampling.level)
    same = [row for row in rows if (row["replicates"], row["seed"], row["level"]) == how]
    other_methods = {row["protocol"] for row in same if row["interval"] in {*METHODS} - {resampling.method}}
    known = [row for row in same if row["protocol"] not in other_methods]
    now = datetime.now(UTC)
    refreshed = [{**row, "run": run, "created": now} for row in known]
    store.write_rows("results", pa.Table.from_pylist(refreshed, schema=RESULTS), replace="result")
    return {row["protocol"] for row in known}


def _outcomes(
    store: EmbeddingStore,
    sets: SetsRef,
    corpus: Corpus,
    protocols: Sequence[EvalProtocol],
    evaluations: Mapping[str, str],
    device: str,
) -> Iterator[tuple[Outcomes, bool]]:
    """The outcomes of every protocol, stored or scored and stored now, in query order; and whether they are new."""
    whose = {name: getattr(sets, name) for name in SetsRef.__dataclass_fields__}
    missing = []
    for protocol in protocols:
        rows = store.rows("outcomes", evaluation=evaluations[protocol.id])
        if rows.num_rows:
            yield Outcomes.from_arrow(in_query_order(rows), protocol), False
        else:
            missing.append(protocol)
    for portion in _portions(missing):
        for outcomes in _score(store, sets, corpus, portion, device).values():
            rows = outcomes.to_arrow(evaluation=evaluations[outcomes.protocol.id], **whose)
            store.write_rows("outcomes", rows, replace="evaluation")
            yield Outcomes.from_arrow(in_query_order(rows), outcomes.protocol), True


def _portions(protocols: Sequence[EvalProtocol]) -> Iterator[list[EvalProtocol]]:
    """Protocols to be scored together: all that share a gallery, and languages of one translator.

    Languages of one translator are compared with one reference, which every portion scores once.

    Examples:
        >>> def protocol(id): return EvalProtocol(id=id, direction="t2i", title="")
        >>> ids = ["t2i/all", "i2t/any", "t2i/de/bing", "t2i/en/bing", "t2i/de/google"]
        >>> [[p.id for p in portion] for portion in _portions([protocol(id) for id in ids])]
        [['t2i/all', 'i2t/any'], ['t2i/de/bing', 't2i/en/bing'], ['t2i/de/google']]
    """

    def part(protocol: EvalProtocol) -> tuple[str, str]:
        language, translator = language_part(protocol) or ("", "")
        return translator, language

    ordered = sorted(protocols, key=part)
    for _, of_translator in groupby(ordered, key=lambda protocol: part(protocol)[0]):
        parts = [list(members) for _, members in groupby(of_translator, key=part)]
        for start in range(0, len(parts), PARTS_AT_ONCE):
            yield [protocol for members in parts[start : start + PARTS_AT_ONCE] for protocol in members]


def _score(
    store: EmbeddingStore, sets: SetsRef, corpus: Corpus, protocols: Sequence[EvalProtocol], device: str
) -> dict[str, Outcomes]:
    encoder, whole = sets.encoder_fingerprint, sets.corpus_fingerprint
    if store.encoder(encoder).vectors == "multi":
        return evaluate(
            corpus,
            protocols,
            images=lambda: store.multivectors(encoder=encoder, corpus=whole, modality="image"),
            captions=lambda: store.multivectors(encoder=encoder, corpus=whole, modality="caption"),
            device=choose_device(device),
        )

    def captions_of(language: str, translator: str) -> NDArray[np.float32]:
        part = store.vectors(
            encoder=encoder, corpus=whole, modality="caption", language=language, translator=translator
        )
        return part.matrix

    in_parts = all(language_part(protocol) is not None for protocol in protocols)
    return evaluate(
        corpus,
        protocols,
        images=store.vectors(encoder=encoder, corpus=whole, modality="image").matrix,
        captions=CaptionParts(captions_of)
        if in_parts
        else store.vectors(encoder=encoder, corpus=whole, modality="caption").matrix,
        device=choose_device(device),
    )
