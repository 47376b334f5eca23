"""Programs of the processes of a storm: `windlass worker`, sweepers and producers."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from multiprocessing import parent_process
from pathlib import Path
from random import Random
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.chaos.clocks import put_off
from benchmarks.chaos.ledger import PLACE, note

if TYPE_CHECKING:
    from windlass import Job, NewJob

T = TypeVar("T")
APP = "benchmarks.chaos.flows:app"  # with all tasks that there are
ROOT = str(Path(__file__).parents[2])
BYTECODE = str(Path(ROOT) / "build" / "bytecode")
BATCH = 20
AGAIN = 0.05  # seconds until a call that raised is repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """What producers ask for: tasks by weight, how long they take, and how much is canceled."""

    tasks: dict[str, int]
    seconds: tuple[float, float] = (0.0, 0.05)
    cancels: float = 0.0
    pause: float = 0.0  # between two batches
    once: tuple[str, ...] = ()  # tasks of which there is one job each, somewhere among the rest
    flow: bool = False  # instead: one diamond, and one job that fans out
    limits: dict[str, dict[str, float]] = field(default_factory=dict)  # set before the first job


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """Configuration of every process of a storm."""

    place: Path
    url: str
    mix: Mix
    arguments: tuple[str, ...] = ()
    plant: str | None = None  # module:function that plants a bug, called first
    lost_calls: float = 0.0
    skew: float = 0.0
    sweep_interval: float = 1.0
    producers: int = 1


def _settle_in(orders: Orders, role: str, seed: int) -> None:
    place = orders.place
    os.environ |= {
        PLACE: str(place),
        "WINDLASS_URL": orders.url,
        "WINDLASS_DATA": str(place / "data"),
        "PYTHONPATH": ROOT,  # for what workers start themselves
    }
    _keep_bytecode()
    os.chdir(place)
    log = os.open(place / "log" / f"{role}-{os.getpid()}.log", os.O_CREAT | os.O_WRONLY, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    Thread(target=_die_with_driver, daemon=True).start()
    if (place / "disk").exists():  # a storm of the disk: lead SQLite through it
        import_module("benchmarks.chaos.disk.setup").enter(place)
    if orders.skew:
        put_off(orders.skew, seed)
    if orders.plant is not None:
        module, _, name = orders.plant.partition(":")
        getattr(import_module(module), name)()


def _keep_bytecode() -> None:
    if sys.dont_write_bytecode:
        os.environ |= keeping_bytecode()
        sys.dont_write_bytecode, sys.pycache_prefix = False, BYTECODE


def keeping_bytecode() -> dict[str, str]:
    """Without bytecode files, every child would compile all its imports again."""
    if not sys.dont_write_bytecode:
        return {}
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": BYTECODE}


def _die_with_driver() -> None:
    driver = parent_process()
    if driver is not None:
        driver.join()
        os._exit(1)


def _listen_in(orders: Orders, seed: int) -> None:
    """Wrap the app's store; the environment must name the place already."""
    from benchmarks.chaos import recording_store, tasks  # noqa: PLC0415 - reads the environment

    store = tasks.app._root  # noqa: SLF001 - nothing in between is meant for users
    if orders.lost_calls:
        store = recording_store.BadLine(store, Random(seed), orders.lost_calls)
    tasks.app._root = recording_store.Witness(store)  # noqa: SLF001


def work(orders: Orders, seed: int) -> None:
    """The command line's worker, in a process that has imported it already."""
    _settle_in(orders, "worker", seed)
    _listen_in(orders, seed)
    from windlass.cli import main  # noqa: PLC0415 - reads the environment

    sys.argv = ["windlass", "worker", APP, *orders.arguments]
    main()


def migrate(url: str) -> None:
    """Make the tables, as users do."""
    from windlass.cli import main  # noqa: PLC0415 - this process is for nothing else

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.argv = ["windlass", "migrate", "--url", url]
    main()


def sweep(orders: Orders, seed: int) -> None:
    """The worker's own loop for lost leases, alone in a process."""
    _settle_in(orders, "sweeper", seed)
    _listen_in(orders, seed)
    asyncio.run(_sweep(orders.sweep_interval))


async def _sweep(interval: float) -> None:
    from benchmarks.chaos import tasks  # noqa: PLC0415 - reads the environment
    from windlass.store import Retention  # noqa: PLC0415 - reads the environment
    from windlass.worker.loops.sweeper import Sweeper  # noqa: PLC0415 - reads the environment

    await Sweeper(tasks.app.client().store, interval, Retention()).run()


# -- producers


def produce(orders: Orders, number: int, share: int, answered: int, seed: int) -> None:
    """Enqueue the rest of a share; record each call before it and after its response."""
    _settle_in(orders, "producer", seed)
    _listen_in(orders, seed)
    producer = _Producer(orders, number, answered, Random(seed))
    work = producer.run_flow(share) if orders.mix.flow else producer.run(share - answered)
    asyncio.run(work)


@dataclass(slots=True)
class _Producer:
    orders: Orders
    number: int
    answered: int
    random: Random
    aim: float = field(default=0.02)  # seconds from an answer to the cancel of its jobs

    async def run(self, jobs: int) -> None:
        from benchmarks.chaos import tasks  # noqa: PLC0415 - reads the environment

        mix, random = self.orders.mix, self.random
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

        for name, facts in self.orders.mix.limits.items():
            limit = Limit(**facts)  # type: ignore[arg-type]
            await self._insist(partial(call, name, limit))

    async def run_flow(self, jobs: int) -> None:
        """A sixth of the jobs is a diamond; the others are made by one of them as it runs."""
        from benchmarks.chaos import flows, tasks  # noqa: PLC0415 - reads the environment

        made = flows.written(jobs)
        names = [node.call.spec.name.rpartition(".")[2] for node in made.nodes]
        ids = [str(node.id) for node in made.nodes]
        note("producer", fans=str(made.fan.id), parts=made.parts, producer=self.number)
        note("producer", asks=ids, tasks=names, producer=self.number)
        await self._insist(made.flow.aenqueue)
        note("producer", answered=ids, producer=self.number)
        await tasks.app.aclose()

    async def _room(self) -> int:
        """The driver lets the jobs out by and by, so that they last for all of its faults."""
        while (room := self._allowed() - self.answered) < 1:  # noqa: ASYNC110 - another process
            await asyncio.sleep(AGAIN)
        return room

    def _allowed(self) -> int:
        return -(-allowed(self.orders.place) // self.orders.producers)

    async def _enqueue(
        self, new: list[NewJob], names: list[str], call: Callable[..., Awaitable[list[Job[Any]]]]
    ) -> list[Job[Any]]:
        note("producer", asks=[str(job.id) for job in new], tasks=names, producer=self.number)
        made = await self._insist(lambda: call(new))
        ids = [str(job.id) for job in made]
        note("producer", answered=ids, producer=self.number)
        self.answered += len(ids)
        return made

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """What the store could not answer has happened or not; ids are ours, so ask again."""
        from windlass.core.errors import StoreUnavailableError  # noqa: PLC0415 - reads the environment

        while True:
            try:
                return await call()
            except StoreUnavailableError as error:
                note("producer", refused=str(error), producer=self.number)
                await asyncio.sleep(AGAIN)

    async def _cancel(self, job: Job[Any]) -> None:
        """Timed so that as many cancels are late as are in time."""
        from windlass import ConflictError  # noqa: PLC0415 - reads the environment

        await asyncio.sleep(self.aim * self.random.uniform(0.5, 1.5))
        note("producer", cancels=str(job.id))
        try:
            answer = str(await self._insist(lambda: job.acancel("chaos")))
        except ConflictError:
            answer = "conflict"
        note("producer", canceled=str(job.id), answer=answer)
        self.aim = min(max(self.aim * (0.9 if answer == "conflict" else 1.1), 0.001), 5.0)


def allow(place: Path, jobs: int) -> None:
    """How many jobs all producers together may have enqueued by now."""
    draft = place / "allowed.new"
    draft.write_text(str(jobs))
    draft.replace(place / "allowed")


def allowed(place: Path) -> int:
    return int((place / "allowed").read_text())
