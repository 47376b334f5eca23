"""Programs that tests run as processes: `python subprocess_programs.py <name> <arguments>`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from uuid import UUID

from windlass.core.decisions.outcome import Failed, Succeeded
from windlass.core.errors import ConflictError, StoreUnavailableError
from windlass.core.job.new_job import NewJob
from windlass.stores.sqlite import SqliteConfig, SqliteStore
from windlass.testing.factories import claim_all, get_one, make_failure, make_job, settle_one

END_OF_TIME = 2**62
WAIT = 60.0  # seconds: far longer than it takes to be woken


def send(**message: object) -> None:
    print(json.dumps(message), flush=True)  # noqa: T201 - read by the test


async def receive() -> str:
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.strip()


async def work(path: str, mine: str, total: str) -> None:
    """Enqueue some jobs while claiming and settling any, until all `total` are done."""
    send(ready=True)
    await receive()
    jobs = [make_job() for _ in range(int(mine))]
    claimed: list[tuple[str, int]] = []
    async with SqliteStore(path, durability="normal") as store:

        async def enqueue() -> None:
            waiting = list(jobs)
            while waiting:
                size = random.choice((1, 1, 1, 10))
                batch, waiting = waiting[:size], waiting[size:]
                answers = await store.enqueue(batch)
                assert all(answer.accepted for answer in answers)

        async def drain() -> None:
            while True:
                rows = await claim_all(store, limit=random.choice((1, 5, 20)), worker=mine)
                claimed.extend((str(row.id), row.fence) for row in rows)
                for row in rows:
                    assert (await settle_one(store, row, Succeeded())).applied
                if not rows:
                    settled = await store.insights.rollups(0, END_OF_TIME)
                    if sum(rollup.count for rollup in settled) == int(total):
                        return
                    await store.wait(["default"], 0.2)

        await asyncio.gather(enqueue(), drain(), drain())
    send(enqueued=[str(job.id) for job in jobs], claimed=claimed)


async def open_once(path: str) -> None:
    """Open and migrate the file when a line arrives on stdin."""
    send(ready=True)
    await receive()
    async with SqliteStore(path, durability="normal") as store:
        await store.migrate()
        [answer] = await store.enqueue([make_job()])
        send(accepted=answer.accepted)


async def enqueue_on_input(path: str) -> None:
    """Enqueue one job for every line on stdin."""
    async with SqliteStore(path, durability="off") as store:
        await store.ping()
        send(ready=True)
        while await receive():
            job = make_job()
            await store.enqueue([job])
            send(id=str(job.id))


async def work_until_killed(path: str, ledger: str) -> None:
    """Work until killed; write every acknowledged call to the ledger on disk."""
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with SqliteStore(path, durability="full") as store:

        async def write_ledger(*ids: UUID) -> None:
            lines = []
            for row in [await get_one(store, job_id) for job_id in ids]:
                facts = {"id": str(row.id), "seq": row.seq, "fence": row.fence, "state": row.state}
                lines.append(json.dumps(facts) + "\n")
            os.write(file, "".join(lines).encode())
            os.fsync(file)

        async def produce() -> None:
            while True:
                batch = [make_job() for _ in range(random.choice((1, 1, 8)))]
                await store.enqueue(batch)
                await write_ledger(*(job.id for job in batch))

        async def consume() -> None:
            while True:
                rows = await claim_all(store, limit=4)
                await write_ledger(*(row.id for row in rows))
                for row in rows:
                    end = random.choice((Succeeded(), Failed(failure=make_failure(), delay=60.0)))
                    await settle_one(store, row, end)
                    await write_ledger(row.id)

        await asyncio.gather(produce(), produce(), consume(), consume())


# -- a full disk


def fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        for size in (65_536, 4_096, 512):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


async def fill_the_disk(place: str) -> None:
    """Enqueue until the disk is full, then free space."""
    ballast = Path(place, "ballast")
    async with SqliteStore(Path(place, "jobs.db")) as store:
        stored = [make_job(), make_job()]
        await store.enqueue(stored)
        await asyncio.to_thread(fill, ballast)
        refused: list[NewJob] = []
        refusals: list[str] = []
        while len(refused) < 5:
            job = make_job(payload=b"x" * 3_000)
            try:
                await store.enqueue([job])
                stored.append(job)
            except StoreUnavailableError as error:
                refused.append(job)
                refusals.append(str(error))
        kept = None not in await store.get([job.id for job in stored])
        whole = await store.get([job.id for job in refused]) == [None] * 5
        await asyncio.to_thread(ballast.unlink)
        answers = await store.enqueue(refused)
        claimed = await claim_all(store, limit=1000)
        again = {row.id for row in claimed} == {job.id for job in [*stored, *refused]}
        settled = [await settle_one(store, row, Succeeded()) for row in claimed]
    works = all(answer.accepted for answer in answers) and all(end.applied for end in settled)
    full = all("full" in refusal for refusal in refusals)
    send(refusals=refusals, kept=kept and whole and full, works_again=again and works)


async def open_on_a_full_disk(place: str) -> None:
    ballast = Path(place, "ballast")
    await asyncio.to_thread(fill, ballast)
    async with SqliteStore(Path(place, "jobs.db")) as store:
        try:
            await store.enqueue([make_job()])
            refusals = []
        except StoreUnavailableError as error:
            refusals = [str(error)]
        await asyncio.to_thread(ballast.unlink)
        [answer] = await store.enqueue([make_job()])
        alone = len(await claim_all(store)) == 1
        send(refusals=refusals, kept=alone, works_again=answer.accepted)


# -- forks


class Child:
    """A fork of this process that runs `story` and returns its result through a pipe."""

    def __init__(
        self, story: Callable[[SqliteStore], Coroutine[None, None, Any]], store: SqliteStore
    ) -> None:
        reading, writing = os.pipe()
        self.reading = reading
        self.pid = os.fork()
        if self.pid:
            os.close(writing)
            return
        try:
            answer = json.dumps(asyncio.run(story(store)))
        except BaseException as error:  # noqa: BLE001 - sent to the parent
            answer = json.dumps({"error": repr(error)})
        os.write(writing, answer.encode())
        os._exit(0)

    async def answer(self) -> Any:
        with os.fdopen(self.reading) as pipe:
            text = await asyncio.to_thread(pipe.read)
        await asyncio.to_thread(os.waitpid, self.pid, 0)
        return json.loads(text)


async def use_and_close(store: SqliteStore) -> list[str]:
    ids = await use(store)
    await store.close()
    return ids


async def use(store: SqliteStore) -> list[str]:
    jobs = [make_job() for _ in range(20)]
    await asyncio.gather(*(store.enqueue([job]) for job in jobs))
    await settle_one(store, (await claim_all(store, limit=1))[0], Succeeded())
    assert None not in await store.get([job.id for job in jobs])
    return [str(job.id) for job in jobs]


async def fork_while_busy(path: str) -> None:
    """Fork several times during work; parent and children keep using the same handle."""
    mine: list[str] = []
    store = SqliteStore(path, durability="normal")
    stop = asyncio.Event()

    async def keep_busy() -> None:
        while not stop.is_set():
            job = make_job()
            await store.enqueue([job])
            mine.append(str(job.id))
            await store.get([job.id])

    tasks = [asyncio.create_task(keep_busy()) for _ in range(4)]
    children = []
    for story in (use_and_close, use, use_and_close, use):
        await asyncio.sleep(0.05)
        children.append(Child(story, store))
    answers = [await child.answer() for child in children]
    await asyncio.sleep(0.05)
    stop.set()
    await asyncio.gather(*tasks)
    await store.close()
    send(mine=mine, children=answers)


async def wait_for_work(store: SqliteStore) -> bool:
    for _ in range(40):
        if await claim_all(store):
            return True
        await store.wait(["default"], WAIT)
    return False


async def fork_while_waiting(path: str) -> None:
    """Fork while the parent waits; parent and child receive each other's wakeups."""
    async with SqliteStore(path, durability="off") as store:
        await claim_all(store)
        await store.wait(["default"], 0.05)  # starts the file watch
        child = Child(use_and_close, store)
        send(child=await child.answer())
        await claim_all(store, limit=100)
        send(quiet=not await quiet(store))
        await receive()
        send(woken=await wait_for_work(store))
        child = Child(wait_for_work, store)
        await asyncio.sleep(0.5)
        await store.enqueue([make_job()])
        send(child_woken=await child.answer())


async def quiet(store: SqliteStore) -> bool:
    """Return whether wakeups kept arriving; late ones may arrive for a while."""
    for _ in range(20):
        await claim_all(store)
        if not await store.wait(["default"], 0.2):
            return False
    return True


async def fork_in_transaction(path: str) -> None:
    """Fork while this thread has a transaction open: the fork waits for its end."""
    store = SqliteStore("", config=SqliteConfig(path=path, durability="off"))
    lost = make_job()
    enqueued = False
    while not enqueued:  # on a slow machine a transaction may time out before its use
        with contextlib.suppress(ConflictError):
            store.transaction(1.0).enqueue([lost])
            enqueued = True
    child = Child(use_and_close, store)
    answer = await child.answer()
    [row] = await store.get([lost.id])
    mine = await use(store)
    await store.close()
    send(child=answer, mine=mine, rolled_back=row is None)


PROGRAMS = {
    program.__name__: program
    for program in (
        work,
        open_once,
        enqueue_on_input,
        work_until_killed,
        fill_the_disk,
        open_on_a_full_disk,
        fork_while_busy,
        fork_while_waiting,
        fork_in_transaction,
    )
}
COMMAND = (sys.executable, str(Path(__file__)))

if __name__ == "__main__":
    asyncio.run(PROGRAMS[sys.argv[1]](*sys.argv[2:]))
