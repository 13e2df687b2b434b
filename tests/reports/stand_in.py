"""A store in memory, made of the schemas of ``store.schema``: what the report tests and the bench read.

Figures are drawn from a seed; nothing here was measured. The values only have to be the shape that real ones
have: intervals around values, ties, nulls with reasons, several protocols, tests between all pairs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capim.reports.elements.page import Report, Section, Table
from capim.reports.rows.reading import read_report_data
from capim.reports.rows.report_data import ReportData
from capim.reports.write import report_of
from capim.store import EmbeddingStore, schema
from capim.store.current import Registered, Uses
from capim.store.row_types import rows_in
from capim.store.schema import Run, StoredCorpus
from capim.store.sets.sealed import SealedSet
from capim.store.types import MODALITIES, Corpus, EncoderSpec, SetKey, canonical_json, digest16
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.metrics import METRICS
from capim.tasks.protocols import MAIN
from capim.tasks.statistics import VERSION
from capim.tasks.statistics.chance import chance_p
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.decision import SHARERS
from tests.random_store import row_of

SCHEMAS: dict[str, pa.Schema] = {name: table.columns for name, table in schema.TABLES.items()}
START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@dataclass
class StandIn(EmbeddingStore):
    """Reads like ``store.EmbeddingStore``."""

    uri: str = "memory://stand-in"
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {name: [] for name in SCHEMAS})
    specs: dict[str, EncoderSpec] = field(default_factory=dict)
    contents: dict[str, Corpus] = field(default_factory=dict)
    sets: list[SealedSet] = field(default_factory=list)
    pictures: dict[str, bytes] = field(default_factory=dict)
    arrow: dict[str, pa.Table] = field(default_factory=dict)  # outcomes by evaluation, where there are many

    def rows(self, table: str, **equals: str | Sequence[str]) -> pa.Table:
        if table == "outcomes" and equals.get("evaluation") in self.arrow:
            return self.arrow[str(equals["evaluation"])]

        def fits(row: Mapping[str, Any]) -> bool:
            return all(row[k] == v if isinstance(v, str) else row[k] in v for k, v in equals.items())

        return pa.Table.from_pylist([r for r in self.tables[table] if fits(r)], schema=SCHEMAS[table])

    def outcomes(self, evaluations: Sequence[str]) -> dict[str, pa.Table]:
        return {evaluation: self.rows("outcomes", evaluation=evaluation) for evaluation in evaluations}

    def uses(self, until: datetime | None = None) -> Uses:
        return {}  # nothing in it was derived

    def registered(self) -> Registered:
        return {}

    def keys_of(self, run: str) -> set[str]:
        return set()

    def sealed_sets(self) -> list[SealedSet]:
        return self.sets

    def encoder(self, name_or_fingerprint: str) -> EncoderSpec:
        return next(s for s in self.specs.values() if name_or_fingerprint in (s.name, s.fingerprint))

    def corpus(self, name: str, fingerprint: str | None = None) -> Corpus:
        return self.contents[name]

    def corpora(self) -> list[StoredCorpus]:
        return rows_in(StoredCorpus, pa.table({"fingerprint": [each.fingerprint for each in self.contents.values()]}))

    def thumbnails(self, shas: Sequence[str]) -> dict[str, bytes]:
        return {sha: self.pictures[sha] for sha in shas if sha in self.pictures}


def report(store: StandIn, run: str | None = None) -> Report:
    """The report of a stand-in."""
    return report_of(read_report_data(store, run=run))


def block(made: Report | Section, id_: str) -> Any:
    """The block with an id, of a report or of one section."""
    sections = made.sections if isinstance(made, Report) else (made,)
    [found] = [each for section in sections for each in section.blocks if getattr(each, "id", "") == id_]
    return found


def section(made: Report, id_: str) -> Section:
    """The section with an id."""
    [found] = [each for each in made.sections if each.id == id_]
    return found


def texts(table: Table) -> list[list[str]]:
    """What the cells of a table say."""
    return [[cell.text for cell in row] for row in table.rows]


def written(stand_in: StandIn, folder: Path) -> EmbeddingStore:
    """A stand-in's rows, corpora and encoders in a real store, without embeddings and outcomes."""
    store = EmbeddingStore.open(folder, create=True)
    for contents in stand_in.contents.values():
        store.write_corpus(contents)
    for model in stand_in.specs.values():
        store.write_encoder(model)
    for table, rows in stand_in.tables.items():
        if rows:
            store.write_rows(table, pa.Table.from_pylist(rows, schema=SCHEMAS[table]))
    return store


def spec(name: str, *, dim: int = 512, vectors: str = "single", licence: str = "unknown") -> EncoderSpec:
    return EncoderSpec(
        name=name,
        adapter="colvision" if vectors == "multi" else "hf_dual",
        checkpoint=f"example/{name}",
        revision=digest16(name) * 2,
        dim=dim,
        vectors=vectors,  # type: ignore[arg-type]
        licence=licence,
    )


def corpus(
    name: str,
    *,
    n_images: int,
    per_image: int = 5,
    texts: Sequence[str] = (),
    ids: Sequence[str] = (),
    skipped: Sequence[str] = (),
) -> Corpus:
    """Made-up images and captions; ``texts`` and ``ids`` replace the first captions and image ids."""
    names = [*ids, *(f"im{i:05d}" for i in range(len(ids), n_images))]
    images = [ImageRow(id_, sha=digest16([name, i]), width=64, height=48) for i, id_ in enumerate(names)]
    words = [f"picture {i} in words {k}" for i in range(n_images) for k in range(per_image)]
    words[: len(texts)] = texts
    captions = [
        CaptionRow(f"{id_}#{k}", id_, words[i * per_image + k], k)
        for i, id_ in enumerate(names)
        for k in range(per_image)
    ]
    made = build_corpus(name, images, captions, source=None, licence="CC0-1.0", origin="made for a test")
    fault = {"reason": "not an image: truncated file", "modality": "image"}
    lost = pa.Table.from_pylist([{"item_id": id_, **fault} for id_ in skipped], schema=schema.SKIPPED)
    return replace(made, skipped=lost)


def store_of(encoders: Iterable[str], **n_images: int) -> StandIn:
    """Encoders, and corpora of so many images, without figures."""
    contents = {name: corpus(name, n_images=n) for name, n in n_images.items()}
    return StandIn(specs={name: spec(name) for name in encoders}, contents=contents)


def identity(store: StandIn, encoder: str, corpus_name: str) -> dict[str, str]:
    """The columns that name an encoder and a corpus."""
    return {
        "encoder": encoder,
        "encoder_fingerprint": store.specs[encoder].fingerprint,
        "corpus": corpus_name,
        "corpus_fingerprint": store.contents[corpus_name].fingerprint,
    }


def add(store: StandIn, table: str, **columns: Any) -> None:
    """Adds a row of the first run; required columns that are not given hold what ``row_of`` fills in."""
    store.tables[table].append(vars(row_of(schema.TABLES[table].row, run="run-1", **{"created": START} | columns)))


def version_facts(metric: str) -> dict[str, Any]:
    """What is stored of a metric beside its name."""
    lower = metric in METRICS and not METRICS[metric].higher_is_better
    return {"metric": metric, "metric_version": "1", "lower_is_better": lower, "statistics_version": VERSION}


DRAWS: dict[str, Any] = {"level": 0.95, "replicates": 10_000, "seed": 0}
COUNTS: dict[str, Any] = {"n_queries": 1000, "n_clusters": 200, "n_effective": 200.0}


def result(
    store: StandIn,
    encoder: str,
    corpus_name: str,
    protocol: str,
    metric: str,
    value: float | None,
    *,
    half: float = 0.01,
    n_clusters: int = 200,
    chance: float | None = None,
    tie_share: float = 0.0,
    **more: object,
) -> None:
    """Adds one result row with a symmetric interval of the given half width, and what is stored of its metric."""
    key = {**identity(store, encoder, corpus_name), "protocol": protocol}
    figures = {} if value is None else {
        "ci_low": max(0.0, value - half), "ci_high": value + half, "standard_error": half / 1.96,
        "value_ties_lost": value - tie_share / 2, "value_ties_won": value + tie_share / 2,
        "p_chance": None if chance is None or value > 1 else chance_p(value, chance, Clusters.of(range(n_clusters))),
    }  # fmt: skip
    counts = {"n_queries": 1000, "n_clusters": n_clusters, "n_effective": float(n_clusters)}
    add(
        store,
        "results",
        result=digest16([*key.values(), metric]),
        evaluation=digest16(list(key.values())),
        **key,
        **version_facts(metric),
        value=value,
        **figures,
        tie_share=tie_share,
        chance=chance,
        interval_method="percentile" if value is not None else "none",
        **DRAWS | counts | more,
    )


def spread(difference: float, half: float) -> dict[str, Any]:
    """The columns of a difference with its intervals."""
    ends = {"low": difference - half, "high": difference + half}
    found: dict[str, Any] = {f"{kind}_{end}": at for kind in ("ci", "simultaneous") for end, at in ends.items()}
    return {"difference": difference} | found | {f"shared_{end}": [at] * len(SHARERS) for end, at in ends.items()}


def comparison(
    store: StandIn,
    corpus_name: str,
    protocol: str,
    metric: str,
    a: str,
    b: str,
    difference: float,
    p: float | None,
    *,
    half: float = 0.01,
    p_equivalent: float = 0.6,
    margin: float = 0.01,
) -> None:
    """Adds one comparison row: a minus b."""
    add(
        store,
        "comparisons",
        comparison=digest16([corpus_name, protocol, metric, a, b]),
        corpus=corpus_name,
        corpus_fingerprint=store.contents[corpus_name].fingerprint,
        protocol=protocol,
        **version_facts(metric),
        encoder_a=a,
        fingerprint_a=store.specs[a].fingerprint,
        encoder_b=b,
        fingerprint_b=store.specs[b].fingerprint,
        **spread(difference, half),
        **dict.fromkeys(("p_sign_flip", "p_adjusted"), p),
        family="headline" if (protocol in MAIN and metric == "R@1") or metric == "RSUM" else "exploratory",
        p_equivalent=p_equivalent,
        margin=margin,
        detectable_effect=0.012,
        **COUNTS,
        **DRAWS,
    )


def part(
    store: StandIn,
    encoder: str,
    corpus_name: str,
    analysis: str,
    feature: str,
    level: str,
    value: float,
    *,
    half: float = 0.02,
    **more: object,
) -> None:
    """Adds one slice row: a feature's level in an analysis of R@1 of text to image, unless ``more`` says otherwise."""
    names = {"analysis": analysis, "analysis_version": "1", "feature": feature, "level_name": level}
    figures = {"value": value, "ci_low": value - half, "ci_high": value + half, "n_queries": 200, "n_clusters": 40}
    row = {**identity(store, encoder, corpus_name), "protocol": "t2i/all", "metric": "R@1", **names, **figures, **more}
    add(store, "slices", slice=digest16([encoder, row["metric"], analysis, feature, level]), **row)


MEASURED: dict[str, Any] = {
    "n_items": 32, "batch_size": 32, "forward_precision": "float32", "device": "Example CPU, 2 cores",
    "versions": json.dumps({"torch": "2.9.0", "transformers": "5.0.0"}),
}  # fmt: skip


def batches(store: StandIn, encoder: str, corpus_name: str, *, seconds_per_item: float, n: int = 12) -> None:
    """Adds a warm-up and ``n`` counted batches of images and of captions."""
    rng = np.random.default_rng(len(encoder))
    names = identity(store, encoder, corpus_name)
    del names["corpus_fingerprint"]
    for modality, factor in (("image", 1.0), ("caption", 0.2)):
        for i in range(n + 1):
            jitter = float(rng.uniform(0.95, 1.1))
            add(
                store,
                "batches",
                batch_id=digest16([encoder, corpus_name, modality, i]),
                **names,
                modality=modality,
                warmup=i == 0,
                decode_seconds=0.02 * jitter if modality == "image" else None,
                preprocess_seconds=0.01 * jitter,
                forward_seconds=32 * seconds_per_item * factor * jitter,
                created=START + timedelta(seconds=i),
                **MEASURED,
            )


def timed(data: ReportData, rates: Mapping[str, Sequence[float]], **columns: Any) -> ReportData:
    """The data with three batches of images per corpus: encoder to its images per second on each of three corpora."""
    like = replace(data.batches[0], **{"modality": "image", "warmup": False, "n_items": 32, **columns})
    rows = [
        replace(like, encoder=encoder, corpus=corpus_name, forward_seconds=32 / (rate * jitter))
        for encoder, of in rates.items()
        for corpus_name, rate in zip(("shapes", "pages", "signs"), of, strict=False)
        for jitter in (1.01, 1.0, 0.9)
    ]
    return replace(data, batches=tuple(rows))


def run_row(store: StandIn) -> None:
    config = canonical_json({"corpora": list(store.contents), "replicates": 10_000})
    told = {"name": "amber-lynx", "command": "capim demo", "state": "completed", "config": config}
    versions = json.dumps({"capim": "0.2.0", "lancedb": "0.40.0"})
    store.tables["runs"].append(
        vars(row_of(Run, run="run-1", **told, versions=versions, started=START, finished=START + timedelta(seconds=83)))
    )


def seal(store: StandIn, encoder: str, corpus_name: str) -> None:
    contents, model = store.contents[corpus_name], store.specs[encoder]
    per_item = 16 if model.vectors == "multi" else 1
    for modality in MODALITIES:
        key, n = SetKey.of(model, corpus_name, contents.fingerprint, modality), contents.items(modality).num_rows
        facts = {"n_rows": n, "n_vectors": n * per_item, "dim": model.dim, "storage": model.storage}
        store.sets.append(row_of(SealedSet, **key.columns, **facts))


def demo() -> StandIn:
    """Three encoders on two corpora, like the demo's store."""
    store = StandIn()
    store.specs = {name: spec(name, dim=64) for name in ("tiny-clip", "tiny-clip-plain")}
    store.specs["tiny-colpali"] = spec("tiny-colpali", dim=64, vectors="multi")
    store.contents = {
        "shapes": corpus("shapes", n_images=40, skipped=["broken0.jpg"]),
        "shapes-winoground": corpus("shapes-winoground", n_images=20, per_image=1),
    }
    strength = {name: 0.62 - 0.17 * i for i, name in enumerate(store.specs)}
    protocols = {"t2i/all": 0.0, "t2i/first": -0.02, "i2t/any": 0.12, "i2t/symmetric-first": -0.01}
    for i, (name, base) in enumerate(strength.items()):
        for protocol, bonus in protocols.items():
            for k, gain in ((1, 0.0), (5, 0.2), (10, 0.27)):
                value = min(0.99, base + bonus + gain)
                result(store, name, "shapes", protocol, f"R@{k}", value, half=0.04, n_queries=200, n_clusters=40,
                       chance=k / 40, tie_share=0.01 if protocol == "t2i/all" else 0.0)  # fmt: skip
        for metric, level, chance in (("text", 0.35, 0.25), ("image", 0.3, 0.25), ("group", 0.2, 1 / 6)):
            result(store, name, "shapes-winoground", "winoground", f"winoground_{metric}", level * base / 0.5,
                   half=0.08, n_queries=50, n_clusters=50, chance=chance)  # fmt: skip
        batches(store, name, "shapes", seconds_per_item=0.002 * (1 + i))
        for corpus_name in store.contents:
            seal(store, name, corpus_name)
    names = list(strength)
    for a, b in combinations(names, 2):
        neighbours = names.index(b) - names.index(a) == 1  # are tied
        for metric in ("R@1", "R@5", "R@10"):
            difference, p = strength[a] - strength[b], 0.2 if neighbours else 0.0004
            comparison(store, "shapes", "t2i/all", metric, a, b, difference, p)
    run_row(store)
    return store


SHARES = {  # of each corpus, by encoder; chance is 2.5 % on photos and signs, and one in six on binding
    "photos": {"good": 0.60, "fine": 0.50, "broken": 0.026},
    "signs": {"good": 0.55, "fine": 0.54, "broken": 0.024},
    "binding": {"good": 0.17, "fine": 0.16, "broken": 0.21},
}


def with_a_broken_encoder() -> StandIn:
    """Two corpora on which one encoder guesses, and a third one on which all do and this one has the highest share."""
    store = StandIn(specs={name: spec(name) for name in SHARES["photos"]})
    store.contents = {name: corpus(name, n_images=40, per_image=1) for name in SHARES}
    for name, shares in SHARES.items():
        task = ("winoground", "winoground_group") if name == "binding" else ("t2i/all", "R@1")
        chance = 1 / 6 if name == "binding" else 0.025
        for encoder, share in shares.items():
            result(store, encoder, name, *task, share, half=0.02, chance=chance)
            if name != "binding":
                result(store, encoder, name, "t2i/all", "R@5", share + 0.1, half=0.02, chance=0.125)
        for a, b in combinations(shares, 2):
            gap = shares[a] - shares[b]
            comparison(store, name, *task, a, b, gap, 0.0004 if abs(gap) > 0.08 else 0.4, half=0.03)
    for seconds, encoder in enumerate(SHARES["photos"], 1):
        batches(store, encoder, "photos", seconds_per_item=0.02 / seconds)  # the broken one is the fastest
        where: dict[str, Any] = {"protocol": "winoground", "metric": "winoground_group"}
        part(store, encoder, "binding", "tags", "tag", "verb", 0.01, **where)
        part(store, encoder, "photos", "length", "words", "1-7", 0.3)
    return store
