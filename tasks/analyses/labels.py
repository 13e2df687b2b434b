"""Labelled images: which classes are found, which are taken for one another, and what the prompts are worth.

Torch is loaded when ``prompts`` runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from capim.store.errors import RequestError
from capim.store.schema import LABEL
from capim.tasks.analyses.analysis import (
    AnalysisInput,
    QueryValues,
    SingleVectors,
    Slice,
    against_first,
    mean_slices,
    part_slices,
)
from capim.tasks.metrics import METRICS

CONFUSIONS = 10  # of an encoder, those with most images
METRIC = "R@1"
SHOTS = (1, 2, 4, 8, 16)  # images per class that teach a probe
_STRENGTHS = np.logspace(-2, 6, 9)  # inverse strengths of the penalty that are tried


def classes(data: AnalysisInput) -> Iterator[Slice]:
    """The metric per class of the image, and the classes that most images of another class are given, by encoder."""
    labels = _labels(data)
    names = sorted({label for of_query in labels for label in of_query})
    parts = {(name, ""): np.array([name in of_query for of_query in labels]) for name in names}
    yield from part_slices(data, "class", parts, metric=data.metric)
    groups = data.corpus.captions["query_group"].to_pylist()
    rows = []
    for encoder, outcomes, top_ords in data.with_lists():
        if outcomes.protocol.sides[1] != "caption":
            continue
        given = [groups[first] for first in top_ords[:, 0].tolist()]
        wrong = outcomes.rank_best > 1
        pairs = [
            (of_query[0], answer) if missed else None
            for of_query, answer, missed in zip(labels, given, wrong, strict=True)
        ]
        for pair, _ in Counter(filter(None, pairs)).most_common(CONFUSIONS):
            rows.append(QueryValues(encoder, pair[0], np.array([each == pair for each in pairs]), level_name=pair[1]))
    yield from mean_slices(data, "confusion", rows, metric="share of images", share=True)


def prompts(data: AnalysisInput) -> Iterator[Slice]:
    """``R@1`` by each prompt alone and by all, with the difference to all; nothing where a class has one prompt."""
    from capim.tasks.ranking.apart import score_apart

    task = data.task
    if task.prompts is None:
        return
    texts = data.corpus.captions["text"].to_pylist()
    groups = data.corpus.captions["query_group"].to_pylist()
    counts = {len(ords) for ords in task.prompts.values()}
    if counts == {1}:
        return
    one, *_ = task.prompts.values()
    names = [texts[ord_].replace(groups[ord_].replace("_", " "), "{}") for ord_ in one.tolist()]
    for encoder, _, vectors in data.with_single_vectors():

        def hits(of: dict[int, np.ndarray], vectors: SingleVectors = vectors) -> np.ndarray:
            [outcomes] = score_apart([replace(task, prompts=of)], vectors.images, vectors.captions).values()
            return METRICS[METRIC].per_query(outcomes)

        every = {"all prompts": dict(task.prompts)} | {
            name: {first: ords[at : at + 1] for first, ords in task.prompts.items() if at < len(ords)}
            for at, name in enumerate(names)
        }
        yield from against_first(data, encoder, "prompts", {name: hits(of) for name, of in every.items()}, METRIC)


def clusters(data: AnalysisInput) -> Iterator[Slice]:
    """V-measure of k-means clusters of the image vectors against the classes, as mteb's clustering has them.

    Mini-batch k-means with as many clusters as classes, batches of 500, the seed of the intervals; the interval is that
    of the mean of what each image adds to the measure (its influence), for these clusters. Images with one label.

    Raises:
        RequestError: scikit-learn is not installed.
    """
    labels, seed = _labels(data), data.resampling.seed
    if max(map(len, labels)) > 1:
        return
    k_means = _sklearn().cluster.MiniBatchKMeans
    target = np.unique([label for [label] in labels], return_inverse=True)[1]
    rows = []
    for encoder, _, vectors in data.with_single_vectors():
        model = k_means(int(target.max()) + 1, batch_size=500, n_init="auto", random_state=seed)
        found = model.fit(vectors.images[data.queries.query_ords]).labels_
        rows.append(QueryValues(encoder, "k-means", v_measure_by_image(target, found)))
    yield from mean_slices(data, "clusters", rows, metric="V-measure")


def v_measure_by_image(classes: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Values of which the mean is the V-measure of clusters (Rosenberg and Hirschberg 2007), shape ``(n_images,)``.

    The measure ``2 I / (H(classes) + H(clusters))`` plus the influence of each image on it: by the spread of these
    values it varies from one sample of images to the next. 1 where there is one class and one cluster.

    Examples:
        >>> values = v_measure_by_image(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 2]))
        >>> round(float(values.mean()), 4)
        0.8
    """

    def information(codes: np.ndarray) -> np.ndarray:
        _, of, counts = np.unique(codes, return_inverse=True, return_counts=True)
        bits: np.ndarray = -np.log(counts[of] / len(codes))
        return bits

    one, other = information(classes), information(found)
    total, shared = one + other, one + other - information(classes * (int(found.max()) + 1) + found)
    if total.mean() == 0:
        return np.ones(len(classes))
    value = 2 * shared.mean() / total.mean()
    influence: np.ndarray = value + (2 * (shared - shared.mean()) - value * (total - total.mean())) / total.mean()
    return influence


def probes(data: AnalysisInput) -> Iterator[Slice]:
    """Accuracy of scikit-learn's linear probe and k-NN on the image vectors, and of the probe by images per class.

    Each half of the images is classified by what the other half teaches; the regularisation is chosen there by
    cross-validation. Images with one label, encoders with one vector per image.

    Raises:
        RequestError: scikit-learn is not installed.
    """
    labels = _labels(data)
    if max(map(len, labels)) > 1:
        return
    target, images = np.array([label for [label] in labels]), data.queries.query_ords
    second, rng = data.second_half[images], np.random.default_rng(data.resampling.seed)
    least = min(np.unique(target[half], return_counts=True)[1].min() for half in (second, ~second))
    models = _probes(least, len(target))
    for encoder, _, vectors in data.with_single_vectors():
        rows = []
        for (feature, level_name), (model, shots) in models.items():
            hits = np.empty(len(target), dtype=bool)
            for half in (second, ~second):
                taught = np.flatnonzero(~half)
                if shots is not None:
                    order = rng.permutation(taught)
                    taught = np.concatenate([order[target[order] == name][:shots] for name in np.unique(target)])
                model.fit(vectors.images[images[taught]], target[taught])
                hits[half] = model.predict(vectors.images[images[half]]) == target[half]
            rows.append(QueryValues(encoder, feature, hits, level_name=level_name))
        yield from mean_slices(data, "probes", rows, metric="accuracy", share=True)


def _probes(least: int, n: int) -> dict[tuple[str, str], tuple[Any, int | None]]:
    """Feature and level -> a model of scikit-learn, and how many images of a class teach it (None: all).

    ``least``: images of the smallest class that can teach; ``n``: of all images.
    """
    linear, nearest = _sklearn().linear_model, _sklearn().neighbors.KNeighborsClassifier
    chosen: dict[str, Any] = {"scoring": "accuracy", "l1_ratios": (0.0,), "use_legacy_attributes": False}
    probe = linear.LogisticRegressionCV(Cs=_STRENGTHS, cv=max(2, min(5, least)), max_iter=1000, **chosen)
    return {
        **({("linear probe", "all images"): (probe, None)} if least > 1 else {}),
        **{(f"{k}-NN", "all images"): (nearest(k, metric="cosine"), None) for k in (1, 20) if 4 * k <= n},
        **{
            ("linear probe", f"{k} per class"): (linear.LogisticRegression(max_iter=1000), k)
            for k in SHOTS
            if k <= least
        },
    }


def _sklearn() -> Any:
    """scikit-learn, with the modules that are used here."""
    try:
        import sklearn.cluster
        import sklearn.linear_model
        import sklearn.neighbors
    except ImportError as error:
        raise RequestError("probes and clusters need scikit-learn; run `pip install 'capim[probes]'`") from error
    return sklearn


def _labels(data: AnalysisInput) -> list[list[str]]:
    """The labels of the image of every query."""
    groups = dict(zip(*(data.corpus.captions[name].to_pylist() for name in ("id", "query_group")), strict=True))
    found: dict[str, list[str]] = {}
    for row in data.corpus.relevance.to_pylist():
        if row["ground_truth"] == LABEL:
            found.setdefault(row["query_id"], []).append(groups[row["item_id"]])
    return [found[query] for query in data.queries.query_ids]
