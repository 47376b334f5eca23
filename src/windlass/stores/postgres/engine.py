"""One handle's way to the server: a few connections, calls that are finished, errors translated.

A call runs in a task of its own, so that whoever gives up waiting leaves the state before or after
the call, never between. Closing waits for every call that was made.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from windlass.core.clock import Clock, Instant
from windlass.stores.postgres.connection import Connection, Pool, PostgresConfig, transaction
from windlass.stores.postgres.errors import FOREIGN, MEETINGS, translate
from windlass.stores.postgres.schema import migrator

T = TypeVar("T")
Work = Callable[[Connection], Awaitable[T]]
TRIES = 10
NAP = 0.01  # seconds, about, between tries of a transaction that met another
SHARDS = 16


class Engine:
    def __init__(self, config: PostgresConfig, clock: Clock | None) -> None:
        self.config = config
        self._clock = clock
        self._pool = Pool(config)
        self._calls: set[asyncio.Task[Any]] = set()
        self._sound = False
        self.shard = random.randrange(SHARDS)  # noqa: S311 - any will do

    def now(self) -> Instant | None:
        """What statements get as the time: None, and the server looks at its own clock."""
        return None if self._clock is None else self._clock.now()

    async def call(self, work: Work[T], *, whole: bool = False, checked: bool = True) -> T:
        """Do some work to its end, whoever waits for it."""
        return await asyncio.shield(self.begin(self.run(work, whole=whole, checked=checked)))

    def begin(self, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Have it done beside the rest, whoever waits for it; closing does."""
        task = asyncio.get_running_loop().create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited may have gone; the failure is nobody's then

    async def run(self, work: Work[T], *, whole: bool = False, checked: bool = True) -> T:
        """Do some work on a connection; with `whole`, in one transaction."""
        tries = 0
        while True:
            tries += 1
            try:
                async with self._pool.connection() as connection:
                    if checked and not self._sound:
                        await self._check(connection)
                    if not whole:
                        return await work(connection)
                    async with transaction(connection):
                        return await work(connection)
            except MEETINGS as error:
                if tries == TRIES:
                    raise translate(error, self.config.where) from error
                await asyncio.sleep(random.uniform(0, NAP * tries))  # noqa: S311
            except FOREIGN as error:
                raise translate(error, self.config.where) from error

    async def _check(self, connection: Connection) -> None:
        """Whether this Windlass may use the schema; asked until it may, and then no more."""
        if self.config.migrate:
            await migrator.migrate(connection, self.config.where)
        else:
            await migrator.check(connection, self.config.where)
        self._sound = True

    async def close(self) -> None:
        while under_way := [task for task in self._calls if not task.done()]:
            await asyncio.wait(under_way)
        await self._pool.close()
