"""Rules of the job queue with live progress: states, instants, progress, resume."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise

import pytest
from tests.specs.factories import (
    FOREVER,
    WAIT_TIMEOUT,
    end,
    events_of,
    pass_time,
    percents,
    reach,
    retries,
    states_of,
    wait_for_event,
    working,
)

from windlass import (
    AuthenticationError,
    ConflictError,
    Context,
    InsufficientResources,
    InvalidInput,
    Job,
    MissingInput,
    RetryAfter,
    State,
    TerminalError,
    Windlass,
    fixed,
)
from windlass.core.event import EventType
from windlass.core.job.row import JobRow
from windlass.testing import VirtualClock


async def run_to(app: Windlass, state: State) -> Job[str]:
    """Run a job to this final state (a canceled one was running)."""

    @app.task(name=f"to be {state}")
    async def task() -> str:
        if state is State.FAILED:
            raise InvalidInput("no such thing")
        if state is State.CANCELED:
            await asyncio.sleep(FOREVER)
        return "done"

    job = await task.aenqueue()
    async with working(app):
        if state is State.CANCELED:
            await reach(job, State.RUNNING)
            await job.acancel()
        await job.await_end(WAIT_TIMEOUT)
    assert job.state is state
    return job


FINAL = [State.SUCCEEDED, State.FAILED, State.CANCELED]


# -- states


async def test_a_queued_job_starts_and_succeeds(app: Windlass) -> None:
    job = await run_to(app, State.SUCCEEDED)
    assert await states_of(job) == ["created", "queued", "running", "succeeded"]


async def test_a_queued_job_is_canceled_before_it_starts(app: Windlass) -> None:
    ran: list[int] = []

    @app.task
    async def task() -> None:
        ran.append(1)

    job = await task.aenqueue()
    assert await job.acancel() is State.CANCELED
    after = await task.aenqueue()
    await end(app, after, slots=1)
    assert (len(ran), await states_of(job)) == (1, ["created", "queued", "canceled"])


async def test_a_running_job_that_raises_an_error_fails(app: Windlass) -> None:
    job = await run_to(app, State.FAILED)
    assert await states_of(job) == ["created", "queued", "running", "failed"]


async def test_a_running_job_is_canceled(app: Windlass) -> None:
    job = await run_to(app, State.CANCELED)
    assert await states_of(job) == ["created", "queued", "running", "canceled"]


async def test_only_succeeded_failed_and_canceled_are_final(app: Windlass) -> None:
    @app.task
    async def task(fail: bool) -> None:
        if fail:
            raise OSError
        await asyncio.sleep(FOREVER)

    waiting = await task.options(hold=True).aenqueue(fail=False)
    seen: dict[State, bool] = {waiting.state: waiting.row.final}
    for state in FINAL:
        seen[state] = (await run_to(app, state)).row.final
    retrying, running = await task.aenqueue(fail=True), await task.aenqueue(fail=False)
    seen[running.state] = running.row.final
    async with working(app):
        for job, state in (retrying, State.RETRYING), (running, State.RUNNING):
            seen[state] = (await reach(job, state)).final
    assert set(seen) == set(State)
    assert {state for state, final in seen.items() if final} == set(FINAL)


@pytest.mark.parametrize("state", FINAL)
async def test_a_final_state_is_never_left(
    app: Windlass, clock: VirtualClock, state: State
) -> None:
    job = await run_to(app, state)
    before = job.row
    for verb in (job.acancel, job.asubmit):
        if state is State.CANCELED and verb == job.acancel:
            assert await verb() is State.CANCELED  # the requested id
            continue
        with pytest.raises(ConflictError, match=f"is {state} and cannot be"):
            await verb()
    async with working(app):
        await pass_time(app, clock, FOREVER)
    assert (await job.arefresh()).row == before


# -- instants


async def test_a_new_job_is_queued_at_the_instant_of_its_creation(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task
    async def task() -> None: ...

    row = (await task.aenqueue()).row
    assert row.created_at == row.queued_at == clock.now()
    assert (row.started_at, row.ended_at) == (None, None)


async def run_job(app: Windlass, clock: VirtualClock, finish: Callable[[], None]) -> JobRow:
    """Run a job: queued for 1 s, running for 30 s up to 40 %, then `finish` or a cancel."""
    go = asyncio.Event()

    @app.task(name="lived", lease="1h")  # longer than it runs: no sweep may rescue it
    async def task(ctx: Context) -> None:
        ctx.progress(25)
        ctx.progress(40)
        await go.wait()
        finish()

    job = await task.aenqueue()
    clock.advance(1)
    async with working(app):
        await wait_for_event(job, lambda event: event.data.get("progressPct") == 40)
        clock.advance(30)
        if finish is canceled:
            await job.acancel()
        go.set()
        await job.await_end(WAIT_TIMEOUT)
    return job.row


def succeeds() -> None: ...


def fails() -> None:
    raise InvalidInput("corrupt")


def canceled() -> None:
    raise AssertionError("it is canceled before it comes to this")


def lifetime(row: JobRow) -> list[int]:
    """Return seconds from creation to queueing, start and end."""
    instants = (row.queued_at, row.started_at, row.ended_at)
    assert None not in instants
    return [round((instant or 0) / 1e6 - row.created_at / 1e6) for instant in instants]


async def test_the_instants_of_a_succeeded_job_are_in_order(
    app: Windlass, clock: VirtualClock
) -> None:
    row = await run_job(app, clock, succeeds)
    assert lifetime(row) == [0, 1, 31]
    assert (row.state, row.percent) == (State.SUCCEEDED, 100)


async def test_a_failed_job_ends_at_the_instant_of_its_failure(
    app: Windlass, clock: VirtualClock
) -> None:
    row = await run_job(app, clock, fails)
    assert (row.state, lifetime(row)) == (State.FAILED, [0, 1, 31])
    assert row.error is not None
    assert row.error.at == row.ended_at


async def test_a_canceled_job_keeps_its_percent_and_ends_at_its_cancel(
    app: Windlass, clock: VirtualClock
) -> None:
    row = await run_job(app, clock, canceled)
    assert (row.state, lifetime(row)) == (State.CANCELED, [0, 1, 31])
    assert (row.percent, row.result) == (40, None)


async def test_a_job_canceled_while_waiting_has_no_start(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task
    async def task() -> None: ...

    job = await task.aenqueue()
    at = clock.advance(5)
    await job.acancel()
    row = (await job.arefresh()).row
    assert (row.started_at, row.ended_at) == (None, at)


@pytest.mark.parametrize("state", FINAL)
async def test_a_final_job_and_its_last_event_have_the_end_time(
    app: Windlass, state: State
) -> None:
    job = await run_to(app, state)
    last = (await events_of(job))[-1]
    kind = {
        State.SUCCEEDED: EventType.JOB_COMPLETED,
        State.FAILED: EventType.JOB_FAILED,
        State.CANCELED: EventType.JOB_CANCELLED,
    }[state]
    assert (last.type, last.at) == (kind, job.row.ended_at)


async def test_an_unfinished_job_has_no_end(app: Windlass) -> None:
    @app.task
    async def task(fail: bool) -> None:
        if fail:
            raise OSError
        await asyncio.sleep(FOREVER)

    held = await task.options(hold=True).aenqueue(fail=False)
    failing, running = await task.aenqueue(fail=True), await task.aenqueue(fail=False)
    assert (held.row.ended_at, running.row.ended_at) == (None, None)
    async with working(app):
        assert (await reach(failing, State.RETRYING)).ended_at is None
        assert (await reach(running, State.RUNNING)).ended_at is None


@pytest.mark.parametrize("state", FINAL)
async def test_the_order_of_instants_survives_a_clock_that_steps_back(
    app: Windlass, clock: VirtualClock, state: State
) -> None:
    @app.task
    async def task() -> None:
        clock.jump(clock.now() - 10**9)
        if state is State.FAILED:
            raise InvalidInput
        if state is State.CANCELED:
            await asyncio.sleep(FOREVER)

    job = await task.aenqueue()
    clock.jump(clock.now() - 10**9)
    async with working(app):
        await reach(job, State.RUNNING)
        if state is State.CANCELED:
            await job.acancel()
        row = (await job.await_end(WAIT_TIMEOUT)).row
    instants = [row.created_at, row.queued_at or 0, row.started_at or 0, row.ended_at or 0]
    assert instants == sorted(instants)
    assert row.state is state


async def test_the_instant_of_creation_never_changes(app: Windlass, clock: VirtualClock) -> None:
    @app.task(backoff=fixed(1))
    async def task(ctx: Context) -> None:
        if ctx.attempt < 3:
            raise OSError

    job = await task.aenqueue()
    created = job.row.created_at
    async with working(app):
        for attempt in (1, 2):
            assert (await reach(job, State.RETRYING, attempt)).created_at == created
            clock.advance(60)
        assert (await job.await_end(WAIT_TIMEOUT)).row.created_at == created


# -- progress

REPORTED = [0, 10, 25, 20, 30, 28, 50, 75, 100, 95]
SHOWN = [0, 10, 25, 25, 30, 30, 50, 75, 100, 100]


async def test_progress_never_decreases(app: Windlass) -> None:
    @app.task
    async def task(ctx: Context) -> None:
        for percent in REPORTED:
            ctx.progress(percent)
            ctx.log("so that each report is kept")

    job = await task.aenqueue()
    await end(app, job)
    assert await percents(job) == SHOWN


@pytest.mark.parametrize(
    ("reported", "shown"), [(75, 75), (50, 50), (25, 50), (-10, 50), (150, 100), (50.9, 50)]
)
async def test_progress_stays_between_0_and_100(app: Windlass, reported: float, shown: int) -> None:
    @app.task
    async def task(ctx: Context) -> None:
        ctx.progress(50)
        ctx.progress(reported)
        raise InvalidInput("so that the end does not set it to 100")

    job = await task.aenqueue()
    assert (await end(app, job)).percent == shown


async def test_progress_does_not_decrease_in_a_retry(app: Windlass, clock: VirtualClock) -> None:
    @app.task(backoff=fixed(1), max_retries=1)
    async def task(ctx: Context) -> None:
        ctx.progress(60 if ctx.attempt == 1 else 10)
        raise OSError

    job = await task.aenqueue()
    async with working(app):
        assert (await reach(job, State.RETRYING)).percent == 60
        clock.advance(1)
        assert (await job.await_end(WAIT_TIMEOUT)).row.percent == 60
    assert all(a <= b for a, b in pairwise(await percents(job)))


async def test_a_succeeded_job_is_at_100_percent_without_reports(app: Windlass) -> None:
    assert (await run_to(app, State.SUCCEEDED)).row.percent == 100


PHASES = {
    ("plan", 0, 15): ["Initialization", "Queued", "Script", "Planning", "Brief"],
    ("tts", 15, 35): ["TTS", "Audio", "Voice"],
    ("visuals", 35, 65): ["Visuals", "Images", "Assets"],
    ("compose", 65, 85): ["Composition", "Timeline", "Compose"],
    ("render", 85, 100): ["Rendering", "Render", "Encode"],
    ("complete", 100, 100): ["Complete", "Done"],
    ("processing", 0, 0): ["Stirring the pot"],  # unknown: no progress range
}


async def test_each_stage_has_its_phase_and_its_progress_range(app: Windlass) -> None:
    @app.task
    async def task(ctx: Context, stage: str) -> None:
        ctx.stage(stage)
        ctx.log("so that both ends of the stage are kept")
        ctx.progress(100)

    stages = [stage for known in PHASES.values() for stage in known]
    jobs = {stage: await task.aenqueue(stage) for stage in stages}
    async with working(app):
        for job in jobs.values():
            await job.await_end(WAIT_TIMEOUT)
    for (phase, low, high), known in PHASES.items():
        for stage in known:
            received = await events_of(jobs[stage], EventType.STEP_PROGRESS)
            assert [event.data["progressPct"] for event in received] == [low, high], stage
            assert {event.data["phase"] for event in received} == {phase}, stage


async def test_frequent_progress_is_written_at_most_twice_a_second(app: Windlass) -> None:
    @app.task
    async def task(ctx: Context) -> None:
        for percent in range(1000):
            ctx.progress(percent / 10)
            if percent % 25 == 0:
                await asyncio.sleep(0.02)

    job = await task.aenqueue()
    began = time.monotonic()
    await end(app, job)
    received = await percents(job)
    assert received[-1] == 99
    assert len(received) <= 2 + 2 * (
        time.monotonic() - began
    )  # the last one is stored with the settle


# -- resume


def pipeline(app: Windlass, done: list[str], fails_in: str) -> Job[None]:
    """Enqueue a job with four steps; its first run fails in one of them."""

    @app.task(max_retries=0, name="pipeline")
    def produce(ctx: Context) -> None:
        def work(name: str) -> str:
            done.append(f"{name} begins")
            if ctx.job.retry_of is None and name == fails_in:
                raise OSError(f"{name} broke")
            done.append(f"{name} ends")
            return f"{name}.out"

        if fails_in == "initialization":
            raise OSError("too early")
        for name in ("script", "voice", "visuals", "render"):
            assert ctx.step(name, work, name) == f"{name}.out"

    return produce.enqueue()


@pytest.mark.parametrize(
    ("fails_in", "last", "left"),
    [
        ("voice", "script", ["voice", "visuals", "render"]),
        ("visuals", "voice", ["visuals", "render"]),
        ("render", "visuals", ["render"]),  # runs from its start
    ],
)
async def test_a_resumed_job_continues_after_its_last_completed_step(
    app: Windlass, fails_in: str, last: str, left: list[str]
) -> None:
    done: list[str] = []
    job = await asyncio.to_thread(pipeline, app, done, fails_in)
    row = await end(app, job)
    assert (row.state, row.can_resume, row.last_step) == (State.FAILED, True, last)
    done.clear()
    again = await job.aresume()
    assert (await end(app, again)).state is State.SUCCEEDED
    assert done == [f"{name} {what}" for name in left for what in ("begins", "ends")]
    assert again.row.retry_of == job.id


async def test_a_job_that_failed_before_its_first_step_cannot_be_resumed(app: Windlass) -> None:
    job = await asyncio.to_thread(pipeline, app, [], "initialization")
    row = await end(app, job)
    assert (row.can_resume, row.last_step) == (False, None)
    with pytest.raises(ConflictError, match="no completed step"):
        await job.aresume()


async def test_a_succeeded_job_cannot_be_resumed(
    app: Windlass,
) -> None:
    job = await asyncio.to_thread(pipeline, app, [], "nothing")
    row = await end(app, job)
    assert (row.can_resume, row.last_step) == (False, "render")
    with pytest.raises(ConflictError, match="succeeded"):
        await job.aresume()


async def test_an_automatic_retry_skips_completed_steps_too(
    app: Windlass, clock: VirtualClock
) -> None:
    runs: list[str] = []

    @app.task(backoff=fixed(0))
    async def task(ctx: Context) -> str:
        async def script() -> str:
            runs.append("script")
            return f"written in attempt {ctx.attempt}"

        text = await ctx.astep("script", script)
        if ctx.attempt == 1:
            raise OSError
        return text

    job = await task.aenqueue()
    await end(app, job)
    assert (await job.aresult(), runs) == ("written in attempt 1", ["script"])


# -- errors


@pytest.mark.parametrize(
    "error", [RetryAfter(5, "rate limit"), BlockingIOError("busy"), TimeoutError("network")]
)
async def test_transient_errors_are_retried(
    app: Windlass, clock: VirtualClock, error: Exception
) -> None:
    @app.task(backoff=fixed(5))
    async def task(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise error
        return ctx.attempt

    job = await task.aenqueue()
    async with working(app):
        await reach(job, State.RETRYING)
        clock.advance(5)
        assert await job.aresult(WAIT_TIMEOUT) == 2
    [failed] = await retries(job)
    assert failed.data["error"]["kind"] == "RETRYABLE"


@pytest.mark.parametrize(
    "kind", [InvalidInput, MissingInput, InsufficientResources, AuthenticationError]
)
async def test_terminal_errors_fail_at_once(app: Windlass, kind: type[TerminalError]) -> None:
    @app.task
    async def task() -> None:
        raise kind("no use")

    job = await task.aenqueue()
    row = await end(app, job)
    assert (row.state, row.attempt) == (State.FAILED, 1)


async def test_a_failure_event_has_errors_stage_and_last_log_lines(
    app: Windlass,
) -> None:
    @app.task
    async def task(ctx: Context) -> None:
        ctx.stage("Visuals")
        ctx.log("drawing")
        ctx.warn("little memory")

        async def draw() -> None:
            raise InsufficientResources("no memory left")

        await ctx.astep("draw", draw)

    job = await task.aenqueue()
    await end(app, job)
    last = (await events_of(job))[-1]
    assert last.type is EventType.JOB_FAILED
    received = {key: last.data[key] for key in ("status", "jobId", "stage", "errors", "logs")}
    assert received == {
        "status": "failed",
        "jobId": str(job.id),
        "stage": "Visuals",
        "errors": ["no memory left"],
        "logs": ["drawing", "little memory"],
    }
    assert last.data["errorMessage"] == "no memory left"
    assert last.data["error"]["step"] == "draw"
