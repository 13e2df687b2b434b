"""A store with nine made-up models on a COCO-sized corpus, with everything that a report can show.

Every number comes from a seed; no model was run. Used by the size and time bench and by the browser tests.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from capim.store import schema
from tests.reports.stand_in import (
    SCHEMAS,
    StandIn,
    batches,
    comparison,
    corpus,
    identity,
    part,
    result,
    run_row,
    seal,
    spec,
)

MODELS = {
    "dfn5b-h-378": (1024, 0.556, 0.030),
    "siglip2-so400m": (1152, 0.553, 0.021),
    "metaclip2-h": (1024, 0.521, 0.014),
    "laion-clip-h": (1024, 0.495, 0.012),
    "metaclip-h14": (1024, 0.489, 0.013),
    "colpali-v1.3": (128, 0.449, 0.345),
    "jina-clip-v2": (1024, 0.431, 0.024),
    "xlm-roberta-b32": (512, 0.389, 0.004),
    "openai-clip-l-336": (768, 0.365, 0.016),
}
PROTOCOLS = {
    "t2i/all": 0.0, "t2i/first": -0.022, "t2i/ordinal-mean": 0.001, "t2i/1k": 0.22, "t2i/cxc": 0.03, "t2i/eccv": 0.21,
    "i2t/any": 0.17, "i2t/any5": 0.17, "i2t/symmetric-first": -0.012, "i2t/symmetric-mean": 0.004, "i2t/1k": 0.31,
    "i2t/cxc": 0.2,
}  # fmt: skip
LANGUAGES = ("ar", "de", "en", "es", "fr", "hi", "hy", "id", "it", "ja", "ko", "pl", "pt", "ru", "th", "tr", "uk", "vi")
FEATURES = ("spatial", "colour", "counting", "negation", "action", "long")
CATEGORIES = ("person", "vehicle", "animal", "food", "furniture", "electronic", "outdoor", "sports", "kitchen")


def coco(
    *,
    n_images: int = 5000,
    n_models: int = len(MODELS),
    n_languages: int = len(LANGUAGES),
    texts: Sequence[str] = (),
    ids: Sequence[str] = (),
    n_pictures: int | None = None,
) -> StandIn:
    """Nine models, twelve protocols, Winoground, SugarCrepe, COCO-SM, slices, ablations, outcomes, thumbnails."""
    rng = np.random.default_rng(0)
    store = StandIn()
    store.specs = {
        name: spec(name, dim=dim, vectors="multi" if "colpali" in name else "single")
        for name, (dim, _, _) in list(MODELS.items())[:n_models]
    }
    store.contents = {
        "coco-karpathy": corpus("coco-karpathy", n_images=n_images, texts=texts, ids=ids, skipped=[*ids, "broken.jpg"]),
        "winoground": corpus("winoground", n_images=800, per_image=1),
        "sugarcrepe": corpus("sugarcrepe", n_images=400, per_image=1),
        "coco-sm": corpus("coco-sm", n_images=50, per_image=1),
    }
    for name in store.specs:
        _, base, seconds = MODELS[name]
        _retrieval(store, name, base, rng)
        _compositional(store, name, base, rng)
        _languages(store, name, base, LANGUAGES[:n_languages], rng)
        _slices(store, name, base, rng)
        batches(store, name, "coco-karpathy", seconds_per_item=seconds, n=160)
        for corpus_name in store.contents:
            seal(store, name, corpus_name)
    _comparisons(store)
    _outcomes(store, rng)
    for sha in store.contents["coco-karpathy"].images["sha"].to_pylist()[:n_pictures]:
        store.pictures[str(sha)] = noisy_jpeg(rng)
    run_row(store)
    return store


def _retrieval(store: StandIn, name: str, base: float, rng: np.random.Generator) -> None:
    for protocol, bonus in PROTOCOLS.items():
        for metric, gain in (("R@1", 0.0), ("R@5", 0.24), ("R@10", 0.32)):
            value = min(0.995, max(0.01, base + bonus + gain * (1 - base) * 1.4 + rng.normal(0, 0.012)))
            result(store, name, "coco-karpathy", protocol, metric, value, half=0.0065, n_queries=25_010,
                   n_clusters=5000, chance=int(metric[2:]) / 5000, tie_share=0.002)  # fmt: skip
    value = 0.2 + base / 4
    result(store, name, "coco-karpathy", "t2i/eccv", "mAP@R", value, half=0.01, n_queries=1332, n_clusters=1261)
    result(store, name, "coco-karpathy", "t2i/all", "MRR", base + 0.1, half=0.006, n_queries=25_010, n_clusters=5000)
    result(store, name, "coco-karpathy", "t2i/all", "median_rank", 2.0 + 3 * (0.5 - base), half=0.4)


def _compositional(store: StandIn, name: str, base: float, rng: np.random.Generator) -> None:
    for metric, level, chance in (("text", 0.33, 0.25), ("image", 0.14, 0.25), ("group", 0.1, 1 / 6)):
        value = float(np.clip(level + rng.normal(0, 0.03), 0.02, 0.9))
        result(store, name, "winoground", "winoground", f"winoground_{metric}", value, half=0.045, n_queries=400,
               n_clusters=400, chance=chance)  # fmt: skip
    kinds = [f"{how}_{what}" for how in ("add", "replace", "swap") for what in ("att", "obj")]
    for category in (*kinds[:4], "replace_rel", *kinds[4:], "macro"):
        value = float(np.clip(0.6 + base / 2 + rng.normal(0, 0.04), 0.5, 0.99))
        result(store, name, "sugarcrepe", f"sugarcrepe/{category}", "pair_accuracy", value, half=0.02, n_queries=1000,
               n_clusters=700, chance=0.5)  # fmt: skip


def _languages(store: StandIn, name: str, base: float, languages: Sequence[str], rng: np.random.Generator) -> None:
    reach = 0.85 if any(word in name for word in ("xlm", "jina", "2")) else 0.25
    metrics = {"R@1": 1.0, "R@5": 1.5, "R@10": 1.7, "consistency_nDCG@20": 1.6}
    for i, language in enumerate(languages):
        share = 1.0 if language == "en" else reach * (1 - i / 60)
        for translator, direction, metric in product(("google", "bing", "nllb"), ("t2i", "i2t"), metrics):
            value = float(np.clip(base * share * metrics[metric] + rng.normal(0, 0.01), 0.001, 0.995))
            result(store, name, "coco-sm", f"{direction}/{language}/{translator}", metric, value, half=0.01)


def _slices(store: StandIn, name: str, base: float, rng: np.random.Generator) -> None:
    add = partial(part, store, name, "coco-karpathy", half=0.013, n_queries=5200, n_clusters=3100)
    for analysis, features in (("complexity", FEATURES), ("category", CATEGORIES)):
        for i, feature in enumerate(features):
            gap = 0.05 - 0.02 * i + float(rng.normal(0, 0.01))
            add(analysis, feature, "with", base + gap)
            add(analysis, feature, "without", base)
            add(analysis, feature, "difference", gap, p_adjusted=0.001 if abs(gap) > 0.02 else 0.4)
    for bin_, gap in (("1-7", 0.05), ("8-10", 0.02), ("11-14", -0.01), ("15+", -0.06)):
        add("length", "words", bin_, base + gap)
    for setting, size, loss in (("float32", 4, 0.0), ("float16", 2, 0.0), ("int8", 1, 0.004), ("binary", 0.125, 0.09)):
        detail = json.dumps({"bytes_per_item": size * MODELS[name][0]})
        add("precision", "", setting, base - loss, detail=detail)
    detail = json.dumps({"published": base + (0.002 if name != "siglip2-so400m" else 0.19), "source": "model card"})
    verdict = "suspect" if name == "siglip2-so400m" else "reproduced"
    add("reference", "model card", verdict, base, detail=detail)


def _comparisons(store: StandIn) -> None:
    rows = [r for r in store.tables["results"] if r["corpus"] == "coco-karpathy"]
    values = {(r["protocol"], r["metric"], r["encoder"]): r["value"] for r in rows}
    for a, b in combinations(store.specs, 2):
        for protocol, metric in product(PROTOCOLS, ("R@1", "R@5", "R@10")):
            difference = values[protocol, metric, a] - values[protocol, metric, b]
            p = 0.0005 if abs(difference) > 0.015 else 0.3
            comparison(store, "coco-karpathy", protocol, metric, a, b, difference, p)


def _outcomes(store: StandIn, rng: np.random.Generator) -> None:
    """One Arrow table per model, since 225,000 rows of lists are slow as Python objects."""
    contents = store.contents["coco-karpathy"]
    n_images, n = contents.images.num_rows, contents.captions.num_rows
    image = np.repeat(np.arange(n_images, dtype=np.int32), 5)
    difficulty = rng.gamma(0.55, 14.0, n)
    for name in store.specs:
        base = MODELS[name][1]
        rank = 1 + np.floor(difficulty * rng.gamma(2.0, 0.6, n) * (1.1 - base)).astype(np.int32)
        rank = np.minimum(rank, n_images)
        others = rng.integers(1, n_images, (n, schema.TOP), dtype=np.int32)  # places behind the relevant image
        top = (image[:, None] + others) % np.int32(n_images)
        inside = rank <= schema.TOP
        top[np.flatnonzero(inside), rank[inside] - 1] = image[inside]
        scores = np.sort(rng.uniform(0.1, 0.4, (n, schema.TOP)).astype(np.float32))[:, ::-1]
        tied = rng.random(n) < 0.002
        row = next(r for r in store.tables["results"] if (r["encoder"], r["protocol"]) == (name, "t2i/all"))
        constant = {k: row[k] for k in ("evaluation", *identity(store, name, "coco-karpathy"), "protocol")}
        columns: dict[str, Any] = {k: pa.array([v] * n) for k, v in constant.items()}
        columns |= {
            "query_id": contents.captions["id"].combine_chunks(),
            "query_ord": np.arange(n, dtype=np.int32),
            "cluster": image,
            "rank_best": rank,
            "rank_worst": (rank + tied).astype(np.int32),
            **dict.fromkeys(("n_relevant", "n_tied_relevant"), np.ones(n, np.int32)),
            "n_gallery": np.full(n, n_images, np.int32),
            "weight": np.ones(n),
            "best_score": scores[:, 0],
            "top_ords": _lists(top, pa.int32()),
            "top_scores": _lists(scores, pa.float32()),
        }
        for missing in set(SCHEMAS["outcomes"].names) - set(columns):
            columns[missing] = pa.nulls(n, SCHEMAS["outcomes"].field(missing).type)
        store.arrow[constant["evaluation"]] = pa.table(columns, schema=SCHEMAS["outcomes"])


def _lists(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), schema.TOP).cast(pa.list_(kind))


def noisy_jpeg(rng: np.random.Generator) -> bytes:
    """A thumbnail of a photograph's size; the noise keeps it from packing too well."""
    low = Image.fromarray(rng.integers(0, 255, (12, 16, 3), dtype=np.uint8))
    low = low.resize((213, 160), Image.Resampling.BICUBIC)
    noise = rng.integers(-25, 25, (160, 213, 1), dtype=np.int16)
    pixels = np.clip(np.asarray(low, dtype=np.int16) + noise, 0, 255).astype(np.uint8)
    target = io.BytesIO()
    Image.fromarray(pixels).save(target, "JPEG", quality=80)
    return target.getvalue()
