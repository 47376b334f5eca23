"""Process tasks in a real worker, and isolation of jobs that kill their process."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.child import isolation_tasks
from tests.worker.event_waits import WAIT_TIMEOUT, events_of, is_running, wait_for_event
from tests.worker.workers import running_worker

from windlass import ConfigurationError, Job, Windlass
from windlass.core.event import EventType
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.job.row import JobRow
from windlass.core.job.state import State

LONG = 3 * WAIT_TIMEOUT  # a cold child imports all modules


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Windlass]:
    async with isolation_tasks.make_app(tmp_path) as app:
        yield app


@pytest.fixture(autouse=True)
def assert_no_child_left() -> Iterator[None]:
    before = isolation_tasks.descendants(os.getpid())
    yield
    assert isolation_tasks.descendants(os.getpid()) <= before


async def run_to_end(app: Windlass, job: Job[Any]) -> JobRow:
    """Run a worker until the job has finished, with time for cold children; return its row."""
    async with running_worker(app):
        return (await job.await_end(LONG)).row


async def test_a_process_task_runs_in_a_child_and_its_events_are_stored(app: Windlass) -> None:
    job = await isolation_tasks.count.aenqueue(3)
    row = await run_to_end(app, job)
    assert row.state is State.SUCCEEDED
    pid, total = await job.aresult(WAIT_TIMEOUT)
    assert (pid != os.getpid(), total) == (True, 3)
    events = await events_of(job, EventType.LOG)
    assert [event.data["message"] for event in events] == ["counted 1", "counted 2", "counted 3"]


@pytest.mark.parametrize(
    "how", ["segfault", *(pytest.param(how, marks=pytest.mark.slow) for how in ("exit", "killed"))]
)
async def test_a_dead_child_counts_as_a_crash_and_the_job_fails_at_its_cap(
    app: Windlass, how: str
) -> None:
    job = await isolation_tasks.die.aenqueue(how)
    row = await run_to_end(app, job)
    assert row.state is State.FAILED
    assert (row.crash_count, row.retry_count, row.attempt) == (2, 0, 2)
    assert row.error is not None
    assert row.error.code == "crashed"
    assert job.last_error is not None
    assert "was killed by" in job.last_error["message"] or "code 3" in job.last_error["message"]


async def test_a_child_held_in_a_c_call_is_killed_at_its_timeout(app: Windlass) -> None:
    job = await isolation_tasks.time_out.aenqueue()
    row = await run_to_end(app, job)
    assert row.state is State.FAILED
    assert row.error is not None
    assert row.error.code == "timeout"


async def test_a_cancel_reaches_a_child_that_holds_the_interpreter(app: Windlass) -> None:
    job = await isolation_tasks.block_interpreter.aenqueue()
    async with running_worker(app):
        await wait_for_event(job, is_running)
        await job.acancel("enough")
        row = (await job.await_end(LONG)).row
    assert row.state is State.CANCELED


async def test_a_job_that_was_running_when_a_worker_died_runs_in_a_child_process(
    app: Windlass,
) -> None:
    job = await isolation_tasks.get_pid.aenqueue()
    store = app.client().store
    await store.claim(Claim(token=uuid7(), worker="dead", queues=[("default", 1)], lease=0.01))
    row = await run_to_end(app, job)
    assert (row.state, row.crash_count, row.attempt) == (State.SUCCEEDED, 1, 2)
    assert await job.aresult(WAIT_TIMEOUT) != os.getpid()


async def test_a_job_that_kills_workers_fails_at_its_crash_cap_and_others_succeed(
    app: Windlass,
) -> None:
    """A worker that claimed all of them was killed by one of the jobs."""
    killing_job = await isolation_tasks.kill_my_process.aenqueue()
    other_jobs = [await isolation_tasks.get_pid.aenqueue() for _ in range(5)]
    store = app.client().store
    await store.claim(Claim(token=uuid7(), worker="dead", queues=[("default", 6)], lease=0.01))
    async with running_worker(app, queues={"default": 2}):
        row = (await killing_job.await_end(LONG)).row
        states = [(await job.await_end(LONG)).state for job in other_jobs]
    assert states == [State.SUCCEEDED] * 5
    assert (row.state, row.crash_count) == (State.FAILED, 3)


async def test_an_isolated_job_whose_child_cannot_start_runs_in_the_worker(
    app: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    """No module holds this app, so no child can find the lifespan that the task needs."""

    @app.lifespan
    async def life() -> AsyncIterator[str]:
        yield "state"

    job = await isolation_tasks.get_pid_with_state.aenqueue()
    store = app.client().store
    await store.claim(Claim(token=uuid7(), worker="dead", queues=[("default", 1)], lease=0.01))
    row = await run_to_end(app, job)
    assert (row.state, row.retry_count) == (State.SUCCEEDED, 0)
    assert await job.aresult(WAIT_TIMEOUT) == os.getpid()
    assert "cannot be isolated in a child process" in caplog.text


async def test_a_process_task_must_be_importable_by_a_child(app: Windlass) -> None:
    with pytest.raises(ConfigurationError, match="move it to module level"):

        @app.task(executor="process")
        def hidden() -> None: ...

    with pytest.raises(ConfigurationError, match='"process" or None'):
        app.task(executor="thread")


async def test_a_stopping_worker_releases_the_jobs_of_its_children(app: Windlass) -> None:
    job = await isolation_tasks.block_interpreter.aenqueue()
    async with running_worker(app, grace=0.0):
        await wait_for_event(job, is_running)
    await job.arefresh()
    assert (job.state, job.row.retry_count, job.row.crash_count) == (State.QUEUED, 0, 0)
