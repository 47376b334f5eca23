"""Workspaces are kept while a job may need them, and removed afterwards."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.worker.event_waits import WAIT_TIMEOUT, events_of, is_running, wait_for_event
from tests.worker.spy_store import SpyStore
from tests.worker.workers import run_burst, run_to_end, running_worker

from windlass import Cancel, Context, Job, Snooze, State, Windlass, fixed
from windlass.core.decisions.transition import ApplyRequest, ApplyResult, CancelRequest, Transition
from windlass.core.event import EventType
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.job.state import Trigger
from windlass.store import Retention
from windlass.stores.memory import MemoryStore
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.history_helpers import finished
from windlass.testing.factories import enqueue_one
from windlass.worker.loops.sweeper import Sweeper
from windlass.worker.loops.workspace_cleaner import WorkspaceCleaner
from windlass.workspace import WorkspaceKind, Workspaces

HOUR = 3600.0


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
async def app(data: Path) -> AsyncIterator[Windlass]:
    app = Windlass("memory:", data=data)
    yield app
    await app.aclose()


def workspace_kinds(data: Path) -> list[str]:
    return sorted(str(directory.relative_to(data).parent) for directory in data.glob("*/*"))


def set_age(data: Path, hours: float) -> None:
    """Set the modification time of every workspace to this long ago."""
    then = time.time() - hours * HOUR
    for directory in data.glob("*/*"):
        os.utime(directory, (then, then))


def write_files(ctx: Context) -> None:
    (ctx.workspace / "part").write_text("half")
    (ctx.proxy / "small").write_text("film")


# -- end of a job


async def test_a_workspace_is_kept_between_attempts_and_removed_with_the_success(
    app: Windlass, data: Path
) -> None:
    @app.task(max_retries=1, backoff=fixed(0))
    def task(ctx: Context) -> str:
        if ctx.attempt == 1:
            write_files(ctx)
            raise Snooze(0)
        if ctx.attempt == 2:
            raise OSError("retry")
        return (Path(data, "temp", str(ctx.job.id)) / "part").read_text()

    job = await task.aenqueue()
    await run_burst(app)
    assert await job.aresult() == "half"
    assert workspace_kinds(data) == []


async def test_a_workspace_stays_until_the_success_is_stored(app: Windlass, data: Path) -> None:
    """If the worker dies before that, the next attempt needs the files."""
    seen: list[list[str]] = []

    class RecordingApply(SpyStore):
        async def apply(self, requests: Sequence[ApplyRequest]) -> list[ApplyResult]:
            transitions = [one for one in requests if isinstance(one, Transition)]
            if any(transition.trigger is Trigger.SUCCEED for transition in transitions):
                seen.append(workspace_kinds(data))
            return await super().apply(requests)

    @app.task
    async def task(ctx: Context) -> None:
        write_files(ctx)

    await task.aenqueue()
    await run_burst(app, RecordingApply(app.client().store.twin()))
    assert seen == [["proxy", "temp"]]
    assert workspace_kinds(data) == []


async def test_the_workspace_of_a_failed_job_is_kept_for_its_retry(
    app: Windlass, data: Path
) -> None:
    @app.task(max_retries=0)
    async def task(ctx: Context) -> str:
        if ctx.job.retry_of is None:
            write_files(ctx)
            raise OSError("no")
        return (ctx.workspace / "part").read_text()

    job = await task.aenqueue()
    await run_burst(app)
    assert workspace_kinds(data) == ["proxy", "temp"]
    retry = await job.aretry()
    await run_burst(app)
    assert await retry.aresult() == "half"
    assert workspace_kinds(data) == []


async def test_a_successful_retry_removes_the_workspace_of_the_first_job(
    app: Windlass, data: Path
) -> None:
    @app.task(max_retries=0)
    async def task(ctx: Context) -> None:
        if ctx.job.retry_of is None:
            write_files(ctx)
            raise OSError("no")

    job = await task.aenqueue()
    await run_burst(app)
    await job.aretry()
    await run_burst(app)
    assert workspace_kinds(data) == []


@pytest.mark.parametrize("by_task", [True, False], ids=["by the task", "from outside"])
async def test_a_workspace_is_removed_before_the_cancel_is_stored(
    app: Windlass, data: Path, by_task: bool
) -> None:
    @app.task
    async def task(ctx: Context) -> None:
        write_files(ctx)
        if by_task:
            raise Cancel("enough")
        await asyncio.Event().wait()

    job = await task.aenqueue()
    async with running_worker(app, cancel_poll_interval=0.01):
        async for event in job.aevents():
            if is_running(event) and not by_task:
                await job.acancel()
            if event.final:
                assert workspace_kinds(data) == []
    assert (await job.arefresh()).state is State.CANCELED


async def test_a_failed_removal_is_a_warning_and_no_failure(
    app: Windlass, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def task(ctx: Context, cancel: bool) -> None:
        write_files(ctx)
        (data / "temp").rename(data / f"elsewhere-{ctx.job.id}")
        (data / "temp").symlink_to(data / f"elsewhere-{ctx.job.id}")
        if cancel:
            raise Cancel("enough")

    job = await task.aenqueue(cancel=True)
    assert (await run_to_end(app, job)).state is State.CANCELED
    [warning] = await events_of(job, EventType.WARNING)
    assert "was not removed" in warning.data["message"]
    (data / "temp").unlink()
    with caplog.at_level(logging.WARNING, "windlass.worker"):
        succeeded = await task.aenqueue(cancel=False)
        await run_burst(app)  # ends after the settle and the work that follows it
    assert (await succeeded.arefresh()).state is State.SUCCEEDED
    assert f"the workspace of job {succeeded.id} was not removed" in caplog.text


async def test_a_job_that_uses_no_workspace_creates_no_directory(app: Windlass, data: Path) -> None:
    @app.task
    async def task(ctx: Context) -> None: ...

    await task.aenqueue()
    await run_burst(app)
    assert not list(data.parent.iterdir())


# -- orphans


async def job_with_files(app: Windlass, data: Path) -> Job[None]:
    """Return a job that waits for its next attempt, with both kinds of workspace."""

    @app.task(name="waits")
    async def waits(ctx: Context) -> None:
        write_files(ctx)
        raise Snooze(HOUR)

    job = await waits.aenqueue()
    async with running_worker(app):
        await wait_for_event(job, lambda event: event.data["status"] == "retrying")
    assert workspace_kinds(data) == ["proxy", "temp"]
    return job


async def test_orphans_are_removed_at_the_age_limit_of_their_kind(
    app: Windlass, data: Path
) -> None:
    job = await job_with_files(app, data)
    await job.acancel()
    await app.client().store.delete([job.id])
    cleaner = WorkspaceCleaner(app.client().store, Workspaces(data))
    set_age(data, 23)
    assert (await cleaner.remove_orphans(), workspace_kinds(data)) == (0, ["proxy", "temp"])
    set_age(data, 25)
    assert (await cleaner.remove_orphans(), workspace_kinds(data)) == (1, ["proxy"])
    set_age(data, 49)
    assert (await cleaner.remove_orphans(), workspace_kinds(data)) == (1, [])


async def test_the_workspace_of_a_job_canceled_between_attempts_is_removed_at_the_next_search(
    app: Windlass, data: Path
) -> None:
    job = await job_with_files(app, data)
    cleaner = WorkspaceCleaner(app.client().store, Workspaces(data))
    assert await cleaner.remove_orphans() == 0
    await job.acancel()
    retry = await job.aretry()
    assert await cleaner.remove_orphans() == 0  # its retry uses the same workspace
    await retry.acancel()
    assert (await cleaner.remove_orphans(), workspace_kinds(data)) == (2, [])


async def test_the_workspace_of_an_active_job_is_never_an_orphan(app: Windlass, data: Path) -> None:
    await job_with_files(app, data)
    set_age(data, 1000)
    assert await WorkspaceCleaner(app.client().store, Workspaces(data)).remove_orphans() == 0
    assert workspace_kinds(data) == ["proxy", "temp"]


async def test_an_active_retry_keeps_the_workspace_of_the_first_job(
    app: Windlass, data: Path
) -> None:
    job = await job_with_files(app, data)
    await job.acancel()
    store = app.client().store
    first = await job.aretry()
    await first.acancel()
    second = await first.aretry()
    cleaner = WorkspaceCleaner(store, Workspaces(data))
    set_age(data, 1000)
    assert await cleaner.remove_orphans() == 0
    await store.delete([job.id])  # also when the first job is deleted
    assert await cleaner.remove_orphans() == 0
    await second.acancel()
    assert await cleaner.remove_orphans() == 2


async def test_a_worker_removes_orphans_of_deleted_jobs(app: Windlass, data: Path) -> None:
    Workspaces(data).path(WorkspaceKind.TEMP, uuid7())
    set_age(data, 25)
    (data / "temp" / "not-ours").mkdir()
    async with running_worker(app):
        async with asyncio.timeout(20):
            while len(workspace_kinds(data)) > 1:  # noqa: ASYNC110 - no event for a directory
                await asyncio.sleep(0.01)
    assert [directory.name for directory in (data / "temp").iterdir()] == ["not-ours"]


async def test_a_rescue_cleans_up_a_canceled_job_of_a_dead_worker(
    data: Path,
) -> None:
    clock = VirtualClock()
    app = Windlass("memory:", clock=clock)

    @app.task
    async def task(ctx: Context) -> None: ...

    job = await task.aenqueue()
    store = app.client().store
    [row] = await store.claim(
        Claim(token=uuid7(), worker="dead", queues=[("default", 1)], lease=30)
    )
    Workspaces(data).path(WorkspaceKind.TEMP, row.lineage)
    await job.acancel()
    clock.advance(31)
    cleaner = WorkspaceCleaner(store, Workspaces(data))
    assert await Sweeper(store, 1, Retention(), cleaner).once() == 1
    assert (await job.arefresh()).state is State.CANCELED
    await cleaner.remove_next(WAIT_TIMEOUT)
    assert workspace_kinds(data) == []
    await app.aclose()


async def test_an_active_retry_keeps_the_workspace_after_other_retries_are_deleted(
    tmp_path: Path,
) -> None:
    store = MemoryStore()
    first = await finished(store)
    second = await finished(store, retry_of=first.id)
    third = await enqueue_one(store, retry_of=second.id)
    await store.delete([second.id])
    workspaces = Workspaces(tmp_path / "data")
    directory = workspaces.path(WorkspaceKind.TEMP, first.id)
    os.utime(directory, (0, 0))

    assert await WorkspaceCleaner(store, workspaces).remove_orphans() == 0
    assert directory.exists()

    await store.apply([CancelRequest(job_id=third.id)])
    assert await WorkspaceCleaner(store, workspaces).remove_orphans() == 1
    assert not directory.exists()
