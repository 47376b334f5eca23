"""Notifications between processes: few, never required, and resumed after a loss."""

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
from windlass.store import AttemptRecords
from windlass.stores.postgres import PostgresStore, notify
from windlass.stores.postgres import connection as connections
from windlass.stores.postgres.config import PostgresConfig
from windlass.stores.postgres.connection import Connection, connect
from windlass.stores.postgres.queries import SQL
from windlass.stores.wakeup import Wakeup
from windlass.testing.factories import (
    claim_all,
    enqueue_one,
    log_record,
    make_job,
    settle_one,
    start_one,
)

WAIT_TIMEOUT = 20.0
LISTENERS = (
    "SELECT pid FROM pg_stat_activity WHERE query ILIKE 'LISTEN%' "
    "AND application_name = 'windlass' AND datname = current_database()"
)


@asynccontextmanager
async def messages(url: str) -> AsyncIterator[asyncio.Queue[str]]:
    """Yield a queue of all messages on the channel."""
    received: asyncio.Queue[str] = asyncio.Queue()
    connection: Any = await asyncpg.connect(url)
    await connection.add_listener(notify.CHANNEL, lambda *given: received.put_nowait(given[-1]))
    try:
        yield received
    finally:
        await connection.close()


async def wait_for_listener(store: PostgresStore) -> None:
    """Wait until the store listens."""
    await claim_all(store)
    await store.wait(["default"], 0.01)
    listener = store._writer._listener
    assert listener is not None
    await listener.ready.wait()


async def is_woken(store: PostgresStore) -> bool:
    async with asyncio.timeout(WAIT_TIMEOUT):
        return await store.wait(["default"], 2 * WAIT_TIMEOUT)


async def test_many_writes_are_announced_in_few_messages(postgres_url: str) -> None:
    async with messages(postgres_url) as received:
        async with PostgresStore(postgres_url) as store:
            started = asyncio.get_running_loop().time()
            for _ in range(100):
                await enqueue_one(store)
            seconds = asyncio.get_running_loop().time() - started
        await execute(postgres_url, f"SELECT pg_notify('{notify.CHANNEL}', 'last')")
        async with asyncio.timeout(WAIT_TIMEOUT):
            count = 0
            while await received.get() != "last":
                count += 1

    assert 0 < count <= 2 + seconds / notify.NOTIFY_INTERVAL


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50, 200])
async def test_notifications_of_callers_transactions_are_decoded(
    postgres_url: str, count: int
) -> None:
    jobs = [uuid7() for _ in range(count)]
    ids = ",".join(str(job) for job in jobs)
    async with messages(postgres_url) as received:
        await execute(postgres_url, f"SELECT windlass_notify(true, '{{{ids}}}'::uuid[])")
        async with asyncio.timeout(WAIT_TIMEOUT):
            message = await received.get()
    sender, work, named = message.split(" ")
    assert (sender, work) == ("sql", "1")
    assert notify._decode_ids(named) == jobs
    assert set(notify._decode_ids(notify._encode_ids(jobs)) or ()) == set(jobs)


@pytest.mark.parametrize("named", ["*", "AZrG2EyCcMmUqk1gK3Y3fw", "no names", "é"])
async def test_undecodable_ids_mean_any_job(named: str) -> None:
    assert notify._decode_ids(named) is None


async def test_after_a_message_for_any_job_only_claimable_work_is_announced_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notify, "ANY_JOB_INTERVAL", 4 * WAIT_TIMEOUT)
    sent: asyncio.Queue[str] = asyncio.Queue()
    notifier = notify.Notifier(notify.NotifyHub(), sent.put)
    async with asyncio.timeout(WAIT_TIMEOUT):
        notifier.notify(uuid7() for _ in range(notify.MAX_NAMED_JOBS + 1))
        assert (await sent.get()).endswith(" 0 *")
        notifier.notify([uuid7()])
        await asyncio.sleep(10 * notify.NOTIFY_INTERVAL)
        assert sent.empty()  # under load, event readers poll
        notifier.notify(work=True)
        assert " 1 " in await sent.get()  # with the job of the earlier call
        notifier.notify(uuid7() for _ in range(notify.MAX_NAMED_JOBS + 1))
        await sent.get()
        notifier.notify([uuid7()])
        await notifier.finish()  # without waiting for the interval
        assert not sent.empty()


async def test_no_message_is_sent_in_a_transaction_that_writes_jobs(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NOTIFY serializes the commits of the server, so it has its own transaction."""
    statements_by_connection: list[list[str]] = []

    async def connect_and_log(config: PostgresConfig) -> Connection:
        connection: Any = await connect(config)
        statements: list[str] = []
        statements_by_connection.append(statements)
        connection.add_query_logger(lambda logged: statements.append(logged.query))
        return cast("Connection", connection)

    monkeypatch.setattr(connections, "connect", connect_and_log)
    async with PostgresStore(postgres_url) as store:
        await store.enqueue([make_job(), make_job()])
        await store.enqueue([make_job(unique_key="u"), make_job(request_id="r")])
        first, second, third, fourth = await claim_all(store)
        await store.record([AttemptRecords(first.lease, [log_record(1, "here")])])
        await settle_one(store, first, Succeeded(), children=[make_job()])
        await settle_one(store, second, Succeeded())
        await settle_one(store, third, Released())
        await store.apply([CancelRequest(job_id=fourth.id), CancelRequest(job_id=third.id)])
        await store.delete([first.id, second.id])

    separate, in_job_transactions = 0, []
    for statements in statements_by_connection:
        within = False
        for statement in statements:
            within = statement.startswith("BEGIN") or (
                within and statement not in {"COMMIT", "ROLLBACK"}
            )
            if "notify" in statement.lower():
                separate += statement == SQL.notify
                in_job_transactions += [statement] if within or statement != SQL.notify else []
    assert separate > 0
    assert in_job_transactions == []


async def test_a_killed_listener_reconnects_and_misses_nothing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_connect = asyncio.Event()
    may_connect.set()

    async def connect_when_allowed(config: PostgresConfig) -> Connection:
        await may_connect.wait()
        return await connect(config)

    monkeypatch.setattr(notify, "connect", connect_when_allowed)
    async with PostgresStore(postgres_url) as store, PostgresStore(postgres_url) as other:
        await wait_for_listener(store)
        [[pid]] = await execute(postgres_url, LISTENERS)
        await claim_all(store)
        may_connect.clear()
        await execute(postgres_url, f"SELECT pg_terminate_backend({pid}, 5000)")
        async with messages(postgres_url) as received, asyncio.timeout(WAIT_TIMEOUT):
            await enqueue_one(other)  # while the listener is disconnected
            await received.get()
        may_connect.set()

        assert await is_woken(store)

        assert len(await claim_all(store)) == 1
        await enqueue_one(other)
        assert await is_woken(store)


async def test_a_silently_dropped_listener_is_noticed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a silent disconnect, or behind a pooler that reassigns the connection."""
    opened: asyncio.Queue[Connection] = asyncio.Queue()

    async def connect_and_record(config: PostgresConfig) -> Connection:
        connection = await connect(config)
        opened.put_nowait(connection)
        return connection

    monkeypatch.setattr(notify, "connect", connect_and_record)
    monkeypatch.setattr(notify, "PROBE_INTERVAL", 0.05)
    monkeypatch.setattr(notify, "PROBE_TIMEOUT", 0.5)
    async with PostgresStore(postgres_url) as store, PostgresStore(postgres_url) as other:
        await wait_for_listener(store)
        await (await opened.get()).execute("UNLISTEN *")
        async with asyncio.timeout(WAIT_TIMEOUT):
            await opened.get()
        await claim_all(store)
        await enqueue_one(other)

        assert await is_woken(store)


async def test_without_any_notification_one_warning_names_the_fix(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: asyncio.Queue[None] = asyncio.Queue()

    async def connect_and_record(config: PostgresConfig) -> Connection:
        tries.put_nowait(None)
        return await connect(config)

    monkeypatch.setattr(notify, "connect", connect_and_record)
    monkeypatch.setattr(notify, "CHANNEL", "elsewhere")  # as behind a pooler: no message arrives
    monkeypatch.setattr(notify, "PROBE_INTERVAL", 0.02)
    monkeypatch.setattr(notify, "PROBE_TIMEOUT", 0.02)
    async with PostgresStore(postgres_url) as store:
        await wait_for_listener(store)
        async with asyncio.timeout(WAIT_TIMEOUT):
            for _ in range(4):
                await tries.get()
    [warning] = caplog.messages
    assert "no NOTIFY messages arrive" in warning
    assert "listen=host:port" in warning
    assert "listen=off" in warning


async def test_an_arriving_probe_keeps_the_connection(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "PROBE_INTERVAL", 0.02)
    monkeypatch.setattr(notify, "PROBE_TIMEOUT", 2 * WAIT_TIMEOUT)
    async with PostgresStore(postgres_url) as store:
        await wait_for_listener(store)
        before = await execute(postgres_url, LISTENERS)
        async with messages(postgres_url) as received, asyncio.timeout(WAIT_TIMEOUT):
            for _ in range(5):
                await received.get()

        assert await execute(postgres_url, LISTENERS) == before


async def test_a_tail_of_one_job_is_woken_among_very_many(postgres_url: str) -> None:
    async with PostgresStore(postgres_url) as store, PostgresStore(postgres_url) as other:
        job = await start_one(other)

        async def collect() -> list[Event]:
            return [event async for event in store.tail(job.id)]

        tailing = asyncio.ensure_future(collect())
        await wait_for_listener(store)
        await other.enqueue([make_job() for _ in range(notify.MAX_NAMED_JOBS + 50)])
        rows = await claim_all(other, limit=notify.MAX_NAMED_JOBS + 50)
        assert len(rows) > notify.MAX_NAMED_JOBS, "more jobs than one message names"
        await settle_one(other, job, Succeeded())

        async with asyncio.timeout(WAIT_TIMEOUT):
            assert [event.seq for event in await tailing] == [1, 2, 3, 4]


@pytest.mark.slow
async def test_without_any_message_a_tail_still_returns_all_events(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = asyncio.Event()
    wait = Wakeup.wait

    async def never_connect(_: notify.NotifyListener) -> None:
        await asyncio.Event().wait()

    async def wait_and_record(self: Wakeup, since: int, timeout: float) -> bool:
        waiting.set()
        return await wait(self, since, timeout)

    monkeypatch.setattr(notify.NotifyListener, "_run", never_connect)
    monkeypatch.setattr(Wakeup, "wait", wait_and_record)
    async with PostgresStore(postgres_url) as store, PostgresStore(postgres_url) as other:
        monkeypatch.setattr(store, "_config", PostgresConfig(url=postgres_url, connect_timeout=0.1))
        job = await start_one(other)

        async def collect() -> list[Event]:
            return [event async for event in store.tail(job.id)]

        async with asyncio.timeout(WAIT_TIMEOUT):
            tailing = asyncio.ensure_future(collect())
            await waiting.wait()  # the tail has read all stored events
            await settle_one(other, job, Succeeded())

            assert [event.seq for event in await tailing] == [1, 2, 3, 4]
