"""Linearizability of histories of claims, extensions, records, settles, cancels and reads.

First handwritten histories, some with one error that must be found; then clients that race on a
store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from random import Random
from threading import Thread
from uuid import UUID

import pytest
from benchmarks.chaos.call_history import CallHistory, HistoryRecordingStore
from benchmarks.chaos.checks.linearizability import Call, Kind, explain, shown
from tests.testing import broken_stores

from windlass.core.decisions.maintenance import sweep
from windlass.core.decisions.outcome import Outcome, Released, Snoozed, Succeeded, settle
from windlass.core.decisions.transition import ApplyResult, CancelRequest
from windlass.core.event import EventType, Record
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.store import AttemptRecords, Store
from windlass.stores import open_store
from windlass.stores.memory import MemoryStore
from windlass.testing.factories import claim_all, expired_jobs, make_job, no_jitter

LEASE = 10.0


def enqueue(at: float) -> Call:
    return Call(kind=Kind.ENQUEUE, began=at, ended=at + 1, answer="applied")


def claim(at: float, fence: int, *, token: str = "a", received: bool = True) -> Call:
    """A claim without a received response has an unknown fence."""
    return Call(
        kind=Kind.CLAIM,
        began=at,
        ended=at + 1 if received else inf,
        token=token,
        seconds=LEASE,
        fence=fence if received else 0,
        answer="applied" if received else None,
        state="running" if received else None,
    )


def extend(at: float, fence: int, answer: str, *, token: str = "a", cancel: bool = False) -> Call:
    return Call(
        kind=Kind.EXTEND, began=at, ended=at + 1, fence=fence, token=token, seconds=LEASE,
        answer=answer, cancel=cancel,
    )  # fmt: skip


def record(
    at: float,
    fence: int,
    answer: str,
    state: str = "running",
    *,
    token: str = "a",
    lasts: float = 1,
) -> Call:
    return Call(
        kind=Kind.RECORD, began=at, ended=at + lasts, fence=fence, token=token, answer=answer,
        state=state,
    )  # fmt: skip


def read(
    at: float, state: str, fence: int, *, attempt: int | None = None, errors: int = 0,
    crashes: int = 0, cancel: bool = False,
) -> Call:  # fmt: skip
    row = shown(
        state=state, fence=fence, attempt=fence if attempt is None else attempt, errors=errors,
        crashes=crashes, cancel=cancel,
    )  # fmt: skip
    return Call(kind=Kind.READ, began=at, ended=at + 1, answer="seen", state=row)


def end(
    at: float, fence: int, answer: str | None, state: str | None = None, *,
    trigger: str = "succeed", token: str = "a", lasts: float = 1,
) -> Call:  # fmt: skip
    kind = Kind.RESCUE if trigger in {"crash", "give-up"} else Kind.SETTLE
    return Call(
        kind=kind, began=at, ended=at + lasts, fence=fence, token=token, trigger=trigger,
        answer=answer, state=state,
    )  # fmt: skip


def cancel(at: float, answer: str, state: str, lasts: float = 1) -> Call:
    return Call(kind=Kind.CANCEL, began=at, ended=at + lasts, answer=answer, state=state)


CLAIMED = (enqueue(0), claim(2, 1))
CRASHED = (*CLAIMED, end(20, 1, "applied", "queued", trigger="crash"))
LINEARIZABLE = {
    "one successful attempt": (*CLAIMED, end(4, 1, "applied", "succeeded")),
    "a repeated settle": (
        *CLAIMED, end(4, 1, None, lasts=inf), end(6, 1, "applied", "succeeded"),
        end(8, 1, "applied", "succeeded"),
    ),
    "a stale worker that is refused": (
        *CRASHED, claim(22, 2, token="b"), end(24, 1, "stale"), extend(26, 1, "stale"),
        end(28, 2, "applied", "succeeded", token="b"),
    ),
    "a claim with a lost response": (
        enqueue(0), claim(2, 1, received=False), end(20, 1, "applied", "queued", trigger="crash"),
        claim(22, 2, token="b"), end(24, 2, "applied", "succeeded", token="b"),
    ),
    "a cancel during the settle": (
        *CLAIMED, end(4, 1, "applied", "canceled", lasts=3), cancel(5, "applied", "running"),
    ),
    "a cancel after the end": (
        *CLAIMED, cancel(4, "conflict", "succeeded", lasts=3), end(5, 1, "applied", "succeeded"),
    ),
    "a release, and a new claim": (
        *CLAIMED, end(4, 1, "applied", "queued", trigger="release"), claim(6, 2, token="b"),
        extend(8, 1, "stale"), end(10, 2, "applied", "succeeded", token="b"),
    ),
    "a rescue just after an extension": (
        *CLAIMED, extend(9, 1, "applied"), end(12, 1, "stale", trigger="crash"),
    ),
    "a shorter extension that leaves the lease unchanged": (
        *CLAIMED, extend(4, 1, "applied")._replace(seconds=1), end(11, 1, "stale", trigger="crash"),
    ),
    "a record of the lease holder": (
        *CLAIMED, record(4, 1, "applied"), end(6, 1, "applied", "succeeded"),
    ),
    "records during a rescue": (
        *CLAIMED, end(20, 1, "applied", "queued", trigger="crash", lasts=4),
        record(21, 1, "applied"), record(22, 1, "stale", "queued", lasts=3),
    ),
    "a record before the response of the claim": (
        enqueue(0), claim(2, 1)._replace(ended=9.0), record(4, 1, "applied"),
    ),
    "a row with correct counts": (
        *CRASHED, claim(22, 2, token="b"),
        end(24, 2, "applied", "retrying", trigger="retry", token="b"),
        read(26, "retrying", 2, errors=1, crashes=1),
    ),
    "a row with a cancel request that took effect": (
        *CLAIMED, cancel(4, "applied", "running"), read(6, "running", 1, cancel=True),
        end(8, 1, "applied", "canceled", trigger="retry"), read(10, "canceled", 1, cancel=True),
    ),
    "a read before the enqueue": (read(0, "none", 0), enqueue(2), read(4, "created", 0)),
    "a late settle after the next claim": (
        *CLAIMED, end(4, 1, None, lasts=inf), end(20, 1, "applied", "queued", trigger="crash"),
        claim(22, 2, token="b"), end(24, 2, "applied", "succeeded", token="b"),
        read(26, "succeeded", 2, crashes=1),
    ),
    "a late claim after its repeat was settled": (
        enqueue(0), claim(2, 1, received=False), claim(4, 1),
        end(6, 1, "applied", "queued", trigger="release"),
        end(30, 2, "applied", "queued", trigger="crash"), claim(32, 3, token="b"),
    ),
    "a late cancel": (
        enqueue(0), Call(kind=Kind.CANCEL, began=1), claim(2, 1), read(4, "running", 1),
        end(6, 1, "applied", "canceled"), read(8, "canceled", 1, cancel=True),
    ),
}  # fmt: skip
NOT_LINEARIZABLE = {
    "a settle of a stale worker that is applied": (
        *CRASHED, claim(22, 2, token="b"), end(24, 1, "applied", "succeeded"),
        end(28, 2, "stale", token="b"),
    ),
    "two applied settles": (
        *CRASHED, claim(22, 2, token="b"), end(24, 1, "applied", "succeeded"),
        end(28, 2, "applied", "succeeded", token="b"),
    ),
    "two lease holders": (*CLAIMED, claim(4, 2, token="b")),
    "two lease holders with one fence": (*CLAIMED, claim(4, 1, token="b")),
    "a skipped fence": (*CRASHED, claim(22, 3, token="b")),
    "a rescue before lease expiry": (
        *CLAIMED, end(4, 1, "applied", "queued", trigger="crash"),
    ),
    "a rescue after an extension": (
        *CLAIMED, extend(11, 1, "applied"), end(14, 1, "applied", "queued", trigger="crash"),
    ),
    "a rescue without a response before lease expiry": (
        *CLAIMED, end(4, 1, None, trigger="crash", lasts=inf), claim(6, 2, token="b"),
    ),
    "a slow rescue that cannot have waited for lease expiry": (
        *CLAIMED, end(4, 1, "applied", "queued", trigger="crash", lasts=40), claim(6, 2, token="b"),
    ),
    "an extension after the rescue": (*CRASHED, extend(22, 1, "applied")),
    "a success after an accepted cancel": (
        *CLAIMED, cancel(4, "applied", "running"), end(6, 1, "applied", "succeeded"),
    ),
    "an extension that does not report an accepted cancel": (
        *CLAIMED, cancel(4, "applied", "running"), extend(6, 1, "applied", cancel=False),
    ),
    "a refused cancel of a queued job": (enqueue(0), cancel(2, "conflict", "queued")),
    "a claim of an ended job": (
        *CLAIMED, end(4, 1, "applied", "succeeded"), claim(6, 2, token="b"),
    ),
    "a refused settle of the lease holder": (*CLAIMED, end(4, 1, "stale")),
    "a settle before the claim": (
        enqueue(0), end(2, 1, "applied", "succeeded"), claim(4, 1),
    ),
    "an applied record of a stale worker": (
        *CRASHED, claim(22, 2, token="b"), record(24, 1, "applied"),
    ),
    "a record after the end": (
        *CLAIMED, end(4, 1, "applied", "succeeded"), record(6, 1, "applied", "succeeded"),
    ),
    "a record before the claim": (enqueue(0), record(2, 1, "applied"), claim(4, 1)),
    "a record with the token of another claim": (*CLAIMED, record(4, 1, "applied", token="b")),
    "a refused record of the lease holder": (
        *CLAIMED, record(4, 1, "stale"), end(6, 1, "applied", "succeeded"),
    ),
    "a row with another final state": (
        *CLAIMED, end(4, 1, "applied", "succeeded"), read(6, "canceled", 1),
    ),
    "a row without its last claim": (*CLAIMED, read(4, "running", 0)),
    "a row with one attempt too many": (*CLAIMED, read(4, "running", 1, attempt=2)),
    "an uncounted crash": (*CRASHED, read(22, "queued", 1)),
    "a crash that is counted twice": (*CRASHED, read(22, "queued", 1, crashes=2)),
    "a release that counts as an error": (
        *CLAIMED, end(4, 1, "applied", "queued", trigger="release"), read(6, "queued", 1, errors=1),
    ),
    "an accepted cancel that is not in the row": (
        *CLAIMED, cancel(4, "applied", "running"), read(6, "running", 1),
    ),
    "a missing row of an accepted job": (enqueue(0), read(2, "none", 0)),
    "a late settle that ends the attempt of another worker": (
        *CLAIMED, end(4, 1, None, lasts=inf), end(20, 1, "applied", "queued", trigger="crash"),
        claim(22, 2, token="b"), read(24, "succeeded", 2, crashes=1),
    ),
    "a late claim that takes a running job": (
        enqueue(0), claim(2, 1, received=False), claim(4, 1, token="b"), read(6, "running", 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LINEARIZABLE)
def test_a_linearizable_history_is_accepted(name: str) -> None:
    assert explain(LINEARIZABLE[name]) is None


@pytest.mark.parametrize("name", NOT_LINEARIZABLE)
def test_a_history_that_is_not_linearizable_is_rejected(name: str) -> None:
    assert "no call fits" in (explain(NOT_LINEARIZABLE[name]) or "")


# -- races on real stores


class Client:
    """Makes random calls on jobs that other clients use, too."""

    def __init__(self, store: Store, jobs: list[UUID], seed: int) -> None:
        self._store = store
        self._jobs = jobs
        self._random = Random(seed)
        self._held: list[JobRow] = []
        self._name = f"client-{seed}"

    async def run(self, turns: int) -> None:
        calls = (self._claim, self._extend, self._settle, self._settle, self._cancel, self._sweep,
                  self._record)  # fmt: skip
        async with self._store:
            for _ in range(turns):
                await self._random.choice(calls)()
                await asyncio.sleep(self._random.uniform(0, 0.004))

    async def _claim(self) -> None:
        self._held += await claim_all(self._store, limit=3, worker=self._name, lease=0.03)

    async def _extend(self) -> None:
        """Extend some leases, also lost ones."""
        if rows := self._random.sample(self._held, min(3, len(self._held))):
            await self._store.extend([row.lease for row in rows], 0.03)

    async def _settle(self) -> None:
        if self._held:
            row = self._random.choice(self._held)
            outcomes: list[Outcome] = [Succeeded(result=b"1"), Released(), Snoozed(delay=0)]
            outcome = self._random.choice(outcomes)
            await self._store.apply([settle(row, outcome, random=no_jitter)])
            if self._random.random() < 0.7:
                self._held.remove(row)

    async def _record(self) -> None:
        if rows := self._random.sample(self._held, min(3, len(self._held))):
            message = [Record(n=1, type=EventType.LOG, body=b"1")]
            await self._store.record([AttemptRecords(row.lease, message) for row in rows])

    async def _cancel(self) -> None:
        if self._random.random() < 0.1:
            await self._store.apply([CancelRequest(job_id=self._random.choice(self._jobs))])

    async def _sweep(self) -> None:
        seen = [*await self._store.due(5), *await expired_jobs(self._store, 5)]
        await asyncio.sleep(self._random.uniform(0, 0.01))
        if seen:
            await self._store.apply([sweep(row, random=no_jitter) for row in seen])


async def race(root: Store, clients: int = 4, turns: int = 300) -> list[str]:
    """Return the non-linearizable histories. Each client has a thread and an event loop."""
    history = CallHistory(time.time)
    store = HistoryRecordingStore(root, history)
    jobs = [make_job() for _ in range(60)]
    await store.enqueue(jobs)
    ids = [job.id for job in jobs]
    workers = [Client(store.twin(), ids, seed) for seed in range(clients)]
    threads = [Thread(target=asyncio.run, args=(worker.run(turns),)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    await store.get(ids)
    return [violation for job in ids if (violation := history.explain_violation(job)) is not None]


async def test_racing_clients_on_sqlite_have_linearizable_histories(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/jobs.db") as store:
        assert await race(store) == []


async def test_racing_clients_in_memory_have_linearizable_histories() -> None:
    assert await race(MemoryStore()) == []


class AcceptsStaleRecords(broken_stores.Broken):
    """Accepts records from any worker for a running job."""

    def _record(self, entry: AttemptRecords) -> ApplyResult:
        row = self._data.jobs[entry.lease.job_id]
        if row.state is State.RUNNING:
            entry = AttemptRecords(row.lease, entry.records)
        return super()._record(entry)


@pytest.mark.slow
@pytest.mark.parametrize(
    "store", [broken_stores.SettlesByIdOnly, broken_stores.ClaimsTwice, AcceptsStaleRecords]
)
async def test_a_race_detects_a_store_that_accepts_stale_workers(
    store: Callable[..., Store],
) -> None:
    assert await race(store()) != []
