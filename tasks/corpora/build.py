"""Rows from a reader -> a checked :class:`~store.types.Corpus`.

A reader only says what there is, row by row, in corpus order; everything that must hold of every corpus is held
here, once: unique ids, no caption, pair or quadruple that names something that is not there, no empty corpus, every
image readable and hashed. Rows are taken in blocks, so a reader may be a generator over more than fits in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import pyarrow as pa

from store.schema import CAPTIONS, IMAGES, PAIRS, QUADRUPLES, RELEVANCE, SKIPPED
from store.types import Corpus, ImageSource
from tasks.corpora.images.decode import image_facts
from tasks.corpora.rows import CaptionRow, Faults, ImageRow, PairRow, QuadrupleRow, RelevanceRow, SkippedRow

__all__ = [
    "CaptionRow",
    "ImageRow",
    "PairRow",
    "QuadrupleRow",
    "RelevanceRow",
    "SkippedRow",
    "build_corpus",
]

BLOCK = 4096

Row = TypeVar("Row", bound=tuple)  # type: ignore[type-arg]


def build_corpus(
    name: str,
    images: Iterable[ImageRow],
    captions: Iterable[CaptionRow],
    *,
    source: ImageSource | None,
    pairs: Iterable[PairRow] = (),
    quadruples: Iterable[QuadrupleRow] = (),
    relevance: Iterable[RelevanceRow] = (),
    skipped: Iterable[SkippedRow] = (),
    licence: str = "unknown",
    origin: str = "",
    languages_reference: str = "en",
) -> Corpus:
    """The corpus of these rows, in their order, with every image hashed and everything checked.

    Args:
        name: ``[A-Za-z0-9._-]``.
        images: In corpus order. Images without ``sha`` or size are read once from ``source`` for them. Taken to its
            end before any other rows are looked at, so that one pass over a stream may fill these as it goes.
        captions: In corpus order; ``image_id`` None for captions that describe no image (negatives).
        source: Where the image bytes come from; None for a corpus of ids or texts alone.
        pairs: Compositional items of SugarCrepe form.
        quadruples: Compositional items of Winoground form.
        relevance: Extra ground truths.
        skipped: Images left out on purpose, with the reason; they may not be among ``images``.
        licence: SPDX name or one sentence.
        origin: URL, paper or folder.
        languages_reference: Language that cross-lingual metrics compare with.

    Raises:
        RequestError: Lists every fault found: duplicate ids, unknown ids, unreadable images, repeated ordinals,
            texts that are not Unicode, no image or no caption at all.

    Examples:
        >>> corpus = build_corpus("two", [ImageRow("a"), ImageRow("b")], [
        ...     CaptionRow("a0", "a", "red"), CaptionRow("a1", "a", "blue"), CaptionRow("b0", "b", "red")], source=None)
        >>> corpus.captions["ordinal"].to_pylist()
        [0, 1, 0]
        >>> build_corpus("bad", [ImageRow("a")], [CaptionRow("a0", "z", "red")], source=None)
        Traceback (most recent call last):
        store.errors.RequestError: corpus 'bad': 1 captions of images that are not in the corpus: 'a0' of 'z'
    """
    faults = Faults(name)
    if not name or not all(c.isascii() and (c.isalnum() or c in "._-") for c in name):
        faults.add("names that hold more than ASCII letters, digits, '.', '_' and '-'", repr(name))
    image_ids: set[str] = set()
    image_table = _table(_images(images, source, image_ids, faults), IMAGES, faults)
    left_out = list(skipped)
    for row in left_out:
        if row.image_id in image_ids:
            faults.add("images both listed and skipped", repr(row.image_id))
    caption_ids: set[str] = set()
    caption_table = _table(_captions(captions, image_ids, caption_ids, faults), CAPTIONS, faults)
    if not image_table.num_rows:
        faults.add("empty corpora", f"no images{_why_empty(left_out)}; check what it is read from")
    elif not caption_table.num_rows:
        faults.add("empty corpora", f"no captions for its {image_table.num_rows} images")
    tables = {
        "pairs": _table(_pairs(pairs, image_ids, caption_ids, faults), PAIRS, faults),
        "quadruples": _table(_quadruples(quadruples, image_ids, caption_ids, faults), QUADRUPLES, faults),
        "relevance": _table(_relevance(relevance, image_ids, caption_ids, faults), RELEVANCE, faults),
    }
    faults.raise_any()
    return Corpus(
        name=name,
        images=image_table,
        captions=caption_table,
        source=source,
        skipped=_table(iter(left_out), SKIPPED, faults),
        licence=licence,
        origin=origin,
        languages_reference=languages_reference,
        **tables,
    )


def _why_empty(left_out: Sequence[SkippedRow]) -> str:
    return f" (all {len(left_out)} were left out; the first: {left_out[0].reason})" if left_out else ""


def _blocks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    iterator = iter(rows)
    while block := list(islice(iterator, BLOCK)):
        yield block


def _table(rows: Iterable[Row], schema: pa.Schema, faults: Faults) -> pa.Table:
    batches = []
    for block in _blocks(rows):
        try:
            columns = zip(*block, strict=True)
            arrays = [pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)]
            batches.append(pa.record_batch(arrays, schema=schema))
        except (UnicodeEncodeError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            faults.add("rows with a value of the wrong type or that is not Unicode", _offender(block, schema, error))
    return pa.Table.from_batches(batches, schema=schema).combine_chunks()


def _offender(block: Sequence[Row], schema: pa.Schema, error: Exception) -> str:
    """The first row and column of a block that Arrow does not take."""
    for row in block:
        for value, field in zip(row, schema, strict=True):
            try:
                pa.array([value], type=field.type)
            except (UnicodeEncodeError, pa.ArrowInvalid, pa.ArrowTypeError):
                return f"row {row[0]!r} has {field.name} {value!r}, expected {field.type}"
    return str(error)


def _images(rows: Iterable[ImageRow], source: ImageSource | None, ids: set[str], faults: Faults) -> Iterator[ImageRow]:
    with ThreadPoolExecutor(thread_name_prefix="hash") as pool:
        for block in _blocks(rows):
            for row in block:
                if not row.id:
                    faults.add("images without an id", f"key {row.key!r}")
                if row.id in ids:
                    faults.add("duplicate image ids", repr(row.id))
                ids.add(row.id)
            keyed = (row if row.key else row._replace(key=row.id) for row in block)
            filled = keyed if source is None else pool.map(lambda row: _filled(row, source, faults), keyed)
            for row in filled:
                yield row if row.objects is None else row._replace(objects=sorted(set(row.objects)))


def _filled(row: ImageRow, source: ImageSource, faults: Faults) -> ImageRow:
    if row.sha is not None and row.width is not None and row.height is not None:
        return row
    try:
        facts = image_facts(source.read(row.key))
    except OSError as error:
        faults.add("images that cannot be read", f"{row.id!r} ({error})")
        return row
    return row._replace(sha=facts.sha, width=facts.width, height=facts.height)


def _captions(rows: Iterable[CaptionRow], images: set[str], ids: set[str], faults: Faults) -> Iterator[CaptionRow]:
    following: dict[tuple[str, str, str], int] = {}
    for row in rows:
        if not row.id:
            faults.add("captions without an id", repr(row.text))
        if row.id in ids:
            faults.add("duplicate caption ids", repr(row.id))
        ids.add(row.id)
        if row.image_id is None:
            yield row._replace(ordinal=row.ordinal or 0)
            continue
        if row.image_id not in images:
            faults.add("captions of images that are not in the corpus", f"{row.id!r} of {row.image_id!r}")
        place = (row.image_id, row.language, row.translator)
        lowest = following.get(place, 0)
        ordinal = lowest if row.ordinal is None else row.ordinal
        if ordinal < lowest:
            faults.add("captions whose ordinals do not rise within image, language and translator", repr(row.id))
        following[place] = ordinal + 1
        yield row if row.ordinal is not None else row._replace(ordinal=ordinal)


def _pairs(rows: Iterable[PairRow], images: set[str], captions: set[str], faults: Faults) -> Iterator[PairRow]:
    seen: set[str] = set()
    for row in rows:
        _check_item("pair", row.id, (row.image_id,), (row.caption_id, row.negative_id), seen, images, captions, faults)
        yield row


def _quadruples(
    rows: Iterable[QuadrupleRow], images: set[str], captions: set[str], faults: Faults
) -> Iterator[QuadrupleRow]:
    seen: set[str] = set()
    for row in rows:
        of_images, of_captions = (row.image_0, row.image_1), (row.caption_0, row.caption_1)
        _check_item("quadruple", row.id, of_images, of_captions, seen, images, captions, faults)
        yield row._replace(tags=list(row.tags))


def _check_item(
    form: str,
    item: str,
    of_images: Sequence[str],
    of_captions: Sequence[str],
    seen: set[str],
    images: set[str],
    captions: set[str],
    faults: Faults,
) -> None:
    if item in seen:
        faults.add(f"duplicate {form} ids", repr(item))
    seen.add(item)
    for used, known, what in ((of_images, images, "images"), (of_captions, captions, "captions")):
        for name in used:
            if name not in known:
                faults.add(f"{form}s of {what} that are not in the corpus", f"{item!r} of {name!r}")


def _relevance(
    rows: Iterable[RelevanceRow], images: set[str], captions: set[str], faults: Faults
) -> Iterator[RelevanceRow]:
    seen: set[RelevanceRow] = set()
    for row in rows:
        if row.direction not in ("t2i", "i2t"):
            faults.add("directions other than t2i and i2t in a ground truth", repr(row.direction))
            continue
        if row in seen:
            faults.add("positives listed twice in a ground truth", f"{row.ground_truth} {row.query_id!r}")
        seen.add(row)
        queries, items = (captions, images) if row.direction == "t2i" else (images, captions)
        if row.query_id not in queries:
            faults.add("queries of a ground truth that are not in the corpus", f"{row.ground_truth} {row.query_id!r}")
        if row.item_id not in items:
            faults.add("positives of a ground truth that are not in the corpus", f"{row.ground_truth} {row.item_id!r}")
        yield row
