"""Matches rows of a file with items of a corpus: by a column of ids, else by position; one rule for all files.

The key is a column of usual name (:data:`KEYS`) with an id, file name or text of the corpus in a cell; else a column
of any name with such values in most cells. All of its cells must then be such values, each once. Rows are taken in the
order of the corpus only where no column looks like ids, or where the user says so. Rows of items that the corpus left
out are counted and reported. A partial match, or one that names items in two ways, is refused with counts and examples.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.store.forms import IDS
from capim.store.schema import texts
from capim.store.tables import plain_path, skips_bad_rows
from capim.store.types import MODALITIES, Corpus, Modality

QUERY, KEYS = IDS["query"], {kind: names for kind, names in IDS.items() if kind != "query"}
"""Kind of item -> usual names of a column of its ids, which may say what a row is about; ``QUERY`` always does."""
USUAL = frozenset(chain.from_iterable(IDS.values()))
POSITION = "position"
NOT_VERIFIED = "matched by position, not verified"

Kind = Literal["captions", "images", "pairs", "quadruples"]
_WHOLE = re.compile(r"0*([0-9]+)(?:\.0*)?")


@dataclass(frozen=True, kw_only=True)
class Items:
    """The items that rows can be about.

    Attributes:
        kind: Name of the items in messages: ``queries``.
        of: What their ids are ids of.
        ids: In corpus order.
        linked: Gives other ways to name them -> name -> their positions: file names, texts, the images of captions. It
            is called when a name is looked for: of millions of items it takes long.
        left_out: Ids of items that the corpus has left out.
    """

    kind: str
    of: Kind
    ids: Sequence[str]
    linked: Callable[[], Mapping[str, Mapping[str, Sequence[int]]]] = dict
    left_out: frozenset[str] = frozenset()

    @cached_property
    def ways(self) -> dict[str, Mapping[str, Sequence[int]]]:
        """Kind of names -> name -> positions; their ids first."""
        return {self.of: by_id(self.ids), **self.linked()}

    @property
    def usual(self) -> str:
        """Return the usual name of the column of their ids."""
        return KEYS[self.of][0] if self.kind == self.of and self.of in KEYS else QUERY[0]

    @classmethod
    def of_corpus(cls, corpus: Corpus, modality: Modality) -> Items:
        """Return all images or captions of a corpus, also by their file names or texts."""
        table = corpus.items(modality)
        of: Kind = "images" if modality == "image" else "captions"
        linked = partial(names_of, corpus, modality)
        return cls(kind=of, of=of, ids=texts(table["id"]), linked=linked, left_out=left_out_of(corpus, modality))

    @classmethod
    def by_partners(cls, corpus: Corpus, modality: Modality) -> Items:
        """Return all images or captions, also by the ids, file names and texts of the captions or images of theirs."""
        [others] = (cls.of_corpus(corpus, other) for other in MODALITIES if other != modality)
        places = by_id(texts(corpus.images["id"]))
        partners: dict[int, list[int]] = {}
        for caption, image in enumerate(corpus.captions["image_id"].to_pylist()):
            for place in places.get(image or "", ()):
                own, other = (place, caption) if modality == "image" else (caption, place)
                partners.setdefault(other, []).append(own)

        def linked() -> dict[str, Mapping[str, Sequence[int]]]:
            return {
                kind: {name: [own for at in found for own in partners.get(at, ())] for name, found in names.items()}
                for kind, names in others.ways.items()
            }

        return replace(cls.of_corpus(corpus, modality), linked=linked)


class Match(NamedTuple):
    """The items of rows.

    Attributes:
        positions: int64, shape ``(n_rows,)``; -1 for a row of an item that the corpus left out.
        by: ``position``, or the column of ids, with the kind of its values: ``filename (file names)``.
        how: A sentence for the user.
    """

    positions: NDArray[np.int64]
    by: str
    how: str


class _Key(NamedTuple):
    """A column, the kind of names that it holds, and the positions of the items of every row, () for none."""

    column: str
    of: str
    places: list[Sequence[int]]

    @property
    def n_known(self) -> int:
        return sum(map(bool, self.places))

    def is_likely(self, cells: Sequence[object]) -> bool:
        """True if most cells are names, and of so many items that they are no labels or counts by chance."""
        known = {str(cell) for cell, found in zip(cells, self.places, strict=True) if found}
        n, n_words = len(self.places), sum(not _WHOLE.fullmatch(each) for each in known)
        return 2 * self.n_known > n and (2 * len(known) > n or 4 * n_words > n)

    def named(self, items: Items) -> str:
        return f"`{self.column}`" if self.of == items.of else f"`{self.column}`, {self.of} of the {items.kind}"


def names_of(
    corpus: Corpus, modality: Modality, rows: NDArray[np.int32] | None = None
) -> dict[str, dict[str, list[int]]]:
    """Return other names of some images or captions (default: all): kind of name -> name -> positions among them."""
    if modality == "image":
        keys = texts(corpus.images["key"] if rows is None else corpus.images["key"].take(rows))
        parts = [{key, name := posixpath.basename(key), posixpath.splitext(name)[0]} if key else set() for key in keys]
        return {"file names": _several(parts)}
    captions = corpus.captions if rows is None else corpus.captions.take(rows)
    found = [[] if text is None else [plain_text(text)] for text in captions["text"].to_pylist()]
    return {"texts": _several(found)}


def left_out_of(corpus: Corpus, modality: Modality) -> frozenset[str]:
    """Return the ids of the images or captions that were left out when the corpus was read."""
    rows = zip(texts(corpus.skipped["item_id"]), corpus.skipped["modality"].to_pylist(), strict=True)
    return frozenset(item for item, of in rows if of == modality)


def by_id(ids: Iterable[str | None]) -> dict[str, list[int]]:
    """Return id -> its positions."""
    return _several([] if one is None else [one] for one in ids)


def plain_text(text: object) -> str:
    """Return a text with single spaces and none at its ends: publications of one data set differ in them."""
    return " ".join(str(text).split())


def known_ids(cells: Iterable[object], named: Mapping[str, Sequence[int]]) -> list[Sequence[int]]:
    """Return what ``named`` has for every cell, () for nothing; whole numbers are found however they are written.

    Examples:
        >>> known_ids([7, "7.0", "007", "p7", None], {"007": [0], "8": [1]})
        [[0], [0], [0], (), ()]
        >>> known_ids(["7", "7.0"], {"007": [0], "7": [1]})
        [[1], ()]
    """
    written = Counter(whole_number(identifier) for identifier in named)
    numbers = {whole_number(each): found for each, found in named.items() if written[whole_number(each)] == 1}
    cells_as_text = (None if cell is None else str(cell) for cell in cells)
    return [
        () if name is None else named.get(name) or numbers.get(whole_number(name.strip()), ()) for name in cells_as_text
    ]


def whole_number(text: str) -> str:
    """Return a whole number without leading zeros and zeros after a point; any other text as it is."""
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole else text


def plain_name(column: str) -> str:
    """Return a usual name of a column for any spelling of it (``Image-ID``); any other name as it is.

    Examples:
        >>> plain_name("Image-ID"), plain_name("My Column")
        ('image_id', 'My Column')
    """
    plain = re.sub(r"[\s-]+", "_", column.strip().lower())
    return plain if plain in USUAL else column


def key_columns(names: Iterable[str], of: str) -> list[str]:
    """Return the columns that usually hold ids: those of this kind first, of another kind and of rows last."""
    others = (kind for kind in ("captions", "images", "rows") if kind != of)
    ordered = [*QUERY, *KEYS.get(of, ()), *KEYS["any"], *(name for kind in others for name in KEYS[kind])]
    present = {*names}
    return [name for name in dict.fromkeys(ordered) if name in present]


def match(
    columns: Mapping[str, Sequence[object]],
    n_rows: int,
    items: Items,
    *,
    by_position: bool = False,
    rows: Sequence[str] | None = None,
    repeats: bool = False,
) -> Match:
    """Return the item of every row; see the module.

    Args:
        columns: Name -> one cell for each row, None for nothing. Only columns that may hold ids.
        n_rows: Number of rows.
        items: The items they can match.
        by_position: True if the user says that rows follow the corpus; columns are then ignored.
        rows: Names of the rows, for messages; their numbers from 1 unless given.
        repeats: True if several rows may be about one item; otherwise they are an error.

    Raises:
        RequestError: If cells are unknown or repeated, columns contradict each other or have one usual name, or rows
            without ids are too many or too few; all errors together.
    """
    places = rows or [str(number) for number in range(1, n_rows + 1)]
    plain = {plain_name(name): cells for name, cells in columns.items()}
    if len(plain) < len(columns) and not by_position:
        alike = sorted(name for name, n in Counter(map(plain_name, columns)).items() if n > 1)
        same = [f"`{name}`" for name in columns if plain_name(name) in alike]
        raise RequestError(f"columns {' and '.join(same)} mean the same: leave out or rename all but one")
    if not by_position and (found := _all_ids(plain, items)) is not None:
        return found
    key = None if by_position else key_of(plain, items)
    if key is None:
        return _in_order(plain, n_rows, items, said=by_position)
    positions = np.array([each[0] if each else -1 for each in key.places], dtype=np.int64)
    several = [row for row, found in enumerate(key.places) if len(found) > 1]
    if several and key.n_known == n_rows:
        if n_rows == len(items.ids) and all(row in found for row, found in enumerate(key.places)):
            how = f"{n_rows:,} rows taken in the corpus' order, with which `{key.column}` agrees"
            return Match(np.arange(n_rows), f"{POSITION}, with which {key.column} agrees", how)
        first, leave_out = several[0], "; or leave the column out, the rows are then taken in the corpus' order"
        or_else = leave_out if n_rows == len(items.ids) else ""
        raise RequestError(
            f"`{key.column}` holds ids of {key.of}, and {plain[key.column][first]!r} in row {places[first]} is an id "
            f"of {len(key.places[first])} of the {items.kind}: give the ids of {items.of} in a column "
            f"`query`{or_else}"
        )
    cells = plain[key.column]
    out = [row for row, found in enumerate(key.places) if not found]
    out = out if skips_bad_rows() else [row for row in out if str(cells[row]) in items.left_out]
    faults = _id_faults(key, cells, positions, {*out}, items, places, repeats=repeats)
    if faults := [*faults, *_contradictions(plain, key, items)]:
        raise RequestError(faults)
    how = f"{n_rows - len(out):,} of {n_rows:,} rows matched by {key.named(items)}"
    if out:
        does = "does not have" if skips_bad_rows() else "left out"
        how += f"; {len(out):,} are of {items.of} that the corpus {does}, first {cells[out[0]]!r}"
    if key.column in KEYS["rows"] and positions.tolist() == list(range(len(items.ids))):
        return Match(positions, f"{POSITION}, with which {key.column} agrees", how)
    return Match(positions, key.column if key.of == items.of else f"{key.column} ({key.of})", how)


def _several(names: Iterable[Iterable[str]]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for position, each in enumerate(names):
        for name in each:
            places.setdefault(name, []).append(position)
    return places


def _all_ids(columns: Mapping[str, Sequence[object]], items: Items) -> Match | None:
    """Return the match if the only usual column has the ids of all items, each once: compared at once, for millions."""
    usual = key_columns(columns, items.of)
    if len(usual) != 1 or usual[0] not in {*QUERY, *KEYS.get(items.of, ()), *KEYS["any"]}:
        return None
    cells = columns[usual[0]]
    if len(cells) != len(items.ids) or not all(isinstance(cell, str) for cell in cells):
        return None
    places = pc.index_in(pa.array(cells, pa.string()), value_set=pa.array(items.ids, pa.string()))
    if places.null_count or pc.count_distinct(places).as_py() < len(places):
        return None
    how = f"{len(places):,} of {len(places):,} rows matched by `{usual[0]}`"
    return Match(places.to_numpy().astype(np.int64), usual[0], how)


def key_of(columns: Mapping[str, Sequence[object]], items: Items) -> _Key | None:
    """Return the first usual column with an id in a cell, with its most frequent kind of ids; else ``query``.

    Without one, return the column of another name with ids in most of its cells.
    """  # fmt: skip
    if not columns:
        return None
    strict = None
    for column in key_columns(columns, items.of):
        key = _best(column, columns[column], items)
        if key.n_known:
            return key
        if strict is None and column in QUERY:
            strict = _Key(column, items.of, key.places)
    if strict is not None:
        return strict
    others = (_best(column, columns[column], items) for column in columns if column not in USUAL)
    likely = [key for key in others if key.is_likely(columns[key.column])]
    return max(likely, key=lambda key: key.n_known, default=None)


def _best(column: str, cells: Sequence[object], items: Items) -> _Key:
    """Return the most frequent kind of names in a column; in ``image_id`` of captions, those of images come first."""
    ways = items.ways
    foreign = next((kind for kind in ways if kind != items.of and column in KEYS.get(kind, ())), items.of)
    order = [foreign, *(kind for kind in ways if kind != foreign)]
    keys = (_Key(column, kind, known_ids(_plain(kind, cells, ways[kind]), ways[kind])) for kind in order)
    return max(keys, key=lambda key: key.n_known)


def _plain(kind: str, cells: Sequence[object], named: Collection[str]) -> Sequence[object]:
    """Return texts with single spaces, paths of another machine without their folders, anything else as it is."""
    if kind == "texts":
        return [None if cell is None else plain_text(cell) for cell in cells]
    if kind == "file names":
        return [cell if cell is None else _file_name(str(cell), named) for cell in cells]
    return cells


def _file_name(path: str, named: Collection[str]) -> str:
    """Return the first of a path, its last part, and this without its suffix that is a name; else the last part."""
    names = [re.split(r"[/\\]", each)[-1] for each in (path, plain_path(path))]
    ways = (path, *names, *(re.sub(r"\.[A-Za-z]\w*$", "", name) for name in names))
    return next((each for each in ways if each in named), names[0])


def _in_order(columns: Mapping[str, Sequence[object]], n_rows: int, items: Items, *, said: bool) -> Match:
    """Return the match of rows without an id: one for each item, in the order of the corpus."""
    usual = key_columns(columns, items.of)
    first = next(((cell, name) for name in usual for cell in columns[name] if cell is not None), None)
    numbered = [name for name in columns if name not in USUAL and _are_numbers(columns[name])]
    faults = []
    if n_rows != len(items.ids):
        out = f"; the corpus left out {len(items.left_out)} more" if items.left_out else ""
        faults.append(
            f"{n_rows} rows without ids for {len(items.ids)} {items.kind}{out}: give their ids in a column or array "
            f"`{items.usual}`, or one row for each in the order of the corpus"
        )
    for name in () if said else [*usual, *numbered]:
        cells = columns[name]
        numbers = [int(text) for each in cells if (text := whole_number(str(each).strip())).isdecimal()]
        counts = sorted(numbers) in (list(range(n_rows)), list(range(1, n_rows + 1)))
        if counts and numbers != sorted(numbers):
            faults.append(
                f"`{name}` counts the rows in another order, and holds no ids of the {items.kind}, which look like "
                f"{items.ids[0]!r}: sort the rows by it if it follows the corpus, or give their ids in a column "
                f"`{items.usual}`"
            )
        elif not counts and n_rows == len(items.ids) and (given := [each for each in cells if each is not None]):
            faults.append(
                f"`{name}` holds no ids of the {items.kind}, first {given[0]!r}; they look "
                f"like {items.ids[0]!r}: give them in a column or array `{items.usual}`, or --by-position if the rows "
                "follow the corpus"
            )
    if faults:
        raise RequestError(faults)
    none = "no column of ids" if first is None else f"`{first[1]}` holds no ids of the {items.kind}, first {first[0]!r}"
    return Match(
        np.arange(n_rows), POSITION, f"{n_rows:,} rows taken in the corpus' order; {'as requested' if said else none}"
    )


def _are_numbers(cells: Sequence[object]) -> bool:
    """True if all cells are whole numbers and no two are equal, as ids are."""
    return len({str(cell) for cell in cells if _WHOLE.fullmatch(str(cell))}) == len(cells) > 1


def _id_faults(
    key: _Key,
    cells: Sequence[object],
    positions: NDArray[np.int64],
    left_out: set[int],
    items: Items,
    rows: Sequence[str],
    *,
    repeats: bool,
) -> list[str]:
    name, n = key.column, len(cells)
    faults = []
    lacking = [row for row, cell in enumerate(cells) if cell is None and row not in left_out]
    if lacking:
        faults.append(f"{len(lacking)} of {n} rows have no `{name}`, first row {rows[lacking[0]]}")
    unknown = [r for r, found in enumerate(key.places) if not found and cells[r] is not None and r not in left_out]
    if unknown:
        what = f"the {len(items.ids)} {items.kind}" if key.of == items.of else f"the {key.of} of the {items.kind}"
        known = items.ids[0] if key.of == items.of else next(iter(items.ways[key.of]))
        faults.append(
            f"`{name}`: {len(unknown)} of {n} ids are not among {what}, first {cells[unknown[0]]!r} in row "
            f"{rows[unknown[0]]}; ids look like {known!r}"
            + ("" if name in QUERY else ". Leave the column out if it does not hold ids")
            + ("; --skip-bad-rows leaves these rows out" if len(unknown) < n else "")
        )
    repeated = np.flatnonzero(np.bincount(positions[positions >= 0], minlength=1) > 1)
    if repeated.size and not repeats:
        again = np.flatnonzero(positions == repeated[0])[:2]
        where = " and ".join(rows[row] for row in again)
        one = items.ids[int(repeated[0])]
        faults.append(f"{repeated.size} {items.kind} have more than one row, first {one!r} in rows {where}")
    return faults


def _contradictions(columns: Mapping[str, Sequence[object]], key: _Key, items: Items) -> list[str]:
    """Return errors for columns that name other items than the key does: nobody knows which are right."""
    if key.of != items.of:
        return []
    faults = []
    for name in key_columns(columns, items.of) if key.column in USUAL else columns:
        if (
            name == key.column
            or name in KEYS["rows"]
            or any(name in KEYS[k] for k in ("captions", "images") if k != items.of)
        ):
            continue
        places = known_ids(columns[name], items.ways[items.of])
        other = [row for row, (one, two) in enumerate(zip(key.places, places, strict=True)) if one != two]
        if other and all(places) and len({found[0] for found in places}) == len(places):
            row = other[0]
            faults.append(
                f"`{key.column}` and `{name}` both name {items.kind}, and other ones in {len(other)} rows, first "
                f"{columns[key.column][row]!r} and {columns[name][row]!r}; leave out the one that is not meant"
            )
    return faults
