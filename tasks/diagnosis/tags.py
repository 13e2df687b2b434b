"""Winoground and hard-negative pairs by tag, ties, and what a caption alone would give.

The tags are the corpus' own: ``Object``, ``Relation``, ``Both`` of Winoground (Thrush et al. 2022) and those of "Why
is Winoground Hard?" (Diwan et al. 2022) where its reader adds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tasks.diagnosis.contrasts import mean_slices, part_slices
from tasks.diagnosis.subject import Slice, Subject
from tasks.diagnosis.wording.lexicon import words_of
from tasks.statistics.bootstrap import Interval
from tasks.statistics.proportion import wilson_interval

QUADRUPLE_METRICS = ("winoground_text", "winoground_image", "winoground_group")


def tags(subject: Subject) -> Iterator[Slice]:
    """Text, image and group score per tag, and the share of examples with a tie in either."""
    if subject.protocol.direction != "quadruples":
        return
    of_example = [frozenset(each) for each in subject.corpus.quadruples["tags"].to_pylist()]
    of_query = [of_example[ord_] for ord_ in subject.queries.query_ords.tolist()]
    known = sorted(frozenset().union(*of_query))
    parts = {(tag, ""): np.array([tag in each for each in of_query]) for tag in known}
    if not all(of_query):
        parts["no tag", ""] = np.array([not each for each in of_query])
    for metric in QUADRUPLE_METRICS:
        yield from part_slices(subject, "tags", parts, metric=metric)
    ties = {(name, "ties", ""): outcomes.tied for name, outcomes in subject.outcomes.items()}
    yield from mean_slices(subject, "tags", ties, metric="share of examples with a tie")


def baselines(subject: Subject) -> Iterator[Slice]:
    """What scorers get that never look at the image; under the first encoder, for they are no encoder's.

    Of a pair: how often the caption is the longer one, and how often its words are the commoner ones in the corpus'
    captions. Far from one half, the negatives give themselves away (Hsieh et al., SugarCrepe, 2023, section 3). Of a
    quadruple: such a scorer gives a caption one score for both images, so it gets text 0 and ties every image choice;
    of single choices between the two captions it gets exactly one half.
    """
    if subject.protocol.direction == "pairs":
        yield from _pair_baselines(subject)
    elif subject.protocol.direction == "quadruples":
        n = len(subject.queries)
        for metric in QUADRUPLE_METRICS:
            yield Slice(
                encoder=subject.encoders[0],
                analysis="baseline",
                feature="caption alone",
                level_name="",
                metric=metric,
                interval=Interval(value=0.0, reason="by definition: one score per caption ties or loses every example"),
                n_queries=n,
                n_clusters=n,
                detail={"single_choice": 0.5},
            )


def _pair_baselines(subject: Subject) -> Iterator[Slice]:
    corpus = subject.corpus
    text = dict(zip(corpus.captions["id"].to_pylist(), corpus.captions["text"].to_pylist(), strict=True))
    asked = corpus.pairs.take(subject.queries.query_ords)
    right = [words_of(text[name] or "") for name in asked["caption_id"].to_pylist()]
    wrong = [words_of(text[name] or "") for name in asked["negative_id"].to_pylist()]
    frequency = Counter(word for words in (*right, *wrong) for word in words)
    scorers = {
        "longer caption": (_lengths(right), _lengths(wrong)),
        "commoner words": (_commonness(right, frequency), _commonness(wrong, frequency)),
    }
    for name, (of_right, of_wrong) in scorers.items():
        won = (of_right > of_wrong) + 0.5 * (of_right == of_wrong)
        low, high = wilson_interval(float(won.sum()), len(won), level=subject.resampling.level)
        yield Slice(
            encoder=subject.encoders[0],
            analysis="baseline",
            feature=name,
            level_name="",
            metric="pair_accuracy",
            interval=Interval(value=float(won.mean()), low=low, high=high, method="wilson"),
            n_queries=len(won),
            n_clusters=subject.clusters.n_occupied,
            detail={"ties_count": 0.5},
        )


def _lengths(captions: list[list[str]]) -> NDArray[np.float64]:
    return np.array([len(words) for words in captions], dtype=np.float64)


def _commonness(captions: list[list[str]], frequency: Counter[str]) -> NDArray[np.float64]:
    """Mean log frequency of a caption's words; a caption without words is as uncommon as can be."""
    return np.array([np.mean([np.log(frequency[w]) for w in words]) if words else -np.inf for words in captions])
