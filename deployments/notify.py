"""Tell a webhook about failed runs and regressions: ``python -m deployments.notify https://hooks.example/…``.

Makes one webhook block and two automations on the server that ``PREFECT_API_URL`` names; run again, it replaces them.
The address is kept on the server, encrypted, and in no file.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from datetime import timedelta
from typing import Any, cast

from prefect.automations import Automation
from prefect.blocks.webhook import Webhook
from prefect.events.actions import CallWebhook
from prefect.events.schemas.automations import EventTrigger, Posture

BLOCK = "capim-notify"
FAILED = "capim: a run failed"
REGRESSION = "capim: a regression"


def notify(url: str, *, private: bool = False) -> None:
    """Make the block and both automations.

    Args:
        url: Gets a POST with a JSON object: ``subject`` and ``text``.
        private: Whether the address may be one of a private network, which Prefect refuses by default.
    """
    hook: Any = Webhook(method="POST", url=cast("Any", url), allow_private_urls=private)
    block = hook.save(BLOCK, overwrite=True)
    for name, trigger, text in (
        (FAILED, _failed(), "{{ flow_run.name }}: {{ flow_run.state.message }}"),
        (REGRESSION, _regression(), "{{ event.payload.workspace }}: {{ event.payload.first }}"),
    ):
        action = CallWebhook(block_document_id=block, payload=json.dumps({"subject": name, "text": text}))
        _replace(Automation(name=name, trigger=trigger, actions=[action]))


def _failed() -> EventTrigger:
    """Any run of a deployment of ours that failed or crashed."""
    return EventTrigger(
        expect={"prefect.flow-run.Failed", "prefect.flow-run.Crashed"},
        match_related=cast("Any", {"prefect.resource.role": "tag", "prefect.resource.id": "prefect.tag.capim"}),
        posture=Posture.Reactive,
        threshold=1,
        within=timedelta(0),
    )


def _regression() -> EventTrigger:
    """What `flows/watch.py` announces before it fails."""
    return EventTrigger(expect={"capim.regression"}, posture=Posture.Reactive, threshold=1, within=timedelta(0))


def _replace(automation: Automation) -> None:
    """Create an automation in place of the one of its name."""
    with suppress(ValueError):  # Prefect's way to say that there is none
        cast("Any", Automation.read(name=automation.name)).delete()
    cast("Any", automation).create()


if __name__ == "__main__":
    notify(sys.argv[1], private="--private" in sys.argv[2:])
