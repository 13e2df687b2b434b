"""The columns of a table of outcomes: what a file of ``capim import --outcomes`` may hold, and its JSON Schema.

``docs/outcomes.md`` explains them with examples. After a change, write the schema again:
``python -m capim.tasks.results.imported.columns > docs/outcomes.schema.json``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capim.store.values import positions_within
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.tasks import RetrievalTask, query_columns


class Column(NamedTuple):
    """One column: the kind of its values, and what they mean."""

    kind: Literal["text", "rank", "flag"]
    meaning: str


COLUMNS: dict[str, Column] = {
    "protocol": Column("text", "id of the protocol (`capim list protocols`); `--protocol` gives one to the whole file"),
    "query": Column(
        "text",
        "id of the query: of a caption (t2i), an image (i2t), a pair or a quadruple; a column `id`, `query_id`, "
        "`caption_id`, `image_id`, `example_id` or the like is taken as well",
    ),
    "caption": Column(
        "text", "text of the caption of a pair, or of caption 0 of a quadruple; instead of its id, or to check it"
    ),
    "negative_caption": Column("text", "text of the hard negative of a pair, or of caption 1 of a quadruple"),
    "category": Column("text", "category of a pair, to tell pairs with the same texts apart"),
    "rank": Column("rank", "rank of the first relevant item, 1 for the first place"),
    "rank_best": Column(
        "rank", "lowest rank that the first relevant item can have, where the rank is not known exactly"
    ),
    "rank_worst": Column("rank", "highest rank that it can have"),
    "correct": Column(
        "flag", "pairs: whether the caption was chosen, not its negative; with k: whether a relevant item is found"
    ),
    "k": Column("rank", "`correct` is about the first k items"),
    "text_0": Column("flag", "whether the right caption was chosen for image 0"),
    "text_1": Column("flag", "whether the right caption was chosen for image 1"),
    "image_0": Column("flag", "whether the right image was chosen for caption 0"),
    "image_1": Column("flag", "whether the right image was chosen for caption 1"),
    "text": Column("flag", "whether the right caption was chosen for both images"),
    "image": Column("flag", "whether the right image was chosen for both captions"),
    "group": Column("flag", "`text` and `image`"),
}

HALVES = ("text_0", "text_1", "image_0", "image_1")
FORMS: dict[str, tuple[str, ...]] = {
    "rank": ("rank",),
    "range": ("rank_best", "rank_worst"),
    "hits": ("correct", "k"),
    "pairs": ("correct",),
    "halves": HALVES,
    "scores": ("text", "image"),
}
"""What was measured -> the columns that say it. The first form of which a row has all columns is the row's."""

PUBLISHED = {
    # github.com/IMirandaM/BiVLC, results: its files of May and of June 2024
    **dict(zip(("text_score_i0", "text_score_i1", "image_score_c0", "image_score_c1"), HALVES, strict=True)),
    **dict(zip(("Ipos_2T", "Ineg_2T", "Tpos_2I", "Tneg_2I"), HALVES, strict=True)),
    **dict.fromkeys(("text_score", "I2T"), "text"),
    **dict.fromkeys(("image_score", "T2I"), "image"),
    "group_score": "group",
    **dict.fromkeys(("", "unnamed:_0", "__index_level_0__"), "index"),  # pandas' index, in CSV and in Parquet
}
"""Column of a published file -> ours. SugarCrepe's own answers of GPT-4V have our names."""

QUERY = ("query", "query_id")
KEYS = {
    "captions": ("caption_id", "text_id"),
    "images": ("image_id", "img_id"),
    "": ("qid", "example_id", "pair_id", "question_id", "sample_id", "item_id", "id", "_id", "uid"),
    "rows": ("index", "idx"),
}
"""Kind of item, "" for any -> usual names of a column of its ids: such a column may say which query a row is about. The
columns ``QUERY`` always do."""

_JSON_TYPES: dict[str, dict[str, Any]] = {
    "text": {"type": ["string", "integer", "null"]},
    "rank": {"type": ["integer", "null"], "minimum": 1},
    "flag": {"enum": [True, False, 0, 1, None]},
}


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a table as an array of rows."""
    properties = {name: {**_JSON_TYPES[c.kind], "description": c.meaning} for name, c in COLUMNS.items()}
    present = [{"required": list(names)} for names in dict.fromkeys(FORMS.values())]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Outcomes of a model without embeddings",
        "description": "One row per query. `capim import --outcomes` also reads the same columns from CSV and Parquet.",
        "type": "array",
        "minItems": 1,
        "items": {"type": "object", "properties": properties, "anyOf": present},
    }


if __name__ == "__main__":
    json.dump(json_schema(), sys.stdout, indent=1)
    sys.stdout.write("\n")


# --- The cells of a table of outcomes as numbers, truth values and queries; faults name the row and what was expected.


Row: TypeAlias = Mapping[str, Any]
"""A row of a file under our names of columns; ``_row`` is its place: ``3``, or ``answers.json:3`` of several files."""

NUMBER = "_row"
_FLAGS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
_SHOWN = 5
_KEYS = {*QUERY, *(name for names in KEYS.values() for name in names)} - {*COLUMNS}


def named_rows(rows: Iterable[Mapping[str, Any]], file: str = "") -> list[Row]:
    """Rows with our names of columns, without other columns and without empty cells, numbered from 1."""
    named: list[Row] = []
    for number, row in enumerate(rows, start=1):
        ours = {_our_name(name): cell for name, cell in row.items() if cell is not None}
        if {"type", "subtype"} <= ours.keys():  # BiVLC's results on SugarCrepe
            ours.setdefault("category", f"{ours['type']}_{ours['subtype']}")
        place = f"{file}:{number}" if file else f"{number}"
        named.append({NUMBER: place, **{name: cell for name, cell in ours.items() if name in _KEYS or name in COLUMNS}})
    return named


@cache
def _our_name(name: str) -> str:
    """Our name of a column; a column of ids may be written in any way: ``Image-ID``."""
    plain = re.sub(r"[\s-]+", "_", name.strip().lower())
    return PUBLISHED.get(name, PUBLISHED.get(plain, plain if plain in _KEYS else name))


def form_of(row: Row) -> str | None:
    """The first form of :data:`FORMS` of which the row has all columns; None if it has none."""
    return next((form for form, names in FORMS.items() if all(name in row for name in names)), None)


def ranks(rows: Sequence[Row], column: str, faults: list[str]) -> NDArray[np.int32]:
    """Whole numbers from 1, shape ``(n_rows,)``; 1 in rows at fault, which are added to ``faults``."""
    values = np.ones(len(rows), dtype=np.int32)
    wrong = []
    for at, row in enumerate(rows):
        try:
            value = float(row[column])
        except (TypeError, ValueError):
            value = 0.0
        if 1 <= value < 2**31 and value.is_integer() and not isinstance(row[column], bool):
            values[at] = int(value)
        else:
            wrong.append(row)
    _complain(wrong, column, "a whole number from 1", faults)
    return values


def flags(rows: Sequence[Row], column: str, faults: list[str]) -> NDArray[np.bool_]:
    """Truth values, shape ``(n_rows,)``; False in rows at fault, which are added to ``faults``."""
    values = [_FLAGS.get(str(row[column]).strip().lower()) for row in rows]
    wrong = [row for row, value in zip(rows, values, strict=True) if value is None]
    _complain(wrong, column, "true, false, 1 or 0", faults)
    return np.array([bool(value) for value in values], dtype=bool)


def _complain(wrong: Sequence[Row], column: str, expected: str, faults: list[str]) -> None:
    shown = ", ".join(f"{row[column]!r} in row {row[NUMBER]}" for row in wrong[:_SHOWN])
    more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    if wrong:
        faults.append(f"{column}: expected {expected}, got {shown}{more}")


def plain_text(text: object) -> str:
    """A text with single spaces and none at its ends: publications of one data set differ in them."""
    return " ".join(str(text).split())


# --- Outcomes from the rank of each query's first relevant item, or from the range that the rank is known to be in.


def last_ranks(task: RetrievalTask) -> NDArray[np.int32]:
    """The last rank that the first relevant item can have, behind every irrelevant one; shape ``(n_queries,)``."""
    return task.n_gallery - task.n_relevant.astype(np.int32) + 1


def outcomes_of_ranges(task: RetrievalTask, low: NDArray[np.int32], high: NDArray[np.int32]) -> Outcomes:
    """The outcomes of queries whose first relevant item has a rank from ``low`` to ``high``, shape ``(n_queries,)``.

    Where the two are equal the rank is known. Nothing is known of further relevant items but that they follow.
    """
    n_queries, n_relevant = len(task.queries), task.n_relevant.astype(np.int32)
    order = positions_within(n_relevant).astype(np.int32)
    relevant_rank_worst = np.repeat(last_ranks(task), n_relevant) + order
    relevant_rank_worst[task.offsets[:-1]] = high
    n_ranked = (low == high).astype(np.int32)
    return Outcomes(
        **query_columns(task),
        rank_best=low,
        rank_worst=high,
        n_tied_relevant=np.ones(n_queries, dtype=np.int32),
        best_score=np.full(n_queries, np.nan, dtype=np.float32),
        relevant_rank_best=np.repeat(low, n_relevant) + order,
        relevant_rank_worst=relevant_rank_worst,
        n_ranked=None if (n_ranked == n_relevant).all() else n_ranked,
    )
