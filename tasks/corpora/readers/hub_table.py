"""Any data set on the hub whose columns can be named: captions, pairs or quadruples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from store.errors import RequestError
from store.types import Corpus, ImageSource
from tasks.corpora.files import corpus_name, require_folder
from tasks.corpora.images.image_files import Missing
from tasks.corpora.images.source import Folder
from tasks.corpora.readers.forms import FormName, corpus_of_rows, layout_of
from tasks.corpora.readers.hub import HubSplit, load_split


def read_hub(
    dataset: str,
    *,
    split: str = "test",
    config: str | None = None,
    revision: str | None = None,
    images: str | Path | None = None,
    form: FormName = "captions",
    columns: Mapping[str, str] | None = None,
    language: str = "en",
    reference_language: str = "en",
    ids_only: bool = False,
    missing: Missing = "error",
    name: str | None = None,
    licence: str = "unknown",
) -> Corpus:
    """The corpus of one split, in the order of its rows.

    An image column that holds images gives ids ``column/row`` unless an ``id`` column is named.

    Args:
        dataset: Hub id, or a folder in the hub's layout.
        split: Name of the split.
        config: Name of the configuration where there are several.
        revision: Branch, tag or commit.
        images: Folder of the images where the image column holds file names.
        form: ``captions``, ``pairs`` or ``quadruples`` (:mod:`tasks.corpora.readers.forms`).
        columns: Role -> column, for columns that have none of the usual names.
        language: BCP-47 code of captions whose row does not say.
        reference_language: The language that cross-lingual metrics compare with.
        ids_only: Ignore images: ids and texts alone.
        missing: ``error``, or ``skip`` to list images that are not in ``images`` as skipped.
        name: Of the corpus; the data set's unless given.
        licence: Of images and captions.

    Raises:
        RequestError: The data set cannot be read, lacks a column, or its rows are at fault.
    """
    loaded = load_split(dataset, split=split, config=config, revision=revision)
    available = list(loaded.dataset.column_names)
    layout = layout_of(form, columns or {}, available, language=language, where=loaded.name, ids_only=ids_only)
    used = [column for role, column in layout.column_of.items() if role.startswith("image")]
    source: ImageSource | None = None
    if images is not None:
        source = Folder(require_folder(images, "image folder"))
    elif not ids_only:
        if plain := [column for column in used if column not in loaded.images]:
            raise RequestError(
                f"{loaded.name}: column {plain[0]!r} holds no images; give their folder with images, or ids_only = true"
            )
        source = loaded.source
    return corpus_of_rows(
        name or corpus_name(Path(dataset)),
        _rows(loaded),
        layout,
        source=source,
        missing=missing,
        reference_language=reference_language,
        licence=licence,
        origin=dataset if Path(dataset).is_dir() else f"https://huggingface.co/datasets/{dataset}",
    )


def _rows(loaded: HubSplit) -> Iterator[Mapping[str, Any]]:
    """The split's rows with the source's key in place of every image."""
    for number, row in enumerate(loaded.rows()):
        yield {**row, **{column: f"{column}/{number}" for column in loaded.images}}
