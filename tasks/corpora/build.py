"""The rows of a reader, checked and hashed, as a :class:`~store.types.Corpus`.

A reader lists images and captions row by row, in corpus order. What must hold of every corpus is checked here: unique
ids, no reference to an image or caption that is not in the corpus, no empty corpus, every image readable. Rows are
taken in blocks, so a reader may be a generator over more than fits in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from capim.store.errors import RequestError, some
from capim.store.schema import CORPUS_PARTS, UNNUMBERED
from capim.store.schema import Caption as CaptionRow
from capim.store.schema import Image as ImageRow
from capim.store.schema import Judgement as RelevanceRow
from capim.store.schema import Pair as PairRow
from capim.store.schema import Quadruple as QuadrupleRow
from capim.store.schema import Skipped as SkippedRow
from capim.store.sets.columns_read import tell
from capim.store.tables import skips_bad_rows
from capim.store.types import SIDES, Corpus, ImageSource
from capim.tasks.corpora.images.source import ImageHashes, hashes_in_use

__all__ = ["CaptionRow", "Faults", "ImageRow", "PairRow", "QuadrupleRow", "RelevanceRow", "SkippedRow", "build_corpus"]

BLOCK = 4096  # rows that are taken at once


class Faults:
    """The faults of a corpus, or of the file that it is read from, by kind; each kind with its first examples."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._examples: dict[str, list[str]] = {}

    def add(self, kind: str, example: str = "") -> None:
        """Note a fault, e.g. ``("duplicate image ids", "'17'")``."""
        self._examples.setdefault(kind, []).append(example)

    def lines(self) -> list[str]:
        """Return one line for every kind of fault."""
        return [
            f"{self._where}: {kind}" + (f": {some(examples)}" if any(examples) else "")
            for kind, examples in self._examples.items()
        ]

    def raise_any(self) -> None:
        """Raise all faults as one :class:`~store.errors.RequestError`; do nothing if there are none."""
        if lines := self.lines():
            raise RequestError(lines)

    def raise_or_tell(self) -> None:
        """Raise all faults, which are of rows; or tell of them, where such rows are left out."""
        lines = self.lines()
        if lines and not skips_bad_rows():
            raise RequestError([f'{line}; missing = "skip" leaves them out' for line in lines])
        for line in lines:
            tell(f"warning: {line}; they are left out")


def build_corpus(
    name: str,
    images: Iterable[ImageRow],
    captions: Iterable[CaptionRow],
    *,
    source: ImageSource | None,
    pairs: Iterable[PairRow] = (),
    quadruples: Iterable[QuadrupleRow] = (),
    relevance: Iterable[RelevanceRow] = (),
    skipped: Sequence[SkippedRow] = (),
    licence: str = "unknown",
    origin: str = "",
    languages_reference: str = "en",
    main_metric: str = "",
) -> Corpus:
    """Return the corpus of these rows, in their order, with the hash and size of every image.

    Args:
        name: ``[A-Za-z0-9._-]``.
        images: In corpus order. Images without hash or size are read once from ``source``. All images are taken
            before any other rows, so that one pass over a stream may fill the other arguments as it goes.
        captions: In corpus order; ``image_id`` is None for captions that describe no image (negatives).
        source: Reads the image bytes; None for a corpus of ids or texts only.
        pairs: Compositional items of SugarCrepe form.
        quadruples: Compositional items of Winoground form.
        relevance: Extra ground truths, or judgements.
        skipped: Images that were left out, with the reason; they may not be among ``images``. Captions, pairs,
            quadruples and positives of these images are dropped.
        licence: SPDX name or one sentence.
        origin: URL, paper or folder.
        languages_reference: Language that cross-lingual metrics compare with.
        main_metric: Headline of judged documents.

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
        capim.store.errors.RequestError: corpus 'bad': captions of images that are not in the corpus: 'a0' of 'z'
    """
    faults = Faults(f"corpus {name!r}")
    if not name or not all(c.isascii() and (c.isalnum() or c in "._-") for c in name):
        faults.add("the name must be made of ASCII letters, digits, '.', '_' and '-' only")
    corpus = Corpus(
        name=name,
        images=_table(_images(images, source, faults), CORPUS_PARTS["images"], faults),
        captions=_table(_numbered(captions, faults), CORPUS_PARTS["captions"], faults),
        source=source,
        pairs=_table(pairs, CORPUS_PARTS["pairs"], faults),
        quadruples=_table(quadruples, CORPUS_PARTS["quadruples"], faults),
        relevance=_table(relevance, CORPUS_PARTS["relevance"], faults),
        skipped=_table(skipped, CORPUS_PARTS["skipped"], faults),
        licence=licence,
        origin=origin,
        languages_reference=languages_reference,
        main_metric=main_metric,
    )
    _check_ids(corpus, faults)
    if skipped:
        corpus = keep_images(corpus, corpus.images["id"].combine_chunks())
    if not corpus.images.num_rows:
        reason = f" (all {len(skipped)} were left out; the first: {skipped[0].reason})" if skipped else ""
        faults.add(f"no images{reason}; check the folder or file that it is read from")
    elif not corpus.captions.num_rows:
        faults.add(f"no captions for its {corpus.images.num_rows} images")
    faults.raise_any()
    return corpus


def _table(rows: Iterable[Any], schema: pa.Schema, faults: Faults) -> pa.Table:
    """Return the rows as a table; raise the faults so far if a value does not fit its column."""
    batches = []
    iterator = iter(rows)
    while block := list(islice(iterator, BLOCK)):
        try:
            columns = zip(*block, strict=True)
            arrays = [pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)]
            batches.append(pa.record_batch(arrays, schema=schema))
        except (UnicodeEncodeError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            faults.add("values of the wrong type, or that are not Unicode", _offender(block, schema, error))
            faults.raise_any()
    return pa.Table.from_batches(batches, schema=schema).combine_chunks()


def _offender(block: Sequence[Any], schema: pa.Schema, error: Exception) -> str:
    """Return the first row and column of a block that Arrow does not take."""
    for row in block:
        for value, field in zip(row, schema, strict=True):
            try:
                pa.array([value], type=field.type)
            except (UnicodeEncodeError, pa.ArrowInvalid, pa.ArrowTypeError):
                return f"row {row[0]!r} has {field.name} {value!r}, expected {field.type}"
    return str(error)


def _images(rows: Iterable[ImageRow], source: ImageSource | None, faults: Faults) -> Iterator[ImageRow]:
    """Return the images with key, hash and size."""
    iterator = (row if row.key else row._replace(key=row.id) for row in rows)
    hashes = hashes_in_use()  # which other threads do not see
    with ThreadPoolExecutor(thread_name_prefix="hash") as pool:
        while block := list(islice(iterator, BLOCK)):
            filled = block if source is None else pool.map(lambda row: _with_facts(row, source, hashes, faults), block)
            for row in filled:
                yield row if row.objects is None else row._replace(objects=sorted(set(row.objects)))


def _with_facts(row: ImageRow, source: ImageSource, hashes: ImageHashes, faults: Faults) -> ImageRow:
    if row.sha is not None and row.width is not None and row.height is not None:
        return row
    try:
        facts = hashes.facts(source, row.key)
    except OSError as error:
        faults.add("images that cannot be read", f"{row.id!r} ({error})")
        return row
    return row._replace(**facts._asdict())


def _numbered(rows: Iterable[CaptionRow], faults: Faults) -> Iterator[CaptionRow]:
    """Return the captions with their ordinals within image, language and translator."""
    next_ordinal: dict[tuple[str, str, str], int] = {}
    for row in rows:
        if row.image_id is None:
            yield row._replace(ordinal=max(row.ordinal, 0))
            continue
        group = (row.image_id, row.language, row.translator)
        lowest = next_ordinal.get(group, 0)
        ordinal = lowest if row.ordinal == UNNUMBERED else row.ordinal
        if ordinal < lowest:
            faults.add("captions with ordinals that do not rise within image, language and translator", repr(row.id))
        next_ordinal[group] = ordinal + 1
        yield row if row.ordinal == ordinal else row._replace(ordinal=ordinal)


def _check_ids(corpus: Corpus, faults: Faults) -> None:
    """Note ids that repeat or are empty, and names of images and captions that are not in the corpus."""
    images = _unique_ids(corpus.images, "image", faults)
    captions = _unique_ids(corpus.captions, "caption", faults)
    for row in corpus.skipped.to_pylist():
        if row["item_id"] in (images if row["modality"] == "image" else captions):
            faults.add(f"{row['modality']}s both listed and skipped", repr(row["item_id"]))
        elif row["modality"] == "image":
            images.add(row["item_id"])  # what refers to it is left out with it
    _check_links(corpus.captions, "captions of images", ["image_id"], images, faults)
    for table, kind, image_columns, caption_columns in (
        (corpus.pairs, "pair", ["image_id"], ["caption_id", "negative_id"]),
        (corpus.quadruples, "quadruple", ["image_0", "image_1"], ["caption_0", "caption_1"]),
    ):
        _unique_ids(table, kind, faults)
        _check_links(table, f"{kind}s of images", image_columns, images, faults)
        _check_links(table, f"{kind}s of captions", caption_columns, captions, faults)
    seen: dict[tuple[str, ...], int] = {}
    for truth, direction, query, item, grade in zip(
        *(column.to_pylist() for column in corpus.relevance.columns), strict=True
    ):
        if direction not in SIDES:
            faults.add(f"directions other than {', '.join(SIDES)} in a ground truth", repr(direction))
            continue
        if (pair := (truth, direction, query, item)) in seen:
            both = f"{truth} {query!r}, {item!r}, with {seen[pair]} and {grade}"
            faults.add("positives listed twice in a ground truth", both)
        seen[pair] = grade
        queries, items = (images if side == "image" else captions for side in SIDES[direction])
        if query not in queries:
            faults.add("queries of a ground truth that are not in the corpus", f"{truth} {query!r}")
        if item not in items:
            faults.add("positives of a ground truth that are not in the corpus", f"{truth} {item!r}")


def _unique_ids(table: pa.Table, kind: str, faults: Faults) -> set[str]:
    column: list[Any] = table["id"].to_pylist()
    ids: set[str] = set()
    for position, identifier in enumerate(column):
        if not identifier:
            faults.add(f"{kind}s without an id", f"row {position + 1}")
        elif identifier in ids:
            faults.add(f"duplicate {kind} ids", repr(identifier))
        ids.add(identifier)
    return ids


def _check_links(table: pa.Table, what: str, columns: Sequence[str], known: set[str], faults: Faults) -> None:
    ids = table["id"].to_pylist()
    for column in columns:
        for identifier, name in zip(ids, table[column].to_pylist(), strict=True):
            if name is not None and name not in known:
                faults.add(f"{what} that are not in the corpus", f"{identifier!r} of {name!r}")


def keep_images(corpus: Corpus, kept: pa.Array) -> Corpus:
    """Return the corpus with the images of these ids, and all rows that refer to no other image.

    A caption without an image (a negative) is kept unless all pairs and quadruples that used it are removed.
    """
    pairs = _within(corpus.pairs, ["image_id"], kept)
    quadruples = _within(corpus.quadruples, ["image_0", "image_1"], kept)
    captions = corpus.captions
    loose = pc.is_null(captions["image_id"])
    used_before, used_now = _used(corpus.pairs, corpus.quadruples), _used(pairs, quadruples)
    orphaned = pc.and_(pc.is_in(captions["id"], used_before), pc.invert(pc.is_in(captions["id"], used_now)))
    stays = pc.if_else(loose, pc.invert(orphaned), pc.is_in(captions["image_id"], kept))
    captions = captions.filter(stays)
    present = captions["id"].combine_chunks()
    relevance, there = corpus.relevance, {"image": kept, "caption": present}
    both_there = [
        pc.and_(
            pc.equal(relevance["direction"], pa.scalar(direction)),
            pc.and_(pc.is_in(relevance["query_id"], there[query]), pc.is_in(relevance["item_id"], there[item])),
        )
        for direction, (query, item) in SIDES.items()
    ]
    return replace(
        corpus,
        images=_within(corpus.images, ["id"], kept),
        captions=captions.combine_chunks(),
        pairs=_within(pairs, ["caption_id", "negative_id"], present),
        quadruples=_within(quadruples, ["caption_0", "caption_1"], present),
        relevance=relevance.filter(reduce(pc.or_, both_there)).combine_chunks(),
    )


def _within(table: pa.Table, columns: Sequence[str], ids: pa.Array) -> pa.Table:
    """Return the rows that have one of these ids in each of the columns."""
    for column in columns:
        table = table.filter(pc.is_in(table[column], ids))
    return table.combine_chunks()


def _used(pairs: pa.Table, quadruples: pa.Table) -> pa.Array:
    columns = [pairs["caption_id"], pairs["negative_id"], quadruples["caption_0"], quadruples["caption_1"]]
    return pa.chunked_array([chunk for column in columns for chunk in column.chunks], type=pa.string()).combine_chunks()
