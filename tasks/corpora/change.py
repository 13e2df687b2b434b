"""The differences between two states of a corpus with the same name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from capim.store.types import Corpus

_SHOWN = 3
_Rows: TypeAlias = Mapping[str, Mapping[str, Any]]


def describe_change(stored: Corpus, opened: Corpus) -> list[str]:
    """One line for each kind of change from ``stored`` to ``opened``; empty if the fingerprints are equal.

    Args:
        stored: The corpus in the store.
        opened: The corpus as it has just been read; images that the store lists as skipped do not count as new.

    Examples:
        >>> from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
        >>> def corpus(text): return build_corpus("c", [ImageRow("a")], [CaptionRow("a#0", "a", text)], source=None)
        >>> describe_change(corpus("red"), corpus("blue"))
        ["captions with another text: 'a#0'"]
    """
    if stored.fingerprint == opened.fingerprint:
        return []
    skipped_before, skipped_now = (set(each.skipped["item_id"].to_pylist()) for each in (stored, opened))
    left_out = skipped_before | skipped_now
    before, after = _by_id(stored.images), _by_id(opened.images)
    lost = {*left_out, *(before.keys() ^ after.keys())}  # captions change with these images
    old, new = (
        {key: row for key, row in _by_id(each.captions).items() if row["image_id"] not in lost}
        for each in (stored, opened)
    )
    lines = [
        *_line("new images", [image for image in after if image not in before and image not in left_out]),
        *_line("removed images", [image for image in before if image not in after and image not in left_out]),
        *_line("images with other contents", _changed(before, after, "sha")),
        *_line("images with other objects", _changed(before, after, "objects")),
        *_line("new captions", [caption for caption in new if caption not in old]),
        *_line("removed captions", [caption for caption in old if caption not in new]),
        *_line("captions with another text", _changed(old, new, "text")),
        *_line("captions of another image", _changed(old, new, "image_id")),
    ]
    for what, one, other in (
        ("pairs", _by_id(stored.pairs), _by_id(opened.pairs)),
        ("quadruples", _by_id(stored.quadruples), _by_id(opened.quadruples)),
    ):
        ids = sorted(key for key in {*one, *other} if one.get(key) != other.get(key))
        lines += _line(f"new, removed or changed {what}", ids)
    if not stored.relevance.equals(opened.relevance):
        counts = f"{stored.relevance.num_rows:,} positives before, {opened.relevance.num_rows:,} now"
        lines.append(f"other extra ground truths: {counts}")
    if not lines and skipped_before != skipped_now:
        lines.append(f"other images are left out: {len(skipped_before)} before, {len(skipped_now)} now")
    return lines or ["another order of the items, or other ordinals, languages or sizes"]


def _by_id(table: pa.Table) -> _Rows:
    return {row["id"]: row for row in table.to_pylist()}


def _changed(before: _Rows, after: _Rows, column: str) -> list[str]:
    return [key for key in after if key in before and before[key][column] != after[key][column]]


def _line(what: str, items: Collection[str]) -> list[str]:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return [f"{what}: {', '.join(map(repr, [*items][:_SHOWN]))}{more}"] if items else []
