"""Winoground and hard-negative pairs. Comparisons are strict: a tie is wrong (``docs/metrics.md``)."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capim.tasks.metrics.metric import FRACTION, Metric, Ties, stored_values
from capim.tasks.ranking.outcomes import Outcomes

Score: TypeAlias = Literal["text", "image", "group"]


def winoground(scores: NDArray[np.float32], score: Score, *, ties_win: bool = False) -> NDArray[np.bool_]:
    """Return a mask of the examples that are correct (Thrush et al. 2022), shape ``(n_examples,)``.

    ``text``: for both images, the right caption scores higher. ``image``: for both captions, the right image does.
    ``group``: both. (The V28 seed exchanged text and image in its printed columns.)

    Args:
        scores: ``c0i0 c0i1 c1i0 c1i1``, shape ``(n_examples, 4)``.
        ties_win: Count equal scores as correct, to show how many there are; by definition they are wrong.

    Examples:
        Caption 0 goes with image 0 by 0.9 to 0.2; caption 1 scores 0.5 with both images.

        >>> example = np.float32([[0.9, 0.2, 0.5, 0.5]])
        >>> [bool(winoground(example, score)[0]) for score in ("text", "image", "group")]
        [True, False, False]
    """
    beats = np.greater_equal if ties_win else np.greater
    c0i0, c0i1, c1i0, c1i1 = scores.T
    halves = beats(c0i0, c1i0), beats(c1i1, c0i1), beats(c0i0, c0i1), beats(c1i1, c1i0)
    return _example_is_right(np.stack(halves, axis=1), score)


def _example_is_right(judgements: NDArray[np.bool_], score: Score) -> NDArray[np.bool_]:
    text, image = text_and_image(judgements)
    return {"text": text, "image": image, "group": text & image}[score]


def text_and_image(judgements: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return Winoground's text and image score of each example, from its four or two ``Outcomes.judgements``.

    Examples:
        >>> text, image = text_and_image(np.array([[True, True, False, True]]))
        >>> text.tolist(), image.tolist()
        ([True], [False])
    """
    text, image = np.logical_and.reduce(judgements.reshape(len(judgements), 2, -1), axis=2).T
    return text, image


def _winoground(score: Score, title: str, guess: float) -> Metric:
    return Metric(
        name=f"winoground_{score}",
        heading=f"{score} score",
        headline="quadruples" if score == "group" else "",
        title=title,
        directions=frozenset({"quadruples"}),
        values=lambda o, ties: _examples_won(o, score, ties).astype(np.float64),
        guess=lambda _: guess,
        leaderboard=("quadruples",),
        place="none",
        beside_chance=True,
        share=True,
        **FRACTION,
    )


def _examples_won(outcomes: Outcomes, score: Score, ties: Ties) -> NDArray[np.bool_]:
    """Return a mask of the correct examples, by their scores or, for a model without scores, by its judgements."""
    if outcomes.judgements is not None:
        return _example_is_right(outcomes.judgements, score)
    scores = stored_values(outcomes, "scores", f" has no scores of quadruples; got {outcomes.protocol.direction}")
    return winoground(scores, score, ties_win=ties == "won")


def _all_won(outcomes: Outcomes, ties: Ties) -> NDArray[np.float64]:
    """Return 1 for sets in which every comparison was won, else 0; by definition a tie is lost."""
    won = ~outcomes.missed if ties == "won" else outcomes.found
    return won.astype(np.float64)


WINOGROUND_TEXT = _winoground("text", "For both images, the right caption scores higher", 1 / 4)
WINOGROUND_IMAGE = _winoground("image", "For both captions, the right image scores higher", 1 / 4)
WINOGROUND_GROUP = _winoground("group", "Text and image score of one example", 1 / 6)
WINOGROUND = (WINOGROUND_TEXT, WINOGROUND_IMAGE, WINOGROUND_GROUP)
PAIR_ACCURACY = Metric(
    name="pair_accuracy",
    heading="accuracy",
    headline="pairs",
    title="Every right caption scores higher than every hard negative",
    directions=frozenset({"pairs"}),
    values=_all_won,
    # random scores: the one right caption is first of all, or (SugarCrepe++) the one negative is last
    guess=lambda o: 1 / o.n_gallery,
    leaderboard=("pairs",),
    place="none",
    beside_chance=True,
    share=True,
    **FRACTION,
)
