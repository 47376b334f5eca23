"""Several processes on one file: no lock errors, no job runs twice, wakeups reach all."""

from __future__ import annotations

import asyncio
import json
import random
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
import pytest
from tests.stores.sqlite import subprocess_programs

from windlass.core.job.event_log import expected_fold, fold
from windlass.core.job.state import FINAL, State
from windlass.core.query.job_query import JobQuery
from windlass.stores.sqlite import SqliteStore, file_watch
from windlass.testing.factories import claim_all, get_one, read_events

PROCESSES, JOBS = 4, 300
SOON = 20.0  # seconds; a process without a wakeup sleeps for subprocess_programs.WAIT


class Running:
    """A running program, with its input and output."""

    def __init__(self, process: Process) -> None:
        self.process = process

    async def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), 60)
        if not line:
            raise AssertionError((await self.process.stderr.read()).decode())
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def send(self, line: str = "go") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        await self.process.stdin.drain()

    async def kill(self) -> None:
        self.process.kill()
        await self.process.communicate()

    async def end(self) -> None:
        """Wait until it exits with code 0 and an empty stderr."""
        _, stderr = await asyncio.wait_for(self.process.communicate(), 60)
        assert stderr.decode() == ""
        assert self.process.returncode == 0


@asynccontextmanager
async def running(program: Callable[..., object], *arguments: object) -> AsyncIterator[Running]:
    command = (*subprocess_programs.COMMAND, program.__name__, *map(str, arguments))
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=2**22
    )
    try:
        yield Running(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def assert_whole(path: Path) -> None:
    connection = apsw.Connection(str(path))
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


async def test_many_processes_enqueue_claim_and_settle_on_a_new_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.db"
    async with AsyncExitStack() as stack:
        started = [
            await stack.enter_async_context(
                running(subprocess_programs.work, path, JOBS, PROCESSES * JOBS)
            )
            for _ in range(PROCESSES)
        ]
        for process in started:
            await process.receive()
        for process in started:
            await process.send()
        results = [await process.receive() for process in started]
        for process in started:
            await process.end()
    claims = Counter(job_id for answer in results for job_id, _ in answer["claimed"])
    assert set(claims.values()) == {1}, "each job was claimed by one process, once"
    assert claims.keys() == {job_id for answer in results for job_id in answer["enqueued"]}
    assert len(claims) == PROCESSES * JOBS
    async with SqliteStore(path) as store:
        rows = await store.get([UUID(job_id) for job_id in claims])
        assert {row.state for row in rows if row is not None} == {State.SUCCEEDED}
        assert None not in rows
    assert_whole(path)


@pytest.mark.slow
async def test_processes_that_open_a_new_file_at_once_migrate_it_once(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        started = []
        for number in range(3):
            for _ in range(3):
                path = tmp_path / f"{number}.db"
                start = running(subprocess_programs.open_once, path)
                started.append(await stack.enter_async_context(start))
        for process in started:
            await process.receive()
        for process in started:
            await process.send()
        for process in started:
            assert await process.receive() == {"accepted": True}
            await process.end()
    for number in range(3):
        async with SqliteStore(tmp_path / f"{number}.db") as store:
            assert len((await store.find(JobQuery())).rows) == 3
        assert_whole(tmp_path / f"{number}.db")


@pytest.mark.parametrize("by", ["inotify", pytest.param("polling", marks=pytest.mark.slow)])
async def test_an_enqueue_wakes_a_waiting_process(
    tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "polling":
        monkeypatch.setattr(file_watch, "_inotify", lambda path: None)
    path = tmp_path / "jobs.db"
    async with (
        SqliteStore(path, durability="off") as store,
        running(subprocess_programs.enqueue_on_input, path) as other,
    ):
        await other.receive()
        for _ in range(3):
            assert not await subprocess_programs.quiet(store), "it can sleep"
            waiting = asyncio.create_task(store.wait(["default"], subprocess_programs.WAIT))
            await asyncio.sleep(0.3)  # its polling backs off meanwhile
            assert not waiting.done()
            since = time.monotonic()
            await other.send()
            job = await other.receive()
            assert await waiting
            assert time.monotonic() - since < SOON
            assert [str(row.id) for row in await claim_all(store)] == [job["id"]]


async def test_a_tail_receives_events_of_another_process(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with (
        SqliteStore(path, durability="off") as store,
        running(subprocess_programs.enqueue_on_input, path) as other,
    ):
        await other.receive()
        await other.send()
        job_id = UUID((await other.receive())["id"])
        tail = store.tail(job_id)
        assert [(await anext(tail)).data["status"] for _ in range(2)] == ["created", "queued"]
        third = asyncio.ensure_future(anext(tail))
        async with SqliteStore(path, durability="off") as second:  # a separate engine
            await claim_all(second)
            event = await asyncio.wait_for(third, SOON)
        assert event.data["status"] == "running"


@pytest.mark.parametrize("kills", [3, pytest.param(10, marks=pytest.mark.slow)])
async def test_kill_9_loses_no_acknowledged_write(tmp_path: Path, kills: int) -> None:
    path, ledger = tmp_path / "jobs.db", tmp_path / "ledger"
    chance = random.Random(9)
    lines = 0
    for _ in range(kills):
        async with running(subprocess_programs.work_until_killed, path, ledger) as process:
            while len(read_ledger(ledger)) < lines + 20:
                await asyncio.sleep(0.01)
                assert process.process.returncode is None
            await asyncio.sleep(chance.uniform(0, 0.1))
            await process.kill()
        found = read_ledger(ledger)
        lines = len(found)
        await assert_kept(path, found)
        assert_whole(path)


def read_ledger(ledger: Path) -> list[dict[str, Any]]:
    if not ledger.exists():
        return []
    # The last line may be incomplete: it was not acknowledged then.
    return [json.loads(line) for line in ledger.read_text().splitlines(keepends=True)[:-1]]


async def assert_kept(path: Path, ledger: list[dict[str, Any]]) -> None:
    latest = {line["id"]: line for line in ledger}
    async with SqliteStore(path, durability="off") as store:
        for job_id, line in latest.items():
            row = await get_one(store, UUID(job_id))
            assert row.seq >= line["seq"]
            assert row.fence >= line["fence"]
            assert line["state"] not in FINAL or row.state == line["state"]
            events = await read_events(store, row.id)
            assert [event.seq for event in events] == list(range(1, row.seq + 1))
            assert fold(events) == expected_fold(row)


# -- forks


async def test_a_busy_store_survives_forks_on_both_sides(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with running(subprocess_programs.fork_while_busy, path) as process:
        answer = await process.receive()
        await process.end()
    assert all(isinstance(child, list) for child in answer["children"]), answer["children"]
    all_jobs = [*answer["mine"], *(job for child in answer["children"] for job in child)]
    assert len(answer["mine"]) > 20
    assert len(all_jobs) == len(set(all_jobs))
    async with SqliteStore(path) as store:
        assert None not in await store.get([UUID(job_id) for job_id in all_jobs])
        found = await store.find(JobQuery(limit=1000))
        assert len(found.rows) == min(1000, len(all_jobs))
    assert_whole(path)


@pytest.mark.slow
async def test_wake_ups_reach_parent_and_child_after_a_fork(tmp_path: Path) -> None:
    """Around a fork the file is closed, and its watched WAL is deleted."""
    path = tmp_path / "jobs.db"
    async with running(subprocess_programs.fork_while_waiting, path) as process:
        child = (await process.receive())["child"]
        assert isinstance(child, list), child
        assert (await process.receive())["quiet"]
        async with running(subprocess_programs.enqueue_on_input, path) as other:
            await other.receive()
            await process.send()
            await asyncio.sleep(0.3)
            since = time.monotonic()
            await other.send()
            assert (await process.receive())["woken"] is True
            assert time.monotonic() - since < SOON
            assert (await process.receive())["child_woken"] is True
            assert time.monotonic() - since < 2 * SOON
        await process.end()
    assert_whole(path)


async def test_a_fork_waits_for_an_open_transaction(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with running(subprocess_programs.fork_in_transaction, path) as process:
        answer = await process.receive()
        await process.end()
    assert isinstance(answer["child"], list), answer
    assert answer["rolled_back"] is True
    async with SqliteStore(path) as store:
        ids = [UUID(job_id) for job_id in [*answer["child"], *answer["mine"]]]
        assert None not in await store.get(ids)
    assert_whole(path)
