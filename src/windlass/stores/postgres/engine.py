"""Runs the calls of one handle: connection pool, retries, error translation.

Each call runs in a task of its own: canceling the caller does not interrupt the call halfway.
Closing waits for all calls.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from windlass.core.clock import Clock, Instant
from windlass.stores.postgres.admin import migrator
from windlass.stores.postgres.config import PostgresConfig
from windlass.stores.postgres.connection import Connection, ConnectionPool, transaction
from windlass.stores.postgres.errors import DRIVER_ERRORS, RETRYABLE, translate

T = TypeVar("T")
Work = Callable[[Connection], Awaitable[T]]
MAX_TRIES = 10
RETRY_DELAY = 0.01  # seconds between tries after a conflict; random, times the number of tries
SHARDS = 16


class PostgresEngine:
    def __init__(self, config: PostgresConfig, clock: Clock | None) -> None:
        self.config = config
        self._clock = clock
        self._pool = ConnectionPool(config)
        self._calls: set[asyncio.Task[Any]] = set()
        self._schema_checked = False
        self.shard = random.randrange(SHARDS)  # noqa: S311 - not for security

    def now(self) -> Instant | None:
        """Return the time for statements; None makes the server use its own clock."""
        return None if self._clock is None else self._clock.now()

    async def call(
        self, work: Work[T], *, in_transaction: bool = False, check_schema: bool = True
    ) -> T:
        """Run `work` to its end, even if the caller is canceled."""
        return await asyncio.shield(
            self.spawn(self.run(work, in_transaction=in_transaction, check_schema=check_schema))
        )

    def spawn(self, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a background task that `close` waits for."""
        task = asyncio.get_running_loop().create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the caller may have been canceled

    async def run(
        self, work: Work[T], *, in_transaction: bool = False, check_schema: bool = True
    ) -> T:
        """Run `work` on a connection, optionally in one transaction; retry after a conflict."""
        tries = 0
        while True:
            tries += 1
            try:
                async with self._pool.connection() as connection:
                    if check_schema and not self._schema_checked:
                        await self._check_schema(connection)
                    if not in_transaction:
                        return await work(connection)
                    async with transaction(connection):
                        return await work(connection)
            except RETRYABLE as error:
                if tries == MAX_TRIES:
                    raise translate(error, self.config.where) from error
                await asyncio.sleep(random.uniform(0, RETRY_DELAY * tries))  # noqa: S311
            except DRIVER_ERRORS as error:
                raise translate(error, self.config.where) from error

    async def _check_schema(self, connection: Connection) -> None:
        """Raise if this version cannot use the schema; runs until it succeeds once."""
        if self.config.migrate:
            await migrator.migrate(connection, self.config.where)
        else:
            await migrator.check(connection, self.config.where)
        self._schema_checked = True

    async def close(self) -> None:
        while running := [task for task in self._calls if not task.done()]:
            await asyncio.wait(running)
        await self._pool.close()
