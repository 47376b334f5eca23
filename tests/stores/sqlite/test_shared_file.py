"""A file that threads, processes and readers share."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from pathlib import Path

import apsw
import pytest

from windlass.core.errors import InvalidArgumentError, StoreUnavailableError
from windlass.core.query.job_query import JobQuery
from windlass.stores import open_store
from windlass.stores.event_tail import POLL
from windlass.stores.sqlite import SqliteStore, SqliteTransaction, engine
from windlass.stores.sqlite.config import SqliteConfig
from windlass.stores.sqlite.connection import WAL_LIMIT
from windlass.testing import claim_all, make_job
from windlass.testing.factories import enqueue_one


async def test_a_relative_path_stays_where_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    async with open_store("sqlite:///jobs.db?durability=off") as store:
        job = await enqueue_one(store)
        os.chdir(tmp_path / "elsewhere")
        assert [row and row.id for row in await store.get([job.id])] == [job.id]
        assert len(await claim_all(store)) == 1
    assert not list((tmp_path / "elsewhere").iterdir())


async def test_a_file_behind_a_link_is_watched_where_sqlite_writes(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "jobs.db")
    async with open_store(f"sqlite:///{tmp_path}/link.db?durability=off") as store:
        await enqueue_one(store)
        wal = SqliteConfig(path=str(tmp_path / "link.db")).wal
        assert wal.exists()
        assert wal.parent == tmp_path / "real"


@pytest.mark.parametrize("path", [":memory:", "", "file:x?mode=memory"])
def test_a_path_that_is_not_a_file_is_refused_with_advice(path: str) -> None:
    with pytest.raises(InvalidArgumentError, match="memory:"):
        SqliteStore(path)


@pytest.mark.slow
async def test_the_wal_stays_bounded_during_continuous_reads(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db", durability="off")
    done = asyncio.Event()

    async def read() -> None:
        while not done.is_set():
            await store.find(JobQuery(limit=200))

    readers = [asyncio.create_task(read()) for _ in range(4)]
    largest = 0
    for _ in range(60):
        await store.enqueue([make_job(payload=b"x" * 4000) for _ in range(400)])
        largest = max(largest, (tmp_path / "jobs.db-wal").stat().st_size)
    done.set()
    await asyncio.gather(*readers)
    await store.close()
    # Without the limit it grows to hundreds of megabytes.
    assert largest < 2.5 * WAL_LIMIT


async def test_a_loop_that_ends_early_leaves_the_writer_alive(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db", durability="off")

    def stop_early() -> None:
        loop = asyncio.new_event_loop()
        twin = store.twin()
        for _ in range(20):
            task = loop.create_task(twin.enqueue([make_job()]))
            loop.call_soon(loop.stop)
            loop.run_forever()
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    threads = [threading.Thread(target=stop_early) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        await store.enqueue([make_job()])
    for thread in threads:
        thread.join()
    assert (await asyncio.wait_for(enqueue_one(store), 10)).seq == 2
    await store.close()


async def test_a_tail_is_not_woken_by_other_jobs(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db", durability="off")
    job = await enqueue_one(store, hold=True)
    tail = store.tail(job.id)
    assert (await anext(tail)).seq == 1
    waiting = asyncio.ensure_future(anext(tail))
    await asyncio.sleep(0.05)
    reads = 0
    events = store.events

    async def counted(*args: object, **kwargs: object) -> object:
        nonlocal reads
        reads += 1
        return await events(*args, **kwargs)  # type: ignore[arg-type]

    store.events = counted  # type: ignore[method-assign,assignment]
    started = time.monotonic()
    for _ in range(100):
        await enqueue_one(store)
    assert reads <= 2 + (time.monotonic() - started) / POLL, "at most the reads of the poll"
    waiting.cancel()
    await store.close()


async def test_a_cancelled_close_still_closes(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    store = SqliteStore(tmp_path / "jobs.db", durability="off")
    await enqueue_one(store)
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    await store.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        await store.ping()
    after = set(threading.enumerate()) - before
    assert not [thread for thread in after if thread.name.startswith("windlass-sqlite")]


def _errors_after_fork(transaction: SqliteTransaction, store: SqliteStore) -> str:
    """Return the errors that a forked child gets when it uses the transaction and the store."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        errors = []
        for use in (lambda: transaction.execute("SELECT 1"), lambda: asyncio.run(store.ping())):
            try:
                use()
            except Exception as error:  # noqa: BLE001
                errors.append(type(error).__name__)
        os.write(writing, " ".join(errors).encode())
        os._exit(0)
    os.close(writing)
    answer = os.read(reading, 100).decode()
    os.close(reading)
    os.waitpid(child, 0)
    return answer


async def test_a_child_forked_inside_a_transaction_gets_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "FORK_SECONDS", 0.2)
    store = SqliteStore(tmp_path / "jobs.db", durability="off")
    job = await enqueue_one(store)
    transaction = store.transaction(seconds=30)
    transaction.execute("CREATE TABLE mine (x)")
    errors = await asyncio.to_thread(_errors_after_fork, transaction, store)
    assert errors == "ConflictError StoreUnavailableError"
    transaction.commit()
    assert (await store.get([job.id]))[0] is not None
    await store.close()


async def test_the_file_may_contain_application_tables_with_any_name(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    names = ("job", "log", "step", "schema", "record", "payload", "rollup", "serial")
    with contextlib.closing(apsw.Connection(str(path))) as file:
        for name in names:
            file.execute(f"CREATE TABLE {name} (x)")
            file.execute(f"INSERT INTO {name} VALUES ('mine')")
    async with SqliteStore(path, durability="off") as store:
        await enqueue_one(store)
        assert len(await claim_all(store)) == 1
    with contextlib.closing(apsw.Connection(str(path))) as file:
        for name in names:
            assert file.execute(f"SELECT x FROM {name}").fetchall() == [("mine",)]
