"""One simulation run: faults, then a quiet phase in which every job must end."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from unittest.mock import patch
from uuid import UUID

from benchmarks.chaos.call_history import CallHistory, HistoryRecordingStore
from benchmarks.chaos.simulation.event_loops import World
from benchmarks.chaos.simulation.network import Connection, Network, NetworkConditions, RemoteStore
from benchmarks.chaos.simulation.process import SimulatedProcess
from benchmarks.chaos.simulation.tasks import SimulatedTasks
from windlass import Windlass, WorkerConfig
from windlass.core.clock import SECOND, Instant
from windlass.core.decisions.transition import CancelRequest
from windlass.core.errors import StoreError
from windlass.core.ids import uuid7
from windlass.core.job.new_job import NewJob
from windlass.core.job.state import ACTIVE
from windlass.core.query.job_query import JobQuery
from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.testing.clock import START

BATCH = 20
FAULTS = ("kill", "freeze", "block", "stop", "network", "late")
CONDITIONS = (
    NetworkConditions(),
    NetworkConditions(lost=0.1),
    NetworkConditions(slow=0.1, seconds=3.0),
    NetworkConditions(0.2, 0.2, 5.0),
)
LATE = (0.0, 0.05, 0.3)  # probabilities of a late request


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Faults for `seconds`, at most `pause` apart; `quiet_timeout` bounds the time after them."""

    jobs: int = 1000
    workers: int = 3
    slots: int = 8
    seconds: float = 30.0
    pause: float = 1.5
    lease: float = 2.0
    max_run: float = 1.5  # seconds of a task
    quick: float = 0.8  # share of jobs with a very short run
    cancels: float = 0.15
    quiet_timeout: float = 120.0
    faults: tuple[str, ...] = FAULTS


class _Clock:
    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> Instant:
        return START + round(self._world.now * SECOND)


@dataclass
class SimulationRun:
    """Result of a run: all data that the checks need."""

    plan: Plan
    world: World
    store: Store
    tasks: SimulatedTasks
    history: CallHistory
    acknowledged: dict[UUID, str] = field(default_factory=dict)  # with their tasks
    cancels: dict[UUID, str | None] = field(default_factory=dict)  # with their results
    faults: Counter[str] = field(default_factory=Counter)
    killed: dict[str, float] = field(default_factory=dict)  # with the time
    problems: list[str] = field(default_factory=list)
    quiet_at: float = 0.0  # when the faults ended
    done_at: float = 0.0


@contextmanager
def _seeded(seed: int, world: World) -> Iterator[None]:
    """Make all randomness of this process depend on the seed, and ids on virtual time."""
    nanoseconds: Callable[[], int] = lambda: (START + round(world.now * SECOND)) * 1000  # noqa: E731
    state = random.getstate()
    random.seed(seed)
    with (
        patch.object(time, "time_ns", nanoseconds),
        patch.object(os, "urandom", Random(seed).randbytes),
    ):
        uuid7.reset()
        try:
            yield
        finally:
            random.setstate(state)
    uuid7.reset()


def simulate(seed: int, plan: Plan, store: Callable[..., Store] = MemoryStore) -> SimulationRun:
    """Run the simulation. `store` creates a store with a planted bug, with this clock."""
    world = World(seed)
    with _seeded(seed, world):
        return _Driver(world, plan, store(clock=_Clock(world))).run()


class _Driver:
    """Injects the faults and produces the jobs, on its own event loop."""

    def __init__(self, world: World, plan: Plan, store: Store) -> None:
        self._world = world
        self._plan = plan
        self._random = world.random
        self._loop = world.loop()
        self._store = store
        self._app = Windlass("memory:")
        self._network = Network(world)
        history = CallHistory(lambda: world.now)
        self.simulation = SimulationRun(
            plan, world, store, SimulatedTasks(self._app, world), history
        )
        self._recording_store = HistoryRecordingStore(store.twin(), history, "producer")
        self._handle = RemoteStore(self._recording_store, self._network, Connection())
        self._workers: list[SimulatedProcess] = []
        self._stopping: list[SimulatedProcess] = []
        self._next_faults: list[str] = []
        self._worker_count = 0

    def run(self) -> SimulationRun:
        self._world.run(self._drive(), self._loop)
        loops = self._world.loops[:]
        self._world.close_dead(loops)
        self.simulation.problems += [str(error) for loop in loops for error in loop.errors]
        return self.simulation

    async def _drive(self) -> None:
        self._fill()
        producing = asyncio.create_task(self._produce())
        await self._run_faults()
        self.simulation.quiet_at = self._world.now
        self._network.conditions = NetworkConditions()
        self._network.late = 0.0
        for process in self._workers + self._stopping:
            process.unfreeze()
        await producing
        await self._wait_until_done()
        await self._stop_workers()
        await self._recording_store.get(
            [*self.simulation.history.calls]
        )  # the history check covers the rows, too

    # -- workers

    def _fill(self) -> None:
        while len(self._workers) < self._plan.workers:
            self._worker_count += 1
            config = WorkerConfig(
                queues={"default": self._plan.slots},
                name=f"worker-{self._worker_count}",
                lease=self._plan.lease,
                grace=self._random.choice([0.2, 3.0]),
                release_timeout=1.0,
                isolate=False,
                schedules=False,  # tests/worker/ticker_simulation.py covers schedules
            )
            arguments = self._network, self._store, self._app, self.simulation.history, config
            self._workers.append(SimulatedProcess(*arguments))

    async def _stop_workers(self) -> None:
        """Stop all workers; a worker that does not stop is a violation."""
        for process in self._workers:
            process.stop()
        self._stopping += self._workers
        deadline = self._world.now + self._plan.quiet_timeout
        while self._stopping and self._world.now < deadline:
            await asyncio.sleep(0.5)
            self._remove_stopped()
        for process in self._stopping:
            self.simulation.problems.append(f"{process.name} did not stop")
            process.kill()

    def _remove_stopped(self) -> None:
        """Remove workers that ended on request, and check that they leave nothing behind."""
        for process in [process for process in self._stopping if process.ended]:
            self.simulation.problems += process.problems()
            process.kill()
            self._stopping.remove(process)

    # -- faults

    async def _run_faults(self) -> None:
        end = self._world.now + self._plan.seconds
        while self._world.now < end:
            await asyncio.sleep(self._random.uniform(0, self._plan.pause))
            if self._plan.faults:
                self._inject(self._draw_fault())
            self._remove_stopped()
            self._fill()

    def _draw_fault(self) -> str:
        """Draw from all kinds of faults, so that every run has each kind."""
        if not self._next_faults:
            self._next_faults = self._random.sample(self._plan.faults, len(self._plan.faults))
        return self._next_faults.pop()

    def _inject(self, fault: str) -> None:
        self.simulation.faults[fault] += 1
        if fault == "network":
            self._network.conditions = self._random.choice(CONDITIONS)
            return
        if fault == "late":
            self._network.late = self._random.choice(LATE)
            return
        process = self._random.choice(self._workers)
        long = self._random.uniform(0, 3 * self._plan.lease)
        match fault:
            case "kill":
                self.simulation.killed[process.name] = self._world.now
                self.simulation.problems += process.problems()
                process.kill()
                self._workers.remove(process)
            case "freeze":
                process.freeze(long)
            case "block":
                process.block(long)
            case "stop":
                process.stop()
                self._workers.remove(process)
                self._stopping.append(process)

    # -- producer

    async def _produce(self) -> None:
        tasks, left = self.simulation.tasks, self._plan.jobs
        spread = self._random.uniform(
            0.2, 1.0
        )  # share of the fault time in which jobs are enqueued
        pause = spread * self._plan.seconds * BATCH / max(left, 1)
        async with asyncio.TaskGroup() as canceling:
            while left > 0:
                count = min(left, self._random.randint(1, BATCH))
                left -= count
                names = self._random.choices([*tasks.weights], [*tasks.weights.values()], k=count)
                jobs = [self._new(name) for name in names]
                await self._enqueue(jobs, names)
                for job in jobs:
                    if self._random.random() < self._plan.cancels:
                        canceling.create_task(self._cancel(job.id))
                await asyncio.sleep(self._random.uniform(0, pause))

    def _new(self, name: str) -> NewJob:
        quick = self._random.random() < self._plan.quick
        longest = 0.05 if quick else self._plan.max_run
        return self.simulation.tasks.by_name[name].new_job(self._random.uniform(0, longest))

    async def _enqueue(self, jobs: list[NewJob], names: list[str]) -> None:
        """Repeat with the same ids until the enqueue is acknowledged."""
        while True:
            try:
                answers = await self._handle.enqueue(jobs)
            except StoreError:
                await asyncio.sleep(0.1)
                continue
            for job, name, answer in zip(jobs, names, answers, strict=True):
                if answer.accepted:
                    self.simulation.acknowledged[job.id] = name
                else:
                    self.simulation.problems.append(f"job {job.id} was refused: {answer}")
            return

    async def _cancel(self, job: UUID) -> None:
        await asyncio.sleep(self._random.uniform(0, 2 * self._plan.max_run))
        self.simulation.cancels[job] = None
        try:
            [answer] = await self._handle.apply([CancelRequest(job_id=job, reason="chaos")])
        except StoreError:
            return
        self.simulation.cancels[job] = f"{answer.status} {answer.state}"

    # -- quiet phase

    async def _wait_until_done(self) -> None:
        deadline = self._world.now + self._plan.quiet_timeout
        while await self._is_busy():
            if self._world.now > deadline:
                self.simulation.problems.append(
                    f"jobs are unfinished {self._plan.quiet_timeout:g} s after the last fault"
                )
                break
            await asyncio.sleep(0.1)
        self.simulation.done_at = self._world.now

    async def _is_busy(self) -> bool:
        """Whether a job is unfinished, or a late request could still change one."""
        active = await self.simulation.store.find(JobQuery(states=ACTIVE, limit=1))
        return bool(active.rows) or self._network.late_requests > 0
