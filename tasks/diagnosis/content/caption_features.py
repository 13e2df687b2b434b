"""What a caption asks for: places, colours, counts, negation, actions; its length; its position among the captions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.types import Corpus
from capim.tasks.diagnosis.analysis_input import AnalysisInput
from capim.tasks.diagnosis.content.lexicon import lexicon, words_of
from capim.tasks.diagnosis.slice_means import contrast_slices
from capim.tasks.diagnosis.slices import Slice

FEATURES = ("spatial", "colour", "counting", "negation", "action")
LENGTHS = {"1-8": (1, 8), "9-10": (9, 10), "11-12": (11, 12), "13-15": (13, 15), "16+": (16, np.inf)}  # words


def complexity(data: AnalysisInput) -> Iterator[Slice]:
    """The metric with and without each feature, inside and outside each range of lengths, and by position.

    For English captions as queries: the lexicons are English.
    """
    ords = data.queries.query_ords
    english = english_captions(data.corpus)[ords]
    texts = [text or "" for text in data.corpus.captions["text"].take(ords).to_pylist()]
    has = caption_features([text if known else "" for text, known in zip(texts, english, strict=True)])
    yield from contrast_slices(data, "complexity", has, among=english)
    n_words = np.array([len(words_of(text)) for text in texts])
    lengths = {f"{name} words": (n_words >= low) & (n_words <= high) for name, (low, high) in LENGTHS.items()}
    yield from contrast_slices(data, "length", lengths, among=english)
    ordinals = data.corpus.captions["ordinal"].take(ords).to_numpy()
    positions = {f"caption {ordinal}": ordinals == ordinal for ordinal in np.unique(ordinals).tolist()}
    yield from contrast_slices(data, "ordinal", positions, among=english)


def caption_features(texts: Sequence[str]) -> dict[str, NDArray[np.bool_]]:
    """Feature -> which captions have it, shape ``(n_captions,)``.

    Examples:
        >>> features = caption_features(["a red bus next to a tree", "two men", "nothing here"])
        >>> {name: has.tolist() for name, has in features.items()}["spatial"]
        [True, False, False]
    """
    return {name: np.array([bool(lexicon(name).matches(text)) for text in texts], dtype=bool) for name in FEATURES}


def english_captions(corpus: Corpus) -> NDArray[np.bool_]:
    """Which captions are English and have a text, shape ``(n_captions,)``."""
    language, text = corpus.captions["language"], corpus.captions["text"]
    return np.asarray(pc.and_(pc.starts_with(pc.utf8_lower(language), "en"), pc.is_valid(text)))
