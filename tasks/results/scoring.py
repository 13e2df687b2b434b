"""Outcomes of one encoder on one corpus: read from the store where they are complete, else scored and stored.

Scoring needs torch, which is imported only when there is something to score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from capim.store import EmbeddingStore, SealedSet
from capim.store.errors import RequestError
from capim.store.rows import drop_parts, in_order, read_parts, stored_parts, write_part
from capim.store.types import MODALITIES, Corpus, Modality, SetKey, VectorKind, digest16
from capim.tasks.corpora.check import encodable, import_advice
from capim.tasks.encoders.device import choose_device
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.layout import layout_of
from capim.tasks.ranking.outcomes import SCORER_VERSION, Outcomes
from capim.tasks.ranking.protocols import query_counts, select_protocols
from capim.tasks.ranking.resources import Advance, Resources, ignore
from capim.tasks.references import EvaluationRef, SetsRef
from capim.tasks.results.stored import read_outcomes

if TYPE_CHECKING:  # these import torch
    from capim.tasks.ranking.evaluate import Scoring
    from capim.tasks.ranking.ranker import PartOutcomes

_ROWS_AT_ONCE = 50_000  # of outcomes that are written in one commit, about
PARTS_VERSION = 2  # raised when the stored form of a part changes
LANGUAGES_AT_ONCE = 21  # languages of one translator scored together: half a GiB of outcomes at the size of COCO


@dataclass(frozen=True, kw_only=True)
class ScoredSets:
    """The two sealed embedding sets of one encoder on one corpus, and the protocols that they are scored under.

    Attributes:
        protocols: In the order of the corpus.
        evaluations: Protocol id -> evaluation id, a digest of the sets, the protocol and the version of the scorer.
        tags: ``image_tag`` and ``caption_tag``, the sealed versions of the embeddings; empty for imported outcomes.
    """

    store: EmbeddingStore
    sets: SetsRef
    corpus: Corpus
    protocols: tuple[Protocol, ...]
    evaluations: Mapping[str, str]
    tags: Mapping[str, str]

    def joint_evaluation(self, protocols: Sequence[Protocol]) -> str:
        """Return the evaluation id of a result that is computed from several protocols."""
        return digest16([self.evaluations[protocol.id] for protocol in protocols])

    def stored(self) -> dict[str, int]:
        """Return protocol id -> number of its stored outcomes."""
        found = self.store.stored_rows([*self.evaluations.values()])
        return {protocol: found[each] for protocol, each in self.evaluations.items() if each in found}

    def scoring(self, protocols: Sequence[Protocol], resources: Resources) -> Scoring:
        """Return the scoring of some of the protocols; vectors are read from the store as far as they are needed."""
        from capim.tasks.ranking.evaluate import Scoring

        images, captions = self.sets.vectors(self.store)
        on = replace(resources, device=choose_device(resources.device))
        return Scoring.of(self.corpus, protocols, images=images, captions=captions, resources=on)

    def read(self, protocol: Protocol) -> Outcomes:
        """Return the stored outcomes of a protocol."""
        return read_outcomes(self.store, self.evaluations[protocol.id], protocol)


def missing_sets(store: EmbeddingStore, key: SetKey, modalities: Sequence[str]) -> str:
    """Return the fault that embeddings are missing or incomplete, with the command that makes them."""
    spec, name, revision = store.encoder(key.encoder_fingerprint), key.encoder, ""
    if store.encoder(name) != spec:  # of the models of this name not the newest
        name, revision = f"{name}@{spec.revision}", f" --revision {spec.revision}"
    command, has_weights = f"capim embed --corpora {key.corpus} --encoders {name}", spec.has_weights
    can = encodable(store.corpus(key.corpus, key.corpus_fingerprint))
    if len(can) == 1 and has_weights:
        return import_advice(key.encoder, key.corpus, "caption" if can == ("image",) else "image")
    if not (has_weights and can):
        files = " ".join(f"--{modality}s FILE" for modality in modalities)
        command = f"capim import --corpus {key.corpus} --encoder {key.encoder}{revision} {files}"
    what = " and ".join(f"{modality}s" for modality in modalities)
    return f"there are no complete embeddings of the {what} of {key.corpus!r} by {name!r}; run `{command}`"


def stored_evaluations(store: EmbeddingStore, evaluation: EvaluationRef, protocol_ids: Sequence[str]) -> ScoredSets:
    """Return the stored outcomes of an encoder without embeddings, under these protocols; all if none is named."""
    sets = evaluation.sets
    corpus = store.corpus(sets.corpus, sets.corpus_fingerprint)
    chosen = [protocol for protocol in protocol_ids or evaluation.evaluations if protocol in evaluation.evaluations]
    protocols = select_protocols(corpus, chosen) if chosen else ()
    evaluations = {protocol.id: evaluation.evaluations[protocol.id] for protocol in protocols}
    of_first = store.rows("results", evaluation=next(iter(evaluation.evaluations.values()))).slice(0, 1).to_pylist()
    row = of_first[0] if of_first else {}
    return ScoredSets(
        store=store,
        sets=sets,
        corpus=corpus,
        protocols=protocols,
        evaluations=evaluations,
        tags={name: row.get(name, "") for name in ("image_tag", "caption_tag")},
    )


def open_sets(store: EmbeddingStore, sets: SetsRef, protocol_ids: Sequence[str]) -> ScoredSets:
    """Return the sealed sets of one encoder on one corpus, with these protocols or, if none is named, all that fit.

    Raises:
        RequestError: A set is not sealed, or an id is unknown or does not fit the corpus.
    """
    corpus = store.corpus(sets.corpus, sets.corpus_fingerprint)
    vectors = store.encoder(sets.encoder_fingerprint).vectors
    protocols = select_protocols(corpus, protocol_ids, vectors=vectors)
    sealed: dict[Modality, SealedSet] = {}
    for modality in MODALITIES:
        key = store.key(encoder=sets.encoder_fingerprint, corpus=sets.corpus_fingerprint, modality=modality)
        found = store.sealed(key)
        if found is None:
            raise RequestError(missing_sets(store, key, [modality]))
        sealed[modality] = found
    return scored_sets(store, sets, corpus, protocols, sealed, vectors)


def scored_sets(
    store: EmbeddingStore,
    sets: SetsRef,
    corpus: Corpus,
    protocols: tuple[Protocol, ...],
    sealed: Mapping[Modality, SealedSet],
    vectors: VectorKind,
) -> ScoredSets:
    """Return sets with their evaluations; sets that are not sealed yet have ids that nothing stored has."""
    # late interaction has consistency across languages since the version after 4
    version = SCORER_VERSION + (vectors == "multi" and len(layout_of(corpus).parts) > 1)
    digests = [sealed[modality].digest if modality in sealed else "" for modality in MODALITIES]
    source = [sets.encoder_fingerprint, sets.corpus_fingerprint, *digests]
    return ScoredSets(
        store=store,
        sets=sets,
        corpus=corpus,
        protocols=protocols,
        evaluations={protocol.id: digest16([*source, protocol.id, version]) for protocol in protocols},
        tags={f"{modality}_tag": one.tag for modality, one in sealed.items()},
    )


def outcomes_of(
    scored: ScoredSets,
    protocols: Sequence[Protocol],
    stored: Mapping[str, int],
    *,
    resources: Resources,
    n_parts: int = 1,
    advance: Advance = ignore,
) -> Iterator[tuple[list[Outcomes], bool]]:
    """Yield the outcomes of every protocol in query order, as many protocols at a time as are scored together.

    Each list comes with whether it was scored now. ``stored`` counts the queries in the store by protocol id: a
    protocol that has all its queries there is read; the others are scored and stored. ``advance`` gets how many
    protocols were ranked, in parts: 1 for each that is scored.
    """
    missing = incomplete(scored, protocols, stored)
    of_missing = [scored.evaluations[protocol.id] for protocol in missing]
    # rows that an interrupted run left
    unlisted = scored.store.counts("outcomes", "evaluation", evaluation=of_missing) if missing else {}
    for portion in _portions([protocol for protocol in protocols if protocol not in missing]):
        yield [scored.read(protocol) for protocol in portion], False
    for portion in _portions(missing):
        left = [float(len(portion))]

        def ranked(share: float, of: int = len(portion), left: list[float] = left) -> None:
            part = min(share * of, left[0])
            left[0] -= part
            advance(part)

        scoring = scored.scoring(portion, resources)
        if n_parts > 1:
            outcomes_by_id = scoring.merged(_stored_parts(scored, portion, n_parts, scoring))
        else:
            outcomes_by_id = scoring.outcomes(ranked)
        ranked(1.0)  # what had no parts, such as pairs and quadruples
        stored_outcomes, unwritten = [], []
        replaced = "evaluation" if any(scored.evaluations[each.id] in unlisted for each in portion) else None
        for protocol_id in list(outcomes_by_id):
            outcomes = outcomes_by_id.pop(protocol_id)  # popped: outcomes of a large corpus would not fit twice
            rows = outcomes.to_arrow(scored.evaluations[protocol_id], scored.sets)
            stored_outcomes.append(Outcomes.from_arrow(in_order("outcomes", rows), outcomes.protocol))
            unwritten.append(rows)
            if not outcomes_by_id or sum(map(len, unwritten)) > _ROWS_AT_ONCE:
                scored.store.write_rows("outcomes", pa.concat_tables(unwritten), replace=replaced)
                unwritten = []
        drop_parts(scored.store, _of_parts(scored, portion, n_parts))
        yield stored_outcomes, True


def write_score_part(
    scored: ScoredSets, stored: Mapping[str, int], number: int, n_parts: int, resources: Resources
) -> None:
    """Score one of ``n_parts`` parts of the images, from 0, and store it for :func:`outcomes_of`, unless it is."""
    missing = incomplete(scored, scored.protocols, stored)
    if not missing:
        return
    part = _parts(scored, n_parts)[number]
    for portion in _portions(missing):
        evaluation = _of_parts(scored, portion, n_parts)
        if part and str(part) not in stored_parts(scored.store, evaluation):
            found = scored.scoring(portion, resources).part(part)
            arrays = {f"{id_} {name}": a for id_, one in found.items() for name, a in one._asdict().items()}
            write_part(scored.store, evaluation, str(part), arrays)


def incomplete(scored: ScoredSets, protocols: Sequence[Protocol], stored: Mapping[str, int]) -> list[Protocol]:
    """Return the protocols that lack stored outcomes of some queries; ``stored`` counts them by protocol id."""
    wanted = query_counts(scored.corpus, [protocol for protocol in protocols if protocol.id in stored])
    return [protocol for protocol in protocols if stored.get(protocol.id) != wanted.get(protocol.id, -1)]


def _stored_parts(
    scored: ScoredSets, protocols: Sequence[Protocol], n_parts: int, scoring: Scoring
) -> Iterator[Mapping[str, PartOutcomes]]:
    """Yield the stored parts; a part that is not stored, because its task failed, is scored here."""
    from capim.tasks.ranking.ranker import PartOutcomes

    left = {str(part): part for part in _parts(scored, n_parts) if part}
    for name, arrays in read_parts(scored.store, _of_parts(scored, protocols, n_parts)):
        if left.pop(name, None) is not None:
            ids = dict.fromkeys(key.rpartition(" ")[0] for key in arrays)
            yield {id_: PartOutcomes(*(arrays[f"{id_} {f}"] for f in PartOutcomes._fields)) for id_ in ids}
    yield from map(scoring.part, left.values())


def _parts(scored: ScoredSets, n_parts: int) -> list[range]:
    """Return the images in parts of nearly equal size."""
    n = len(scored.corpus.images)
    return [range(n * k // n_parts, n * (k + 1) // n_parts) for k in range(n_parts)]


def _of_parts(scored: ScoredSets, protocols: Sequence[Protocol], n_parts: int) -> str:
    return digest16([scored.joint_evaluation(protocols), n_parts, PARTS_VERSION])


def _portions(protocols: Sequence[Protocol]) -> Iterator[list[Protocol]]:
    """Yield protocols to be scored together: all that share a gallery, and languages of one translator.

    Languages of one translator are compared with one reference, which every portion scores once.

    Examples:
        >>> def protocol(id): return Protocol.of(id)
        >>> ids = ["t2i/all", "i2t/any", "t2i/de/bing", "t2i/en/bing", "t2i/de/google"]
        >>> [[p.id for p in portion] for portion in _portions([protocol(id) for id in ids])]
        [['t2i/all', 'i2t/any'], ['t2i/de/bing', 't2i/en/bing'], ['t2i/de/google']]
    """
    ordered = sorted(protocols, key=lambda protocol: protocol.part[::-1])
    for _, of_translator in groupby(ordered, key=lambda protocol: protocol.part[1]):
        languages = [list(members) for _, members in groupby(of_translator, key=lambda protocol: protocol.part)]
        for start in range(0, len(languages), LANGUAGES_AT_ONCE):
            yield [protocol for members in languages[start : start + LANGUAGES_AT_ONCE] for protocol in members]
