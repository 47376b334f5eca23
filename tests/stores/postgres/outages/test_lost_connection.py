"""The server terminates a connection between two statements."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest

from windlass.core.errors import StoreUnavailableError
from windlass.core.event import EventType
from windlass.store import AttemptRecords
from windlass.stores.postgres import PostgresStore
from windlass.testing.factories import log_record, read_events, start_one

TERMINATE = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid = %s"


def terminate_idle_connections(
    superuser: psycopg.Connection[tuple[object, ...]], store: PostgresStore
) -> None:
    """Terminate the idle connections; the last messages of the server arrive before the return."""
    for connection in store._shared_engine._pool._idle:
        superuser.execute(TERMINATE, [connection.get_server_pid()])
    time.sleep(0.02)


@pytest.mark.parametrize("iterations", range(6))
async def test_a_lost_connection_is_reported_and_the_next_call_works(
    postgres_url: str, iterations: int
) -> None:
    """The driver has read the last message of the server, but not the end of the connection."""
    async with PostgresStore(postgres_url) as store:
        row = await start_one(store)
        with psycopg.connect(postgres_url, autocommit=True) as superuser:
            for n in range(1, 4):
                terminate_idle_connections(superuser, store)
                for _ in range(iterations):
                    await asyncio.sleep(0)
                entry = AttemptRecords(row.lease, [log_record(n)])
                try:
                    await store.record([entry])
                except StoreUnavailableError as error:
                    assert "the connection was lost" in str(error) or "stopping" in str(error)  # noqa: PT017
                    await store.record([entry])
        log = await read_events(store, row.id)
    assert [event.type for event in log].count(EventType.LOG) == 3
