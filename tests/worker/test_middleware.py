"""Middleware of an application: hooks around every enqueue and every run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.worker.workers import run_burst

from windlass import ConfigurationError, Context, JobFailedError, NewJob, State, Windlass
from windlass.worker.middleware import CallNext


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    app = Windlass("memory:")
    yield app
    await app.aclose()


async def test_a_function_runs_around_every_task_the_first_outermost(app: Windlass) -> None:
    calls: list[str] = []

    @app.middleware
    async def outer(ctx: Context, call_next: CallNext) -> Any:
        calls.append(f"outer {ctx.job.task}")
        value = await call_next()
        calls.append("outer end")
        return value

    @app.middleware
    async def inner(ctx: Context, call_next: CallNext) -> Any:
        calls.append("inner")
        return await call_next() + 1

    @app.task(name="plus")
    def plus() -> int:
        calls.append("task")
        return 1

    job = await plus.aenqueue()
    await run_burst(app)
    assert await job.aresult() == 2
    assert calls == ["outer plus", "inner", "task", "outer end"]


async def test_an_object_may_have_both_hooks(app: Windlass) -> None:
    @app.middleware
    class Tenant:
        def enqueue(self, new_job: NewJob) -> NewJob:
            return replace(new_job, headers={**new_job.headers, "tenant": "t1"})

        async def run(self, ctx: Context, call_next: CallNext) -> Any:
            return [ctx.job.headers["tenant"], await call_next()]

    @app.task
    async def task() -> Any:
        return "done"

    job = await task.aenqueue()
    await run_burst(app)
    assert await job.aresult() == ["t1", "done"]


def test_each_enqueue_calls_the_hook_once_also_in_a_transaction(tmp_path: Any) -> None:
    app = Windlass(f"sqlite:///{tmp_path}/jobs.db?durability=off")
    seen: list[str] = []

    @app.middleware
    def count(new_job: NewJob) -> NewJob:
        seen.append(new_job.task)
        return new_job

    @app.task(name="t")
    def task() -> None: ...

    task.enqueue()
    assert seen == ["t"]
    with app.transaction():
        task.enqueue()
    assert seen == ["t", "t"]
    app.close()


async def test_an_enqueue_hook_that_raises_fails_that_enqueue_and_stores_nothing(
    app: Windlass,
) -> None:
    @app.middleware
    def refuse(new_job: NewJob) -> NewJob:
        raise PermissionError("not today")

    @app.task(name="t")
    def task() -> None: ...

    with pytest.raises(PermissionError, match="not today") as refused:
        await task.aenqueue()
    [note] = refused.value.__notes__
    assert f"{__file__}:" in note
    assert "'t'" in note
    assert not await app.client().store.insights.stats()


async def test_an_enqueue_hook_that_returns_no_job_is_refused(app: Windlass) -> None:
    @app.middleware
    def forget(new_job: NewJob) -> None: ...

    @app.task
    def task() -> None: ...

    with pytest.raises(ConfigurationError, match=r"returned None.*must return the NewJob"):
        await task.aenqueue()


async def test_a_run_hook_that_raises_fails_that_attempt_and_never_the_worker(
    app: Windlass,
) -> None:
    @app.middleware
    async def guard(ctx: Context, call_next: CallNext) -> Any:
        if ctx.job.task == "bad":
            raise PermissionError("not this one")
        return await call_next()

    @app.task(name="bad", max_retries=0)
    async def bad() -> None: ...

    @app.task(name="good")
    async def good() -> int:
        return 1

    first, second = await bad.aenqueue(), await good.aenqueue()
    await run_burst(app)
    with pytest.raises(JobFailedError, match="not this one") as failed:
        await first.aresult()
    assert failed.value.remote_traceback is not None
    assert "in guard" in failed.value.remote_traceback
    assert await second.aresult() == 1


async def test_the_time_of_middleware_counts_towards_the_timeout(app: Windlass) -> None:
    @app.middleware
    async def slow(ctx: Context, call_next: CallNext) -> Any:
        await asyncio.Event().wait()

    @app.task(timeout=0.05, max_retries=0)
    async def task() -> None: ...

    job = await task.aenqueue()
    await run_burst(app)
    row = (await job.arefresh()).row
    assert row.state is State.FAILED
    assert row.error is not None
    assert row.error.code == "timeout"


class SyncRun:
    def run(self, ctx: Context, call_next: CallNext) -> None: ...


class AsyncEnqueue:
    async def enqueue(self, new_job: NewJob) -> NewJob:
        return new_job


@pytest.mark.parametrize("wrong", [object(), 7, SyncRun, AsyncEnqueue()])
def test_an_invalid_middleware_is_refused_with_the_expected_signature(wrong: Any) -> None:
    app = Windlass("memory:")
    with pytest.raises(ConfigurationError, match=r"def (run|enqueue)"):
        app.middleware(wrong)
    app.close()
