"""SugarCrepe++ on its real texts: the rule of the authors' code, item by item."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capim.tasks.corpora.readers.published import table_reader
from capim.tasks.metrics import METRICS
from capim.tasks.ranking.cosine import score_dense
from tests.ranking.conftest import tasks_of, unit

CATEGORIES = ("replace_att", "replace_rel", "swap_att")


def test_both_captions_of_sugarcrepe_pp_must_beat_the_negative(shared_data: Path) -> None:
    """``cos_p1 > cos_neg and cos_p2 > cos_neg`` (VLMs/test_Variants_CLIP.py of github.com/Sri-Harsha/scpp)."""
    corpus = table_reader("sugarcrepe-pp")(shared_data / "sugarcrepe_pp", categories=CATEGORIES)
    rng = np.random.default_rng(0)
    images, captions = (unit(rng.standard_normal((len(items), 16))) for items in (corpus.images, corpus.captions))
    found = score_dense(images, captions, tasks_of(corpus))
    assert list(found) == [f"sugarcrepe-pp/{part}" for part in (*CATEGORIES, "macro", "micro")]

    image_of = dict(zip(corpus.images["id"].to_pylist(), images, strict=True))
    caption_of = dict(zip(corpus.captions["id"].to_pylist(), captions, strict=True))
    won: dict[str, list[bool]] = {category: [] for category in CATEGORIES}
    for row in corpus.pairs.to_pylist()[::2]:
        item, image = row["caption_id"], image_of[row["image_id"]]
        first, second, negative = (float(image @ caption_of[f"{item}{end}"]) for end in ("", "/2", "/negative"))
        won[row["category"]].append(first > negative and second > negative)
    accuracy = METRICS["pair_accuracy"]
    for category in CATEGORIES:
        outcomes = found[f"sugarcrepe-pp/{category}"]
        assert accuracy.per_query(outcomes).tolist() == won[category]
        assert accuracy.chance(outcomes) == pytest.approx(1 / 3)
    means = [np.mean(won[category]) for category in CATEGORIES]
    every = [each for category in CATEGORIES for each in won[category]]
    assert accuracy.value(found["sugarcrepe-pp/macro"]) == pytest.approx(np.mean(means))
    assert accuracy.value(found["sugarcrepe-pp/micro"]) == pytest.approx(np.mean(every))
    assert np.mean(every) == pytest.approx(1 / 3, abs=0.03)  # random vectors guess
