"""The map of an embedding set: its items as points of a plane, and how much of their neighbourhood the plane keeps."""

from __future__ import annotations

import importlib
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.errors import RequestError, WorkError
from capim.store.files import replacing
from capim.store.types import Kept, Map, Method, Modality, Plane, SetKey

NEAREST = 10  # neighbours of an item that the plane should keep
SAMPLE = 500  # items whose neighbours are compared
_VERSION = 1  # of the points and the figures; a stored map of another version is not read
_NUMBERS = 2**21  # compared at once
_ROWS = 4096  # projected at a time


def project(vectors: NDArray[np.float32], method: Method = "pca") -> Plane:
    """The points of vectors of shape ``(n, dim)`` by one of two methods.

    ``pca``: the two directions of most variance, about the mean; needs ``dim`` squared numbers beside the vectors. Each
    direction points to where its largest component is positive, so that equal vectors give equal points.
    ``umap``: ``umap-learn`` with its own defaults and the cosine, on one thread, from one seed; distances between far
    groups mean nothing in it.

    Raises:
        RequestError: ``umap`` is not installed.

    Examples:
        >>> plane = project(np.float32([[0, 0, 3], [0, 1, 3], [0, 2, 3], [0, 3, 3]]))
        >>> plane.points[:, 0].round(1).tolist(), [round(share, 3) for share in plane.shares]
        ([-1.5, -0.5, 0.5, 1.5], [1.0, 0.0])
    """
    if method == "umap":
        return Plane(_umap(vectors), (float("nan"), float("nan")))
    mean = vectors.mean(axis=0, dtype=np.float64)
    covariance = np.zeros((vectors.shape[1],) * 2)
    for start in range(0, len(vectors), _ROWS):
        centred = vectors[start : start + _ROWS] - mean
        covariance += centred.T @ centred
    variances, directions = np.linalg.eigh(covariance)
    axes = directions[:, ::-1][:, :2]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    points = np.zeros((len(vectors), 2), np.float32)
    for start in range(0, len(vectors), _ROWS):
        points[start : start + _ROWS, : axes.shape[1]] = (vectors[start : start + _ROWS] - mean) @ axes
    highest = [*np.maximum(variances[::-1][:2], 0), 0.0][:2]
    total = max(float(variances.sum()), np.finfo(np.float64).tiny)
    return Plane(points, (float(highest[0] / total), float(highest[1] / total)))


def _umap(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    try:
        umap = importlib.import_module("umap")
    except ImportError as fault:
        raise RequestError("umap is not installed: pip install umap-learn, or take the projection pca") from fault
    points: NDArray[np.float32] = umap.UMAP(metric="cosine", random_state=0, n_jobs=1).fit_transform(vectors)
    return points.astype(np.float32)


def map_of(
    store: EmbeddingStore,
    *,
    encoder: str,
    corpus: str,
    modality: Modality,
    method: Method = "pca",
    folder: Path | None = None,
) -> Map:
    """The map of a sealed set; an item with several vectors is at their mean, of length 1.

    ``folder`` keeps maps by the digest of their sets, outside the store, which stays as it is: one that is there is
    read, one that is missing is written, and those of sets that the store no longer has are removed. None, and a folder
    that cannot be written to: nothing is kept.

    Raises:
        RequestError: There is no such set, or the method is not installed.
    """
    key = store.key(encoder=encoder, corpus=corpus, modality=modality)
    sealed = store.sealed(key)
    file = folder / f"{sealed.digest[:32]}-{method}.npz" if folder is not None and sealed is not None else None
    found = _read(file) if file is not None else None
    if found is None:
        vectors = _one_per_item(store, key)
        plane = project(vectors, method)
        found = Map(plane, neighbourhood_kept(vectors, plane.points))
        if file is not None:
            _write(file, *found, digests={each.digest[:32] for each in store.sealed_sets()})
    return found


def _one_per_item(store: EmbeddingStore, key: SetKey) -> NDArray[np.float32]:
    """A vector of every item, float32, shape ``(n, dim)``: its own, or the mean of its several, of length 1."""
    if key.vectors == "single":
        return store.vectors(encoder=key.encoder, corpus=key.corpus, modality=key.modality).matrix
    means = []
    for rows in store.stored_blocks(key):
        sums = np.add.reduceat(rows.vectors.values.astype(np.float32), rows.vectors.offsets[:-1])
        means.append(sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), np.finfo(np.float32).tiny))
    return np.concatenate(means)


def neighbourhood_kept(
    vectors: NDArray[np.float32], points: NDArray[np.float32], *, nearest: int = NEAREST, sample: int = SAMPLE
) -> Kept:
    """How much of the neighbourhood of unit vectors, shape ``(n, dim)``, their points, shape ``(n, 2)``, keep.

    Near is a high cosine in the space and a small distance in the plane. Both figures are over all items, or over
    ``sample`` of them at equal steps. Of items at the same distance each counts as the nearest.

    Examples:
        >>> angles = np.linspace(0, 1.5, 40, dtype=np.float32) ** 2
        >>> vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        >>> neighbourhood_kept(vectors, vectors, nearest=3)
        Kept(share=1.0, trustworthiness=1.0, nearest=3, n_sampled=40)
    """
    n = len(vectors)
    if n < 2 * nearest + 1:
        return Kept(float("nan"), float("nan"), nearest, 0)
    rows = np.unique(np.linspace(0, n - 1, min(sample, n)).round().astype(np.int64))
    kept, penalty, size = 0, 0, max(1, _NUMBERS // n)
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        near = vectors[block] @ vectors.T
        far = ((points[block, None, :] - points[None, :, :]) ** 2).sum(axis=2)
        near[np.arange(len(block)), block], far[np.arange(len(block)), block] = -np.inf, np.inf
        in_space = np.argpartition(-near, nearest - 1, axis=1)[:, :nearest]
        in_plane = np.argpartition(far, nearest - 1, axis=1)[:, :nearest]
        for number in range(len(block)):
            kept += len(np.intersect1d(in_space[number], in_plane[number], assume_unique=True))
            above = near[number] > near[number, in_plane[number]][:, None]
            penalty += int(np.maximum(above.sum(axis=1) + 1 - nearest, 0).sum())
    highest = len(rows) * nearest * (2 * n - 3 * nearest - 1)
    return Kept(kept / (len(rows) * nearest), 1 - 2 * penalty / highest, nearest, len(rows))


def _read(file: Path) -> Map | None:
    """A stored map; None where there is none of this version, or its file is damaged."""
    try:
        with np.load(file, allow_pickle=False) as stored:
            if int(stored["version"]) != _VERSION:
                return None
            share, trust, nearest, n = stored["kept"].tolist()
            first, second = stored["shares"].tolist()
            return Map(Plane(stored["points"], (first, second)), Kept(share, trust, int(nearest), int(n)))
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None


def _write(file: Path, plane: Plane, kept: Kept, *, digests: set[str]) -> None:
    """Keeps a map, and removes those of other sets than ``digests``."""
    content: dict[str, Any] = {"version": _VERSION, "points": plane.points, "shares": plane.shares, "kept": tuple(kept)}
    with suppress(OSError, WorkError):
        file.parent.mkdir(exist_ok=True)
        for old in file.parent.glob("*.npz"):
            if old.name.partition("-")[0] not in digests:
                old.unlink(missing_ok=True)
        with replacing(file) as temporary, temporary.open("wb") as target:
            np.savez(target, **content)
