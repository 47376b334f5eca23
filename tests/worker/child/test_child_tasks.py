"""Tasks in child processes: same behavior and log as in the worker, isolated failures."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.process.process_table import WAIT_TIMEOUT, alive, until_gone, wait_for_file
from tests.worker.child import child_tasks

from windlass import Cancel, ConfigurationError, Context, Snooze, Windlass
from windlass.core.codec import JsonCodec, Purpose
from windlass.core.decisions.outcome import Succeeded
from windlass.core.decisions.transition import SignalRequest
from windlass.core.event import Event, EventType
from windlass.core.job.new_job import CORRELATION_ID, NewJob
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.process import ProcessDiedError
from windlass.stores.memory import MemoryStore
from windlass.task_spec import TaskSpec
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import claim_all, read_events, settle_one, start_one
from windlass.worker import AppParts
from windlass.worker.child import job_json
from windlass.worker.child.executor import ChildExecutor
from windlass.worker.execution.error_info import RemoteError
from windlass.worker.suspension import Suspend
from windlass.workspace import Workspaces

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def children() -> AsyncIterator[ChildExecutor]:
    """Shared, so that most tests find a warm child."""
    children = ChildExecutor(limit=4, app=child_tasks.app, lifespan=True, grace=WAIT_TIMEOUT)
    yield children
    await children.aclose()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock=VirtualClock())


def context_of(row: JobRow, store: MemoryStore, parts: AppParts | None = None) -> Context:
    return Context(row, store, JsonCodec(), asyncio.get_running_loop(), parts=parts)


async def start_attempt(store: MemoryStore, parts: AppParts | None = None) -> Context:
    return context_of(await start_one(store), store, parts)


async def run(children: ChildExecutor, task: Any, context: Context, **arguments: Any) -> Any:
    return await asyncio.wait_for(children.run(task.spec, context, arguments), 2 * WAIT_TIMEOUT)


def log_lines(context: Context) -> list[str]:
    """Take the pending events of the context; return the lines of its log."""
    lines = [record.body for record in context.take() if record.type is EventType.LOG]
    return [JsonCodec().decode(body or b"", Purpose.EVENT)["message"] for body in lines]


# -- arguments, results, errors


async def test_arguments_and_results_follow_the_signature(
    children: ChildExecutor, store: MemoryStore
) -> None:
    order = {"day": "2026-01-02", "items": ["a", "é"]}
    result = await run(
        children, child_tasks.double, await start_attempt(store), order=order, times=3
    )
    assert result == {"day": "2026-01-02", "items": ["a", "é"] * 3}


async def test_children_are_warm_and_each_runs_one_job_at_a_time(
    children: ChildExecutor, store: MemoryStore
) -> None:
    pid = await run(children, child_tasks.pid, await start_attempt(store))
    assert pid == await run(children, child_tasks.pid, await start_attempt(store))
    contexts = [await start_attempt(store) for _ in range(3)]
    several = await asyncio.gather(*(run(children, child_tasks.pid, ctx) for ctx in contexts))
    assert len(set(several)) == 3
    assert pid in several
    assert os.getpid() not in several


async def test_the_job_is_the_same_in_the_child(
    children: ChildExecutor, store: MemoryStore
) -> None:
    context = await start_attempt(store)
    result = await run(children, child_tasks.same, context)
    spec: TaskSpec = child_tasks.same.spec
    assert spec.signature.restore_result(result) == context.job


@pytest.mark.parametrize(
    ("how", "kind", "code", "retryable", "message"),
    [
        ("key", "KeyError", "KeyError", True, "'the key'"),
        ("value", "ValueError", "ValueError", False, "not in retry_on"),
        ("permission", "PermissionError", "PermissionError", False, "terminal_on wins"),
        ("input", "InvalidInput", "invalid_input", False, "cannot be worked with"),
        ("after", "RetryAfter", "retry_after", True, "busy"),
        ("exit", "SystemExit", "SystemExit", False, "3"),
        ("odd", "OddError", "OddError", False, "OddError"),
    ],
)
async def test_an_error_is_classified_in_the_child(  # noqa: PLR0917
    children: ChildExecutor,
    store: MemoryStore,
    how: str,
    kind: str,
    code: str,
    retryable: bool,
    message: str,
) -> None:
    with pytest.raises(RemoteError, match=kind) as caught:
        await run(children, child_tasks.fail, await start_attempt(store), how=how)
    raised = caught.value.info
    assert (raised.type, raised.code, raised.retryable) == (kind, code, retryable)
    assert raised.message == message
    assert raised.delay == (300 if how == "after" else None)
    assert "raise errors[how]" in raised.traceback
    assert raised.traceback.splitlines()[1].startswith(f'  File "{child_tasks.__file__}"')


async def test_snooze_and_cancel_are_raised_as_themselves(
    children: ChildExecutor, store: MemoryStore
) -> None:
    with pytest.raises(Snooze, match="zzz") as snoozed:
        await run(children, child_tasks.fail, await start_attempt(store), how="snooze")
    assert snoozed.value.delay == 7
    with pytest.raises(Cancel) as canceled:
        await run(children, child_tasks.fail, await start_attempt(store), how="cancel")
    assert canceled.value.reason == "no longer needed"


async def test_invalid_arguments_and_results_have_clear_errors(
    children: ChildExecutor, store: MemoryStore
) -> None:
    for task, code, message in (
        (child_tasks.double, "invalid_input", "argument 'order': missing"),
        (child_tasks.unstorable_result, "invalid_result", "unstorable_result"),
        (child_tasks.large_result, "invalid_result", "the limit is 1,048,576"),
    ):
        with pytest.raises(RemoteError, match=message) as caught:
            await run(children, task, await start_attempt(store))
        assert code in {caught.value.info.code, caught.value.info.type}


# -- ctx


async def test_a_task_records_the_same_events_in_a_child_as_in_the_worker(
    children: ChildExecutor, store: MemoryStore
) -> None:
    in_worker, in_child = await start_attempt(store), await start_attempt(store)
    result = await asyncio.to_thread(child_tasks.emit_everything, in_worker)
    assert result == await run(children, child_tasks.emits, in_child) == "2 1 1 False"
    events, kept = [], []
    for context in (in_worker, in_child):
        await context.flush()
        events.append([_event_data(event) for event in await read_events(store, context.job.id)])
        [points] = await store.checkpoints([context.job.id])
        kept.append({name: point.value for name, point in points.items()})
    assert events[0] == events[1]
    assert kept[0] == kept[1]
    assert len(events[0]) > 15
    assert set(kept[0]) == {"first", "outer", "inner", "broken"}


def _event_data(event: Event) -> Any:
    return event.seq, event.type, event.body, {**event.data, "jobId": None, "correlationId": None}


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("stage", "InvalidArgumentError: the stage"),
        ("kind", "InvalidArgumentError: 'nonsense' is no event type"),
        ("json", "CodecError: cannot encode the checkpoint as JSON: a is"),
        ("large", "TooLargeError: "),
        ("enqueue", "ConfigurationError: ctx.enqueue in a child process would store"),
    ],
)
async def test_an_event_that_cannot_be_stored_is_refused_at_the_call(
    children: ChildExecutor, store: MemoryStore, how: str, message: str
) -> None:
    result = await run(children, child_tasks.refused, await start_attempt(store), how=how)
    assert result.startswith(message)


async def test_finished_steps_are_not_run_again(
    children: ChildExecutor, store: MemoryStore, tmp_path: Path
) -> None:
    first = await start_attempt(store)
    mark = tmp_path / "mark"
    with pytest.raises(RemoteError, match="after four steps"):
        await run(children, child_tasks.steps, first, mark=str(mark))
    second = context_of(first.job, store)  # like the context of the next attempt
    second.job = job_json.from_json(JobRow, {**job_json.to_json(first.job), "attempt": 2})
    assert await run(children, child_tasks.steps, second, mark=str(mark)) == ["a", "b"]
    assert sorted(mark.read_text()) == list("abcd")


async def test_child_jobs_are_stored_with_the_success_or_not_at_all(
    children: ChildExecutor, store: MemoryStore
) -> None:
    context = await start_attempt(store)
    made = await run(children, child_tasks.enqueues_child, context, fails=False)
    [child] = context.children
    assert (str(child.id), child.task, child.priority) == (made, child_tasks.double.name, 3)
    assert json.loads(child.payload) == {"order": {"day": "2026-01-02", "items": ["a"]}}
    assert child.headers[CORRELATION_ID] == (context.job.correlation_id or str(child.id))
    context = await start_attempt(store)
    with pytest.raises(RemoteError):
        await run(children, child_tasks.enqueues_child, context, fails=True)
    assert context.children == []


async def test_a_task_waits_for_a_signal_and_for_jobs(
    children: ChildExecutor, store: MemoryStore
) -> None:
    class Stamp:
        def enqueue(self, new: NewJob) -> NewJob:
            return replace(new, team="ours")

    async def suspended(context: Context) -> Suspend:
        with pytest.raises(Suspend) as raised:
            await run(children, child_tasks.fans_out, context, days=["2026-01-02", "2026-01-03"])
        return raised.value

    parts = AppParts()
    parts.middleware.add(Stamp())
    context = await start_attempt(store, parts)
    suspension = await suspended(context)
    assert (suspension.awaits, suspension.children, suspension.signals) == ((), (), 0)
    assert suspension.timeout is not None
    await store.apply([SignalRequest(job_id=context.job.id, name="go", value=b'"went"')])

    context = context_of(context.job, store, parts)
    suspension = await suspended(context)
    assert suspension.awaits == tuple(child.id for child in suspension.children)
    assert [json.loads(child.payload)["order"]["day"] for child in suspension.children] == [
        "2026-01-02", "2026-01-03",
    ]  # fmt: skip
    assert {(child.team, child.tags) for child in suspension.children} == {("ours", ("part",))}

    await store.enqueue(suspension.children)
    for row in await claim_all(store, "default"):
        await settle_one(store, row, Succeeded(result=b'{"items": ["done"]}'))
    context = context_of(context.job, store)
    results = await run(children, child_tasks.fans_out, context, days=["2026-01-02", "2026-01-03"])
    assert results == [["done"], ["done"]]


async def test_a_child_uses_the_workspace_of_the_job(
    children: ChildExecutor, store: MemoryStore, tmp_path: Path
) -> None:
    context = await start_attempt(store, AppParts(workspaces=Workspaces(tmp_path)))
    paths = await run(children, child_tasks.writes, context)
    assert paths == [str(context.workspace), str(context.proxy)]
    assert (context.workspace / "file").read_text() == "kept"
    context = await start_attempt(store)
    with pytest.raises(RemoteError, match="no data directory"):
        await run(children, child_tasks.writes, context)


async def test_events_of_a_thread_that_outlives_its_task_are_dropped(
    children: ChildExecutor, store: MemoryStore
) -> None:
    left = await run(children, child_tasks.leaves_a_thread, await start_attempt(store))
    context = await start_attempt(store)
    assert await run(children, child_tasks.stale_thread_sends, context) == [left, True]
    assert context.take() == ()
    with pytest.raises(ProcessDiedError):
        await run(children, child_tasks.dies, context, how="exit")


async def test_a_message_sent_at_the_end_of_an_attempt_belongs_to_that_attempt(
    children: ChildExecutor, store: MemoryStore
) -> None:
    first, second = await start_attempt(store), await start_attempt(store)
    await run(children, child_tasks.leaves_a_thread_that_is_sending, first)
    assert await run(children, child_tasks.message_was_sent, second)
    assert [len(first.take()), len(second.take())] == [1, 0]


# -- the lifespan


async def test_each_child_enters_the_lifespan_once_and_leaves_it_in_order(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ChildExecutor(limit=1, app=child_tasks.app, lifespan=True, grace=WAIT_TIMEOUT)
    monkeypatch.setenv("SAMPLE_LIFE", str(tmp_path / "broken"))
    pid = await run(
        own, child_tasks.pid, await start_attempt(store)
    )  # no task that uses the lifespan
    with pytest.raises(RemoteError, match="failed to start in a child process: OSError: no such"):
        await run(own, child_tasks.pid_of, await start_attempt(store))
    assert not alive(pid)  # the next job gets a new child
    mark = tmp_path / "mark"
    monkeypatch.setenv("SAMPLE_LIFE", str(mark))
    for _ in range(2):
        pid, state = await run(own, child_tasks.pid_of, await start_attempt(store))
        assert pid == state
    assert mark.read_text() == "up "
    await own.aclose()
    assert mark.read_text() == "up down"


# -- the end of a child


async def test_a_crashed_child_affects_no_other_job(
    children: ChildExecutor, store: MemoryStore
) -> None:
    waiting = await start_attempt(store)
    other_job = asyncio.ensure_future(run(children, child_tasks.stuck, waiting))
    await _pids(waiting)
    for how, message in (
        ("segfault", "was killed by SIGSEGV"),
        ("exit", "exited with code 3"),
        ("kill", "was killed by SIGKILL"),
        ("close", "was killed by SIGKILL"),
    ):
        context = await start_attempt(store)
        with pytest.raises(ProcessDiedError, match=message):
            await run(children, child_tasks.dies, context, how=how)
        assert log_lines(context)[-1] == "100 last line"
    assert not other_job.done()
    other_job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await other_job


async def _pids(context: Context) -> list[int]:
    """Read the first log line of a hanging task: its pid and those of its children."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        while True:
            if lines := log_lines(context):
                return [int(pid) for pid in lines[0].split()]
            await asyncio.sleep(0.005)


async def test_a_stopped_task_cleans_up_and_ends_with_its_descendants(
    children: ChildExecutor, store: MemoryStore
) -> None:
    for task in (child_tasks.stuck, child_tasks.stuck_async):
        context = await start_attempt(store)
        running = asyncio.ensure_future(children.run(task.spec, context, {}))
        pids = await _pids(context)
        for _ in range(5):  # repeated cancels must wait, too
            running.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not alive(pids[0])
        assert log_lines(context) == ["cleaned up, cancelled: True"]
        await until_gone(*pids)


async def test_a_task_that_cannot_be_interrupted_is_killed_after_the_grace(
    store: MemoryStore, tmp_path: Path
) -> None:
    """In a C call that keeps the interpreter's lock."""
    mark = tmp_path / "mark"
    own = ChildExecutor(limit=1, app=child_tasks.app, grace=0.1)
    context = await start_attempt(store)
    running = asyncio.ensure_future(own.run(child_tasks.stuck.spec, context, {"held": str(mark)}))
    pids = await _pids(context)
    await asyncio.to_thread(wait_for_file, mark)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await running
    assert not alive(pids[0])
    await until_gone(*pids)
    await own.aclose()


# -- finding the task


async def test_a_function_that_a_child_cannot_find_is_refused(
    children: ChildExecutor, store: MemoryStore
) -> None:
    app = Windlass("memory:")

    @app.task
    def local() -> None: ...

    with pytest.raises(ConfigurationError, match=r"local' cannot run in a child.*defined inside"):
        await run(children, local, await start_attempt(store))
    await app.aclose()


SHOP = """
from pathlib import Path
from windlass import Context, Windlass

if Path("{flag}").exists():
    raise ImportError("the shop is closed")
app = Windlass("sqlite:///{jobs}")

@app.task
def order(ctx: Context, item: str) -> str:
    return str(ctx.enqueue(order, item="more").id)

@app.task
async def aorder(ctx: Context, item: str) -> str:
    return str((await ctx.aenqueue(order, item="more")).id)

def plain() -> str:
    return "plain"

renamed = app.task(plain)
del plain
"""


@pytest.mark.slow
async def test_a_child_enqueues_by_its_own_app_or_reports_that_it_cannot_load_it(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = tmp_path / "closed"
    (tmp_path / "shop.py").write_text(SHOP.format(flag=flag, jobs=tmp_path / "jobs.db"))
    monkeypatch.syspath_prepend(str(tmp_path))
    shop = importlib.import_module("shop")
    own = ChildExecutor(limit=1, app=shop.app, grace=WAIT_TIMEOUT)
    flag.touch()
    with pytest.raises(RemoteError, match=r"cannot start in a child.*the shop is closed") as caught:
        await run(own, shop.order, await start_attempt(store), item="a")
    assert caught.value.info.retryable
    assert "shop.py" in caught.value.info.traceback
    flag.unlink()
    with pytest.raises(RemoteError, match="cannot find plain of shop"):
        await run(own, shop.renamed, await start_attempt(store))
    context = await start_attempt(store)
    for task in (shop.order, shop.aorder):
        made = await run(own, task, context, item="a")
        job = await shop.app.ajob(made)
        assert (job.row.state, job.row.task) == (State.QUEUED, "shop.order")
        assert job.row.correlation_id == (context.job.correlation_id or made)
    await own.aclose()
    await shop.app.aclose()
    del sys.modules["shop"]


SCRIPT = """
import asyncio
from windlass import Context, Windlass
from windlass.core.codec import JsonCodec
from windlass.stores.memory import MemoryStore
from windlass.testing.factories import start_one
from windlass.worker.child.executor import ChildExecutor

app = Windlass("memory:")

@app.lifespan
async def life():
    yield "state"

@app.task
def task(ctx: Context, number: int) -> str:
    return f"{{__name__}} {{ctx.state}} {{number}}"

async def main():
    children = ChildExecutor(limit=1, app=app, lifespan=True)
    store = MemoryStore()
    context = Context(await start_one(store), store, JsonCodec(), asyncio.get_running_loop())
    try:
        print(await children.run(task.spec, context, {{"number": 7}}))
    except Exception as error:
        print(error)
    await children.aclose()
    await app.aclose()

{guard}asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("guard", "output"),
    [
        ('if __name__ == "__main__": ', "__mp_main__ state 7"),
        ("", "start it under"),
    ],
)
async def test_a_task_of_the_main_script_runs_in_a_child(
    tmp_path: Path, guard: str, output: str
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(guard=guard))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        tmp_path / "script.py",
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 2 * WAIT_TIMEOUT)
    assert output in out.decode()
    assert process.returncode == 0


# -- other


async def test_child_processes_work_with_uvloop(store: MemoryStore) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def work() -> Any:
        own = ChildExecutor(limit=1, app=child_tasks.app, lifespan=True, grace=WAIT_TIMEOUT)
        result = await run(own, child_tasks.emits, context := await start_attempt(store))
        with pytest.raises(ProcessDiedError):
            await run(own, child_tasks.dies, context, how="exit")
        await own.aclose()
        return result

    def run_with_uvloop() -> Any:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work())

    assert await asyncio.to_thread(run_with_uvloop) == "2 1 1 False"


async def test_jobs_survive_json_encoding_unchanged() -> None:
    new = NewJob(
        id=uuid.uuid4(), task="t", payload=b"\x00\xff", tags=("a",), headers={"k": "v"},
        run_at=5, retry_of=uuid.uuid4(), policy=child_tasks.fail.spec.options.policy,
    )  # fmt: skip
    assert job_json.from_json(NewJob, json.loads(json.dumps(job_json.to_json(new)))) == new
