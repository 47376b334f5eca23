"""Rules of the job queue with live progress: cancel, cleanup, and the events of a job."""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.specs.factories import (
    FOREVER,
    WAIT_TIMEOUT,
    end,
    events_of,
    eventually,
    fill,
    make_old,
    pass_time,
    reach,
    wait_for_event,
    working,
    workspace_kinds,
)

from windlass import (
    Cancel,
    Context,
    InvalidInput,
    Job,
    NotFoundError,
    State,
    Windlass,
    fixed,
)
from windlass.core.event import EventType
from windlass.testing import VirtualClock

# -- cancel


async def test_a_cancel_stops_an_async_task_before_its_next_stage(app: Windlass) -> None:
    stages: list[str] = []

    @app.task
    async def task(ctx: Context) -> None:
        async def work(name: str) -> None:
            stages.append(name)
            if name == "voice":
                await asyncio.sleep(FOREVER)

        for name in ("script", "voice", "visuals"):
            await ctx.astep(name, work, name)

    job = await task.aenqueue()
    async with working(app):
        await eventually(lambda: stages == ["script", "voice"])
        assert await job.acancel("enough") is State.RUNNING  # only requested; cleanup follows
        await job.await_end(WAIT_TIMEOUT)
    assert stages == ["script", "voice"]
    assert (job.state, job.row.cancel_reason) == (State.CANCELED, "enough")


async def test_a_cancel_notifies_a_sync_task_which_then_stops(app: Windlass) -> None:
    stages: list[str] = []
    voice = threading.Event()

    @app.task
    def task(ctx: Context) -> None:
        for name in ("script", "voice", "visuals"):
            if ctx.cancelled:
                return
            stages.append(name)
            if name == "voice":
                voice.set()
                assert ctx.cancel_flag.wait(WAIT_TIMEOUT)

    job = await task.aenqueue()
    async with working(app):
        assert await asyncio.to_thread(voice.wait, WAIT_TIMEOUT)
        await job.acancel()
        await job.await_end(WAIT_TIMEOUT)
    assert (stages, job.state) == (["script", "voice"], State.CANCELED)


async def test_an_accepted_cancel_wins_over_a_later_success(app: Windlass) -> None:
    started, go = threading.Event(), threading.Event()

    @app.task
    def task() -> str:
        started.set()
        assert go.wait(WAIT_TIMEOUT)
        return "done all the same"

    job = await task.aenqueue()
    async with working(app):
        assert await asyncio.to_thread(started.wait, WAIT_TIMEOUT)
        await job.acancel()
        go.set()
        row = (await job.await_end(WAIT_TIMEOUT)).row
    assert (row.state, row.result) == (State.CANCELED, None)


async def test_a_canceled_job_enqueues_no_children(app: Windlass) -> None:
    ran: list[int] = []
    started, go = threading.Event(), threading.Event()
    child: list[UUID] = []

    @app.task
    async def downstream() -> None:
        ran.append(1)

    @app.task
    def task(ctx: Context) -> None:
        child.append(ctx.then(downstream))
        started.set()
        assert go.wait(WAIT_TIMEOUT)

    job = await task.aenqueue()
    async with working(app):
        assert await asyncio.to_thread(started.wait, WAIT_TIMEOUT)
        await job.acancel()
        go.set()
        await job.await_end(WAIT_TIMEOUT)
    with pytest.raises(NotFoundError):
        await app.ajob(child[0])
    assert not ran


async def test_a_cancel_has_events_at_its_request_and_its_end(app: Windlass) -> None:
    @app.task
    async def task(ctx: Context) -> None:
        ctx.stage("Voice")
        await asyncio.sleep(FOREVER)

    job = await task.aenqueue()
    async with working(app):
        await reach(job, State.RUNNING)
        await job.acancel("the customer left")
        await job.await_end(WAIT_TIMEOUT)
    requested, done = [e for e in await events_of(job) if e.type.startswith(("cancel", "job-can"))]
    assert (requested.type, requested.data["reason"]) == (
        EventType.CANCEL_REQUESTED,
        "the customer left",
    )
    assert done.type is EventType.JOB_CANCELLED
    reported = {key: done.data[key] for key in ("status", "jobId", "stage", "message")}
    assert reported == {
        "status": "canceled",
        "jobId": str(job.id),
        "stage": "Voice",
        "message": "the customer left",
    }
    assert done.at == job.row.ended_at


# -- cleanup


async def test_each_job_has_its_own_temp_and_proxy_directories(app: Windlass, data: Path) -> None:
    @app.task
    async def task(ctx: Context) -> list[str]:
        return [str(ctx.workspace), str(ctx.proxy)]

    job = await task.aenqueue()
    await end(app, job)
    assert await job.aresult() == [f"{data}/temp/{job.id}", f"{data}/proxy/{job.id}"]


async def test_the_files_of_a_job_are_removed_before_it_is_canceled(
    app: Windlass, data: Path
) -> None:
    filled = asyncio.Event()

    @app.task
    async def task(ctx: Context) -> None:
        fill(ctx)
        filled.set()
        await asyncio.sleep(FOREVER)

    job = await task.aenqueue()
    async with working(app):
        await asyncio.wait_for(filled.wait(), WAIT_TIMEOUT)
        assert workspace_kinds(data) == ["proxy", "temp"]
        await job.acancel()
        await wait_for_event(job, lambda event: event.final)
        assert workspace_kinds(data) == []


async def test_the_files_of_a_job_that_cancels_itself_are_removed(
    app: Windlass, data: Path
) -> None:
    @app.task
    async def task(ctx: Context) -> None:
        fill(ctx)
        raise Cancel("not needed any more")

    job = await task.aenqueue()
    assert (await end(app, job)).state is State.CANCELED
    assert workspace_kinds(data) == []


async def test_the_files_of_a_job_canceled_between_attempts_are_removed(
    app: Windlass, data: Path
) -> None:
    @app.task(backoff=fixed(60))
    async def task(ctx: Context) -> None:
        fill(ctx)
        raise OSError

    job = await task.aenqueue()
    async with working(app):
        await reach(job, State.RETRYING)
        assert await job.acancel() is State.CANCELED
        await eventually(lambda: workspace_kinds(data) == [], timeout=60)


async def test_the_files_of_a_succeeded_job_are_removed(app: Windlass, data: Path) -> None:
    @app.task
    async def task(ctx: Context) -> None:
        fill(ctx)

    await end(app, await task.aenqueue())
    assert workspace_kinds(data) == []


async def test_the_files_of_a_failed_job_are_kept_for_its_resume(app: Windlass, data: Path) -> None:
    @app.task(max_retries=0)
    def task(ctx: Context) -> str:
        ctx.step("voice", lambda: fill(ctx))
        if ctx.job.retry_of is None:
            raise OSError("no space")
        return (ctx.workspace / "part").read_text() + (ctx.proxy / "small").read_text()

    job = await task.aenqueue()
    await end(app, job)
    assert workspace_kinds(data) == ["proxy", "temp"]
    again = await job.aresume()
    await end(app, again)
    assert (await again.aresult(), workspace_kinds(data)) == ("halffilm", [])


async def test_another_worker_removes_the_files_of_a_canceled_job_of_a_dead_worker(
    app: Windlass, data: Path, clock: VirtualClock
) -> None:
    """The first worker never notices: its machine sleeps until long after the test."""
    filled, go = threading.Event(), threading.Event()

    @app.task
    def task(ctx: Context) -> None:
        fill(ctx)
        filled.set()
        go.wait(WAIT_TIMEOUT)

    job = await task.aenqueue()
    async with working(app, slots=1, cancel_poll_interval=FOREVER, sweep_interval=FOREVER):
        assert await asyncio.to_thread(filled.wait, WAIT_TIMEOUT)
        await job.acancel()
        async with working(app):
            clock.advance(31)
            await job.await_end(WAIT_TIMEOUT)
            await eventually(lambda: workspace_kinds(data) == [])
        go.set()
    assert job.state is State.CANCELED


async def test_a_failed_removal_is_a_warning_and_no_failure(
    app: Windlass, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def task(ctx: Context) -> None:
        fill(ctx)
        (data / "temp").rename(data / "elsewhere")
        (data / "temp").symlink_to(data / "elsewhere")  # never followed

    with caplog.at_level(logging.WARNING, "windlass.worker"):
        row = await end(app, job := await task.aenqueue())
    assert row.state is State.SUCCEEDED
    assert f"the workspace of job {job.id} was not removed" in caplog.text
    assert (data / "elsewhere" / str(job.id) / "part").exists()


async def test_slow_cleanup_delays_no_other_job(
    app: Windlass, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, go = threading.Event(), threading.Event()
    remove = shutil.rmtree

    def slowly(*args: Any, **kwargs: Any) -> None:
        started.set()
        assert go.wait(WAIT_TIMEOUT)
        remove(*args, **kwargs)

    monkeypatch.setattr(shutil, "rmtree", slowly)

    @app.task
    async def task(ctx: Context, files: bool) -> None:
        if files:
            fill(ctx)

    async with working(app):
        await task.aenqueue(files=True)
        assert await asyncio.to_thread(started.wait, WAIT_TIMEOUT)
        other = await task.aenqueue(files=False)
        assert (await other.await_end(WAIT_TIMEOUT)).state is State.SUCCEEDED
        go.set()
        await eventually(lambda: workspace_kinds(data) == [])


async def test_a_temp_directory_is_an_orphan_after_one_day_and_a_proxy_after_two(
    app: Windlass, data: Path
) -> None:
    hours = {"temp": (23, 25), "proxy": (25, 47, 49)}
    made = {
        (kind, old): make_old(data / kind / str(uuid4()), old)
        for kind in hours
        for old in hours[kind]
    }
    async with working(app):
        await eventually(lambda: not made["temp", 25].exists() and not made["proxy", 49].exists())
    left = {which for which, place in made.items() if place.exists()}
    assert left == {("temp", 23), ("proxy", 25), ("proxy", 47)}


async def test_the_directory_of_an_unfinished_job_is_no_orphan(app: Windlass, data: Path) -> None:
    @app.task
    async def task() -> None: ...

    job = await task.options(hold=True).aenqueue()
    mine = make_old(data / "temp" / str(job.id), 1000)
    orphan = make_old(data / "temp" / str(uuid4()), 1000)
    async with working(app):
        await eventually(lambda: not orphan.exists())
    assert mine.exists()


async def test_cleanup_touches_nothing_but_the_directories_of_the_job(
    app: Windlass, data: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "precious"
    outside.mkdir()
    (outside / "letter").write_text("dear")
    other = make_old(data / "temp" / str(uuid4()), 0)  # of another job
    strange = make_old(data / "temp" / "..not-a-job", 1000)

    @app.task
    async def task(ctx: Context) -> None:
        (ctx.workspace / "way out").symlink_to(outside)
        (ctx.workspace / ".." / "..not-a-job" / "file").write_text("not ours")

    job = await task.aenqueue()
    await end(app, job)
    assert not (data / "temp" / str(job.id)).exists()
    assert (outside / "letter").read_text() == "dear"
    assert (other.exists(), (strange / "file").exists()) == (True, True)


# -- the events of a job


async def job_with_all_events(app: Windlass) -> Job[str]:
    """A job that writes every type of event and succeeds."""

    @app.task(name="eventful", backoff=fixed(0))
    async def task(ctx: Context) -> str:
        async def speak() -> int:
            ctx.progress(50, "half way")
            ctx.warn("the sound is quiet")
            ctx.emit("error", {"message": "one voice is missing"})
            return 1

        ctx.stage("Voice")
        await ctx.astep("speak", speak)
        ctx.artifact("sound", "file:///sound.wav", size=3)
        if ctx.attempt == 1:
            raise OSError("again")
        return "sound.wav"

    job = await task.options(headers={"correlation-id": "request-7"}).aenqueue()
    await end(app, job)
    return job


KEYS = {
    EventType.JOB_STATUS: {"status", "stage", "phase", "percent", "attempt"},
    EventType.STEP_STATUS: {"step", "status"},
    EventType.STEP_PROGRESS: {"step", "phase", "progressPct", "message"},
    EventType.WARNING: {"message", "step"},
    EventType.ERROR: {"message", "step"},
    EventType.JOB_COMPLETED: {"status", "jobId", "artifacts", "output"},
}


async def test_every_event_type_has_its_required_fields(app: Windlass) -> None:
    events = await events_of(await job_with_all_events(app))
    reported: dict[EventType, set[str]] = {}
    for event in events:
        reported[event.type] = reported.get(event.type, set()) | set(event.data)
    assert reported.keys() >= KEYS.keys()
    assert {kind: keys - reported[kind] for kind, keys in KEYS.items()} == {k: set() for k in KEYS}
    last = events[-1]
    assert (last.data["status"], last.data["output"]) == ("succeeded", "sound.wav")
    assert last.data["artifacts"][0]["uri"] == "file:///sound.wav"


async def test_a_completed_step_has_its_phase(app: Windlass) -> None:
    steps = await events_of(await job_with_all_events(app), EventType.STEP_STATUS)
    assert [(event.data["step"], event.data.get("phase")) for event in steps] == [("speak", "tts")]


async def test_every_event_carries_the_correlation_id(app: Windlass) -> None:
    events = await events_of(await job_with_all_events(app))
    assert {event.correlation_id for event in events} == {"request-7"}


async def test_a_correlation_id_is_generated_and_passed_to_children(
    app: Windlass,
) -> None:
    @app.task
    async def child() -> None: ...

    @app.task
    async def task(ctx: Context) -> str:
        return str(ctx.then(child))

    job = await task.aenqueue()
    await end(app, job)
    mine = job.row.correlation_id
    assert mine
    assert (await app.ajob(await job.aresult())).row.correlation_id == mine


async def test_event_ids_are_milliseconds_and_an_increasing_number(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task
    async def task() -> None:
        clock.advance(60)

    job = await task.aenqueue()
    await end(app, job)
    events = await events_of(job)
    ids = [event.wire_id for event in events]
    assert ids == [f"{event.at // 1000}-{event.seq}" for event in events]
    assert len(set(ids)) == len(ids)
    parts = [tuple(map(int, text.split("-"))) for text in ids]
    assert all(a < b for a, b in pairwise(parts))


async def test_a_reconnected_reader_gets_only_new_events(app: Windlass) -> None:
    job = await job_with_all_events(app)
    events = await events_of(job)
    for seen in range(len(events) + 1):
        rest = [event.seq async for event in job.aevents(after=seen)]
        assert rest == [event.seq for event in events[seen:]]


async def test_a_stream_is_live_and_ends_with_its_job(app: Windlass, clock: VirtualClock) -> None:
    go = asyncio.Event()

    @app.task
    async def task() -> None:
        await go.wait()
        raise InvalidInput

    job = await task.aenqueue()
    reported: list[str] = []
    async with working(app), asyncio.timeout(WAIT_TIMEOUT):
        async for event in job.aevents():
            reported.append(event.data["status"])
            if reported[-1] == "running":
                await pass_time(app, clock, 1)
                assert reported[-1] == "running"
                go.set()
    assert reported == ["created", "queued", "running", "failed"]
