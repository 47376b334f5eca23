"""The writes of one handle: gathered, made, and told to whoever waits for news."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.enqueue import Enqueued
from windlass.core.job import NewJob
from windlass.core.transition import Answer, CancelRequest, Transition
from windlass.store import Saying
from windlass.stores.postgres import enqueueing, jobs
from windlass.stores.postgres.batch import Batch
from windlass.stores.postgres.connection import Connection
from windlass.stores.postgres.engine import Engine
from windlass.stores.postgres.gathering import Gatherer
from windlass.stores.postgres.hints import CHANNEL, Hub, Listener, Speaker
from windlass.stores.postgres.queries import SQL

S = TypeVar("S")
T = TypeVar("T")
Decide = Callable[[Connection, Sequence[S], Instant | None, int], Awaitable[tuple[list[T], Batch]]]


class Writes:
    def __init__(self, engine: Engine, hub: Hub) -> None:
        self._engine = engine
        self._hub = hub
        self._speaker = Speaker(hub, self._send)
        self._listener: Listener | None = None
        self._plain = Gatherer[NewJob, Enqueued](self._enqueue_plain)
        self._keyed = Gatherer[NewJob, Enqueued](partial(self._decide, enqueueing.keyed))
        self._settle = Gatherer[Transition, Answer](self._apply)
        self.record = Gatherer[Saying, Answer](partial(self._decide, jobs.record))
        self.cancel = Gatherer[CancelRequest, Answer](partial(self._decide, jobs.cancel))
        self.apply = self._settle

    # -- what they do

    async def enqueue(self, wanted: Sequence[NewJob]) -> list[Enqueued]:
        if all(new.plain for new in wanted):
            return await self._plain(wanted)
        return await self._keyed(wanted)

    async def _enqueue_plain(self, wanted: Sequence[NewJob]) -> list[Enqueued]:
        engine = self._engine
        answers = await engine.run(lambda c: enqueueing.plain(c, wanted, engine.now()))
        self.tell(work=True)
        return answers

    async def _decide(self, run: Decide[S, T], items: Sequence[S]) -> list[T]:
        engine = self._engine
        answers, batch = await engine.run(
            lambda c: run(c, items, engine.now(), engine.shard), whole=True
        )
        self.tell(batch.touched, work=batch.work)
        return answers

    async def _apply(self, wishes: Sequence[Transition]) -> list[Answer]:
        """Plain successes by one statement; whatever that leaves is decided one by one."""
        engine = self._engine
        answers = jobs.check(wishes)
        rest = {place: wish for place, wish in enumerate(wishes) if place not in answers}
        plain = jobs.plain_successes(rest)
        if plain:
            done = await engine.run(lambda c: jobs.succeed(c, plain, engine.now(), engine.shard))
            self.tell(done)
            for place, wish in list(rest.items()):
                if wish.job_id in done:
                    answers[place] = jobs.SUCCEEDED
                    del rest[place]
        if rest:
            decided = await self._decide(jobs.apply, list(rest.values()))
            answers |= zip(rest, decided, strict=True)
        return [answers[place] for place in range(len(wishes))]

    # -- news

    def tell(self, touched: Iterable[UUID] = (), *, work: bool = False) -> None:
        self._speaker.tell(touched, work=work)

    async def _send(self, message: str) -> None:
        await self._engine.run(lambda c: c.execute(SQL.notify, CHANNEL, message))

    async def listen(self, seconds: float) -> bool:
        """Begin to hear other processes, if that is still to be done; whether it was."""
        if self._listener is None:
            place = self._engine.config.listening
            if place is None:
                return False
            self._listener = Listener(self._hub, place, self._send)
        if self._listener.ready.is_set():
            return False
        with contextlib.suppress(TimeoutError):  # polling, then
            async with asyncio.timeout(seconds):
                await self._listener.ready.wait()
        return True

    async def close(self) -> None:
        """Finish what was called."""
        for gatherer in (self._plain, self._keyed, self._settle, self.record, self.cancel):
            await gatherer.finish()
        if self._listener is not None:
            await self._listener.close()
        await self._speaker.finish()
