"""A judged corpus of the size of a ViDoRe 3 subset: capim, pytrec_eval and mteb on the same random vectors.

capim ranks all pages for every query, computes every metric of judged documents and 10,000 bootstrap replicates; mteb
encodes by looking the vectors up, searches and evaluates. Reading the tables from files is in neither time.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytrec_eval
from numpy.typing import NDArray

from capim.store.schema import texts
from capim.store.types import Corpus
from capim.tasks.corpora.description import open_corpus
from capim.tasks.metrics import METRICS, metrics_of
from capim.tasks.ranking.cosine import dense_score_rows
from capim.tasks.ranking.evaluate import evaluate
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_tasks, drawn_clusters, protocols_of
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.results.summary import Evaluated, result_rows
from capim.tasks.statistics.draws import Resampling
from tests.benchmarks.by_mteb import ndcg_by_mteb
from tests.benchmarks.judged_pages import N_JUDGEMENTS, N_PAGES, N_QUERIES, write_judged_pages
from tests.benchmarks.rows import Row, fastest
from tests.repeated import SOURCE


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` takes a fortieth of the pages, a size at which the time is not the claim."""
    sizes = (80, 20, 120) if quick else (N_PAGES, N_QUERIES, N_JUDGEMENTS)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "pages"
        judged = write_judged_pages(place, n_pages=sizes[0], n_queries=sizes[1], n_judgements=sizes[2])
        vectors = {
            name: dict(zip(saved["ids"].tolist(), saved["vectors"], strict=True))
            for name in ("pages", "queries")
            if (saved := np.load(place / f"{name}.npz"))
        }
        corpus = open_corpus(place)
        images, captions = (
            np.stack([vectors[side][item] for item in texts(table["id"])])
            for side, table in (("pages", corpus.images), ("queries", corpus.captions))
        )
    outcomes, figures = _ours(corpus, images, captions)
    ours = fastest(lambda: _ours(corpus, images, captions))
    of_mteb = ndcg_by_mteb(judged, vectors["pages"] | vectors["queries"])
    theirs = fastest(lambda: ndcg_by_mteb(judged, vectors["pages"] | vectors["queries"]))
    names = {"nDCG@5": "ndcg_cut_5", "nDCG@10": "ndcg_cut_10", "recall@10": "recall_10", "AP": "map"}
    trec = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.5,10", "recall.10", "map"})
    of_trec = trec.evaluate(_run(corpus, images, captions))
    queries = outcomes.query_ids.tolist()
    untied = np.minimum.reduceat(outcomes.relevant_rank_best == outcomes.relevant_rank_worst, outcomes.offsets[:-1])
    apart = max(
        float(np.abs(METRICS[name].per_query(outcomes) - [of_trec[query][measure] for query in queries])[untied].max())
        for name, measure in names.items()
    )
    from_mteb = float(np.abs(METRICS["nDCG@10"].per_query(outcomes) - [of_mteb[query] for query in queries]).max())
    in_all = f"{int(untied.sum()):,} of {len(untied):,} queries have no relevant page that ties"
    shape = f"{sizes[0]:,} pages, {sizes[1]:,} queries, {sizes[2]:,} judgements"
    note, peer = f"{ours:.2f} s; {shape}; ours with {figures} figures and 10,000 replicates", f"mteb {theirs:.2f} s"
    in_all = f"{', '.join(names)} of a query on the same scores; {in_all}"
    of_peer = "Judged documents: largest difference from"
    return [
        Row("Judged documents: time relative to mteb, scored and evaluated", ours / theirs, "times", "< 1", peer, note),
        Row(f"{of_peer} pytrec_eval", apart, "", "<= 1e-9", "pytrec_eval", in_all),
        Row(f"{of_peer} mteb", from_mteb, "", "<= 1e-6", "mteb", "nDCG@10 of a query"),
    ]


def _ours(corpus: Corpus, images: NDArray[np.float32], captions: NDArray[np.float32]) -> tuple[Outcomes, int]:
    """The outcomes, and the number of figures with intervals that were computed from them."""
    [protocol] = protocols_of(corpus)
    outcomes = evaluate(corpus, [protocol], images=images, captions=captions)[protocol.id]
    evaluated = Evaluated(
        outcomes=outcomes, metrics=metrics_of(outcomes), source=SOURCE, drawn=drawn_clusters(corpus, protocol)
    )
    rows = result_rows([evaluated], Resampling())
    return outcomes, len(rows)


def _run(corpus: Corpus, images: NDArray[np.float32], captions: NDArray[np.float32]) -> dict[str, dict[str, float]]:
    """Every score of every query, as pytrec_eval reads them: those that our outcomes are ranked by."""
    [task] = build_tasks(corpus, protocols_of(corpus))
    assert isinstance(task, RetrievalTask)
    pages, queries = texts(corpus.images["id"]), texts(corpus.captions["id"])
    return {
        queries[start + row]: dict(zip(pages, scores, strict=True))
        for start, block, _ in dense_score_rows(images, captions, task)
        for row, scores in enumerate(block.double().tolist())
    }
