"""Rules of the video pipeline's queue: claims, states, retries, one job per video."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import pytest
from tests.specs.factories import (
    FOREVER,
    SECOND,
    WAIT_TIMEOUT,
    end,
    ended,
    events_of,
    eventually,
    pass_time,
    reach,
    retries,
    states_of,
    working,
)

from windlass import (
    AuthenticationError,
    ConflictError,
    ConstraintViolation,
    Context,
    InvalidArgumentError,
    Job,
    MissingInput,
    NewJob,
    NotFoundError,
    State,
    TerminalError,
    Windlass,
    delays,
)
from windlass.core.event import EventType
from windlass.testing import VirtualClock

MINUTES = delays([60, 300, 900], jitter=0.2)  # one, five, fifteen


# -- claims


async def test_no_two_workers_get_the_same_job(app: Windlass) -> None:
    runs: list[int] = []

    @app.task
    async def task(n: int) -> None:
        runs.append(n)
        await asyncio.sleep(0)

    jobs = await app.aenqueue_many([task.new_job(n) for n in range(60)])
    async with working(app, slots=4), working(app, slots=4), working(app, slots=4):
        for job in jobs:
            await job.await_end(WAIT_TIMEOUT)
    assert sorted(runs) == list(range(60))


async def test_the_oldest_job_runs_first(app: Windlass, clock: VirtualClock) -> None:
    order: list[int] = []

    @app.task
    async def task(n: int) -> None:
        order.append(n)

    jobs = []
    for n in range(5):
        jobs.append(await task.aenqueue(n))
        clock.advance(1)
    await ended(app, *jobs, slots=1)
    assert order == [0, 1, 2, 3, 4]


async def test_a_higher_priority_runs_before_older_jobs(app: Windlass) -> None:
    order: list[str] = []

    @app.task
    async def task(name: str) -> None:
        order.append(name)

    wanted = [("old", 0), ("urgent", 5), ("new", 0), ("can wait", -1), ("urgent too", 5)]
    jobs = [await task.options(priority=priority).aenqueue(name) for name, priority in wanted]
    await ended(app, *jobs, slots=1)
    assert order == ["urgent", "urgent too", "old", "new", "can wait"]


async def test_a_worker_claims_only_jobs_of_its_queues(app: Windlass, clock: VirtualClock) -> None:
    @app.task(queue="transcode")
    async def transcode() -> None: ...

    @app.task(queue="ocr")
    async def ocr() -> None: ...

    other, mine = await transcode.aenqueue(), await ocr.aenqueue()
    async with working(app, queues={"ocr": 1}):
        await mine.await_end(WAIT_TIMEOUT)
        await pass_time(app, clock, 60)
    assert (await other.arefresh()).state is State.QUEUED


async def test_a_claimed_job_has_its_worker_and_lease_end(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(lease="5m")
    async def task() -> None:
        await asyncio.sleep(FOREVER)

    job = await task.aenqueue()
    async with working(app, name="transcoder-1"):
        row = await reach(job, State.RUNNING)
    assert row.worker == "transcoder-1"
    assert row.lease_until == clock.now() + 300 * SECOND


async def test_a_lease_is_extended_while_its_worker_runs(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task
    async def task() -> None:
        await asyncio.sleep(FOREVER)

    job = await task.aenqueue()
    async with working(app, lease=0.3):
        await reach(job, State.RUNNING)
        for _ in range(3):
            wanted = clock.advance(0.2) + 0.3 * SECOND

            async def refreshed(wanted: float = wanted) -> bool:
                return (await job.arefresh()).row.lease_until == wanted

            await eventually(refreshed)
        assert (job.row.attempt, job.row.crash_count) == (1, 0)


async def test_a_job_whose_lease_ran_out_is_reclaimed_by_another_worker(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task
    async def task(ctx: Context) -> str:
        if ctx.attempt == 1:
            await asyncio.sleep(FOREVER)
        return ctx.job.worker or ""

    job = await task.aenqueue()
    async with working(app, slots=1, name="asleep", sweep_interval=FOREVER):
        await reach(job, State.RUNNING)
        async with working(app, name="awake"):
            clock.advance(31)
            assert await job.aresult(WAIT_TIMEOUT) == "awake"


# -- states


async def test_a_job_is_queued_then_running_then_succeeded(app: Windlass) -> None:
    @app.task
    async def task() -> None: ...

    job = await task.aenqueue()
    await end(app, job)
    assert await states_of(job) == ["created", "queued", "running", "succeeded"]


async def test_a_failed_attempt_is_requeued_while_retries_are_left(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(max_retries=1, backoff=MINUTES)
    async def task() -> None:
        raise ConnectionError("object store away")

    job = await task.aenqueue()
    async with working(app):
        await reach(job, State.RETRYING)
        clock.advance(72)
        await job.await_end(WAIT_TIMEOUT)
    assert await states_of(job) == [
        *["created", "queued", "running", "retrying"],
        *["queued", "running", "failed"],
    ]


async def test_a_succeeded_job_is_never_changed(app: Windlass, clock: VirtualClock) -> None:
    runs: list[UUID] = []

    @app.task
    async def task(ctx: Context) -> None:
        runs.append(ctx.job.id)

    job = await task.aenqueue()
    done = await end(app, job)
    with pytest.raises(ConflictError):
        await job.acancel()
    async with working(app):
        await pass_time(app, clock, FOREVER)
    assert ((await job.arefresh()).row, runs) == (done, [job.id])


async def test_a_queued_job_fails_only_by_an_attempt_or_because_it_expired(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task
    async def task() -> None:
        raise MissingInput("gone")

    tried = await task.aenqueue()
    expired = await task.options(queue="unconsumed", expires_in=60).aenqueue()
    async with working(app):
        await tried.await_end(WAIT_TIMEOUT)
        await pass_time(app, clock, 59)
        assert (await expired.arefresh()).state is State.QUEUED
        await pass_time(app, clock, 1)
        row = (await expired.await_end(WAIT_TIMEOUT)).row
    assert await states_of(tried) == ["created", "queued", "running", "failed"]
    assert await states_of(expired) == ["created", "queued", "failed"]
    assert row.error is not None
    assert row.error.code == "expired"


# -- retries


async def test_a_job_is_retried_after_about_one_five_and_fifteen_minutes(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(backoff=MINUTES)
    async def task() -> None:
        raise TimeoutError("network")

    jobs = [await task.aenqueue() for _ in range(10)]
    async with working(app):
        for attempt, minutes in enumerate((1, 5, 15), 1):
            for job in jobs:
                await reach(job, State.RETRYING, attempt)
            await pass_time(app, clock, 60 * minutes * 0.79)
            assert {(await job.arefresh()).state for job in jobs} == {State.RETRYING}
            clock.advance(60 * minutes * 0.42)
        rows = [(await job.await_end(WAIT_TIMEOUT)).row for job in jobs]
    assert {(row.state, row.attempt, row.retry_count) for row in rows} == {(State.FAILED, 4, 3)}
    for n, minutes in enumerate((1, 5, 15)):
        delays = [(await retries(job))[n].data["delay"] / (60 * minutes) for job in jobs]
        assert 0.8 <= min(delays) < max(delays) <= 1.2  # within the jitter, and not all equal


async def test_a_job_that_used_up_its_retries_is_never_claimed_again(
    app: Windlass, clock: VirtualClock
) -> None:
    runs: list[int] = []

    @app.task(max_retries=0)
    async def task(ctx: Context) -> None:
        runs.append(ctx.attempt)
        raise TimeoutError

    job = await task.aenqueue()
    async with working(app):
        await job.await_end(WAIT_TIMEOUT)
        await pass_time(app, clock, 86_400)
    assert (runs, (await job.arefresh()).state) == ([1], State.FAILED)


async def test_a_transient_error_counts_one_retry(app: Windlass, clock: VirtualClock) -> None:
    @app.task(backoff=MINUTES)
    async def task() -> None:
        raise ConnectionError

    job = await task.aenqueue()
    assert job.row.retry_count == 0
    async with working(app):
        assert (await reach(job, State.RETRYING)).retry_count == 1


@pytest.mark.parametrize("kind", [MissingInput, ConstraintViolation, AuthenticationError])
async def test_a_terminal_error_fails_without_a_retry(
    app: Windlass, kind: type[TerminalError]
) -> None:
    @app.task(backoff=MINUTES)
    async def task() -> None:
        raise kind("for good")

    row = await end(app, await task.aenqueue())
    assert (row.state, row.attempt, row.retry_count) == (State.FAILED, 1, 0)
    assert row.error is not None
    assert row.error.kind == "TERMINAL"


# -- payloads


def add_sample(app: Windlass) -> None:
    @app.task(name="sample")
    async def sample(
        video_id: UUID, s3_original_path: str, target_fps: int = 10, dedupe_threshold: float = 0.95
    ) -> list[float]:
        return [target_fps, dedupe_threshold]


async def test_an_invalid_payload_is_refused_at_enqueue(
    app: Windlass,
) -> None:
    @app.task
    async def transcode(video_id: UUID, s3_original_path: str) -> None: ...

    with pytest.raises(InvalidArgumentError, match="video_id"):
        await transcode.aenqueue("not a uuid", "master.mp4")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="s3_original_path"):
        await transcode.aenqueue(video_id=uuid4())  # type: ignore[call-arg]


async def test_an_invalid_stored_payload_fails_without_a_retry(app: Windlass) -> None:
    add_sample(app)
    [job] = await app.aenqueue_many([NewJob(id=uuid4(), task="sample", payload=b'{"video_id": 7}')])
    row = await end(app, job)
    assert (row.state, row.attempt) == (State.FAILED, 1)
    assert row.error is not None
    assert (row.error.code, row.error.kind) == ("invalid_input", "TERMINAL")


async def test_a_missing_argument_has_the_default_of_the_task(app: Windlass) -> None:
    add_sample(app)
    payload = b'{"video_id": "%s", "s3_original_path": "master.mp4"}' % str(uuid4()).encode()
    [job] = await app.aenqueue_many([NewJob(id=uuid4(), task="sample", payload=payload)])
    await end(app, job)
    assert await job.aresult() == [10, 0.95]


async def test_an_error_is_stored_without_changing_the_payload(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(max_retries=2, backoff=MINUTES)
    async def task(path: str) -> None:
        raise FileNotFoundError(f"nothing at {path}")

    job = await task.aenqueue("videos/master.mp4")
    requested = job.row.payload
    async with working(app):
        for attempt in (1, 2):
            await reach(job, State.RETRYING, attempt)
            clock.advance(3600)
        row = (await job.await_end(WAIT_TIMEOUT)).row
    [last] = await events_of(job, EventType.JOB_FAILED)
    assert (row.payload, row.retry_count) == (requested, 2)
    assert last.data["errorMessage"] == "nothing at videos/master.mp4"
    assert last.data["retryCount"] == 2
    error = last.data["error"]
    assert (error["code"], error["attempt"], error["at"]) == ("FileNotFoundError", 3, row.ended_at)


# -- one job per video


async def test_a_video_has_one_active_job_per_task(app: Windlass, clock: VirtualClock) -> None:
    go = asyncio.Event()

    @app.task(backoff=MINUTES)
    async def transcode(ctx: Context) -> None:
        await go.wait()
        if ctx.attempt == 1:
            raise ConnectionError

    @app.task
    async def ocr() -> None: ...

    video = transcode.options(unique_key="video-1")
    job = await video.aenqueue()

    async def again() -> tuple[UUID, bool]:
        other = await video.aenqueue()
        return other.id, other.duplicate

    assert await again() == (job.id, True)  # while it waits,
    async with working(app):
        await reach(job, State.RUNNING)
        assert await again() == (job.id, True)  # while it runs,
        go.set()
        await reach(job, State.RETRYING)
        assert await again() == (job.id, True)  # and while it waits for its retry
        assert not (await ocr.options(unique_key="video-1").aenqueue()).duplicate
        assert not (await transcode.options(unique_key="video-2").aenqueue()).duplicate
        clock.advance(72)
        await job.await_end(WAIT_TIMEOUT)
        new, duplicate = await again()  # it has ended: a new job
    assert (new == job.id, duplicate) == (False, False)


async def test_a_stage_that_runs_twice_enqueues_the_next_one_once(app: Windlass) -> None:
    @app.task
    async def sample(video: str) -> None: ...

    @app.task(backoff=delays([0], jitter=0))
    async def transcode(ctx: Context, video: str) -> list[str]:
        following = await sample.options(unique_key=video, hold=True).aenqueue(video)
        if ctx.attempt == 1:
            raise ConnectionError("after it was enqueued")
        return [str(following.id), str(following.duplicate)]

    job = await transcode.aenqueue("video-1")
    await end(app, job)
    following, duplicate = await job.aresult()
    assert duplicate == "True"
    assert (await app.ajob(following)).row.unique_key == "video-1"


async def test_a_video_may_have_many_clips_but_each_clip_once(app: Windlass) -> None:
    @app.task
    async def clip(video: str, t_start: int, t_end: int) -> None: ...

    async def ask(clip_id: str, t_end: int) -> Job[None]:
        return await clip.options(request_id=clip_id).aenqueue("video-1", 1500, t_end)

    first, other = await ask("clip-1", 3000), await ask("clip-2", 4000)
    assert first.id != other.id
    await end(app, first)
    again = await ask("clip-1", 3000)  # also long after its end
    assert (again.id, again.duplicate, again.state) == (first.id, True, State.SUCCEEDED)
    with pytest.raises(ConflictError, match="different arguments"):
        await ask("clip-1", 9000)


# -- the pipeline


async def test_a_stage_enqueues_the_next_one_only_with_its_success(
    app: Windlass,
) -> None:
    children: dict[str, UUID] = {}

    @app.task
    async def ocr(video: str) -> str:
        return f"text of {video}"

    @app.task
    async def sample(ctx: Context, video: str) -> None:
        children[video] = ctx.then(ocr, video)
        with pytest.raises(NotFoundError):  # not stored before
            await app.ajob(children[video])
        if video == "broken":
            raise MissingInput("no frames")

    await ended(app, await sample.aenqueue("good"), await sample.aenqueue("broken"))
    following = await app.ajob(children["good"])
    await end(app, following)
    assert await following.aresult() == "text of good"
    with pytest.raises(NotFoundError):
        await app.ajob(children["broken"])


async def test_a_job_has_its_owner(app: Windlass) -> None:
    @app.task(max_retries=0)
    async def task() -> None:
        raise OSError

    job = await task.options(owner="user-1", team="blue").aenqueue()
    await end(app, job)
    again = await job.aretry()
    assert (again.row.owner, again.row.team) == ("user-1", "blue")


# -- dead letters


async def test_a_failed_job_is_kept_and_retried_manually_as_a_new_job(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(max_retries=0)
    async def task(ctx: Context) -> str:
        if ctx.job.retry_of is None:
            raise OSError("disk")
        return "mended"

    job = await task.aenqueue()
    async with working(app):
        await job.await_end(WAIT_TIMEOUT)
        await pass_time(app, clock, 80 * 86_400)
    again = await job.aretry()
    assert (await job.aretry()).id == again.id  # one at a time
    await end(app, again)
    assert await again.aresult() == "mended"
    failed = (await job.arefresh()).row
    assert (failed.state, failed.retried_as, again.row.retry_of) == (
        State.FAILED,
        again.id,
        job.id,
    )
