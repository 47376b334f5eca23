"""Contexts for calling one task without a worker."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from windlass import ConfigurationError, Context, InvalidArgumentError, NewJob, Tasks, Windlass
from windlass.core.codec import JsonCodec, Purpose
from windlass.core.event import EventType
from windlass.testing import context, twin


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Windlass]:
    app = Windlass(f"sqlite:///{tmp_path}/jobs.db", data=tmp_path / "data")
    yield app
    app.close()


def film(ctx: Context, path: str) -> str:
    ctx.stage("tts")
    ctx.progress(50, "half of it")
    voice = ctx.step("voice", lambda: f"{path}.wav")
    ctx.log("rendering")
    ctx.warn("slow disk")
    ctx.artifact("film", "file:///film.mp4", 12)
    return voice


async def dub(path: str) -> str:
    return f"{path}.wav"


async def async_film(ctx: Context, path: str) -> str:
    ctx.stage("tts")
    ctx.progress(50, "half of it")
    voice = await ctx.astep("voice", dub, path)
    ctx.log("rendering")
    ctx.warn("slow disk")
    ctx.artifact("film", "file:///film.mp4", 12)
    return voice


@pytest.mark.parametrize("asynchronous", [True, False])
def test_the_context_records_the_events_of_the_task(app: Windlass, asynchronous: bool) -> None:
    ctx = context()
    if asynchronous:
        assert asyncio.run(app.task(async_film)(ctx, path="a")) == "a.wav"
    else:
        assert app.task(film)(ctx, path="a") == "a.wav"
    assert [event.type for event in ctx.events] == [
        EventType.STEP_PROGRESS,
        EventType.STEP_STATUS,
        EventType.LOG,
        EventType.WARNING,
        EventType.ARTIFACT,
    ]
    assert ctx.events[0].data["message"] == "half of it"
    assert ctx.events[2].data["message"] == "rendering"
    assert ctx.percent == 25
    assert ctx.current_stage == "tts"
    assert ctx.steps == {"voice": "a.wav"}
    [artifact] = ctx.artifacts
    assert (artifact["name"], artifact["uri"], artifact["size"]) == ("film", "file:///film.mp4", 12)


async def test_in_an_async_test_the_context_uses_the_loop_of_the_test(app: Windlass) -> None:
    task = app.task(async_film)
    ctx = context(task)
    assert await task(ctx, "a") == "a.wav"
    assert ctx.steps == {"voice": "a.wav"}


async def test_a_sync_step_in_an_async_task_is_refused_as_in_a_worker(app: Windlass) -> None:
    @app.task
    async def wrong(ctx: Context) -> None:
        ctx.step("voice", str)

    with pytest.raises(ConfigurationError, match=r"ctx\.astep"):
        await wrong(context())


async def test_a_sync_task_works_in_an_async_test_if_passed_to_context(app: Windlass) -> None:
    task = app.task(film)
    assert task(context(task), "a") == "a.wav"


def test_steps_of_earlier_attempts_do_not_run_again(app: Windlass) -> None:
    task = app.task(film)
    ctx = context(task, steps={"voice": "kept.wav"})
    assert ctx.attempt == 2
    assert task(ctx, "a") == "kept.wav"
    assert ctx.steps == {"voice": "kept.wav"}
    assert [event.data["message"] for event in ctx.events if event.type is EventType.LOG] == [
        "rendering"
    ]


def test_a_context_of_the_second_attempt_has_the_steps_of_the_first(app: Windlass) -> None:
    task = app.task(max_retries=0)(film)
    first = context(task)
    task(first, "a")
    second = context(task, steps=first.steps, attempt=5)
    assert (second.attempt, second.fence) == (5, 5)
    assert second.job.retry_count == 4
    assert task(second, "b") == "a.wav"


def test_steps_need_an_earlier_attempt() -> None:
    with pytest.raises(InvalidArgumentError, match="at least 2 with steps"):
        context(steps={"voice": 1}, attempt=1)
    with pytest.raises(InvalidArgumentError, match="attempt is 0"):
        context(attempt=0)


def test_fields_of_the_job_are_passed_by_name(app: Windlass) -> None:
    task = app.task(queue="media", priority=3)(film)
    ctx = context(task, owner="ann", tags=("x",), headers={"trace": "t"}, state="model")
    job = ctx.job
    assert (job.owner, job.tags, job.queue, job.priority) == ("ann", ("x",), "media", 3)
    assert job.headers["trace"] == "t"
    assert job.correlation_id == str(job.id)
    assert job.task == task.name
    assert ctx.state == "model"
    with pytest.raises(InvalidArgumentError, match=r"unknown job field ownr; use one of"):
        context(ownr="ann")


def test_a_context_can_be_cancelled_for_the_task() -> None:
    assert context(cancelled=True).cancelled
    assert not context().cancelled
    ctx = context()
    ctx.cancelled = True
    assert ctx.cancelled


def test_the_workspace_is_a_directory_deleted_with_the_context(
    tmp_path: Path, app: Windlass
) -> None:
    ctx = context(app.task(film))
    place = ctx.workspace / "file"
    place.write_text("x")
    assert tmp_path not in place.parents
    del ctx
    gc.collect()
    assert not place.exists()


def test_jobs_enqueued_in_a_context_reach_no_real_store(app: Windlass, tmp_path: Path) -> None:
    @app.middleware
    def mark(new: NewJob) -> NewJob:
        return replace(new, tags=("seen",))

    @app.task
    def leaf(number: int) -> None:
        pass

    @app.task
    def root(ctx: Context) -> None:
        ctx.enqueue(leaf, 1)
        ctx.then(leaf, 2)

    ctx = context(root, headers={"correlation-id": "story"})
    root(ctx)
    [now], [then] = ctx.enqueued, ctx.children
    assert (now.row.task, then.task) == (leaf.name, leaf.name)
    assert (now.row.tags, then.tags) == (("seen",), ("seen",))
    assert now.row.correlation_id == then.headers["correlation-id"] == "story"
    assert not (tmp_path / "jobs.db").exists()


def test_in_a_twin_jobs_enqueued_in_a_context_belong_to_the_twin(app: Windlass) -> None:
    @app.task
    def leaf(number: int) -> None:
        pass

    @app.task
    def root(ctx: Context) -> None:
        ctx.enqueue(leaf, 1)
        leaf.enqueue(2)

    with twin(app) as jobs:
        root(context(root))
        jobs.assert_enqueued(leaf, count=2)


def test_the_context_uses_the_codec_of_the_app(tmp_path: Path) -> None:
    class Money(JsonCodec):
        def encode(self, value: Any, purpose: Purpose) -> bytes:
            return super().encode(str(value), purpose)

        def decode(self, data: bytes, purpose: Purpose) -> Any:
            return Decimal(super().decode(data, purpose))

    app = Windlass(f"sqlite:///{tmp_path}/jobs.db", codec=Money())

    @app.task
    def pay(ctx: Context) -> Decimal:
        return ctx.step("sum", lambda: Decimal("1.10"))

    assert pay(context(pay)) == Decimal("1.10")
    assert pay(context(pay, steps={"sum": Decimal("2.20")})) == Decimal("2.20")
    app.close()


def test_the_context_uses_stages_of_task_and_app(tmp_path: Path) -> None:
    app = Windlass("memory:", stages={"tts": ("Voice", (0, 50))})
    task = app.task(film)
    ctx = context(task)
    task(ctx, "a")
    assert ctx.percent == 25
    own = app.task(name="own", stages={"tts": ("Voice", (90, 100))})(film)
    ctx = context(own)
    own(ctx, "a")
    assert ctx.percent == 95
    app.close()


def test_a_task_of_a_group_without_an_app_can_be_called() -> None:
    task = Tasks().task(film)
    ctx = context(task)
    assert task(ctx, "a") == "a.wav"
