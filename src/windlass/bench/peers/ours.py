"""Windlass itself: its API without an event loop, and `windlass worker` as users start it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from windlass.app import Windlass
from windlass.bench.ledger import Ledger
from windlass.bench.side import Side
from windlass.worker.supervisor import this_program

URL = "sqlite:///jobs.db"
TASK = "bench.noop"
APP = "windlass.bench.app:app"


class Ours(Side):
    library = "windlass"
    package = "windlass"
    durability = "WAL, synchronous=FULL; leases, fences and log on"
    bulk = "app.enqueue_many of task.new_job(…)"

    def __init__(self, directory: Path) -> None:
        self._app = Windlass(URL, data=directory / "data")

        @self._app.task(name=TASK)
        async def noop(payload: str) -> None: ...

        self._noop = noop

    def put(self, payload: str) -> None:
        self._noop.enqueue(payload)

    def put_many(self, payloads: Sequence[str]) -> None:
        self._app.enqueue_many([self._noop.new_job(payload) for payload in payloads])

    def close(self) -> None:
        self._app.close()

    def work(self, ledger: Ledger) -> None:  # noqa: ARG002 - the program has its own
        """Become the worker program; `windlass.bench.app` is the application that it runs."""
        program = this_program()
        os.execv(program[0], [*program, "worker", APP])  # noqa: S606 - our own interpreter


side = Ours
