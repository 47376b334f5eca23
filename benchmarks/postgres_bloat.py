"""Measures whether the speed stays constant with large tables and an open transaction.

    python -m benchmarks.postgres_bloat [--waiting N] [--finished N] [--minutes M] [--url URL]

On one server it drains jobs (claim and settle by 500) from a short queue, then with a million jobs
waiting, then with five million finished jobs, each as a ratio to the first. Then it enqueues and
runs 2,000 jobs per second, first normally, then while a transaction stays open for ten minutes,
which keeps every dead row. It prints the claim times per minute. fsync and synchronous_commit are
those of the server, and are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks.event_loop import loop_factory
from benchmarks.peers.servers import postgres
from benchmarks.store_postgres import PAYLOAD
from windlass.core.decisions import outcome
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.job.new_job import NewJob
from windlass.stores.postgres import PostgresStore

BULK = 1_000
BATCH = 500
DRAIN = 30_000  # jobs of one measurement
RATE = 2_000  # jobs a second, while a transaction is held
TICK = 0.05
FINISHED = """
WITH made AS (
    INSERT INTO windlass_job (
        id, n, owner, queue, task, created_at, state, trigger, attempt, fence, token, worker,
        queued_at, started_at, first_started_at, ended_at, updated_at, seq, queued_seq,
        started_seq, percent, payload, result, priority
    )
    SELECT gen_random_uuid(), nextval('windlass_serial'), '', 'default', 'old', now, 'succeeded',
        'succeed', 1, 1, gen_random_uuid(), 'bench', now, now, now, now, now, 4, 2, 3, 100,
        $2, 'null', 0
    FROM windlass_now(NULL) AS now, generate_series(1, $1)
    RETURNING n, ended_at
)
INSERT INTO windlass_ended (kind, ended_at, jobs)
SELECT 'succeeded', ended_at, array_agg(n ORDER BY n) FROM made GROUP BY ended_at, n / 1000
"""


def jobs(count: int) -> list[NewJob]:
    return [NewJob(id=uuid7(), task="t", payload=PAYLOAD) for _ in range(count)]


async def enqueue(store: PostgresStore, count: int) -> None:
    for _ in range(0, count, BULK):
        await store.enqueue(jobs(BULK))


async def claim_and_settle(store: PostgresStore, limit: int) -> tuple[int, float]:
    """Return the number of claimed jobs and the duration of the claim."""
    began = time.perf_counter()
    rows = await store.claim(Claim(token=uuid7(), worker="w", queues=[("default", limit)]))
    seconds = time.perf_counter() - began
    if rows:
        done = outcome.Succeeded(result=b"null")
        await store.apply([outcome.succeed(row, done, (), ()) for row in rows])
    return len(rows), seconds


async def drain(store: PostgresStore) -> float:
    """Return jobs per second: the best of three, because other load only slows it down."""
    rates = []
    for _ in range(3):
        began, count = time.perf_counter(), 0
        while count < DRAIN // 3:
            count += (await claim_and_settle(store, BATCH))[0]
        rates.append(count / (time.perf_counter() - began))
    return max(rates)


async def measure_large_tables(
    store: PostgresStore, server: Any, options: argparse.Namespace
) -> None:
    await enqueue(store, 2 * DRAIN)
    await drain(store)  # the first drain is always slow
    alone = await drain(store)
    print(f"{'drained with an empty table behind it':45}{alone:9,.0f}/s", flush=True)
    await enqueue(store, options.waiting + DRAIN)
    await server.execute("CHECKPOINT")
    waiting = await drain(store)
    what = f"with {options.waiting:,} jobs waiting"
    print(f"{what:45}{waiting:9,.0f}/s{waiting / alone:7.2f}", flush=True)
    for _ in range(0, options.finished, 100_000):
        await server.execute(FINISHED, 100_000, PAYLOAD)
    await enqueue(store, DRAIN)
    await server.execute("CHECKPOINT")
    kept = await drain(store)
    what = f"and {options.finished:,} finished ones kept"
    print(f"{what:45}{kept:9,.0f}/s{kept / alone:7.2f}", flush=True)


async def claim_times(store: PostgresStore, seconds: float) -> list[float]:
    """Enqueue at the rate and claim at once; return the times of non-empty claims."""
    stop = time.perf_counter() + seconds
    producer = asyncio.create_task(_produce(store, stop))
    claims: list[float] = []
    while time.perf_counter() < stop:
        found, seconds = await claim_and_settle(store, 1000)
        if found:
            claims.append(seconds)
        await asyncio.sleep(0 if found else 0.005)
    await producer
    return claims


async def _produce(store: PostgresStore, stop: float) -> None:
    turn = time.perf_counter()
    twin = store.twin()
    while turn < stop:
        await twin.enqueue(jobs(int(RATE * TICK)))
        turn += TICK
        await asyncio.sleep(max(0.0, turn - time.perf_counter()))
    await twin.close()


def _show(what: str, claims: list[float], before: float | None = None) -> float:
    p50 = 1e3 * statistics.median(claims)
    p99 = 1e3 * statistics.quantiles(claims, n=100)[98]
    ratio = "" if before is None else f"{p99 / before:7.2f}"
    print(f"{what:45}{p50:9.2f} ms{p99:9.2f} ms{ratio}", flush=True)
    return p99


async def measure_open_transaction(store: PostgresStore, url: str, minutes: int) -> None:
    while (await claim_and_settle(store, 1000))[0]:
        pass
    print(f"{'claims at 2,000 jobs/s':45}{'p50':>12}{'p99':>12}{'ratio':>7}")
    await claim_times(store, 10)
    before = _show("no open transaction", await claim_times(store, 60))
    open_connection = await asyncpg.connect(url)
    transaction = open_connection.transaction(isolation="repeatable_read")
    await transaction.start()
    await open_connection.fetchval("SELECT count(*) FROM windlass_queued")
    for minute in range(1, minutes + 1):
        _show(
            f"with a transaction held open, minute {minute}", await claim_times(store, 60), before
        )
    await transaction.rollback()
    await open_connection.close()


async def measure(url: str, options: argparse.Namespace) -> None:
    async with PostgresStore(url) as store:
        await store.migrate()
        connection: Any = await asyncpg.connect(url)
        if options.minutes:
            await measure_open_transaction(store, url, options.minutes)
        if options.waiting:
            await measure_large_tables(store, connection, options)
        await connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--finished", type=int, default=5_000_000)
    parser.add_argument("--minutes", type=int, default=10, help="that a transaction is held open")
    parser.add_argument("--url", help="a server on which a database may be created")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        postgres(Path(name), options.url) as server,
        server.new_database() as url,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        print(server.durability)
        runner.run(measure(url, options))


if __name__ == "__main__":
    main()
