"""Jobs that a task enqueues: with its success, or at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import pytest
from tests.worker.workers import run_burst

from windlass import Cancel, Context, JobFailedError, NewJob, State, Windlass, fixed
from windlass.core.query.job_query import JobQuery


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    app = Windlass("memory:")
    yield app
    await app.aclose()


async def states(app: Windlass, ids: list[UUID]) -> list[State | None]:
    rows = await app.client().store.get(ids)
    return [row.state if row else None for row in rows]


async def test_child_jobs_are_stored_with_the_success_and_not_before(app: Windlass) -> None:
    before: list[State | None] = []

    @app.task
    async def child(number: int) -> int:
        return number

    @app.task(max_retries=1, backoff=fixed(0))
    async def parent(ctx: Context) -> str:
        child_id = ctx.then(child.options(priority=3), 7)
        await ctx.flush()
        before.extend(await states(app, [child_id]))
        if ctx.attempt == 1:
            raise OSError("not yet")
        return str(child_id)

    job = await parent.aenqueue()
    await run_burst(app)
    child_id = UUID(await job.aresult())
    assert before == [None, None]
    [row] = await app.client().store.get([child_id])
    assert row is not None
    assert (row.state, row.priority) == (State.SUCCEEDED, 3)
    assert row.correlation_id == str(job.id)
    page = await app.client().store.find(JobQuery())
    # The child of the failed attempt was never stored.
    assert {found.id for found in page.rows} == {job.id, child_id}


@pytest.mark.parametrize("error", [OSError("no"), Cancel("no")])
async def test_an_attempt_without_success_stores_no_child_jobs(
    app: Windlass, error: Exception
) -> None:
    child_ids: list[UUID] = []

    @app.task
    async def child() -> None: ...

    @app.task(max_retries=0)
    async def parent(ctx: Context) -> None:
        child_ids.append(ctx.then(child))
        raise error

    await parent.aenqueue()
    await run_burst(app)
    assert await states(app, child_ids) == [None]


async def test_children_pass_the_enqueue_hooks_once(app: Windlass) -> None:
    @app.middleware
    def stamp(new_job: NewJob) -> NewJob:
        return replace(new_job, tags=(*new_job.tags, "stamped"))

    @app.task
    async def child() -> None: ...

    @app.task
    async def parent(ctx: Context) -> list[str]:
        return [str(ctx.then(child)), str((await ctx.aenqueue(child)).id)]

    job = await parent.aenqueue()
    await run_burst(app)
    rows = await app.client().store.get([UUID(child_id) for child_id in await job.aresult()])
    assert [row and row.tags for row in rows] == [("stamped",), ("stamped",)]


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
async def test_a_job_enqueued_at_once_stays_when_its_task_fails(app: Windlass, sync: bool) -> None:
    child_ids: list[UUID] = []

    @app.task
    async def child(text: str) -> str:
        return text

    async def on_loop(ctx: Context) -> None:
        child_ids.append((await ctx.aenqueue(child, "hello")).id)
        raise OSError("no")

    def on_thread(ctx: Context) -> None:
        child_ids.append(ctx.enqueue(child, "hello").id)
        raise OSError("no")

    parent = app.task(max_retries=0)(on_thread if sync else on_loop)
    job = await parent.aenqueue()
    await run_burst(app)
    [row] = await app.client().store.get(child_ids)
    assert row is not None
    assert (row.state, row.correlation_id) == (State.SUCCEEDED, str(job.id))


async def test_sync_methods_are_refused_on_the_worker_loop(
    app: Windlass,
) -> None:
    @app.task
    async def child() -> None: ...

    @app.task(max_retries=0)
    async def parent(ctx: Context) -> None:
        ctx.enqueue(child)

    job = await parent.aenqueue()
    await run_burst(app)
    with pytest.raises(JobFailedError, match=r"await ctx\.aenqueue"):
        await job.aresult()
