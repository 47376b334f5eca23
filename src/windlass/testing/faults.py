"""A store on a bad line: requests go missing, answers get lost, and the caller asks again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from windlass.core.decisions.enqueue import Enqueued
from windlass.core.decisions.retry import Random
from windlass.core.decisions.transition import Answer, Transition
from windlass.core.errors import StoreUnavailableError
from windlass.core.job.row import NewJob
from windlass.core.records import Put, PutAnswer
from windlass.store import Store
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")

# `delete` and `prune` are writes too, but what they answer is what they found: the repeat of a
# delete finds nothing (`missing`) and the repeat of a prune counts, and deletes, only what is left.
REPEATABLE = frozenset(
    {
        "enqueue",
        "claim",
        "extend",
        "apply",
        "record",
        "cancel",
        "signal",
        "pause",
        "put_records",
        "delete_records",
    }
)
_MOST_TURNS = 4


class FaultyStore(WrappedStore):
    """Repeats writes at random. Callers see nothing of it, for a repeat is answered alike.

    With the chance `lose` a request never arrives; with the chance `repeat` it is carried out and
    its answer is lost. Either way the call is made again. With `raise_lost` the caller gets the
    StoreUnavailableError instead and has to repeat the call, not knowing which of the two happened.
    With `delay`, calls wait for a few turns of the event loop, so that concurrent ones mix.
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

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        if verb not in REPEATABLE:
            return await call()
        await self._dawdle()
        lot = self._random()
        if lot < self._lose:
            self._fail(f"{verb}: the request was lost")
            await self._dawdle()
        elif lot < self._lose + self._repeat:
            await call()
            self._fail(f"{verb}: the answer was lost")
            await self._dawdle()
        return await call()

    def _fail(self, message: str) -> None:
        if self._raise_lost:
            raise StoreUnavailableError(message)

    async def _dawdle(self) -> None:
        if self._delay:
            for _ in range(int(self._random() * _MOST_TURNS)):
                await asyncio.sleep(0)

    # Items of one call act in order. Where a later one changes what an earlier one met, a repeat of
    # the whole call cannot be answered alike, so such a call is made once.

    async def enqueue(self, jobs: Sequence[NewJob], *, together: bool = False) -> list[Enqueued]:
        if len(jobs) > 1 and not _strangers(jobs):
            return await self.store.enqueue(jobs, together=together)
        return await super().enqueue(jobs, together=together)

    async def apply(self, transitions: Sequence[Transition]) -> list[Answer]:
        if not _distinct(wish.job_id for wish in transitions):
            return await self.store.apply(transitions)
        return await super().apply(transitions)

    async def put_records(self, puts: Sequence[Put]) -> list[PutAnswer]:
        # A put with a lifetime counts each time it is made: it is a heartbeat.
        lasting = all(put.ttl is None for put in puts)
        if not (lasting and _distinct((put.kind, put.key) for put in puts)):
            return await self.store.put_records(puts)
        return await super().put_records(puts)


def _distinct(values: Iterable[Hashable]) -> bool:
    seen = list(values)
    return len(seen) == len(set(seen))


def _strangers(jobs: Sequence[NewJob]) -> bool:
    """Whether none of these can stand in another's way."""
    return (
        _distinct(job.id for job in jobs)
        and _distinct((job.owner, job.request_id) for job in jobs if job.request_id is not None)
        and _distinct((job.owner, job.unique_key) for job in jobs if job.unique_key is not None)
        and all(job.retry_of is None for job in jobs)
    )
