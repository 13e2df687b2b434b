"""Which published figures of the catalog's models somebody has reproduced, where and when.

``certified.csv`` beside this file has a row for every such figure. ``capim certify-model NAME`` makes rows of a
workspace; a pull request with them puts the stamp into the list of models.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from capim.store.errors import RequestError
from capim.tasks.reference.published import SEED, Published, published_name

_HEADLINES = (
    ("coco-karpathy", "t2i/all", "R@1"),
    ("flickr30k-karpathy", "t2i/all", "R@1"),
    ("winoground", "winoground", "winoground_group"),
    ("VidoreDocVQARetrieval", "t2i/judged", "nDCG@5"),
    ("coco-sm", "t2i/en/google", "R@1"),
)
"""Of these the first that is published for a model stands in the list of models."""


class Certificate(NamedTuple):
    """One figure that was reproduced; ``value`` and ``published`` are fractions 0..1.

    Attributes:
        fingerprint: Of the encoder: checkpoint, commit, precision and all else that changes a vector.
        source: Of the published figure.
        date: When it was computed, ``2026-11-25``.
        hardware: On which the vectors were made.
        capim: Its version.
    """

    encoder: str
    fingerprint: str
    corpus: str
    protocol: str
    metric: str
    value: float
    published: float
    source: str
    date: str
    hardware: str
    capim: str

    def stamp(self) -> str:
        """In one line, for people.

        Examples:
            >>> Certificate("m", "f", "coco-karpathy", "t2i/all", "R@1", 0.5566, 0.5564, "a table", "2026-11-25",
            ...     "NVIDIA H100", "0.2.0").stamp()
            'coco-karpathy t2i/all R@1 55.7, within 0.02 points, 2026-11-25 on NVIDIA H100'
        """
        figure = f"{self.corpus} {self.protocol} {self.metric} {100 * self.value:.1f}"
        within = f"within {100 * abs(self.value - self.published):.2g} points"
        return f"{figure}, {within}, {self.date} on {self.hardware}"


def certified() -> list[Certificate]:
    """The rows of capim's table."""
    text = files("capim.tasks.reference").joinpath("certified.csv").read_text(encoding="utf-8")
    return [_certificate(row) for row in csv.DictReader(text.splitlines())]


def _certificate(row: Mapping[str, str]) -> Certificate:
    numbers = {name: float(row[name]) for name in ("value", "published")}
    return Certificate(**{**row, **numbers})  # type: ignore[arg-type]


def headline(checkpoint: str, references: Sequence[Published]) -> Published | None:
    """The published figure by which a model is known best; None if none is published."""
    name = published_name(checkpoint, references)
    of_model = [r for r in references if r.model == name]
    for wanted in _HEADLINES:
        found = [r for r in of_model if (r.dataset, r.protocol, r.metric) == wanted]
        if found:
            return min(found, key=lambda r: r.source == SEED)
    return None


def append(file: Path, rows: Iterable[Certificate]) -> None:
    """Add rows to a table, in place of those of the same encoder and figure; made if it is not there.

    Raises:
        RequestError: The file is another table.
    """
    held: list[Certificate] = []
    if file.is_file():
        reader = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
        if tuple(reader.fieldnames or ()) != Certificate._fields:
            raise RequestError(f"{file}: expected the columns {', '.join(Certificate._fields)}; name another file")
        held = [_certificate(row) for row in reader]
    new = list(rows)
    keys = {_key(row) for row in new}
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(Certificate._fields)
        writer.writerows(sorted([*(row for row in held if _key(row) not in keys), *new]))


def _key(row: Certificate) -> Sequence[Any]:
    return row[:5]
