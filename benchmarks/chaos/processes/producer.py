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
RETRY_DELAY = 0.05  # seconds until a failed call is repeated


def produce(config: ProcessConfig, number: int, share: int, acknowledged: int, seed: int) -> None:
    """Enqueue the rest of a share; record each call before it and after its response."""
    set_up_process(config, "producer", seed)
    wrap_store(config, seed)
    producer = _Producer(config, number, acknowledged, Random(seed))
    work = producer.run_flow(share) if config.mix.flow else producer.run(share - acknowledged)
    asyncio.run(work)


@dataclass(slots=True)
class _Producer:
    config: ProcessConfig
    number: int
    acknowledged: int
    random: Random
    cancel_delay: float = field(default=0.02)  # seconds from a response to the cancel

    async def run(self, jobs: int) -> None:
        from benchmarks.chaos import tasks  # noqa: PLC0415 - reads the environment

        mix, random = self.config.mix, self.random
        await self._set_limits(tasks.app.limits.aset)
        names = random.choices([*mix.tasks], [*mix.tasks.values()], k=jobs - len(mix.once))
        for name in mix.once:
            names.insert(random.randrange(len(names)), name)
        while names:
            count = min(len(names), random.randint(1, BATCH), await self._available())
            chosen = [names.pop() for _ in range(count)]
            new = [getattr(tasks, name).new_job(random.uniform(*mix.seconds)) for name in chosen]
            handles = await self._enqueue(new, chosen, tasks.app.aenqueue_many)
            await asyncio.gather(
                *(self._cancel(job) for job in handles if random.random() < mix.cancels)
            )
            await asyncio.sleep(mix.pause)
        await tasks.app.aclose()

    async def _set_limits(self, call: Callable[..., Awaitable[Any]]) -> None:
        from windlass import Limit  # noqa: PLC0415 - after the clock is set

        for name, facts in self.config.mix.limits.items():
            limit = Limit(**facts)  # type: ignore[arg-type]
            await self._retry(partial(call, name, limit))

    async def run_flow(self, jobs: int) -> None:
        """Enqueue a flow: a sixth of the jobs is a diamond, the others are created by a fan-out."""
        from benchmarks.chaos import flow_tasks, tasks  # noqa: PLC0415 - reads the environment

        planned = flow_tasks.planned_flow(jobs)
        names = [node.call.spec.name.rpartition(".")[2] for node in planned.nodes]
        ids = [str(node.id) for node in planned.nodes]
        note("producer", fans=str(planned.fan.id), parts=planned.parts, producer=self.number)
        note("producer", enqueues=ids, tasks=names, producer=self.number)
        await self._retry(planned.flow.aenqueue)
        note("producer", acknowledged=ids, producer=self.number)
        await tasks.app.aclose()

    async def _available(self) -> int:
        """Wait until the driver allows more jobs, so that jobs remain for all faults."""
        while (available := self._allowed() - self.acknowledged) < 1:  # noqa: ASYNC110 - a file
            await asyncio.sleep(RETRY_DELAY)
        return available

    def _allowed(self) -> int:
        return -(-allowed(self.config.directory) // self.config.producers)

    async def _enqueue(
        self, new: list[NewJob], names: list[str], call: Callable[..., Awaitable[list[Job[Any]]]]
    ) -> list[Job[Any]]:
        note("producer", enqueues=[str(job.id) for job in new], tasks=names, producer=self.number)
        handles = await self._retry(lambda: call(new))
        ids = [str(job.id) for job in handles]
        note("producer", acknowledged=ids, producer=self.number)
        self.acknowledged += len(ids)
        return handles

    async def _retry(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call until it succeeds; the ids make repeats idempotent."""
        from windlass.core.errors import StoreUnavailableError  # noqa: PLC0415 - reads the environment

        while True:
            try:
                return await call()
            except StoreUnavailableError as error:
                note("producer", refused=str(error), producer=self.number)
                await asyncio.sleep(RETRY_DELAY)

    async def _cancel(self, job: Job[Any]) -> None:
        """Cancel the job at a time when about half of the cancels are too late."""
        from windlass import ConflictError  # noqa: PLC0415 - reads the environment

        await asyncio.sleep(self.cancel_delay * self.random.uniform(0.5, 1.5))
        note("producer", cancels=str(job.id))
        try:
            answer = str(await self._retry(lambda: job.acancel("chaos")))
        except ConflictError:
            answer = "conflict"
        note("producer", canceled=str(job.id), answer=answer)
        self.cancel_delay = min(
            max(self.cancel_delay * (0.9 if answer == "conflict" else 1.1), 0.001), 5.0
        )
