"""What two encoders are to each other under one metric, as rows of ``schema.PAIR_FACTS``: stored for any family."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store.schema import PAIR_FACTS
from capim.tasks.results.comparison import EFFECT_SIZES, ComparedFigure
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.flips import MedianFlips
from capim.tasks.statistics.intervals import Interval
from capim.tasks.statistics.pairs import Effect, Pair, PairFacts, Tally, all_pair_facts

_CODEC: Final = "zstd"
_OF_INTERVAL = {
    "low": "ci_low", "high": "ci_high", "standard_error": "standard_error", "method": "interval_method",
    "reason": "interval_reason",
}  # fmt: skip
"""Field of an interval -> its column."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EncoderPair:
    """Two encoders that are compared by one figure."""

    figure: ComparedFigure
    names: Pair
    evaluations: Pair
    resampling: Resampling

    @property
    def settings(self) -> dict[str, Any]:
        """All that their facts depend on beside the outcomes and the metric."""
        of_medians = ("permutations",) if self.figure.scale.reduce == "median" else ()
        named = ("replicates", "seed", "level", "method", "margin", *of_medians)
        return {name: getattr(self.resampling, name) for name in named} | {"share": self.figure.scale.share}


def made_facts(pairs: Sequence[EncoderPair]) -> list[PairFacts]:
    """The facts of pairs, in their order; those of one figure are made together."""
    by_figure: dict[ComparedFigure, list[EncoderPair]] = {}
    for pair in pairs:
        by_figure.setdefault(pair.figure, []).append(pair)
    found: dict[EncoderPair, PairFacts] = {}
    for figure, members in by_figure.items():
        names, resampling = [member.names for member in members], members[0].resampling
        facts = all_pair_facts(figure.values, figure.clusters, names, resampling, figure.scale)
        found |= {member: facts[member.names] for member in members}
    return [found[pair] for pair in pairs]


def pair_rows(pairs: Iterable[EncoderPair], facts: Iterable[PairFacts], *, run: str) -> pa.Table:
    """One row of ``schema.PAIR_FACTS`` per pair, without its key."""
    created = datetime.now(UTC)
    rows = [
        {
            "derived": "",
            "evaluation_a": pair.evaluations[0],
            "evaluation_b": pair.evaluations[1],
            "protocol": pair.figure.figure.protocol,
            "metric": pair.figure.figure.metric,
            "difference": of_pair.difference.value if np.isfinite(of_pair.difference.value) else None,
            **{column: getattr(of_pair.difference, field) for field, column in _OF_INTERVAL.items()},
            **(of_pair.effect.tally._asdict() if of_pair.effect.tally else {}),
            **{name: getattr(of_pair.effect, name) for name in EFFECT_SIZES},
            "effect_reasons": of_pair.effect.reasons,
            "p_equivalent": of_pair.p_equivalent,
            **(_packed(of_pair.flips) if of_pair.flips else {}),
            "run": run,
            "created": created,
        }
        for pair, of_pair in zip(pairs, facts, strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=PAIR_FACTS)


def facts_of(row: Mapping[str, Any]) -> PairFacts:
    """The facts in a row of ``schema.PAIR_FACTS``."""
    value = np.nan if row["difference"] is None else row["difference"]
    return PairFacts(
        difference=Interval(value=value, **{field: row[column] for field, column in _OF_INTERVAL.items()}),
        effect=Effect(
            tally=None if row["wins"] is None else Tally(row["wins"], row["ties"], row["losses"]),
            **{name: row[name] for name in EFFECT_SIZES},
            reasons=tuple(row["effect_reasons"]),
        ),
        p_equivalent=row["p_equivalent"],
        flips=None if row["flips"] is None else _unpacked(row),
    )


def _packed(flips: MedianFlips) -> dict[str, object]:
    drawn = pa.compress(flips.drawn.tobytes(), codec=_CODEC, asbytes=True)
    return {
        "distance": flips.observed,
        "p_exact": None if np.isnan(flips.p) else flips.p,
        "n_flips": len(flips.drawn),
        "flips": drawn,
    }


def _unpacked(row: Mapping[str, Any]) -> MedianFlips:
    raw = pa.decompress(row["flips"], row["n_flips"] * np.dtype(np.float64).itemsize, codec=_CODEC, asbytes=True)
    drawn: NDArray[np.float64] = np.frombuffer(raw, dtype=np.float64)
    return MedianFlips(row["distance"], np.nan if row["p_exact"] is None else row["p_exact"], drawn)
