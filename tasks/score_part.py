"""Tasks before the outcomes of an encoder are merged: protocols are checked, and parts of the gallery scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.types import digest16
from capim.tasks.diagnosis.slices import Slice
from capim.tasks.encoders.device import choose_device
from capim.tasks.runtime.combining import TEXT_TO_IMAGE, result_slices, text_to_image
from capim.tasks.runtime.references import SetsRef
from capim.tasks.runtime.scoring import missing_sets, open_sets, unscorable, vectors_of, write_score_part
from capim.tasks.runtime.shell import shell
from capim.tasks.scoring.distractors import Side, by_gallery_size
from capim.tasks.scoring.protocols.selection import protocols_of
from capim.tasks.scoring.resources import Resources
from capim.tasks.statistics.resampling import Resampling


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
