"""When trying again can help: a hub or an object store that did not answer, never a request that was wrong."""

from __future__ import annotations

from typing import Any

from store.errors import RequestError, WorkError

DELAYS_SECONDS = [2.0, 10.0, 60.0]


def may_help(_task: object, _run: object, state: Any) -> bool:
    """Whether a failed task should be tried again (Prefect's ``retry_condition_fn``).

    Faults of the request and of the work itself come back the same; only what the outside did may pass.
    """
    error = state.result(raise_on_failure=False)
    return isinstance(error, OSError | TimeoutError | ConnectionError) and not isinstance(
        error, RequestError | WorkError
    )
