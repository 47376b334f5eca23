"""Concurrent calls share round trips, and an idle store makes nobody wait for company."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from windlass.core.errors import StoreError, StoreUnavailableError
from windlass.stores.coalescing import MOST, Gatherer


class Server:
    """Doubles numbers, one call at a time, when it is let; refuses the unlucky one."""

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


async def test_a_call_that_finds_no_other_is_made_at_once() -> None:
    server = Server()
    server.open.set()
    gatherer = Gatherer(server.double)

    assert await gatherer([1, 2]) == [2, 4]
    assert await gatherer([3]) == [6]
    assert server.calls == [[1, 2], [3]]


async def test_calls_that_come_while_one_is_under_way_are_made_as_one() -> None:
    server = Server()
    gatherer = Gatherer(server.double)
    waiting = [asyncio.ensure_future(gatherer([n, -n])) for n in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    late = [asyncio.ensure_future(gatherer([n])) for n in range(20, 120)]
    await asyncio.sleep(0)
    server.open.set()

    assert await asyncio.gather(*waiting) == [[2 * n, -2 * n] for n in range(5)]
    assert await asyncio.gather(*late) == [[2 * n] for n in range(20, 120)]
    assert len(server.calls) == 2


async def test_a_call_is_never_more_than_a_statement_can_carry() -> None:
    server = Server()
    server.open.set()
    gatherer = Gatherer(server.double)

    await asyncio.gather(*(gatherer(list(range(100, 500))) for _ in range(10)))

    assert max(map(len, server.calls)) <= MOST


async def test_one_bad_call_fails_by_itself() -> None:
    server = Server()
    gatherer = Gatherer(server.double)
    waiting = [asyncio.ensure_future(gatherer([n])) for n in (1, 12, 13, 14)]
    await asyncio.sleep(0)
    server.open.set()

    first, second, bad, last = await asyncio.gather(*waiting, return_exceptions=True)

    assert (first, second, last) == ([2], [24], [28])
    assert isinstance(bad, StoreError)


async def test_when_the_server_is_away_nobody_tries_again() -> None:
    server = Server()
    server.error = StoreUnavailableError
    gatherer = Gatherer(server.double)
    waiting = [asyncio.ensure_future(gatherer([n])) for n in (12, 13, 14)]
    await asyncio.sleep(0)
    server.open.set()

    outcomes = await asyncio.gather(*waiting, return_exceptions=True)

    assert all(isinstance(outcome, StoreUnavailableError) for outcome in outcomes)
    assert len(server.calls) == 1


async def test_whoever_gives_up_leaves_the_others_and_the_write_alone() -> None:
    server = Server()
    gatherer = Gatherer(server.double)
    gone, stays = (asyncio.ensure_future(gatherer([n])) for n in (1, 2))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    server.open.set()

    assert await stays == [4]
    await gatherer.finish()
    assert server.calls == [[1, 2]]


async def test_nothing_asked_is_nothing_called() -> None:
    server = Server()

    assert await Gatherer(server.double)([]) == []
    assert server.calls == []
