"""Measures the latency from an enqueue in one process to the claim in another, and the idle cost.

    python -m benchmarks.wakeup_latency [--jobs N] [--idle SECONDS]

A worker process waits for jobs on a SQLite file, and this process enqueues one job at a time. The
delay is measured from before the enqueue (with its fsync) to the claim in the other process (with
its own), by the same clock. Then the CPU time of the idle worker is read. Durability is full.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.job.new_job import NewJob
from windlass.stores.sqlite import SqliteStore

POLL = 1.0


def waiter(path: str, jobs: int, idle: float, pipe: Connection) -> None:
    asyncio.run(_wait(path, jobs, idle, pipe))


async def _wait(path: str, jobs: int, idle: float, pipe: Connection) -> None:
    store = SqliteStore(path)
    await store.ping()
    pipe.send("ready")
    delays: list[float] = []
    while len(delays) < jobs:
        claim = Claim(token=uuid7(), worker="waiter", queues=[("default", 1)])
        rows = await store.claim(claim)
        delays += [time.time() - json.loads(row.payload) for row in rows]
        if len(delays) < jobs:
            await store.wait(["default"], POLL)
    before = resource.getrusage(resource.RUSAGE_SELF)
    end = time.monotonic() + idle
    while (left := end - time.monotonic()) > 0:
        await store.claim(Claim(token=uuid7(), worker="waiter", queues=[("default", 1)]))
        await store.wait(["default"], min(POLL, left))
    after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    pipe.send((delays, spent))
    await store.close()


async def produce(path: str, jobs: int) -> None:
    async with SqliteStore(path) as store:
        for _ in range(jobs):
            await asyncio.sleep(0.05)
            payload = json.dumps(time.time()).encode()
            await store.enqueue([NewJob(id=uuid7(), task="bench.noop", payload=payload)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--idle", type=float, default=10.0)
    arguments = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
        path = f"{directory}/jobs.db"
        parent_end, child_end = spawn.Pipe()
        worker = spawn.Process(
            target=waiter, args=(path, arguments.jobs, arguments.idle, child_end)
        )
        worker.start()
        parent_end.recv()
        asyncio.run(produce(path, arguments.jobs))
        delays, spent = parent_end.recv()
        worker.join()
    cuts = statistics.quantiles(delays, n=100)
    print("\nfrom enqueue in one process to claim in another, durability full")
    print(f"  p50 {cuts[49] * 1000:.2f} ms   p99 {cuts[98] * 1000:.2f} ms   ({len(delays)} jobs)")
    print(f"  an idle waiter: {spent / arguments.idle:.3%} of a core over {arguments.idle:g} s")


if __name__ == "__main__":
    main()
