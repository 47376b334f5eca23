"""Measures the cost of limits: the drain rate of one worker with and without them.

    python -m benchmarks.limits [--jobs N] [--rounds N] [--store sqlite|postgresql]

The same no-op jobs run in the same worker: with alternating keys; with a queue concurrency as high
as the worker can use; with a rate that is hardly ever reached; with a limit for each of 100 keys.
Each run is divided by the mean of two runs without limits, one before and one after, because the
speed of a machine varies. The median and the quartiles of the rounds are printed. Each job must run
once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.event_loop import loop_factory
from benchmarks.peers.servers import postgres
from windlass import Windlass
from windlass.core.admission.limit import LIMIT, Limit, LimitSetting
from windlass.core.ids import uuid7
from windlass.core.job.new_job import NewJob
from windlass.core.versioned_record import Put
from windlass.store import Store
from windlass.stores.factory import open_store

BULK = 1_000
KEYS = 100
PLAIN = "without limits"
SETTINGS: dict[str, dict[str, Limit]] = {
    PLAIN: {},
    "key without limit": {},
    "queue concurrency": {"queue:default": Limit(concurrency=2_000)},
    "task rate": {"task:noop": Limit(starts=5_000, period=0.1)},
    "concurrency per key": {"key:noop": Limit(concurrency=50)},
}
KEYED = {"key without limit", "concurrency per key"}


async def enqueue_jobs(store: Store, count: int, *, keyed: bool) -> None:
    for begin in range(0, count, BULK):
        jobs = [
            NewJob(
                id=uuid7(),
                task="noop",
                payload=b"{}",
                limit_key=f"key-{(begin + place) % KEYS}" if keyed else None,
            )
            for place in range(min(BULK, count - begin))
        ]
        await store.enqueue(jobs)


async def measure(url: str, name: str, count: int) -> tuple[float, float]:
    """Return the enqueued and completed jobs per second."""
    app = Windlass(url)
    done = asyncio.Event()
    ran: Counter[str] = Counter()

    @app.task(name="noop")
    async def noop() -> None:
        ran["jobs"] += 1
        if ran["jobs"] == count:
            done.set()

    store = app.client().store
    try:
        for limit, what in SETTINGS[name].items():
            put = Put(kind=LIMIT, key=limit, value=LimitSetting(override=what).encode())
            await store.put_records([put])
        began = time.perf_counter()
        await enqueue_jobs(store, count, keyed=name in KEYED)
        put_rate = count / (time.perf_counter() - began)
        worker = app.worker()
        began = time.perf_counter()
        task = asyncio.create_task(worker.run())
        await done.wait()
        rate = count / (time.perf_counter() - began)
        worker.stop()
        await task
        await store.delete_records(LIMIT, list(SETTINGS[name]))
    finally:
        await app.aclose()
    assert ran["jobs"] == count, "a job ran twice"
    return put_rate, rate


async def migrate(url: str) -> None:
    async with open_store(url) as store:
        await store.migrate()


async def rounds(url: str, jobs: int, number: int) -> None:
    enqueue_ratios: dict[str, list[float]] = {name: [] for name in SETTINGS}
    drain_ratios: dict[str, list[float]] = {name: [] for name in SETTINGS}

    async def measure_and_print(name: str) -> tuple[float, float]:
        enqueue_rate, drain_rate = await measure(url, name, jobs)
        print(f"{name:<32}{enqueue_rate:>12,.0f}/s{drain_rate:>12,.0f}/s", flush=True)
        return enqueue_rate, drain_rate

    before = await measure_and_print(PLAIN)
    for _ in range(number):
        for name in SETTINGS:
            if name == PLAIN:
                continue
            rates = await measure_and_print(name)
            after = await measure_and_print(PLAIN)
            for ratios, rate, first, last in zip(
                (enqueue_ratios, drain_ratios), rates, before, after, strict=True
            ):
                ratios[name].append(2 * rate / (first + last))
            before = after
    print(
        f"\n{'ratio to no limits (median)':<32}{'enqueued':>12}  {'drained':>12}  {'quartiles':>12}"
    )
    for name in SETTINGS:
        if name != PLAIN:
            enqueue_ratio = statistics.median(enqueue_ratios[name])
            low, drained, high = statistics.quantiles(drain_ratios[name], method="inclusive")
            print(f"{name:<32}{enqueue_ratio:>12.2f}  {drained:>12.2f}  {low:>6.2f}{high:>6.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="postgresql")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        if given.store == "sqlite":
            url = f"sqlite:///{directory}/windlass.db"
        else:
            server = stack.enter_context(postgres(Path(directory), None))
            url = stack.enter_context(server.new_database())
            asyncio.run(migrate(url))
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(rounds(url, given.jobs, given.rounds))


if __name__ == "__main__":
    main()
