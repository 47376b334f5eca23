"""Transactions of the caller: rows and jobs commit together, within a time limit."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event, Thread

import apsw
import pytest
import pytest_asyncio

from windlass.core.errors import ConflictError, StoreUnavailableError
from windlass.stores.sqlite import SqliteConfig, SqliteStore, SqliteTransaction
from windlass.testing.factories import make_job
from windlass.testing.power_cut import DiskOperation, PowerCutDisk

SHORT = 0.05
SOON = 30.0  # seconds after which a hanging test fails


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(tmp_path / "jobs.db", durability="off") as store:
        transaction = store.transaction()
        transaction.execute("CREATE TABLE purchase (item TEXT PRIMARY KEY)")
        transaction.commit()
        yield store


async def items(store: SqliteStore) -> list[str]:
    rows = await store._engine.read(
        lambda connection: connection.execute("SELECT item FROM purchase").fetchall()
    )
    return [str(item) for (item,) in rows]


async def test_rows_and_jobs_are_committed_together(store: SqliteStore) -> None:
    job = make_job()
    transaction = store.transaction()
    transaction.execute("INSERT INTO purchase VALUES (?)", ("rope",))
    [answer] = transaction.enqueue([job])
    assert answer.accepted
    assert await items(store) == []
    assert await store.get([job.id]) == [None]
    transaction.commit()
    assert await items(store) == ["rope"]
    assert None not in await store.get([job.id])


async def test_rows_and_jobs_are_rolled_back_together(store: SqliteStore) -> None:
    job = make_job()
    transaction = store.transaction()
    transaction.execute("INSERT INTO purchase VALUES (:item)", {"item": "rope"})
    transaction.enqueue([job])
    transaction.rollback()
    assert await items(store) == []
    assert await store.get([job.id]) == [None]


async def test_execute_returns_rows(store: SqliteStore) -> None:
    transaction = store.transaction()
    transaction.execute("INSERT INTO purchase VALUES ('rope'), ('crank')")
    assert transaction.execute("SELECT item FROM purchase ORDER BY item") == [("crank",), ("rope",)]
    transaction.commit()


async def test_other_writes_wait_for_the_transaction(store: SqliteStore) -> None:
    job = make_job()
    transaction = store.transaction()
    transaction.execute("INSERT INTO purchase VALUES ('rope')")
    waiting = asyncio.create_task(store.enqueue([job]))
    assert await store.get([job.id]) == [None], "readers do not wait"
    assert not waiting.done()
    transaction.commit()
    [answer] = await asyncio.wait_for(waiting, SOON)
    assert answer.accepted


def short_transaction(store: SqliteStore) -> SqliteTransaction:
    """Return a short transaction with a row; retries on a machine too slow for the limit."""
    while True:
        transaction = store.transaction(SHORT)
        with contextlib.suppress(ConflictError):
            transaction.execute("INSERT INTO purchase VALUES ('rope')")
            return transaction


async def test_a_transaction_past_its_time_limit_is_rolled_back(store: SqliteStore) -> None:
    job = make_job()
    transaction = short_transaction(store)
    [answer] = await asyncio.wait_for(store.enqueue([job]), SOON)  # waits for it to end
    assert answer.accepted
    with pytest.raises(ConflictError, match=r"open for more than 0\.05 s"):
        transaction.execute("INSERT INTO purchase VALUES ('crank')")
    with pytest.raises(ConflictError, match=r"open for more than 0\.05 s"):
        transaction.commit()
    transaction.rollback()
    assert await items(store) == []


async def test_an_error_in_a_statement_raises_the_exception_of_sqlite(store: SqliteStore) -> None:
    transaction = store.transaction()
    with pytest.raises(apsw.SQLError, match="no such table"):
        transaction.execute("INSERT INTO nowhere VALUES (1)")
    transaction.execute("INSERT INTO purchase VALUES ('rope')")
    with pytest.raises(apsw.ConstraintError):
        transaction.execute("INSERT INTO purchase VALUES ('rope')")
    transaction.commit()
    assert await items(store) == ["rope"]


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_an_ended_transaction_is_refused(store: SqliteStore, end: str) -> None:
    transaction = store.transaction()
    getattr(transaction, end)()
    with pytest.raises(ConflictError, match="has ended"):
        transaction.execute("INSERT INTO purchase VALUES ('rope')")
    with pytest.raises(ConflictError, match="has ended"):
        transaction.enqueue([make_job()])
    assert await items(store) == []


async def test_a_commit_after_a_rollback_is_refused(store: SqliteStore) -> None:
    transaction = store.transaction()
    transaction.rollback()
    with pytest.raises(ConflictError, match="has ended"):
        transaction.commit()


async def test_a_rollback_after_a_commit_changes_nothing(store: SqliteStore) -> None:
    transaction = store.transaction()
    transaction.execute("INSERT INTO purchase VALUES ('rope')")
    transaction.commit()
    transaction.rollback()
    assert await items(store) == ["rope"]


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
async def test_a_statement_that_ends_the_transaction_is_refused(
    store: SqliteStore, statement: str
) -> None:
    """Otherwise each later statement would be committed separately."""
    transaction = store.transaction()
    with pytest.raises(ConflictError, match="ended"):
        transaction.execute(statement)
    with pytest.raises(ConflictError, match="ended"):
        transaction.execute("INSERT INTO purchase VALUES ('rope')")
    with pytest.raises(ConflictError, match="ended"):
        transaction.commit()
    assert await items(store) == []
    [answer] = await asyncio.wait_for(store.enqueue([make_job()]), SOON)
    assert answer.accepted


async def test_a_locked_file_fails_the_transaction(tmp_path: Path) -> None:
    config = SqliteConfig(path=str(tmp_path / "jobs.db"), durability="off", busy_seconds=SHORT)
    async with SqliteStore("", config=config) as store:
        await store.ping()
        other = apsw.Connection(config.path)
        other.execute("BEGIN IMMEDIATE")
        transaction = store.transaction()
        assert "locked" in await asyncio.wait_for(
            asyncio.to_thread(locked_message, transaction), SOON
        )
        with pytest.raises(StoreUnavailableError, match="locked"):
            transaction.commit()
        transaction.rollback()
        other.close()


def locked_message(transaction: SqliteTransaction) -> str:
    with pytest.raises(StoreUnavailableError) as caught:
        transaction.execute("SELECT 1")
    return str(caught.value)


async def test_a_disk_error_rolls_back_the_whole_transaction(tmp_path: Path) -> None:
    """SQLite then rolls back on its own; later statements must not be committed separately."""
    failing = Event()

    def fail(moment: DiskOperation, name: str) -> None:
        if failing.is_set() and moment == "read":
            raise apsw.IOError("as planned")

    disk = PowerCutDisk(hook=fail)
    config = SqliteConfig(path=str(tmp_path / "jobs.db"), exclusive=True, vfs=disk.name)
    async with SqliteStore("", config=config) as store:
        transaction = store.transaction()
        transaction.execute("CREATE TABLE purchase (item TEXT PRIMARY KEY)")
        transaction.execute("CREATE TABLE bulk (data BLOB)")
        transaction.execute("INSERT INTO bulk VALUES (zeroblob(1000000))")
        transaction.commit()
        transaction = store.transaction()
        transaction.execute("PRAGMA cache_size = 1")
        transaction.execute("PRAGMA shrink_memory")
        transaction.execute("INSERT INTO purchase VALUES ('rope')")
        failing.set()
        with pytest.raises(StoreUnavailableError):
            transaction.execute("SELECT sum(length(hex(data))) FROM bulk")
        failing.clear()
        with pytest.raises((ConflictError, StoreUnavailableError)):
            transaction.execute("INSERT INTO purchase VALUES ('crank')")
        with pytest.raises((ConflictError, StoreUnavailableError)):
            transaction.commit()
        assert await items(store) == []
    disk.close()


async def test_closing_the_store_waits_for_a_transaction(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteStore(path, durability="off")
    job = make_job()
    transaction = store.transaction()
    transaction.enqueue([job])
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    transaction.commit()
    await asyncio.wait_for(closing, SOON)
    async with SqliteStore(path, durability="off") as again:
        assert None not in await again.get([job.id])


async def test_transactions_of_several_threads_are_serialized(store: SqliteStore) -> None:
    def buy(number: int) -> None:
        transaction = store.transaction()
        [(count,)] = transaction.execute("SELECT count(*) FROM purchase")
        transaction.execute("INSERT INTO purchase VALUES (?)", (f"item {count}",))
        transaction.commit()

    threads = [Thread(target=buy, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert sorted(await items(store)) == sorted(f"item {number}" for number in range(20))
