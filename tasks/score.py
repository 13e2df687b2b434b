"""Shell: score one encoder on one corpus; outcomes and results into the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store import EmbeddingStore
from store.errors import RequestError
from store.schema import RESULTS
from store.types import Corpus, EvalProtocol, Modality, digest16
from tasks.encoders.device import choose_device
from tasks.metrics import metrics_of
from tasks.metrics.crosslingual import language_part
from tasks.results.languages import Part, language_rows, part_of
from tasks.results.replicates import replicate_rows
from tasks.results.rsum import rsum_row
from tasks.results.summary import Provenance, result_rows
from tasks.runtime.progress import track
from tasks.runtime.references import EvaluationRef, SetsRef
from tasks.runtime.shell import shell
from tasks.runtime.stored_outcomes import in_query_order, read_outcomes
from tasks.scoring.evaluate import SCORER_VERSION, evaluate
from tasks.scoring.languages import CaptionParts
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.layout import cluster_count
from tasks.scoring.protocols.selection import select_protocols
from tasks.scoring.protocols.table import build_tasks, protocols_of, select
from tasks.statistics.resampling import METHODS, Resampling

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
    asked = select_protocols(corpus, protocols, vectors=store.encoder(sets.encoder_fingerprint).vectors)
    tags = _tags(store, sets)
    scored_from = [sets.encoder_fingerprint, sets.corpus_fingerprint, tags["image_digest"], tags["caption_digest"]]
    evaluations = {p.id: digest16([*scored_from, p.id, SCORER_VERSION]) for p in asked}
    scoring = _Scoring(store, sets, corpus, evaluations, resampling, run, tags["image_tag"], tags["caption_tag"])
    headlines = select(corpus, HEADLINES) if evaluations.keys() >= set(HEADLINES) else []
    spoken = _all_languages(corpus, asked)
    together = [scoring.joint(group) for group in (headlines, spoken) if group]
    known = scoring.refreshed([*evaluations.values(), *together])
    # comparisons and slices need the outcomes too, which a damaged store may have lost, or some of them
    stored = store.counts("outcomes", "protocol", evaluation=list(evaluations.values()))
    there = {protocol for protocol, n_queries in stored.items() if n_queries == known.get(protocol)}
    if keep_replicates:
        there &= store.counts("replicates", "protocol", evaluation=list(evaluations.values())).keys()
    todo = [protocol for protocol in asked if protocol.id not in there]
    n_scored = 0
    parts: dict[str, Part] = {}
    with track(f"{sets.encoder} · {sets.corpus} · scoring", total=len(asked), unit="protocols") as advance:
        advance(len(asked) - len(todo))
        for outcomes, is_fresh in _outcomes(scoring, todo, stored, device):
            n_scored += is_fresh
            if outcomes.protocol in spoken:
                parts[outcomes.protocol.id] = scoring.part(outcomes)
            scoring.write_results(outcomes, keep_replicates=keep_replicates)
            advance(1)
    anew = {protocol.id for protocol in todo}
    if headlines and ("+".join(HEADLINES) not in known or not anew.isdisjoint(HEADLINES)):
        scoring.write_rsum(headlines)
    if spoken and (parts or not any("*" in name for name in known)):
        scoring.write_languages(spoken, parts)
    return EvaluationRef(sets=sets, evaluations=evaluations, n_scored=n_scored)


@dataclass(frozen=True)
class _Scoring:
    """What is scored, and where its results go."""

    store: EmbeddingStore
    sets: SetsRef
    corpus: Corpus
    evaluations: Mapping[str, str]
    resampling: Resampling
    run: str
    image_tag: str
    caption_tag: str

    def joint(self, protocols: Sequence[EvalProtocol]) -> str:
        """The evaluation of a figure that is computed from those of several protocols."""
        return digest16([self.evaluations[protocol.id] for protocol in protocols])

    def part(self, outcomes: Outcomes) -> Part:
        """What means over languages need of one of them."""
        return part_of(outcomes, n_clusters=cluster_count(self.corpus, outcomes.protocol))

    def stored(self, protocol: EvalProtocol) -> Outcomes:
        """The outcomes of a protocol that was scored."""
        return read_outcomes(self.store, self.evaluations[protocol.id], protocol)

    def refreshed(self, evaluations: Sequence[str]) -> dict[str, int]:
        """Results that were computed in this very way before become this run's, newest, unchanged.

        Returns:
            Their protocols, each with the number of its queries.
        """
        rows = self.store.rows("results", evaluation=evaluations).to_pylist()
        how = (self.resampling.replicates, self.resampling.seed, self.resampling.level)
        same = [row for row in rows if (row["replicates"], row["seed"], row["level"]) == how]
        other_methods = {
            row["protocol"] for row in same if row["interval_method"] in {*METHODS} - {self.resampling.method}
        }
        known = [row for row in same if row["protocol"] not in other_methods]
        now = datetime.now(UTC)
        self._write(
            "results", pa.Table.from_pylist([{**row, "run": self.run, "created": now} for row in known], schema=RESULTS)
        )
        return {row["protocol"]: row["n_queries"] for row in known}

    def write_results(self, outcomes: Outcomes, *, keep_replicates: bool) -> None:
        """Every metric of a protocol with its interval, and every draw if asked."""
        metrics, source = metrics_of(outcomes), self._source(self.evaluations[outcomes.protocol.id])
        n_clusters = cluster_count(self.corpus, outcomes.protocol)
        rows = result_rows(outcomes, metrics, source, n_clusters=n_clusters, resampling=self.resampling)
        self._write("results", rows)
        if keep_replicates:
            drawn = replicate_rows(outcomes, metrics, source, n_clusters=n_clusters, resampling=self.resampling)
            self._write("replicates", drawn)

    def write_rsum(self, headlines: Sequence[EvalProtocol]) -> None:
        """The sum of six recalls, from the outcomes of both directions."""
        t2i, i2t = (self.stored(protocol) for protocol in headlines)
        source, n_clusters = self._source(self.joint(headlines)), len(self.corpus.images)
        self._write("results", rsum_row(t2i, i2t, source, n_clusters=n_clusters, resampling=self.resampling))

    def write_languages(self, spoken: Sequence[EvalProtocol], parts: Mapping[str, Part]) -> None:
        """Means over languages; ``parts`` are those at hand, the others are made of stored outcomes."""
        every = [parts.get(protocol.id) or self.part(self.stored(protocol)) for protocol in spoken]
        source, reference = self._source(self.joint(spoken)), self.corpus.languages_reference
        self._write("results", language_rows(every, source, reference=reference, resampling=self.resampling))

    def _source(self, evaluation: str) -> Provenance:
        whose = {name: getattr(self.sets, name) for name in SetsRef.__dataclass_fields__}
        return Provenance(
            **whose, evaluation=evaluation, run=self.run, image_tag=self.image_tag, caption_tag=self.caption_tag
        )

    def _write(self, table: str, rows: pa.Table) -> None:
        self.store.write_rows(table, rows, replace="result")


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


def _outcomes(
    scoring: _Scoring, protocols: Sequence[EvalProtocol], stored: Mapping[str, int], device: str
) -> Iterator[tuple[Outcomes, bool]]:
    """The outcomes of every protocol, in query order, and whether they are new: else they were ``stored``, all of them.

    What is not, or not of every query, is scored and stored now.
    """
    store, sets, evaluations = scoring.store, scoring.sets, scoring.evaluations
    begun = [protocol for protocol in protocols if protocol.id in stored]
    judged = build_tasks(scoring.corpus, begun) if begun else []
    whole = {j.protocol.id for j in judged if len(j.query_ids) == stored[j.protocol.id]}
    for protocol in begun:
        if protocol.id in whole:
            yield scoring.stored(protocol), False
    whose = {name: getattr(sets, name) for name in SetsRef.__dataclass_fields__}
    for portion in _portions([protocol for protocol in protocols if protocol.id not in whole]):
        for outcomes in _score(store, sets, scoring.corpus, portion, device).values():
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
