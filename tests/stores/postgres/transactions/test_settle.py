"""`ctx.settle_within(connection)`: the writes and the success of a task commit together."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest
from tests.stores.postgres import payment_tasks
from tests.stores.postgres.server import CLEAN, execute, migrate
from tests.stores.postgres.transactions.test_enqueue import ASYNC, SYNC
from tests.stores.postgres.transactions.test_sql_enqueue import COLUMNS, DERIVED_TABLES, IDS
from tests.worker.event_waits import WAIT_TIMEOUT, events_of, eventually
from tests.worker.workers import run_burst, run_to_end, running_worker

from windlass import ConfigurationError, Context, StaleLeaseError, Windlass, fixed
from windlass.core.codec import JsonCodec
from windlass.core.decisions.maintenance import rescue
from windlass.core.decisions.outcome import Succeeded, succeed
from windlass.core.decisions.transition import CancelRequest, Status
from windlass.core.errors import ConflictError
from windlass.core.event import EventType
from windlass.core.job.lease import Claim
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.stores.borrowed_connection import borrow
from windlass.stores.postgres import PostgresStore, rows
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import enqueue_one, expired_jobs

ROOT = Path(__file__).parents[4]
PAY = payment_tasks.PAY


@pytest.fixture
async def app(postgres_url: str, tmp_path: Path) -> AsyncIterator[Windlass]:
    await execute(
        postgres_url, "DROP TABLE IF EXISTS payments;CREATE TABLE payments (attempt bigint)"
    )
    opened_app = Windlass(postgres_url, data=tmp_path)
    opened_app.include(payment_tasks.tasks)
    yield opened_app
    await opened_app.aclose()
    await execute(postgres_url, "DROP TABLE IF EXISTS orders;DROP TABLE payments")


async def _payments(url: str) -> list[int]:
    return [row[0] for row in await execute(url, "SELECT attempt FROM payments ORDER BY 1")]


async def _states(url: str, task: str) -> list[str]:
    found = await execute(url, f"SELECT state FROM windlass_job WHERE task = '{task}' ORDER BY n")
    return [row[0] for row in found]


async def test_a_payment_its_success_log_and_children_commit_together(
    app: Windlass, postgres_url: str
) -> None:
    seen: list[Any] = []

    @app.task
    async def pay(ctx: Context) -> list[int]:
        ctx.log("paying")
        child = ctx.then(payment_tasks.receipt.options(delay="1h"))
        connection = await asyncpg.connect(postgres_url)
        async with connection.transaction():
            await connection.execute(PAY.format(ctx.attempt))
            await ctx.asettle_within(connection, [1])
            seen.append((await _payments(postgres_url), await app.client().store.get([child])))
        seen.append((await _payments(postgres_url), await _states(postgres_url, ctx.job.task)))
        await connection.close()
        return [1]

    job = await pay.aenqueue()
    row = await run_to_end(app, job)

    assert seen == [([], [None]), ([1], ["succeeded"])]
    assert (row.state, row.percent, await job.aresult()) == (State.SUCCEEDED, 100, [1])
    assert await _states(postgres_url, payment_tasks.receipt.name) == ["created"]
    assert [event.data["message"] for event in await events_of(job, EventType.LOG)] == ["paying"]


async def test_after_a_rollback_the_attempt_continues(app: Windlass, postgres_url: str) -> None:
    @app.task(backoff=fixed(0))
    async def pay(ctx: Context) -> str:
        ctx.then(payment_tasks.receipt.options(delay="1h"))
        connection = await asyncpg.connect(postgres_url)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(PAY.format(ctx.attempt))
        await ctx.asettle_within(connection, "paid")
        await transaction.rollback()
        await connection.close()
        if ctx.attempt == 1:
            raise ValueError("try again")
        return "in vain"

    job = await pay.aenqueue()
    row = await run_to_end(app, job)

    assert (row.state, row.attempt, await job.aresult()) == (State.SUCCEEDED, 2, "in vain")
    assert await _payments(postgres_url) == []
    assert await _states(postgres_url, payment_tasks.receipt.name) == ["created"]


async def test_a_task_on_a_thread_settles_by_its_sync_connection(
    app: Windlass, postgres_url: str
) -> None:
    @app.task
    def pay(ctx: Context) -> str:
        with psycopg.connect(postgres_url) as connection:
            connection.execute(PAY.format(ctx.attempt).encode())
            ctx.settle_within(connection, "paid")
        return "paid"

    job = await pay.aenqueue()
    row = await run_to_end(app, job)

    assert (row.state, await job.aresult()) == (State.SUCCEEDED, "paid")
    assert await _payments(postgres_url) == [1]


@pytest.mark.parametrize("fail", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_a_task_in_a_child_process_settles_by_its_sync_connection(
    app: Windlass, postgres_url: str, fail: bool
) -> None:
    job = await payment_tasks.pay_apart.aenqueue(postgres_url, fail=fail)
    async with running_worker(app):
        row = (await job.await_end(3 * WAIT_TIMEOUT)).row

    assert (row.state, row.attempt, await job.aresult()) == (State.SUCCEEDED, 1 + fail, "paid")
    assert await _payments(postgres_url) == [1 + fail]
    assert len(await _states(postgres_url, payment_tasks.receipt.name)) == 1
    assert len(await events_of(job, EventType.LOG)) == 1 + fail


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
async def test_a_worker_killed_around_the_commit_pays_once(
    app: Windlass, postgres_url: str, moment: str
) -> None:
    job = await payment_tasks.pay.aenqueue(postgres_url, moment)
    worker = [sys.executable, "-m", "tests.stores.postgres.payment_tasks", postgres_url]
    killed = await asyncio.create_subprocess_exec(*worker, cwd=ROOT, stderr=subprocess.DEVNULL)
    async with asyncio.timeout(3 * WAIT_TIMEOUT):
        assert await killed.wait() == -signal.SIGKILL

    committed = moment == "after the commit"
    assert await _payments(postgres_url) == ([1] if committed else [])
    assert (await job.arefresh()).state is (State.SUCCEEDED if committed else State.RUNNING)
    async with running_worker(app):
        row = (await job.await_end(3 * WAIT_TIMEOUT)).row
    assert (row.state, await job.aresult()) == (State.SUCCEEDED, "paid")
    assert await _payments(postgres_url) == [row.attempt] == [1 if committed else 2]
    await run_burst(app)
    assert await _states(postgres_url, payment_tasks.receipt.name) == ["succeeded"]


async def test_a_task_that_continues_after_its_commit_is_not_rescued(
    app: Windlass, postgres_url: str
) -> None:
    ended: list[str] = []

    @app.task(lease=0.3)
    async def pay(ctx: Context) -> str:
        connection = await asyncpg.connect(postgres_url)
        async with connection.transaction():
            await ctx.asettle_within(connection, "paid")
        await connection.close()

        async def lease_dropped() -> bool:
            return not worker._attempts.keeper._held

        await eventually(lease_dropped)  # the store reported the lost lease
        await asyncio.sleep(0.1)  # a lost lease would cancel the task here
        ended.append("well")
        return "paid"

    async with running_worker(app) as worker:
        job = await pay.aenqueue()
        await eventually(lambda: asyncio.sleep(0, bool(worker.settled)))

    assert ended == ["well"]
    assert worker.settled == {State.SUCCEEDED: 1}
    assert await job.aresult() == "paid"


# -- by the methods of the store


async def _claimed(store: PostgresStore) -> JobRow:
    [row] = await store.claim(Claim(token=uuid4(), worker="w", queues=[("default", 1)]))
    return row


def _context(row: JobRow, store: PostgresStore) -> Context:
    return Context(row, store, JsonCodec(), asyncio.get_running_loop())


async def _pay(url: str, context: Context) -> None:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(PAY.format(context.attempt))
            await context.asettle_within(connection, "paid")
    finally:
        await connection.close()


async def test_a_stale_attempt_changes_nothing_in_its_transaction(
    app: Windlass, postgres_url: str
) -> None:
    clock = VirtualClock()
    async with PostgresStore(postgres_url, clock=clock) as store:
        await enqueue_one(store)
        stale_row = await _claimed(store)
        clock.advance(31)
        await store.apply([rescue(stale_row, random=lambda: 0.0)])
        with pytest.raises(StaleLeaseError, match="no longer held"):
            await _pay(postgres_url, _context(stale_row, store))
        next_row = await _claimed(store)
        with pytest.raises(StaleLeaseError, match="no longer held"):
            await _pay(postgres_url, _context(stale_row, store))
        assert await _payments(postgres_url) == []

        await _pay(postgres_url, _context(next_row, store))
        # A repeat by the same attempt is accepted.
        await _pay(postgres_url, _context(next_row, store))
        with pytest.raises(StaleLeaseError):
            await _pay(postgres_url, _context(stale_row, store))
        [row] = await store.get([next_row.id])
        assert row is not None
        assert (row.state, row.result) == (State.SUCCEEDED, b'"paid"')


@pytest.mark.parametrize("opened", [*SYNC, *ASYNC])
async def test_every_driver_raises_a_lost_lease_and_rolls_back(
    app: Windlass, postgres_url: str, opened: Any
) -> None:
    await execute(postgres_url, "DROP TABLE IF EXISTS orders;CREATE TABLE orders (what text)")
    async with PostgresStore(postgres_url) as store:
        await enqueue_one(store)
        lost = replace(await _claimed(store), token=uuid4())
        statement = store.settlement(succeed(lost, Succeeded(result=b"1")))

    def in_sync_code() -> None:
        with opened(postgres_url) as (connection, insert):
            insert("a rope")
            borrow(connection).call(*statement)

    async def in_async_code() -> None:
        async with opened(postgres_url) as (connection, insert):
            await insert("a rope")
            await borrow(connection).acall(*statement)

    with pytest.raises(StaleLeaseError, match="no longer held by this attempt"):
        await (asyncio.to_thread(in_sync_code) if opened in SYNC else in_async_code())
    assert await execute(postgres_url, "SELECT FROM orders") == []


async def test_an_accepted_cancel_wins(app: Windlass, postgres_url: str) -> None:
    async with PostgresStore(postgres_url) as store:
        await enqueue_one(store)
        row = await _claimed(store)
        await store.apply([CancelRequest(job_id=row.id)])

        with pytest.raises(StaleLeaseError, match="cancel requested"):
            await _pay(postgres_url, _context(row, store))
        assert await _payments(postgres_url) == []
        [answer] = await store.apply([succeed(row, Succeeded(result=b"1"))])
        assert answer.state is State.CANCELED


async def test_a_connection_to_another_database_is_refused(
    app: Windlass, postgres_url: str, new_database: str
) -> None:
    """A copy of the database has the same job, with the same lease."""
    await migrate(new_database)
    async with PostgresStore(postgres_url) as store, PostgresStore(new_database) as copy:
        row = await enqueue_one(store)
        await copy.enqueue([NewJob(id=row.id, task=row.task)])
        claim = Claim(token=uuid4(), worker="w", queues=[("default", 1)])
        [row], [same] = await store.claim(claim), await copy.claim(claim)
        assert row.lease == same.lease

        connection = await asyncpg.connect(new_database)
        async with connection.transaction():
            with pytest.raises(ConfigurationError, match="another database than the store"):
                await _context(row, store).asettle_within(connection, "paid")
        await connection.close()

        assert {(await each.get([row.id]))[0].state for each in (store, copy)} == {State.RUNNING}  # type: ignore[union-attr]


async def test_the_settle_of_the_worker_is_then_a_repeat(app: Windlass, postgres_url: str) -> None:
    async with PostgresStore(postgres_url) as store:
        await enqueue_one(store)
        row = await _claimed(store)
        await _pay(postgres_url, _context(row, store))

        [answer] = await store.apply([succeed(row, Succeeded(result=b"other"))])

        assert (answer.status, answer.state) == (Status.APPLIED, State.SUCCEEDED)
        [after] = await store.get([row.id])
        assert after is not None
        assert after.result == b'"paid"'


async def test_an_invalid_child_rolls_back_the_settle(app: Windlass, postgres_url: str) -> None:
    async with PostgresStore(postgres_url) as store:
        old = NewJob(id=uuid4(), task="t", queue="else", request_id="r", digest=b"1" * 16)
        await store.enqueue([old, NewJob(id=uuid4(), task="parent")])
        row = await _claimed(store)
        context = _context(row, store)
        context.children.append(replace(old, id=uuid4(), digest=b"2" * 16))

        with pytest.raises(ConflictError, match="with different arguments"):
            await _pay(postgres_url, context)

        assert await _payments(postgres_url) == []
        assert await _states(postgres_url, "parent") == ["running"]


async def test_children_that_depend_on_a_duplicate_roll_back_the_settle(
    app: Windlass, postgres_url: str
) -> None:
    async with PostgresStore(postgres_url) as store:
        old = NewJob(id=uuid4(), task="t", queue="else", unique_key="k")
        await store.enqueue([old, NewJob(id=uuid4(), task="parent")])
        context = _context(await _claimed(store), store)
        first = replace(old, id=uuid4())
        second = NewJob(id=uuid4(), task="t", unique_key="k", depends_on=(first.id,))
        context.children += [first, second]

        with pytest.raises(ConflictError, match=f"unique key 'k' is already held by job {old.id}"):
            await _pay(postgres_url, context)

        assert await _payments(postgres_url) == []
        assert await _states(postgres_url, "parent") == ["running"]
        assert await store.get([first.id, second.id]) == [None, None]


async def test_on_other_stores_the_error_names_postgresql() -> None:
    app = Windlass("memory:")

    @app.task(max_retries=0)
    async def pay(ctx: Context) -> None:
        with pytest.raises(ConfigurationError, match="needs a PostgreSQL store"):
            await ctx.asettle_within(psycopg.Connection.__new__(psycopg.Connection))

    job = await pay.aenqueue()
    assert (await run_to_end(app, job)).state is State.SUCCEEDED
    await app.aclose()


async def _run_job(url: str, *, by_function: bool) -> dict[str, Any]:
    """Run a job with records and a child to its success; return all stored rows."""
    await execute(url, "ALTER SEQUENCE windlass_serial RESTART")
    clock = VirtualClock()
    new = NewJob(id=uuid4(), task="t", unique_key="k", expires_in=60.0, request_id="r")
    child = NewJob(id=uuid4(), task="t", unique_key="k", delay=5.0, tags=("x",))
    async with PostgresStore(url, clock=clock) as store:
        await store.enqueue([new])
        clock.advance(2)
        row = await _claimed(store)
        context = _context(row, store)
        context.log("logged")
        context.progress(40)
        await context.flush()
        clock.advance(1.5)
        transition = succeed(row, Succeeded(result=b'"paid"'), children=[child])
        if by_function:
            context.children.append(child)
            await _pay(url, context)
        else:
            await store.apply([transition])
        assert await expired_jobs(store, 9) == []  # also deletes the lease rows of ended jobs
        found = [
            rows.job_row(record)
            for record in await execute(url, f"SELECT {COLUMNS} FROM windlass_job")
        ]
        tables: dict[str, Any] = {
            "job": sorted(
                (replace(row, id=IDS[0], token=None) for row in found), key=lambda row: row.serial
            )
        }
        for table in (*DERIVED_TABLES, "lease", "log"):
            tables[table] = sorted(map(repr, await execute(url, f"SELECT * FROM windlass_{table}")))
        counted = await execute(
            url, "SELECT minute, queue, task, outcome, count, wait, run FROM windlass_rollup"
        )
        return tables | {"rollup": sorted(map(tuple, counted))}


async def test_the_sql_function_stores_the_same_rows_as_the_store(
    app: Windlass, postgres_url: str
) -> None:
    by_store = await _run_job(postgres_url, by_function=False)
    await execute(postgres_url, CLEAN)
    by_function = await _run_job(postgres_url, by_function=True)

    assert by_function == by_store
