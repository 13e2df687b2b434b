"""A table of the user's own, in one of three forms -> a corpus.

* ``captions``: a row is an image and its caption, or list of captions; an image may have several rows;
* ``pairs``: a row is an image, its caption and a wrong caption (SugarCrepe form);
* ``quadruples``: a row is two images and the caption of each (Winoground form).

An image's id is what its column holds, unless the form ``captions`` has an ``id`` column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from store.errors import RequestError
from store.types import Corpus, ImageSource
from tasks.corpora.build import build_corpus
from tasks.corpora.images.image_files import Missing, coco_names, present
from tasks.corpora.images.source import Folder
from tasks.corpora.rows import CaptionRow, Faults, ImageRow, PairRow, QuadrupleRow, SkippedRow

FormName: TypeAlias = Literal["captions", "pairs", "quadruples"]


class Form(NamedTuple):
    """The roles that columns play in a form."""

    required: tuple[str, ...]
    optional: tuple[str, ...]


FORMS: dict[str, Form] = {
    "captions": Form(
        ("image", "caption"), ("id", "caption_id", "language", "translator", "ordinal", "objects", "annotation_id")
    ),
    "pairs": Form(("image", "caption", "negative"), ("id", "category", "language")),
    "quadruples": Form(("image_0", "image_1", "caption_0", "caption_1"), ("id", "tags", "language")),
}

# Under which names a role is looked for where the description does not say.
_USUAL_NAMES: dict[str, tuple[str, ...]] = {
    "image": ("image", "file_name", "filename", "image_path", "img_path", "filepath", "path", "file", "image_id"),
    "caption": ("caption", "captions", "text", "sentence", "sentences"),
    "negative": ("negative", "negative_caption", "hard_negative", "false_caption"),
}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Which column plays which role, and what holds for all rows.

    Attributes:
        form: Key of ``FORMS``.
        column_of: Role -> column.
        language: Of captions whose row does not say.
        where: File or data set, for messages.
    """

    form: str
    column_of: Mapping[str, str]
    language: str
    where: str

    def cell(self, row: Mapping[str, object], role: str) -> object:
        """What a row holds in a role; None where the role has no column, or the cell is empty."""
        value = row.get(self.column_of[role]) if role in self.column_of else None
        return None if value == "" else value


def layout_of(
    form: str,
    columns: Mapping[str, str],
    available: Sequence[str],
    *,
    language: str,
    where: str,
    ids_only: bool = False,
) -> Layout:
    """Find the column of every role.

    Args:
        form: Key of ``FORMS``.
        columns: Role -> column, for those that are not found by their usual names.
        available: Columns of the table.
        language: Of captions whose row does not say.
        where: File or data set, for messages.
        ids_only: Accept caption ids in place of captions.

    Raises:
        RequestError: The form, a role or a column is unknown, or a required role has no column.
    """
    if form not in FORMS:
        raise RequestError(f"{where}: form {form!r} is unknown; known: {', '.join(FORMS)}")
    roles = (*FORMS[form].required, *FORMS[form].optional)
    faults = [
        f"{where}: columns names the role {role!r}, which form {form!r} does not have; it has {', '.join(roles)}"
        for role in columns
        if role not in roles
    ]
    faults += [
        f"{where}: no column {column!r} (for {role}); it has {', '.join(available)}"
        for role, column in columns.items()
        if column not in available
    ]
    usual = {role: next((n for n in _USUAL_NAMES.get(role, (role,)) if n in available), None) for role in roles}
    found = {role: column for role, column in {**usual, **columns}.items() if column is not None}
    needed = [role for role in FORMS[form].required if not (ids_only and role == "caption" and "caption_id" in found)]
    faults += [
        f'{where}: no column for {role}; it has {", ".join(available) or "none"}; say which with columns.{role} = "…"'
        for role in needed
        if role not in found
    ]
    if faults:
        raise RequestError(faults)
    return Layout(form=form, column_of=found, language=language, where=where)


@dataclass
class _Parts:
    """What the rows have given so far."""

    images: dict[str, ImageRow] = field(default_factory=dict)
    captions: list[CaptionRow] = field(default_factory=list)
    pairs: list[PairRow] = field(default_factory=list)
    quadruples: list[QuadrupleRow] = field(default_factory=list)


def corpus_of_rows(
    name: str,
    rows: Iterable[Mapping[str, object]],
    layout: Layout,
    *,
    source: ImageSource | None,
    missing: Missing = "error",
    licence: str = "unknown",
    origin: str,
    reference_language: str = "en",
) -> Corpus:
    """The corpus of these rows, in their order.

    Args:
        name: Of the corpus.
        rows: Cells by column; an image cell holds the image's key in the source.
        layout: Which column is what.
        source: Of the images; None for ids (and texts) alone.
        missing: For a folder of images: ``error``, or ``skip`` to list images that are not there as skipped.
        licence: Of images and captions.
        origin: Where they come from.
        reference_language: The language that cross-lingual metrics compare with.

    Raises:
        RequestError: Rows lack an image or a caption, files are missing, or what ``build_corpus`` refuses.
    """
    faults, parts = Faults(name), _Parts()
    take = {"captions": _take_captions, "pairs": _take_pair, "quadruples": _take_quadruple}[layout.form]
    for number, row in enumerate(rows, start=1):
        take(parts, layout, number, row, faults)
    faults.raise_any()
    images: Sequence[ImageRow] = list(parts.images.values())
    skipped: Sequence[SkippedRow] = ()
    if isinstance(source, Folder):
        images, skipped = present(images, (source,), missing=missing, origin=layout.where, names=coco_names)
    lost = {row.image_id for row in skipped}
    pairs = [pair for pair in parts.pairs if pair.image_id not in lost]
    quadruples = [each for each in parts.quadruples if not {each.image_0, each.image_1} & lost]
    unused = {pair.negative_id for pair in parts.pairs} - {pair.negative_id for pair in pairs}
    return build_corpus(
        name,
        images,
        (caption for caption in parts.captions if caption.image_id not in lost and caption.id not in unused),
        source=source,
        pairs=pairs,
        quadruples=quadruples,
        skipped=skipped,
        licence=licence,
        origin=origin,
        languages_reference=reference_language,
    )


def _image(parts: _Parts, layout: Layout, number: int, row: Mapping[str, object], role: str, faults: Faults) -> str:
    """The id of the image in a role, added to the images where it is new."""
    key = layout.cell(row, role)
    if key is None:
        faults.add(f"rows without {role}", f"row {number}")
        return ""
    if not isinstance(key, str | int):
        faults.add(f"rows whose {role} is neither text nor number", f"row {number} ({type(key).__name__})")
        return ""
    identifier = layout.cell(row, "id") if layout.form == "captions" else None
    name = str(key if identifier is None else identifier)
    new = ImageRow(name, str(key), objects=_words(layout.cell(row, "objects")))
    known = parts.images.setdefault(name, new)
    if known.key != new.key:
        faults.add("image ids with several files", f"{name!r} ({known.key!r} and {new.key!r})")
    return name


def _texts(layout: Layout, number: int, row: Mapping[str, object], role: str, faults: Faults) -> list[str]:
    """The text, or texts, in a role."""
    value = layout.cell(row, role)
    if value is None:
        faults.add(f"rows without {role}", f"row {number}")
        return []
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts) or not texts:
        faults.add(f"rows whose {role} is no text or list of texts", f"row {number} ({value!r:.40})")
        return []
    return list(texts)


def _words(value: object) -> list[str] | None:
    """A list of words, or text with ``;`` between them; None where there is none."""
    if value is None:
        return None
    if isinstance(value, str):
        return [word.strip() for word in value.split(";") if word.strip()]
    return [str(word) for word in value] if isinstance(value, Iterable) else [str(value)]


def _take_captions(parts: _Parts, layout: Layout, number: int, row: Mapping[str, object], faults: Faults) -> None:
    image = _image(parts, layout, number, row, "image", faults)
    given, ordinal = layout.cell(row, "caption_id"), layout.cell(row, "ordinal")
    texts: Sequence[str | None]
    texts = _texts(layout, number, row, "caption", faults) if "caption" in layout.column_of else [None]
    if ordinal is not None and (not str(ordinal).isdigit() or len(texts) > 1):
        faults.add("rows whose ordinal is no whole number of one caption", f"row {number} ({ordinal!r})")
        ordinal = None
    for n, text in enumerate(texts):
        identifier = f"row{number}" if given is None else str(given)
        parts.captions.append(
            CaptionRow(
                identifier if len(texts) == 1 else f"{identifier}#{n}",
                image,
                text,
                None if ordinal is None else int(str(ordinal)),
                str(layout.cell(row, "language") or layout.language),
                str(layout.cell(row, "translator") or "human"),
                None if (annotation := layout.cell(row, "annotation_id")) is None else str(annotation),
            )
        )


def _identifier(layout: Layout, number: int, row: Mapping[str, object]) -> str:
    given = layout.cell(row, "id")
    return f"row{number}" if given is None else str(given)


def _one(layout: Layout, number: int, row: Mapping[str, object], role: str, faults: Faults) -> str:
    texts = _texts(layout, number, row, role, faults)
    if len(texts) > 1:
        faults.add(f"rows with several texts as {role}", f"row {number}")
    return texts[0] if texts else ""


def _take_pair(parts: _Parts, layout: Layout, number: int, row: Mapping[str, object], faults: Faults) -> None:
    image, item = _image(parts, layout, number, row, "image", faults), _identifier(layout, number, row)
    language = str(layout.cell(row, "language") or layout.language)
    negative = _one(layout, number, row, "negative", faults)
    parts.captions.append(CaptionRow(item, image, _one(layout, number, row, "caption", faults), language=language))
    parts.captions.append(CaptionRow(f"{item}/negative", None, negative, language=language))
    category = str(layout.cell(row, "category") or "all")
    parts.pairs.append(PairRow(item, image, item, f"{item}/negative", category))


def _take_quadruple(parts: _Parts, layout: Layout, number: int, row: Mapping[str, object], faults: Faults) -> None:
    item, language = _identifier(layout, number, row), str(layout.cell(row, "language") or layout.language)
    images = [_image(parts, layout, number, row, f"image_{side}", faults) for side in (0, 1)]
    for side, image in enumerate(images):
        text = _one(layout, number, row, f"caption_{side}", faults)
        parts.captions.append(CaptionRow(f"{item}/{side}", image, text, language=language))
    tags = _words(layout.cell(row, "tags")) or []
    parts.quadruples.append(QuadrupleRow(item, images[0], images[1], f"{item}/0", f"{item}/1", tags))
