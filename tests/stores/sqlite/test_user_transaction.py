"""The caller's rows and jobs in one transaction: both or none, and never for long."""

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
from windlass.stores.sqlite import Session, SqliteConfig, SqliteStore
from windlass.testing.factories import make_job
from windlass.testing.power_cut import Moment, PowerCutDisk

SHORT = 0.05
SOON = 30.0  # seconds within which nothing here may hang


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(tmp_path / "jobs.db", durability="off") as store:
        session = store.transaction()
        session.execute("CREATE TABLE purchase (item TEXT PRIMARY KEY)")
        session.commit()
        yield store


async def items(store: SqliteStore) -> list[str]:
    rows = await store._engine.read(
        lambda connection: connection.execute("SELECT item FROM purchase").fetchall()
    )
    return [str(item) for (item,) in rows]


async def test_rows_and_jobs_are_committed_together(store: SqliteStore) -> None:
    job = make_job()
    session = store.transaction()
    session.execute("INSERT INTO purchase VALUES (?)", ("rope",))
    [answer] = session.enqueue([job])
    assert answer.accepted
    assert await items(store) == []
    assert await store.get([job.id]) == [None]
    session.commit()
    assert await items(store) == ["rope"]
    assert None not in await store.get([job.id])


async def test_rows_and_jobs_are_rolled_back_together(store: SqliteStore) -> None:
    job = make_job()
    session = store.transaction()
    session.execute("INSERT INTO purchase VALUES (:item)", {"item": "rope"})
    session.enqueue([job])
    session.rollback()
    assert await items(store) == []
    assert await store.get([job.id]) == [None]


async def test_rows_that_a_statement_answers_come_back(store: SqliteStore) -> None:
    session = store.transaction()
    session.execute("INSERT INTO purchase VALUES ('rope'), ('crank')")
    assert session.execute("SELECT item FROM purchase ORDER BY item") == [("crank",), ("rope",)]
    session.commit()


async def test_other_writes_wait_for_it_and_then_go_on(store: SqliteStore) -> None:
    job = make_job()
    session = store.transaction()
    session.execute("INSERT INTO purchase VALUES ('rope')")
    waiting = asyncio.create_task(store.enqueue([job]))
    assert await store.get([job.id]) == [None], "readers do not wait"
    assert not waiting.done()
    session.commit()
    [answer] = await asyncio.wait_for(waiting, SOON)
    assert answer.accepted


def short_with_a_rope(store: SqliteStore) -> Session:
    """A short transaction with a row in it; on a slow machine, the first one that lasts so long."""
    while True:
        session = store.transaction(SHORT)
        with contextlib.suppress(ConflictError):
            session.execute("INSERT INTO purchase VALUES ('rope')")
            return session


async def test_past_its_time_it_is_rolled_back_and_says_so(store: SqliteStore) -> None:
    job = make_job()
    session = short_with_a_rope(store)
    [answer] = await asyncio.wait_for(store.enqueue([job]), SOON)  # waits for it to end
    assert answer.accepted
    with pytest.raises(ConflictError, match=r"open for more than 0\.05 s"):
        session.execute("INSERT INTO purchase VALUES ('crank')")
    with pytest.raises(ConflictError, match=r"open for more than 0\.05 s"):
        session.commit()
    session.rollback()
    assert await items(store) == []


async def test_a_mistake_of_ones_own_is_told_in_the_words_of_sqlite(store: SqliteStore) -> None:
    session = store.transaction()
    with pytest.raises(apsw.SQLError, match="no such table"):
        session.execute("INSERT INTO nowhere VALUES (1)")
    session.execute("INSERT INTO purchase VALUES ('rope')")
    with pytest.raises(apsw.ConstraintError):
        session.execute("INSERT INTO purchase VALUES ('rope')")
    session.commit()
    assert await items(store) == ["rope"]


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_after_its_end_it_is_refused(store: SqliteStore, end: str) -> None:
    session = store.transaction()
    getattr(session, end)()
    with pytest.raises(ConflictError, match="is over"):
        session.execute("INSERT INTO purchase VALUES ('rope')")
    with pytest.raises(ConflictError, match="is over"):
        session.enqueue([make_job()])
    assert await items(store) == []


async def test_a_commit_after_a_rollback_is_refused(store: SqliteStore) -> None:
    session = store.transaction()
    session.rollback()
    with pytest.raises(ConflictError, match="is over"):
        session.commit()


async def test_a_rollback_after_a_commit_changes_nothing(store: SqliteStore) -> None:
    session = store.transaction()
    session.execute("INSERT INTO purchase VALUES ('rope')")
    session.commit()
    session.rollback()
    assert await items(store) == ["rope"]


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
async def test_a_statement_that_ends_the_transaction_is_its_end(
    store: SqliteStore, statement: str
) -> None:
    """Otherwise what follows would be stored piece by piece."""
    session = store.transaction()
    with pytest.raises(ConflictError, match="ended"):
        session.execute(statement)
    with pytest.raises(ConflictError, match="ended"):
        session.execute("INSERT INTO purchase VALUES ('rope')")
    with pytest.raises(ConflictError, match="ended"):
        session.commit()
    assert await items(store) == []
    [answer] = await asyncio.wait_for(store.enqueue([make_job()]), SOON)
    assert answer.accepted


async def test_a_locked_file_is_told_to_whoever_uses_the_session(tmp_path: Path) -> None:
    config = SqliteConfig(path=str(tmp_path / "jobs.db"), durability="off", busy_seconds=SHORT)
    async with SqliteStore("", config=config) as store:
        await store.ping()
        other = apsw.Connection(config.path)
        other.execute("BEGIN IMMEDIATE")
        session = store.transaction()
        assert "locked" in await asyncio.wait_for(asyncio.to_thread(complaint, session), SOON)
        with pytest.raises(StoreUnavailableError, match="locked"):
            session.commit()
        session.rollback()
        other.close()


def complaint(session: Session) -> str:
    with pytest.raises(StoreUnavailableError) as caught:
        session.execute("SELECT 1")
    return str(caught.value)


async def test_a_disk_error_inside_ends_it_whole(tmp_path: Path) -> None:
    """SQLite rolls back by itself then; nothing that follows may be stored on its own."""
    failing = Event()

    def fail(moment: Moment, name: str) -> None:
        if failing.is_set() and moment == "read":
            raise apsw.IOError("as planned")

    disk = PowerCutDisk(hook=fail)
    config = SqliteConfig(path=str(tmp_path / "jobs.db"), exclusive=True, vfs=disk.name)
    async with SqliteStore("", config=config) as store:
        session = store.transaction()
        session.execute("CREATE TABLE purchase (item TEXT PRIMARY KEY)")
        session.execute("CREATE TABLE bulk (data BLOB)")
        session.execute("INSERT INTO bulk VALUES (zeroblob(1000000))")
        session.commit()
        session = store.transaction()
        session.execute("PRAGMA cache_size = 1")
        session.execute("PRAGMA shrink_memory")
        session.execute("INSERT INTO purchase VALUES ('rope')")
        failing.set()
        with pytest.raises(StoreUnavailableError):
            session.execute("SELECT sum(length(hex(data))) FROM bulk")
        failing.clear()
        with pytest.raises((ConflictError, StoreUnavailableError)):
            session.execute("INSERT INTO purchase VALUES ('crank')")
        with pytest.raises((ConflictError, StoreUnavailableError)):
            session.commit()
        assert await items(store) == []
    disk.close()


async def test_closing_the_store_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteStore(path, durability="off")
    job = make_job()
    session = store.transaction()
    session.enqueue([job])
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    session.commit()
    await asyncio.wait_for(closing, SOON)
    async with SqliteStore(path, durability="off") as again:
        assert None not in await again.get([job.id])


async def test_sessions_of_several_threads_come_one_after_the_other(store: SqliteStore) -> None:
    def buy(number: int) -> None:
        session = store.transaction()
        [(count,)] = session.execute("SELECT count(*) FROM purchase")
        session.execute("INSERT INTO purchase VALUES (?)", (f"item {count}",))
        session.commit()

    threads = [Thread(target=buy, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert sorted(await items(store)) == sorted(f"item {number}" for number in range(20))
