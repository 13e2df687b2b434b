"""Tables of the user's own with named columns, in one of three forms, and which of their columns holds what.

* ``captions``: a row is an image and its caption, or list of captions; an image may have several rows;
* ``pairs``: a row is an image, its caption and a wrong caption (SugarCrepe form);
* ``quadruples``: a row is two images and the caption of each (Winoground form).

An image's id is the value of its column, unless the form is ``captions`` and there is an ``id`` column. Columns have
their usual names, or those that a description gives them; names are compared by their letters and digits only:
``File Name`` and ``fileName`` are ``file_name``.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from math import isnan
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from capim.store.errors import RequestError, noted, some
from capim.store.forms import FORMS, NAMES, NO_COLUMNS, Columns, fold, option
from capim.store.schema import UNNUMBERED
from capim.store.sets.columns_read import CAPTIONS, GRADES, SPLITS, TONGUES, tell, telling
from capim.store.tables import skips_bad_rows
from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.build import CaptionRow, Faults, ImageRow, PairRow, QuadrupleRow, SkippedRow
from capim.tasks.corpora.files import choose_split, unlisted
from capim.tasks.corpora.images.image_files import locate_images

if TYPE_CHECKING:
    from capim.tasks.corpora.readers.hub import HubSplit

FormName: TypeAlias = Literal["captions", "pairs", "quadruples"]
FORM_NAMES: tuple[FormName, ...] = ("captions", "pairs", "quadruples")


class TableRows(NamedTuple):
    """The content of a table.

    Attributes:
        where: File or data set, for messages.
        available: Its columns.
        rows: Cells by column (of a judged corpus by role); an image cell holds a file name, or the key in the source.
        origin: Where it can be had.
        source: Reads the images if they are not files in a folder.
        made: Column that chose rows, or that was made of others -> the columns of the file.
    """

    where: str
    available: Sequence[str]
    rows: Iterable[Mapping[str, Any]]
    origin: str = ""
    source: HubSplit | None = None
    made: Mapping[str, Sequence[str]] = MappingProxyType({})


class RowOptions(NamedTuple):
    """Options for a table's rows in a description (:mod:`tasks.corpora.description`)."""

    form: FormName = "captions"
    columns: Columns = NO_COLUMNS
    language: str = "en"
    reference_language: str = "en"
    ids_only: bool = False


def rows_by_role(
    name: str, read: TableRows, columns: Columns, ways: Mapping[str, str] = MappingProxyType({}), *, table: str = ""
) -> Iterator[dict[str, Any]]:
    """Return the rows of a table of a form with one column for each role, as role -> cell; its columns are reported.

    Args:
        name: Of the form.
        columns: Role -> column, as the user names them.
        ways: How unread columns can be read, as of :func:`store.sets.columns_read.telling`.
        table: Its name, in a corpus of several, as in :meth:`store.forms.Form.columns`.

    Raises:
        RequestError: A column is missing; after the last row, that rows have no cell of a role that needs one, unless
            such rows are left out.
    """
    form, rows, faults = FORMS[name], iter(read.rows), Faults(read.where)
    needs = () if name == "questions" else form.needs  # a page without a query is a distractor
    first = list(islice(rows, 1))
    found = form.columns(read.available, columns, where=read.where, first=next(iter(first), None), table=table)
    column_of = {role: column for role, (column,) in found.items()}
    rows = telling(read.where, [*column_of.values()], read.available, chain(first, rows), ways)
    for number, row in enumerate(rows, start=1):
        cells = {role: row.get(column) for role, column in column_of.items()}
        if lacking := [role for role in needs if is_empty(cells[role])]:
            faults.add(f"rows without {' and without '.join(lacking)}", f"row {number}")
        else:
            yield cells
    faults.raise_or_tell()


def is_empty(cell: object) -> bool:
    """True if a cell has nothing in it: no value, not a number, a blank text, or a list of such cells only."""
    if isinstance(cell, list):
        return all(map(is_empty, cell))
    return not cell.strip() if isinstance(cell, str) else cell is None or (isinstance(cell, float) and isnan(cell))


_IN_OBJECTS = ("text", "raw", "caption", "sentence", "phrase")  # names of a caption in a list of objects
_SEVERAL = (
    'rows with several images, which are judgements: read them with reader = "judged", dataset = "FILE" and '
    'columns = { "queries.query" = "…", "documents.image" = "…" }'
)
LABELS_IN_CELLS = (
    "images in the cells of a table with labels are not read; write each to a file in a folder of its class "
    "(docs/labels.md), or name a column of captions with columns.caption"
)
_OF_COLUMNS = ("caption", "negative", "objects")  # roles that may have several columns
_NUMBERED = re.compile(r"^(.*?\D)[ _-]?(\d+)$")
_WAYS: Mapping[str, str] = {  # kind of an unread column -> how to read it
    TONGUES: 'read it with columns.language = "{column}"',
    SPLITS: 'read one with columns.split = "{column}" and split = "{value}"',
    GRADES: 'read it with reader = "judged" and columns = {{ "queries.query" = "…", "judgements.grade" = "{column}" }}',
    CAPTIONS: 'read wrong ones with form = "pairs" and columns.negative = "{column}", right ones with columns.caption',
}
_OF_OBJECTS = dict.fromkeys(_WAYS, "write a row for each caption, with {column!r} as a column")
_LONG = {code for entry in CORPORA.values() for code in entry.languages if len(code) == 3}  # others: by the user only
_JOINED = re.compile(r"\||\n|;;|\[SEP\]|<(sep|br ?/?)>|^\[.*\]$", re.IGNORECASE)  # in a text, it may be several
_GLANCE = 1000  # objects with a caption in them that are looked at


def columns_of_roles(
    options: RowOptions, available: Sequence[str], where: str, first: Mapping[str, Any] | None = None
) -> dict[str, tuple[str, ...]]:
    """Return role -> columns, for the roles of a form that have one; captions, wrong ones and objects can have several.

    ``caption_1``, ``caption_2``, … are the captions of one image in this order. With ``ids_only``, caption ids are
    accepted in place of captions.

    Raises:
        RequestError: Captions are in columns of several kinds, and as :meth:`capim.store.forms.Form.columns`.
    """
    form, faults, waived = FORMS[options.form], list[str](), list[str]()
    given = {role: names for role, names in options.columns.items() if _language_of(role) is None}
    if options.form == "captions" and "caption" not in given:
        taken = {*chain.from_iterable([each] if isinstance(each, str) else each for each in given.values())}
        found = _caption_columns([name for name in available if name not in taken])
        given |= {"caption": found[0]} if len(found) == 1 else {}
        if len(found) > 1:
            ways = " or in ".join(map(", ".join, found))
            faults, waived = [f"captions may be in {ways}; {option('caption', *found[0])}"], ["caption"]
    if options.ids_only and ("caption_id" in given or form.find("caption_id", available)):
        waived = ["caption"]
    return form.columns(available, given, where=where, first=first, several=_OF_COLUMNS, waived=waived, faults=faults)


def form_of(stem: str, available: Sequence[str], columns: Columns = NO_COLUMNS) -> str | None:
    """Return the form of a table by the name of its file, else by its columns; None if these fit no form.

    Args:
        stem: Name of its file, without suffix.
        available: Its columns.
        columns: Roles that the user gives columns, which mean these.
    """
    if stem in FORM_NAMES:
        return stem
    named = {name for each in columns.values() for name in ([each] if isinstance(each, str) else each)}
    roles = [*columns, *(name for name in available if name not in named)]
    roles += ["caption"] if _languages(roles, {}) or _languages(roles, columns) or _caption_columns(roles) else []
    own = {role for role in columns if _language_of(role) is None}
    return next((name for name in RECOGNISED if FORMS[name].fits(roles) and own <= {*FORMS[name].roles}), None)


def own_form(stem: str, available: Sequence[str], columns: Columns) -> FormName:
    """Return the form of a table of captions, pairs or quadruples, or the first with the roles that the user names."""
    found, roles = form_of(stem, available, columns), {role for role in columns if _language_of(role) is None}
    own = [name for name in FORM_NAMES if name == found] or [n for n in FORM_NAMES if roles <= {*FORMS[n].roles}]
    return next(iter(own), "captions")


RECOGNISED = ("quadruples", "pairs", "composed", "captions", "questions", "labels", "ratings")
"""Forms of a table that are recognised by its columns, in this order."""


def _caption_columns(available: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the columns that hold captions; several tuples if it is not clear which of them do."""
    plain = FORMS["captions"].find("caption", available)
    usual = {*map(fold, NAMES["caption"])}
    numbered: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for name in available:
        match = _NUMBERED.match(name.strip())
        if match and fold(match[1]) in usual:
            numbered[fold(match[1])].setdefault(int(match[2]), name)
    series = {base: tuple(by_number[n] for n in sorted(by_number)) for base, by_number in numbered.items()}
    if plain is None:
        return list(series.values())
    more = series.pop(fold(plain), ())
    if more and min(numbered[fold(plain)]) < 2:  # caption and caption_1: the first may be one of the others, or all
        return [(plain, *more), (plain,), more]
    return [(plain, *more), *series.values()]


def rows_to_read(read: TableRows, split: str | None, columns: Columns) -> TableRows:
    """Return the rows of a split, each in one language."""
    return of_languages(of_split(read, split, columns=columns), columns)


def of_split(read: TableRows, given: str | None = None, *, columns: Columns) -> TableRows:
    """Return the rows of a split where there is a column ``split``, or ``columns`` names one: given, ``test``, or all.

    The origin says which, and RequestError that there is no such split.
    """
    named = columns.get("split") or FORMS["captions"].find("split", read.available)
    column = named if isinstance(named, str) or named is None else named[0]
    if column is None:
        if given is None:
            return read
        raise RequestError(f"{read.where}: no column 'split' for split = {given!r}; it has {', '.join(read.available)}")
    rows = list(read.rows)
    splits = [str(value) for value in dict.fromkeys(row.get(column) for row in rows) if value is not None]
    if given is None and (len(splits) < 2 or "test" not in splits):
        return read._replace(rows=rows)
    chosen = choose_split(read.where, splits, given)
    rows = [row for row in rows if str(row.get(column)) == chosen]
    origin = f"{read.origin} (split {chosen} of {', '.join(splits)})"
    return read._replace(rows=rows, origin=origin, made={**read.made, column: (column,)})


def of_languages(read: TableRows, columns: Columns) -> TableRows:
    """Return a table with captions in a column for each of several languages, with a row for each of them instead.

    Not where ``columns`` names those of the captions; ``columns.caption_de`` names that of one language.
    """
    codes = _languages(read.available, columns)
    if not codes:
        return read
    if absent := [column for column in codes if column not in read.available]:
        raise RequestError(f"{read.where}: no column {', '.join(map(repr, absent))}; it has {some(read.available, 20)}")
    others = [column for column in read.available if column not in codes]

    def rows() -> Iterator[dict[str, Any]]:
        faults = Faults(read.where)
        for number, row in enumerate(read.rows, start=1):
            said = {column: code for column, code in codes.items() if row.get(column)}
            if not said:
                faults.add("rows without a caption in any language", f"row {number}")
            for column, code in said.items():
                yield {**{name: row.get(name) for name in others}, "caption": row[column], "language": code}
        faults.raise_or_tell()

    made = {**read.made, "caption": [*codes], "language": ()}
    return read._replace(available=[*others, "caption", "language"], rows=rows(), made=made)


def _languages(available: Sequence[str], columns: Columns) -> dict[str, str]:
    """Return column -> language, of a table with captions only in columns that are named by languages."""
    named = {str(column): code for role, column in columns.items() if (code := _language_of(role)) is not None}
    if named or "caption" in columns:
        return named
    codes = {each: code for each in available if (code := _language_of(each, 3 if each in _LONG else 2)) is not None}
    others = [column for column in available if column not in codes]
    return codes if len({*codes.values()}) == len(codes) > 1 and not _caption_columns(others) else {}


def _language_of(column: str, letters: int = 3) -> str | None:
    """Return the BCP-47 code in the name of a column of captions, of at most so many letters.

    ``id`` is no Indonesian here, but an id; ``id-ID`` is.

    Examples:
        >>> [_language_of(column, 2) for column in ("de", "caption_pt-BR", "zh_text", "id", "url", "caption_id", "xx")]
        ['de', 'pt-BR', 'zh', None, None, None, None]
    """
    usual = {*map(fold, NAMES["caption"])}
    words = [word for word in re.split(r"[ _-]+", column) if fold(word) not in usual]
    code = "-".join(words)
    pattern = rf"[a-z]{{2,{letters}}}(-[a-z]{{2}}|-[a-z]{{4}})?"
    if not re.fullmatch(pattern, code, re.IGNORECASE) or code.casefold() == "id":
        return None
    from langcodes import Language

    language = Language.get(code)
    return str(language) if language.is_valid() else None


def corpus_of_rows(
    name: str, read: TableRows, options: RowOptions, *, images: str | Path | Sequence[Path] | None
) -> Corpus:
    """Return the corpus of the rows of a table, in their order.

    Raises:
        RequestError: A column or file is missing, rows lack an image or a caption, or ids repeat; lists every fault.
    """
    faults, rows = Faults(read.where), iter(read.rows)
    first = list(islice(rows, 1))
    column_of = columns_of_roles(options, read.available, read.where, *first)
    table = _Rows(options, column_of, faults)
    roles = {*read.made, *chain.from_iterable(names for role, names in column_of.items() if role != "split")}
    of_file = [each for name in read.available if name in roles for each in read.made.get(name, (name,))]
    others = [name for name in read.available if name not in roles]
    _tell_of_languages(read.where, column_of.get("caption", ()), options.language)
    rows = telling(read.where, of_file, [*of_file, *others], chain(first, rows), _WAYS, options.language)
    for number, row in enumerate(rows, start=1):
        table.add(number, row)
    table.tell(read.where)
    ids_of_file: defaultdict[str, list[str]] = defaultdict(list)
    for image in table.images.values():
        ids_of_file[image.key].append(repr(image.id))
    for file, ids in ids_of_file.items():
        if len(ids) > 1:
            faults.add(
                'images with several ids; if the column holds caption ids, write columns.caption_id = "id"',
                f"{file!r} ({', '.join(ids[:3])})",
            )
    lines, wanted = faults.lines(), None if options.ids_only else images
    with noted(lines):
        if read.source is None:
            located = locate_images(table.images.values(), wanted, origin=read.where)
        else:
            located = read.source.locate([*table.images.values()], where=read.where, what="rows")
    if lines:
        raise RequestError(lines)
    located.tell_unnamed(read.where)
    return located.corpus(
        name,
        table.captions,
        skipped=[*located.skipped, *table.skipped],
        pairs=table.pairs,
        quadruples=table.quadruples,
        origin=read.origin,
        languages_reference=options.reference_language,
    )


def _tell_of_languages(where: str, captions: Sequence[str], language: str) -> None:
    """Warn of captions in columns that are called after several languages, and that are read as those of one."""
    codes = [_language_of(re.split(r"[ _-]+", column)[-1], letters=2) or language for column in captions]
    if len({*codes}) > 1:
        roles = ", ".join(f'columns.caption_{code} = "{column}"' for code, column in zip(codes, captions, strict=True))
        tell(f"warning: {where}: columns {', '.join(captions)} are read as captions in one language; write {roles}")


class _Rows:
    """Contents of a table, collected row by row, and its faults."""

    def __init__(self, options: RowOptions, column_of: Mapping[str, Sequence[str]], faults: Faults) -> None:
        self.options, self.column_of, self.faults, self.skips = options, column_of, faults, skips_bad_rows()
        self.objects: list[Mapping[str, Any]] = []  # the first with a caption in them
        self.skipped: list[SkippedRow] = []
        self.images: dict[str, ImageRow] = {}
        self.captions: list[CaptionRow] = []
        self.pairs: list[PairRow] = []
        self.quadruples: list[QuadrupleRow] = []

    def add(self, number: int, row: Mapping[str, object]) -> None:
        """Collect one row; its number, from 1, is for messages and default ids."""
        self.at = f"row {number}"
        self.cells = {  # of every role; None for cells that are empty or blank
            role: [None if is_empty(cell) else cell for cell in map(row.get, columns)]
            for role, columns in self.column_of.items()
        }
        required = (role for role in FORMS[self.options.form].needs if role in self.cells)
        if self.skips and (
            lacking := [role for role in required if all(cell in (None, []) for cell in self.cells[role])]
        ):
            self.skipped.append(SkippedRow(f"row{number}", f"no {' and no '.join(lacking)} in it", "caption"))
            return
        one = {role: cells[0] for role, cells in self.cells.items()}
        item, caption = (f"row{number}" if one.get(role) is None else str(one[role]) for role in ("id", "caption_id"))
        language = str(one.get("language") or self.options.language)
        if self.options.form == "pairs":
            image, negatives = self._image("image", None), self._texts("negative")
            self.captions.append(CaptionRow(item, image, self._text("caption"), language=language))
            for n, text in enumerate(negatives):
                pair = f"{item}#{n}" if len(negatives) > 1 else item
                self.captions.append(CaptionRow(f"{pair}/negative", None, text, language=language))
                self.pairs.append(PairRow(pair, image, item, f"{pair}/negative", str(one.get("category") or "all")))
            return
        if self.options.form == "quadruples":
            images = (self._image("image_0", None), self._image("image_1", None))
            ids = (f"{item}/0", f"{item}/1")
            for side in (0, 1):
                text = self._text(f"caption_{side}")
                self.captions.append(CaptionRow(ids[side], images[side], text, language=language))
            self.quadruples.append(QuadrupleRow(item, *images, *ids, _words(one.get("tags")) or []))
            return
        image, ordinal, annotation = self._image("image", one.get("id")), one.get("ordinal"), one.get("annotation_id")
        texts = self._texts("caption") if "caption" in self.cells else [None]
        several = len(texts) > 1 or len(self.cells.get("caption", ())) > 1
        if ordinal is not None and (not str(ordinal).isdigit() or several):
            self.faults.add("rows with an ordinal that is not one caption's whole number", f"{self.at} ({ordinal!r})")
            ordinal = None
        place = UNNUMBERED if ordinal is None else int(str(ordinal))
        by, annotation = str(one.get("translator") or "human"), None if annotation is None else str(annotation)
        for n, text in enumerate(texts):
            identifier = f"{caption}#{n}" if several else caption
            self.captions.append(CaptionRow(identifier, image, text, place, language, by, annotation))

    def _image(self, role: str, identifier: object) -> str:
        """Return the id of the image in a role, by default its cell, which is added to the images if it is new."""
        key = unlisted(self.cells[role][0])
        if isinstance(key, list) and len(key) == 1:
            key = key[0]
        if key is None:
            self.faults.add(f'rows without {role} (missing = "skip" leaves them out)', self.at)
            return ""
        if not isinstance(key, str | int):
            what = _SEVERAL if isinstance(key, list) else f"rows where {role} is neither text nor number"
            self.faults.add(what, f"{self.at} ({type(key).__name__})")
            return ""
        name = str(key if identifier is None else identifier)
        first = self.images.setdefault(name, ImageRow(name, str(key), objects=self._objects()))
        if first.key != str(key):
            self.faults.add("image ids with several files", f"{name!r} ({first.key!r} and {str(key)!r})")
        return name

    def _objects(self) -> list[str] | None:
        """Return what the image shows: words, or of columns in a list ``column=word``; None where no cell has any."""
        words = [_words(cell) for cell in self.cells.get("objects", ())]
        if isinstance(self.options.columns.get("objects", ""), str) or not any(words):
            return words[0] if words else None
        named = zip(self.column_of["objects"], words, strict=True)
        return [f"{column}={word}" for column, of_column in named for word in of_column or ()]

    def _texts(self, role: str) -> Sequence[str | None]:
        cells = [cell for cell in self.cells[role] if cell is not None]
        if not cells:
            self.faults.add(f'rows without {role} (missing = "skip" leaves them out)', self.at)
        texts: list[str | None] = []
        for cell in map(unlisted, cells):
            inner = self._said(cell)
            each = [self._said(one) for one in (inner if isinstance(inner, list | tuple) else [inner])]
            said = [text for text in each if isinstance(text, str)]
            if said and len(said) == len(each):
                texts += said
            else:
                what = f"rows where {role} is not a text or a list of texts, or of objects with a text"
                what = what if inner is not None else f"rows where {role} is an object: write its fields as columns"
                self.faults.add(what, f"{self.at} ({cell!r:.40})")
        return texts

    def _text(self, role: str) -> str | None:
        texts = self._texts(role)
        if len(texts) > 1:
            self.faults.add(f"rows with several texts as {role}", self.at)
        return texts[0] if texts else ""

    def _said(self, one: object) -> object:
        """Return the text of an object in a list of captions; anything else as it is."""
        if not isinstance(one, Mapping):
            return one
        self.objects += [one] if len(self.objects) < _GLANCE else []
        return next((one[name] for name in _IN_OBJECTS if name in one), None)

    def tell(self, where: str) -> None:
        """Report the fields of objects with a caption that were not read, and texts that may be several captions."""
        if names := dict.fromkeys(chain.from_iterable(self.objects)):
            own = [name for name in _IN_OBJECTS if name in names][:1]
            deque(telling(f"{where}, objects", own, [*names], self.objects, _OF_OBJECTS, self.options.language), 0)
        texts = [row.text for row in self.captions if row.text]
        if 2 * len(joined := list(filter(_JOINED.search, texts))) > len(texts):
            tell(
                f"warning: {where}: {len(joined):,} of {len(texts):,} texts look like several, and each is read as one "
                f'caption, first {joined[0]!r:.60}; write several as a list: ["…", "…"]'
            )


def _words(value: object) -> list[str] | None:
    """Return the words of a list, or of a text with ``;`` between them; None if there is no value."""
    if value is None:
        return None
    if isinstance(value, str):
        return [word.strip() for word in value.split(";") if word.strip()]
    return [str(word) for word in value] if isinstance(value, Iterable) else [str(value)]
