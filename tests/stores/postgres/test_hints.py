"""News between processes: few messages, none needed, and heard again after they were lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from tests.stores.postgres.server import execute

from windlass.core.event import Event
from windlass.core.outcome import Succeeded
from windlass.stores.postgres import PostgresStore, hints
from windlass.stores.postgres.connection import Connection, PostgresConfig, connect
from windlass.testing.factories import claim_all, enqueue_one, make_job, settle_one, start_one

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
    await connection.add_listener(hints.CHANNEL, lambda *given: heard.put_nowait(given[-1]))
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
        await execute(postgres_url, f"SELECT pg_notify('{hints.CHANNEL}', 'last')")
        async with asyncio.timeout(PATIENCE):
            count = 0
            while await heard.get() != "last":
                count += 1

    assert 0 < count <= 2 + seconds / hints.APART


async def test_a_listener_that_was_killed_hears_again_and_missed_nothing(
    postgres_url: str,
) -> None:
    async with PostgresStore(postgres_url) as store, PostgresStore(postgres_url) as other:
        await listening(store)
        [[pid]] = await execute(postgres_url, LISTENERS)
        await claim_all(store)
        await execute(postgres_url, f"SELECT pg_terminate_backend({pid}, 5000)")
        await enqueue_one(other)  # while nobody hears it

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

    monkeypatch.setattr(hints, "connect", connect_and_tell)
    monkeypatch.setattr(hints, "PROBE", 0.05)
    monkeypatch.setattr(hints, "ANSWER", 0.5)
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

    monkeypatch.setattr(hints, "connect", connect_and_tell)
    monkeypatch.setattr(hints, "CHANNEL", "elsewhere")  # as behind a pooler
    monkeypatch.setattr(hints, "PROBE", 0.02)
    monkeypatch.setattr(hints, "ANSWER", 0.02)
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
    monkeypatch.setattr(hints, "PROBE", 0.02)
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
        await other.enqueue([make_job() for _ in range(hints.MOST_JOBS + 50)])
        crowd = await claim_all(other, limit=hints.MOST_JOBS + 50)
        assert len(crowd) > hints.MOST_JOBS, "too many to be named"
        await settle_one(other, job, Succeeded())

        async with asyncio.timeout(PATIENCE):
            assert [event.seq for event in await following] == [1, 2, 3, 4]


async def test_without_any_message_a_follower_still_hears_all(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(_: hints.Listener) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(hints.Listener, "_run", nothing)
    async with PostgresStore(postgres_url) as store, PostgresStore(postgres_url) as other:
        monkeypatch.setattr(store, "_config", PostgresConfig(url=postgres_url, connect_timeout=0.1))
        job = await start_one(other)
        tail = store.tail(job.id)
        first = [await anext(tail) for _ in range(3)]
        await settle_one(other, job, Succeeded())

        async with asyncio.timeout(PATIENCE):
            rest = [event async for event in tail]
        assert [event.seq for event in [*first, *rest]] == [1, 2, 3, 4]
