"""Measures the store against bare SQLite: same rows, same indexes, same batches.

    python -m benchmarks.store_sqlite [--quick] [--json FILE]

Each figure is a ratio of two medians of one run; the two sides alternate. The bare side is apsw
with prepared tuples, without results and fence checks, with the shipped schema and settings and
full durability. uvloop is used if it is installed. The machine is noisy; only the ratios count.
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
from typing import cast

import apsw

from benchmarks.event_loop import loop_factory
from windlass.core.decisions import outcome
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.job.new_job import NewJob
from windlass.stores.sqlite import SqliteConfig, SqliteStore
from windlass.stores.sqlite.connection import connect
from windlass.stores.sqlite.migrator import migrate
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.rows import Row, insertion

PAYLOAD = b'{"args":["' + b"x" * 88 + b'"]}'
BULK, BATCH = 1_000, 100
BARE_CLAIM = """
UPDATE windlass_job SET state = 'running', attempt = attempt + 1, fence = fence + 1, token = ?,
    worker = ?, lease_until = ?, started_at = ?, updated_at = ?, seq = seq + 1
WHERE n IN (
    SELECT n FROM windlass_job INDEXED BY windlass_job_queued
    WHERE state = 'queued' AND queue = 'default' ORDER BY priority DESC, position LIMIT ?
)
RETURNING n, id, task, payload
"""
BARE_SETTLE = """
UPDATE windlass_job SET state = 'succeeded', percent = 100, result = ?, ended_at = ?,
    updated_at = ?, seq = seq + 1, lease_until = NULL
WHERE n = ?
"""


@dataclass(frozen=True)
class Line:
    what: str
    bare: float
    store: float
    target: float

    @property
    def ratio(self) -> float:
        return self.store / self.bare


def new_jobs(count: int) -> list[NewJob]:
    return [NewJob(id=uuid7(), task="bench.noop", payload=PAYLOAD) for _ in range(count)]


class Bare:
    """The engine by itself."""

    def __init__(self, path: Path) -> None:
        self.connection: apsw.Connection = connect(SqliteConfig(path=str(path)))
        migrate(self.connection, str(path), 0)
        self.serial = 0

    def rows(self, count: int) -> list[Row]:
        now = time.time_ns() // 1000
        first, self.serial = self.serial + 1, self.serial + count
        return [insertion(new, now, n) for n, new in enumerate(new_jobs(count), first)]

    def insert(self, rows: list[Row]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(SQL.insert_job, rows)
        self.connection.execute("COMMIT")

    def claim(self, count: int) -> list[int]:
        now = time.time_ns() // 1000
        self.connection.execute("BEGIN IMMEDIATE")
        token, until = uuid7().bytes, now + 30_000_000
        found = self.connection.execute(
            BARE_CLAIM, (token, "bench", until, now, now, count)
        ).fetchall()
        self.connection.execute("COMMIT")
        return [row[0] for row in cast("list[tuple[int, ...]]", found)]

    def settle(self, numbers: list[int]) -> None:
        now = time.time_ns() // 1000
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(BARE_SETTLE, [(b"null", now, now, n) for n in numbers])
        self.connection.execute("COMMIT")


Work = Callable[[], Awaitable[None]]


async def rate(count: int, work: Work) -> float:
    started = time.perf_counter()
    await work()
    return count / (time.perf_counter() - started)


class Bench:
    def __init__(self, bare: Bare, store: SqliteStore, *, quick: bool) -> None:
        self.bare, self.store = bare, store
        self.rounds = 3 if quick else 7
        self.jobs = 5_000 if quick else 20_000

    def line(self, what: str, target: float, pairs: list[tuple[float, float]]) -> Line:
        bare = statistics.median(b for b, _ in pairs)
        return Line(what, bare, statistics.median(s for _, s in pairs), target)

    async def bulk(self) -> Line:
        calls = self.jobs // BULK
        pairs = [
            (
                await rate(self.jobs, self._bare_inserts([BULK] * calls)),
                await rate(self.jobs, self._enqueues([BULK] * calls)),
            )
            for _ in range(self.rounds)
        ]
        return self.line(f"bulk enqueue, {BULK:,} a call", 0.5, pairs)

    async def single(self) -> Line:
        count = self.jobs // 20
        pairs = [
            (
                await rate(count, self._bare_inserts([1] * count)),
                await rate(count, self._enqueues([1] * count)),
            )
            for _ in range(self.rounds)
        ]
        return self.line("one awaited enqueue", 0.5, pairs)

    async def concurrent(self, single: float) -> Line:
        each = self.jobs // 400
        rates = []
        for _ in range(self.rounds):
            producers = [self._enqueues([1] * each) for _ in range(100)]
            rates.append(await rate(100 * each, _all(producers)))
        what = "100 concurrent enqueues, against one bare insert"
        return self.line(what, 4.0, [(single, each_rate) for each_rate in rates])

    def _bare_inserts(self, sizes: list[int]) -> Work:
        calls = [self.bare.rows(size) for size in sizes]

        async def work() -> None:
            for rows in calls:
                self.bare.insert(rows)

        return work

    def _enqueues(self, sizes: list[int]) -> Work:
        calls = [new_jobs(size) for size in sizes]

        async def work() -> None:
            for jobs in calls:
                await self.store.enqueue(jobs)

        return work

    async def drain(self) -> Line:
        count = self.jobs // 2

        async def bare() -> None:
            for _ in range(count // BATCH):
                self.bare.settle(self.bare.claim(BATCH))

        async def store() -> None:
            done = outcome.Succeeded(result=b"null")
            for _ in range(count // BATCH):
                claim = Claim(token=uuid7(), worker="bench", queues=[("default", BATCH)])
                rows = await self.store.claim(claim)
                assert len(rows) == BATCH
                transitions = [outcome.settle(row, done, random=random.random) for row in rows]
                await self.store.apply(transitions)

        pairs = [(await rate(count, bare), await rate(count, store)) for _ in range(self.rounds)]
        return self.line(f"claim + settle, batches of {BATCH}", 0.35, pairs)


def _all(producers: list[Work]) -> Work:
    async def work() -> None:
        await asyncio.gather(*(producer() for producer in producers))

    return work


async def measure(directory: Path, behind: int, *, quick: bool) -> list[Line]:
    """All lines, with `behind` jobs already in each file, half of them finished."""
    bare = Bare(directory / f"bare-{behind}.db")
    store = SqliteStore(directory / f"store-{behind}.db")
    for _ in range(behind // BULK):
        bare.insert(bare.rows(BULK))
        await store.enqueue(new_jobs(BULK))
    bench = Bench(bare, store, quick=quick)
    bulk = await bench.bulk()
    drain = await bench.drain()
    single = await bench.single()
    lines = [bulk, drain, single, await bench.concurrent(single.bare)]
    await store.close()
    bare.connection.close()
    return lines


def show(behind: int, lines: list[Line]) -> None:
    print(f"\n{behind:,} jobs in the file at the start; durability full")
    print(f"{'':50}{'bare /s':>12}{'store /s':>12}{'ratio':>8}{'target':>8}")
    for line in lines:
        print(
            f"{line.what:50}{line.bare:12,.0f}{line.store:12,.0f}"
            f"{line.ratio:8.2f}{line.target:8.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller files")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    parser.add_argument("--behind", type=int, nargs="*", help="jobs in the file at the start")
    arguments = parser.parse_args()
    sizes = arguments.behind or ([1_000] if arguments.quick else [1_000, 1_000_000])
    report: dict[str, list[dict[str, float | str]]] = {}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        for behind in sizes:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                lines = runner.run(measure(Path(name), behind, quick=arguments.quick))
            show(behind, lines)
            report[str(behind)] = [asdict(line) | {"ratio": line.ratio} for line in lines]
    if arguments.json:
        arguments.json.write_text(json.dumps({"durability": "full", "sizes": report}, indent=2))


if __name__ == "__main__":
    main()
