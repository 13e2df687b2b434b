"""Runs flows, with Prefect or without it, and keeps the record of every run: flow `prune` removes older ones.

Inside a flow run every task is a Prefect task run, with its state, its retries and its place in the UI. Outside one
it is an ordinary function call: ``capim run`` on a laptop starts no server (a temporary one takes 10-20 s to come up)
and gives the same rows.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import secrets
import shlex
import sys
import traceback
from asyncio import CancelledError
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import lru_cache, wraps
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, ParamSpec, TypeVar, cast
from uuid import UUID

import httpx

from capim.flows import HEARTBEAT_SECONDS
from capim.flows.config import RunConfig, run_config
from capim.reports.destination import folders_of, remove_folder, unused_pages
from capim.store import EmbeddingStore
from capim.store.connection import one_connection
from capim.store.errors import RequestError, WorkError, without_credentials
from capim.store.schema import Run
from capim.store.upkeep.removal import Pruning, compact_store, discard_if_empty, plan_pruning
from capim.store.upkeep.removal import prune as remove
from capim.tasks.derive import Derived
from capim.tasks.embed import EncodedSet
from capim.tasks.hub.progress import Overall, track
from capim.tasks.prefects.names import (
    PREFECT_API_URL,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    Flow,
    FlowRunContext,
    PrefectHTTPStatusError,
    State,
    TagsContext,
    Task,
    TaskRunner,
    TerminationSignal,
    ThreadPoolTaskRunner,
    deployment,
    emit_event,
    flow,
    flow_run,
    get_client,
    tags,
    temporary_settings,
)
from capim.tasks.prefects.task import hide_prefects_lines, send_logs, shown_progress, with_assets
from capim.tasks.references import (
    CorpusRef,
    EmbedRef,
    EvaluationRef,
    Missing,
    RunSettings,
    SetsRef,
    library_versions,
    this_host,
    this_machine,
)

RUNNER_VARIABLE = "CAPIM_TASK_RUNNER"
TIMEOUT_VARIABLE = "CAPIM_TIMEOUT_HOURS"
log = logging.getLogger(__name__)
TAG = "capim"  # of every run: what automations look for

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


GENERATED = re.compile(r"[a-z0-9]+(-[a-z]+)+")  # cunning-otter: the name of a run to which nobody gave one


def run_flow(
    name: str, *, hours: float, title: Callable[..., str] | None = None
) -> Callable[[Callable[P, R]], Flow[P, R]]:
    """Make a function a Prefect flow, which takes what to run as ``config``.

    On a server its run is named, shows its progress and log lines, and takes the fields that it was not given from its
    deployment: Prefect merges parameters, but not the fields of ``config``.

    Args:
        name: Name of the flow.
        hours: Time limit, unless ``$CAPIM_TIMEOUT_HOURS`` gives one.
        title: Names its runs, from their parameters; by default after encoders and corpora.
    """

    def declare(function: Callable[P, R]) -> Flow[P, R]:
        limit = timeout_seconds(hours)

        @wraps(function)
        def begin(*args: P.args, **kwargs: P.kwargs) -> R:
            if FlowRunContext.get() is None:
                with one_connection():
                    return function(*args, **kwargs)
            given = signature(function).bind(*args, **kwargs)
            with within_limit(limit), one_connection():
                config = given.arguments.get("config")
                if config is not None:
                    given.arguments["config"] = _with_deployed(config)
                with _served(name, 0 if config is None else len(config.corpora)):
                    return function(*given.args, **given.kwargs)

        # Prefect looks for the types of parameters in the module of this function
        vars(begin)["__signature__"] = signature(function, eval_str=True)

        def run_name() -> str:
            if flow_run.name and not GENERATED.fullmatch(flow_run.name):
                return str(flow_run.name)
            parameters = dict(flow_run.parameters)
            if "config" in parameters:
                parameters["config"] = _with_deployed(parameters["config"])
            return f"{name} {parameters['config'].title if title is None else title(**parameters)}"

        return flow(name=name, flow_run_name=run_name, task_runner=task_runner(), timeout_seconds=limit)(begin)

    return declare


class TimeLimitError(TimeoutError):
    """A run took longer than its time limit allows."""


@contextmanager
def within_limit(seconds: float) -> Iterator[None]:
    """Report that the time limit ended a run, whatever error that became on its way through a library.

    Prefect raises ``CancelledError`` wherever the run is; raised while Lance asks for the rows that it writes, it comes
    back as a fault of the storage.
    """
    try:
        yield
    except (Exception, CancelledError) as error:
        if not _is_late(error, seconds):
            raise
        raise TimeLimitError(LATE) from error


LATE = (
    "the run took longer than its time limit; stored rows are kept. Run it again to continue, or set "
    f"{TIMEOUT_VARIABLE} to more hours (of a deployment: job_variables in deployments/prefect.yaml)"
)


def _is_late(error: BaseException, seconds: float) -> bool:
    """True if an error comes from the time limit of the flow run."""
    context = FlowRunContext.get()
    late = context is not None and datetime.now(UTC) - context.start_time >= timedelta(seconds=seconds)
    return late or isinstance(error, CancelledError)


@contextmanager
def _served(name: str, n_corpora: int) -> Iterator[None]:
    """Show a run on the server while its function runs: log lines, progress, the order of its tasks."""
    send_logs()
    before = _MADE.set({})
    vars(FlowRunContext.get())["run_results"] = _NoResults()
    # tags of the run are not for its tasks: each set of tags costs requests to the server
    try:
        with TagsContext(current_tags=set()), shown_progress(Overall.of(name, n_corpora)):
            yield
    finally:
        _MADE.reset(before)


def _with_deployed(config: RunConfig) -> RunConfig:
    """Return the configuration with the fields of its deployment that the run was not given."""
    given = FlowRunContext.get()
    run = None if given is None else given.flow_run
    if run is None or run.deployment_id is None:
        return config
    return run_config({**deployed_fields(run.deployment_id), **(run.parameters.get("config") or {})})


@lru_cache(maxsize=1)
def deployed_fields(deployment: UUID) -> dict[str, Any]:
    """Return the fields of ``config`` in the parameters of a deployment; the server is queried once."""
    with get_client(sync_client=True) as client:
        return dict(client.read_deployment(deployment).parameters.get("config") or {})


def call(task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a task: as a task run inside a flow run, as the plain function outside one."""
    if FlowRunContext.get() is None:
        return _noted(task.fn(*args, **kwargs))
    begin, words = _task_run(task, *args, **kwargs)
    state = begin(**words, return_state=True)
    return _noted(cast("R", state.result(_sync=True)), state)


def call_each(task: Task[P, R], calls: Sequence[Mapping[str, Any]]) -> list[R]:
    """Run a task once per set of arguments: on the task runner inside a flow run, else one after the other."""
    return _each(task, calls, lambda finish: finish())


def map_collecting_failures(
    task: Task[P, R], calls: Sequence[Mapping[str, Any]], *, in_turn: bool = False
) -> list[R | Exception]:
    """As :func:`call_each`, but a call that fails gives its error, and the others go on.

    ``in_turn`` runs one after the other on every task runner.
    """
    return _each(task, calls, attempt, in_turn=in_turn)


def _each(
    task: Task[P, R], calls: Sequence[Mapping[str, Any]], end: Callable[[Callable[[], R]], T], *, in_turn: bool = False
) -> list[T]:
    """Begin all calls, then return what ``end`` makes of each; it takes the function that waits for the result."""
    done: list[T] = []
    with track(task.name, total=len(calls), unit="tasks", step=True) as advance:
        for finish in [_begun(task, arguments, in_turn=in_turn) for arguments in calls]:
            done.append(end(finish))
            if len(done) < len(calls) or not all(isinstance(one, Exception) for one in done):
                advance(1)  # else the count of completed work stays at zero
    return done


def _begun(task: Task[P, R], arguments: Mapping[str, Any], *, in_turn: bool) -> Callable[[], R]:
    """Hand a task to the task runner and return the function that waits for it; without a runner, one that runs it."""
    context = FlowRunContext.get()
    # the pool's only thread would hear of neither a cancel, nor the time limit, nor Ctrl-C
    if context is None or in_turn or context.task_runner == ThreadPoolTaskRunner(max_workers=1):
        return lambda: call(cast("Task[..., R]", task), **arguments)
    begin, words = _task_run(cast("Task[..., R]", task), **arguments)
    future = begin.submit(**words)
    return lambda: _noted(future.result(), future.state)


# --- The order of tasks in a flow run, as the server shows it.

_MADE: ContextVar[dict[Hashable, State[Any]] | None] = ContextVar("made", default=None)  # reference -> who made it
_AFTER: ContextVar[object] = ContextVar("after", default=())
_USED: ContextVar[set[str] | None] = ContextVar("used", default=None)  # by the run that is recorded now


@contextmanager
def after(*references: object) -> Iterator[None]:
    """Make tasks in this context depend on those that made these references, as well as those of their arguments."""
    before = _AFTER.set(references)
    try:
        yield
    finally:
        _AFTER.reset(before)


def _task_run(task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> tuple[Task[Any, R], dict[str, Any]]:
    """Return a task as it is run in a flow run, and the arguments for that."""
    bound = signature(task.fn).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    made = _MADE.get() or {}
    states = [made[each] for each in dict.fromkeys(named([given, _AFTER.get()])) if each in made]
    return with_assets(task, given), {**given, "wait_for": states}


def named(value: object) -> Iterator[Hashable]:
    """Yield what identifies the tasks that made a value, or a part of it."""
    if isinstance(value, SetsRef | EncodedSet | Derived):
        yield value
    elif isinstance(value, CorpusRef):
        yield value.fingerprint
    elif isinstance(value, EmbedRef | EvaluationRef):
        yield value.sets
    elif isinstance(value, Mapping):
        yield from named(list(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from named(each)
    elif dataclasses.is_dataclass(value):
        yield from named([getattr(value, each.name) for each in dataclasses.fields(value)])


class _NoResults(dict[int, Any]):
    """Stays empty where Prefect notes who made an object, by its identity: texts and tuples may be one object."""

    def __setitem__(self, key: int, value: object) -> None:
        pass


def _noted(reference: T, state: State[Any] | None = None) -> T:
    """Return the reference that a task returned, after its keys were noted for the record of the run."""
    used, made = _USED.get(), _MADE.get()
    if used is not None:
        used.update(getattr(reference, "uses", ()))
    if made is not None and state is not None:  # without the data, in which Prefect would look for more task runs
        made.update(dict.fromkeys(named(reference), state.model_copy(update={"data": True})))
    return reference


def settings_of(config: RunConfig, run: str) -> RunSettings:
    """Return the settings that the tasks of a run share."""
    return RunSettings(
        store_uri=config.store_uri,
        run=run,
        resampling=config.resampling,
        protocols=config.protocols,
        analyses=config.analyses,
        device=config.device.partition(",")[0],
        memory_bytes=config.memory,
        keep_replicates=config.keep_replicates,
    )


def attempt(work: Callable[[], R]) -> R | Exception:
    """Return what a piece of work returns, or the error that it raised."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - whatever breaks one encoder must not stop the others
        link: BaseException | None = error
        while link is not None:
            traceback.clear_frames(link.__traceback__)  # their variables hold the model, and the memory of its device
            link = link.__cause__ or link.__context__
        return error


def refuse_all(errors: Sequence[Exception]) -> NoReturn:
    """Raise why every part of a run failed: a request error if the request was wrong each time.

    Raises:
        RequestError: Every part was refused; all faults together.
        WorkError: Some part failed.
    """
    refused = [each for each in errors if isinstance(each, RequestError)]
    reasons = list(dict.fromkeys(map(reason_of, errors)))
    if len(reasons) == 1:
        raise errors[0]
    if len(refused) == len(errors):
        raise RequestError(list(dict.fromkeys(fault for each in refused for fault in each.faults)))
    raise WorkError("\n  - ".join(["all encoders failed:", *reasons]))


def reason_of(error: Exception) -> str:
    """Return an error as one line; its type is named where the message was not written for users."""
    known = isinstance(error, RequestError | WorkError)
    return " ".join((str(error) if known else f"{type(error).__name__}: {error}").split())


def task_runner() -> TaskRunner[Any]:
    """Return the task runner of flows: ``$CAPIM_TASK_RUNNER``, read when a flow is imported.

    ``threads`` (default: one task at a time) or ``threads:4``; ``dask`` or ``dask:2`` for a local cluster of that many
    worker processes; ``dask:tcp://host:8786`` for a running cluster.

    Raises:
        RequestError: The variable has another form.
    """
    runner = os.environ.get(RUNNER_VARIABLE) or "threads"
    engine, _, where = runner.partition(":")
    n = int(where) if where.isdecimal() else None
    if engine == "threads" and (n or not where):
        return ThreadPoolTaskRunner(max_workers=n or 1)
    if engine == "dask":
        from prefect_dask import DaskTaskRunner

        if "://" in where:
            return cast("TaskRunner[Any]", DaskTaskRunner(address=where))
        if n or not where:
            cluster = {"n_workers": n or 2, "threads_per_worker": 1}
            return cast("TaskRunner[Any]", DaskTaskRunner(cluster_kwargs=cluster))
    raise RequestError(
        f"{RUNNER_VARIABLE} must be a task runner, got {runner!r}; give threads, threads:4, dask, dask:2 or "
        "dask:tcp://host:8786"
    )


def timeout_seconds(hours: float) -> float:
    """Return the time limit of a flow: ``$CAPIM_TIMEOUT_HOURS``, read when a flow is imported, else ``hours``.

    Raises:
        RequestError: The variable is not a positive number.
    """
    value = os.environ.get(TIMEOUT_VARIABLE) or str(hours)
    try:
        limit = float(value)
    except ValueError:
        limit = 0.0
    if not 0 < limit < float("inf"):
        raise RequestError(f"{TIMEOUT_VARIABLE}={value!r} is not a number of hours above 0")
    return 3600 * limit


def announce(event: str, workspace: str, **payload: str | int | float) -> None:
    """Emit an event that automations can react to; does nothing outside a flow run."""
    if FlowRunContext.get() is not None:
        resource = {"prefect.resource.id": f"capim.workspace.{workspace}"}
        emit_event(event, resource=resource, payload={"workspace": workspace, **payload})


def start(flow: Flow[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a flow from the command line: as a Prefect run where an API is configured, else as plain functions.

    Raises:
        Exception: The exception of the flow, as it was raised.
        WorkError: The time limit was reached, or the Prefect server does not answer.
    """
    if PREFECT_API_URL.value() is None:
        if runner := os.environ.get(RUNNER_VARIABLE):
            log.warning("%s=%s has no effect without a Prefect server (PREFECT_API_URL)", RUNNER_VARIABLE, runner)
        return flow.fn(*args, **kwargs)
    hide_prefects_lines()
    # a program that imported Prefect before capim has not read the variable that capim sets
    heartbeat = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: HEARTBEAT_SECONDS}
    with answering_server():
        with tags(TAG, "from-a-shell"), temporary_settings(set_defaults=heartbeat):
            state = cast("Callable[..., Any]", flow)(*args, **kwargs, return_state=True)
        if state.name == "TimedOut":
            raise WorkError(LATE)  # Prefect may have kept no exception of it
        return cast("R", state.result(raise_on_failure=True))


@contextmanager
def answering_server() -> Iterator[None]:
    """Raise a ``WorkError`` with the next step if the block fails because the Prefect server does not answer."""
    try:
        yield
    except (httpx.TransportError, PrefectHTTPStatusError, RuntimeError) as error:
        if isinstance(error, WorkError) or not _is_lost(error):
            raise
        raise WorkError(
            f"the Prefect server at {PREFECT_API_URL.value()} does not answer; stored rows are kept",
            remedy="Start the server and run the same command to continue, or run it without a server: "
            "unset PREFECT_API_URL",
        ) from error


def _is_lost(error: BaseException | None) -> bool:
    """True if a server that did not answer is the cause of an error."""
    while error is not None:
        if isinstance(error, httpx.TransportError | PrefectHTTPStatusError):
            return True
        error = error.__cause__ or error.__context__
    return False


_ENCODING = ("benchmark", "embed", "import", "watch")  # kinds of runs that create a store where there is none


@contextmanager
def recorded_run(config: RunConfig, kind: str) -> Iterator[RunSettings]:
    """Write a ``runs`` row with the state running, then completed, incomplete or failed; gives its settings.

    Ids sort by time: ``20261120T192233-benchmark-3f9a``. A run that called :func:`record_end` keeps what that wrote,
    unless an error follows. Runs of this host with a dead process become interrupted.
    """
    _check_workspace(config.workspace)
    started = datetime.now(UTC)
    run = f"{started:%Y%m%dT%H%M%S}-{kind}-{secrets.token_hex(2)}"
    try:
        store, is_new = EmbeddingStore.open(config.store_uri), False
    except RequestError:
        if kind not in _ENCODING:
            raise
        store, is_new = EmbeddingStore.open(config.store_uri, create=True), True
    row = Run(
        run=run,
        name=config.name,
        config=without_credentials(json.dumps(dataclasses.asdict(config))),
        command=without_credentials(_command()),
        versions=json.dumps(library_versions()),
        host=this_host(),
        machine=json.dumps(this_machine()),
        started=started,
        state="running",
        pid=os.getpid(),
        flow_run=flow_run.id,
        deployment=_deployment(),
    )
    _mark_interrupted(store)
    store.write([row], replace="run")
    before = _USED.set(set())
    try:
        yield settings_of(config, run)
    except IncompleteError as error:
        record_end(store, run, error.missing)
        raise
    except BaseException as error:
        context = FlowRunContext.get()
        limit = context.flow.timeout_seconds if context is not None and context.flow is not None else None
        state, told = _state_after(error), TimeLimitError(LATE) if limit and _is_late(error, limit) else error
        message = without_credentials(" ".join(str(told).split()))
        why = f"{type(told).__name__}: {message}" if state == "failed" else None
        with suppress(WorkError):  # of a storage that does not answer; the error before it says more
            row = next(iter(store.all(Run, run=run)), row)  # with what it used, if a report failed after its end
            store.write([dataclasses.replace(row, state=state, finished=datetime.now(UTC), message=why)], replace="run")
        if is_new and isinstance(error, RequestError):
            discard_if_empty(store)
        raise
    else:
        record_end(store, run, ())
    finally:
        _USED.reset(before)


class IncompleteError(WorkError):
    """Some encoders of a run failed, the others are complete; carries the value that the run would have returned."""

    def __init__(self, done: object, missing: Sequence[Missing]) -> None:
        self.done = done
        self.missing = tuple(missing)
        super().__init__("\n  - ".join([f"{_failures(missing)}; the others are complete:", *_reasons(missing)]))

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.done, self.missing))


def record_end(store: EmbeddingStore, run: str, missing: Sequence[Missing]) -> None:
    """Write the state of a run at its end, its failed encoders, and the keys it used, unless they are written."""
    [row] = store.all(Run, run=run)
    if row.state in ("running", "interrupted"):  # taken for dead by a process with other numbers, in a container
        message = f"{_failures(missing)}: {'; '.join(_reasons(missing))}"
        row = dataclasses.replace(row, finished=datetime.now(UTC), uses=sorted(_USED.get() or ()), state="completed")
        row = dataclasses.replace(row, state="incomplete", message=message) if missing else row
        runs = store.all(Run)
        if same := next((each.run for each in runs if each.uses and each.uses == row.uses), None):
            row = dataclasses.replace(row, uses=None, same_as=same)  # a night in which nothing changes adds a small row
        store.write([row], replace="run")


def _state_after(error: BaseException) -> str:
    """Return the state of a run after an error: cancelled on the server, interrupted by a signal or a key, or failed.

    The signal may come back from a library as a fault of its own, so the server is queried.
    """
    context = FlowRunContext.get()
    if context is not None and context.flow_run is not None:
        with suppress(httpx.TransportError, PrefectHTTPStatusError), get_client(sync_client=True) as client:
            state = client.read_flow_run(context.flow_run.id).state
            if state is not None and (state.is_cancelling() or state.is_cancelled()):
                return "cancelled"
    # a worker that is lost ends its runs by SystemExit
    return "interrupted" if isinstance(error, KeyboardInterrupt | TerminationSignal | SystemExit) else "failed"


def _failures(missing: Sequence[Missing]) -> str:
    subjects = len({each.subject for each in missing})
    return f"{subjects} encoder{'s' if subjects > 1 else ''} failed"


def _reasons(missing: Sequence[Missing]) -> list[str]:
    return [f"{each.subject}: {each.reason}" for each in missing]


def _mark_interrupted(store: EmbeddingStore) -> None:
    """Write that a run was interrupted if its process, on this host, is no more."""
    running = store.all(Run, state="running", host=this_host())
    if dead := [row for row in running if not _is_alive(row.pid, row.started)]:
        ended: dict[str, Any] = {"finished": datetime.now(UTC), "message": "its process died"}
        store.write([dataclasses.replace(row, state="interrupted", **ended) for row in dead], replace="run")


def _is_alive(pid: int, since: datetime) -> bool:
    """True if a process of this host lives; one that began after ``since`` is another one with the same number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it lives, and is another user's
        pass
    if not Path("/proc/stat").exists():  # macOS
        return True
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except OSError:  # it has just ended, or the system hides it from other users
        return True
    [booted] = [line.split()[1] for line in Path("/proc/stat").read_text("utf-8").splitlines() if line[:5] == "btime"]
    return int(booted) + ticks / os.sysconf("SC_CLK_TCK") <= since.timestamp() + 1


def _deployment() -> str | None:
    """Return the name, ``FLOW/NAME``, of the deployment that made this run; None for other runs."""
    return f"{flow_run.flow_name}/{deployment.name}" if deployment.id is not None else None


def _command() -> str:
    """Return the command that makes this run again: the one that was typed, or one that starts the deployment."""
    name = _deployment()
    context = FlowRunContext.get()
    if name is not None and context is not None and context.flow_run is not None:
        parameters = dict(context.flow_run.parameters)
        deployed = deployed_fields(deployment_id) if (deployment_id := context.flow_run.deployment_id) else {}
        own = {k: v for k, v in (parameters.pop("config", None) or {}).items() if deployed.get(k) != v}
        given = {**({"config": own} if own else {}), **{k: v for k, v in parameters.items() if v is not None}}
        words = [word for key, value in given.items() for word in ("--param", f"{key}={json.dumps(value)}")]
        return shlex.join(["prefect", "deployment", "run", name, *words])
    program = Path(sys.argv[0])
    if program.name in ("capim", "cli.py") or program.parts[-2:] == ("capim", "__main__.py"):  # python -m capim
        return shlex.join(["capim", *sys.argv[1:]])
    if program.name.startswith("ipykernel"):
        return "a notebook"
    return shlex.join(["python", program.name, *sys.argv[1:]])


def _check_workspace(workspace: str) -> None:
    """Refuse a relative workspace where other processes with other folders have to find it.

    These are the workers of a deployment, which run in a temporary folder that is deleted, and of a Dask cluster.
    """
    elsewhere = "a deployment runs in a temporary folder" if deployment.id is not None else ""
    if FlowRunContext.get() is not None and "://" in os.environ.get(RUNNER_VARIABLE, ""):
        elsewhere = elsewhere or f"the workers of {os.environ[RUNNER_VARIABLE]} have folders of their own"
    if elsewhere and "://" not in workspace and not Path(workspace).is_absolute():
        raise RequestError(
            f"workspace {workspace!r} is relative, but {elsewhere}; give an absolute path or a URI (CAPIM_WORKSPACE "
            "or --workspace; in a deployment config.workspace)"
        )


class Pruned(NamedTuple):
    """Everything that a prune removed, or would remove: of the store, folders of reports, and bytes by compacting."""

    plan: Pruning
    reports: tuple[str, ...]
    freed: int


@run_flow("prune", hours=24, title=lambda keep=30, **_: f"all but {keep} runs")
def prune(workspace: str | None = None, keep: int = 30, done: bool = True) -> Pruned:
    """Keep what reports show, the newest runs, the baselines of watches and what running runs use; remove the rest.

    Args:
        workspace: folder or URI that holds store/ and reports/ (default: $CAPIM_WORKSPACE of the process that runs)
        keep: how many of the newest runs are kept, with their reports
        done: remove it; false: only say what would go
    """
    config = run_config({"workspace": workspace})
    store = EmbeddingStore.open(config.store_uri)
    if done:
        _mark_interrupted(store)
    plan = remove(store, keep=keep) if done else plan_pruning(store, keep=keep)
    folders = folders_of(config.reports_uri)
    reports = tuple(name for name in folders if name < plan.runs[0]) if plan.runs else ()
    if not plan.running:  # a run writes its page before its folder points there
        reports += tuple(unused_pages(config.reports_uri, {*folders} - {*reports}))
    freed = 0
    if done:
        for name in reports:
            remove_folder(f"{config.reports_uri}/{name}")
        freed = compact_store(store)
    return Pruned(plan, reports, freed)
