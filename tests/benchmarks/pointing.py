"""The pointing game (Zhang et al. 2018) where the truth is known: does a token's best patch lie on the thing it names?

Counted are tokens that name the colour or the shape of one of the two things of a scene. A hit: the centre of the
token's closest patch lies within the thing's box. Two baselines: any patch, and the map of the same token over another
image, which shares a preference for some places of the picture but not what is there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reports.explanation import token_words
from store import EmbeddingStore
from store.layout import grids_of, tokens_of
from store.schema import texts
from store.types import Modality
from tasks.corpora.shapes.world import SIDE, parse_scene
from tasks.scoring.late_interaction.products import token_similarities
from tasks.statistics.bootstrap import Interval, paired_intervals
from tasks.statistics.clusters import Clusters
from tasks.statistics.resampling import Resampling

CENTRES = {"left": ((17, 32), (47, 32)), "above": ((32, 17), (32, 47))}  # of both things, give or take 3 pixels
REACH = {"small": 11, "large": 16}  # pixels from a centre: the largest radius, and 3


class Pointing(NamedTuple):
    """Share of hits, of any patch, and of another image's map; and the first minus the last with its interval."""

    hits: float
    any_patch: float
    permuted: float
    difference: Interval
    n_tokens: int
    n_images: int


def pointing_game(store: EmbeddingStore, *, encoder: str, corpus: str, seed: int = 0) -> Pointing:
    """The game over all captions of a corpus of rendered scenes; images are the clusters of the interval."""
    images, captions = (_vectors(store, encoder, corpus, modality) for modality in ("image", "caption"))
    rows = store.items(corpus, "image").to_pylist()
    place = {row["id"]: position for position, row in enumerate(rows)}
    other = np.random.default_rng(seed).permutation(len(rows))
    hits: list[tuple[bool, float, bool]] = []
    clusters: list[int] = []
    for position, caption in enumerate(store.items(corpus, "caption").to_pylist()):
        image = place[caption["image_id"]]
        scene = parse_scene(rows[image]["key"].split(".")[0])
        tokens, layout = captions[position]
        [grid] = grids_of(images[image][1])
        boxes = SIDE * grid.boxes()
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        here, there = (
            token_similarities(tokens, each[0])[0][:, grid.vectors] for each in (images[image], images[other[image]])
        )
        for token, of_image, of_other in zip(tokens_of(layout), here, there, strict=True):
            named = [n for n, thing in enumerate((scene.first, scene.second)) if token_words(token) in thing[1:]]
            if len(named) == 1:
                thing = (scene.first, scene.second)[named[0]]
                away = np.abs(centres - CENTRES[scene.relation][named[0]])
                inside: NDArray[np.bool_] = np.all(away < REACH[thing.size], axis=1)
                hits.append(
                    (bool(inside[int(of_image.argmax())]), float(inside.mean()), bool(inside[int(of_other.argmax())]))
                )
                clusters.append(image)
    shares = np.array(hits, dtype=np.float64).T
    of_images = Clusters.of(clusters, len(rows))
    [difference] = paired_intervals(shares, of_images, [(0, 2)], Resampling(seed=seed))
    own, any_patch, permuted = shares.mean(axis=1).tolist()
    return Pointing(own, any_patch, permuted, difference, len(clusters), len(set(clusters)))


def _vectors(
    store: EmbeddingStore, encoder: str, corpus: str, modality: Modality
) -> list[tuple[NDArray[np.float32], str]]:
    """Of every item its vectors and their layout, in corpus order."""
    key = store.key(encoder=encoder, corpus=corpus, modality=modality)
    found: list[tuple[NDArray[np.float32], str]] = []
    for rows in store.stored_blocks(key):
        if rows.layouts is not None:
            found += zip((each.astype(np.float32) for each in rows.vectors), texts(rows.layouts), strict=True)
    return found
