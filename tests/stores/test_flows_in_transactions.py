"""Flows in transactions of the caller: the flow and the rows commit together."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio
from tests.stores.postgres.server import execute

from windlass import (
    ConflictError,
    InvalidArgumentError,
    Limit,
    NotFoundError,
    State,
    Windlass,
    WorkerConfig,
    chain,
    group,
)
from windlass.core.query.job_query import JobQuery
from windlass.flow import Flow, Node

WAIT_TIMEOUT = 30.0  # seconds; polling is slower than that
NEVER = 60.0


class BoomError(Exception):
    pass


class Shop:
    """An app, and rows of the caller in the same database."""

    def __init__(self, url: str, data: Path) -> None:
        self.app = app = Windlass(url, data=data)

        @app.task
        async def pack(what: str) -> str:
            return f"packed {what}"

        @app.task
        async def ship(parts: list[str]) -> str:
            return ", ".join(parts)

        self.pack, self.ship = pack, ship

    def transaction(self) -> AbstractAsyncContextManager[CallerTransaction]:
        """Return a transaction; jobs enqueued inside it are part of it."""
        raise NotImplementedError

    async def orders(self) -> list[str]:
        raise NotImplementedError

    def flow(self, *items: str, **options: Any) -> tuple[Flow, Node[str]]:
        """Return a flow of parts, and the job that uses them; options apply to the first part."""
        flow = self.app.flow()
        first, *others = items
        parts = [flow.put(self.pack.options(**options).call(first))]
        parts += [flow.add(self.pack, item) for item in others]
        return flow, flow.add(self.ship, [part.result for part in parts])

    async def states(self) -> list[State]:
        page = await self.app.client().store.find(JobQuery())
        return sorted(row.state for row in page.rows)


class CallerTransaction:
    """Transaction of the caller."""

    def __init__(self, run: Callable[[str], Any]) -> None:
        self._run = run

    async def insert(self, order: str) -> None:
        done = self._run(f"INSERT INTO orders VALUES ('{order}')")
        if inspect.isawaitable(done):
            await done


class SqliteShop(Shop):
    def __init__(self, path: Path) -> None:
        super().__init__(f"sqlite:///{path / 'jobs.db'}", path / "data")
        with self.app.transaction() as tx:
            tx.execute("CREATE TABLE orders (what TEXT)")

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[CallerTransaction]:
        with self.app.transaction(timeout=WAIT_TIMEOUT) as tx:
            yield CallerTransaction(tx.execute)

    async def orders(self) -> list[str]:
        with self.app.transaction() as tx:
            return [what for (what,) in tx.execute("SELECT what FROM orders ORDER BY what")]


class PostgresShop(Shop):
    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[CallerTransaction]:
        connection = await asyncpg.connect(self.app.url)
        try:
            async with connection.transaction():
                with self.app.within(connection):
                    yield CallerTransaction(connection.execute)
        finally:
            await connection.close()

    async def orders(self) -> list[str]:
        found = await execute(self.app.url, "SELECT what FROM orders ORDER BY what")
        return [row[0] for row in found]


@pytest.fixture(params=["sqlite", "postgresql"])
def opened_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    if request.param == "sqlite":
        yield SqliteShop(tmp_path)
        return
    url = request.getfixturevalue("postgres_url")
    asyncio.run(execute(url, "DROP TABLE IF EXISTS orders;CREATE TABLE orders (what text)"))
    yield PostgresShop(url, tmp_path / "data")
    asyncio.run(execute(url, "DROP TABLE orders;"))


@pytest_asyncio.fixture
async def shop(opened_shop: Shop) -> AsyncIterator[Shop]:
    yield opened_shop
    await opened_shop.app.aclose()


async def test_jobs_run_only_after_the_commit_which_wakes_a_worker(shop: Shop) -> None:
    worker = shop.app.worker(WorkerConfig(poll_interval=NEVER))
    working = asyncio.create_task(worker.run())
    flow, end = shop.flow("a rope", "a sail")
    async with shop.transaction() as tx:
        await tx.insert("a boat")
        run = await flow.aenqueue()
        await asyncio.sleep(0.3)  # long enough for a worker to run them
        assert await shop.states() == []
    stats = await run.await_end(WAIT_TIMEOUT)
    assert (stats.state, stats.jobs) == (State.SUCCEEDED, 3)
    assert await (await run.ajob(end)).aresult() == "packed a rope, packed a sail"
    assert await shop.orders() == ["a boat"]
    worker.stop()
    await working


async def test_a_rolled_back_flow_leaves_nothing(shop: Shop) -> None:
    flow, _ = shop.flow("a rope", "a sail", request_id="r", unique_key="k")

    async def roll_back() -> None:
        async with shop.transaction() as tx:
            await tx.insert("a boat")
            await flow.aenqueue()
            raise BoomError

    with pytest.raises(BoomError):
        await roll_back()
    assert (await shop.orders(), await shop.states()) == ([], [])
    with pytest.raises(NotFoundError):
        await shop.app.aflow_run(flow.id)
    await flow.aenqueue()  # nothing of it conflicts
    assert await shop.states() == [State.CREATED, State.QUEUED, State.QUEUED]


def missing_parent(shop: Shop) -> Flow:
    return shop.flow("a rope", depends_on=[uuid4()])[0]


def taken_key(shop: Shop) -> Flow:
    """An active job has the key of a job that another one depends on."""
    return shop.flow("an oar", "a rope", unique_key="k")[0]


def other_arguments(shop: Shop) -> Flow:
    """The last job of the flow is refused."""
    flow, end = shop.flow("an oar")
    flow.put(shop.pack.options(request_id="r").call("a net")).after(end)
    return flow


def key_of_its_own(shop: Shop) -> Flow:
    """Two jobs of the flow have the same key."""
    flow, _ = shop.flow("a rope", unique_key="own")
    second = flow.put(shop.pack.options(unique_key="own").call("a sail"))
    flow.add(shop.pack, "a mast").after(second)
    return flow


def too_long(shop: Shop) -> Flow:
    flow, _ = shop.flow("a rope")
    flow.put(shop.pack.options(queue="q" * 200).call("a sail"))
    return flow


@pytest.mark.parametrize(
    ("make_flow", "error"),
    [
        (missing_parent, NotFoundError),
        (taken_key, ConflictError),
        (other_arguments, ConflictError),
        (key_of_its_own, ConflictError),
        (too_long, InvalidArgumentError),
    ],
)
async def test_a_refused_flow_leaves_nothing_and_the_transaction_continues(
    shop: Shop, make_flow: Callable[[Shop], Flow], error: type[Exception]
) -> None:
    await shop.pack.options(request_id="r", unique_key="k").aenqueue("an anchor")
    flow = make_flow(shop)
    with pytest.raises(error) as without:
        await flow.aenqueue()
    async with shop.transaction() as tx:
        await tx.insert("a boat")
        with pytest.raises(error) as refused:
            await flow.aenqueue()
        assert str(refused.value) == str(without.value)  # same error as outside a transaction
        await tx.insert("a ship")
        await shop.pack.aenqueue("a buoy")
    assert await shop.orders() == ["a boat", "a ship"]
    assert await shop.states() == [State.QUEUED, State.QUEUED]  # the anchor and the buoy


async def test_jobs_enqueued_before_a_refused_flow_remain(shop: Shop) -> None:
    await shop.pack.options(unique_key="k").aenqueue("an anchor")
    async with shop.transaction():
        run = await shop.flow("a rope")[0].aenqueue()
        with pytest.raises(ConflictError):
            await taken_key(shop).aenqueue()
    assert (await run.arefresh()).jobs == 2
    assert len(await shop.states()) == 3


async def test_a_repeated_flow_is_stored_once(shop: Shop) -> None:
    flow, _ = shop.flow("a rope", "a sail", request_id="r")
    async with shop.transaction():
        await flow.aenqueue()
        await flow.aenqueue()
    async with shop.transaction():
        run = await flow.aenqueue()
    assert (await run.arefresh()).jobs == 3
    assert len(await shop.states()) == 3


async def test_a_job_with_an_earlier_request_id_is_not_created_again(shop: Shop) -> None:
    before = await shop.pack.options(request_id="r").aenqueue("a log")
    flow, end = shop.flow("a rope")
    flow.put(shop.pack.options(request_id="r").call("a log")).after(end)
    async with shop.transaction():
        run = await flow.aenqueue()
    jobs = {job.id async for job in run.ajobs()}
    assert len(jobs) == 2
    assert before.id not in jobs
    assert len(await shop.states()) == 3


async def test_a_flow_may_depend_on_earlier_jobs_of_the_transaction(shop: Shop) -> None:
    async with shop.transaction():
        first = await shop.pack.aenqueue("a keel")
        run = await shop.flow("a rope", depends_on=[first])[0].aenqueue()
    await shop.app.worker(WorkerConfig(burst=True)).run()
    assert (await run.await_end(WAIT_TIMEOUT)).state is State.SUCCEEDED


async def test_chains_are_part_of_the_transaction(shop: Shop) -> None:
    async with shop.transaction() as tx:
        await tx.insert("a boat")
        run = await chain(
            group(shop.pack.call("a rope"), shop.pack.call("a sail")), shop.ship
        ).aenqueue()
        with pytest.raises(NotFoundError):
            await run.arefresh()
    assert (await run.arefresh()).jobs == 3


async def test_a_limit_applies_to_a_flow_in_a_transaction(shop: Shop) -> None:
    await shop.app.limits.aset("queue:default", Limit(concurrency=1))
    async with shop.transaction():
        run = await shop.flow("a rope", "a sail")[0].aenqueue()
    await shop.app.worker(WorkerConfig(burst=True)).run()
    assert (await run.await_end(WAIT_TIMEOUT)).state is State.SUCCEEDED
