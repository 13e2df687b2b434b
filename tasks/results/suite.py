"""One ranking of the encoders of a suite over its corpora: rows of table ``rankings``.

The encoders of a suite seldom have all corpora. Ranked is the largest block of corpora and encoders in which every
encoder has the headline of every corpus; of two equally large ones, that with more corpora. Results on which no encoder
that could be ranked is above chance do not count (``statistics.decision.counted``), and an encoder that is at chance by
all that count is not ranked. Encoders outside have a row with the reason. A photograph that several corpora have is one
unit in all of them, and one corpus under two names is ranked once.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capim.store.schema import Ranking, texts
from capim.store.types import Corpus, digest16
from capim.tasks.corpora.images.source import photograph_key
from capim.tasks.corpora.subset import first_linked
from capim.tasks.metrics import METRICS, metrics_of
from capim.tasks.metrics.table import Figure
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import drawn_clusters
from capim.tasks.statistics.clusters import Clusters, SamplingFrame, known_queries
from capim.tasks.statistics.decision import counted
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import ClusteredValues, Interval
from capim.tasks.statistics.ranking import LEAST_CORPORA, rank_over_corpora


class EncoderId(NamedTuple):
    """One encoder at one revision."""

    name: str
    fingerprint: str


class Photograph(NamedTuple):
    """The identity of a photograph: the hash of its bytes, or within a corpus without them, its file name."""

    sha: str | None
    name: str


@dataclass(frozen=True, kw_only=True)
class CorpusHeadline:
    """The headline of one corpus, encoder by encoder.

    Attributes:
        figures: Results with the mean that is the headline.
        values: Encoder -> its values for every result on the same queries, shape ``(n_queries,)``, or why it has no
            headline.
        contents: Equal for corpora of the same photographs and captions, whatever they are called.
        photographs: Of every cluster.
        copies: Other names of the same corpus.
        at_chance: Result -> the encoders that were tested and are not shown above chance by it.
    """

    corpus: str
    fingerprint: str
    figures: tuple[Figure, ...]
    values: Mapping[EncoderId, Sequence[ClusteredValues] | str]
    contents: str
    photographs: Sequence[Sequence[Photograph]]
    copies: tuple[str, ...] = ()
    at_chance: Mapping[Figure, Collection[EncoderId]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Return the headline in words: ``R@1 under t2i/all and i2t/any``."""
        protocols = list(dict.fromkeys(figure.protocol for figure in self.figures))
        if len(protocols) < 3:
            return f"{self.figures[0].metric} under {' and '.join(protocols)}"
        return f"{self.figures[0].metric} under {len(protocols)} protocols, {protocols[0]} to {protocols[-1]}"

    @property
    def encoders(self) -> frozenset[EncoderId]:
        """Return the encoders that have the headline."""
        return frozenset(encoder for encoder, values in self.values.items() if not isinstance(values, str))


def counted_headlines(corpora: Sequence[CorpusHeadline]) -> tuple[list[CorpusHeadline], list[str]]:
    """Return the corpora with the results that count, and the names of corpora without any."""
    weak = {(c.corpus, *f): {e: e in c.at_chance.get(f, ()) for e in c.encoders} for c in corpora for f in c.figures}
    kept, found = counted(weak), []
    for corpus in corpora:
        places = [at for at, figure in enumerate(corpus.figures) if (corpus.corpus, *figure) in kept]
        values = {e: of if isinstance(of, str) else [of[at] for at in places] for e, of in corpus.values.items()}
        found.append(replace(corpus, figures=tuple(corpus.figures[at] for at in places), values=values))
    return [each for each in found if each.figures], [of.corpus for of in found if of.encoders and not of.figures]


def figure_values(outcomes: Outcomes, figure: Figure, drawn: SamplingFrame) -> ClusteredValues | str:
    """Return the values of a result of the headline, or why these outcomes have none."""
    metric = METRICS[figure.metric]
    if metric not in metrics_of(outcomes):
        return f"its outcomes under {figure.protocol} leave {metric.name} open"
    if not metric.higher_is_better:
        return f"the lowest {metric.name} is the best, and a mean over corpora takes the highest for that"
    values = metric.per_query(outcomes)
    if not known_queries(values).all():
        return f"{metric.name} under {figure.protocol} does not apply to all of its queries"
    return ClusteredValues(values, Clusters.of(outcomes.clusters, drawn, outcomes.weights))


def contents_of(corpus: Corpus, photographs: Iterable[Photograph]) -> str:
    """Return a digest of the photographs (:func:`photographs_of`) and captions of a corpus, but not of its name."""
    images = sorted(sha or name for sha, name in photographs)
    captions = sorted(zip(*(map(str, corpus.captions[c].to_pylist()) for c in ("text", "language")), strict=True))
    return digest16([images, captions, len(corpus.pairs), len(corpus.quadruples)])


def cluster_photographs(
    corpus: Corpus, photographs: Sequence[Photograph], protocol: Protocol
) -> list[tuple[Photograph, ...]]:
    """Return the photographs of every cluster that a protocol draws; of judged documents, the query instead."""
    if protocol.kind == "judged":
        asked = zip(texts(corpus.captions["id"]), corpus.captions["text"].to_pylist(), strict=True)
        return [(Photograph(f"query {text or id_}", ""),) for id_, text in asked]
    if protocol.direction == "quadruples":
        of_id = dict(zip(texts(corpus.images["id"]), photographs, strict=True))
        both = zip(*(texts(corpus.quadruples[column]) for column in ("image_0", "image_1")), strict=True)
        return [(of_id[first], of_id[second]) for first, second in both]
    drawn = drawn_clusters(corpus, protocol)
    if isinstance(drawn, int):
        return [(photograph,) for photograph in photographs[:drawn]]
    shown: list[list[Photograph]] = [[] for _ in range(int(drawn.max()) + 1)]
    for photograph, cluster in zip(photographs, drawn.tolist(), strict=False):  # images after the last one are searched
        if cluster >= 0:
            shown[cluster].append(photograph)
    return list(map(tuple, shown))


def photographs_of(corpus: Corpus) -> list[Photograph]:
    """Return the photograph of every image; a box of a photograph has no bytes of it."""
    keys = texts(corpus.images["key"])
    return [
        Photograph(sha if key == photograph_key(key) else None, PurePosixPath(photograph_key(key)).name)
        for sha, key in zip(corpus.images["sha"].to_pylist(), keys, strict=True)
    ]


def named_once(corpora: Sequence[CorpusHeadline]) -> list[CorpusHeadline]:
    """Return each corpus once: the one that most encoders have, with the names of others with the same contents."""
    same: dict[tuple[str, tuple[Figure, ...]], list[CorpusHeadline]] = {}
    for corpus in corpora:
        same.setdefault((corpus.contents, corpus.figures), []).append(corpus)
    kept = [max(copies, key=lambda corpus: len(corpus.encoders)) for copies in same.values()]
    return [
        replace(corpus, copies=tuple(other.corpus for other in copies if other is not corpus))
        for corpus, copies in zip(kept, same.values(), strict=True)
    ]


class SharedPhotographs(NamedTuple):
    """The clusters of several corpora that are of the same photographs.

    ``units``: for each corpus the unit of every cluster, numbered over all corpora; None where no corpora share any.
    ``common``: for each corpus how many photographs it has, and how many of them each other corpus has, too.
    """

    units: list[NDArray[np.int64]] | None
    common: list[tuple[int, dict[str, int]]]


def shared_photographs(corpora: Sequence[CorpusHeadline]) -> SharedPhotographs:
    """Return the photographs that corpora have in common, by the hash of their bytes: names are no evidence."""
    of_clusters = [
        [[sha or f"{corpus.fingerprint} {name}" for sha, name in cluster] for cluster in corpus.photographs]
        for corpus in corpora
    ]
    every = [{photograph for cluster in clusters for photograph in cluster} for clusters in of_clusters]
    names = [corpus.corpus for corpus in corpora]
    common = [
        {name: len(own & other) for name, other in zip(names, every, strict=True) if other is not own and own & other}
        for own in every
    ]
    units = None
    if any(common):
        # a cluster may have no photograph
        rows = [[None, *cluster] for clusters in of_clusters for cluster in clusters]
        owners = [at for at, row in enumerate(rows) for _ in row]
        first = first_linked([photograph for row in rows for photograph in row], owners)
        labels = np.unique(first[np.searchsorted(owners, range(len(rows)))], return_inverse=True)[1]
        units = np.split(labels, np.cumsum([len(clusters) for clusters in of_clusters])[:-1])
    return SharedPhotographs(units, [*zip(map(len, every), common, strict=True)])


def ranking_rows(corpora: Sequence[CorpusHeadline], *, run: str, resampling: Resampling) -> list[Ranking]:
    """Return for every ranked encoder one per estimand, and one for each that is left out.

    ``corpora`` are :func:`named_once`. No rows without ``LEAST_CORPORA`` of them that count, on which two encoders or
    more have the headline that are not at chance by all that count.
    """
    counting, not_counted = counted_headlines(corpora)
    every = dict.fromkeys(encoder for corpus in corpora for encoder in corpus.values)
    able = {e for of in counting for figure in of.figures for e in of.encoders.difference(of.at_chance.get(figure, ()))}
    block = largest_block({corpus.corpus: corpus.encoders & able for corpus in counting})
    chosen = [corpus for corpus in counting if corpus.corpus in block]
    if not chosen:
        return []
    ranked = [encoder for encoder in every if encoder in able and all(encoder in of.encoders for of in chosen)]
    identity = [[corpus.fingerprint for corpus in corpora], [encoder.fingerprint for encoder in every]]
    shared = shared_photographs(chosen)
    described = [
        {"corpus": each.corpus, "fingerprint": each.fingerprint, "headline": each.title}
        | {"copies": each.copies, "photographs": n_photographs, "shared": common, "not_counted": not_counted}
        for each, (n_photographs, common) in zip(chosen, shared.common, strict=True)
    ]

    def row(encoder: EncoderId, estimand: str, interval: Interval, rank: int | None = None) -> Ranking:
        return Ranking(
            ranking=digest16([*map(sorted, identity)]),
            encoder=encoder.name,
            encoder_fingerprint=encoder.fingerprint,
            estimand=estimand,
            value=interval.value if rank else None,
            ci_low=interval.low,
            ci_high=interval.high,
            interval_method=interval.method,
            rank=rank,
            n_corpora=len(chosen),
            n_encoders=len(ranked),
            corpora=json.dumps(described),
            headlines=json.dumps(_headlines(encoder, chosen)),
            level=resampling.level,
            permutations=resampling.permutations,
            seed=resampling.seed,
            reason=interval.reason,
            run=run,
            created=datetime.now(UTC),
        )

    rows: list[Ranking] = []
    standings = rank_over_corpora([_parts(corpus, ranked) for corpus in chosen], resampling, shared.units)
    for estimand, of_encoders in standings.items():
        for encoder, (figure, held, n_effective) in zip(ranked, of_encoders, strict=True):
            rank = 1 + sum(other.value > figure.value + 1e-12 for other, *_ in of_encoders)
            of_encoder = replace(row(encoder, estimand, figure, rank), n_effective=n_effective)
            if held:
                best, worst, tied = held.best, held.worst, held.tied_with_best
                of_encoder = replace(of_encoder, rank_low=best, rank_high=worst, tied_with_best=tied)
            rows.append(of_encoder)
    for encoder in every:
        if encoder not in ranked:
            at_chance = f"not shown above chance on {', '.join(corpus.corpus for corpus in chosen)}"
            reason = "not ranked: " + ("; ".join(_lacking(encoder, chosen)) or at_chance)
            rows.append(row(encoder, "these corpora", Interval(value=np.nan, reason=reason)))
    return rows


def largest_block(encoders_of: Mapping[str, frozenset[EncoderId]]) -> frozenset[str]:
    """Return the corpora of the largest block of corpora and encoders without a gap; empty if none is large enough.

    Large enough are ``LEAST_CORPORA`` corpora and two encoders.

    Examples:
        >>> a, b, c = (EncoderId(name, name) for name in "abc")
        >>> both, all_three = frozenset([a, b]), frozenset([a, b, c])
        >>> sorted(largest_block({"coco": all_three, "flickr": both, "shapes": all_three, "bivlc": frozenset([c])}))
        ['coco', 'flickr', 'shapes']
    """
    corpora_of = {
        encoder: frozenset(corpus for corpus, has in encoders_of.items() if encoder in has)
        for encoder in frozenset[EncoderId]().union(*encoders_of.values())
    }
    candidates: set[frozenset[str]] = set()
    for corpora in set(corpora_of.values()):
        candidates |= {corpora, *(corpora & other for other in candidates)}

    def size(corpora: frozenset[str]) -> tuple[int, int, list[str]]:
        n_encoders = sum(corpora <= has for has in corpora_of.values())
        fits = len(corpora) >= LEAST_CORPORA and n_encoders > 1
        return len(corpora) * n_encoders * fits, len(corpora) * fits, sorted(corpora)

    best = max(candidates, key=size, default=frozenset())
    return best if size(best)[0] else frozenset()


def _parts(corpus: CorpusHeadline, encoders: Iterable[EncoderId]) -> list[ClusteredValues]:
    """For every result of the headline the values of these encoders, which have it."""
    of_encoders = [corpus.values[encoder] for encoder in encoders]
    return [
        ClusteredValues(np.stack([one.values for one in figure]), figure[0].clusters)
        for figure in zip(*(values for values in of_encoders if not isinstance(values, str)), strict=True)
    ]


def _headlines(encoder: EncoderId, corpora: Sequence[CorpusHeadline]) -> dict[str, float]:
    found = {}
    for corpus in corpora:
        values = corpus.values.get(encoder, "")
        if not isinstance(values, str):
            found[corpus.corpus] = float(np.mean([clusters.mean(np.asarray(row)) for row, clusters in values]))
    return found


def _lacking(encoder: EncoderId, corpora: Sequence[CorpusHeadline]) -> list[str]:
    """Return why the encoder is not ranked: each reason with the corpora that it is about."""
    names: dict[str, list[str]] = {}
    for corpus in corpora:
        reason = corpus.values.get(encoder, "not evaluated")
        if isinstance(reason, str):
            names.setdefault(reason, []).append(corpus.corpus)
    return [f"{reason} on {', '.join(of_reason)}" for reason, of_reason in names.items()]
