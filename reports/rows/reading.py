"""Reads the rows of a report out of a store, the newest where several say the same thing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from reports.rows.cases import PROTOCOL, Case, choose
from reports.rows.report_data import TABLES, Evidence, Row, Source
from store.errors import RequestError
from store.types import Corpus

Describe: TypeAlias = Callable[[Sequence[str]], Mapping[str, NDArray[np.bool_]]]
EXAMPLES = frozenset({"false negative", "hub"})  # kinds of errors whose examples join the gallery


def read_evidence(source: Source, *, run: str | None = None, describe: Describe | None = None) -> Evidence:
    """All rows that a report of this store shows.

    Args:
        source: The store.
        run: Only the figures that this run wrote; by default the newest of each, whoever wrote them.
        describe: Gives the features of English captions (``tasks.diagnosis.wording.complexity.caption_features``)
            for the filter of the gallery; reports themselves import no analysis.

    Returns:
        Per encoder name and corpus name only the newest fingerprints: figures of two states of one corpus
        never stand in one table. What is left out is said in ``left_out``.

    Raises:
        RequestError: There are no results.
    """
    tables = {name: source.rows(name).to_pylist() for name in TABLES}
    results: list[Row] = [r for r in tables["results"] if run in (None, r["run"])]
    if not results:
        asked = f"run {run!r} wrote no results" if run else "there are no results yet"
        known = ", ".join(sorted({r["run"] for r in tables["results"]})[-5:])
        step = f"the newest runs with results: {known}" if known else "run `capim run` (or `capim demo`) first"
        raise RequestError(f"store {source.uri}: {asked}; {step}")

    corpora = _newest(results, "corpus", "corpus_fingerprint")
    current = [r for r in results if corpora[r["corpus"]] == r["corpus_fingerprint"]]
    encoders = _newest(current, "encoder", "encoder_fingerprint")
    current = [r for r in current if encoders[r["encoder"]] == r["encoder_fingerprint"]]
    newest = {(r["corpus"], r["protocol"], r["metric"], r["encoder"]): r for r in sorted(current, key=_age)}
    kept = tuple(newest[key] for key in sorted(newest))

    def ours(row: Row) -> bool:
        return bool(encoders.get(row["encoder"]) == row["encoder_fingerprint"]) and row["corpus"] in corpora

    def same_corpus(row: Row) -> bool:
        return bool(corpora.get(row["corpus"]) == row["corpus_fingerprint"])

    comparisons = {
        (r["corpus"], r["protocol"], r["metric"], r["encoder_a"], r["encoder_b"]): r
        for r in sorted(tables["comparisons"], key=_age)
        if same_corpus(r)
        and encoders.get(r["encoder_a"]) == r["fingerprint_a"]
        and encoders.get(r["encoder_b"]) == r["fingerprint_b"]
    }
    slices = {
        (r["corpus"], r["protocol"], r["analysis"], r["metric"], r["feature"], r["level_name"], r["encoder"]): r
        for r in sorted(tables["slices"], key=_age)
        if same_corpus(r) and ours(r)
    }
    batches = sorted((r for r in tables["batches"] if ours(r)), key=lambda r: (r["created"], r["batch_id"]))
    chosen = [*kept, *comparisons.values(), *slices.values(), *batches]
    named = {r["run"] for r in chosen}
    runs = sorted((r for r in tables["runs"] if r["run"] in named), key=lambda r: (r["started"], r["run"]))
    sets = [
        s
        for s in source.sealed_sets()
        if corpora.get(s.key.corpus) == s.key.corpus_fingerprint
        and encoders.get(s.key.encoder) == s.key.encoder_fingerprint
    ]
    contents = {name: source.corpus(name, fingerprint) for name, fingerprint in sorted(corpora.items())}
    cases = _cases(source, kept, slices.values())
    return Evidence(
        uri=source.uri,
        results=kept,
        comparisons=tuple(comparisons[key] for key in sorted(comparisons)),
        slices=tuple(slices[key] for key in sorted(slices)),
        batches=tuple(batches),
        runs=tuple(runs),
        sets=tuple(sorted(sets, key=lambda s: (s.key.corpus, s.key.encoder, s.key.modality))),
        specs={name: source.encoder(fingerprint) for name, fingerprint in sorted(encoders.items())},
        corpora=contents,
        cases=cases,
        features=_features(cases, contents, describe) if describe is not None else {},
        pictures=_pictures(source, cases, contents),
        left_out=tuple(_left_out(results, corpora, encoders)),
    )


def _cases(source: Source, results: Sequence[Row], slices: Iterable[Row]) -> tuple[Case, ...]:
    """The gallery's queries, from the outcomes behind the kept results."""
    evaluations: dict[str, dict[str, str]] = {}
    for row in results:
        if row["protocol"] == PROTOCOL:
            evaluations.setdefault(row["corpus"], {})[row["encoder"]] = row["evaluation"]
    examples: dict[str, dict[str, list[str]]] = {}
    for row in slices:
        if row["analysis"] == "errors" and row["protocol"] == PROTOCOL and row["feature"] in EXAMPLES and row["detail"]:
            found = examples.setdefault(row["corpus"], {}).setdefault(row["feature"], [])
            found += json.loads(row["detail"]).get("examples", [])
    cases: list[Case] = []
    for corpus, of in sorted(evaluations.items()):
        outcomes = {name: source.rows("outcomes", evaluation=digest) for name, digest in of.items()}
        cases += choose(corpus, outcomes, examples.get(corpus))
    return tuple(cases)


def _features(
    cases: Sequence[Case], corpora: Mapping[str, Corpus], describe: Describe
) -> dict[tuple[str, str], tuple[str, ...]]:
    """Corpus and query to what the caption speaks of, for English captions."""
    captions = {}
    for case in cases:
        row = corpora[case.corpus].captions.slice(case.caption, 1).to_pylist()[0]
        if row["text"] is not None and row["language"].lower().startswith("en"):
            captions[case.corpus, case.query_id] = row["text"]
    found = describe(list(captions.values())) if captions else {}
    return {key: tuple(name for name, has in sorted(found.items()) if has[place]) for place, key in enumerate(captions)}


def _pictures(source: Source, cases: Iterable[Case], corpora: Mapping[str, Corpus]) -> dict[str, bytes]:
    """Thumbnails of every image that a case shows, by hash; images without one are left out."""
    wanted = set[str]()
    for case in cases:
        shas = corpora[case.corpus].images["sha"]
        ords = {case.image, *(ord_ for answer in case.answers for ord_, _ in answer.top)}
        wanted |= {sha for ord_ in ords if (sha := shas[ord_].as_py()) is not None}
    return dict(sorted(source.thumbnails(sorted(wanted)).items())) if wanted else {}


def _age(row: Row) -> tuple[datetime, str]:
    """Sort key by time; equal times by run, so that the choice never depends on the order of storage."""
    return row["created"], row["run"]


def _newest(rows: Iterable[Row], name: str, fingerprint: str) -> dict[str, str]:
    """Name to the fingerprint of its newest row."""
    return {r[name]: r[fingerprint] for r in sorted(rows, key=_age)}


def _left_out(results: Iterable[Row], corpora: Mapping[str, str], encoders: Mapping[str, str]) -> list[str]:
    """One sentence per older state of a corpus or an encoder that has figures in the store."""
    sentences = set()
    for row in results:
        if corpora[row["corpus"]] != row["corpus_fingerprint"]:
            sentences.add(
                f"figures on an older state of corpus {row['corpus']} (fingerprint {row['corpus_fingerprint']}): "
                "its contents have changed since"
            )
        elif encoders.get(row["encoder"]) != row["encoder_fingerprint"]:
            sentences.add(
                f"figures of an older {row['encoder']} (fingerprint {row['encoder_fingerprint']}): "
                "its revision or settings have changed since"
            )
    return sorted(sentences)
