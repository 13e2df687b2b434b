"""Whether an item that is no relevant one is right all the same, by what else the corpus says of it.

=================  ==================================================================================
``cxc``, ``eccv``  an extra ground truth of the corpus names the pair; its name is the source
``same words``     the image has a caption of its own with the words of this caption
``same picture``   the image has the same bytes as the image that the caption belongs to
=================  ==================================================================================
"""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.types import Corpus, Direction
from capim.tasks.scoring.outcomes import Outcomes
from capim.tasks.scoring.protocols.layout import layout_of, ords_of


def first_is_right(outcomes: Outcomes, corpus: Corpus) -> dict[str, NDArray[np.bool_]]:
    """Source -> for which queries it says that the first item is right, shape ``(n_queries,)``.

    A relevant item is right by some sources too. Only sources that the corpus has; none without result lists.
    """
    if outcomes.top_ords is None:
        return {}
    direction = outcomes.protocol.direction
    queries, items = outcomes.query_ords.astype(np.int64), outcomes.top_ords[:, 0].astype(np.int64)
    captions, images = (queries, items) if direction == "t2i" else (items, queries)
    n_images, sources = len(corpus.images), {}
    pairs = captions * n_images + images
    for truth, links in _judged(corpus, direction).items():
        sources[truth] = np.isin(pairs, links)
    own = layout_of(corpus).caption_images.astype(np.int64)  # -1: of no image
    words = _codes([None if text is None else _words(text) for text in corpus.captions["text"].to_pylist()])
    written = np.unique((words * n_images + own)[(words >= 0) & (own >= 0)])
    if written.size > np.unique(written // n_images).size:  # some words describe two images
        sources["same words"] = (words[captions] >= 0) & np.isin(words[captions] * n_images + images, written)
    pictures = _codes(corpus.images["sha"].to_pylist())
    if np.bincount(pictures[pictures >= 0]).max(initial=0) > 1:
        described = np.where(own >= 0, pictures[own], -1)[captions]
        sources["same picture"] = (described >= 0) & (described == pictures[images])
    return sources


def _judged(corpus: Corpus, direction: Direction) -> dict[str, NDArray[np.int64]]:
    """Extra ground truth -> its pairs of this direction, as ``caption ord * n_images + image ord``."""
    rows = corpus.relevance.filter((pc.field("direction") == direction) & (pc.field("grade") > 0))
    caption, image = ("query_id", "item_id") if direction == "t2i" else ("item_id", "query_id")
    truths = np.asarray(rows["ground_truth"].to_pylist(), dtype=object)
    links = ords_of(rows[caption], corpus.captions).astype(np.int64) * len(corpus.images)
    links += ords_of(rows[image], corpus.images)
    return {str(truth): links[truths == truth] for truth in sorted(set(truths))}


def _words(text: str) -> str:
    """A text without what two people write differently: capitals, spaces, the full stop.

    Examples:
        >>> _words("A red  bus .") == _words("a red bus")
        True
    """
    return " ".join(text.casefold().split()).rstrip(" .")


def _codes(values: list[str | None]) -> NDArray[np.int64]:
    """The number of each value, equal for equal values; -1 for None and for an empty text."""
    number_of: dict[str, int] = {}
    return np.array([number_of.setdefault(v, len(number_of)) if v else -1 for v in values], dtype=np.int64)
