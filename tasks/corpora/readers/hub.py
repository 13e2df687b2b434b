"""Rows and image bytes of data sets on the hub, through ``datasets``.

A data set is downloaded once; after that ``datasets`` maps its Arrow files, and an image is read when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.errors import RequestError

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class HubImages:
    """Images of a data set's rows; a key is ``column/row``.

    A cell that holds a path instead of bytes is read only below the library's caches and the data set's folder,
    because rows are not trusted.
    """

    dataset: Dataset
    roots: tuple[Path, ...] = ()

    def read(self, key: str) -> bytes:
        """The encoded bytes of one cell; raises ``OSError`` if it holds no image."""
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
        if not any(Path(path).is_relative_to(root) and ".." not in Path(path).parts for root in self.roots):
            raise PermissionError(f"{key!r} holds the path {path!r}, which is outside the data set's folders")
        return Path(path).read_bytes()


@dataclass(frozen=True)
class HubSplit:
    """One split of a data set, without decoding its images.

    Attributes:
        name: Hub id (or folder) and split, for messages.
        dataset: The rows.
        images: Columns that hold images.
        roots: Folders in which paths in cells may lie.
    """

    name: str
    dataset: Dataset
    images: tuple[str, ...]
    roots: tuple[Path, ...]

    @cached_property
    def source(self) -> HubImages:
        """The image columns as a source."""
        return HubImages(self.dataset, self.roots)

    def rows(self) -> Iterator[dict[str, Any]]:
        """All columns but the images, row by row."""
        texts = [column for column in self.dataset.column_names if column not in self.images]
        if not texts:
            return iter({} for _ in range(len(self.dataset)))
        return iter(self.dataset.select_columns(texts))


def load_split(
    dataset: str, *, split: str, config: str | None = None, revision: str | None = None, need: Sequence[str] = ()
) -> HubSplit:
    """One split of a data set on the hub, or of a folder in the hub's layout.

    ``need`` names columns that must exist; ``revision`` is a branch, tag or commit.

    Raises:
        RequestError: It cannot be reached, is gated, or lacks the split or a column; the message says what to do.
    """
    import datasets
    from datasets.exceptions import DatasetNotFoundError
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError

    where = f"{dataset} (split {split})"
    gated = (
        f"{dataset}: cannot be read from the hub. If it is gated, accept its terms at "
        f"https://huggingface.co/datasets/{dataset} and log in (`hf auth login`, or a token in HF_TOKEN)"
    )
    try:
        loaded = datasets.load_dataset(dataset, name=config, split=split, revision=revision)
    except (GatedRepoError, DatasetNotFoundError) as error:
        raise RequestError(f"{gated} ({_first_line(error)})") from error
    except (ConnectionError, HfHubHTTPError, OSError) as error:
        raise RequestError(
            f"{where}: not in the cache and the hub cannot be reached ({_first_line(error)}); connect once, "
            "or give local files instead"
        ) from error
    except ValueError as error:
        raise RequestError(f"{where}: {_first_line(error)}") from error
    if missing := [column for column in need if column not in loaded.column_names]:
        raise RequestError(
            f"{where}: no column {', '.join(map(repr, missing))}; it has {', '.join(map(repr, loaded.column_names))}"
        )
    images = tuple(name for name, feature in loaded.features.items() if _holds_images(feature))
    for column in images:
        if isinstance(loaded.features[column], datasets.Image):
            loaded = loaded.cast_column(column, datasets.Image(decode=False))
    folder = (Path(dataset).absolute(),) if Path(dataset).is_dir() else ()
    return HubSplit(where, loaded, images, (*folder, Path(HF_HUB_CACHE), Path(datasets.config.HF_DATASETS_CACHE)))


def _holds_images(feature: object) -> bool:
    """Whether a column holds images, as such or as raw ``{bytes, path}`` structs."""
    return type(feature).__name__ == "Image" or (isinstance(feature, Mapping) and set(feature) == {"bytes", "path"})


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
