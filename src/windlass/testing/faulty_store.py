"""Store wrapper that simulates an unreliable network: lost requests and lost responses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.decisions.transition import ApplyRequest, ApplyResult
from windlass.core.errors import StoreUnavailableError
from windlass.core.job.new_job import NewJob
from windlass.core.job.retry_policy import Random
from windlass.core.versioned_record import Put, PutResult
from windlass.store import Store
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")

# `delete` and `prune` are writes, too, but their results differ in a repeat: a second delete
# returns `missing`, and a second prune counts (and deletes) only the remaining rows.
REPEATABLE = frozenset(
    {
        "enqueue",
        "claim",
        "extend",
        "apply",
        "record",
        "put_records",
        "delete_records",
    }
)
_MAX_YIELDS = 4


class FaultyStore(WrappedStore):
    """Repeats writes at random. Callers notice nothing, because writes are idempotent.

    A request is lost before the store with the probability `lose`. Its response is lost with the
    probability `repeat`. In both cases the wrapper calls again. With `raise_lost` the caller gets a
    StoreUnavailableError instead and has to repeat the call, without knowing which case it is.
    With `delay`, calls yield to the event loop a few times, so that concurrent calls interleave.
    """

    def __init__(
        self,
        store: Store,
        random: Random,
        lose: float = 0.1,
        repeat: float = 0.1,
        delay: bool = False,
        *,
        raise_lost: bool = False,
    ) -> None:
        super().__init__(store)
        self._random = random
        self._lose = lose
        self._repeat = repeat
        self._delay = delay
        self._raise_lost = raise_lost

    def wrap(self, store: Store) -> FaultyStore:
        return FaultyStore(
            store, self._random, self._lose, self._repeat, self._delay, raise_lost=self._raise_lost
        )

    async def around(self, method: str, call: Callable[[], Awaitable[T]]) -> T:
        if method not in REPEATABLE:
            return await call()
        await self._yield_to_loop()
        draw = self._random()
        if draw < self._lose:
            self._fail(f"{method}: the request was lost")
            await self._yield_to_loop()
        elif draw < self._lose + self._repeat:
            await call()
            self._fail(f"{method}: the response was lost")
            await self._yield_to_loop()
        return await call()

    def _fail(self, message: str) -> None:
        if self._raise_lost:
            raise StoreUnavailableError(message)

    async def _yield_to_loop(self) -> None:
        if self._delay:
            for _ in range(int(self._random() * _MAX_YIELDS)):
                await asyncio.sleep(0)

    # Items of one call run in order. If a later item changes the result of an earlier one, a repeat
    # of the call returns other results. Such calls run once.

    async def enqueue(self, jobs: Sequence[NewJob], *, atomic: bool = False) -> list[EnqueueResult]:
        if len(jobs) > 1 and not _independent(jobs):
            return await self.store.enqueue(jobs, atomic=atomic)
        return await super().enqueue(jobs, atomic=atomic)

    async def apply(self, requests: Sequence[ApplyRequest]) -> list[ApplyResult]:
        if not _distinct(request.job_id for request in requests):
            return await self.store.apply(requests)
        return await super().apply(requests)

    async def put_records(self, puts: Sequence[Put]) -> list[PutResult]:
        # Each put with a TTL updates a presence record, and a repeat extends it.
        permanent = all(put.ttl is None for put in puts)
        if not (permanent and _distinct((put.kind, put.key) for put in puts)):
            return await self.store.put_records(puts)
        return await super().put_records(puts)


def _distinct(values: Iterable[Hashable]) -> bool:
    seen = list(values)
    return len(seen) == len(set(seen))


def _independent(jobs: Sequence[NewJob]) -> bool:
    """Whether no job can be a duplicate of another."""
    return (
        _distinct(job.id for job in jobs)
        and _distinct((job.owner, job.request_id) for job in jobs if job.request_id is not None)
        and _distinct((job.owner, job.unique_key) for job in jobs if job.unique_key is not None)
        and all(job.retry_of is None for job in jobs)
    )
