"""Store wrappers that lose and repeat calls, or crash."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain, repeat
from typing import TypeVar

import pytest

from windlass.core.decisions.transition import Status
from windlass.core.errors import InvalidArgumentError, StoreUnavailableError
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.job.state import State
from windlass.core.versioned_record import Put
from windlass.store import Pruned, Retention, Store
from windlass.stores.memory import MemoryStore
from windlass.testing import VirtualClock, claim_all, make_job
from windlass.testing.crashing_store import CrashingStore, SimulatedCrash, kill_process
from windlass.testing.faulty_store import FaultyStore
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")
LOSE_REQUEST = 0.1
LOSE_ANSWER = 0.3
GO_THROUGH = 0.9


class Counted(WrappedStore):
    """Counts the calls that arrive."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.calls = Counter[str]()

    def wrap(self, store: Store) -> Counted:
        return Counted(store)

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls[verb] += 1
        return await call()


@pytest.fixture
def inner() -> Counted:
    return Counted(MemoryStore(clock=VirtualClock()))


def lots(*values: float) -> Callable[[], float]:
    """These, then nothing but luck."""
    drawn: Iterator[float] = chain(values, repeat(GO_THROUGH))
    return lambda: next(drawn)


def faulty(store: Store, *values: float, raise_lost: bool = False) -> FaultyStore:
    return FaultyStore(store, lots(*values), lose=0.2, repeat=0.2, raise_lost=raise_lost)


async def test_a_call_with_a_lost_response_is_repeated_with_one_effect(inner: Counted) -> None:
    store = faulty(inner, LOSE_ANSWER)
    job = make_job()

    [answer] = await store.enqueue([job])

    assert inner.calls["enqueue"] == 2
    assert answer.accepted
    assert len((await store.insights.stats())["default"].counts) == 1


async def test_a_lost_request_is_sent_again_and_arrives_once(inner: Counted) -> None:
    store = faulty(inner, LOSE_REQUEST)

    await store.enqueue([make_job()])

    assert inner.calls["enqueue"] == 1


async def test_a_repeated_claim_returns_the_same_jobs_to_the_same_worker(inner: Counted) -> None:
    await inner.enqueue([make_job(), make_job(), make_job()])
    store = faulty(inner, LOSE_ANSWER)

    rows = await claim_all(store, limit=2)

    assert inner.calls["claim"] == 2
    assert [row.fence for row in rows] == [1, 1]
    assert (await store.insights.stats())["default"].counts[State.QUEUED] == 1


@pytest.mark.parametrize(("lot", "stored"), [(LOSE_REQUEST, 0), (LOSE_ANSWER, 1)])
async def test_a_lost_request_and_a_lost_response_raise_the_same_error(
    inner: Counted, lot: float, stored: int
) -> None:
    store = faulty(inner, lot, raise_lost=True)
    job = make_job()

    with pytest.raises(StoreUnavailableError, match="lost"):
        await store.enqueue([job])

    assert len((await store.insights.stats()).keys()) == stored
    [answer] = await store.enqueue([job])
    assert answer.accepted


async def test_reads_and_deletions_are_never_repeated(inner: Counted) -> None:
    store = FaultyStore(inner, lambda: LOSE_ANSWER, lose=0.2, repeat=0.2, raise_lost=True)
    job = make_job(hold=True)
    await inner.enqueue([job])
    await inner.apply([])

    assert (await store.get([job.id]))[0] is not None
    assert [a.status for a in await store.delete([job.id])] == [Status.CONFLICT]
    assert await store.prune(Retention(), 10) == Pruned()
    assert inner.calls["delete"] == inner.calls["prune"] == inner.calls["get"] == 1


async def test_a_call_with_conflicting_items_is_not_repeated(inner: Counted) -> None:
    store = FaultyStore(inner, lambda: LOSE_ANSWER, lose=0.2, repeat=0.2)

    await store.enqueue([make_job(unique_key="k"), make_job(unique_key="k", debounce=True)])
    await store.put_records([Put(kind="k", key="a", value=b"1"), Put(kind="k", key="a", value=b"")])
    await store.put_records([Put(kind="k", key="b", value=b"1", ttl=5.0)])

    assert inner.calls["enqueue"] == 1
    assert inner.calls["put_records"] == 2


async def test_a_twin_of_a_faulty_store_is_faulty(inner: Counted) -> None:
    store = FaultyStore(inner, lambda: LOSE_ANSWER, lose=0.2, repeat=0.2, raise_lost=True)

    with pytest.raises(StoreUnavailableError):
        await store.twin().enqueue([make_job()])


async def test_delay_lets_other_calls_run_first(inner: Counted) -> None:
    store = FaultyStore(inner, lots(GO_THROUGH, GO_THROUGH), delay=True)

    [answer] = await store.enqueue([make_job()])

    assert answer.accepted


async def test_a_crash_before_a_call_stores_nothing(inner: Counted) -> None:
    store = CrashingStore(inner, "enqueue", nth=2)
    await store.enqueue([make_job()])

    with pytest.raises(SimulatedCrash):
        await store.enqueue([make_job()])

    assert inner.calls["enqueue"] == 1


async def test_a_crash_after_a_call_stores_everything(inner: Counted) -> None:
    await inner.enqueue([make_job()])
    store = CrashingStore(inner, "claim", when="after")

    with pytest.raises(SimulatedCrash):
        await claim_all(store)

    assert (await inner.insights.stats())["default"].counts == {State.RUNNING: 1}


async def test_after_a_crash_every_handle_fails(inner: Counted) -> None:
    store = CrashingStore(inner, "claim")
    twin = store.twin()
    with pytest.raises(SimulatedCrash):
        await twin.claim(Claim(token=uuid7(), worker="w", queues=[("default", 1)]))

    with pytest.raises(SimulatedCrash):
        await store.enqueue([make_job()])

    await store.close()
    assert inner.calls["enqueue"] == 0


def test_a_crashing_store_needs_an_existing_method() -> None:
    with pytest.raises(InvalidArgumentError, match="settle"):
        CrashingStore(MemoryStore(), "settle")


def test_kill_process_runs_no_handler() -> None:
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        try:
            kill_process()
        finally:
            os._exit(0)

    _, status = os.waitpid(child, 0)

    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
