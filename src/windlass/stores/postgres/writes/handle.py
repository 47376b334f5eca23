"""The writes of one handle: gathered, made, and told to whoever waits for news."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.decisions.enqueue import Enqueued
from windlass.core.decisions.transition import Answer, CancelRequest, Signal, Transition
from windlass.core.errors import StoreUnavailableError
from windlass.core.job.row import NewJob
from windlass.core.job.state import RESCUING, SETTLING, Trigger
from windlass.store import Saying
from windlass.stores.coalescing import Gatherer
from windlass.stores.postgres.connection import Connection
from windlass.stores.postgres.engine import Engine
from windlass.stores.postgres.notify import CHANNEL, Hub, Listener, Speaker
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.writes import enqueue_jobs, jobs, successes
from windlass.stores.postgres.writes.batch import Batch
from windlass.stores.postgres.writes.inserts import Limited
from windlass.stores.postgres.writes.lock_retry import Patient

S = TypeVar("S")
T = TypeVar("T")
Decide = Callable[[Connection, Sequence[S], Instant | None, int], Awaitable[tuple[list[T], Batch]]]
PATIENCE = 1.0  # seconds that a worker waits for a job which somebody's open transaction holds
TELLING = 5.0  # seconds that a hint may take: whoever closes waits for it
SWEEPING = RESCUING | {Trigger.PROMOTE, Trigger.EXPIRE}


class Writes:
    def __init__(self, engine: Engine, hub: Hub) -> None:
        self._engine = engine
        self._hub = hub
        self._speaker = Speaker(hub, self._send)
        self._listener: Listener | None = None
        self._limited = False  # whether the last jobs that were put in had to pass a gate
        self._plain = Gatherer[NewJob, Enqueued](self._enqueue_plain)
        decide = self._decide
        self._keyed = Patient[NewJob, Enqueued](partial(decide, enqueue_jobs.keyed))
        self._settle = Patient[Transition, Answer](self._apply, partial(decide, jobs.apply))
        self._record = Patient[Saying, Answer](partial(decide, jobs.record))
        self._cancel = Patient[CancelRequest, Answer](partial(decide, jobs.cancel))
        self._signal = Patient[Signal, Answer](partial(decide, jobs.signal))

    # -- what they do

    async def enqueue(self, wanted: Sequence[NewJob], *, together: bool = False) -> list[Enqueued]:
        if together and wanted:
            return self._decided(await self._together(wanted, self._engine.config.timeout))
        if all(new.plain for new in wanted):
            return await self._plain(wanted)
        return self._decided(await self._keyed(wanted, self._engine.config.timeout))

    async def _together(self, wanted: Sequence[NewJob], seconds: float) -> list[Enqueued | None]:
        """A call of its own: others must not be refused for what is wrong with one of these."""
        return await Patient[NewJob, Enqueued](partial(self._decide, enqueue_jobs.together))(
            wanted, seconds
        )

    async def signal(self, signals: Sequence[Signal]) -> list[Answer]:
        return self._decided(await self._signal(signals, self._engine.config.timeout))

    async def cancel(self, requests: Sequence[CancelRequest]) -> list[Answer]:
        return self._decided(await self._cancel(requests, self._engine.config.timeout))

    async def record(self, sayings: Sequence[Saying]) -> list[Answer]:
        return self._decided(await self._record(sayings, PATIENCE))

    async def apply(self, wishes: Sequence[Transition]) -> list[Answer]:
        """Workers come again, and have others to settle: they are told what is busy."""
        triggers = {wish.trigger for wish in wishes}
        if triggers <= SWEEPING:
            answers = await self._settle(wishes, 0)
        elif triggers <= SETTLING:
            answers = await self._settle(wishes, PATIENCE)
        else:
            return self._decided(await self._settle(wishes, self._engine.config.timeout))
        return [jobs.BUSY if answer is None else answer for answer in answers]

    def _decided(self, answers: Sequence[T | None]) -> list[T]:
        decided = [answer for answer in answers if answer is not None]
        if len(decided) < len(answers):
            raise StoreUnavailableError(
                f"a transaction that is left open on {self._engine.config.where} holds one of "
                "these jobs, or its key: find it in pg_stat_activity, and commit sooner"
            )
        return decided

    async def _enqueue_plain(self, wanted: Sequence[NewJob]) -> list[Enqueued]:
        """By the shortest way, unless the last of them had to pass a gate."""
        engine = self._engine
        if not self._limited:
            try:
                answers = await engine.run(lambda c: enqueue_jobs.plain(c, wanted, engine.now()))
            except Limited:
                self._limited = True
            else:
                self.tell(work=True)
                return answers
        answers, batch = await engine.run(
            lambda c: enqueue_jobs.gated(c, wanted, engine.now(), engine.shard), whole=True
        )
        self._limited = batch.looked
        self.tell(batch.touched, work=batch.work)
        return answers

    async def _decide(self, run: Decide[S, T], items: Sequence[S]) -> list[T]:
        engine = self._engine
        answers, batch = await engine.run(
            lambda c: run(c, items, engine.now(), engine.shard), whole=True
        )
        self.tell(batch.touched, work=batch.work)
        return answers

    async def _apply(self, wishes: Sequence[Transition]) -> list[Answer | None]:
        """Plain successes by one statement; whatever that leaves is decided one by one."""
        engine = self._engine
        answers: dict[int, Answer | None] = {**jobs.check(wishes)}
        rest = {place: wish for place, wish in enumerate(wishes) if place not in answers}
        plain = successes.plain(rest)
        room: list[str] = []
        if plain:
            alone = len(plain) == len(rest)
            done, let_in, room = await engine.run(
                lambda c: successes.succeed(c, plain, engine.now(), engine.shard, alone=alone)
            )
            self.tell((*done, *let_in) if let_in else done, work=bool(let_in))
            if len(done) == len(wishes):
                return [jobs.SUCCEEDED] * len(wishes)
            for place, wish in list(rest.items()):
                if wish.job_id in done:
                    answers[place] = jobs.SUCCEEDED
                    del rest[place]
        if rest:
            decided = await self._decide(partial(jobs.apply, room=room), list(rest.values()))
            answers |= zip(rest, decided, strict=True)
        return [answers[place] for place in range(len(wishes))]

    # -- news

    def tell(self, touched: Iterable[UUID] = (), *, work: bool = False) -> None:
        self._speaker.tell(touched, work=work)

    async def _send(self, message: str) -> None:
        patience = min(self._engine.config.timeout, TELLING)
        await self._engine.run(lambda c: c.fetch(SQL.notify, CHANNEL, message, timeout=patience))

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
        for calls in (
            self._plain, self._keyed, self._settle, self._record, self._cancel, self._signal,
        ):  # fmt: skip
            await calls.finish()
        if self._listener is not None:
            await self._listener.close()
        await self._speaker.finish()
