"""The columns of a table of outcomes: what a file of ``capim import --outcomes`` may hold, and its JSON Schema.

``docs/outcomes.md`` explains them with examples. After a change, write the schema again:
``python -m capim.tasks.results.imported.columns > docs/outcomes.schema.json``.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Literal, NamedTuple


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
