"""`Job`: events, stages, sync iteration, retry and resume, lookup and wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.worker.event_waits import WAIT_TIMEOUT, events_of
from tests.worker.workers import config, run_burst

from windlass import (
    ConfigurationError,
    ConflictError,
    Context,
    EncryptingCodec,
    InvalidArgumentError,
    JobFailedError,
    NotFoundError,
    StageMap,
    State,
    Windlass,
)
from windlass.core.codec import JsonCodec
from windlass.core.event import Event, EventType
from windlass.stores.event_decoder import EventDecoder


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    app = Windlass("memory:", codec=EncryptingCodec({"k1": bytes(32)}))
    yield app
    await app.aclose()


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Windlass]:
    app = Windlass(f"sqlite:///{tmp_path}/jobs.db?durability=off")
    yield app
    app.close()


def burst(app: Windlass) -> None:
    asyncio.run(asyncio.wait_for(app.worker(config(burst=True)).run(), WAIT_TIMEOUT))


# -- events of a task


async def test_the_last_event_of_a_success_has_output_artifacts_and_last_lines(
    app: Windlass,
) -> None:
    @app.task
    async def task(ctx: Context) -> dict[str, int]:
        for number in range(30):
            ctx.log(f"line {number}")
        ctx.artifact("film", "file:///film.mp4", 1234)
        ctx.artifact("poster", "file:///poster.png")
        return {"frames": 3}

    job = await task.aenqueue()
    await run_burst(app)
    [*_, last] = await events_of(job)
    assert last.type is EventType.JOB_COMPLETED
    assert last.data["output"] == {"frames": 3}
    assert last.data["logs"] == [f"line {number}" for number in range(10, 30)]
    first, second = last.data["artifacts"]
    assert (first["name"], first["uri"], first["size"]) == ("film", "file:///film.mp4", 1234)
    assert (second["name"], second["size"]) == ("poster", None)


async def test_the_final_event_of_a_failure_has_error_artifacts_and_logs(
    app: Windlass,
) -> None:
    @app.task(max_retries=0)
    async def task(ctx: Context) -> None:
        ctx.log("opening")
        ctx.warn("it is damp")
        raise OSError("the disk is wet")

    job = await task.aenqueue()
    await run_burst(app)
    [*_, last] = await events_of(job)
    assert last.type is EventType.JOB_FAILED
    assert last.data["errorMessage"] == "the disk is wet"
    assert last.data["errors"] == ["the disk is wet"]
    assert last.data["logs"] == ["opening", "it is damp"]


async def test_a_reader_that_starts_late_gets_the_complete_summary(app: Windlass) -> None:
    @app.task
    async def task(ctx: Context) -> None:
        ctx.log("early")
        ctx.artifact("film", "file:///film.mp4")

    job = await task.aenqueue()
    await run_burst(app)
    everything = await events_of(job)
    late = [event async for event in job.aevents(after=everything[-2].seq)]
    assert late == everything[-1:]
    assert [made["name"] for made in late[0].data["artifacts"]] == ["film"]


async def test_each_event_has_decoded_data(app: Windlass) -> None:
    @app.task
    async def task(ctx: Context) -> None:
        ctx.progress(40, "half way, nearly")
        ctx.emit("output", {"stream": "stdout", "text": "hello", "offset": 3})

    job = await task.aenqueue()
    await run_burst(app)
    progress, output = await events_of(job, EventType.STEP_PROGRESS, EventType.OUTPUT)
    assert (progress.data["progressPct"], progress.data["message"]) == (40, "half way, nearly")
    assert (output.data["stream"], output.data["text"]) == ("stdout", "hello")


@pytest.mark.parametrize(
    ("kind", "message"),
    [("gossip", "a task may emit artifact, error, log"), ("job-completed", "by the store")],
)
async def test_a_lifecycle_event_recorded_by_a_task_is_refused(
    app: Windlass, kind: str, message: str
) -> None:
    @app.task(terminal_on=InvalidArgumentError)
    async def task(ctx: Context) -> None:
        ctx.emit(kind, {})

    job = await task.aenqueue()
    await run_burst(app)
    [*_, last] = await events_of(job)
    assert message in last.data["errorMessage"]


# -- stages


async def progress_of(app: Windlass, stages: StageMap | None = None) -> list[tuple[str, str, int]]:
    @app.task(stages=stages)
    async def task(ctx: Context) -> None:
        for stage in ("Load", "fold"):
            ctx.stage(stage)
            await ctx.flush()  # so that each report is stored, not only the newest
            ctx.progress(50)
            await ctx.flush()

    job = await task.aenqueue()
    await run_burst(app)
    progress = [event.data for event in await events_of(job, EventType.STEP_PROGRESS)]
    return [(event["stage"], event["phase"], event["progressPct"]) for event in progress]


async def test_the_stages_of_an_app_set_the_progress_ranges_of_its_tasks() -> None:
    app = Windlass("memory:", stages={"load": ("prepare", (0, 40)), "fold": ("work", (40, 100))})
    progress = await progress_of(app)
    assert progress == [
        ("Load", "prepare", 0),
        ("Load", "prepare", 20),
        ("fold", "work", 40),
        ("fold", "work", 70),
    ]
    await app.aclose()


async def test_the_stages_of_a_task_override_those_of_the_app(app: Windlass) -> None:
    table = StageMap.of({"load": ("prepare", (0, 80)), "fold": ("work", None)})
    progress = await progress_of(app, table)
    assert progress[1:] == [("Load", "prepare", 40), ("fold", "work", 40), ("fold", "work", 40)]


@pytest.mark.parametrize("wrong", [{"load": 3}, 7, ["load"]])
def test_invalid_stages_are_refused_with_an_example(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"\(phase, \(low, high\)\)"):
        Windlass("memory:", stages=wrong)


# -- without an event loop


def test_a_job_is_followed_without_an_event_loop(plain: Windlass) -> None:
    @plain.task
    def task(ctx: Context) -> str:
        ctx.log("working")
        return "done"

    job = task.enqueue()
    following = job.events()
    assert next(following).data["status"] == "created"
    burst(plain)
    rest = list(following)
    assert [event.seq for event in rest] == list(range(2, 2 + len(rest)))
    assert rest[-1].data["output"] == "done"
    assert rest[-1].data["logs"] == ["working"]


def test_a_reader_that_stops_early_leaves_no_open_stream(plain: Windlass) -> None:
    @plain.task
    def task() -> None: ...

    job = task.enqueue()
    for event in job.events():
        assert event.seq == 1
        break
    assert job.cancel() is State.CANCELED


# -- retry and resume


def test_a_failed_job_is_retried_from_the_start_or_resumed_after_its_last_step(
    plain: Windlass,
) -> None:
    progress: list[str] = []
    broken = True

    def first() -> str:
        progress.append("first")
        return "made"

    @plain.task(max_retries=0)
    def task(ctx: Context) -> str:
        made = ctx.step("first", first)
        if broken:
            raise OSError("no")
        return made

    job = task.enqueue()
    with pytest.raises(ConflictError):
        job.resume()
    burst(plain)
    again = job.refresh().retry()
    burst(plain)
    assert again.refresh().row.retry_of == job.id
    assert progress == ["first", "first"]
    broken = False
    resumed = again.resume()
    assert resumed.row.retry_of == again.id
    burst(plain)
    assert resumed.result() == "made"
    assert progress == ["first", "first"]


async def test_a_second_retry_returns_the_unfinished_retry(app: Windlass) -> None:
    @app.task(max_retries=0)
    async def task() -> None:
        raise OSError("no")

    job = await task.aenqueue()
    await run_burst(app)
    first, second = await job.aretry(), await job.aretry()
    assert (first.id, first.duplicate, second.duplicate) == (second.id, False, True)


# -- lookup and wait


def test_a_job_is_found_by_its_id(plain: Windlass) -> None:
    @plain.task
    async def task() -> int:
        return 5

    job = task.enqueue()
    assert plain.job(job.id).id == plain.job(str(job.id)).id == job.id
    with pytest.raises(InvalidArgumentError, match="'abc' is not a job id"):
        plain.job("abc")
    with pytest.raises(NotFoundError):
        plain.job(UUID(int=7))


def test_a_timeout_names_the_job_and_its_queue(plain: Windlass) -> None:
    @plain.task(queue="media")
    async def task() -> None: ...

    job = task.enqueue()
    with pytest.raises(TimeoutError, match=r"still queued after 0.05 s; is a worker .* 'media'"):
        job.wait(timeout="50ms")


async def test_a_failure_has_its_category_and_the_remote_traceback(app: Windlass) -> None:
    @app.task(max_retries=0)
    async def task() -> None:
        raise KeyError("/a")

    job = await task.aenqueue()
    await run_burst(app)
    with pytest.raises(JobFailedError, match="attempt 1: KeyError: '/a'") as caught:
        await job.aresult()
    [note] = caught.value.__notes__
    assert note.startswith("In the worker:\nTraceback")
    assert note.endswith("KeyError: '/a'")


@pytest.mark.parametrize("body", [b"5", b'"text"', b"[1]", b"\xff", b"null"])
def test_an_event_body_that_is_no_object_adds_no_data(body: bytes) -> None:
    event = Event(
        job_id=UUID(int=1), seq=3, at=0, type=EventType.LOG, data={"step": "x"}, body=body
    )
    failed = replace(event, type=EventType.JOB_FAILED, data={"error": {"code": "crashed"}})
    decoder = EventDecoder(JsonCodec())
    assert decoder.decode(event).data == {"step": "x"}
    assert decoder.decode(failed).data["errorMessage"] == "crashed"
