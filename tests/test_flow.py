"""Flows as users write them: graphs, chains and groups, with results passed on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import assert_type

import pytest

from windlass import (
    ChildrenFailed,
    ConflictError,
    Context,
    InvalidArgumentError,
    NotFoundError,
    State,
    TerminalError,
    Windlass,
    WorkerConfig,
    chain,
    fixed,
    group,
)
from windlass.core.errors import InvalidInput
from windlass.core.ids import uuid7

WAIT_TIMEOUT = 60.0


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Windlass:
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    return Windlass(url, data=tmp_path / "data")


@asynccontextmanager
async def working(app: Windlass) -> AsyncIterator[None]:
    worker = app.worker(WorkerConfig(poll_interval=0.05))
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await running
        await app.aclose()


async def test_results_are_passed_from_parents_to_children(app: Windlass) -> None:
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    flow = app.flow()
    left = flow.add(double, 3)
    right = flow.add(double, left.result)
    assert_type(right.result, int)
    total = flow.add(add, left.result, b=right.result)
    run = await flow.aenqueue()
    async with working(app):
        stats = await run.await_end(WAIT_TIMEOUT)
        assert (stats.state, stats.percent, stats.jobs) == (State.SUCCEEDED, 100, 3)
        assert await (await run.ajob(total)).aresult() == 18
        jobs = [job async for job in run.ajobs()]
        assert {job.row.flow_id for job in jobs} == {run.id}


async def test_a_fan_in_gets_all_results_in_order(app: Windlass) -> None:
    @app.task
    async def square(n: int) -> int:
        return n * n

    @app.task
    async def gather(parts: list[int], extra: dict[str, list[int]]) -> list[int]:
        return [*parts, *extra["last"]]

    flow = app.flow()
    parts = flow.each(square, range(20))
    end = flow.add(gather, parts.results, {"last": [parts.nodes[3].result, 7]})
    run = await flow.aenqueue()
    async with working(app):
        await run.await_end(WAIT_TIMEOUT)
        assert await (await run.ajob(end)).aresult() == [*(n * n for n in range(20)), 9, 7]


async def test_a_parent_result_of_the_wrong_type_fails_the_child(app: Windlass) -> None:
    @app.task
    async def name() -> str:
        return "ada"

    @app.task(max_retries=0)
    async def double(n: int) -> int:
        return 2 * n

    flow = app.flow()
    wrong = flow.add(double, flow.add(name).result)  # type: ignore[arg-type]
    run = await flow.aenqueue()
    async with working(app):
        assert (await run.await_end(WAIT_TIMEOUT)).state is State.FAILED
        job = await run.ajob(wrong)
        assert job.row.error is not None
        assert job.row.error.code == InvalidInput.code


async def test_a_node_can_wait_without_a_result_or_run_always(app: Windlass) -> None:
    ran: list[str] = []

    @app.task
    async def note(word: str) -> None:
        ran.append(word)

    @app.task(max_retries=0)
    async def fail() -> None:
        ran.append("fail")
        raise TerminalError("no")

    flow = app.flow()
    first = flow.add(note, "first")
    bad = flow.add(fail).after(first)
    never = flow.add(note, "never").after(bad)
    last = flow.add(note, "last").after(bad, never).run_always()
    run = await flow.aenqueue()
    async with working(app):
        assert (await run.await_end(WAIT_TIMEOUT)).state is State.FAILED
        assert ran == ["first", "fail", "last"]
        assert (await run.ajob(never)).state is State.CANCELED
        assert (await run.ajob(last)).state is State.SUCCEEDED


async def test_a_cycle_is_refused_with_the_names_of_its_tasks(app: Windlass) -> None:
    @app.task(name="turn")
    async def turn() -> None: ...

    flow = app.flow()
    one, two = flow.add(turn), flow.add(turn)
    one.after(two)
    two.after(one)
    with pytest.raises(InvalidArgumentError, match="cycle: its jobs of turn"):
        await flow.aenqueue()
    with pytest.raises(InvalidArgumentError, match="no jobs"):
        await app.flow().aenqueue()
    await app.aclose()


async def test_a_flow_with_an_invalid_job_stores_nothing(app: Windlass) -> None:
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    flow = app.flow()
    flow.add(double, 1)
    flow.put(double.options(depends_on=[uuid7()]).call(2))
    with pytest.raises(NotFoundError, match="which does not exist"):
        await flow.aenqueue()
    with pytest.raises(NotFoundError):
        await app.aflow_run(flow.id)
    await app.aclose()


async def test_chains_and_groups_pass_results_on(app: Windlass) -> None:
    @app.task
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @app.task
    async def total(parts: list[int]) -> int:
        return sum(parts)

    run = await chain(add.call(1), add, group(add.call(b=10), add.call(b=20)), total).aenqueue()
    async with working(app):
        assert (await run.await_end(WAIT_TIMEOUT)).state is State.SUCCEEDED
        results = [await job.aresult() async for job in run.ajobs()]
        assert results == [36, 23, 13, 3, 2]


async def test_a_flow_is_canceled_and_retried_as_a_whole(app: Windlass) -> None:
    ready = False
    ran: list[int] = []

    @app.task(max_retries=0)
    async def shaky(n: int) -> int:
        ran.append(n)
        if n == 2 and not ready:
            raise TerminalError("not yet")
        return n

    @app.task
    async def total(parts: list[int]) -> int:
        return sum(parts)

    flow = app.flow()
    parts = flow.each(shaky, [1, 2, 3])
    end = flow.add(total, parts.results)
    run = await flow.aenqueue()
    async with working(app):
        assert (await run.await_end(WAIT_TIMEOUT)).state is State.FAILED
        assert (await run.ajob(end)).state is State.CANCELED
        assert sorted(ran) == [1, 2, 3]
        ready = True
        await run.aretry()
        assert (await run.await_end(WAIT_TIMEOUT)).state is State.SUCCEEDED
        assert await (await run.ajob(end)).aresult() == 6
        assert sorted(ran) == [1, 2, 2, 3]
        with pytest.raises(ConflictError, match="no job to re-run"):
            await run.aretry()

        held = app.flow()
        first = held.put(shaky.options(hold=True).call(5))
        held.add(shaky, first.result)
        waiting = await held.aenqueue()
        assert await waiting.acancel(reason="enough") == 2
        assert (await waiting.await_end(WAIT_TIMEOUT)).state is State.CANCELED


async def test_a_flow_resumes_after_completed_steps(app: Windlass) -> None:
    done: list[str] = []
    ready = False

    async def script() -> str:
        done.append("script")
        return "text"

    @app.task(max_retries=0)
    async def make(ctx: Context) -> str:
        text = await ctx.astep("script", script)
        if not ready:
            raise TerminalError("no voice")
        return text

    flow = app.flow()
    node = flow.add(make)
    run = await flow.aenqueue()
    async with working(app):
        await run.await_end(WAIT_TIMEOUT)
        ready = True
        await run.aresume()
        await run.await_end(WAIT_TIMEOUT)
        assert await (await run.ajob(node)).aresult() == "text"
        assert done == ["script"]


async def test_options_make_a_job_depend_on_others(app: Windlass) -> None:
    @app.task
    async def note(n: int) -> int:
        return n

    first = await note.options(hold=True).aenqueue(1)
    second = await note.options(depends_on=[first]).aenqueue(2)
    third = await note.options(depends_on=first.id, on_parent="run").aenqueue(3)
    assert (second.row.waiting_for, third.row.waiting_for) == (1, 1)
    why = await app.client().why(second.id)
    assert str(first.id) in str(why)
    with pytest.raises(InvalidArgumentError, match="must contain jobs"):
        note.options(depends_on=["one"])
    with pytest.raises(InvalidArgumentError, match="cancel, fail, run"):
        note.options(on_parent="explode")
    async with working(app):
        await first.asubmit()
        assert await third.aresult(WAIT_TIMEOUT) == 3
        assert await second.aresult(WAIT_TIMEOUT) == 2


# -- from inside a task


async def test_a_task_fans_out_and_continues_with_the_results(app: Windlass) -> None:
    started: list[int] = []
    prepared: list[str] = []

    @app.task(queue="parts")
    async def part(n: int, factor: int = 10) -> int:
        return n * factor

    async def prepare() -> str:
        prepared.append("once")
        return "ready"

    @app.task
    async def whole(ctx: Context) -> int:
        started.append(ctx.attempt)
        await ctx.astep("prepare", prepare)
        first = await ctx.amap(part, [1, (2, 20), {"n": 3}])
        second = await ctx.amap(part, first)
        return sum(second)

    job = await whole.aenqueue()
    worker = app.worker(WorkerConfig(queues={"default": 1, "parts": 2}, poll_interval=0.05))
    running = asyncio.create_task(worker.run())
    try:
        assert await job.aresult(WAIT_TIMEOUT) == 800
        assert started == [1, 2, 3]
        assert prepared == ["once"]
        assert (await job.arefresh()).row.retry_count == 0
    finally:
        worker.stop()
        await running
        await app.aclose()


async def test_an_attempt_after_a_failure_finds_its_children_again(
    app: Windlass,
) -> None:
    ran: list[int] = []
    attempts: list[int] = []

    @app.task
    async def part(n: int) -> int:
        ran.append(n)
        return n

    @app.task(backoff=fixed(0))
    async def whole(ctx: Context) -> int:
        attempts.append(ctx.attempt)
        total: int = sum(await ctx.amap(part, [1, 2]))
        if ctx.attempt == 2:
            raise ValueError("once")
        more: int = sum(await ctx.amap(part, [3]))
        return total + more

    job = await whole.aenqueue()
    async with working(app):
        assert await job.aresult(WAIT_TIMEOUT) == 6
    assert sorted(ran) == [1, 2, 3]
    assert attempts == [1, 2, 3, 4]
    assert job.row.retry_count == 1


async def test_a_failed_child_raises_in_the_waiting_task(app: Windlass) -> None:
    @app.task(max_retries=0)
    async def part(n: int) -> int:
        if n == 1:
            raise TerminalError("bad part")
        return n

    @app.task
    async def whole(ctx: Context) -> str:
        try:
            await ctx.amap(part, range(3))
        except ChildrenFailed as error:
            return str(error)
        return "fine"

    job = await whole.aenqueue()
    async with working(app):
        assert "of 3 jobs of" in await job.aresult(WAIT_TIMEOUT)


async def test_a_sync_task_can_fan_out_and_wait(app: Windlass) -> None:
    @app.task
    def part(n: int) -> int:
        return n + 1

    @app.task
    def whole(ctx: Context) -> list[int]:
        parts = ctx.map(part, [1, 2])
        return [*parts, ctx.wait_for("more", timeout=WAIT_TIMEOUT)]

    job = await whole.aenqueue()
    async with working(app):
        await app.asignal(job, "more", 9)
        assert await job.aresult(WAIT_TIMEOUT) == [2, 3, 9]


async def test_a_task_waits_for_a_signal_without_a_slot(app: Windlass) -> None:
    @app.task
    async def approval(ctx: Context) -> dict[str, str]:
        approval: dict[str, str] = await ctx.await_for("approved")
        return approval

    @app.task
    async def other() -> str:
        return "ran meanwhile"

    job = await approval.aenqueue()
    worker = app.worker(WorkerConfig(queues={"default": 1}, poll_interval=0.05))
    running = asyncio.create_task(worker.run())
    try:
        async for event in job.aevents():
            if event.data.get("status") == State.RETRYING:
                break
        assert await (await other.aenqueue()).aresult(WAIT_TIMEOUT) == "ran meanwhile"
        assert "until a signal arrives" in str(await app.client().why(job.id))
        await app.asignal(job.id, "approved", {"by": "ada"})
        assert await job.aresult(WAIT_TIMEOUT) == {"by": "ada"}
        with pytest.raises(ConflictError):
            await app.asignal(job, "late")
    finally:
        worker.stop()
        await running
        await app.aclose()


async def test_a_signal_after_the_timeout_raises_an_error(app: Windlass) -> None:
    @app.task
    async def patient(ctx: Context) -> str:
        try:
            await ctx.await_for("never", timeout=0.2)
        except TimeoutError:
            return "gave up"
        return "came"

    job = await patient.aenqueue()
    async with working(app):
        assert await job.aresult(WAIT_TIMEOUT) == "gave up"


async def test_a_retried_job_of_a_flow_gets_the_same_parent_results(app: Windlass) -> None:
    broken = [True]

    @app.task
    async def number() -> int:
        return 3

    @app.task(max_retries=0)
    async def double(n: int) -> int:
        if broken:
            raise ValueError(n)
        return 2 * n

    flow = app.flow()
    last = flow.add(double, flow.add(number).result)
    run = await flow.aenqueue()
    async with working(app):
        assert (await run.await_end(WAIT_TIMEOUT)).state is State.FAILED
        broken.clear()
        again = await (await run.ajob(last)).aretry()
        assert await again.aresult(WAIT_TIMEOUT) == 6
        assert (await run.await_end(WAIT_TIMEOUT)).state is State.SUCCEEDED


async def test_a_retry_waits_for_the_retry_of_its_parent(app: Windlass) -> None:
    broken = [True]

    @app.task(max_retries=0)
    async def number() -> int:
        if broken:
            raise ValueError
        return 3

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    flow = app.flow()
    first = flow.add(number)
    last = flow.add(double, first.result)
    run = await flow.aenqueue()
    async with working(app):
        await run.await_end(WAIT_TIMEOUT)
        early = await (await run.ajob(last)).aretry()
        await early.arefresh()
        assert early.row.state is State.CANCELED  # because its parent has not succeeded
        await (await run.ajob(first)).aretry()  # fails again, after its child was created
        await run.await_end(WAIT_TIMEOUT)
        broken.clear()
        await run.aretry()
        assert (await run.await_end(WAIT_TIMEOUT)).state is State.SUCCEEDED
        assert await (await run.ajob(last)).aresult() == 6


async def test_a_flow_with_a_fan_out_is_retried(app: Windlass) -> None:
    broken = [True]

    @app.task(max_retries=0)
    async def part(n: int) -> int:
        if n == 1 and broken:
            raise ValueError(n)
        return n

    @app.task(max_retries=0)
    async def whole(ctx: Context) -> int:
        return sum(await ctx.amap(part, [0, 1, 2]))

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    flow = app.flow()
    last = flow.add(double, flow.add(whole).result)
    run = await flow.aenqueue()
    async with working(app):
        assert (await run.await_end(WAIT_TIMEOUT)).state is State.FAILED
        broken.clear()
        await run.aretry()
        assert (await run.await_end(WAIT_TIMEOUT)).state is State.SUCCEEDED
        assert await (await run.ajob(last)).aresult() == 6


async def test_a_job_with_a_pruned_parent_is_not_retried_with_another_result(
    app: Windlass,
) -> None:
    @app.task
    async def number() -> int:
        return 3

    @app.task(max_retries=0)
    async def fail(n: int) -> None:
        raise ValueError(n)

    flow = app.flow()
    first = flow.add(number)
    last = flow.add(fail, first.result).after(flow.add(number))
    run = await flow.aenqueue()
    async with working(app):
        await run.await_end(WAIT_TIMEOUT)
        job = await run.ajob(last)
        assert [result.applied for result in await app.client().store.delete([first.id])] == [True]
        with pytest.raises(NotFoundError, match="which was pruned"):
            await job.aretry()


async def test_children_of_a_task_have_the_owner_of_its_job(
    app: Windlass,
) -> None:
    gate, runs = asyncio.Event(), []

    @app.task
    async def part(n: int) -> int:
        await gate.wait()
        return n

    @app.task
    async def whole(ctx: Context) -> int:
        runs.append(ctx.attempt)
        return sum(await ctx.amap(part, [1, 2]))

    job = await whole.options(owner="ada").aenqueue()
    async with working(app):
        while (await job.arefresh()).row.waiting_for < 2:
            assert len(runs) < 3
            await asyncio.sleep(0.01)
        gate.set()
        assert await job.aresult(WAIT_TIMEOUT) == 3
        assert runs == [1, 2]


@pytest.mark.parametrize("options", [{"owner": "bob"}, {"unique_key": "k"}, {"request_id": "r"}])
async def test_children_that_could_not_end_are_refused(
    app: Windlass, options: dict[str, str]
) -> None:
    @app.task
    async def part(n: int) -> int:
        return n

    @app.task
    async def whole(ctx: Context) -> int:
        return sum(await ctx.amap(part.options(**options), [1, 2]))

    job = await whole.aenqueue()
    async with working(app):
        await job.await_end(WAIT_TIMEOUT)
        assert job.row.error is not None
        assert job.row.error.code == "configuration"


async def test_a_pruned_child_is_not_run_again(app: Windlass) -> None:
    gate, ran = asyncio.Event(), []

    @app.task
    async def part(n: int) -> int:
        ran.append(n)
        if n == 2:
            await gate.wait()
        return n

    @app.task
    async def whole(ctx: Context) -> int:
        return sum(await ctx.amap(part, [1, 2]))

    job = await whole.aenqueue()
    async with working(app):
        while (await job.arefresh()).row.waiting_for != 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        store = app.client().store
        [edges] = await store.edges([job.id])
        assert [result.applied for result in await store.delete(edges.parents)] == [True, False]
        gate.set()
        await job.await_end(WAIT_TIMEOUT)
        assert job.row.error is not None
        assert job.row.error.code == "missing_input"
        assert sorted(ran) == [1, 2]
