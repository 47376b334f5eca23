"""Two calls meet at the decisive point, in every run: mistakes that only a meeting shows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Event, Thread
from typing import TypeVar

import apsw

from windlass.server.auth.tickets import Tickets
from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.stores.sqlite import SqliteStore
from windlass.stores.sqlite.writes.write_transaction import WriteTransaction
from windlass.testing.factories import make_job
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")
WAIT_TIMEOUT = 60.0
COUNT = "SELECT count(*) FROM windlass_job"


class ReadTogether(WrappedStore):
    """No read of records returns before two have read."""

    def __init__(self, store: Store, readers: asyncio.Barrier) -> None:
        super().__init__(store)
        self.readers = readers

    def wrap(self, store: Store) -> Store:
        return ReadTogether(store, self.readers)

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        answer = await call()
        if verb == "get_records":
            await self.readers.wait()
        return answer


async def test_one_of_two_concurrent_uses_of_a_ticket_is_accepted() -> None:
    async with MemoryStore() as store, asyncio.timeout(WAIT_TIMEOUT):
        tickets = Tickets(ReadTogether(store, asyncio.Barrier(2)))
        ticket, _ = await tickets.issue("key")

        answers = await asyncio.gather(tickets.redeem(ticket), tickets.redeem(ticket))

    assert sorted(answers, key=lambda answer: answer is None) == [("key", None), None]


async def test_a_writer_that_has_read_is_not_overtaken(tmp_path: Path) -> None:
    """Another process writes between the read and the write of a transaction: it must wait."""
    path = tmp_path / "jobs.db"
    met = Event()  # the other has written, or waits for the lock
    order: list[str] = []

    def write_beside() -> None:
        other = apsw.Connection(str(path))

        def wait_for_lock(_: int) -> bool:
            met.set()
            return True

        other.set_busy_handler(wait_for_lock)
        other.execute("BEGIN IMMEDIATE; UPDATE windlass_job SET seq = seq + 1; COMMIT")
        order.append("other")
        met.set()
        other.close()

    beside = Thread(target=write_beside)

    def read_and_write(tx: WriteTransaction) -> None:
        [[stored]] = tx.connection.execute(COUNT)
        assert stored == 1
        beside.start()
        assert met.wait(WAIT_TIMEOUT)
        tx.connection.execute("UPDATE windlass_job SET seq = seq + 1")
        order.append("store")

    async with SqliteStore(path) as store:
        await store.enqueue([make_job()])
        await store._engine.write(read_and_write)
        await asyncio.to_thread(beside.join)

    assert order == ["store", "other"]
