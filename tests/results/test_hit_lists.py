"""Hit lists: real ones of ALBEF and TCL on COCO 5K, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy

from capim.store.errors import RequestError
from capim.store.sets.importing import imported_encoder
from capim.store.types import OF_OUTCOMES
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.metrics import METRICS
from capim.tasks.results.comparison import compared_figures, encoder_key, figure_rows
from capim.tasks.results.imported.sources import Imported, evaluation_of
from capim.tasks.results.imported.tables import outcomes_of_hits, read_hit_lists
from capim.tasks.results.summary import Evaluated, Source, result_rows
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import cluster_robust_error, wilson_interval
from tests.results.thirty import retrieval_task

PUBLISHED = {  # shared/data/README.md: counted from the lists themselves; ALBEF and TCL report the same figures
    ("ALBEF", "t2i/all"): (60.67, 84.33, 90.51),
    ("ALBEF", "i2t/any"): (77.58, 94.26, 97.16),
    ("TCL", "t2i/all"): (58.98, 83.17, 89.87),
    ("TCL", "i2t/any"): (75.60, 92.76, 96.68),
}
DISCORDANT = {"t2i/all": (2089, 1667), "i2t/any": (430, 331)}


SOURCE = ("evaluation", "encoder", "encoder_fingerprint", "corpus", "corpus_fingerprint")


@pytest.mark.parametrize("model", ["ALBEF", "TCL"])
def test_recalls_of_real_models_are_the_published_ones(outcomes, coco, model: str) -> None:
    encoder = imported_encoder(model, OF_OUTCOMES, dim=1)
    imported = Imported.of([outcomes[model, p] for p in ("t2i/all", "i2t/any")], encoder, coco)
    for evaluation in imported.outcomes:
        stored = imported.rows(evaluation)
        source = Source(**{name: stored[name][0].as_py() for name in SOURCE}, run="r")
        evaluated = Evaluated.of(imported.outcomes[evaluation], coco, source)
        rows: list[Any] = result_rows([evaluated], Resampling(replicates=2_000))
        robust = [cluster_robust_error(*sample) for _, sample in evaluated.samples]
        protocol = stored["protocol"][0].as_py()
        assert [row.metric for row in rows] == ["R@1", "R@5", "R@10"]  # and nothing that brackets leave open
        assert tuple(round(100 * row.value, 2) for row in rows) == PUBLISHED[model, protocol]
        for row, error in zip(rows, robust, strict=True):
            identity = row.protocol, row.encoder, row.encoder_fingerprint
            assert identity == (protocol, model, encoder.fingerprint)
            # ties lost, won and expected agree, and no share of ties is claimed: no score was seen
            assert row.value_ties_lost == row.value == row.value_ties_won
            assert row.tie_share is None
            assert row.ci_low < row.value < row.ci_high
            assert row.n_clusters == 5_000
            assert row.standard_error == pytest.approx(error, rel=0.06)
        first, value, n = rows[0], rows[0].value, rows[0].n_queries
        independent = np.sqrt(value * (1 - value) / n)
        if protocol == "t2i/all":  # five captions of an image hit and miss together
            assert robust[0] > 1.3 * independent
        else:
            assert robust[0] == pytest.approx(independent, rel=1e-3)
            assert (first.ci_low, first.ci_high) == pytest.approx(wilson_interval(value * n, n), abs=1e-4)


@pytest.mark.parametrize("protocol", DISCORDANT)
def test_albef_beats_tcl_with_the_discordant_pairs_of_the_lists(outcomes, coco, protocol: str) -> None:
    encoders = {encoder_key(m, m): outcomes[m, protocol] for m in ("ALBEF", "TCL")}
    how = Resampling(replicates=2_000, permutations=4_999)
    figures = compared_figures(encoders, [METRICS["R@1"]], 5_000)
    of_corpus = {"corpus": coco.name, "corpus_fingerprint": coco.fingerprint}
    rows: list[Any] = figure_rows(figures, **of_corpus, run="r", resampling=how)
    [row] = rows
    wins, losses = DISCORDANT[protocol]
    n_queries = {"t2i/all": 25_010, "i2t/any": 5_000}[protocol]
    assert (row.wins, row.losses, row.ties) == (wins, losses, n_queries - wins - losses)
    assert row.difference == pytest.approx((wins - losses) / n_queries, abs=1e-12)
    assert 0 < row.ci_low < row.difference < row.ci_high
    assert row.p_sign_flip < 0.01
    if protocol == "i2t/any":  # one query per image: McNemar's exact test
        assert row.p_sign_flip == pytest.approx(scipy.stats.binomtest(wins, wins + losses).pvalue, abs=0.002)


# Twelve images, four of them with a caption.
TOY = build_corpus(
    "toy", [ImageRow(f"i{i}") for i in range(12)], [CaptionRow(f"c{i}", f"i{i}", "x") for i in range(4)], source=None
)
TASK = retrieval_task(TOY)


def test_the_bracket_of_every_query_holds_its_rank() -> None:
    ranks = np.array([1, 3, 7, 12])  # t2i: one image of twelve is relevant
    hits = {k: np.flatnonzero(ranks <= k) for k in (1, 5, 10)}
    known = outcomes_of_hits(hits, TASK)
    assert list(zip(known.rank_best.tolist(), known.rank_worst.tolist(), strict=True)) == [
        (1, 1), (2, 5), (6, 10), (11, 12),
    ]  # fmt: skip
    for k in (1, 5, 10):
        assert METRICS[f"R@{k}"].per_query(known).tolist() == (ranks <= k).tolist()


@pytest.mark.parametrize(
    ("hits", "message"),
    [
        ({}, "no hit list: expected at least"),
        ({1: [0], 5: [1]}, "1 queries hit at 1 but not at 5, first query 0"),
        ({1: [9], 5: [1, 1]}, r"(?s)position 9 is outside.*1 positions are listed more than once"),  # together
        ({1: [4]}, r"position 4 is outside 0\.\.3, the positions of the 4 queries"),
        ({1: [-1]}, r"position -1 is outside 0\.\.3, the positions of the 4 queries"),
        ({1: [0.5]}, "expected a one-dimensional array of integers, got float64"),
        ({1: [[0]]}, r"expected a one-dimensional array of integers, got int64 of shape \(1, 1\)"),
        ({0: [0]}, "hits at 0: expected a one-dimensional array of integers"),
        ({12: [0]}, "3 queries are missing, but every order of so small a gallery hits"),
    ],
)
def test_lists_that_cannot_be_true_are_named(hits: dict[int, list[float]], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        outcomes_of_hits(hits, TASK)


def test_the_evaluation_changes_with_any_hit_and_not_with_their_order() -> None:
    def digest(hits: dict[int, list[int]], model: str = "a") -> str:
        return evaluation_of(outcomes_of_hits(hits, TASK), imported_encoder(model, OF_OUTCOMES, dim=1), TOY)

    assert digest({1: [0, 2], 5: [0, 2]}) == digest({5: [2, 0], 1: [2, 0]})
    # the model is what the user says it is, so the same lists of another one are another evaluation
    assert len({digest({1: [0]}), digest({1: [1]}), digest({1: []}), digest({1: [0]}, "b")}) == 4


def test_a_folder_without_lists_or_with_a_broken_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is not a folder"):
        read_hit_lists(tmp_path / "absent")
    with pytest.raises(RequestError, match="has no file like MODEL_ir1_rank_index"):
        read_hit_lists(tmp_path)
    (tmp_path / "X_ir1_rank_index.npy").write_bytes(b"not an array")
    np.save(tmp_path / "X_ir5_rank_index.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(RequestError) as caught:
        read_hit_lists(tmp_path)
    assert len(caught.value.faults) == 2
