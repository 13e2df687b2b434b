"""The pointing game (Zhang et al. 2018) where the truth is known: does a token's best patch lie on the thing it names?

Counted are tokens of a caption that name the colour or the shape of one of the two things of its scene; of a question,
the token that names its topic, on the page that answers it. A hit: the centre of the token's closest patch lies within
the box of the thing, or of the answer: sentence, row or bar. Two baselines: any patch, and the map of the same token
over another image, which shares a preference for some places of the picture but not what is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capim.reports.explanations import token_words
from capim.store import EmbeddingStore
from capim.tasks.analyses.vectors import explain_pairs
from capim.tasks.corpora.readers.pages import parse_page, query_id, questions_to, topic_word
from capim.tasks.corpora.readers.shapes import SIDE, parse_scene
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import Interval, paired_intervals

CENTRES = {"left": ((17, 32), (47, 32)), "above": ((32, 17), (32, 47))}  # of both things, give or take 3 pixels
REACH = {"small": 11, "large": 16}  # pixels from a centre: the largest radius, and 3


class Target(NamedTuple):
    """An image, words that name one thing in it, and its box (left, top, right, bottom, in shares of the image)."""

    image: str
    words: tuple[str, ...]
    box: NDArray[np.float64]


class Pointing(NamedTuple):
    """Share of hits, and of any patch; hits minus those of another image's map, with the interval."""

    hits: float
    any_patch: float
    difference: Interval
    n_images: int


def pointing_game(store: EmbeddingStore, *, encoder: str, corpus: str, seed: int = 0) -> Pointing:
    """The game over all texts of a corpus of rendered scenes or pages; images are the clusters of the interval."""
    rows = store.items(corpus, "image").to_pylist()
    place = {row["id"]: position for position, row in enumerate(rows)}
    other = np.random.default_rng(seed).permutation(len(rows)).tolist()
    targets_of = _answers(rows) if any(row["page"] for row in rows) else _things(rows)
    captions = [row["image_id"] or row["id"] for row in store.items(corpus, "caption").to_pylist()]
    # not a question of a sample, without the page that answers it
    targets = {position: targets_of[name] for position, name in enumerate(captions) if name in targets_of}
    images = [place[of[0].image] for of in targets.values()]
    own, elsewhere = (
        explain_pairs(store, encoder=encoder, corpus=corpus, pairs=[*zip(targets, each, strict=True)])
        for each in (images, [other[image] for image in images])
    )
    hits: list[tuple[np.bool_, np.floating[Any], np.bool_]] = []
    clusters: list[int] = []
    for image, of, here, there in zip(images, targets.values(), own, elsewhere, strict=True):
        [grid] = here.grids
        boxes = grid.boxes()
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        maps = (each.similarities[:, grid.vectors] for each in (here, there))
        for token, of_image, of_other in zip(here.tokens, *maps, strict=True):
            named = [target for target in of if token_words(token) in target.words]
            if len(named) == 1:
                left_top, right_bottom = named[0].box.reshape(2, 2)
                inside: NDArray[np.bool_] = np.all((centres > left_top) & (centres < right_bottom), axis=1)
                hits.append((inside[of_image.argmax()], inside.mean(), inside[of_other.argmax()]))
                clusters.append(image)
    shares = np.array(hits, dtype=np.float64).T
    of_images = Clusters.of(clusters, len(rows))
    [difference] = paired_intervals(shares, of_images, [(0, 2)], Resampling(seed=seed))
    found, any_patch, _ = shares.mean(axis=1).tolist()
    return Pointing(found, any_patch, difference, len(set(clusters)))


def _things(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Target]]:
    """Of the id of every scene its two things."""
    targets = {}
    for row in rows:
        scene = parse_scene(row["key"].split(".")[0])
        targets[row["id"]] = [
            Target(row["id"], thing[1:], np.array([x - reach, y - reach, x + reach, y + reach]) / SIDE)
            for thing, (x, y) in zip((scene.first, scene.second), CENTRES[scene.relation], strict=True)
            for reach in [REACH[thing.size]]
        ]
    return targets


def _answers(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Target]]:
    """Of the id of every question the place of its answer."""
    targets = {}
    for row in rows:
        report, page = parse_page(row["key"].removesuffix(".png"))
        for number, question in enumerate(questions_to(report)):
            for asked in question if question[0].page == page else ():
                word = topic_word(asked.language, asked.kind, asked.topic)
                targets[query_id(row["document"], number, asked)] = [Target(row["id"], (word,), np.array(asked.box))]
    return targets
