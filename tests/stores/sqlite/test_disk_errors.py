"""Full or failing disk: the call raises, nothing is half stored, and the store recovers."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import apsw
import pytest
from tests.stores.sqlite import subprocess_programs
from tests.stores.sqlite.ack_ledger import Ledger, violations

from windlass.core.decisions.outcome import Succeeded
from windlass.core.errors import StoreError, StoreUnavailableError
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.stores.sqlite import SqliteConfig, SqliteStore, connection
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    append_records,
    cancel_one,
    log_record,
    make_job,
    progress_record,
    settle_one,
)
from windlass.testing.power_cut import DiskOperation, PowerCutDisk

T = TypeVar("T")
FOREVER = 10**9
MEGABYTE = 1024 * 1024


class Fault:
    """Fails the n-th operation of one kind, and the following ones until `heal`."""

    def __init__(self, kind: DiskOperation, error: type[apsw.Error]) -> None:
        self.kind = kind
        self.error = error
        self.at = FOREVER
        self.times = FOREVER
        self.seen = 0

    def __call__(self, moment: DiskOperation, name: str) -> None:
        if moment == self.kind:
            self.seen += 1
            if self.at <= self.seen < self.at + self.times:
                raise self.error("as planned")

    def heal(self) -> None:
        self.at = FOREVER


FAULTS = {
    "the disk is full": ("write", apsw.FullError),
    "a write fails": ("write", apsw.IOError),
    "a sync fails": ("sync", apsw.IOError),
    "a read fails": ("read", apsw.IOError),
    "a truncation fails": ("truncate", apsw.IOError),
}

# The test fails each operation of a kind once: there are hundreds of writes and reads.
QUICK = {"sync", "truncate"}


class Scenario:
    """A sequence of calls on a file. A refused call is repeated after `heal`."""

    def __init__(self, store: SqliteStore, fault: Fault) -> None:
        self.store = store
        self.fault = fault
        self.ledger = Ledger()
        self.refusals: list[StoreError] = []

    async def run(self) -> None:
        store = self.store
        await self._enqueue([make_job()])
        await self._enqueue([make_job(payload=b"p" * size) for size in (10, 6_000, 500, 20_000)])
        await asyncio.gather(*(self._enqueue([make_job(queue="media")]) for _ in range(3)))
        claim = Claim(token=uuid7(), worker="w", queues=[("default", 2), ("media", 1)])
        first, second, third = await self._retry_once(lambda: store.claim(claim))
        await self._note(first, second, third)
        await self._retry_once(
            lambda: append_records(store, first, progress_record(1, 40), log_record(2, "halfway"))
        )
        await self._note(first)
        children = [make_job(queue="children") for _ in range(2)]
        self.ledger.enqueued |= {child.id for child in children}
        done = Succeeded(result=b"r")
        answer = await self._retry_once(lambda: settle_one(store, first, done, children=children))
        assert answer.applied
        await self._note(first, *children)
        assert (await self._retry_once(lambda: cancel_one(store, second.id))).applied
        await self._note(second)

    async def _enqueue(self, jobs: Sequence[NewJob]) -> None:
        self.ledger.enqueued |= {job.id for job in jobs}

        async def all_or_none() -> None:
            stored = [row is not None for row in await self.store.get([job.id for job in jobs])]
            assert all(stored) or not any(stored), "a refused call was half stored"

        answers = await self._retry_once(lambda: self.store.enqueue(jobs), all_or_none)
        assert all(answer.accepted for answer in answers)
        await self._note(*jobs)

    async def _note(self, *jobs: JobRow | NewJob) -> None:
        await self._retry_once(lambda: self.ledger.note(self.store, [job.id for job in jobs]))

    async def _retry_once(
        self, call: Callable[[], Awaitable[T]], between: Callable[[], Awaitable[None]] | None = None
    ) -> T:
        try:
            return await call()
        except StoreError as error:
            self.refusals.append(error)
        self.fault.heal()
        if between is not None:
            await between()
        return await call()


@pytest.fixture
def disk() -> Iterator[PowerCutDisk]:
    disk = PowerCutDisk()
    yield disk
    disk.close()


@pytest.fixture(autouse=True)
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CHECKPOINT_PAGES", 40)


async def run_scenario(disk: PowerCutDisk, fault: Fault, directory: Path) -> Scenario:
    """Run the scenario on a new file with this fault; check the file at the end."""
    await asyncio.to_thread(directory.mkdir)
    path = directory / "jobs.db"
    disk.hook = fault
    config = SqliteConfig(path=str(path), exclusive=True, vfs=disk.name)
    async with SqliteStore("", config=config, clock=VirtualClock()) as store:
        scenario = Scenario(store, fault)
        await scenario.run()
    fault.heal()
    assert violations(path, scenario.ledger) == []
    await asyncio.to_thread(shutil.rmtree, directory)
    return scenario


@pytest.mark.parametrize(
    ("what", "times"),
    [
        pytest.param(what, times, id=f"{what}-{name}", marks=() if quick else pytest.mark.slow)
        for what in FAULTS
        for times, name in ((1, "once"), (FOREVER, "until healed"))
        for quick in [FAULTS[what][0] in QUICK]
    ],
)
async def test_a_failing_disk_operation_loses_nothing_and_the_store_recovers(
    disk: PowerCutDisk, tmp_path: Path, what: str, times: int
) -> None:
    kind, error = FAULTS[what]
    no_fault = Fault(kind, error)  # type: ignore[arg-type]
    assert (await run_scenario(disk, no_fault, tmp_path / "no-fault")).refusals == []
    refused = 0
    for at in range(1, no_fault.seen + 1):
        fault = Fault(kind, error)  # type: ignore[arg-type]
        fault.at, fault.times = at, times
        scenario = await run_scenario(disk, fault, tmp_path / str(at))
        for refusal in scenario.refusals:
            assert isinstance(refusal, StoreUnavailableError), refusal
            assert str(tmp_path / str(at)) in str(refusal)
            assert "disk" in str(refusal) or "open" in str(refusal)
        refused += bool(scenario.refusals)
    assert refused or what == "a truncation fails"


async def test_a_reader_raises_on_a_disk_error_and_recovers(tmp_path: Path) -> None:
    """SQLite then ends the snapshot on its own."""
    async with SqliteStore(tmp_path / "jobs.db", durability="off") as store:

        def fail(reader: apsw.Connection) -> None:
            reader.execute("ROLLBACK")
            raise apsw.IOError("as planned")

        for _ in range(4):
            with pytest.raises(StoreUnavailableError, match="disk error on"):
                await store._engine.read(fail)
        job = make_job()
        await store.enqueue([job])
        assert None not in await store.get([job.id])


# -- full disk


async def limit_pages(store: SqliteStore, spare: int | None) -> None:
    """Allow `spare` more pages; None removes the limit."""

    def run(tx: object) -> None:
        writer = store._engine._connection
        assert writer is not None
        used: int = writer.pragma("page_count")
        writer.pragma("max_page_count", used + spare if spare is not None else 2**30)

    await store._engine.write(run)


async def test_a_call_that_does_not_fit_is_refused_whole(
    tmp_path: Path,
) -> None:
    async with SqliteStore(tmp_path / "jobs.db", durability="off") as store:
        await store.enqueue([make_job()])
        await limit_pages(store, 50)
        large = [make_job(payload=b"x" * MEGABYTE) for _ in range(3)]
        with pytest.raises(StoreUnavailableError, match=r"jobs\.db is full.*free disk space"):
            await store.enqueue(large)
        assert await store.get([job.id for job in large]) == [None] * 3
        small = make_job()
        assert [answer.accepted for answer in await store.enqueue([small])] == [True]
        await limit_pages(store, None)
        assert [answer.accepted for answer in await store.enqueue(large)] == [True] * 3
        assert None not in await store.get([small.id, *(job.id for job in large)])


async def test_other_calls_beside_one_that_does_not_fit_are_stored(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "jobs.db", durability="off") as store:
        await store.enqueue([make_job()])
        await limit_pages(store, 50)
        jobs = [make_job(payload=b"x" * (MEGABYTE if index == 3 else 10)) for index in range(8)]
        blocking = store.transaction()  # while it is open, the calls queue up as one group
        calls = [asyncio.create_task(store.enqueue([job])) for job in jobs]
        await asyncio.sleep(0)
        blocking.commit()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(answer, StoreUnavailableError) for answer in answers] == [
            index == 3 for index in range(8)
        ]
        rows = await store.get([job.id for job in jobs])
        assert [row is None for row in rows] == [index == 3 for index in range(8)]


@pytest.mark.parametrize(
    "program",
    [subprocess_programs.fill_the_disk, subprocess_programs.open_on_a_full_disk],
    ids=["filling", "opening"],
)
async def test_a_disk_that_is_really_full_refuses_and_recovers(
    tmp_path: Path, program: Callable[..., object]
) -> None:
    """Uses a private 2 MB file system that exists only for this program."""
    if os.getuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root can mount a small file system")
    mount = 'mount -t tmpfs -o size=2m windlass-test "$0" && exec "$@"'
    command = ("unshare", "--mount", "sh", "-c", mount, str(tmp_path))
    if (await run(*command, "true"))[0] != 0:
        pytest.skip("cannot mount a tmpfs here")
    code, stdout, stderr = await run(
        *command, *subprocess_programs.COMMAND, program.__name__, str(tmp_path)
    )
    assert (code, stderr) == (0, "")
    answer = json.loads(stdout)
    assert answer["refusals"]
    assert all("jobs.db" in refusal for refusal in answer["refusals"])
    assert answer["kept"] is True
    assert answer["works_again"] is True


async def run(*command: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    stdout, stderr = await process.communicate()
    return process.returncode, stdout.decode(), stderr.decode()
