"""Any data set on the hub, with captions, pairs or quadruples in named columns."""

from __future__ import annotations

from pathlib import Path

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora.files import corpus_name
from capim.tasks.corpora.images.image_files import Missing
from capim.tasks.corpora.readers.columns import FORMS, Columns, FormName, columns_of_roles
from capim.tasks.corpora.readers.forms import corpus_of_rows
from capim.tasks.corpora.readers.hub import load_split


def read_hub(
    dataset: str,
    *,
    split: str | None = None,
    config: str | None = None,
    revision: str | None = None,
    images: str | Path | None = None,
    form: FormName = "captions",
    columns: Columns | None = None,
    language: str = "en",
    reference_language: str = "en",
    ids_only: bool = False,
    missing: Missing = "error",
    name: str | None = None,
    licence: str = "unknown",
) -> Corpus:
    """The corpus of one split, in the order of its rows.

    The ids of images that the data set holds are ``column/row`` unless there is an ``id`` column. A column of images is
    found by its type if it is the only one, and by its name if there are several.

    Args:
        dataset: Hub id, a folder in the hub's layout or written by ``save_to_disk``, or a Parquet file with images.
        split: Unless given, ``test`` of a data set on the hub; of a folder the only split, else ``test``.
        images: Folder of the images if the image column holds file names.

    Raises:
        RequestError: The data set cannot be read, lacks a column, or its rows are faulty; lists every fault.
    """
    loaded = load_split(dataset, split=split, config=config, revision=revision)
    available = list(loaded.dataset.column_names)
    if images is None and not ids_only:
        if len(loaded.images) == 1 and "image" in FORMS[form].required:
            columns = {"image": loaded.images[0], **(columns or {})}
        column_of = columns_of_roles(form, columns or {}, available, where=loaded.name, ids_only=ids_only)
        for role, (column, *_) in column_of.items():
            if role.startswith("image") and column not in loaded.images:
                raise RequestError(
                    f"{loaded.name}: column {column!r} holds no images; give their folder with images, or set "
                    "ids_only = true"
                )
    return corpus_of_rows(
        name or corpus_name(Path(dataset)),
        (
            {**row, **{column: f"{column}/{number}" for column in loaded.images}}
            for number, row in enumerate(loaded.rows())
        ),
        available,
        where=loaded.name,
        form=form,
        columns=columns or {},
        language=language,
        ids_only=ids_only,
        images=images,
        source=loaded.source,
        absent=loaded.absent() if images is None and not ids_only else (),
        missing=missing,
        reference_language=reference_language,
        licence=licence,
        origin=dataset if Path(dataset).is_dir() else f"https://huggingface.co/datasets/{dataset}",
    )
