"""A simulated worker process: the real `Worker` on one loop, its keeper on another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from functools import partial
from typing import Any

from benchmarks.chaos.call_history import CallHistory, HistoryRecordingStore
from benchmarks.chaos.simulation.network import Connection, Network, RemoteStore
from windlass import Windlass, Worker, WorkerConfig
from windlass.store import Store
from windlass.worker import AppParts
from windlass.worker.loops.keeper import Join, Keeper


class SimulatedProcess:
    def __init__(
        self,
        network: Network,
        store: Store,
        app: Windlass,
        history: CallHistory,
        config: WorkerConfig,
    ) -> None:
        self._world = world = network.world
        self._connection = Connection()
        self._main_loop, self._keeper_loop = world.loop(), world.loop()
        recording_store = HistoryRecordingStore(store.twin(), history, config.name)
        handle = RemoteStore(recording_store, network, self._connection)
        keeper = partial(Keeper, start_loop=self._run_keeper, clock=lambda: world.now)
        self.name = config.name
        self.worker = Worker(handle, app.tasks, app.codec, config, AppParts(), keeper=keeper)
        self.running = self._main_loop.create_task(self.worker.run())

    def _run_keeper(self, _: str, work: Coroutine[Any, Any, None]) -> Join:
        task = self._keeper_loop.create_task(work)
        done = asyncio.Event()
        task.add_done_callback(lambda _: self._main_loop.call_soon_threadsafe(done.set))

        async def join(timeout: float | None) -> None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await done.wait()

        return join

    @property
    def ended(self) -> bool:
        return self.running.done()

    def problems(self) -> list[str]:
        """The uncaught errors of the process."""
        found = [
            str(error) for loop in (self._main_loop, self._keeper_loop) for error in loop.errors
        ]
        if self.running.done() and not self.running.cancelled():
            error = self.running.exception()
            found += [f"the worker ended with {error!r}"] if error else []
        return [f"{self.name}: {problem}" for problem in found]

    def kill(self) -> None:
        """Like SIGKILL: no further step. Requests sent before still run."""
        self._connection.cut = True
        self._world.close_dead([self._main_loop, self._keeper_loop])

    def freeze(self, seconds: float) -> None:
        """Like SIGSTOP: both threads stop while time moves on."""
        self._main_loop.frozen_until = self._keeper_loop.frozen_until = self._world.now + seconds

    def block(self, seconds: float) -> None:
        """Like a task that blocks the event loop: the keeper still runs."""
        self._main_loop.frozen_until = self._world.now + seconds

    def unfreeze(self) -> None:
        self._main_loop.frozen_until = self._keeper_loop.frozen_until = 0.0

    def stop(self) -> None:
        """Like SIGTERM."""
        self._main_loop.call_soon_threadsafe(self.worker.stop)
