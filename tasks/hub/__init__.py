"""The Hugging Face hub: the commit behind a name, and the files of a commit in the hub's cache.

The size of a download, and whether it fits, is known before it begins; while it runs, it reports progress like any
other work (:mod:`capim.tasks.hub.progress`). ``huggingface_hub`` resumes a broken connection; a repeated command
fetches the files that are incomplete.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from capim.store.errors import RequestError, WorkError
from capim.store.types import HUB
from capim.tasks.hub.progress import DOWNLOADED, track

Kind = Literal["model", "dataset"]
_MEGABYTE = 1_000_000
_TOO_MANY_REQUESTS = 429


def commit_of(repository: str, revision: str, *, kind: Kind = "model") -> str:
    """Return the commit that a branch or tag of a hub repository names: from the hub, or else from the cache.

    Raises:
        RequestError: If the repository or revision does not exist.
        WorkError: If the hub cannot be reached and the cache does not have it, or if access is restricted.
    """
    from huggingface_hub import HfApi, constants

    def resolved(local: bool) -> str:
        local |= constants.HF_HUB_OFFLINE
        found = HfApi().resolve_revision(repository, revision=revision, repo_type=kind, local_files_only=local)
        return str(found.resolved)

    commit = _from_hub_or_cache(resolved, repository, revision, kind)
    if not constants.HF_HUB_OFFLINE and not _is_cached(repository, commit, kind):
        try:  # the commit is public even if the files are not
            HfApi().auth_check(repository, repo_type=kind)
        except Exception as error:
            if not _too_many(error):  # the requests for the files wait and ask again
                raise hub_error(error, repository, revision, kind) from error
    return commit


def folder_at(
    repository: str, commit: str, chosen: Callable[[Sequence[str]], Sequence[str]], *, kind: Kind = "model"
) -> Path:
    """Return the folder of one commit of a hub repository with the chosen files; missing ones are downloaded.

    Args:
        repository: Hub id.
        commit: A commit, never a branch.
        chosen: Function that returns the required names among all file names.
        kind: Models or data sets.

    Raises:
        RequestError: If the repository or commit does not exist.
        WorkError: If the hub cannot be reached and the cache does not hold the files, if access is restricted, or if
            the files do not fit on the disk.
    """
    from huggingface_hub import snapshot_download

    def folder(local: bool) -> str:
        sizes = _sizes(repository, commit, kind, local=local)
        files = None if sizes is None else list(chosen(list(sizes)))
        get: dict[str, Any] = {"revision": commit, "repo_type": kind, "allow_patterns": files}
        if local or sizes is None or files is None:
            return str(snapshot_download(repository, local_files_only=local, **get))
        with _download(repository, commit, {file: sizes[file] for file in files}, kind) as bar:
            return str(snapshot_download(repository, tqdm_class=bar, **get))

    return Path(_from_hub_or_cache(folder, repository, commit, kind))


def _sizes(repository: str, commit: str, kind: Kind, *, local: bool) -> dict[str, int] | None:
    """Return the files of a commit and their bytes; None if the cache lacks the list and the hub may not be queried."""
    from huggingface_hub import HfApi, get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    with contextlib.suppress(CachedRepoTreeNotFoundError):  # a commit does not change
        listed = get_cached_repo_tree(repository, repo_type=kind, revision=commit)
        return {file.path: file.size for file in listed}
    if local:
        return None
    return _listed(HfApi().endpoint, repository, commit, kind)


@cache
def _listed(endpoint: str, repository: str, commit: str, kind: Kind) -> dict[str, int]:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    listed = HfApi(endpoint).list_repo_tree(repository, recursive=True, revision=commit, repo_type=kind)
    return {file.path: file.size for file in listed if isinstance(file, RepoFile)}


@contextlib.contextmanager
def _download(repository: str, commit: str, sizes: Mapping[str, int], kind: Kind) -> Iterator[type]:
    """Return a class of progress bars that reports the bytes of the files that are not in the cache.

    Raises:
        WorkError: If they do not fit on the disk.
    """
    from tqdm.auto import tqdm

    n_bytes = sum(_not_in_cache(repository, commit, sizes, kind).values())
    cache, free = disk()
    needed = n_bytes * (2 if kind == "dataset" else 1)  # the rows of a data set are written again, as Arrow
    if needed > free:
        raise WorkError(
            f"{repository} takes {size(needed)} in the hub's cache ({cache}), where {size(free)} are free; make "
            "space there, or set HF_HOME to a folder on another disk"
        )
    what = f"downloading {repository} ({size(n_bytes)} into {cache}, {size(free)} free)"
    total = round(n_bytes / _MEGABYTE)
    with track(what, total=total, unit=DOWNLOADED) if total else contextlib.nullcontext(lambda _: None) as advance:

        class Bar(tqdm):  # type: ignore[misc]
            """Never shown; among the bars of a snapshot, the one that counts the bytes of files reports them."""

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                self._counts = str(kwargs.get("desc", "")).startswith("Reconstructing")
                super().__init__(*args, **{**kwargs, "disable": True})

            def update(self, n: float | None = 1) -> None:
                if self._counts:
                    advance((n or 0) / _MEGABYTE)

        yield Bar


def _not_in_cache(repository: str, commit: str, sizes: Mapping[str, int], kind: Kind) -> dict[str, int]:
    from huggingface_hub import try_to_load_from_cache

    def cached(file: str) -> bool:
        return isinstance(try_to_load_from_cache(repository, file, revision=commit, repo_type=kind), str)

    return {file: n_bytes for file, n_bytes in sizes.items() if not cached(file)}


def to_download(repository: str, commit: str, chosen: Callable[[Sequence[str]], Sequence[str]]) -> dict[str, int]:
    """Return the files that :func:`folder_at` would download and their bytes; empty if the hub cannot be queried."""
    from huggingface_hub import constants

    sizes: Mapping[str, int] | None = None
    with contextlib.suppress(Exception):  # the request for the files will report the error
        sizes = _sizes(repository, commit, "model", local=constants.HF_HUB_OFFLINE)
    wanted = {file: (sizes or {})[file] for file in chosen(list(sizes or {}))}
    return _not_in_cache(repository, commit, wanted, "model")


def disk() -> tuple[Path, int]:
    """Return the folder of the hub's cache, and the free bytes there."""
    from huggingface_hub import constants

    cache = Path(constants.HF_HUB_CACHE)
    return cache, shutil.disk_usage(next(each for each in (cache, *cache.parents) if each.exists())).free


def size(n_bytes: int) -> str:
    """Return a number of bytes in readable units.

    Examples:
        >>> size(3_944_000_000), size(12_400_000), size(200)
        ('3.9 GB', '12 MB', '0 MB')
    """
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f} MB"


def _from_hub_or_cache(ask: Callable[[bool], str], repository: str, revision: str, kind: Kind = "model") -> str:
    """Return the result of ``ask(False)``, from the hub, or if that fails of ``ask(True)``, from the cache."""
    try:
        return ask(False)
    except WorkError:
        raise
    except Exception as error:
        with contextlib.suppress(Exception):  # the first error has the cause
            return ask(True)
        raise hub_error(error, repository, revision, kind) from error


def hub_error(error: Exception, repository: str, revision: str, kind: Kind = "model") -> RequestError | WorkError:
    """Return an error of the hub with the repository and the next step; raise any other error."""
    from huggingface_hub import constants, errors

    place, of_kind = ("datasets/", " --repo-type dataset") if kind == "dataset" else ("", "")
    where = f"{HUB}{place}{repository}"
    download = f"hf download {repository} --revision {revision}{of_kind}"
    at, offline = f"{repository} at {revision!r}", constants.HF_HUB_OFFLINE
    network = (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, errors.RevisionResolutionError)
    # the first matching row counts; the classes of the first three are also HTTP errors
    table: list[tuple[bool, type[RequestError] | type[WorkError], str]] = [
        (isinstance(error, errors.GatedRepoError), WorkError,
         f"{repository} is gated: accept its terms at {where} while logged in, then set HF_TOKEN (or: hf auth login)"),
        (isinstance(error, errors.RevisionNotFoundError), RequestError,
         f"{repository} has no revision {revision!r}; see {where}/commits/main"),
        (isinstance(error, errors.RepositoryNotFoundError), RequestError,
         f"{repository} is not on the hub (or is private: set HF_TOKEN); see {where}"),
        (isinstance(error, errors.HFValidationError), RequestError,
         f"{repository!r} is neither an existing folder nor the id of a hub repository"),
        (_too_many(error), WorkError,
         f"the hub temporarily refuses {repository} (429, too many requests): try again later, or set HF_TOKEN"),
        (isinstance(error, errors.RevisionResolutionError) and offline, WorkError,
         f"{at} is not in the cache ({constants.HF_HUB_CACHE}) and HF_HUB_OFFLINE is set; unset it or run: {download}"),
        (isinstance(error, (*network, errors.HTTPError, OSError)), WorkError,
         f"the hub cannot be reached for {at} and the cache does not hold it; with network access, run: {download}"),
    ]  # fmt: skip
    for fits, fault, message in table:
        if fits:
            return fault(message)
    raise error


def _too_many(error: Exception) -> bool:
    return getattr(getattr(error, "response", None), "status_code", None) == _TOO_MANY_REQUESTS


def hub_json(repository: str, commit: str, name: str) -> Mapping[str, Any]:
    """Return the contents of a JSON file of a repository; empty if it has no such file.

    Raises:
        RequestError: If the repository or commit does not exist.
        WorkError: If the file exists, but neither the hub nor the cache provides it.
    """
    from huggingface_hub import errors, hf_hub_download

    known: Mapping[str, int] | None = None
    with contextlib.suppress(Exception):  # without the hub, the cache may have the file
        known = _sizes(repository, commit, "model", local=False)
    if known is not None and name not in known:
        return {}
    try:
        contents: Mapping[str, Any] = json.loads(Path(hf_hub_download(repository, name, revision=commit)).read_bytes())
    except errors.EntryNotFoundError as error:
        if known is None and _is_cached(repository, commit, "model"):
            return {}
        raise hub_error(error, repository, commit) from error
    except Exception as error:
        raise hub_error(error, repository, commit) from error
    return contents


def _is_cached(repository: str, commit: str, kind: Kind) -> bool:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repository, repo_type=kind)
    return bool((folder / "snapshots" / commit).is_dir())
