"""News between processes: few messages, none needed, and heard again after they were lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg
import pytest
from tests.stores.postgres.server import execute

from windlass.core.decisions.outcome import Released, Succeeded
from windlass.core.decisions.transition import CancelRequest
from windlass.core.event import Event
from windlass.core.ids import uuid7
from windlass.store import Saying
from windlass.stores.postgres import PostgresStore, notify
from windlass.stores.postgres import connection as connections
from windlass.stores.postgres.connection import Connection, PostgresConfig, connect
from windlass.stores.postgres.queries import SQL
from windlass.stores.wakeup import Signal
from windlass.testing.factories import (
    claim_all,
    enqueue_one,
    make_job,
    note,
    settle_one,
    start_one,
)

PATIENCE = 20.0
LISTENERS = (
    "SELECT pid FROM pg_stat_activity WHERE query ILIKE 'LISTEN%' "
    "AND application_name = 'windlass' AND datname = current_database()"
)


@asynccontextmanager
async def messages(url: str) -> AsyncIterator[asyncio.Queue[str]]:
    """All that is said on the channel."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    connection: Any = await asyncpg.connect(url)
    await connection.add_listener(notify.CHANNEL, lambda *given: heard.put_nowait(given[-1]))
    try:
        yield heard
    finally:
        await connection.close()


async def listening(store: PostgresStore) -> None:
    """Wait until it hears other processes."""
    await claim_all(store)
    await store.wait(["default"], 0.01)
    listener = store._writes._listener
    assert listener is not None
    await listener.ready.wait()


async def woken(store: PostgresStore) -> bool:
    async with asyncio.timeout(PATIENCE):
        return await store.wait(["default"], 2 * PATIENCE)


async def test_many_writes_are_told_in_few_messages(postgres_url: str) -> None:
    async with messages(postgres_url) as heard:
        async with PostgresStore(postgres_url) as store:
            began = asyncio.get_running_loop().time()
            for _ in range(100):
                await enqueue_one(store)
            seconds = asyncio.get_running_loop().time() - began
        await execute(postgres_url, f"SELECT pg_notify('{notify.CHANNEL}', 'last')")
        async with asyncio.timeout(PATIENCE):
            count = 0
            while await heard.get() != "last":
                count += 1

    assert 0 < count <= 2 + seconds / notify.APART


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50, 200])
async def test_what_a_transaction_of_the_callers_own_tells_is_understood(
    postgres_url: str, count: int
) -> None:
    jobs = [uuid7() for _ in range(count)]
    told = ",".join(str(job) for job in jobs)
    async with messages(postgres_url) as heard:
        await execute(postgres_url, f"SELECT windlass_tell(true, '{{{told}}}'::uuid[])")
        async with asyncio.timeout(PATIENCE):
            said = await heard.get()
    sender, work, named = said.split(" ")
    assert (sender, work) == ("sql", "1")
    assert notify._jobs(named) == jobs
    assert set(notify._jobs(notify._named(jobs)) or ()) == set(jobs)


@pytest.mark.parametrize("named", ["*", "AZrG2EyCcMmUqk1gK3Y3fw", "no names", "é"])
async def test_names_that_cannot_be_read_are_news_of_any_job(named: str) -> None:
    assert notify._jobs(named) is None


async def test_after_news_of_a_crowd_only_work_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notify, "CROWD_APART", 4 * PATIENCE)
    sent: asyncio.Queue[str] = asyncio.Queue()
    speaker = notify.Speaker(notify.Hub(), sent.put)
    async with asyncio.timeout(PATIENCE):
        speaker.tell(uuid7() for _ in range(notify.MOST_JOBS + 1))
        assert (await sent.get()).endswith(" 0 *")
        speaker.tell([uuid7()])
        await asyncio.sleep(10 * notify.APART)
        assert sent.empty()  # there is always news now, and those who follow look by themselves
        speaker.tell(work=True)
        assert " 1 " in await sent.get()  # with the job that waited
        speaker.tell(uuid7() for _ in range(notify.MOST_JOBS + 1))
        await sent.get()
        speaker.tell([uuid7()])
        await speaker.finish()  # which waits for nobody
        assert not sent.empty()


async def test_no_message_is_sent_in_a_transaction_that_writes_jobs(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A NOTIFY makes all commits of the server queue for one lock: it has to be alone."""
    said: list[list[str]] = []

    async def connect_and_note(config: PostgresConfig) -> Connection:
        connection: Any = await connect(config)
        statements: list[str] = []
        said.append(statements)
        connection.add_query_logger(lambda logged: statements.append(logged.query))
        return cast("Connection", connection)

    monkeypatch.setattr(connections, "connect", connect_and_note)
    async with PostgresStore(postgres_url) as store:
        await store.enqueue([make_job(), make_job()])
        await store.enqueue([make_job(unique_key="u"), make_job(request_id="r")])
        first, second, third, fourth = await claim_all(store)
        await store.record([Saying(first.lease, [note(1, "here")])])
        await settle_one(store, first, Succeeded(), children=[make_job()])
        await settle_one(store, second, Succeeded())
        await settle_one(store, third, Released())
        await store.cancel([CancelRequest(job_id=fourth.id), CancelRequest(job_id=third.id)])
        await store.delete([first.id, second.id])

    alone, together = 0, []
    for statements in said:
        within = False
        for statement in statements:
            within = statement.startswith("BEGIN") or (
                within and statement not in {"COMMIT", "ROLLBACK"}
            )
            if "notify" in statement.lower():
                alone += statement == SQL.notify
                together += [statement] if within or statement != SQL.notify else []
    assert alone > 0
    assert together == []


async def test_a_listener_that_was_killed_hears_again_and_missed_nothing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = asyncio.Event()
    again.set()

    async def connect_when_told(config: PostgresConfig) -> Connection:
        await again.wait()
        return await connect(config)

    monkeypatch.setattr(notify, "connect", connect_when_told)
    async with PostgresStore(postgres_url) as store, PostgresStore(postgres_url) as other:
        await listening(store)
        [[pid]] = await execute(postgres_url, LISTENERS)
        await claim_all(store)
        again.clear()
        await execute(postgres_url, f"SELECT pg_terminate_backend({pid}, 5000)")
        async with messages(postgres_url) as heard, asyncio.timeout(PATIENCE):
            await enqueue_one(other)  # while it does not listen
            await heard.get()
        again.set()

        assert await woken(store)

        assert len(await claim_all(store)) == 1
        await enqueue_one(other)
        assert await woken(store)


async def test_a_listener_that_went_deaf_without_a_word_is_noticed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler, which gives the connection to others, or after a silent drop."""
    opened: asyncio.Queue[Connection] = asyncio.Queue()

    async def connect_and_tell(config: PostgresConfig) -> Connection:
        connection = await connect(config)
        opened.put_nowait(connection)
        return connection

    monkeypatch.setattr(notify, "connect", connect_and_tell)
    monkeypatch.setattr(notify, "PROBE", 0.05)
    monkeypatch.setattr(notify, "ANSWER", 0.5)
    async with PostgresStore(postgres_url) as store, PostgresStore(postgres_url) as other:
        await listening(store)
        await (await opened.get()).execute("UNLISTEN *")
        async with asyncio.timeout(PATIENCE):
            await opened.get()
        await claim_all(store)
        await enqueue_one(other)

        assert await woken(store)


async def test_where_no_message_ever_comes_through_it_says_once_what_to_do(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: asyncio.Queue[None] = asyncio.Queue()

    async def connect_and_tell(config: PostgresConfig) -> Connection:
        tries.put_nowait(None)
        return await connect(config)

    monkeypatch.setattr(notify, "connect", connect_and_tell)
    monkeypatch.setattr(notify, "CHANNEL", "elsewhere")  # as behind a pooler
    monkeypatch.setattr(notify, "PROBE", 0.02)
    monkeypatch.setattr(notify, "ANSWER", 0.02)
    async with PostgresStore(postgres_url) as store:
        await listening(store)
        async with asyncio.timeout(PATIENCE):
            for _ in range(4):
                await tries.get()
    [line] = caplog.messages
    assert "no NOTIFY comes through" in line
    assert "listen=host:port" in line
    assert "listen=off" in line


async def test_a_probe_that_comes_back_keeps_the_connection(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "PROBE", 0.02)
    monkeypatch.setattr(notify, "ANSWER", 2 * PATIENCE)
    async with PostgresStore(postgres_url) as store:
        await listening(store)
        before = await execute(postgres_url, LISTENERS)
        async with messages(postgres_url) as heard, asyncio.timeout(PATIENCE):
            for _ in range(5):
                await heard.get()

        assert await execute(postgres_url, LISTENERS) == before


async def test_whoever_follows_one_job_hears_of_it_among_very_many(postgres_url: str) -> None:
    async with PostgresStore(postgres_url) as store, PostgresStore(postgres_url) as other:
        job = await start_one(other)

        async def follow() -> list[Event]:
            return [event async for event in store.tail(job.id)]

        following = asyncio.ensure_future(follow())
        await listening(store)
        await other.enqueue([make_job() for _ in range(notify.MOST_JOBS + 50)])
        crowd = await claim_all(other, limit=notify.MOST_JOBS + 50)
        assert len(crowd) > notify.MOST_JOBS, "too many to be named"
        await settle_one(other, job, Succeeded())

        async with asyncio.timeout(PATIENCE):
            assert [event.seq for event in await following] == [1, 2, 3, 4]


@pytest.mark.slow
async def test_without_any_message_a_follower_still_hears_all(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = asyncio.Event()
    wait = Signal.wait

    async def nothing(_: notify.Listener) -> None:
        await asyncio.Event().wait()

    async def wait_and_tell(self: Signal, since: int, timeout: float) -> bool:
        waiting.set()
        return await wait(self, since, timeout)

    monkeypatch.setattr(notify.Listener, "_run", nothing)
    monkeypatch.setattr(Signal, "wait", wait_and_tell)
    async with PostgresStore(postgres_url) as store, PostgresStore(postgres_url) as other:
        monkeypatch.setattr(store, "_config", PostgresConfig(url=postgres_url, connect_timeout=0.1))
        job = await start_one(other)

        async def follow() -> list[Event]:
            return [event async for event in store.tail(job.id)]

        async with asyncio.timeout(PATIENCE):
            following = asyncio.ensure_future(follow())
            await waiting.wait()  # it has read all there is
            await settle_one(other, job, Succeeded())

            assert [event.seq for event in await following] == [1, 2, 3, 4]
