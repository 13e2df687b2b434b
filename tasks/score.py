"""Task: score one encoder on one corpus; outcomes and results go into the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.maintenance.removal import drop_superseded
from capim.store.types import digest16
from capim.tasks.analyses.slices import Slice
from capim.tasks.encoders.device import choose_device
from capim.tasks.metrics.table import RSUM
from capim.tasks.protocols import MAIN
from capim.tasks.results.languages import Part
from capim.tasks.runtime.combining import TEXT_TO_IMAGE, result_slices, text_to_image
from capim.tasks.runtime.figures.result_writer import ResultWriter, all_languages
from capim.tasks.runtime.progress import track
from capim.tasks.runtime.references import EvaluationRef, SetsRef
from capim.tasks.runtime.scoring import missing_sets, open_sets, outcomes_of, unscorable, vectors_of, write_score_part
from capim.tasks.runtime.shell import shell
from capim.tasks.scoring.distractors import Side, by_gallery_size
from capim.tasks.scoring.protocols.table import protocols_of, select_protocols
from capim.tasks.scoring.resources import Resources
from capim.tasks.statistics.resampling import Resampling

RANKING = 0.5  # the part of the work on a protocol that comes before its metrics and their intervals


@shell("score", run_name="score-{sets.encoder}-{sets.corpus}")
def score(
    sets: SetsRef,
    *,
    store_uri: str,
    protocols: Sequence[str],
    device: str,
    resampling: Resampling,
    run: str,
    keep_replicates: bool = False,
    memory_bytes: int | None = None,
    n_parts: int = 1,
) -> EvaluationRef:
    """Outcomes and results of one encoder on one corpus; of ``n_parts`` parts, those that `score_part` stored merge.

    Stored outcomes are read instead of scored again, and of stored results only what is missing of the table's metrics
    is computed.
    """
    store = EmbeddingStore.open(store_uri)
    scored = open_sets(store, sets, protocols)
    writer = ResultWriter(scored=scored, resampling=resampling, run=run)
    evaluations = scored.evaluations
    headlines = select_protocols(scored.corpus, MAIN) if evaluations.keys() >= set(MAIN) else ()
    languages = all_languages(scored.corpus, scored.protocols)
    joint = [scored.joint_evaluation(group) for group in (headlines, languages) if group]
    renewed = writer.renew([*evaluations.values(), *joint], keep_replicates=keep_replicates)
    # comparisons and slices also need the outcomes, which a damaged store may have lost in part
    stored = store.counts("outcomes", "protocol", evaluation=list(evaluations.values()))
    present = {protocol: found for protocol, found in renewed.items() if stored.get(protocol) == found.n_queries}
    todo = [p for p in scored.protocols if p.id not in present or present[p.id].lacks(p)]
    n_scored = n_added = 0
    parts: dict[str, Part] = {}
    with track(f"{sets.encoder} · {sets.corpus} · scoring", total=len(evaluations), unit="protocols") as advance:
        advance(len(evaluations) - len(todo))

        def ranked(n_protocols: float) -> None:
            advance(RANKING * n_protocols)

        resources = Resources(device, memory_bytes)
        scoring = outcomes_of(scored, todo, stored, resources=resources, n_parts=n_parts, advance=ranked)
        for scored_together, is_fresh in scoring:
            n_scored += len(scored_together) * is_fresh
            kept = {} if is_fresh else present
            for outcomes in scored_together:
                if outcomes.protocol in languages and outcomes.protocol.id not in kept:
                    parts[outcomes.protocol.id] = writer.language(outcomes)
            n_figures = writer.write_metrics(scored_together, keep_replicates=keep_replicates, present=kept)
            n_added += 0 if is_fresh else n_figures
            advance(len(scored_together) * (1 - RANKING if is_fresh else 1))
    if headlines and (RSUM.protocol not in renewed or any(protocol not in present for protocol in MAIN)):
        writer.write_rsum(headlines)
    if languages and (parts or not any("*" in protocol for protocol in renewed)):
        writer.write_languages(languages, parts)
    writer.drop_outdated(list(evaluations.values()))
    drop_superseded(store, encoder_fingerprint=sets.encoder_fingerprint, corpus_fingerprint=scored.corpus.fingerprint)
    return EvaluationRef(sets=sets, evaluations=dict(evaluations), n_scored=n_scored, n_added=n_added)


# --- Tasks before the outcomes of an encoder are merged: protocols are checked, and parts of the gallery scored.


@shell("score-part", run_name="score-{sets.encoder}-{sets.corpus}-part-{part}-of-{n_parts}")
def score_part(
    sets: SetsRef,
    *,
    store_uri: str,
    protocols: Sequence[str],
    device: str,
    memory_bytes: int | None,
    part: int,
    n_parts: int,
) -> SetsRef:
    """Score one part of the gallery, from 1, for `score` to merge; nothing where the outcomes are stored."""
    store = EmbeddingStore.open(store_uri)
    scored = open_sets(store, sets, protocols)
    stored = store.counts("outcomes", "protocol", evaluation=list(scored.evaluations.values()))
    write_score_part(scored, stored, part - 1, n_parts, Resources(device, memory_bytes))
    return sets


@shell("check-scoring")
def check_scoring(
    sets: Sequence[SetsRef], *, store_uri: str, protocols: Sequence[str], distractors: Sequence[str]
) -> None:
    """Check that protocols fit the corpora of these sets, and that distractors are stored, before anything is scored.

    Raises:
        RequestError: A protocol is unknown or does not fit, a corpus of distractors is unknown or has no vectors by an
            encoder; all faults together.
    """
    if faults := unscorable(EmbeddingStore.open(store_uri), sets, protocols, distractors):
        raise RequestError(faults)


@shell("score-distractors", run_name="distractors-{sets.encoder}-{sets.corpus}")
def score_distractors(
    sets: SetsRef,
    *,
    store_uri: str,
    corpora: Sequence[str],
    device: str,
    memory_bytes: int | None,
    resampling: Resampling,
    run: str,
) -> int:
    """Slices of the figures by gallery size, with images of other corpora added; returns their number."""
    store = EmbeddingStore.open(store_uri)
    spec, corpus = store.encoder(sets.encoder_fingerprint), store.corpus(sets.corpus, sets.corpus_fingerprint)
    if not any(protocol.id in TEXT_TO_IMAGE for protocol in protocols_of(corpus)):
        return 0  # pairs and quadruples have no gallery
    retrieval = text_to_image(store_uri, sets, run)

    digests: list[str] = []

    def side(corpus: str) -> Side:
        key = store.key(encoder=spec.fingerprint, corpus=corpus, modality="image")
        if (sealed := store.sealed(key)) is None:  # dropped since `check_scoring`
            raise RequestError(missing_sets(store, key, ["image"]))
        digests.append(sealed.digest)
        others = replace(sets, corpus=key.corpus, corpus_fingerprint=key.corpus_fingerprint)
        return Side(vectors_of(store, others, "image"), sealed.n_rows)

    own, *more = [side(each) for each in (sets.corpus_fingerprint, *corpora)]
    evaluations = open_sets(store, sets, [retrieval.protocol.id]).evaluations
    curve = digest16([*evaluations.values(), *digests, asdict(resampling)])
    subject = {"encoder_fingerprint": spec.fingerprint, "corpus_fingerprint": corpus.fingerprint}
    if any(curve in str(detail) for detail in store.rows("slices", analysis="distractors", **subject)["detail"]):
        return 0  # nothing has changed since it was drawn
    captions, resources = vectors_of(store, sets, "caption"), Resources(choose_device(device), memory_bytes)
    slices: list[Slice] = []
    for _, outcomes in by_gallery_size(own, more, captions, retrieval.task, seed=resampling.seed, resources=resources):
        results, n = retrieval.results(outcomes, spec, resampling, keep=False), int(outcomes.n_gallery.max())
        shown = result_slices(results, "distractors", f"{n:,} images", {"images": n, "curve": curve})
        slices += [replace(each, feature="") for each in shown]
    return retrieval.write_slices(spec, slices)
