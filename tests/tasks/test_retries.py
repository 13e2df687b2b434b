"""Tried again is what the outside did not answer, never what comes back the same."""

from __future__ import annotations

import errno

import httpx
import pytest
from huggingface_hub import errors
from prefect.states import Failed
from prefect.task_engine import TaskRunTimeoutError

from capim.store.errors import RequestError, WorkError
from capim.tasks.prefects.task import may_help


def answer(status: int) -> httpx.Response:
    return httpx.Response(status, request=httpx.Request("GET", "https://huggingface.co/a/b"))


def told(message: BaseException, cause: BaseException) -> BaseException:
    """A message for people, raised from what broke."""
    message.__cause__ = cause
    return message


S3_DOWN = "LanceError(IO): Generic S3 error: GET http://h/b, after 3 retries - HTTP error: error sending request"
PASSING = {
    "the hub did not answer": told(WorkError("the hub cannot be reached"), httpx.ConnectError("no route")),
    "a data set could not be reached": told(RequestError("x: the hub cannot be reached"), ConnectionError("reset")),
    "the hub is overloaded": errors.HfHubHTTPError("503", response=answer(503)),
    "too many requests": errors.HfHubHTTPError("429", response=answer(429)),
    "object storage did not answer": told(WorkError("writing table 'runs' failed"), OSError(S3_DOWN)),
    "a network disk went away": OSError(errno.ESTALE, "stale file handle"),
}
LASTING = {
    "a wrong request": RequestError("corpus 'x' is unknown"),
    "a full disk": told(WorkError("writing failed"), OSError(errno.ENOSPC, "no space left on device")),
    "a gated repository": told(WorkError("gated"), errors.GatedRepoError("gated", response=answer(403))),
    "a hub that is switched off": told(WorkError("not in the cache"), errors.OfflineModeIsEnabled("offline")),
    "a lost vector": told(WorkError("reading failed"), OSError("LanceError(IO): Object at location x not found")),
    "its own time limit": TaskRunTimeoutError("Scope timed out after 3600 second(s)."),
}


@pytest.mark.parametrize("what", [*PASSING, *LASTING])
def test_what_may_pass_is_tried_again_and_what_comes_back_the_same_is_not(what: str) -> None:
    assert may_help(None, None, Failed(data={**PASSING, **LASTING}[what])) == (what in PASSING)
