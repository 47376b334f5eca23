"""Concurrent calls of one kind, made as one.

A call that finds none under way is made at once; those that come meanwhile are gathered and made
together when it is back. So an idle store adds no wait, and a busy one shares round trips and
commits. Whoever gives up waiting leaves the write to be made all the same.
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

MOST = 1000  # items in one call, unless a single caller brings more


class Gatherer(Generic[S, T]):
    def __init__(self, run: Callable[[Sequence[S]], Awaitable[list[T]]]) -> None:
        self._run = run
        self._waiting: list[_Call[S, T]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, items: Sequence[S]) -> list[T]:
        """One answer per item; empty in, empty out."""
        if not items:
            return []
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[T]] = loop.create_future()
        self._waiting.append((items, future))
        if self._task is None:
            self._task = loop.create_task(self._work())
        return await future

    async def finish(self) -> None:
        """Wait for all that was called."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._make(self._group())
        finally:
            self._task = None
            for _, future in self._waiting:  # only if this was torn down: nobody waits for ever
                future.cancel()
            self._waiting = []

    def _group(self) -> list[_Call[S, T]]:
        count = 0
        for place, (items, _) in enumerate(self._waiting):
            count += len(items)
            if count > MOST and place > 0:
                group, self._waiting = self._waiting[:place], self._waiting[place:]
                return group
        group, self._waiting = self._waiting, []
        return group

    async def _make(self, group: list[_Call[S, T]]) -> None:
        try:
            answers = iter(await self._run([item for items, _ in group for item in items]))
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for it
            if len(group) > 1 and not isinstance(error, StoreUnavailableError):
                for call in group:  # one bad call fails by itself
                    await self._make([call])
                return
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
            return
        for items, future in group:
            answered = list(islice(answers, len(items)))
            if not future.done():
                future.set_result(answered)
