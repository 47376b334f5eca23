"""A flow inside a transaction of the caller's: all of it with their rows, or nothing of either."""

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
from windlass.core.query.job_query import Query
from windlass.flow import Flow, Node

PATIENCE = 30.0  # seconds; polling is slower than that
NEVER = 60.0


class BoomError(Exception):
    pass


class Shop:
    """An app, and rows of the caller's own in the same database."""

    def __init__(self, url: str, data: Path) -> None:
        self.app = app = Windlass(url, data=data)

        @app.task
        async def pack(what: str) -> str:
            return f"packed {what}"

        @app.task
        async def ship(parts: list[str]) -> str:
            return ", ".join(parts)

        self.pack, self.ship = pack, ship

    def transaction(self) -> AbstractAsyncContextManager[Tx]:
        """Jobs enqueued inside join it."""
        raise NotImplementedError

    async def orders(self) -> list[str]:
        raise NotImplementedError

    def flow(self, *items: str, **options: Any) -> tuple[Flow, Node[str]]:
        """Parts, and the job that gathers them; the options are those of the first part."""
        flow = self.app.flow()
        first, *others = items
        parts = [flow.put(self.pack.options(**options).call(first))]
        parts += [flow.add(self.pack, item) for item in others]
        return flow, flow.add(self.ship, [part.result for part in parts])

    async def states(self) -> list[State]:
        page = await self.app.client().store.find(Query())
        return sorted(row.state for row in page.rows)


class Tx:
    """A transaction of the caller's."""

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
    async def transaction(self) -> AsyncIterator[Tx]:
        with self.app.transaction(timeout=PATIENCE) as tx:
            yield Tx(tx.execute)

    async def orders(self) -> list[str]:
        with self.app.transaction() as tx:
            return [what for (what,) in tx.execute("SELECT what FROM orders ORDER BY what")]


class PostgresShop(Shop):
    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        connection = await asyncpg.connect(self.app.url)
        try:
            async with connection.transaction():
                with self.app.within(connection):
                    yield Tx(connection.execute)
        finally:
            await connection.close()

    async def orders(self) -> list[str]:
        found = await execute(self.app.url, "SELECT what FROM orders ORDER BY what")
        return [row[0] for row in found]


@pytest.fixture(params=["sqlite", "postgresql"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    if request.param == "sqlite":
        yield SqliteShop(tmp_path)
        return
    url = request.getfixturevalue("postgres_url")
    asyncio.run(execute(url, "DROP TABLE IF EXISTS orders;CREATE TABLE orders (what text)"))
    yield PostgresShop(url, tmp_path / "data")
    asyncio.run(execute(url, "DROP TABLE orders;"))


@pytest_asyncio.fixture
async def shop(made: Shop) -> AsyncIterator[Shop]:
    yield made
    await made.app.aclose()


async def test_nothing_is_seen_or_run_before_the_commit_which_wakes_a_worker(shop: Shop) -> None:
    worker = shop.app.worker(WorkerConfig(poll=NEVER))
    working = asyncio.create_task(worker.run())
    flow, end = shop.flow("a rope", "a sail")
    async with shop.transaction() as tx:
        await tx.insert("a boat")
        run = await flow.aenqueue()
        await asyncio.sleep(0.3)  # time enough for a worker that sees them
        assert await shop.states() == []
    stats = await run.await_end(PATIENCE)
    assert (stats.state, stats.jobs) == (State.SUCCEEDED, 3)
    assert await (await run.ajob(end)).aresult() == "packed a rope, packed a sail"
    assert await shop.orders() == ["a boat"]
    worker.stop()
    await working


async def test_rolled_back_means_never_there(shop: Shop) -> None:
    flow, _ = shop.flow("a rope", "a sail", request_id="r", unique_key="k")

    async def change_my_mind() -> None:
        async with shop.transaction() as tx:
            await tx.insert("a boat")
            await flow.aenqueue()
            raise BoomError

    with pytest.raises(BoomError):
        await change_my_mind()
    assert (await shop.orders(), await shop.states()) == ([], [])
    with pytest.raises(NotFoundError):
        await shop.app.aflow_run(flow.id)
    await flow.aenqueue()  # and nothing of it stands in the way
    assert await shop.states() == [State.CREATED, State.QUEUED, State.QUEUED]


def missing_parent(shop: Shop) -> Flow:
    return shop.flow("a rope", depends_on=[uuid4()])[0]


def taken_key(shop: Shop) -> Flow:
    """An active job has the key, and would stand for one that another depends on."""
    return shop.flow("an oar", "a rope", unique_key="k")[0]


def other_arguments(shop: Shop) -> Flow:
    """The last to be stored is the one that is refused."""
    flow, end = shop.flow("an oar")
    flow.put(shop.pack.options(request_id="r").call("a net")).after(end)
    return flow


def key_of_its_own(shop: Shop) -> Flow:
    """One of the flow would stand for another of it."""
    flow, _ = shop.flow("a rope", unique_key="own")
    second = flow.put(shop.pack.options(unique_key="own").call("a sail"))
    flow.add(shop.pack, "a mast").after(second)
    return flow


def too_long(shop: Shop) -> Flow:
    flow, _ = shop.flow("a rope")
    flow.put(shop.pack.options(queue="q" * 200).call("a sail"))
    return flow


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (missing_parent, NotFoundError),
        (taken_key, ConflictError),
        (other_arguments, ConflictError),
        (key_of_its_own, ConflictError),
        (too_long, InvalidArgumentError),
    ],
)
async def test_a_flow_that_is_refused_leaves_nothing_and_the_transaction_goes_on(
    shop: Shop, wrong: Callable[[Shop], Flow], kind: type[Exception]
) -> None:
    await shop.pack.options(request_id="r", unique_key="k").aenqueue("an anchor")
    flow = wrong(shop)
    with pytest.raises(kind) as without:
        await flow.aenqueue()
    async with shop.transaction() as tx:
        await tx.insert("a boat")
        with pytest.raises(kind) as refused:
            await flow.aenqueue()
        assert str(refused.value) == str(without.value)  # as anywhere else
        await tx.insert("a ship")
        await shop.pack.aenqueue("a buoy")
    assert await shop.orders() == ["a boat", "a ship"]
    assert await shop.states() == [State.QUEUED, State.QUEUED]  # the anchor and the buoy


async def test_what_was_enqueued_before_a_refused_flow_stays(shop: Shop) -> None:
    await shop.pack.options(unique_key="k").aenqueue("an anchor")
    async with shop.transaction():
        run = await shop.flow("a rope")[0].aenqueue()
        with pytest.raises(ConflictError):
            await taken_key(shop).aenqueue()
    assert (await run.arefresh()).jobs == 2
    assert len(await shop.states()) == 3


async def test_the_same_flow_again_is_there_once(shop: Shop) -> None:
    flow, _ = shop.flow("a rope", "a sail", request_id="r")
    async with shop.transaction():
        await flow.aenqueue()
        await flow.aenqueue()
    async with shop.transaction():
        run = await flow.aenqueue()
    assert (await run.arefresh()).jobs == 3
    assert len(await shop.states()) == 3


async def test_a_job_of_it_that_was_asked_for_before_is_not_made_again(shop: Shop) -> None:
    before = await shop.pack.options(request_id="r").aenqueue("a log")
    flow, end = shop.flow("a rope")
    flow.put(shop.pack.options(request_id="r").call("a log")).after(end)
    async with shop.transaction():
        run = await flow.aenqueue()
    jobs = {job.id async for job in run.ajobs()}
    assert len(jobs) == 2
    assert before.id not in jobs
    assert len(await shop.states()) == 3


async def test_a_flow_may_depend_on_what_the_transaction_enqueued_before(shop: Shop) -> None:
    async with shop.transaction():
        first = await shop.pack.aenqueue("a keel")
        run = await shop.flow("a rope", depends_on=[first])[0].aenqueue()
    await shop.app.worker(WorkerConfig(burst=True)).run()
    assert (await run.await_end(PATIENCE)).state is State.SUCCEEDED


async def test_chains_join_as_well(shop: Shop) -> None:
    async with shop.transaction() as tx:
        await tx.insert("a boat")
        run = await chain(
            group(shop.pack.call("a rope"), shop.pack.call("a sail")), shop.ship
        ).aenqueue()
        with pytest.raises(NotFoundError):
            await run.arefresh()
    assert (await run.arefresh()).jobs == 3


async def test_a_limit_holds_for_a_flow_that_joined(shop: Shop) -> None:
    await shop.app.limits.aset("queue:default", Limit(concurrency=1))
    async with shop.transaction():
        run = await shop.flow("a rope", "a sail")[0].aenqueue()
    await shop.app.worker(WorkerConfig(burst=True)).run()
    assert (await run.await_end(PATIENCE)).state is State.SUCCEEDED
