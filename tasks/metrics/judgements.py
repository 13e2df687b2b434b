"""A user's own judgements: additional pairs of a query and a relevant item, in a CSV file next to the store.

Columns: ``corpus``, ``direction`` (``t2i``: the query is a caption; ``i2t``: an image), ``query_id``, ``item_id``.
The file is the user's: pages add lines to it, ``capim evaluate --judgements`` reads it, and it may be edited manually.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

from capim.store.errors import RequestError, WorkError, csv_text, text_of_csv
from capim.store.files import existing_file
from capim.store.tables import rows_with


class Judgement(NamedTuple):
    """An item that is relevant to a query although the corpus does not list it."""

    corpus: str
    direction: str
    query_id: str
    item_id: str


def read_judgements(path: Path) -> list[Judgement]:
    """Return the judgements of a file, each once; an empty list if the file has only a heading.

    Raises:
        RequestError: If the file cannot be read, or lacks a column; the message names the row.
    """
    found: dict[Judgement, None] = {}
    for number, row in enumerate(rows_with(existing_file(path), *Judgement._fields), start=1):
        judgement = Judgement(*(text_of_csv(row[name] or "") for name in Judgement._fields))
        if not all(judgement) or judgement.direction not in ("t2i", "i2t"):
            raise RequestError(f"{path}: row {number}: expected a corpus, t2i or i2t, and two ids")
        found[judgement] = None
    return [*found]


def add_judgement(path: Path, judgement: Judgement) -> None:
    """Add a line to the file, which is created with its heading if it does not exist.

    Raises:
        WorkError: If the file cannot be written.
    """
    try:
        with path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            if not file.tell():
                writer.writerow(Judgement._fields)
            writer.writerow(map(csv_text, judgement))
    except OSError as fault:
        raise WorkError(f"the judgement was not kept: {path} cannot be written ({fault})") from fault
