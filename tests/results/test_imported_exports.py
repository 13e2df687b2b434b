"""Outcomes that were exported and are imported again: the same to the last bit, or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from capim.store.errors import RequestError
from capim.store.files import write_row_file
from capim.tasks.metrics import metrics_of
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.results.imported.sources import ScoreMatrix, Source, outcomes_of_matrix, outcomes_of_source
from capim.tasks.results.imported.tables import named_rows, outcomes_of_rows
from tests.results.thirty import N_IMAGES, assert_equal, thirty_images, tied_scores


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_outcomes_without_scores_come_back_too(tmp_path: Path, suffix: str) -> None:
    """Their best score is not a number, which JSON has no word for."""
    corpus = thirty_images()
    rows = named_rows([{"query": f"i{i}", "rank": 1 + i} for i in range(N_IMAGES)])
    [original] = outcomes_of_rows(rows, corpus).outcomes
    identity = dict.fromkeys(("evaluation", "encoder", "encoder_fingerprint"), "e")
    path = tmp_path / f"outcomes{suffix}"
    write_row_file(path, original.to_arrow(**identity, corpus=corpus.name, corpus_fingerprint=corpus.fingerprint))
    if suffix == ".json":
        json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    [found] = outcomes_of_source(Source("outcomes", str(path), "b"), corpus)["b"].outcomes
    assert_equal(
        found, Outcomes.from_arrow(original.to_arrow(**identity, corpus="", corpus_fingerprint=""), found.protocol)
    )


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_exported_outcomes_come_back_to_the_last_bit(tmp_path: Path, suffix: str) -> None:
    corpus, scores = thirty_images(), tied_scores()
    originals = outcomes_of_matrix(ScoreMatrix(scores, None, None), corpus).outcomes
    identity = {
        "evaluation": "e", "encoder": "a", "encoder_fingerprint": "f",
        "corpus": corpus.name, "corpus_fingerprint": corpus.fingerprint,
    }  # fmt: skip
    path = tmp_path / f"outcomes{suffix}"
    tables = [outcomes.to_arrow(**identity) for outcomes in originals]
    write_row_file(path, pa.concat_tables(tables))
    found = outcomes_of_source(Source("outcomes", str(path), "b"), corpus)["b"].outcomes
    assert [o.protocol.id for o in found] == [o.protocol.id for o in originals]
    for ours, original, table in zip(found, originals, tables, strict=True):
        in_query_order = table.sort_by([("query_ord", "ascending"), ("query_id", "ascending")])
        assert_equal(ours, Outcomes.from_arrow(in_query_order, original.protocol))
        assert metrics_of(ours) == metrics_of(original)

    write_row_file(path, pa.concat_tables([tables[0], originals[1].to_arrow(**{**identity, "encoder": "c"})]))
    with pytest.raises(RequestError, match=r"of 2 encoders \(a, c\); export one of them"):
        outcomes_of_source(Source("outcomes", str(path), "b"), corpus)
    write_row_file(path, originals[0].to_arrow(**{**identity, "corpus_fingerprint": "other"}))
    with pytest.raises(RequestError, match=r"of another state of corpus 'thirty' \(other\)"):
        outcomes_of_source(Source("outcomes", str(path), "b"), corpus)
    write_row_file(path, tables[0].slice(1))
    with pytest.raises(RequestError, match=r"t2i/all: the 59 exported queries are not the 60 of the corpus"):
        outcomes_of_source(Source("outcomes", str(path), "b"), corpus)
