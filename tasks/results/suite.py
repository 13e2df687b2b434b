"""One ranking of the encoders of a suite over its corpora: rows of ``schema.RANKINGS``.

The encoders of a suite seldom have all corpora. Ranked is the largest block of corpora and encoders in which every
encoder has the headline of every corpus; of two equally large ones, that with more corpora. Encoders outside have a row
with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from store.schema import RANKINGS
from store.types import digest16
from tasks.metrics import METRICS, metrics_of
from tasks.metrics.headline import Figure
from tasks.scoring.outcomes import Outcomes
from tasks.statistics.clusters import Clusters, Drawn, known_queries
from tasks.statistics.ranking.suite import LEAST_CORPORA, rank_over_corpora
from tasks.statistics.resampling import Resampling
from tasks.statistics.statistic import ClusteredValues


class EncoderId(NamedTuple):
    """One encoder at one revision."""

    name: str
    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class CorpusHeadline:
    """The headline of one corpus, encoder by encoder.

    Attributes:
        figures: Their mean is the headline.
        values: Encoder -> its values for every figure on the same queries, shape ``(n_queries,)``, or why it has no
            headline.
    """

    corpus: str
    fingerprint: str
    figures: tuple[Figure, ...]
    values: Mapping[EncoderId, Sequence[ClusteredValues] | str]

    @property
    def title(self) -> str:
        """What the headline is: ``R@1 under t2i/all and i2t/any``."""
        protocols = [figure.protocol for figure in self.figures]
        if len(protocols) < 3:
            return f"{self.figures[0].metric} under {' and '.join(protocols)}"
        return f"{self.figures[0].metric} under {len(protocols)} protocols, {protocols[0]} to {protocols[-1]}"

    @property
    def encoders(self) -> frozenset[EncoderId]:
        """The encoders that have the headline."""
        return frozenset(encoder for encoder, values in self.values.items() if not isinstance(values, str))


def figure_values(outcomes: Outcomes, figure: Figure, drawn: Drawn) -> ClusteredValues | str:
    """The values of a figure of the headline, or why these outcomes have none."""
    metric = METRICS[figure.metric]
    if metric not in metrics_of(outcomes):
        return f"its outcomes under {figure.protocol} leave {metric.name} open"
    if not metric.higher_is_better:
        return f"the lowest {metric.name} is the best, and a mean over corpora takes the highest for that"
    values = metric.per_query(outcomes)
    if not known_queries(values).all():
        return f"{metric.name} under {figure.protocol} does not apply to all of its queries"
    return ClusteredValues(values, Clusters.of(outcomes.clusters, drawn, outcomes.weights))


def ranking_rows(corpora: Sequence[CorpusHeadline], *, run: str, resampling: Resampling) -> pa.Table:
    """Rows of ``schema.RANKINGS``: for every ranked encoder one per estimand and statistic, one for each left out.

    No rows without ``LEAST_CORPORA`` corpora on which at least two encoders have the headline.
    """
    block = largest_block({corpus.corpus: corpus.encoders for corpus in corpora})
    chosen = [corpus for corpus in corpora if corpus.corpus in block]
    if not chosen:
        return RANKINGS.empty_table()
    every = dict.fromkeys(encoder for corpus in corpora for encoder in corpus.values)
    ranked = [encoder for encoder in every if all(encoder in corpus.encoders for corpus in chosen)]
    identity = [[corpus.fingerprint for corpus in corpora], [encoder.fingerprint for encoder in every]]
    facts = {
        "ranking": digest16([*map(sorted, identity)]),
        "n_corpora": len(chosen),
        "n_encoders": len(ranked),
        "corpora": json.dumps(
            [{"corpus": c.corpus, "fingerprint": c.fingerprint, "headline": c.title} for c in chosen]
        ),
        "level": resampling.level,
        "replicates": resampling.replicates,
        "permutations": resampling.permutations,
        "seed": resampling.seed,
        "run": run,
        "created": datetime.now(UTC),
    }
    subjects = {
        encoder: {
            "encoder": encoder.name,
            "encoder_fingerprint": encoder.fingerprint,
            "headlines": json.dumps(_headlines(encoder, chosen)),
        }
        for encoder in every
    }
    rows: list[dict[str, Any]] = []
    standings = rank_over_corpora([_parts(corpus, ranked) for corpus in chosen], resampling)
    for (estimand, statistic), of_encoders in standings.items():
        for encoder, (figure, held) in zip(ranked, of_encoders, strict=True):
            rows.append(
                {
                    **facts,
                    **subjects[encoder],
                    "estimand": estimand,
                    "statistic": statistic,
                    "rank": 1 + sum(other.value > figure.value + 1e-12 for other, _ in of_encoders),
                    "value": figure.value,
                    "ci_low": figure.low,
                    "ci_high": figure.high,
                    "interval_method": figure.method,
                    "rank_low": held.best if held else None,
                    "rank_high": held.worst if held else None,
                    "tied_with_best": held.tied_with_best if held else None,
                    "reason": figure.reason,
                }
            )
    rows += [
        {
            **facts,
            **subjects[encoder],
            "estimand": "these corpora",
            "statistic": "macro mean",
            "interval_method": "none",
            "reason": "left out: " + "; ".join(_lacking(encoder, chosen)),
        }
        for encoder in every
        if encoder not in ranked
    ]
    return pa.Table.from_pylist(rows, schema=RANKINGS)


def largest_block(encoders_of: Mapping[str, frozenset[EncoderId]]) -> frozenset[str]:
    """The corpora of the largest block of corpora and encoders without a gap; empty if none is large enough.

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
    """For every figure of the headline the values of these encoders, which have it."""
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
    """Why the encoder is not ranked: each reason with the corpora that it is about."""
    names: dict[str, list[str]] = {}
    for corpus in corpora:
        reason = corpus.values.get(encoder, "not evaluated")
        if isinstance(reason, str):
            names.setdefault(reason, []).append(corpus.corpus)
    return [f"{reason} on {', '.join(of_reason)}" for reason, of_reason in names.items()]
