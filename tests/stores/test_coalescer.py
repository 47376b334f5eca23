"""Concurrent calls share round trips; an idle store runs a call at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from windlass.core.errors import StoreError, StoreUnavailableError
from windlass.stores.coalescer import MAX_ITEMS, Coalescer


class Server:
    """Doubles numbers when `open` is set; raises for 13."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.open = asyncio.Event()
        self.error: type[StoreError] = StoreError

    async def double(self, numbers: Sequence[int]) -> list[int]:
        self.calls.append([*numbers])
        await self.open.wait()
        if 13 in numbers:
            raise self.error("unlucky")
        return [2 * number for number in numbers]


async def test_a_call_on_an_idle_store_runs_at_once() -> None:
    server = Server()
    server.open.set()
    coalescer = Coalescer(server.double)

    assert await coalescer([1, 2]) == [2, 4]
    assert await coalescer([3]) == [6]
    assert server.calls == [[1, 2], [3]]


async def test_calls_during_a_running_call_are_merged() -> None:
    server = Server()
    coalescer = Coalescer(server.double)
    waiting = [asyncio.ensure_future(coalescer([n, -n])) for n in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    late = [asyncio.ensure_future(coalescer([n])) for n in range(20, 120)]
    await asyncio.sleep(0)
    server.open.set()

    assert await asyncio.gather(*waiting) == [[2 * n, -2 * n] for n in range(5)]
    assert await asyncio.gather(*late) == [[2 * n] for n in range(20, 120)]
    assert len(server.calls) == 2


async def test_a_merged_call_has_at_most_max_items() -> None:
    server = Server()
    server.open.set()
    coalescer = Coalescer(server.double)

    await asyncio.gather(*(coalescer(list(range(100, 500))) for _ in range(10)))

    assert max(map(len, server.calls)) <= MAX_ITEMS


async def test_one_bad_call_fails_alone() -> None:
    server = Server()
    coalescer = Coalescer(server.double)
    waiting = [asyncio.ensure_future(coalescer([n])) for n in (1, 12, 13, 14)]
    await asyncio.sleep(0)
    server.open.set()

    first, second, bad, last = await asyncio.gather(*waiting, return_exceptions=True)

    assert (first, second, last) == ([2], [24], [28])
    assert isinstance(bad, StoreError)


async def test_an_unavailable_server_is_not_retried() -> None:
    server = Server()
    server.error = StoreUnavailableError
    coalescer = Coalescer(server.double)
    waiting = [asyncio.ensure_future(coalescer([n])) for n in (12, 13, 14)]
    await asyncio.sleep(0)
    server.open.set()

    outcomes = await asyncio.gather(*waiting, return_exceptions=True)

    assert all(isinstance(outcome, StoreUnavailableError) for outcome in outcomes)
    assert len(server.calls) == 1


async def test_a_cancelled_call_cancels_neither_others_nor_the_write() -> None:
    server = Server()
    coalescer = Coalescer(server.double)
    cancelled, stays = (asyncio.ensure_future(coalescer([n])) for n in (1, 2))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    server.open.set()

    assert await stays == [4]
    await coalescer.finish()
    assert server.calls == [[1, 2]]


async def test_an_empty_call_makes_no_request() -> None:
    server = Server()

    assert await Coalescer(server.double)([]) == []
    assert server.calls == []
