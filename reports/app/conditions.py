"""Conditions of a filter of queries: a selection of items, and slices."""

from __future__ import annotations

from dataclasses import dataclass

from capim.reports.app.state import Evaluated
from capim.reports.rows.languages import judged_language
from capim.store.errors import RequestError

MOST_ITEMS = 1_000_000  # of a selection
SLICES = {"shows": "image shows", "type": "type of query", "tag": "tag", "ambiguous": "ambiguous miss"}


@dataclass(frozen=True, kw_only=True)
class Clauses:
    """The condition of a statement, with its values."""

    conditions: list[str]
    values: list[object]

    def add(self, condition: str, *values: object) -> None:
        """Requires one more condition, with the values of its ``?``."""
        self.conditions.append(condition)
        self.values.extend(values)


def among(where: Clauses, items: str, evaluated: Evaluated) -> None:
    """The queries of a selection; of one of images also the captions of these."""
    kind, _, listed = items.partition(":")
    ends = [part.partition("-") for part in listed.split(".")]
    if not all(one.isdecimal() and len(one) < 10 for low, _, high in ends for one in (low, high or low)):
        raise RequestError(f"items={items[:60]}: expected caption:3-5.9 or image:7, positions in the corpus")
    ranges = [range(int(low), int(high or low) + 1) for low, _, high in ends]
    if sum(map(len, ranges)) > MOST_ITEMS:
        raise RequestError(f"items={items[:60]}: more than {MOST_ITEMS:,} items; select fewer")
    positions = [position for each in ranges for position in each]
    if (kind, evaluated.direction) in (("caption", "t2i"), ("image", "i2t")):
        where.add("o.query_ord IN (SELECT unnest(?))", positions)
    elif (kind, evaluated.direction) == ("image", "t2i"):
        of_images = "SELECT id FROM images WHERE corpus_fingerprint = ? AND ord IN (SELECT unnest(?))"
        where.add(f"i.image_id IN ({of_images})", evaluated.corpus_fingerprint, positions)
    else:
        raise RequestError(f"items={items[:60]}: queries of {evaluated.protocol} are no {kind}s")


def in_slice(where: Clauses, kind: str, value: str, evaluated: Evaluated) -> None:
    """The queries of a slice, such as those whose image shows an object."""
    direction = evaluated.direction
    if kind == "shows" and judged_language(evaluated.protocol) is None:
        of_image = "SELECT ord FROM images WHERE corpus_fingerprint = ? AND list_contains(objects, ?)"
        where.add(f"o.cluster IN ({of_image})", evaluated.corpus_fingerprint, value)
    elif kind == "type" and direction == "t2i":
        where.add("list_contains(i.query_types, ?)", value)
    elif kind == "tag" and direction in ("quadruples", "pairs"):
        where.add("list_contains(i.tags, ?)" if direction == "quadruples" else "i.category = ?", value)
    elif kind == "ambiguous":
        missed = "SELECT query_id FROM ambiguous_misses WHERE corpus_fingerprint = ? AND protocol = o.protocol"
        where.add(f"i.id IN ({missed} AND cause = ?)", evaluated.corpus_fingerprint, value)
    else:
        raise RequestError(f"slice {kind}:{value}: queries of {evaluated.protocol} have no slices of this kind")
