"""The hub and its cache: the commit of a branch, and the files of a commit."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from capim.store.errors import RequestError, WorkError
from capim.tasks.encoders.checkpoints.weight_files import needed_files

_COMMIT = re.compile(r"[0-9a-f]{40}")


def commit_of(repository: str, revision: str) -> str:
    """The commit that a branch or tag of a hub repository names: from the hub, or offline from the cache.

    Raises:
        RequestError: The repository or revision does not exist.
        WorkError: The hub cannot be reached and the cache does not have it, or access is restricted.
    """
    if _COMMIT.fullmatch(revision):
        return revision
    from huggingface_hub import HfApi, constants

    cached = Path(constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}" / "refs" / revision
    if not constants.HF_HUB_OFFLINE:
        try:
            sha = HfApi().model_info(repository, revision=revision).sha
        except Exception as error:
            if not cached.is_file():
                raise hub_error(error, repository, revision) from error
        else:
            return str(sha)
    if not cached.is_file():
        raise WorkError(
            f"{repository} at {revision!r} is not in the cache ({constants.HF_HUB_CACHE}) and HF_HUB_OFFLINE is set; "
            f"unset it, or run with network access: hf download {repository}"
        )
    return cached.read_text(encoding="utf-8").strip()


def snapshot(repository: str, commit: str, weights: Sequence[str]) -> Path:
    """The folder of one commit of a hub repository, with only the weights that are needed.

    Args:
        repository: Hub id.
        commit: A commit, never a branch.
        weights: Patterns of the files that hold the weights, in the order of preference; none: no weights.

    Raises:
        RequestError: The repository or commit does not exist.
        WorkError: The hub cannot be reached and the cache does not have it, or access is restricted.
    """
    from huggingface_hub import HfApi, constants, snapshot_download

    try:
        if constants.HF_HUB_OFFLINE:
            return Path(snapshot_download(repository, revision=commit, local_files_only=True))
        files = needed_files(HfApi().list_repo_files(repository, revision=commit), weights)
        return Path(snapshot_download(repository, revision=commit, allow_patterns=files))
    except Exception as error:  # noqa: BLE001 - hub_error raises what it does not recognise
        try:
            return Path(snapshot_download(repository, revision=commit, local_files_only=True))
        except Exception:  # noqa: BLE001 - the first error has the reason
            raise hub_error(error, repository, commit) from error


def hub_error(error: Exception, repository: str, revision: str) -> RequestError | WorkError:
    """A failure of the hub as an error that names the repository and the next step; other errors are raised."""
    from huggingface_hub import errors

    where = f"https://huggingface.co/{repository}"
    if isinstance(error, errors.GatedRepoError):
        return WorkError(
            f"{repository} is gated: accept its terms at {where} while logged in, then set HF_TOKEN to a token of "
            "that account (or run: hf auth login)"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return RequestError(f"{repository} has no revision {revision!r}; see {where}/commits/main")
    if isinstance(error, errors.RepositoryNotFoundError):
        return RequestError(f"{repository} is not on the hub (or is private: set HF_TOKEN); see {where}")
    if isinstance(error, errors.HFValidationError):
        return RequestError(f"{repository!r} is neither an existing folder nor the id of a hub repository")
    if isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled | errors.HTTPError | OSError):
        return WorkError(
            f"the hub cannot be reached for {repository} at {revision!r} and the cache does not hold it; "
            f"with network access, run: hf download {repository} --revision {revision}"
        )
    raise error


def hub_json(repository: str, commit: str, name: str) -> Mapping[str, Any] | None:
    """The contents of a JSON file of a repository, or None if it has no such file."""
    from huggingface_hub import errors, hf_hub_download

    try:
        file = hf_hub_download(repository, name, revision=commit)
    except (errors.EntryNotFoundError, errors.LocalEntryNotFoundError):
        return None
    except Exception as error:
        raise hub_error(error, repository, commit) from error
    contents: Mapping[str, Any] = json.loads(Path(file).read_text(encoding="utf-8"))
    return contents
