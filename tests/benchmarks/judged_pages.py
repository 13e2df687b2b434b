"""A judged corpus as files, made up at the size of a ViDoRe 3 subset, with random vectors to import."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.benchmarks.made import unit
from tests.corpora.own_data import json_lines, write

N_PAGES, N_QUERIES, N_JUDGEMENTS = 2929, 309, 8766
"""Of Vidore3FinanceEnRetrieval, French: pages that differ, queries and judgements (there of all six languages)."""
DIM = 128


def write_judged_pages(
    folder: Path, *, n_pages: int = N_PAGES, n_queries: int = N_QUERIES, n_judgements: int = N_JUDGEMENTS, seed: int = 0
) -> dict[str, dict[str, int]]:
    """Write the tables, and vectors in ``pages.npz`` and ``queries.npz``; gives the judgements, as mteb has them.

    Every query has at least one judgement, with grades 1 and 2.
    """
    rng = np.random.default_rng(seed)
    counts = 1 + rng.multinomial(n_judgements - n_queries, np.full(n_queries, 1 / n_queries))
    pages, queries = [f"page{k}" for k in range(n_pages)], [f"query{k}" for k in range(n_queries)]
    judged = {
        query: {
            pages[page]: int(rng.integers(1, 3)) for page in sorted(rng.choice(n_pages, count, replace=False).tolist())
        }
        for query, count in zip(queries, counts.tolist(), strict=True)
    }
    json_lines(folder / "corpus.jsonl", ({"_id": page} for page in pages))
    json_lines(folder / "queries.jsonl", ({"_id": query, "text": f"question {query}"} for query in queries))
    rows = [f"{query}\t{page}\t{grade}" for query, found in judged.items() for page, grade in found.items()]
    qrels = "\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n"
    write(folder, {"qrels/test.tsv": qrels, "corpus.toml": 'reader = "judged"\ndataset = "."\nids_only = true\n'})
    for name, ids in (("pages", pages), ("queries", queries)):
        vectors = unit(rng.normal(size=(len(ids), DIM)).astype(np.float32))
        np.savez(folder / f"{name}.npz", ids=np.array(ids), vectors=vectors)
    return judged
