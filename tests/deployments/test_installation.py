"""The deployments on a real server with real workers: what `deployments/README.md` promises, tried.

One server for the session; the last test takes it down.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from capim.deployments.automations import main as apply_automations
from capim.deployments.serve import main as serve_everything
from capim.store import EmbeddingStore
from capim.store.schema import Run
from capim.store.types import MODALITIES
from capim.tasks.prefects.task import ENCODE_LIMIT, artifact_key, asset
from tests.command import command
from tests.deployments.conftest import suite_of
from tests.deployments.test_deployments import DEPLOYMENTS
from tests.encoders.own_module import own_encoder
from tests.flows import test_incomplete as incomplete

pytestmark = [pytest.mark.prefect, pytest.mark.slow, pytest.mark.timeout(900)]

CAPIM = str(Path(sys.executable).with_name("capim"))
ASSET = "prefect.asset.materialization.succeeded"
SCENES = 80  # of the runs that are stopped in the middle
ITEMS = 6 * SCENES
FEW = {
    "corpora": [{"name": "few", "reader": "shapes", "n_scenes": 8}],
    "encoders": ["tiny-clip"],
    "replicates": 200,
    "analyses": ["complexity"],
    "device": "cpu",
}


@pytest.fixture(scope="module")
def cpu_worker(installed: Any) -> Iterator[None]:
    """A worker of the pool without GPUs, for all tests of this file."""
    with installed.worker("capim-cpu"):
        yield


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An encoder for runs that are not about the encoder."""
    return own_encoder(tmp_path_factory.mktemp("models") / "own")


def slow(name: str, encoder: dict[str, Any]) -> dict[str, Any]:
    """A run of 480 items, one per commit: long enough to be stopped in the middle."""
    corpora = [{"name": name, "reader": "shapes", "n_scenes": SCENES}]
    return {"corpora": corpora, "encoders": [encoder], "batch_size": 1, "device": "cpu"}


def stored(installation: Any, corpus: str) -> int:
    """Images and captions of the corpus that the store has, sealed or not; 0 before it is registered."""
    with suppress(LookupError, ValueError):
        store = EmbeddingStore.open(f"{installation.workspace}/store")
        keys = [store.key(encoder="own", corpus=corpus, modality=modality) for modality in MODALITIES]
        return ITEMS - sum(len(store.missing(key)) for key in keys)
    return 0


def is_whole(installation: Any, corpus: str) -> bool:
    """Both sets are sealed and have every item exactly once."""
    store = EmbeddingStore.open(f"{installation.workspace}/store")
    ids = [store.vectors(encoder="own", corpus=corpus, modality=modality).ids for modality in MODALITIES]
    return sum(map(len, ids)) == sum(len({*each}) for each in ids) == ITEMS


def tasks_of(installation: Any, run: str) -> dict[str, dict[str, Any]]:
    """The tasks of a run by their names."""
    found = installation.post("/task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
    return {task["name"]: task for task in found}


def lines_of(installation: Any, run: str) -> list[str]:
    """The log of a run."""
    found = installation.post("/logs/filter", {"logs": {"flow_run_id": {"any_": [run]}}})
    return [line["message"] for line in found]


def events(installation: Any, name: str) -> list[dict[str, Any]]:
    """The events of this name, once the server has some."""
    wanted = {"filter": {"event": {"name": [name]}}, "limit": 50}
    found = installation.until(f"the event {name}", lambda: installation.post("/events/filter", wanted)["events"])
    return list(found)


def test_all_deployments_are_registered_and_the_nights_ahead_are_scheduled(installation: Any) -> None:
    names = {found["name"] for found in installation.post("/deployments/filter", {})}
    assert {deployment["name"] for deployment in DEPLOYMENTS} <= names
    ahead = installation.until("runs are scheduled", lambda: installation.runs("benchmark/nightly-benchmark"))
    assert {run["expected_start_time"][11:16] for run in ahead} == {"02:00"}


def test_the_form_of_a_deployment_refuses_what_its_flow_would(installation: Any) -> None:
    several = {"replicates": "many"}, {"corpora": 3}, {"interval": "guess"}, {"sample": 0}, {"margin": 0}
    names = {"corpora": ["shaeps"]}, {"encoders": ["tiny-clop"]}, {"analyses": ["errosr"]}, {"device": "gpu"}
    for wrong in (*several, *names, {"nmae": "typo"}, {"replicates": 5}, {"precision": "fp16"}):
        with pytest.raises(httpx.HTTPStatusError, match=r"409|422"):
            installation.begin("benchmark/nightly-benchmark", wrong)


def test_a_page_of_another_origin_can_neither_start_a_run_nor_read_an_answer(installation: Any) -> None:
    found = installation.get("/deployments/name/benchmark/nightly-benchmark")
    start, origin = f"{installation.api}/deployments/{found['id']}/create_flow_run", {"Origin": "https://evil.example"}
    assert httpx.post(start, json={}, headers=origin).status_code == 403  # sent without asking first, by a form
    ours = {"Origin": "http://127.0.0.1:4200"}
    allowed = [httpx.get(f"{installation.api}/health", headers=each).headers for each in (origin, ours)]
    assert [each.get("access-control-allow-origin") for each in allowed] == [None, "http://127.0.0.1:4200"]


def test_a_scheduled_run_fires_by_itself_and_leaves_its_report(installation: Any, cpu_worker: None) -> None:
    nightly = installation.get("/deployments/name/benchmark/nightly-benchmark")
    soon = {
        "schedule": {"interval": 86400, "anchor_date": (datetime.now(UTC) + timedelta(seconds=8)).isoformat()},
        "active": True,
        "slug": "soon",
        "parameters": {"config": {**nightly["parameters"]["config"], **FEW}},
    }
    limit = {"name": ENCODE_LIMIT, "limit": 1, "active_slots": 1}  # another run encodes
    installation.post("/v2/concurrency_limits/", limit)
    installation.post(f"/deployments/{nightly['id']}/schedules", [soon])

    def fired() -> str | None:
        due = [run for run in installation.runs("benchmark/nightly-benchmark") if run["start_time"] is not None]
        return due[0]["id"] if due else None

    run = installation.until("the scheduled run starts", fired)
    waits = f"waiting for a slot of the concurrency limit {ENCODE_LIMIT} (1 in total)"
    installation.until("it waits", lambda: waits in lines_of(installation, run))
    installation.patch(f"/v2/concurrency_limits/{ENCODE_LIMIT}", {"active_slots": 0})
    assert installation.ended(run) == "COMPLETED"
    found = installation.get(f"/flow_runs/{run}")
    assert found["auto_scheduled"]
    assert {"capim", "benchmark"} <= set(found["tags"])
    assert found["name"] == "benchmark nightly: tiny-clip on few"
    tasks = tasks_of(installation, run)
    assert {"embed-tiny-clip", "score-tiny-clip-few", "diagnose-few"} <= tasks.keys()
    artifacts = installation.artifacts(run)
    of_tasks = {str(each["key"]).split("-")[0]: each["task_run_id"] for each in artifacts}
    [publish] = [task["id"] for name, task in tasks.items() if name.startswith("publish")]
    assert of_tasks == {"None": None, "report": publish}
    shown = {str(artifact["key"]).split("-")[0]: artifact["data"] for artifact in artifacts}
    # no browser opens a file of the worker's machine: the report's first screen is in the artifact
    assert "| tiny-clip | **100.0**" in shown["report"]
    assert str(installation.workspace) not in json.dumps(artifacts)
    [progress] = [artifact for artifact in artifacts if artifact["type"] == "progress"]
    assert (progress["data"], progress["task_run_id"]) == (100.0, None)
    installation.delete(f"/v2/concurrency_limits/{ENCODE_LIMIT}")

    def has(told: str) -> bool:
        return any(re.fullmatch(told, line) for line in lines_of(installation, run))

    for told in (
        r"tiny-clip on few, images: 8 encoded, 0 reused, 0 skipped, [\d.]+ s",
        r"\d+ rows, 3 derivations, 3 made, [\d.]+ s",  # the analyses
    ):
        installation.until(told, partial(has, told))  # a process sends its last lines after the state of its run
    here, store_uri = str(installation.workspace), f"{installation.workspace}/store"
    [event] = [each["payload"] for each in events(installation, "capim.report") if each["payload"]["workspace"] == here]
    assert event["path"] == f"{here}/reports/{event['run']}/report.html"
    made = {each["resource"]["prefect.resource.id"]: each["payload"] for each in events(installation, ASSET)}
    sets = made[asset(store_uri, "sets", "tiny-clip", "few")]
    assert sets == {"rows": 48, "encoded": 48, "truncated": 0, "seconds": ANY}
    slices = made[asset(store_uri, "slices", "few")]
    assert slices == {"rows": ANY, "derivations": 3, "made": 3, "digest": ANY, "seconds": ANY}
    [row] = EmbeddingStore.open(f"{installation.workspace}/store").all(Run)
    assert (row.flow_run, row.deployment) == (run, "benchmark/nightly-benchmark")
    assert row.command.startswith("prefect deployment run benchmark/nightly-benchmark --param ")


def test_shards_of_one_command_overlap_on_two_workers_and_a_report_follows(
    installation: Any, cpu_worker: None, tmp_path: Path
) -> None:
    """A shard takes 10 s, so that its process starts before the other has ended, on two busy processors too."""
    own = own_encoder(tmp_path / "own", seconds=0.4)
    suite = suite_of(tmp_path / "suite.toml", own)
    report = installation.get("/deployments/name/benchmark/report-after-encode")
    quick = {"config": {**report["parameters"]["config"], "replicates": 200, "analyses": ["complexity"]}}
    installation.patch(f"/deployments/{report['id']}", {"parameters": quick})
    words = [CAPIM, "embed", str(suite), "--shards", "2", "--submit", "--device", "cpu"]
    installation.shell(*words, "--batch-size", "1")
    one_each = ("--limit", "1")
    gpu = installation.worker("capim-gpu", *one_each), installation.worker("capim-gpu", *one_each)
    with gpu[0], gpu[1]:
        shards = installation.runs("embed/encode-shard")
        assert [installation.ended(run["id"]) for run in shards] == ["COMPLETED", "COMPLETED"]
        shards = installation.runs("embed/encode-shard")
        assert {run["name"] for run in shards} == {f"embed run: own on few, shard {number} of 2" for number in (1, 2)}
        assert max(run["start_time"] for run in shards) < min(run["end_time"] for run in shards), "side by side"
        reports = partial(installation.runs, "benchmark/report-after-encode")
        [after] = installation.until("the event starts a report", reports)
        assert installation.ended(after["id"]) == "COMPLETED"
    compared = EmbeddingStore.open(f"{installation.workspace}/store").rows("comparisons")
    names = compared["encoder_a"].to_pylist() + compared["encoder_b"].to_pylist()
    assert set(names) == {"tiny-clip", "own"}


def test_a_run_that_is_retried_goes_on_from_its_failure_and_its_graph_is_true(
    installation: Any, cpu_worker: None
) -> None:
    """A run of another deployment that begins meanwhile waits for its turn, without a process."""
    reports = installation.workspace / "retried" / "reports"
    reports.parent.mkdir()
    reports.write_text("not a folder")
    config = {**FEW, "workspace": str(reports.parent), "sample": 6}
    found = installation.get("/deployments/name/benchmark/nightly-benchmark")
    asked = {"parameters": {"config": config}, "name": "Q3 trial"}
    run = installation.post(f"/deployments/{found['id']}/create_flow_run", asked)["id"]
    installation.until("its tasks begin", lambda: tasks_of(installation, run))
    other = installation.begin("evaluate/evaluate", {**config, "corpora": [], "encoders": [], "sample": None})
    waits = partial(installation.get, f"/flow_runs/{other}")
    installation.until("it waits", lambda: waits()["state_name"] == "AwaitingConcurrencySlot")
    assert installation.ended(run) == "FAILED"
    assert installation.ended(other) == "COMPLETED"
    first, second = (tasks_of(installation, each).values() for each in (run, other))
    assert max(task["end_time"] for task in first) < min(task["start_time"] for task in second)
    reports.unlink()
    retry = {"type": "SCHEDULED", "name": "AwaitingRetry"}  # what the button Retry says
    installation.post(f"/flow_runs/{run}/set_state", {"state": retry})
    installation.until("it begins again", lambda: installation.state(run) is None)
    assert installation.ended(run) == "COMPLETED"
    assert installation.get(f"/flow_runs/{run}")["name"] == "Q3 trial"
    filters = {"flow_runs": {"id": {"any_": [run]}}, "sort": "EXPECTED_START_TIME_ASC"}
    everything = installation.post("/task_runs/filter", filters)
    names = {task["id"]: re.sub(r"-[0-9a-f]{3}$", "", task["name"]) for task in everything}
    edges = {
        names[task["id"]]: {names[each["id"]] for inputs in task["task_inputs"].values() for each in inputs}
        for task in everything
    }
    [score] = {name for name in edges if name.startswith("score-tiny-clip-few")}
    assert edges["embed-tiny-clip"] == {"register-corpus"}
    assert edges[score] == {"embed-tiny-clip"}
    assert edges["find-evaluations"] == {score}
    publish = [name for name in edges if name.startswith("publish")]  # one of each attempt
    assert {name.partition("-")[0] for name in edges[max(publish)]} == {"compare", "rank", "diagnose"}
    states = {names[task["id"]]: task["state"]["name"] for task in everything}
    assert {states[name] for name in ("register-corpus", "embed-tiny-clip", score, max(publish))} == {"Completed"}
    store = EmbeddingStore.open(f"{reports.parent}/store")
    [made_by] = {row["run"] for table in ("batches", "results") for row in store.rows(table).to_pylist()}
    assert made_by in {row.run for row in store.all(Run, state="failed")}


def test_a_broken_encoder_is_a_failed_task_and_the_others_are_complete(installation: Any, tmp_path: Path) -> None:
    suite = incomplete.suite_of(tmp_path, (), ("checkpoint",))
    with temporary_settings({PREFECT_API_URL: installation.api}):
        done = command(f"run {suite} --quiet", tmp_path / "workspace", code=1)
    assert "  - broken-checkpoint: " in done.err
    named = {"flow_runs": {"name": {"any_": ["benchmark run: tiny-clip +2 on few"]}}}
    [run] = installation.post("/flow_runs/filter", named)
    assert run["state_type"] == "FAILED"
    states = {name: task["state_type"] for name, task in tasks_of(installation, run["id"]).items()}
    assert states["embed-broken-checkpoint"] == "FAILED"
    for one in incomplete.SOUND:
        assert {states[f"embed-{one}"], states[f"score-{one}-few"], states["diagnose-few"]} == {"COMPLETED"}
    incomplete.check(tmp_path / "workspace", {"broken-checkpoint"})


def test_a_worker_killed_in_the_middle_of_an_encode_loses_nothing(installation: Any, own: Any) -> None:
    with installation.worker("capim-gpu") as worker:
        run = installation.begin("embed/encode-on-gpu", slow("killed", own))
        installation.until("progress is shown", lambda: installation.artifacts(run))
        installation.until("items are stored", lambda: stored(installation, "killed") > 10)
        kept = stored(installation, "killed")
        installation.kill(worker)
    assert 0 < kept <= stored(installation, "killed") < ITEMS
    # The host is lost: the run's last heartbeat is as old as it would be 85 seconds later. What is sent before the
    # server has loaded the automation, or while its database is busy, has no effect, as one lost heartbeat has none.
    # The server looks for lost runs when an automation is new, and if it knows of none, 90 seconds later: here, both
    # are made again.
    heartbeat = {
        "event": "prefect.flow-run.heartbeat",
        "resource": {"prefect.resource.id": f"prefect.flow-run.{run}", "prefect.resource.name": "killed"},
        "related": [{"prefect.resource.id": "prefect.tag.capim", "prefect.resource.role": "tag"}],
    }
    sent = float("-inf")

    def crashed() -> str | None:
        nonlocal sent
        if time.monotonic() - sent > 20:  # longer than 85 seconds ago need to be 90 ago, and the server to see it
            with temporary_settings({PREFECT_API_URL: installation.api}):
                assert apply_automations([]) == 0
            occurred = datetime.now(UTC) - timedelta(seconds=85)
            installation.emit({**heartbeat, "id": str(uuid.uuid4()), "occurred": occurred.isoformat()})
            sent = time.monotonic()
        return installation.state(run)

    assert installation.until("the run is Crashed", crashed, seconds=240) == "CRASHED"
    with installation.worker("capim-gpu"):
        again = installation.begin("embed/encode-on-gpu", {**slow("killed", own), "batch_size": 64})
        assert installation.ended(again) == "COMPLETED"
    assert is_whole(installation, "killed")


def test_failures_and_regressions_reach_a_webhook(installation: Any) -> None:
    received: list[tuple[str, dict[str, Any]]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            received.append((self.headers["content-type"], body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{receiver.server_port}/hook"
    with temporary_settings({PREFECT_API_URL: installation.api}):
        assert apply_automations(["--webhook", address, "--private"]) == 0
    run = installation.begin("embed/encode-on-gpu", {})  # no worker takes it
    message = 'no such "store":\nC:\\data'
    broken = {"type": "FAILED", "name": "Failed", "message": message}
    installation.post(f"/flow_runs/{run}/set_state", {"state": broken, "force": True})
    event = {
        "id": str(uuid.uuid4()),
        "occurred": datetime.now(UTC).isoformat(),
        "event": "capim.regression",
        "resource": {"prefect.resource.id": "capim.workspace.w"},
        "payload": {"workspace": "w", "first": 'R@1 of "a"\nchanged', "n_regressions": 2, "subjects": "a on few"},
    }
    installation.emit(event)
    installation.until("both messages arrive", lambda: len(received) >= 2)
    receiver.shutdown()
    receiver.server_close()
    assert {kind for kind, _ in received} == {"application/json"}
    bodies = {body["subject"]: body for _, body in received}
    regression, failure = bodies["capim: a regression"], bodies["capim: a run failed"]
    assert regression["text"] == 'w: R@1 of "a"\nchanged'
    assert (regression["failures"], regression["subjects"]) == (2, "a on few")
    assert failure["text"].endswith(message)
    assert (failure["flow"], failure["deployment"], failure["state"]) == ("embed", "encode-on-gpu", "Failed")
    assert failure["address"].endswith(run)


@pytest.mark.parametrize(
    ("words", "server", "expected"),
    [
        ([], None, "PREFECT_API_URL is not set"),
        (["--webhook", "hooks.example"], "http://127.0.0.1:1/api", "begins with https://"),
    ],
)
def test_a_wrong_request_for_automations_is_refused(
    words: list[str], server: str | None, expected: str, capsys: Any
) -> None:
    with temporary_settings({PREFECT_API_URL: server}), pytest.raises(SystemExit) as error:
        apply_automations(words)
    assert error.value.code == 2
    assert expected in capsys.readouterr().err


def test_one_machine_serves_everything_without_a_pool(installation: Any, own: Any) -> None:
    with (installation.home / "serve.log").open("ab") as log:
        words = [sys.executable, "-m", "capim.deployments.serve"]
        serving = subprocess.Popen(words, env=installation.env, cwd=installation.home, stdout=log, stderr=log)

    def served() -> bool:
        found = installation.post("/deployments/filter", {})
        return len([each for each in found if each["name"].startswith("served-") and not each["paused"]]) == 7

    try:
        installation.until("everything is served", served)
        run = installation.begin("watch/served-weekly-watch", {**FEW, "encoders": [own]})
        assert installation.ended(run) == "COMPLETED"
        serving.terminate()
        serving.wait(timeout=200)
    finally:
        installation.kill(serving)
    watch = installation.get("/deployments/name/watch/served-weekly-watch")
    assert (watch["global_concurrency_limit"]["limit"], watch["paused"]) == (1, False)
    # what was deployed to a pool is as it was
    assert installation.get("/deployments/name/watch/weekly-watch")["work_pool_name"] == "capim-cpu"
    key = artifact_key("watch", f"{installation.workspace}/store")
    watched = installation.post("/artifacts/filter", {"artifacts": {"key": {"any_": [key]}}})
    assert [each["flow_run_id"] for each in watched] == [run]


@pytest.mark.parametrize(
    ("address", "workspace", "expected"),
    [(None, "/w", "PREFECT_API_URL is not set"), ("http://127.0.0.1:1/api", None, "CAPIM_WORKSPACE is not set")],
)
def test_one_machine_is_refused_without_a_server_or_a_variable_of_the_file(
    address: str | None, workspace: str | None, expected: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPIM_WORKSPACE", workspace or "")
    with temporary_settings({PREFECT_API_URL: address}):
        assert serve_everything() == 2
    assert expected in capsys.readouterr().err


def test_with_the_server_gone_in_the_middle_what_was_encoded_is_kept(installation: Any, own: Any) -> None:
    suite = suite_of(installation.workspace / "orphaned.toml", own, corpus="orphaned", n_scenes=SCENES)
    words = [CAPIM, "embed", str(suite), "--workspace", str(installation.workspace), "--device", "cpu"]
    words += ["--batch-size", "1"]
    # Prefect's client asks a lost server again for a minute or two before the encode goes on; here it asks once
    impatient = {**installation.env, "PREFECT_CLIENT_MAX_RETRIES": "1"}
    process = subprocess.Popen(words, env=impatient, stderr=subprocess.PIPE)
    try:
        installation.until("items are stored", lambda: stored(installation, "orphaned") > 10)
        installation.stop_server()
        assert stored(installation, "orphaned") < ITEMS
        installation.until("the encode goes on alone", lambda: stored(installation, "orphaned") == ITEMS, seconds=300)
    finally:
        installation.kill(process)  # it would wait for the server for minutes before it gives up
    alone = {name: value for name, value in installation.env.items() if name != "PREFECT_API_URL"}
    done = subprocess.run(words, env=alone, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert f"0 items encoded, {ITEMS} were already stored" in done.stderr
    assert is_whole(installation, "orphaned")
