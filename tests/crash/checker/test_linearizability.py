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

from windlass.core.decisions.outcome import Outcome, Released, Snoozed, Succeeded, settle, sweep
from windlass.core.decisions.transition import ApplyResult, CancelRequest
from windlass.core.event import EventType, Record
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.store import AttemptRecords, Store
from windlass.stores import open_store
from windlass.stores.memory import MemoryStore
from windlass.testing.factories import claim_all, make_job, no_jitter

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


def ends(
    at: float, fence: int, answer: str | None, state: str | None = None, *,
    word: str = "succeed", token: str = "a", lasts: float = 1,
) -> Call:  # fmt: skip
    kind = Kind.RESCUE if word in {"crash", "give-up"} else Kind.SETTLE
    return Call(
        kind=kind, began=at, ended=at + lasts, fence=fence, token=token, word=word,
        answer=answer, state=state,
    )  # fmt: skip


def cancel(at: float, answer: str, state: str, lasts: float = 1) -> Call:
    return Call(kind=Kind.CANCEL, began=at, ended=at + lasts, answer=answer, state=state)


BEGUN = (enqueue(0), claim(2, 1))
CRASHED = (*BEGUN, ends(20, 1, "applied", "queued", word="crash"))
TRUE = {
    "a plain life": (*BEGUN, ends(4, 1, "applied", "succeeded")),
    "a settle that is repeated": (
        *BEGUN, ends(4, 1, None, lasts=inf), ends(6, 1, "applied", "succeeded"),
        ends(8, 1, "applied", "succeeded"),
    ),
    "a ghost that is refused": (
        *CRASHED, claim(22, 2, token="b"), ends(24, 1, "stale"), extend(26, 1, "stale"),
        ends(28, 2, "applied", "succeeded", token="b"),
    ),
    "a claim whose answer was lost": (
        enqueue(0), claim(2, 1, received=False), ends(20, 1, "applied", "queued", word="crash"),
        claim(22, 2, token="b"), ends(24, 2, "applied", "succeeded", token="b"),
    ),
    "a cancel that comes while the success does": (
        *BEGUN, ends(4, 1, "applied", "canceled", lasts=3), cancel(5, "applied", "running"),
    ),
    "a cancel that comes too late": (
        *BEGUN, cancel(4, "conflict", "succeeded", lasts=3), ends(5, 1, "applied", "succeeded"),
    ),
    "a release, and again from the start": (
        *BEGUN, ends(4, 1, "applied", "queued", word="release"), claim(6, 2, token="b"),
        extend(8, 1, "stale"), ends(10, 2, "applied", "succeeded", token="b"),
    ),
    "a rescue that is too late by a hair": (
        *BEGUN, extend(9, 1, "applied"), ends(12, 1, "stale", word="crash"),
    ),
    "a lease that a shorter extension leaves as it is": (
        *BEGUN, extend(4, 1, "applied")._replace(seconds=1), ends(11, 1, "stale", word="crash"),
    ),
    "a holder that says something": (
        *BEGUN, record(4, 1, "applied"), ends(6, 1, "applied", "succeeded"),
    ),
    "something said while the lease is lost": (
        *BEGUN, ends(20, 1, "applied", "queued", word="crash", lasts=4),
        record(21, 1, "applied"), record(22, 1, "stale", "queued", lasts=3),
    ),
    "something said before the claim was heard of": (
        enqueue(0), claim(2, 1)._replace(ended=9.0), record(4, 1, "applied"),
    ),
    "a row that counts what happened": (
        *CRASHED, claim(22, 2, token="b"),
        ends(24, 2, "applied", "retrying", word="retry", token="b"),
        read(26, "retrying", 2, errors=1, crashes=1),
    ),
    "a row that was asked to stop, and did": (
        *BEGUN, cancel(4, "applied", "running"), read(6, "running", 1, cancel=True),
        ends(8, 1, "applied", "canceled", word="retry"), read(10, "canceled", 1, cancel=True),
    ),
    "a row that is not there yet": (read(0, "none", 0), enqueue(2), read(4, "created", 0)),
    "a settle that nobody heard, and arrives when its job is another's": (
        *BEGUN, ends(4, 1, None, lasts=inf), ends(20, 1, "applied", "queued", word="crash"),
        claim(22, 2, token="b"), ends(24, 2, "applied", "succeeded", token="b"),
        read(26, "succeeded", 2, crashes=1),
    ),
    "a claim that nobody heard, and arrives after its repeat was settled": (
        enqueue(0), claim(2, 1, received=False), claim(4, 1),
        ends(6, 1, "applied", "queued", word="release"),
        ends(30, 2, "applied", "queued", word="crash"), claim(32, 3, token="b"),
    ),
    "a cancel that nobody heard, and arrives later": (
        enqueue(0), Call(kind=Kind.CANCEL, began=1), claim(2, 1), read(4, "running", 1),
        ends(6, 1, "applied", "canceled"), read(8, "canceled", 1, cancel=True),
    ),
}  # fmt: skip
FALSE = {
    "a ghost that is heard": (
        *CRASHED, claim(22, 2, token="b"), ends(24, 1, "applied", "succeeded"),
        ends(28, 2, "stale", token="b"),
    ),
    "two ends": (
        *CRASHED, claim(22, 2, token="b"), ends(24, 1, "applied", "succeeded"),
        ends(28, 2, "applied", "succeeded", token="b"),
    ),
    "two holders": (*BEGUN, claim(4, 2, token="b")),
    "two holders of one fence": (*BEGUN, claim(4, 1, token="b")),
    "a fence that is skipped": (*CRASHED, claim(22, 3, token="b")),
    "a rescue before the lease ran out": (
        *BEGUN, ends(4, 1, "applied", "queued", word="crash"),
    ),
    "a rescue although it was extended": (
        *BEGUN, extend(11, 1, "applied"), ends(14, 1, "applied", "queued", word="crash"),
    ),
    "a rescue that nobody heard, before the lease ran out": (
        *BEGUN, ends(4, 1, None, word="crash", lasts=inf), claim(6, 2, token="b"),
    ),
    "a rescue that was answered late, and cannot have waited for the lease": (
        *BEGUN, ends(4, 1, "applied", "queued", word="crash", lasts=40), claim(6, 2, token="b"),
    ),
    "an extension after the rescue": (*CRASHED, extend(22, 1, "applied")),
    "an accepted cancel that is overruled": (
        *BEGUN, cancel(4, "applied", "running"), ends(6, 1, "applied", "succeeded"),
    ),
    "an accepted cancel that the keeper is not told of": (
        *BEGUN, cancel(4, "applied", "running"), extend(6, 1, "applied", cancel=False),
    ),
    "a cancel that is refused by a job that waits": (enqueue(0), cancel(2, "conflict", "queued")),
    "a claim of a job that is over": (
        *BEGUN, ends(4, 1, "applied", "succeeded"), claim(6, 2, token="b"),
    ),
    "a holder that is told it is stale": (*BEGUN, ends(4, 1, "stale")),
    "a settle that is answered before it can be": (
        enqueue(0), ends(2, 1, "applied", "succeeded"), claim(4, 1),
    ),
    "a ghost that is heard to say something": (
        *CRASHED, claim(22, 2, token="b"), record(24, 1, "applied"),
    ),
    "something said after the end": (
        *BEGUN, ends(4, 1, "applied", "succeeded"), record(6, 1, "applied", "succeeded"),
    ),
    "something said before the claim": (enqueue(0), record(2, 1, "applied"), claim(4, 1)),
    "something said with the token of another": (*BEGUN, record(4, 1, "applied", token="b")),
    "a holder that may not speak": (
        *BEGUN, record(4, 1, "stale"), ends(6, 1, "applied", "succeeded"),
    ),
    "a row that is not what its job was told": (
        *BEGUN, ends(4, 1, "applied", "succeeded"), read(6, "canceled", 1),
    ),
    "a row that forgot its last claim": (*BEGUN, read(4, "running", 0)),
    "a row that counts an attempt too many": (*BEGUN, read(4, "running", 1, attempt=2)),
    "a crash that is not counted": (*CRASHED, read(22, "queued", 1)),
    "a crash that is counted twice": (*CRASHED, read(22, "queued", 1, crashes=2)),
    "a release that counts as an error": (
        *BEGUN, ends(4, 1, "applied", "queued", word="release"), read(6, "queued", 1, errors=1),
    ),
    "an accepted cancel that is not in the row": (
        *BEGUN, cancel(4, "applied", "running"), read(6, "running", 1),
    ),
    "a job that was accepted and is gone": (enqueue(0), read(2, "none", 0)),
    "a settle that nobody heard, and that ends the attempt of another": (
        *BEGUN, ends(4, 1, None, lasts=inf), ends(20, 1, "applied", "queued", word="crash"),
        claim(22, 2, token="b"), read(24, "succeeded", 2, crashes=1),
    ),
    "a claim that nobody heard, and that took the job out of another's hands": (
        enqueue(0), claim(2, 1, received=False), claim(4, 1, token="b"), read(6, "running", 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TRUE)
def test_what_can_have_happened_is_believed(name: str) -> None:
    assert explain(TRUE[name]) is None


@pytest.mark.parametrize("name", FALSE)
def test_what_cannot_have_happened_is_not(name: str) -> None:
    assert "no call fits" in (explain(FALSE[name]) or "")


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
        doings = (self._claim, self._extend, self._settle, self._settle, self._cancel, self._sweep,
                  self._say)  # fmt: skip
        async with self._store:
            for _ in range(turns):
                await self._random.choice(doings)()
                await asyncio.sleep(self._random.uniform(0, 0.004))

    async def _claim(self) -> None:
        self._held += await claim_all(self._store, limit=3, worker=self._name, lease=0.03)

    async def _extend(self) -> None:
        """Also leases that were lost long ago."""
        if some := self._random.sample(self._held, min(3, len(self._held))):
            await self._store.extend([row.lease for row in some], 0.03)

    async def _settle(self) -> None:
        if self._held:
            row = self._random.choice(self._held)
            outcomes: list[Outcome] = [Succeeded(result=b"1"), Released(), Snoozed(delay=0)]
            outcome = self._random.choice(outcomes)
            await self._store.apply([settle(row, outcome, random=no_jitter)])
            if self._random.random() < 0.7:
                self._held.remove(row)

    async def _say(self) -> None:
        if some := self._random.sample(self._held, min(3, len(self._held))):
            message = [Record(n=1, type=EventType.LOG, body=b"1")]
            await self._store.record([AttemptRecords(row.lease, message) for row in some])

    async def _cancel(self) -> None:
        if self._random.random() < 0.1:
            await self._store.cancel([CancelRequest(job_id=self._random.choice(self._jobs))])

    async def _sweep(self) -> None:
        seen = [*await self._store.due(5), *await self._store.expired(5)]
        await asyncio.sleep(self._random.uniform(0, 0.01))
        if seen:
            await self._store.apply([sweep(row, random=no_jitter) for row in seen])


async def race(root: Store, clients: int = 4, turns: int = 300) -> list[str]:
    """What of the histories cannot have happened. Each client has a thread and a loop."""
    history = CallHistory(time.time)
    store = HistoryRecordingStore(root, history)
    jobs = [make_job() for _ in range(60)]
    await store.enqueue(jobs)
    ids = [job.id for job in jobs]
    hands = [Client(store.twin(), ids, seed) for seed in range(clients)]
    threads = [Thread(target=asyncio.run, args=(hand.run(turns),)) for hand in hands]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    await store.get(ids)
    return [violation for job in ids if (violation := history.explain_violation(job)) is not None]


async def test_clients_that_race_on_sqlite_are_answered_in_some_order(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/jobs.db") as store:
        assert await race(store) == []


async def test_clients_that_race_in_memory_are_answered_in_some_order() -> None:
    assert await race(MemoryStore()) == []


class HearsGhosts(broken_stores.Broken):
    """Accepts records from any worker for a running job."""

    def _record(self, entry: AttemptRecords) -> ApplyResult:
        row = self._data.jobs[entry.lease.job_id]
        if row.state is State.RUNNING:
            entry = AttemptRecords(row.lease, entry.records)
        return super()._record(entry)


@pytest.mark.slow
@pytest.mark.parametrize(
    "store", [broken_stores.SettlesByIdOnly, broken_stores.ClaimsTwice, HearsGhosts]
)
async def test_a_race_finds_a_store_that_accepts_stale_workers(store: Callable[..., Store]) -> None:
    assert await race(store()) != []
