"""Slices of judged documents: which queries are in which part."""

from __future__ import annotations

import numpy as np

from capim.tasks.analyses.analysis import AnalysisInput
from capim.tasks.analyses.table import diagnose
from capim.tasks.corpora.build import CaptionRow, ImageRow, RelevanceRow, build_corpus
from capim.tasks.ranking.given import score_given
from capim.tasks.ranking.protocols import build_task, protocols_of


def test_parts_are_languages_kinds_numbers_of_documents_and_pages() -> None:
    """Query 0: three pages, the best of grade 2 on page 3; query 1: one page, the first; query 2: no page number."""
    corpus = build_corpus(
        "pages",
        [ImageRow("a", page=1), ImageRow("b", page=3), ImageRow("c", page=7), ImageRow("d")],
        [
            CaptionRow("q0", None, "x", query_types=["number", "table"]),
            CaptionRow("q1", None, "y", language="fr", query_types=["table"]),
            CaptionRow("q2", None, "z", language="fr"),
        ],
        source=None,
        relevance=[
            RelevanceRow("judged", "t2i", query, page, grade)
            for query, page, grade in (("q0", "a", 1), ("q0", "b", 2), ("q0", "c", 2), ("q1", "a", 1), ("q2", "d", 1))
        ],
    )
    protocol = protocols_of(corpus)[0]
    scores = np.array([[1, 4, 3, 2], [4, 3, 2, 1], [4, 3, 2, 1]], dtype=np.float32)
    outcomes = score_given(scores, [build_task(corpus, protocol)])[protocol.id]
    data = AnalysisInput(corpus=corpus, protocol=protocol, outcomes={"model": outcomes})
    slices = list(diagnose(data))
    assert {each.analysis for each in slices} == {"judged", "errors"}
    counts = {(s.feature, s.level_name): s.n_queries for s in slices if s.analysis == "judged"}
    assert counts == {
        ("language", "en"): 1,
        ("language", "fr"): 2,
        ("kind of query", "number"): 1,
        ("kind of query", "table"): 2,
        ("relevant documents", "1"): 2,
        ("relevant documents", "2-3"): 1,
        ("where in the document", "page 1"): 1,
        ("where in the document", "pages 2-5"): 1,
    }
    assert {s.metric for s in slices if s.analysis == "judged"} == {"nDCG@10"}
