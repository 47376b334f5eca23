"""Windlass on SQLite: the sync API, and the real `windlass worker`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from windlass.app import Windlass
from windlass.bench.job_ledger import Ledger
from windlass.bench.round_config import RoundConfig
from windlass.bench.side import Side
from windlass.core.job.state import State
from windlass.core.query.job_query import Query
from windlass.worker.supervisor import windlass_command

FILE = "sqlite:///jobs.db"
TASK = "bench.noop"
APP = "windlass.bench.app:app"
UNFINISHED = Query(states=frozenset(State) - {State.SUCCEEDED}, limit=1)


def url_of(config: RoundConfig) -> str:
    return config.url or FILE


def become_worker() -> None:
    """Replace this process by `windlass worker` with the application `windlass.bench.app`."""
    program = windlass_command()
    os.execv(program[0], [*program, "worker", APP])  # noqa: S606 - our own interpreter


class Ours(Side):
    library = "windlass"
    package = "windlass"
    durability = "WAL, synchronous=FULL; leases, fences and log on, rows kept"
    bulk = "app.enqueue_many of task.new_job(…)"
    together = "100 awaited task.aenqueue(…) at once"

    def __init__(self, config: RoundConfig) -> None:
        self._app = Windlass(url_of(config), data=config.directory / "data")

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

    def work(self, ledger: Ledger) -> None:  # noqa: ARG002 - the worker program opens its own
        become_worker()

    def unfinished(self) -> int:
        async def count_unfinished() -> int:
            return len((await self._app.client().store.find(UNFINISHED)).rows)

        return self._app.sync.call(count_unfinished())


side = Ours
