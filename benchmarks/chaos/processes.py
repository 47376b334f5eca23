"""What runs in the processes of a storm: `windlass worker`, and producers."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import parent_process
from pathlib import Path
from random import Random
from threading import Thread

from benchmarks.chaos.ledger import PLACE, note

APP = "benchmarks.chaos.tasks:app"
BATCH = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """What producers ask for: tasks by weight, how long they take, and how much is canceled."""

    tasks: dict[str, int]
    seconds: tuple[float, float] = (0.0, 0.05)
    cancels: float = 0.0
    pause: float = 0.0  # between two batches
    once: tuple[str, ...] = ()  # tasks of which there is one job each, somewhere among the rest


def environment(place: Path) -> dict[str, str]:
    return {
        PLACE: str(place),
        "WINDLASS_URL": f"sqlite:///{place}/jobs.db",
        "WINDLASS_DATA": str(place / "data"),
    }


def _settle_in(place: Path, role: str) -> None:
    os.environ.update(environment(place))
    os.chdir(place)
    log = os.open(place / "log" / f"{role}-{os.getpid()}.log", os.O_CREAT | os.O_WRONLY, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    Thread(target=_die_with_driver, daemon=True).start()


def _die_with_driver() -> None:
    driver = parent_process()
    if driver is not None:
        driver.join()
        os._exit(1)


def work(place: Path, words: list[str], plant: str | None) -> None:
    """The command line's worker, in a process that has imported it already.

    `plant` is module:function, called first: a mistake that the storm must show.
    """
    _settle_in(place, "worker")
    if plant is not None:
        module, _, name = plant.partition(":")
        getattr(import_module(module), name)()
    from windlass.cli import main  # noqa: PLC0415 - reads the environment

    sys.argv = ["windlass", "worker", APP, *words]
    main()


def produce(place: Path, number: int, jobs: int, seed: int, mix: Mix) -> None:
    """Enqueue so many jobs; each call is noted before it is made and after it is answered."""
    _settle_in(place, "producer")
    asyncio.run(_produce(number, jobs, Random(seed), mix))


async def _produce(number: int, jobs: int, random: Random, mix: Mix) -> None:
    from benchmarks.chaos import tasks  # noqa: PLC0415 - reads the environment

    names = random.choices([*mix.tasks], [*mix.tasks.values()], k=jobs - len(mix.once))
    for name in mix.once:
        names.insert(random.randrange(len(names)), name)
    while names:
        chosen = [names.pop() for _ in range(min(len(names), random.randint(1, BATCH)))]
        new = [getattr(tasks, name).new_job(random.uniform(*mix.seconds)) for name in chosen]
        ids = [str(job.id) for job in new]
        note("producer", asks=ids, tasks=chosen, producer=number)
        made = await tasks.app.aenqueue_many(new)
        note("producer", answered=[str(job.id) for job in made], producer=number)
        await asyncio.gather(
            *(_cancel(job, random.uniform(0, 2 * mix.seconds[1]))
              for job in made if random.random() < mix.cancels)
        )  # fmt: skip
        await asyncio.sleep(mix.pause)
    await tasks.app.aclose()


async def _cancel(job: object, wait: float) -> None:
    from windlass import ConflictError, Job  # noqa: PLC0415

    assert isinstance(job, Job)
    await asyncio.sleep(wait)
    note("producer", cancels=str(job.id))
    try:
        answer = str(await job.acancel("chaos"))
    except ConflictError:
        answer = "conflict"
    note("producer", canceled=str(job.id), answer=answer)
