"""The pinned run that a watch compares with: of every figure the first watch of it, or the run that a user named.

A figure keeps its baseline from watch to watch, so that small drops add up. ``--baseline RUN`` pins another run for all
figures that this run has; later watches keep it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from capim.store import EmbeddingStore
from capim.store.errors import RequestError, did_you_mean
from capim.tasks.runtime.references import SEVERAL_PROTOCOLS

NAMED = 5  # runs that an error names


class FigureId(NamedTuple):
    """What a baseline is kept for: encoder, corpus and protocol by name."""

    encoder: str
    corpus: str
    protocol: str


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """The pinned run of a figure, and the evaluation that it had there."""

    run: str
    evaluation: str


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """Figure -> its pinned run, and when these figures were last watched; None for the first time."""

    figures: Mapping[FigureId, Pinned]
    last: datetime | None


def pinned_baselines(store: EmbeddingStore, ids: Sequence[FigureId], *, run: str, baseline: str | None) -> Baselines:
    """The baselines of these figures: in ``baseline`` where that run has the figure, else as in their last watch."""
    wanted = set(ids)
    names = {"encoder": sorted({each.encoder for each in ids}), "corpus": sorted({each.corpus for each in ids})}
    watched = [row for row in store.rows("watched", **names).sort_by("created").to_pylist() if row["run"] != run]
    kept = {_id(row): row for row in watched if _id(row) in wanted}  # the newest row of each figure
    figures = {each: Pinned(run=row["baseline"], evaluation=row["baseline_evaluation"]) for each, row in kept.items()}
    if baseline is not None:
        of_run = evaluations_of_run(store, baseline)
        figures |= {
            each: Pinned(run=baseline, evaluation=evaluation) for each, evaluation in of_run.items() if each in wanted
        }
    return Baselines(figures=figures, last=max((row["created"] for row in kept.values()), default=None))


def evaluations_of_run(store: EmbeddingStore, run: str) -> dict[FigureId, str]:
    """The evaluations that a run watched, or for other runs those that it wrote."""
    rows = store.rows("watched", run=run).to_pylist() or store.rows("results", run=run).to_pylist()
    return {_id(row): row["evaluation"] for row in rows if SEVERAL_PROTOCOLS.isdisjoint(row["protocol"])}


def run_fault(store_uri: str, run: str, encoders: Sequence[str]) -> str | None:
    """Why a run cannot be the baseline of these encoders, with runs that can; None if it has figures of one of them."""
    try:
        store = EmbeddingStore.open(store_uri)
    except RequestError:
        return f"run {run!r} cannot be pinned, there is no store at {store_uri} yet; leave --baseline out"
    found = {each.encoder for each in evaluations_of_run(store, run)}
    if not found.isdisjoint(encoders):
        return None
    having = {
        *store.counts("watched", "run", encoder=list(encoders)),
        *store.counts("results", "run", encoder=list(encoders)),
    }
    newest = sorted(having, reverse=True)
    shown = ", ".join(newest[:NAMED]) + (" …" if len(newest) > NAMED else "")
    advice = f"runs with such figures: {shown}" if newest else "leave --baseline out: this watch becomes the baseline"
    if found:
        what = f"run {run!r} has no figures of {', '.join(encoders)}, only of {', '.join(sorted(found))}"
    elif store.counts("runs", "run", run=run):
        what = f"run {run!r} wrote no figures, so it cannot be the baseline"
    else:
        what = f"run {run!r} is not in {store.uri}"
    return f"{what}; {did_you_mean(run, newest)}{advice}"


def dates_of(store: EmbeddingStore, runs: Sequence[str]) -> dict[str, str]:
    """Run -> the day that it started, as ``2026-11-15``."""
    rows = store.rows("runs", run=list(runs)).to_pylist() if runs else []
    started = {row["run"]: f"{row['started']:%Y-%m-%d}" for row in rows}
    return {run: started.get(run, "an unknown date") for run in runs}


def _id(row: Mapping[str, str]) -> FigureId:
    return FigureId(row["encoder"], row["corpus"], row["protocol"])
