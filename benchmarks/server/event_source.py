"""Event source without a worker: writes events at a given rate and reports when each was stored.

    python -m benchmarks.server.event_source URL JOBS

Enqueues and claims this many jobs, and prints their ids. Then it reads lines
`{"rate": …, "seconds": …, "size": …, "jobs": […]}`, writes events of these jobs in rotation, and
responds with the number of each event and the times before and after its write. At the end of its
input it settles the jobs.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from benchmarks.event_loop import loop_factory
from benchmarks.server.measured_server import application
from windlass.core.decisions import outcome
from windlass.core.event import EventType, Record
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.job.row import JobRow
from windlass.options import EnqueueOptions
from windlass.store import AttemptRecords, Store

LEASE = 3600.0


class EventSource:
    def __init__(self, store: Store, rows: list[JobRow]) -> None:
        self._store = store
        self._rows = rows
        self._written = [0] * len(rows)
        self._number = 0

    async def write_events(
        self, rate: float, seconds: float, size: int, jobs: list[int]
    ) -> list[list[float]]:
        """Start each write at its time, even if earlier writes are not stored yet."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        writing = []
        for turn in range(round(rate * seconds)):
            await asyncio.sleep(max(0.0, began + turn / rate - loop.time()))
            writing.append(loop.create_task(self._write_event(jobs[turn % len(jobs)], "x" * size)))
        return await asyncio.gather(*writing)

    async def _write_event(self, job: int, more: str) -> list[float]:
        self._written[job] += 1
        number, self._number = self._number, self._number + 1
        body = json.dumps({"message": f"#{number}#{more}"}).encode()
        record = Record(n=self._written[job], type=EventType.LOG, body=body)
        before = time.time()
        [answer] = await self._store.record([AttemptRecords(self._rows[job].lease, [record])])
        assert answer.applied, answer
        return [number, before, time.time()]

    async def end(self) -> None:
        done = outcome.Succeeded(result=b"null")
        transitions = [outcome.settle(row, done, random=lambda: 0.5) for row in self._rows]
        await self._store.apply(transitions)


async def run(url: str, count: int) -> None:
    app = application(url)
    client = app.client()
    greet = app.tasks.get("greet")
    assert greet is not None
    new = [app.prepare(greet, ("x",), {}, EnqueueOptions()) for _ in range(count)]
    await app.aenqueue_many(new)
    claim = Claim(token=uuid7(), worker="source", queues=[("default", count)], lease=LEASE)
    rows = await client.store.claim(claim)
    assert len(rows) == count
    print(json.dumps([str(row.id) for row in rows]), flush=True)
    source = EventSource(client.store, rows)
    while line := await asyncio.to_thread(sys.stdin.readline):
        requested: dict[str, Any] = json.loads(line)
        print(json.dumps(await source.write_events(**requested)), flush=True)
    await source.end()
    await app.aclose()


def main() -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run(sys.argv[1], int(sys.argv[2])))


if __name__ == "__main__":
    main()
