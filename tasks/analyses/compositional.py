"""Winoground and hard-negative pairs: scores by tag, ties, and what the captions alone would give.

The tags are those of the corpus: ``Object``, ``Relation``, ``Both`` of Winoground (Thrush et al. 2022) and those of
"Why is Winoground Hard?" (Diwan et al. 2022) where its reader adds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capim.tasks.analyses.analysis_input import AnalysisInput
from capim.tasks.analyses.content.lexicon import words_of
from capim.tasks.analyses.slice_means import QueryValues, mean_slices, part_slices
from capim.tasks.analyses.slices import Slice
from capim.tasks.statistics.intervals import Interval, share_interval

QUADRUPLE_METRICS = ("winoground_text", "winoground_image", "winoground_group")


def tags(data: AnalysisInput) -> Iterator[Slice]:
    """Text, image and group score per tag, and the share of examples with a tie; or a given metric per tag."""
    tags_of: list[Any] = data.corpus.quadruples["tags"].take(data.queries.query_ords).to_pylist()
    names = sorted({tag for tags in tags_of for tag in tags})
    parts = {(tag, ""): np.array([tag in tags for tags in tags_of]) for tag in names}
    parts["no tag", ""] = np.array([not tags for tags in tags_of])
    for metric in QUADRUPLE_METRICS if data.given is None else (data.metric,):
        yield from part_slices(data, "tags", parts, metric=metric)
    if data.given is not None:
        return
    scored = {name: outcomes for name, outcomes in data.outcomes.items() if outcomes.scores is not None}
    ties = [QueryValues(name, "ties", outcomes.tied) for name, outcomes in scored.items()]
    yield from mean_slices(data, "tags", ties, metric="share of examples with a tie")


def caption_baselines(data: AnalysisInput) -> Iterator[Slice]:
    """What scorers reach that never look at the image; stored under the first encoder, but independent of it.

    Pairs: how often the right caption is the longer one, and how often its words are the more frequent ones in the
    corpus. Far from one half, the negatives give themselves away (Hsieh et al., SugarCrepe, 2023, section 3). Not for
    sets of more captions, where one half is not what such a scorer is compared with.
    Quadruples: such a scorer gives a caption the same score with both images, so it ties or loses every example; a
    single choice between the two captions is right with probability one half.
    """
    encoder = data.encoders[0]
    if data.protocol.direction == "quadruples":
        nothing = Interval(value=0.0, reason="by definition: one score per caption ties or loses every example")
        for metric in QUADRUPLE_METRICS:
            detail = {"single_choice": 0.5}
            yield data.slice(encoder, "baseline", "caption alone", metric, nothing, detail=detail)
        return
    if data.queries.n_gallery.max() > 2:
        return
    captions, pairs = data.corpus.captions, data.corpus.pairs.take(data.queries.query_ords)
    named = zip(captions["id"].to_pylist(), captions["text"].to_pylist(), strict=True)
    words = {name: words_of(text or "") for name, text in named}
    right = [words[name] for name in pairs["caption_id"].to_pylist()]
    wrong = [words[name] for name in pairs["negative_id"].to_pylist()]
    frequency = Counter(word for caption in (*right, *wrong) for word in caption)

    def mean_log_frequency(captions: list[list[str]]) -> NDArray[np.float64]:
        return np.array([np.mean([np.log(frequency[w]) for w in c]) if c else -np.inf for c in captions])

    scores = {
        "longer caption": (np.array([*map(len, right)]), np.array([*map(len, wrong)])),
        "commoner words": (mean_log_frequency(right), mean_log_frequency(wrong)),
    }
    for name, (of_right, of_wrong) in scores.items():
        won = (of_right > of_wrong) + 0.5 * (of_right == of_wrong)
        interval = share_interval(won, data.clusters, level=data.resampling.level)
        yield data.slice(encoder, "baseline", name, "pair_accuracy", interval, detail={"ties_count": 0.5})
