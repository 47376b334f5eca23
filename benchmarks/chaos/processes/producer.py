"""Producer process: enqueues and cancels jobs, and records each call in the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.chaos.ledger import note
from benchmarks.chaos.processes.config import ProcessConfig
from benchmarks.chaos.processes.job_quota import allowed
from benchmarks.chaos.processes.setup import set_up_process, wrap_store

if TYPE_CHECKING:
    from windlass import Job, NewJob

T = TypeVar("T")
BATCH = 20
RETRY_DELAY = 0.05  # seconds until a call that raised is repeated


def produce(config: ProcessConfig, number: int, share: int, answered: int, seed: int) -> None:
    """Enqueue the rest of a share; record each call before it and after its response."""
    set_up_process(config, "producer", seed)
    wrap_store(config, seed)
    producer = _Producer(config, number, answered, Random(seed))
    work = producer.run_flow(share) if config.mix.flow else producer.run(share - answered)
    asyncio.run(work)


@dataclass(slots=True)
class _Producer:
    config: ProcessConfig
    number: int
    answered: int
    random: Random
    aim: float = field(default=0.02)  # seconds from an answer to the cancel of its jobs

    async def run(self, jobs: int) -> None:
        from benchmarks.chaos import tasks  # noqa: PLC0415 - reads the environment

        mix, random = self.config.mix, self.random
        await self._limit(tasks.app.limits.aset)
        names = random.choices([*mix.tasks], [*mix.tasks.values()], k=jobs - len(mix.once))
        for name in mix.once:
            names.insert(random.randrange(len(names)), name)
        while names:
            most = min(len(names), random.randint(1, BATCH), await self._room())
            chosen = [names.pop() for _ in range(most)]
            new = [getattr(tasks, name).new_job(random.uniform(*mix.seconds)) for name in chosen]
            made = await self._enqueue(new, chosen, tasks.app.aenqueue_many)
            await asyncio.gather(
                *(self._cancel(job) for job in made if random.random() < mix.cancels)
            )
            await asyncio.sleep(mix.pause)
        await tasks.app.aclose()

    async def _limit(self, call: Callable[..., Awaitable[Any]]) -> None:
        from windlass import Limit  # noqa: PLC0415 - not before the clock is set

        for name, facts in self.config.mix.limits.items():
            limit = Limit(**facts)  # type: ignore[arg-type]
            await self._retry(partial(call, name, limit))

    async def run_flow(self, jobs: int) -> None:
        """A sixth of the jobs is a diamond; the others are made by one of them as it runs."""
        from benchmarks.chaos import flow_tasks, tasks  # noqa: PLC0415 - reads the environment

        made = flow_tasks.written(jobs)
        names = [node.call.spec.name.rpartition(".")[2] for node in made.nodes]
        ids = [str(node.id) for node in made.nodes]
        note("producer", fans=str(made.fan.id), parts=made.parts, producer=self.number)
        note("producer", asks=ids, tasks=names, producer=self.number)
        await self._retry(made.flow.aenqueue)
        note("producer", answered=ids, producer=self.number)
        await tasks.app.aclose()

    async def _room(self) -> int:
        """The driver lets the jobs out by and by, so that they last for all of its faults."""
        while (room := self._allowed() - self.answered) < 1:  # noqa: ASYNC110 - another process
            await asyncio.sleep(RETRY_DELAY)
        return room

    def _allowed(self) -> int:
        return -(-allowed(self.config.directory) // self.config.producers)

    async def _enqueue(
        self, new: list[NewJob], names: list[str], call: Callable[..., Awaitable[list[Job[Any]]]]
    ) -> list[Job[Any]]:
        note("producer", asks=[str(job.id) for job in new], tasks=names, producer=self.number)
        made = await self._retry(lambda: call(new))
        ids = [str(job.id) for job in made]
        note("producer", answered=ids, producer=self.number)
        self.answered += len(ids)
        return made

    async def _retry(self, call: Callable[[], Awaitable[T]]) -> T:
        """What the store could not answer has happened or not; ids are ours, so ask again."""
        from windlass.core.errors import StoreUnavailableError  # noqa: PLC0415 - reads the environment

        while True:
            try:
                return await call()
            except StoreUnavailableError as error:
                note("producer", refused=str(error), producer=self.number)
                await asyncio.sleep(RETRY_DELAY)

    async def _cancel(self, job: Job[Any]) -> None:
        """Timed so that as many cancels are late as are in time."""
        from windlass import ConflictError  # noqa: PLC0415 - reads the environment

        await asyncio.sleep(self.aim * self.random.uniform(0.5, 1.5))
        note("producer", cancels=str(job.id))
        try:
            answer = str(await self._retry(lambda: job.acancel("chaos")))
        except ConflictError:
            answer = "conflict"
        note("producer", canceled=str(job.id), answer=answer)
        self.aim = min(max(self.aim * (0.9 if answer == "conflict" else 1.1), 0.001), 5.0)
