"""Real files, shuffled and with their columns renamed: equal figures or a refusal, never others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora.readers.published import table_reader
from capim.tasks.metrics import metrics_of
from capim.tasks.ranking.protocols import build_task, protocols_of
from capim.tasks.results.imported.tables import named_rows, outcomes_of_rows

Rows = Sequence[Mapping[str, Any]]
Figures = dict[tuple[str, str], float]


def figures(rows: Rows, corpus: Corpus) -> Figures:
    """Every figure that rows give, to the last digit."""
    found = outcomes_of_rows(named_rows(rows), corpus)
    return {(o.protocol.id, metric.name): metric.value(o) for o in found.outcomes for metric in metrics_of(o)}


def check(rows: Rows, corpus: Corpus, expected: Figures, renamed: Mapping[str, str]) -> bool:
    """Whether shuffled rows under other names are taken; their figures are those in order then."""
    order = np.random.default_rng(0).permutation(len(rows))
    shuffled = [{renamed.get(name, name): cell for name, cell in rows[at].items()} for at in order]
    try:
        found = figures(shuffled, corpus)
    except RequestError:
        return False
    assert found == pytest.approx(expected, rel=0, abs=1e-12), renamed
    return True


FOLDERS = {"sugarcrepe": "sugar_crepe", "sugarcrepe-pp": "sugarcrepe_pp"}


def answers(reader: str, shared_data: Path) -> tuple[Corpus, list[dict[str, Any]], Figures]:
    """The pairs of a folder's files, answers that depend on the pair, and their figures.

    A set of two right captions is one query.
    """
    folder = shared_data / FOLDERS[reader]
    corpus = table_reader(reader)(folder, categories=[path.stem for path in sorted(folder.glob("*_*.json"))])
    text_of = dict(zip(corpus.captions["id"].to_pylist(), corpus.captions["text"].to_pylist(), strict=True))
    queries = {query for protocol in protocols_of(corpus) for query in build_task(corpus, protocol).query_ids.tolist()}
    rows = [
        {"id": row["id"], "correct": len(str(text_of[row["caption_id"]])) % 3 > 0, "category": row["category"],
         "caption": text_of[row["caption_id"]], "negative_caption": text_of[row["negative_id"]]}
        for row in corpus.pairs.to_pylist() if row["id"] in queries
    ]  # fmt: skip
    return corpus, rows, figures(rows, corpus)


@pytest.mark.parametrize("reader", FOLDERS)
def test_sugarcrepe_s_and_its_successor_s_pairs(shared_data: Path, reader: str) -> None:
    """By id under an unusual name, by their texts alone, and by their texts under other names, if at all."""
    corpus, rows, expected = answers(reader, shared_data)
    assert check([{"id": row["id"], "correct": row["correct"]} for row in rows], corpus, expected, {"id": "nummer"})
    assert check([{key: cell for key, cell in row.items() if key != "id"} for row in rows], corpus, expected, {})
    check(rows, corpus, expected, {"id": "index", "caption": "a", "negative_caption": "b"})
