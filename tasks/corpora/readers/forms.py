"""Tables of the user's own with named columns, in one of three forms, and which of their columns holds what.

* ``captions``: a row is an image and its caption, or list of captions; an image may have several rows;
* ``pairs``: a row is an image, its caption and a wrong caption (SugarCrepe form);
* ``quadruples``: a row is two images and the caption of each (Winoground form).

An image's id is the value of its column, unless the form is ``captions`` and there is an ``id`` column. Columns have
their usual names, or those that a description gives them; names are compared by their letters and digits alone:
``File Name`` and ``fileName`` are ``file_name``.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from capim.store.errors import RequestError, did_you_mean, is_number, nearest, noted
from capim.store.sets.columns_read import CAPTIONS, GRADES, NEGATIVE, SPLITS, TONGUES, telling
from capim.store.tables import is_image_name
from capim.store.types import Corpus
from capim.tasks.corpora.build import CaptionRow, Faults, ImageRow, PairRow, QuadrupleRow, SkippedRow
from capim.tasks.corpora.files import choose_split, some, unlisted
from capim.tasks.corpora.images.image_files import Missing, locate_images

if TYPE_CHECKING:
    from capim.tasks.corpora.readers.hub import HubSplit

FormName: TypeAlias = Literal["captions", "pairs", "quadruples"]
Columns: TypeAlias = Mapping[str, str | Sequence[str]]


class CorpusForm(NamedTuple):
    """The roles of columns in a form."""

    required: Sequence[str]
    optional: Sequence[str]


class TableRows(NamedTuple):
    """What was read of a table.

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
    """What a description says of the rows of a table: options of :mod:`tasks.corpora.description`."""

    form: FormName = "captions"
    columns: Columns = MappingProxyType({})
    language: str = "en"
    reference_language: str = "en"
    ids_only: bool = False


class JudgedColumns(NamedTuple):
    """A table of a judged corpus: what it may be called, and its columns."""

    names: Sequence[str]
    required: Sequence[str]
    columns: Mapping[str, Sequence[str]]


_TABLE = tomllib.loads(Path(__file__).with_name("columns.toml").read_text(encoding="utf-8"))
FORMS: dict[FormName, CorpusForm] = {name: CorpusForm(**roles) for name, roles in _TABLE["forms"].items()}
USUAL_NAMES: Mapping[str, Sequence[str]] = _TABLE["usual"]
JUDGED_TABLES = {name: JudgedColumns(**table) for name, table in _TABLE["judged"].items()}
_IN_OBJECTS = ("text", "raw", "caption", "sentence", "phrase")  # names of a caption in a list of objects
_ADDRESSES = ("url", "urls", "imageurl", "link")
_NUMBERED = re.compile(r"^(.*?\D)[ _-]?(\d+)$")
_WAYS: Mapping[str, str] = {  # how a column is read that is not read, by what it looks like
    TONGUES: 'read it with columns.language = "{column}"',
    SPLITS: 'read one with columns.split = "{column}" and split = "{value}"',
    GRADES: 'read it with reader = "judged" and columns = {{ "queries.query" = "…", "judgements.grade" = "{column}" }}',
    CAPTIONS: 'read wrong ones with form = "pairs" and columns.negative = "{column}", right ones with columns.caption',
}


def columns_of_roles(
    options: RowOptions, available: Sequence[str], where: str, first: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, tuple[str, ...]]:
    """Role -> columns, for the roles of a form that have one; only captions can have several columns.

    ``caption_1``, ``caption_2``, … are the captions of one image in this order.

    Args:
        options: The form, and the columns that the description names; with ``ids_only``, caption ids are accepted in
            place of captions.
        available: Columns of the table.
        where: File or data set, for messages.
        first: The first row, which messages show.

    Raises:
        RequestError: A role or a column is unknown, a required role has no column, or captions are in columns of
            several kinds; names the column that was meant, where its cells leave no doubt.
    """
    form = options.form
    roles = (*FORMS[form].required, *FORMS[form].optional)
    given: dict[str, tuple[str, ...]] = {
        role: (names,) if isinstance(names, str) else tuple(names) for role, names in options.columns.items()
    }
    left = [name for name in available if not any(name in names for names in given.values())]
    faults: list[str] = []
    column_of = {role: names for role in roles if role not in given and (names := _usual(role, left))}
    if form == "captions" and "caption" not in given:
        found = _caption_columns(left)
        if len(found) == 1:
            column_of["caption"] = found[0]
        elif found:
            faults.append(f"captions may be in {' or in '.join(map(', '.join, found))}; {_line('caption', found[0])}")
    named = {*column_of, *given, *(("caption",) if faults else ())}
    column_of |= given
    known, has = ", ".join(roles), some(available, 20) or "none"
    faults += [f"columns has the unknown role {r!r}; form {form!r} has {known}" for r in given if r not in roles]
    for role, names in given.items():
        for name in names:
            if name not in available:
                hint = did_you_mean(name, available)
                faults.append(f"no column {name!r} for role {role!r}; {hint}it has {has}")
        if len(names) != 1 and role not in ("caption", "objects"):
            faults.append(f"columns.{role} must name one column, got {', '.join(names) or 'none'}")
    if options.ids_only and "caption_id" in column_of:
        named.add("caption")
    unused = [name for name in left if not any(name in names for names in column_of.values())]
    for role in FORMS[form].required:
        if role not in named:
            addresses = [name for name in left if role.startswith("image") and _fold(name) in _ADDRESSES]
            hint = f"; {addresses[0]!r} holds addresses: download the images first" if addresses else ""
            meant = _near(role, {name: first[name] for name in unused if name in first})
            shown = first and f"; its first row: {some([f'{name} {cell!r:.40}' for name, cell in first.items()], 20)}"
            faults.append(f"no column for {role}; it has {has}; {_line(role, [meant or '…'])}{hint}{shown or ''}")
    if faults:
        raise RequestError([f"{where}: {fault}" for fault in faults])
    return column_of


def form_of(stem: str, available: Sequence[str]) -> FormName | None:
    """The form of a table whose file has the name of one, else by its columns; None if these are of no form."""
    available = [*available, *(["caption"] if _languages(available) else [])]
    for form in FORMS:
        if stem == form:
            return form
    if all(_usual(role, available) for role in FORMS["quadruples"].required):
        return "quadruples"
    if _usual("image", available) and _caption_columns(available):
        return "pairs" if _usual("negative", available) else "captions"
    return None


def _usual(role: str, available: Sequence[str]) -> tuple[str, ...]:
    """The column with the first of a role's usual names; empty if there is none."""
    column = usual_column(USUAL_NAMES.get(role, (role,)), available)
    return () if column is None else (column,)


def usual_column(names: Sequence[str], available: Sequence[str]) -> str | None:
    """The column with the first of some names, however it is capitalised or hyphenated; None if there is none."""
    by_fold = {_fold(name): name for name in reversed(available)}
    found = (name if name in available else by_fold.get(_fold(name)) for name in names)
    return next((column for column in found if column is not None), None)


def _caption_columns(available: Sequence[str]) -> list[tuple[str, ...]]:
    """The columns that hold captions; several tuples if it is not clear which of them do."""
    plain = _usual("caption", available)
    usual = {_fold(name) for name in USUAL_NAMES["caption"]}
    numbered: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for name in available:
        match = _NUMBERED.match(name.strip())
        if match and _fold(match[1]) in usual:
            numbered[_fold(match[1])].setdefault(int(match[2]), name)
    series = {base: tuple(by_number[n] for n in sorted(by_number)) for base, by_number in numbered.items()}
    if not plain:
        return list(series.values())
    base = _fold(plain[0])
    more = series.pop(base, ())
    if more and min(numbered[base]) < 2:  # caption and caption_1: the first may be one of the others, or all of them
        return [(*plain, *more), plain, more]
    return [(*plain, *more), *series.values()]


def _near(role: str, cells: Mapping[str, object]) -> str | None:
    """The only one of some columns that may hold a role by its cell, if its name is nearly a usual one of the role.

    None for one with the name of another role, of addresses or of wrong captions.
    """
    texts = {name: cell for name, cell in cells.items() if isinstance(cell, str) and not is_number(cell)}
    fits = [name for name, cell in texts.items() if is_image_name(cell) == role.startswith("image")]
    claimed = {*_ADDRESSES, *(_fold(name) for other, names in USUAL_NAMES.items() if other != role for name in names)}
    alone = [name for name in fits if len(fits) == 1 and _fold(name) not in claimed and not NEGATIVE.search(name)]
    return next((name for name in alone if nearest(name, USUAL_NAMES.get(role, (role,)), cutoff=0.75)), None)


def _line(role: str, names: Sequence[str]) -> str:
    """The line of a description that names the columns of a role."""
    value = f'"{names[0]}"' if len(names) == 1 else "[" + ", ".join(f'"{name}"' for name in names) + "]"
    return f"name it with columns.{role} = {value}"


def _fold(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())


def of_split(read: TableRows, given: str | None = None, *, columns: Columns) -> TableRows:
    """The rows of a split where there is a column ``split``, or ``columns`` names it: the given one, ``test``, or all.

    The origin says which, and RequestError that there is no such split.
    """
    named = columns.get("split") or usual_column(("split",), read.available)
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
    """A table with captions in a column for each of several languages, with a row for each of them instead.

    Not where ``columns`` names those of the captions.
    """
    codes = {} if "caption" in columns else _languages(read.available)
    if not codes:
        return read
    others = [column for column in read.available if column not in codes]
    rows = (
        {**{column: row.get(column) for column in others}, "caption": row[column], "language": code}
        for row in read.rows
        for column, code in codes.items()
        if row.get(column)
    )
    made = {**read.made, "caption": [*codes], "language": ()}
    return read._replace(available=[*others, "caption", "language"], rows=rows, made=made)


def _languages(available: Sequence[str]) -> dict[str, str]:
    """Column -> language, of a table without captions but for those in several columns that are named by languages."""
    codes = {column: code for column in available if (code := _language_of(column)) is not None}
    others = [column for column in available if column not in codes]
    return codes if len({*codes.values()}) == len(codes) > 1 and not _caption_columns(others) else {}


def _language_of(column: str) -> str | None:
    """The BCP-47 code by which a column of captions is named.

    ``id`` is no Indonesian here, but an id; ``id-ID`` is.

    Examples:
        >>> [_language_of(column) for column in ("de", "caption_pt-BR", "zh_text", "id", "url", "caption_id", "xx")]
        ['de', 'pt-BR', 'zh', None, None, None, None]
    """
    usual = {_fold(name) for name in USUAL_NAMES["caption"]}
    words = [word for word in re.split(r"[ _-]+", column) if _fold(word) not in usual]
    code = "-".join(words)
    if not re.fullmatch(r"[a-z]{2}(-[a-z]{2}|-[a-z]{4})?", code, re.IGNORECASE) or code.casefold() == "id":
        return None
    from langcodes import Language

    language = Language.get(code)
    return str(language) if language.is_valid() else None


def corpus_of_rows(
    name: str,
    read: TableRows,
    options: RowOptions,
    *,
    images: str | Path | Sequence[Path] | None,
    missing: Missing,
    licence: str,
) -> Corpus:
    """The corpus of the rows of a table, in their order.

    Raises:
        RequestError: A column or file is missing, rows lack an image or a caption, or ids repeat; lists every fault.
    """
    faults, rows = Faults(read.where), iter(read.rows)
    first = list(islice(rows, 1))
    column_of = columns_of_roles(options, read.available, read.where, *first)
    table = _Rows(options, column_of, faults, skips=missing == "skip")
    roles = {*read.made, *chain.from_iterable(names for role, names in column_of.items() if role != "split")}
    of_file = [each for name in read.available if name in roles for each in read.made.get(name, (name,))]
    others = [name for name in read.available if name not in roles]
    rows = telling(read.where, of_file, [*of_file, *others], chain(first, rows), _WAYS, options.language)
    for number, row in enumerate(rows, start=1):
        table.add(number, row)
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
            located = locate_images(table.images.values(), wanted, missing=missing, origin=read.where)
        else:
            located = read.source.locate([*table.images.values()], missing=missing, where=read.where, what="rows")
    if lines:
        raise RequestError(lines)
    located.tell_unnamed(read.where)
    return located.corpus(
        name,
        table.captions,
        skipped=[*located.skipped, *table.skipped],
        pairs=table.pairs,
        quadruples=table.quadruples,
        licence=licence,
        origin=read.origin,
        languages_reference=options.reference_language,
    )


class _Rows:
    """What the rows of a table hold, collected row by row, and their faults."""

    def __init__(
        self, options: RowOptions, column_of: Mapping[str, Sequence[str]], faults: Faults, *, skips: bool
    ) -> None:
        self.options, self.column_of, self.faults, self.skips = options, column_of, faults, skips
        self.skipped: list[SkippedRow] = []
        self.images: dict[str, ImageRow] = {}
        self.captions: list[CaptionRow] = []
        self.pairs: list[PairRow] = []
        self.quadruples: list[QuadrupleRow] = []

    def add(self, number: int, row: Mapping[str, object]) -> None:
        """Collect one row; its number, from 1, is for messages and default ids."""
        self.at = f"row {number}"
        self.cells = {  # of every role; None for cells that are empty or blank
            role: [None if isinstance(cell, str) and not cell.strip() else cell for cell in map(row.get, columns)]
            for role, columns in self.column_of.items()
        }
        required = (role for role in FORMS[self.options.form].required if role in self.cells)
        if self.skips and (lacking := [role for role in required if not any(map(_is_given, self.cells[role]))]):
            self.skipped.append(SkippedRow(f"row{number}", f"no {' and no '.join(lacking)} in it", "caption"))
            return
        one = {role: cells[0] for role, cells in self.cells.items()}
        item, caption = (f"row{number}" if one.get(role) is None else str(one[role]) for role in ("id", "caption_id"))
        language = str(one.get("language") or self.options.language)
        if self.options.form == "pairs":
            image, negative = self._image("image", None), f"{item}/negative"
            self.captions.append(CaptionRow(item, image, self._text("caption"), language=language))
            self.captions.append(CaptionRow(negative, None, self._text("negative"), language=language))
            self.pairs.append(PairRow(item, image, item, negative, str(one.get("category") or "all")))
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
            self.faults.add("rows whose ordinal is not the whole number of one caption", f"{self.at} ({ordinal!r})")
            ordinal = None
        place = None if ordinal is None else int(str(ordinal))
        by, annotation = str(one.get("translator") or "human"), None if annotation is None else str(annotation)
        for n, text in enumerate(texts):
            identifier = f"{caption}#{n}" if several else caption
            self.captions.append(CaptionRow(identifier, image, text, place, language, by, annotation))

    def _image(self, role: str, identifier: object) -> str:
        """The id of the image in a role, by default its cell, which is added to the images if it is new."""
        key = self.cells[role][0]
        if key is None:
            self.faults.add(f"rows without {role}", self.at)
            return ""
        if not isinstance(key, str | int):
            self.faults.add(f"rows whose {role} is neither text nor number", f"{self.at} ({type(key).__name__})")
            return ""
        name = str(key if identifier is None else identifier)
        first = self.images.setdefault(name, ImageRow(name, str(key), objects=self._objects()))
        if first.key != str(key):
            self.faults.add("image ids with several files", f"{name!r} ({first.key!r} and {str(key)!r})")
        return name

    def _objects(self) -> list[str] | None:
        """What the image shows: words, or of columns in a list ``column=word``; None where no cell has any."""
        words = [_words(cell) for cell in self.cells.get("objects", ())]
        if isinstance(self.options.columns.get("objects", ""), str) or not any(words):
            return words[0] if words else None
        named = zip(self.column_of["objects"], words, strict=True)
        return [f"{column}={word}" for column, of_column in named for word in of_column or ()]

    def _texts(self, role: str) -> Sequence[str | None]:
        cells = [cell for cell in self.cells[role] if cell is not None]
        if not cells:
            self.faults.add(f"rows without {role}", self.at)
        texts: list[str | None] = []
        for cell in map(_said, map(unlisted, cells)):
            each = [_said(one) for one in (cell if isinstance(cell, list | tuple) else [cell])]
            said = [text for text in each if isinstance(text, str)]
            if said and len(said) == len(each):
                texts += said
            else:
                shown = f"{self.at} ({cell!r:.40})"
                self.faults.add(f"rows whose {role} is not a text or a list of texts, or of objects with a text", shown)
        return texts

    def _text(self, role: str) -> str | None:
        texts = self._texts(role)
        if len(texts) > 1:
            self.faults.add(f"rows with several texts as {role}", self.at)
        return texts[0] if texts else ""


def _is_given(cell: object) -> bool:
    return cell is not None and cell != []


def _said(one: object) -> object:
    """The text of an object in a list of captions; anything else as it is."""
    return next((one[name] for name in _IN_OBJECTS if name in one), None) if isinstance(one, Mapping) else one


def _words(value: object) -> list[str] | None:
    """The words of a list, or of a text with ``;`` between them; None if there is no value."""
    if value is None:
        return None
    if isinstance(value, str):
        return [word.strip() for word in value.split(";") if word.strip()]
    return [str(word) for word in value] if isinstance(value, Iterable) else [str(value)]
