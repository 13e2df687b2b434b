"""Automations of the server for runs of capim: ``python -m capim.deployments.automations [--webhook ADDRESS]``.

Applies these automations to the server that ``PREFECT_API_URL`` names, in place of those with the same names:

- a run that sends no heartbeat for 90 seconds becomes Crashed, so that its slot of a limit is free (`make deploy`
  applies this one; flows send a heartbeat every 30 seconds, and ``deployments/prefect.yaml`` says so to workers);
- with ``--webhook``, an address gets messages about runs that failed or crashed, scheduled runs that are late, and
  regressions. The address is kept on the server, encrypted, and in no file.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from datetime import timedelta
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
from prefect.automations import Automation
from prefect.blocks.webhook import Webhook
from prefect.client.schemas.objects import StateType
from prefect.events.actions import CallWebhook, ChangeFlowRunState
from prefect.events.schemas.automations import EventTrigger, Posture
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_RETRY_EXTRA_CODES, temporary_settings

from capim.flows import HEARTBEAT_SECONDS

BLOCK = "capim-notify"
LOST = "capim: a run was lost"
FAILED = "capim: a run failed"
LATE = "capim: a run is late"
REGRESSION = "capim: a regression"
HEARTBEAT = "prefect.flow-run.heartbeat"
SILENCE = timedelta(seconds=3 * HEARTBEAT_SECONDS)
LATENESS = timedelta(hours=1)
ENDS = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed", "TimedOut")}
_OURS = {"prefect.resource.role": "tag", "prefect.resource.id": "prefect.tag.capim"}
_RUN = (
    '{"subject": {{ automation.name | tojson }}, "text": {{ (flow_run.name ~ ": " ~ (flow_run.state.message or '
    'flow_run.state.name)) | tojson }}, "run": {{ flow_run.name | tojson }}, "flow": {{ flow.name | tojson }}, '
    '"deployment": {{ deployment.name | tojson }}, "state": {{ flow_run.state.name | tojson }}, '
    '"address": {{ flow_run | ui_url | tojson }}}'
)
_FINDING = (
    '{"subject": {{ automation.name | tojson }}, "text": {{ (event.payload.workspace ~ ": " ~ event.payload.first) | '
    'tojson }}, "workspace": {{ event.payload.workspace | tojson }}, "failures": {{ event.payload.n_regressions | '
    'tojson }}, "subjects": {{ event.payload.subjects | tojson }}}'
)


def apply(webhook: str | None = None, *, private: bool = False) -> list[str]:
    """Create or replace the automations; return their names.

    Args:
        webhook: Gets a POST with a JSON object: ``subject``, ``text``, and for a run ``run``, ``flow``, ``deployment``,
            ``state`` and ``address``, for a regression ``workspace``, ``failures`` and ``subjects`` (encoder and corpus
            of each). None: no messages.
        private: Whether the address may be one of a private network, which Prefect refuses by default.
    """
    crashed = ChangeFlowRunState(
        name="Crashed", state=StateType.CRASHED, message=f"no heartbeat for {SILENCE.seconds} seconds", force=False
    )
    automations = [
        Automation(name=LOST, trigger=_missing(after=HEARTBEAT, expect=HEARTBEAT, within=SILENCE), actions=[crashed])
    ]
    if webhook is not None:
        hook: Any = Webhook(
            url=cast("Any", webhook),
            allow_private_urls=private,
            headers=cast("Any", {"Content-Type": "application/json"}),
        )
        block = hook.save(BLOCK, overwrite=True)
        failed = {f"prefect.flow-run.{state}" for state in ("Failed", "Crashed", "TimedOut")}
        for name, trigger, payload in (
            (FAILED, EventTrigger(expect=failed, match_related=cast("Any", _OURS), posture=Posture.Reactive), _RUN),
            (LATE, _missing(after="prefect.flow-run.Late", expect="prefect.flow-run.Running", within=LATENESS), _RUN),
            (REGRESSION, EventTrigger(expect={"capim.regression"}, posture=Posture.Reactive), _FINDING),
        ):
            call = CallWebhook(block_document_id=block, payload=payload)
            automations.append(Automation(name=name, trigger=trigger, actions=[call]))
    for automation in automations:
        with suppress(ValueError):  # there is none of this name
            cast("Any", Automation.read(name=automation.name)).delete()
        cast("Any", automation).create()
    return [automation.name for automation in automations]


def _missing(*, after: str, expect: str, within: timedelta) -> EventTrigger:
    """Return the trigger for a run of ours that sent one event, and in this time neither the other nor its end."""
    return EventTrigger(
        after={after},
        expect={expect, *ENDS},
        match_related=cast("Any", _OURS),
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        within=within,
    )


def main(argv: list[str] | None = None) -> int:
    """Apply the automations; return 2 for a wrong request and 1 if the server did not accept them."""
    parser = argparse.ArgumentParser(prog="python -m capim.deployments.automations", description=__doc__)
    parser.add_argument("--webhook", metavar="ADDRESS", help="https address that gets the messages")
    parser.add_argument("--private", action="store_true", help="the address may be on a private network")
    args = parser.parse_args(argv)
    if not PREFECT_API_URL.value():
        parser.error("PREFECT_API_URL is not set; run: export PREFECT_API_URL=http://127.0.0.1:4200/api")
    if args.webhook is not None and urlsplit(args.webhook).scheme not in ("http", "https"):
        parser.error(f"--webhook must be an address that begins with https:// or http://, got {args.webhook!r}")
    try:
        with temporary_settings({PREFECT_CLIENT_RETRY_EXTRA_CODES: "500"}):  # SQLite was locked
            names = apply(args.webhook, private=args.private)
    except (httpx.HTTPError, PrefectHTTPStatusError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        sys.stderr.write(f"the server at {PREFECT_API_URL.value()} did not take the automations: {reason}\n")
        return 1
    sys.stdout.write("".join(f"applied {name!r}\n" for name in names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
