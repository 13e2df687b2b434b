"""The real hit lists of ALBEF and TCL, and the test split of COCO that they are about."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest

from capim.store.types import Corpus
from capim.tasks.corpora.readers.karpathy import read_coco_karpathy
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.results.imported.tables import outcomes_of_hits, read_hit_lists
from tests.results.thirty import retrieval_task

Lists: TypeAlias = dict[str, dict[str, dict[int, np.ndarray]]]


@pytest.fixture(scope="package")
def coco(shared_data: Path) -> Corpus:
    return read_coco_karpathy(shared_data / "coco_karpathy" / "test_5k.json")


@pytest.fixture(scope="package")
def lists(shared_data: Path) -> Lists:
    """Model -> protocol -> cutoff -> positions."""
    return read_hit_lists(shared_data / "coco_karpathy" / "hits")


@pytest.fixture(scope="package")
def outcomes(coco: Corpus, lists: Lists) -> dict[tuple[str, str], Outcomes]:
    """Model and protocol -> outcomes."""
    tasks = {protocol: retrieval_task(coco, protocol) for protocol in ("t2i/all", "i2t/any")}
    models = [(model, protocol) for model in lists for protocol in tasks]
    return {each: outcomes_of_hits(lists[each[0]][each[1]], tasks[each[1]]) for each in models}
