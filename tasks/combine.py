"""Shells: two encoders as one (re-ranking, fusion), and approximate search held against exact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from store import EmbeddingStore
from store.errors import RequestError
from store.query.indexes import KINDS, indexed
from store.types import Corpus, EncoderSpec, EvalProtocol, digest16
from tasks.diagnosis.subject import Slice, Subject, slice_rows
from tasks.metrics import METRICS, metrics_of
from tasks.results.summary import Evaluated, Provenance, result_rows
from tasks.runtime.progress import track
from tasks.runtime.references import EvaluationRef
from tasks.runtime.shell import shell
from tasks.runtime.stored_outcomes import in_query_order, read_outcomes
from tasks.scoring.approximate import measure
from tasks.scoring.fusion import dense_scores, late_scores, reciprocal_rank_fusion, weighted_sum
from tasks.scoring.late_interaction.multivectors import gather
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.selection import build_tasks, select_protocols
from tasks.scoring.protocols.tasks import RetrievalTask
from tasks.scoring.ranks.accumulator import Strip
from tasks.scoring.two_stage import SecondScores, dense_pairs, maxsim_pairs, two_stage
from tasks.statistics.bootstrap import Interval
from tasks.statistics.resampling import Resampling

PROTOCOL = "t2i/all"
SHOWN = ("R@1", "R@5", "R@10")
RRF = "reciprocal-rank"


@shell("rerank", kind="analyse", run_name="rerank-{first.sets.encoder}-{second.sets.encoder}-{first.sets.corpus}")
def rerank(
    first: EvaluationRef,
    second: EvaluationRef,
    *,
    store_uri: str,
    depths: Sequence[int],
    resampling: Resampling,
    run: str,
) -> str:
    """The first encoder's top N ordered again by the second: a curve over N, and the deepest as an encoder of its own.

    Returns:
        The name that the pair goes by from now on: ``FIRST-then-SECOND``.
    """
    store = EmbeddingStore.open(store_uri)
    sets = first.sets
    corpus = store.corpus(sets.corpus, sets.corpus_fingerprint)
    protocol, judgement = _question(corpus)
    name = f"{sets.encoder}-then-{second.sets.encoder}"
    with track(f"{name} · {corpus.name}", total=len(depths), unit="depths") as advance:
        reached = two_stage(
            _outcomes(store, first, protocol, judgement),
            judgement,
            _second_scores(store, second, corpus),
            sorted(set(depths)),
        )
        advance(len(depths))
    slices: list[Slice] = []
    for depth in reached:
        spec = _pair(name, "two-stage", [first, second], {"depth": depth.n})
        results = _store(store, depth.outcomes, spec, corpus, run, resampling, kept=depth is reached[-1])
        cost = {"n": depth.n, "pairs_per_query": depth.pairs_per_query, "seconds_per_query": depth.seconds_per_query}
        slices += _slices(results, "two-stage", name, str(depth.n), cost)
    _write_slices(store, corpus, protocol, {name: (reached[-1].outcomes, spec)}, slices, run)
    return name


@shell("fuse", kind="analyse", run_name="fuse-{members[0].sets.corpus}")
def fuse(
    members: tuple[EvaluationRef, ...],
    *,
    store_uri: str,
    weights: Sequence[float],
    resampling: Resampling,
    run: str,
) -> str:
    """Several encoders as one: the weighted sum of their scores, or without weights reciprocal rank fusion.

    Returns:
        The name that they go by from now on: ``A-with-B``, or ``A-with-B-weighted``.
    """
    store = EmbeddingStore.open(store_uri)
    sets = members[0].sets
    corpus = store.corpus(sets.corpus, sets.corpus_fingerprint)
    protocol, judgement = _question(corpus)
    name = "-with-".join(member.sets.encoder for member in members) + ("-weighted" if weights else "")
    options = {"rule": "weighted-sum", "weights": ", ".join(f"{w:g}" for w in weights)} if weights else {"rule": RRF}
    spec = _pair(name, "fusion", members, options)
    if weights:
        scores = [_scores(store, member, corpus, judgement) for member in members]
        fused = weighted_sum(scores, weights, judgement, shape=(len(corpus.captions), len(corpus.images)))
    else:
        fused = reciprocal_rank_fusion([_outcomes(store, m, protocol, judgement) for m in members], judgement)
    results = _store(store, fused, spec, corpus, run, resampling, kept=True)
    slices = _slices(results, "fusion", name, " ".join(options.values()).replace("-", " "), {})
    _write_slices(store, corpus, protocol, {name: (fused, spec)}, slices, run)
    return name


@shell("approximate", kind="analyse", run_name="approximate-{exact.sets.encoder}-{exact.sets.corpus}")
def approximate(exact: EvaluationRef, *, store_uri: str, kinds: Sequence[str] = KINDS, run: str) -> int:
    """What LanceDB's indexes lose and gain against exact search, as slices; returns how many rows.

    Raises:
        RequestError: A late-interaction encoder, an unknown index, or too few images.
    """
    store = EmbeddingStore.open(store_uri)
    sets = exact.sets
    corpus = store.corpus(sets.corpus, sets.corpus_fingerprint)
    protocol, judgement = _question(corpus)
    spec = store.encoder(sets.encoder_fingerprint)
    if spec.vectors == "multi":
        raise RequestError(f"encoder {spec.name!r} gives many vectors per item; indexes are measured for single ones")
    outcomes = _outcomes(store, exact, protocol, judgement)
    images = store.vectors(encoder=spec.fingerprint, corpus=corpus.fingerprint, modality="image").matrix
    captions = store.vectors(encoder=spec.fingerprint, corpus=corpus.fingerprint, modality="caption").matrix
    queries = captions[judgement.queries]
    slices = []
    with track(f"{spec.name} · {corpus.name} · indexes", total=len(kinds), unit="indexes") as advance:
        for kind in kinds:
            with indexed(images, kind) as search:
                for found in measure(search, queries, outcomes, judgement, name=kind, batch=64):
                    detail = {
                        "queries_per_second": found.queries_per_second,
                        "recall": found.recall,
                        "exact": found.exact_hit,
                        "change": found.hit_change,
                        "p95_seconds": found.p95_seconds,
                        "batch": found.batch,
                    }
                    slices.append(
                        Slice(
                            encoder=spec.name,
                            analysis="ann",
                            feature=kind,
                            level_name=f"top {found.k}",
                            metric=f"R@{found.k}",
                            interval=Interval(value=found.hit),
                            n_queries=len(outcomes),
                            n_clusters=len(corpus.images),
                            detail=detail,
                        )
                    )
            advance(1)
    return _write_slices(store, corpus, protocol, {spec.name: (outcomes, spec)}, slices, run)


def _question(corpus: Corpus) -> tuple[EvalProtocol, RetrievalTask]:
    [protocol] = select_protocols(corpus, [PROTOCOL])
    [judgement] = build_tasks(corpus, [protocol])
    if not isinstance(judgement, RetrievalTask):
        raise RequestError(f"corpus {corpus.name!r} has no retrieval queries")
    return protocol, judgement


def _outcomes(
    store: EmbeddingStore, member: EvaluationRef, protocol: EvalProtocol, judgement: RetrievalTask
) -> Outcomes:
    if protocol.id not in member.evaluations:
        raise RequestError(f"{member.sets.encoder!r} has no {protocol.id} on {member.sets.corpus!r}: `capim evaluate`")
    outcomes = read_outcomes(store, member.evaluations[protocol.id], protocol)
    if not np.array_equal(outcomes.query_ords, judgement.queries):
        raise RequestError(f"{member.sets.encoder!r} was asked other queries; run `capim evaluate` again")
    return outcomes


def _second_scores(store: EmbeddingStore, second: EvaluationRef, corpus: Corpus) -> SecondScores:
    encoder, whole = second.sets.encoder_fingerprint, corpus.fingerprint
    if store.encoder(encoder).vectors == "multi":
        captions = gather(store.multivectors(encoder=encoder, corpus=whole, modality="caption"), "caption")
        return maxsim_pairs(lambda: store.multivectors(encoder=encoder, corpus=whole, modality="image"), captions)
    return dense_pairs(
        store.vectors(encoder=encoder, corpus=whole, modality="caption").matrix,
        store.vectors(encoder=encoder, corpus=whole, modality="image").matrix,
    )


def _scores(store: EmbeddingStore, member: EvaluationRef, corpus: Corpus, judgement: RetrievalTask) -> Iterator[Strip]:
    """An encoder's scores of all captions with all images."""
    encoder, whole = member.sets.encoder_fingerprint, corpus.fingerprint
    if store.encoder(encoder).vectors == "multi":
        captions = gather(store.multivectors(encoder=encoder, corpus=whole, modality="caption"), "caption")
        return late_scores(
            lambda: store.multivectors(encoder=encoder, corpus=whole, modality="image"),
            captions,
            n_images=len(corpus.images),
        )
    return dense_scores(
        store.vectors(encoder=encoder, corpus=whole, modality="image").matrix,
        store.vectors(encoder=encoder, corpus=whole, modality="caption").matrix,
        judgement,
    )


def _pair(name: str, adapter: str, members: Sequence[EvaluationRef], options: Mapping[str, str | int]) -> EncoderSpec:
    """What stands for several encoders together; it has no vectors of its own."""
    fingerprints = [member.sets.encoder_fingerprint for member in members]
    return EncoderSpec(
        name=name,
        adapter=adapter,
        checkpoint="+".join(member.sets.encoder for member in members),
        revision=f"of-{digest16(fingerprints)}",
        dim=1,
        options=dict(options),
    )


def _store(
    store: EmbeddingStore,
    outcomes: Outcomes,
    spec: EncoderSpec,
    corpus: Corpus,
    run: str,
    resampling: Resampling,
    *,
    kept: bool,
) -> pa.Table:
    """The results of a pair; ``kept`` ones join the store's encoders."""
    whose = {
        "evaluation": digest16([spec.fingerprint, corpus.fingerprint, outcomes.protocol.id]),
        "encoder": spec.name,
        "encoder_fingerprint": spec.fingerprint,
        "corpus": corpus.name,
        "corpus_fingerprint": corpus.fingerprint,
    }
    source = Provenance(**whose, image_tag="", caption_tag="", run=run)
    ordered = in_query_order(outcomes.to_arrow(**whose))
    evaluated = Evaluated(
        outcomes=Outcomes.from_arrow(ordered, outcomes.protocol),
        metrics=metrics_of(outcomes),
        provenance=source,
        n_clusters=len(corpus.images),
    )
    results = result_rows([evaluated], resampling)
    if kept:
        store.write_encoder(spec)
        store.write_rows("outcomes", ordered, replace="evaluation")
        store.write_rows("results", results, replace="result")
    return results


def _slices(results: pa.Table, analysis: str, name: str, setting: str, cost: dict[str, float]) -> list[Slice]:
    return [
        Slice(
            encoder=name,
            analysis=analysis,
            feature="top list",
            level_name=setting,
            metric=row["metric"],
            interval=Interval(value=row["value"], low=row["ci_low"], high=row["ci_high"], reason=row["reason"]),
            n_queries=row["n_queries"],
            n_clusters=row["n_clusters"],
            detail=cost or None,
        )
        for row in results.to_pylist()
        if row["metric"] in SHOWN and row["metric"] in METRICS
    ]


def _write_slices(
    store: EmbeddingStore,
    corpus: Corpus,
    protocol: EvalProtocol,
    whose: dict[str, tuple[Outcomes, EncoderSpec]],
    slices: Sequence[Slice],
    run: str,
) -> int:
    subject = Subject(
        corpus=corpus,
        protocol=protocol,
        outcomes={name: outcomes for name, (outcomes, _) in whose.items()},
        specs={name: spec for name, (_, spec) in whose.items()},
    )
    return store.write_rows("slices", slice_rows(subject, slices, run=run), replace="slice")
