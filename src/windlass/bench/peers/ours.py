"""Windlass itself on SQLite: its API without an event loop, and `windlass worker` as it is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from windlass.app import Windlass
from windlass.bench.job_ledger import Ledger
from windlass.bench.round_config import Place
from windlass.bench.side import Side
from windlass.core.job.state import State
from windlass.core.query.job_query import Query
from windlass.worker.supervisor import this_program

FILE = "sqlite:///jobs.db"
TASK = "bench.noop"
APP = "windlass.bench.app:app"
UNFINISHED = Query(states=frozenset(State) - {State.SUCCEEDED}, limit=1)


def url_of(place: Place) -> str:
    return place.url or FILE


def become_worker() -> None:
    """Become the worker program; `windlass.bench.app` is the application that it runs."""
    program = this_program()
    os.execv(program[0], [*program, "worker", APP])  # noqa: S606 - our own interpreter


class Ours(Side):
    library = "windlass"
    package = "windlass"
    durability = "WAL, synchronous=FULL; leases, fences and log on, rows kept"
    bulk = "app.enqueue_many of task.new_job(…)"
    together = "100 awaited task.aenqueue(…) at once"

    def __init__(self, place: Place) -> None:
        self._app = Windlass(url_of(place), data=place.directory / "data")

        @self._app.task(name=TASK)
        async def noop(payload: str) -> None: ...

        self._noop = noop

    def put(self, payload: str) -> None:
        self._noop.enqueue(payload)

    def put_together(self, payloads: Sequence[str]) -> None:
        async def together() -> None:
            await asyncio.gather(*map(self._noop.aenqueue, payloads))

        self._app.sync.call(together())

    def put_many(self, payloads: Sequence[str]) -> None:
        self._app.enqueue_many([self._noop.new_job(payload) for payload in payloads])

    def close(self) -> None:
        self._app.close()

    def work(self, ledger: Ledger) -> None:  # noqa: ARG002 - the program has its own
        become_worker()

    def unfinished(self) -> int:
        async def left() -> int:
            return len((await self._app.client().store.find(UNFINISHED)).rows)

        return self._app.sync.call(left())


side = Ours
