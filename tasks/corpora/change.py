"""The differences between two states of a corpus with the same name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from store.types import Corpus

_SHOWN = 3


def describe_change(stored: Corpus, opened: Corpus) -> list[str]:
    """One line for each kind of change from ``stored`` to ``opened``; empty if the fingerprints are equal.

    Args:
        stored: The corpus in the store.
        opened: The corpus as it has just been read; images that the store lists as skipped do not count as new.

    Examples:
        >>> from tasks.corpora.build import CaptionRow, ImageRow, build_corpus
        >>> def corpus(text): return build_corpus("c", [ImageRow("a")], [CaptionRow("a#0", "a", text)], source=None)
        >>> describe_change(corpus("red"), corpus("blue"))
        ["1 captions have another text: 'a#0'"]
    """
    if stored.fingerprint == opened.fingerprint:
        return []
    left_out = {
        row["image_id"] for corpus in (stored, opened) for row in corpus.skipped.select(["image_id"]).to_pylist()
    }
    before, after = _by_id(stored.images), _by_id(opened.images)
    gone, new = _difference(before, after, left_out), _difference(after, before, left_out)
    both = [image for image in after if image in before]
    other_bytes = [image for image in both if before[image]["sha"] != after[image]["sha"]]
    lines = [
        *_line("images are new", new),
        *_line("images are gone", gone),
        *_line("images have other contents", other_bytes),
        *_line("images have other objects", [i for i in both if before[i]["objects"] != after[i]["objects"]]),
    ]
    lost = {*left_out, *gone, *new}
    lines += _captions(stored, opened, lost)
    for label, one, other in (
        ("pairs", stored.pairs, opened.pairs),
        ("quadruples", stored.quadruples, opened.quadruples),
    ):
        rows = _by_id(one), _by_id(other)
        changed = sorted({key for key in {*rows[0], *rows[1]} if rows[0].get(key) != rows[1].get(key)})
        lines += _line(f"{label} are new, gone or different", changed)
    if not stored.relevance.equals(opened.relevance):
        lines.append(
            f"the extra ground truths are different ({stored.relevance.num_rows:,} positives before, "
            f"{opened.relevance.num_rows:,} now)"
        )
    if not lines and _ids(stored.skipped, "image_id") != _ids(opened.skipped, "image_id"):
        lines.append(f"{stored.skipped.num_rows} images were left out before, {opened.skipped.num_rows} are now")
    return lines or ["the order of its items, or their ordinals, languages or sizes, are different"]


def _captions(stored: Corpus, opened: Corpus, lost: set[str]) -> list[str]:
    """Changes of captions, without those of images that are new, gone or left out."""
    before, after = (
        {key: row for key, row in _by_id(corpus.captions).items() if row["image_id"] not in lost}
        for corpus in (stored, opened)
    )
    both = [caption for caption in after if caption in before]
    return [
        *_line("captions are new", [caption for caption in after if caption not in before]),
        *_line("captions are gone", [caption for caption in before if caption not in after]),
        *_line("captions have another text", [c for c in both if before[c]["text"] != after[c]["text"]]),
        *_line("captions belong to another image", [c for c in both if before[c]["image_id"] != after[c]["image_id"]]),
    ]


def _by_id(table: pa.Table) -> dict[str, Mapping[str, object]]:
    return {row["id"]: row for row in table.to_pylist()}


def _difference(one: Mapping[str, object], other: Mapping[str, object], ignored: set[str]) -> list[str]:
    return [key for key in one if key not in other and key not in ignored]


def _ids(table: pa.Table, column: str) -> list[str]:
    found: list[str] = pc.unique(table[column]).to_pylist()
    return sorted(found)


def _line(what: str, items: Sequence[str]) -> list[str]:
    if not items:
        return []
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return [f"{len(items)} {what}: {', '.join(map(repr, items[:_SHOWN]))}{more}"]
