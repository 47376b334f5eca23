"""Writer of one handle: coalesces calls, applies them, and notifies waiting processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.decisions.transition import ApplyRequest, ApplyResult, Transition
from windlass.core.errors import StoreUnavailableError
from windlass.core.job.new_job import NewJob
from windlass.core.job.state import RESCUING, SETTLING, Trigger
from windlass.store import AttemptRecords
from windlass.stores.coalescer import Coalescer
from windlass.stores.postgres.connection import Connection
from windlass.stores.postgres.engine import PostgresEngine
from windlass.stores.postgres.notify import CHANNEL, Notifier, NotifyHub, NotifyListener
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.writes import apply_requests, enqueue_jobs, successes
from windlass.stores.postgres.writes.batch import PostgresBatch
from windlass.stores.postgres.writes.inserts import LimitApplies
from windlass.stores.postgres.writes.locked_job_retry import LockedJobRetry

S = TypeVar("S")
T = TypeVar("T")
Decide = Callable[
    [Connection, Sequence[S], Instant | None, int], Awaitable[tuple[list[T], PostgresBatch]]
]
WORKER_LOCK_TIMEOUT = 1.0  # seconds that a worker waits for a job locked by a transaction
NOTIFY_TIMEOUT = 5.0  # seconds that a notification may take: closing waits for it
SWEEPER_TRIGGERS = RESCUING | {Trigger.PROMOTE, Trigger.EXPIRE}


class PostgresWriter:
    def __init__(self, engine: PostgresEngine, hub: NotifyHub) -> None:
        self._engine = engine
        self._hub = hub
        self._notifier = Notifier(hub, self._send)
        self._listener: NotifyListener | None = None
        self._gated = False  # whether limits applied to the last plain jobs
        self._plain = Coalescer[NewJob, EnqueueResult](self._enqueue_plain)
        decide = self._decide
        self._keyed = LockedJobRetry[NewJob, EnqueueResult](
            partial(decide, enqueue_jobs.enqueue_keyed)
        )
        apply = partial(decide, apply_requests.apply)
        self._transitions = LockedJobRetry[ApplyRequest, ApplyResult](self._apply, apply)
        # Separate: a cancel may change many thousand dependents, and settles must not wait for it.
        self._cancels_and_signals = LockedJobRetry[ApplyRequest, ApplyResult](self._apply, apply)
        self._record = LockedJobRetry[AttemptRecords, ApplyResult](
            partial(decide, apply_requests.record)
        )

    # -- writes

    async def enqueue(
        self, requested: Sequence[NewJob], *, atomic: bool = False
    ) -> list[EnqueueResult]:
        if atomic and requested:
            return self._decided(await self._together(requested, self._engine.config.timeout))
        if all(new.plain for new in requested):
            return await self._plain(requested)
        return self._decided(await self._keyed(requested, self._engine.config.timeout))

    async def _together(
        self, requested: Sequence[NewJob], seconds: float
    ) -> list[EnqueueResult | None]:
        """Enqueue in a call of its own: a refusal must not affect jobs of other callers."""
        return await LockedJobRetry[NewJob, EnqueueResult](
            partial(self._decide, enqueue_jobs.enqueue_atomic)
        )(requested, seconds)

    async def record(self, attempt_records: Sequence[AttemptRecords]) -> list[ApplyResult]:
        return self._decided(await self._record(attempt_records, WORKER_LOCK_TIMEOUT))

    async def apply(self, requests: Sequence[ApplyRequest]) -> list[ApplyResult]:
        """Apply requests. Workers and sweepers get BUSY for locked jobs: they retry later."""
        triggers = {_trigger(request) for request in requests}
        timeout = self._engine.config.timeout
        if None in triggers:
            return self._decided(await self._cancels_and_signals(requests, timeout))
        if triggers <= SWEEPER_TRIGGERS:
            results = await self._transitions(requests, 0)
        elif triggers <= SETTLING:
            results = await self._transitions(requests, WORKER_LOCK_TIMEOUT)
        else:
            return self._decided(await self._transitions(requests, timeout))
        return [apply_requests.BUSY if result is None else result for result in results]

    def _decided(self, results: Sequence[T | None]) -> list[T]:
        decided = [result for result in results if result is not None]
        if len(decided) < len(results):
            raise StoreUnavailableError(
                f"an open transaction on {self._engine.config.where} has locked one of these jobs "
                "or its key: find it in pg_stat_activity, and commit it sooner"
            )
        return decided

    async def _enqueue_plain(self, requested: Sequence[NewJob]) -> list[EnqueueResult]:
        """Try the short statement first, unless limits applied to the last call."""
        engine = self._engine
        if not self._gated:
            try:
                results = await engine.run(
                    lambda c: enqueue_jobs.enqueue_plain(c, requested, engine.now())
                )
            except LimitApplies:
                self._gated = True
            else:
                self.notify(work=True)
                return results
        results, batch = await engine.run(
            lambda c: enqueue_jobs.enqueue_gated(c, requested, engine.now(), engine.shard),
            in_transaction=True,
        )
        self._gated = batch.gates_marked
        self.notify(batch.touched, work=batch.work)
        return results

    async def _decide(self, run: Decide[S, T], items: Sequence[S]) -> list[T]:
        engine = self._engine
        results, batch = await engine.run(
            lambda c: run(c, items, engine.now(), engine.shard), in_transaction=True
        )
        self.notify(batch.touched, work=batch.work)
        return results

    async def _apply(self, requests: Sequence[ApplyRequest]) -> list[ApplyResult | None]:
        """Settle plain successes in one statement; decide the rest one by one."""
        engine = self._engine
        results: dict[int, ApplyResult | None] = {**apply_requests.check(requests)}
        rest = {index: request for index, request in enumerate(requests) if index not in results}
        plain = successes.select_plain(rest)
        opened_gates: list[str] = []
        if plain:
            is_whole_call = len(plain) == len(rest)
            done, admitted, opened_gates = await engine.run(
                lambda c: successes.settle_successes(
                    c, plain, engine.now(), engine.shard, is_whole_call=is_whole_call
                )
            )
            self.notify((*done, *admitted) if admitted else done, work=bool(admitted))
            if len(done) == len(requests):
                return [apply_requests.SUCCEEDED] * len(requests)
            for index, request in list(rest.items()):
                if request.job_id in done:
                    results[index] = apply_requests.SUCCEEDED
                    del rest[index]
        if rest:
            decided = await self._decide(
                partial(apply_requests.apply, opened_gates=opened_gates), list(rest.values())
            )
            results |= zip(rest, decided, strict=True)
        return [results[index] for index in range(len(requests))]

    # -- notifications

    def notify(self, touched: Iterable[UUID] = (), *, work: bool = False) -> None:
        self._notifier.notify(touched, work=work)

    async def _send(self, message: str) -> None:
        timeout = min(self._engine.config.timeout, NOTIFY_TIMEOUT)
        await self._engine.run(lambda c: c.fetch(SQL.notify, CHANNEL, message, timeout=timeout))

    async def listen(self, seconds: float) -> bool:
        """Start the listener; return whether this call waited for it."""
        if self._listener is None:
            config = self._engine.config.listening
            if config is None:
                return False
            self._listener = NotifyListener(self._hub, config, self._send)
        if self._listener.ready.is_set():
            return False
        with contextlib.suppress(TimeoutError):  # then it polls
            async with asyncio.timeout(seconds):
                await self._listener.ready.wait()
        return True

    async def close(self) -> None:
        """Wait for running calls, then stop the listener and send the last notifications."""
        for calls in (
            self._plain, self._keyed, self._transitions, self._cancels_and_signals, self._record,
        ):  # fmt: skip
            await calls.finish()
        if self._listener is not None:
            await self._listener.close()
        await self._notifier.finish()


def _trigger(request: ApplyRequest) -> Trigger | None:
    """Return the trigger of a transition; None for a cancel or a signal."""
    return request.trigger if isinstance(request, Transition) else None
