"""Rows and image bytes of data sets on the hub, through ``datasets``.

A data set is downloaded once; after that ``datasets`` maps its Arrow files, and an image is read when it is needed.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from capim.store.errors import RequestError, WorkError
from capim.store.files import NOT_ITS_FORMAT
from capim.store.forms import Columns
from capim.store.tables import skips_bad_rows
from capim.store.types import Corpus
from capim.tasks.corpora.build import ImageRow, SkippedRow
from capim.tasks.corpora.files import choose_split, corpus_name
from capim.tasks.corpora.images.image_files import LocatedImages
from capim.tasks.corpora.readers import forms
from capim.tasks.hub import commit_of, folder_at

if TYPE_CHECKING:
    from datasets import Dataset


_BATCH = 1000
_BYTES = ("binary", "large_binary")


@dataclass(frozen=True)
class HubSplit:
    """One split of a data set, with its images not decoded: their source has keys ``column/row``.

    A cell that holds a path instead of bytes is read only below the library's caches and the data set's folder, from
    which relative paths start, because rows are not trusted.

    Attributes:
        name: Hub id (or folder) and split, for messages.
        origin: The folder or file; of a data set on the hub its address.
        dataset: The rows.
        images: Columns that hold images.
        roots: Folders in which paths in cells may lie.
        split: Its split; "" if the files have none.
    """

    name: str
    origin: str
    dataset: Dataset
    images: tuple[str, ...]
    roots: tuple[Path, ...]
    split: str = ""

    def read(self, key: str) -> bytes:
        """Return the encoded bytes of one cell; raise ``OSError`` if it holds no image."""
        column, _, row = key.rpartition("/")
        if column not in self.dataset.column_names or not row.isdigit() or int(row) >= len(self.dataset):
            raise FileNotFoundError(f"{key!r}: no such column or row in the data set")
        cell = self.dataset.select_columns([column])[int(row)][column]
        if isinstance(cell, bytes):
            return cell
        if isinstance(cell, Mapping) and isinstance(cell.get("bytes"), bytes):
            return bytes(cell["bytes"])
        path = cell.get("path") if isinstance(cell, Mapping) else None
        if not isinstance(path, str):
            raise FileNotFoundError(f"{key!r} holds no image")
        files = [root / path for root in self.roots]  # an absolute path stays as it is
        inside = [file for file, root in zip(files, self.roots, strict=True) if file.is_relative_to(root)]
        if not inside or ".." in Path(path).parts:
            raise PermissionError(f"{key!r} holds the path {path!r}, which is outside the data set's folders")
        return next((file for file in inside if file.is_file()), inside[0]).read_bytes()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Return all columns but the images, row by row, as they are stored: no sound or video in them is decoded."""
        texts = [column for column in self.dataset.column_names if column not in self.images]
        if not texts:
            return iter({} for _ in range(len(self.dataset)))
        batches = self.dataset.select_columns(texts).with_format("arrow").iter(_BATCH)
        return (row for batch in batches for row in batch.to_pylist())

    def table(self) -> forms.TableRows:
        """Return all columns, row by row; of an image its key in the split."""
        rows = ({**row, **{name: f"{name}/{n}" for name in self.images}} for n, row in enumerate(self.rows()))
        return forms.TableRows(self.name, self.dataset.column_names, rows, self.origin, self if self.images else None)

    def locate(self, rows: Sequence[ImageRow], *, where: str, what: str) -> LocatedImages:
        """Return the images, without those that have an empty key or the key of an empty cell.

        Raises:
            RequestError: There are any, and they are not to be left out.
        """
        absent = self.absent()
        empty = [SkippedRow(row.id, "the data set holds no image") for row in rows if row.key in absent]
        if empty and not skips_bad_rows():
            raise RequestError(
                f"{where}: {len(empty)} {what} hold no image, the first {empty[0].item_id!r}; leave them out with "
                'missing = "skip"'
            )
        return LocatedImages([row for row in rows if row.key not in absent], self, empty)

    def absent(self) -> set[str]:
        """Return keys of the image cells that hold nothing."""
        empty = {""}
        for column in self.images:
            start = 0
            for batch in self.dataset.select_columns([column]).with_format("arrow").iter(_BATCH):
                cells = batch[column]
                fields = [n for n in ("bytes", "path") if pa.types.is_struct(cells.type) and n in cells.type.names]
                parts = [pc.struct_field(cells, name) for name in fields] or [cells]
                none: Any = reduce(pc.and_, map(pc.is_null, parts))
                empty |= {f"{column}/{start + row}" for row in pc.indices_nonzero(none).to_pylist()}
                start += len(cells)
        return empty


def load_split(
    dataset: str,
    *,
    split: str | None,
    config: str | None = None,
    revision: str | None = None,
    need: Sequence[str] = (),
    files: Sequence[Path] = (),
    or_only: bool = False,
) -> HubSplit:
    """Return one split of a data set on the hub, or of a folder: in the hub's layout, or written by ``save_to_disk``.

    Args:
        dataset: Hub id, folder, or a Parquet file with images in it.
        split: Unless given, ``test`` of a data set on the hub; of a folder the only split, else ``test``. No effect on
            files without splits, as the result says.
        config: Configuration on the hub, or a folder there: it holds a slash, which no configuration does.
        revision: Branch, tag or commit.
        need: Columns that must exist.
        files: Parquet files of the folder to read, where it is known which.
        or_only: True to read the only split of a configuration, whatever its name.

    Raises:
        RequestError: It cannot be reached, is gated, or lacks the split or a column; the message says what to do.
    """
    import datasets
    from huggingface_hub.constants import HF_HUB_CACHE

    local = Path(dataset)
    if not files and is_saved(local):
        loaded, split = _saved_split(local, split)
    elif shards := files or _parquet_shards(local):
        split = ""
        with _hub_faults(dataset, dataset):
            loaded = datasets.load_dataset("parquet", data_files=[str(file) for file in shards], split="train")
    else:
        loaded = _published_split(dataset, split, config, revision, or_only=or_only)
        split = str(loaded.split or split or "test")
    where = f"{dataset} (split {split})" if split else dataset
    if missing := [column for column in need if column not in loaded.column_names]:
        raise RequestError(
            f"{where}: no column {', '.join(map(repr, missing))}; it has {', '.join(map(repr, loaded.column_names))}"
        )
    images = tuple(name for name, feature in loaded.features.items() if _holds_images(feature))
    for column in images:
        if isinstance(loaded.features[column], datasets.Image):
            loaded = loaded.cast_column(column, datasets.Image(decode=False))
    origin = dataset if local.exists() else f"https://huggingface.co/datasets/{dataset}"
    folder = (local.absolute() if local.is_dir() else local.absolute().parent,) if local.exists() else ()
    roots = (*folder, Path(HF_HUB_CACHE), Path(datasets.config.HF_DATASETS_CACHE))
    return HubSplit(where, origin, loaded, images, roots, split)


def is_saved(folder: Path) -> bool:
    """True if a folder was written by ``save_to_disk`` of ``datasets``: one split, or several."""
    return (folder / "dataset_dict.json").is_file() or all(
        (folder / name).is_file() for name in ("dataset_info.json", "state.json")
    )


def _saved_split(folder: Path, split: str | None) -> tuple[Dataset, str]:
    """Return the split of a folder, and its name, "" if it has none."""
    from datasets import DatasetDict, load_from_disk

    try:
        saved = load_from_disk(str(folder))
    except NOT_ITS_FORMAT as error:
        raise RequestError(
            f"{folder}: not a whole data set of save_to_disk ({_first_line(error)}); save it again"
        ) from error
    if isinstance(saved, DatasetDict):
        chosen = choose_split(folder, list(saved), split)
        return saved[chosen].with_format(None), chosen
    if split is not None and saved.split is not None and str(saved.split) != split:
        raise RequestError(f"{folder}: no split {split!r}; it is the split {str(saved.split)!r}")
    return saved.with_format(None), str(saved.split or "")


def _parquet_shards(path: Path) -> list[Path]:
    """Return a Parquet file, or those of a folder with names that are only numbers, like img2dataset's shards."""
    if path.is_file():
        return [path] if path.suffix.lower() == ".parquet" else []
    return sorted(file for file in path.glob("*.parquet") if file.stem.isdigit()) if path.is_dir() else []


def _published_split(
    dataset: str, split: str | None, config: str | None, revision: str | None, *, or_only: bool
) -> Dataset:
    import datasets

    given = {"data_dir": config} if config is not None and "/" in config else {"name": config}
    with _hub_faults(dataset, f"{dataset} (split {split or 'test'})"):
        builder = datasets.load_dataset_builder(dataset, **given, revision=revision)
        if local := Path(dataset).is_dir():
            _refuse_files_elsewhere(dataset, builder.config.data_files or {})
        if (local and split is None) or given.get("name") is not None:
            splits = datasets.get_dataset_split_names(dataset, config, revision=revision)
            if local and split is None:
                split = choose_split(dataset, splits)
            elif len(splits) == 1 and (or_only or split is None):
                split = splits[0]
        if not Path(builder.cache_dir).is_dir():
            _download(builder.config.data_files or {})
        builder.download_and_prepare()
        return builder.as_dataset(split=split or "test")


_ON_HUB = re.compile(r"hf://datasets/(?P<dataset>[^@]+)@(?P<commit>[0-9a-f]{40})/(?P<file>.+)")


def _download(files_of: Mapping[str, Iterable[str]]) -> None:
    """Download the files of all splits, which ``datasets`` prepares together, where they are on the hub."""
    found = [place for file in chain.from_iterable(files_of.values()) if (place := _ON_HUB.fullmatch(file))]
    if found:
        files = [place["file"] for place in found]
        folder_at(found[0]["dataset"], found[0]["commit"], lambda _: files, kind="dataset")


def _refuse_files_elsewhere(dataset: str, files_of: Mapping[str, Iterable[str]]) -> None:
    """Raise if the README of a folder names files that are not in it, which its author may not be allowed to read."""
    folder = os.path.normpath(Path(dataset).absolute())
    for file in chain.from_iterable(files_of.values()):
        if "://" in file or not Path(os.path.normpath(file)).is_relative_to(folder):
            raise RequestError(
                f"{dataset}: its README.md names {file}, which is not in the folder; copy the file there"
            )


def configs_of(dataset: str, revision: str | None) -> list[str]:
    """Return the configurations of a data set on the hub.

    Raises:
        RequestError: It cannot be reached, or is gated; the message says what to do.
    """
    import datasets

    with _hub_faults(dataset, dataset):
        return list(datasets.get_dataset_config_names(dataset, revision=revision))


def files_of(dataset: str, revision: str | None, pattern: str) -> Path:
    """Return the folder with a hub data set's files that match a pattern, downloaded if necessary.

    Raises:
        RequestError: It cannot be reached, or is gated; the message says what to do.
    """
    with _hub_faults(dataset, dataset):
        commit = commit_of(dataset, revision or "main", kind="dataset")
        return folder_at(dataset, commit, lambda names: fnmatch.filter(names, pattern), kind="dataset")


@contextmanager
def _hub_faults(dataset: str, where: str) -> Iterator[None]:
    """Raise what goes wrong on the hub, or with a local copy, as ``RequestError`` with what to do about it."""
    from datasets.exceptions import DatasetNotFoundError, DatasetsError
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError

    local = Path(dataset).exists()
    gated = (
        f"{dataset}: cannot be read from the hub. If it is gated, accept its terms at "
        f"https://huggingface.co/datasets/{dataset} and log in (`hf auth login`, or a token in HF_TOKEN)"
    )
    try:
        yield
    except (GatedRepoError, DatasetNotFoundError) as error:
        raise RequestError(f"{gated} ({_first_line(error)})") from error
    except (ConnectionError, HfHubHTTPError, OSError) as error:
        if local:
            raise RequestError(f"{where}: cannot be read ({_first_line(error)}); copy it again") from error
        raise RequestError(
            f"{where}: not in the cache and the hub cannot be reached ({_first_line(error)}); connect once, "
            "or give local files instead"
        ) from error
    except RequestError:
        raise
    except WorkError as error:
        raise RequestError(str(error)) from error
    # the library names no base class: a script, other columns by file, an address in the README, a damaged file
    except (ValueError, ImportError, RuntimeError, LookupError, TypeError, DatasetsError) as error:
        download = f"download its files (`hf download {dataset} --repo-type dataset`) and"
        raise RequestError(
            f"{where}: the library datasets cannot read it ({_first_line(error)}); "
            f"{'copy its files again, or' if local else download} read them as data of your own (docs/own_data.md)"
        ) from error


def _holds_images(feature: object) -> bool:
    """True if a column holds images: as such, as raw structs with ``bytes``, or as bytes."""
    if isinstance(feature, Mapping):
        return getattr(feature.get("bytes"), "dtype", "") in _BYTES
    return type(feature).__name__ == "Image" or getattr(feature, "dtype", "") in _BYTES


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def read_hub(
    dataset: str,
    *,
    split: str | None = None,
    config: str | None = None,
    revision: str | None = None,
    images: str | Path | None = None,
    form: forms.FormName = "captions",
    columns: Columns | None = None,
    language: str = "en",
    reference_language: str = "en",
    ids_only: bool = False,
    name: str | None = None,
) -> Corpus:
    """Return the corpus of one split, in the order of its rows.

    The ids of images that the data set holds are ``column/row`` unless there is an ``id`` column. A column of images is
    found by its type if it is the only one, and by its name if there are several.

    Args:
        dataset: Hub id, a folder in the hub's layout or written by ``save_to_disk``, or a Parquet file with images.
        split: Unless given, ``test`` of a data set on the hub; of a folder the only split, else ``test``. Of a column
            ``split`` in it the rows of ``test`` are read, if there are any.
        images: Folder of the images if the image column holds file names.

    Raises:
        RequestError: The data set cannot be read, lacks a column, or its rows are faulty; lists every fault.
    """
    loaded = load_split(dataset, split=split, config=config, revision=revision)
    if forms.form_of("", loaded.dataset.column_names, columns or {}) == "labels" and loaded.images:
        raise RequestError(f"{loaded.name}: {forms.LABELS_IN_CELLS}")
    read = forms.rows_to_read(loaded.table(), None if loaded.split else split, columns or {})
    options = forms.RowOptions(form, columns or {}, language, reference_language, ids_only)
    if images is not None or ids_only:
        read = read._replace(source=None)
    else:
        if len(loaded.images) == 1 and form != "quadruples":
            options = options._replace(columns={"image": loaded.images[0], **options.columns})
        for role, (column, *_) in forms.columns_of_roles(options, read.available, loaded.name).items():
            if role.startswith("image") and column not in loaded.images:
                raise RequestError(
                    f"{loaded.name}: column {column!r} holds no images; give their folder with images, or set "
                    "ids_only = true"
                )
    name = name or corpus_name(Path(dataset))
    return forms.corpus_of_rows(name, read, options, images=images)
