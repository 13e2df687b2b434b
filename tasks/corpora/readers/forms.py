"""Tables with named columns, in one of three forms.

* ``captions``: a row is an image and its caption, or list of captions; an image may have several rows;
* ``pairs``: a row is an image, its caption and a wrong caption (SugarCrepe form);
* ``quadruples``: a row is two images and the caption of each (Winoground form).

An image's id is the value of its column, unless the form is ``captions`` and there is an ``id`` column.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from capim.store.errors import RequestError
from capim.store.types import Corpus, ImageSource
from capim.tasks.corpora.build import CaptionRow, Faults, ImageRow, PairRow, QuadrupleRow, SkippedRow, build_corpus
from capim.tasks.corpora.images.image_files import Missing, locate_images
from capim.tasks.corpora.readers.columns import Columns, FormName, columns_of_roles

_LISTED = re.compile(r"""\s*\[\s*["'].*["']\s*\]\s*""", re.DOTALL)


def corpus_of_rows(
    name: str,
    rows: Iterable[Mapping[str, object]],
    available: Sequence[str],
    *,
    where: str,
    form: FormName,
    columns: Columns,
    language: str,
    ids_only: bool,
    images: str | Path | Sequence[Path] | None,
    source: ImageSource | None = None,
    absent: Collection[str] = (),
    missing: Missing,
    licence: str,
    origin: str,
    reference_language: str,
) -> Corpus:
    """The corpus of these rows, in their order; the other arguments are options of :mod:`tasks.corpora.description`.

    Args:
        rows: Cells by column; an image cell holds a file name, or the image's key in the source.
        available: Columns of the table.
        where: File or data set, for messages.
        ids_only: Use no images, and accept caption ids in place of captions.
        source: Reads the images if they are not files in a folder.
        absent: Keys of images that the source does not hold.

    Raises:
        RequestError: A column or file is missing, rows lack an image or a caption, or ids repeat; lists every fault.
    """
    faults = Faults(where)
    column_of = columns_of_roles(form, columns, available, where=where, ids_only=ids_only)
    table = _Rows(form, column_of, language, faults)
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
    try:
        located = locate_images(table.images.values(), None if ids_only else images, missing=missing, origin=where)
    except RequestError as error:
        raise RequestError([*faults.lines(), *error.faults]) from error
    faults.raise_any()
    empty = [SkippedRow(row.id, "the data set holds no image") for row in located.rows if row.key in absent]
    if empty and missing == "error":
        raise RequestError(
            f"{where}: {len(empty)} rows hold no image, the first {empty[0].item_id!r}; leave them out with "
            'missing = "skip"'
        )
    return build_corpus(
        name,
        [row for row in located.rows if row.key not in absent],
        table.captions,
        source=None if ids_only else located.source or source,
        pairs=table.pairs,
        quadruples=table.quadruples,
        skipped=[*located.skipped, *empty],
        licence=licence,
        origin=origin,
        languages_reference=reference_language,
    )


class _Rows:
    """What the rows of a table hold, collected row by row, and their faults."""

    def __init__(self, form: FormName, column_of: Mapping[str, Sequence[str]], language: str, faults: Faults) -> None:
        self.form = form
        self.column_of = column_of
        self.language = language
        self.faults = faults
        self.images: dict[str, ImageRow] = {}
        self.captions: list[CaptionRow] = []
        self.pairs: list[PairRow] = []
        self.quadruples: list[QuadrupleRow] = []
        self.row: Mapping[str, object] = {}
        self.number = 0

    def add(self, number: int, row: Mapping[str, object]) -> None:
        """Collect one row; its number, from 1, is for messages and default ids."""
        self.number, self.row = number, row
        if self.form == "pairs":
            item, image = self._id("id"), self._image("image")
            self._caption(item, image, self._text("caption"))
            self._caption(f"{item}/negative", None, self._text("negative"))
            category = str(self._cell("category") or "all")
            self.pairs.append(PairRow(item, image, item, f"{item}/negative", category))
        elif self.form == "quadruples":
            item = self._id("id")
            images = [self._image(f"image_{side}") for side in (0, 1)]
            for side, image in enumerate(images):
                self._caption(f"{item}/{side}", image, self._text(f"caption_{side}"))
            tags = _words(self._cell("tags")) or []
            self.quadruples.append(QuadrupleRow(item, images[0], images[1], f"{item}/0", f"{item}/1", tags))
        else:
            self._captions_of_image()

    def _captions_of_image(self) -> None:
        image, caption, ordinal = self._image("image"), self._id("caption_id"), self._cell("ordinal")
        texts = self._texts("caption") if "caption" in self.column_of else [None]
        several = len(texts) > 1 or len(self.column_of.get("caption", ())) > 1
        if ordinal is not None and (not str(ordinal).isdigit() or several):
            self.faults.add(
                "rows whose ordinal is not the whole number of one caption", f"row {self.number} ({ordinal!r})"
            )
            ordinal = None
        annotation = self._cell("annotation_id")
        for n, text in enumerate(texts):
            self._caption(
                f"{caption}#{n}" if several else caption,
                image,
                text,
                ordinal=None if ordinal is None else int(str(ordinal)),
                translator=str(self._cell("translator") or "human"),
                annotation_id=None if annotation is None else str(annotation),
            )

    def _cell(self, role: str) -> object:
        """What the row holds in a role; None if the role has no column, or the cell is empty."""
        return self._cells(role)[0] if role in self.column_of else None

    def _cells(self, role: str) -> list[object]:
        """What the row holds in the columns of a role; None for cells that are empty or blank."""
        cells = [self.row.get(column) for column in self.column_of[role]]
        return [None if isinstance(cell, str) and not cell.strip() else cell for cell in cells]

    def _id(self, role: str) -> str:
        given = self._cell(role)
        return f"row{self.number}" if given is None else str(given)

    def _caption(
        self,
        identifier: str,
        image: str | None,
        text: str | None,
        *,
        ordinal: int | None = None,
        translator: str = "human",
        annotation_id: str | None = None,
    ) -> None:
        language = str(self._cell("language") or self.language)
        self.captions.append(CaptionRow(identifier, image, text, ordinal, language, translator, annotation_id))

    def _image(self, role: str) -> str:
        """The id of the image in a role, which is added to the images if it is new."""
        key = self._cell(role)
        if key is None:
            self.faults.add(f"rows without {role}", f"row {self.number}")
            return ""
        if not isinstance(key, str | int):
            self.faults.add(
                f"rows whose {role} is neither text nor number", f"row {self.number} ({type(key).__name__})"
            )
            return ""
        identifier = self._cell("id") if self.form == "captions" else None
        name = str(key if identifier is None else identifier)
        first = self.images.setdefault(name, ImageRow(name, str(key), objects=_words(self._cell("objects"))))
        if first.key != str(key):
            self.faults.add("image ids with several files", f"{name!r} ({first.key!r} and {str(key)!r})")
        return name

    def _texts(self, role: str) -> Sequence[str | None]:
        cells = [cell for cell in self._cells(role) if cell is not None]
        if not cells:
            self.faults.add(f"rows without {role}", f"row {self.number}")
        texts: list[str | None] = []
        for cell in map(unlisted, cells):
            each = [cell] if isinstance(cell, str) else cell
            if not isinstance(each, Sequence) or not all(isinstance(text, str) for text in each) or not each:
                shown = f"row {self.number} ({cell!r:.40})"
                self.faults.add(f"rows whose {role} is not a text or a list of texts", shown)
                continue
            texts += each
        return texts

    def _text(self, role: str) -> str | None:
        texts = self._texts(role)
        if len(texts) > 1:
            self.faults.add(f"rows with several texts as {role}", f"row {self.number}")
        return texts[0] if texts else ""


def unlisted(cell: object) -> object:
    """A list of texts that is written as one text, as in ``['one', 'two']``, as a list; any other cell as it is."""
    if isinstance(cell, str) and _LISTED.fullmatch(cell):
        try:
            return ast.literal_eval(cell.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return cell
    return cell


def _words(value: object) -> list[str] | None:
    """The words of a list, or of a text with ``;`` between them; None if there is no value."""
    if value is None:
        return None
    if isinstance(value, str):
        return [word.strip() for word in value.split(";") if word.strip()]
    return [str(word) for word in value] if isinstance(value, Iterable) else [str(value)]
