"""Coalescer: merges concurrent calls of one kind into a single call.

The first call runs immediately. Calls that arrive while it runs are merged and run together
afterwards. So an idle store adds no latency, and a busy one shares round trips and commits. A
caller that stops waiting does not cancel its write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Generic, TypeAlias, TypeVar

from windlass.core.errors import StoreUnavailableError

S = TypeVar("S")
T = TypeVar("T")
_Call: TypeAlias = tuple[Sequence[S], asyncio.Future[list[T]]]

MAX_ITEMS = 1000  # items in one merged call; a single caller may pass more


class Coalescer(Generic[S, T]):
    def __init__(self, run: Callable[[Sequence[S]], Awaitable[list[T]]]) -> None:
        self._run = run
        self._waiting: list[_Call[S, T]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, items: Sequence[S]) -> list[T]:
        """Return one result per item."""
        if not items:
            return []
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[T]] = loop.create_future()
        self._waiting.append((items, future))
        if self._task is None:
            self._task = loop.create_task(self._drain())
        return await future

    async def finish(self) -> None:
        """Wait for all calls made so far."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _drain(self) -> None:
        try:
            while self._waiting:
                await self._run_group(self._next_group())
        finally:
            self._task = None
            for _, future in self._waiting:  # after cancellation: leave no call hanging
                future.cancel()
            self._waiting = []

    def _next_group(self) -> list[_Call[S, T]]:
        count = 0
        for index, (items, _) in enumerate(self._waiting):
            count += len(items)
            if count > MAX_ITEMS and index > 0:
                group, self._waiting = self._waiting[:index], self._waiting[index:]
                return group
        group, self._waiting = self._waiting, []
        return group

    async def _run_group(self, group: list[_Call[S, T]]) -> None:
        try:
            results = iter(await self._run([item for items, _ in group for item in items]))
        except Exception as error:  # noqa: BLE001 - the callers receive it
            if len(group) > 1 and not isinstance(error, StoreUnavailableError):
                for call in group:  # one bad call fails alone
                    await self._run_group([call])
                return
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
            return
        for items, future in group:
            own_results = list(islice(results, len(items)))
            if not future.done():
                future.set_result(own_results)
