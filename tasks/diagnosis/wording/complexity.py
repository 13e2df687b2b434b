"""What a caption asks for: places, colours, counts, negation, actions; its length; which of an image's it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from store.types import Corpus
from tasks.diagnosis.contrasts import contrast_slices
from tasks.diagnosis.subject import Slice, Subject
from tasks.diagnosis.wording.lexicon import lexicon, words_of

FEATURES = ("spatial", "colour", "counting", "negation", "action")
LENGTHS = ((1, 8), (9, 10), (11, 12), (13, 15), (16, None))  # words; COCO's captions have 10.5 on average
METRIC = "R@1"


def complexity(subject: Subject) -> Iterator[Slice]:
    """``R@1`` of captions with and without each feature, within and outside each length, of and not of each ordinal.

    Only for English captions as queries: the lexicons are English. Other protocols have no such rows.
    """
    english = english_queries(subject)
    if english is None or not english.any():
        return
    ords = subject.queries.query_ords
    texts = subject.corpus.captions["text"].take(ords).to_pylist()
    has = caption_features([text if known else "" for text, known in zip(texts, english, strict=True)])
    yield from contrast_slices(subject, "complexity", has, metric=METRIC, among=english)
    words = np.array([len(words_of(text or "")) for text in texts])
    lengths = {f"{length_name(low, high)} words": _within(words, low, high) for low, high in LENGTHS}
    yield from contrast_slices(subject, "length", lengths, metric=METRIC, among=english)
    ordinals = subject.corpus.captions["ordinal"].take(ords).to_numpy()
    each = {f"caption {ordinal}": ordinals == ordinal for ordinal in np.unique(ordinals).tolist()}
    yield from contrast_slices(subject, "ordinal", each, metric=METRIC, among=english)


def caption_features(texts: Sequence[str]) -> dict[str, NDArray[np.bool_]]:
    """Feature -> which captions have it, shape ``(n,)``.

    Examples:
        >>> features = caption_features(["a red bus next to a tree", "two men", "nothing here"])
        >>> {name: has.tolist() for name, has in features.items()}["spatial"]
        [True, False, False]
    """
    return {name: np.array([lexicon(name).in_text(text) for text in texts], dtype=bool) for name in FEATURES}


def english_queries(subject: Subject) -> NDArray[np.bool_] | None:
    """Which queries are English captions with a text; None where queries are not captions."""
    if subject.protocol.direction != "t2i":
        return None
    return english_captions(subject.corpus)[subject.queries.query_ords]


def english_captions(corpus: Corpus) -> NDArray[np.bool_]:
    """Which captions are English and have a text, shape ``(n_captions,)``."""
    english = pc.and_(
        pc.starts_with(pc.utf8_lower(corpus.captions["language"]), "en"), pc.is_valid(corpus.captions["text"])
    )
    known: NDArray[np.bool_] = english.to_numpy()
    return known


def length_name(low: int, high: int | None) -> str:
    """A bin of lengths as people write it.

    Examples:
        >>> length_name(9, 10), length_name(16, None)
        ('9-10', '16+')
    """
    return f"{low}+" if high is None else f"{low}-{high}"


def _within(words: NDArray[np.int_], low: int, high: int | None) -> NDArray[np.bool_]:
    inside: NDArray[np.bool_] = (words >= low) & (words <= (words.max() if high is None else high))
    return inside
