"""The pool with real child processes: reuse, stop, and the end of all descendants."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.process.process_table import (
    WAIT_TIMEOUT,
    alive,
    children,
    descriptors,
    kill,
    until_gone,
    wait_for_file,
)

from windlass.process import ChildPool, ChildProcess, ProcessDiedError
from windlass.process.groups import ProcessGroups

MODULE = "tests.process.child_commands"


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[ChildPool]:
    """Shared, so that most tests find a warm child."""
    pool = ChildPool(MODULE, limit=2, grace=WAIT_TIMEOUT)
    yield pool
    await asyncio.wait_for(pool.aclose(), 2 * WAIT_TIMEOUT)


async def receive(process: ChildProcess) -> Any:
    return await asyncio.wait_for(process.channel.receive(), WAIT_TIMEOUT)


async def command(process: ChildProcess, name: str, given: Any = None) -> Any:
    process.channel.send({"do": name, "with": given})
    return (await receive(process)).get("result")


async def test_a_warm_child_is_reused_and_never_shared(pool: ChildPool) -> None:
    async with pool.take() as one, pool.take() as two:
        assert await command(one, "repeat", ["é", 1, None]) == ["é", 1, None]
        pids = [await command(one, "pid"), await command(two, "pid")]
        assert pids == [one.pid, two.pid]
        third = asyncio.ensure_future(take_pid(pool))
        done, _ = await asyncio.wait({third}, timeout=0.05)
        assert not done  # the limit is two
    assert await asyncio.wait_for(third, WAIT_TIMEOUT) in pids
    assert sorted(pool.pids) == sorted(pids)
    with pytest.raises(LookupError):
        async with pool.take() as failed:
            raise LookupError
    assert not alive(failed.pid)
    assert failed.pid not in pool.pids


async def take_pid(pool: ChildPool) -> int:
    async with pool.take() as process:
        return process.pid


async def test_a_child_that_died_while_idle_is_replaced(pool: ChildPool) -> None:
    pid = await take_pid(pool)
    async with pool.take() as process:
        assert process.pid == pid
    kill(pid)
    await asyncio.wait_for(process.ended, WAIT_TIMEOUT)
    assert pid not in pool.pids
    assert await take_pid(pool) != pid


async def test_idle_children_beyond_the_spares_are_ended() -> None:
    pool = ChildPool(MODULE, limit=2, spare=1, idle=0.05)
    async with pool.take() as one, pool.take() as two:
        await command(one, "pid")
        await command(two, "pid")
        pids = {one.pid, two.pid}
    ends = {one.ended, two.ended}
    await asyncio.wait(ends, timeout=WAIT_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
    [kept_pid] = pool.pids
    await until_gone(*(pids - {kept_pid}))
    assert await take_pid(pool) == kept_pid
    await pool.aclose()


async def test_a_child_sends_a_request_and_gets_a_response(pool: ChildPool) -> None:
    async with pool.take() as process:
        process.channel.send({"do": "request", "with": "time"})
        message = await receive(process)
        assert message["want"] == "time"
        process.channel.send({"response": message["request"], "value": "late"})
        assert (await receive(process))["result"] == "late"


async def test_a_stop_ends_the_child_and_its_grandchildren(pool: ChildPool) -> None:
    async with pool.take() as process:
        grandchild = await command(process, "start")
        process.channel.send({"do": "sleep"})
        assert await receive(process) == {"at": "sleep"}
        assert alive(grandchild)
        await process.stop(WAIT_TIMEOUT)
        assert process.ended.result() == 0
        assert await receive(process) == {"did": "stop"}
        await until_gone(grandchild)


async def test_an_unresponsive_child_is_killed_after_the_grace(
    pool: ChildPool, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    async with pool.take() as process:
        grandchild = await command(process, "start")
        process.channel.send({"do": "hold", "with": str(mark)})
        await asyncio.to_thread(wait_for_file, mark)
        await process.stop(0.1)
        assert process.ended.result() == -signal.SIGKILL
        await until_gone(process.pid, grandchild)


async def test_only_the_parent_may_stop_a_child(pool: ChildPool) -> None:
    """A service manager signals every process of a service; the worker finishes first."""
    async with pool.take() as process:
        await command(process, "pid")
        os.killpg(process.pid, signal.SIGTERM)
        assert await command(process, "repeat", "still here") == "still here"


async def test_grandchildren_end_with_a_dead_child(pool: ChildPool) -> None:
    """Also a forked process that holds the channel open."""
    async with pool.take() as process:
        grandchild = await command(process, "start")
        fork = await command(process, "fork")
        process.channel.send({"do": "die", "with": signal.SIGSEGV})
        assert await asyncio.wait_for(process.ended, WAIT_TIMEOUT) == -signal.SIGSEGV
        with pytest.raises(EOFError):
            await receive(process)
        await until_gone(grandchild, fork)


@pytest.mark.parametrize(
    ("status", "message", "signal_number", "exit_code"),
    [
        (-11, "its process (pid 7) was killed by SIGSEGV", signal.SIGSEGV, None),
        (-9, "was killed by SIGKILL; possibly out of memory", signal.SIGKILL, None),
        (3, "its process (pid 7) exited with code 3", None, 3),
        (-99, "was killed by signal 99", None, None),
    ],
)
async def test_the_error_names_signal_or_exit_code(
    status: int, message: str, signal_number: int | None, exit_code: int | None
) -> None:
    error = ProcessDiedError(7, status)
    assert message in str(error)
    assert (error.signal, error.exit_code, error.code) == (signal_number, exit_code, "crashed")


async def test_closing_leaves_neither_processes_nor_descriptors() -> None:
    before, children_before = descriptors(), children()
    pool = ChildPool(MODULE, limit=3)
    async with pool.take() as one:
        await command(one, "pid")
        async with pool.take() as two:
            await command(two, "pid")
    with pytest.raises(LookupError):
        async with pool.take():
            raise LookupError
    assert pool.groups.warden is not None
    assert children() > children_before
    await pool.aclose()
    assert children() == children_before
    assert descriptors() == before
    with pytest.raises(RuntimeError, match="closed"):
        await take_pid(pool)


async def test_a_warden_that_was_killed_is_replaced() -> None:
    groups = ProcessGroups()
    groups.add(2**22 - 1)
    first = groups.warden
    assert first is not None
    kill(first)
    await until_gone(first)
    groups.remove(2**22 - 1)
    assert groups.warden is None  # no group is left to watch
    groups.add(2**22 - 2)
    assert groups.warden not in (None, first)
    groups.close()
    assert groups.warden is None
