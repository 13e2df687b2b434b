"""A user's own judgements: pairs of a query and an item that belong together, in a CSV file beside the store.

Columns: ``corpus``, ``direction`` (``t2i``: the query is a caption; ``i2t``: an image), ``query_id``, ``item_id``. The
file is the user's: pages add lines to it, ``capim evaluate --judgements`` reads it, and it may be edited by hand.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

from capim.store.errors import RequestError, WorkError
from capim.store.safe_text import csv_text, text_of_csv


class Judgement(NamedTuple):
    """An item that is right for a query although the corpus does not say so."""

    corpus: str
    direction: str
    query_id: str
    item_id: str


def read_judgements(path: Path) -> list[Judgement]:
    """The judgements of a file, each once.

    Raises:
        RequestError: The file cannot be read, or lacks a column; names the line.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            if missing := [name for name in Judgement._fields if name not in (rows.fieldnames or ())]:
                raise RequestError(f"{path}: no column {', '.join(missing)}; expected {', '.join(Judgement._fields)}")
            found = []
            for row in rows:
                judgement = Judgement(*(text_of_csv(row[name] or "") for name in Judgement._fields))
                if not all(judgement) or judgement.direction not in ("t2i", "i2t"):
                    raise RequestError(f"{path}, line {rows.line_num}: expected a corpus, t2i or i2t, and two ids")
                found.append(judgement)
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        raise RequestError(f"{path} cannot be read as judgements ({fault})") from fault
    return list(dict.fromkeys(found))


def add_judgement(path: Path, judgement: Judgement) -> None:
    """Adds a line to the file, which is made with its heading if there is none.

    Raises:
        WorkError: The file cannot be written.
    """
    try:
        with path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            if not file.tell():
                writer.writerow(Judgement._fields)
            writer.writerow(map(csv_text, judgement))
    except OSError as fault:
        raise WorkError(f"the judgement was not kept: {path} cannot be written ({fault})") from fault
