"""Concurrent small calls over HTTP share requests, but fail separately."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import pytest_asyncio
from tests.server.conftest import WAIT_TIMEOUT, LiveServer, run_server
from tests.server.remote.test_store_access import make_key
from tests.stores.http_server import OPEN

from windlass import Windlass
from windlass.core.decisions.enqueue import EnqueueStatus
from windlass.core.decisions.outcome import Succeeded, settle
from windlass.core.decisions.transition import Transition, submit
from windlass.core.errors import NotFoundError, StoreDeniedError, StoreUnavailableError
from windlass.core.ids import uuid7
from windlass.core.job.lease import Lease
from windlass.core.job.state import State, Trigger
from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig
from windlass.store import AttemptRecords, Store
from windlass.stores.http import HttpConfig, HttpStore
from windlass.stores.http.call_coalescer import MAX_COALESCED
from windlass.stores.memory import MemoryStore
from windlass.testing import make_job
from windlass.testing.factories import claim_all, log_record, no_jitter
from windlass.testing.wrapped_store import WrappedStore

CALLS = 32


class BlockingStore(WrappedStore):
    """Blocks the first call of a method until it is released, and counts the items of each call."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.sizes: dict[str, list[int]] = {}
        self.started, self.release = Event(), Event()

    def wrap(self, store: Store) -> BlockingStore:
        return self

    async def around(self, method: str, call: Any) -> Any:
        return await call()

    async def _block_first(self, method: str, items: Any) -> None:
        sizes = self.sizes.setdefault(method, [])
        sizes.append(len(items))
        if len(sizes) == 1:
            self.started.set()
            await asyncio.to_thread(self.release.wait, WAIT_TIMEOUT)

    async def enqueue(self, jobs: Any, *, atomic: bool = False) -> Any:
        await self._block_first("enqueue", jobs)
        return await self.store.enqueue(jobs, atomic=atomic)

    async def apply(self, transitions: Any) -> Any:
        await self._block_first("apply", transitions)
        return await self.store.apply(transitions)

    async def record(self, attempt_records: Any) -> Any:
        await self._block_first("record", attempt_records)
        return await self.store.record(attempt_records)

    async def extend(self, leases: Any, seconds: float) -> Any:
        await self._block_first("extend", leases)
        return await self.store.extend(leases, seconds)


@pytest.fixture
def slow() -> BlockingStore:
    return BlockingStore(MemoryStore())


@pytest.fixture
def served(slow: BlockingStore, tmp_path: Path) -> Iterator[LiveServer]:
    app = Windlass("memory:", data=tmp_path)
    with app.replace_store(slow, tmp_path), run_server(tmp_path, OPEN, app=app) as served:
        yield served


@pytest_asyncio.fixture
async def store(served: LiveServer) -> AsyncIterator[HttpStore]:
    async with HttpStore(HttpConfig(url=served.url)) as opened:
        yield opened


async def run_concurrently(slow: BlockingStore, *calls: Any) -> list[Any]:
    """Run the calls; the first one is in progress when the others start."""
    slow.started.clear()
    slow.release.clear()
    first = asyncio.ensure_future(calls[0])
    await asyncio.to_thread(slow.started.wait, WAIT_TIMEOUT)
    others = [asyncio.ensure_future(call) for call in calls[1:]]
    await asyncio.sleep(0)  # both calls have started
    await asyncio.sleep(0)
    slow.release.set()
    async with asyncio.timeout(WAIT_TIMEOUT):
        return await asyncio.gather(first, *others, return_exceptions=True)


async def test_calls_made_during_a_request_are_combined(
    store: HttpStore, slow: BlockingStore
) -> None:
    jobs = [make_job(queue="q") for _ in range(CALLS)]
    enqueued = await run_concurrently(slow, *(store.enqueue([job]) for job in jobs))
    assert slow.sizes["enqueue"] == [1, CALLS - 1]
    assert [answer.new.id for [answer] in enqueued] == [job.id for job in jobs]
    rows = await claim_all(store, "q", limit=CALLS)
    assert [row.id for row in rows] == [job.id for job in jobs], "in order of arrival"

    leases = [Lease(row.id, row.fence, row.token) for row in rows if row.token]
    lengths = [30.0 if index % 2 else 60.0 for index in range(CALLS)]
    pairs = zip(leases, lengths, strict=True)
    longer = await run_concurrently(
        slow, *(store.extend([lease], length) for lease, length in pairs)
    )
    assert slow.sizes["extend"] == [1, CALLS // 2, CALLS // 2 - 1], "once per duration"
    assert all(answer.lease_until is not None for [answer] in longer)
    assert max(a.lease_until for [a] in longer[1::2]) < min(a.lease_until for [a] in longer[0::2])

    attempt_records = [
        AttemptRecords(lease, [log_record(1, f"log of {lease.job_id}")]) for lease in leases
    ]
    recorded = await run_concurrently(slow, *(store.record([entry]) for entry in attempt_records))
    assert slow.sizes["record"] == [1, CALLS - 1]
    assert all(answer.applied for [answer] in recorded)

    transitions = [settle(row, Succeeded(), random=no_jitter) for row in rows]
    ended = await run_concurrently(slow, *(store.apply([transition]) for transition in transitions))
    assert slow.sizes["apply"] == [1, CALLS - 1]
    assert all(answer.state is State.SUCCEEDED for [answer] in ended)


async def test_a_bad_job_is_refused_alone(store: HttpStore, slow: BlockingStore) -> None:
    jobs = [
        make_job(),
        make_job(),
        make_job(depends_on=(uuid7(),)),
        make_job(headers={"x": "\ud800"}),
        make_job(priority="high"),
        make_job(),
    ]
    answers = await run_concurrently(slow, *(store.enqueue([job]) for job in jobs))
    outcomes = [answer if isinstance(answer, Exception) else answer[0].status for answer in answers]
    good, bad = EnqueueStatus.CREATED, EnqueueStatus.REFUSED
    assert [outcome for index, outcome in enumerate(outcomes) if index != 3] == [
        good,
        good,
        bad,
        bad,
        good,
    ]
    assert isinstance(answers[2][0].error, NotFoundError)
    assert outcomes[3] is not good
    assert [row is not None for row in await store.get([job.id for job in jobs])] == [
        True, True, False, False, False, True,
    ]  # fmt: skip


async def test_large_calls_are_not_combined(store: HttpStore, slow: BlockingStore) -> None:
    many = [make_job() for _ in range(MAX_COALESCED + 1)]
    await run_concurrently(
        slow, *(store.enqueue(jobs) for jobs in ([make_job()], [make_job()], many, [make_job()]))
    )
    assert sorted(slow.sizes["enqueue"]) == [1, 2, MAX_COALESCED + 1]


async def test_atomic_calls_are_not_combined(store: HttpStore, slow: BlockingStore) -> None:
    pair = [make_job(), make_job(depends_on=(uuid7(),))]
    first, both, last = await run_concurrently(
        slow, store.enqueue([make_job()]), store.enqueue(pair, atomic=True),
        store.enqueue([make_job()]),
    )  # fmt: skip
    assert [answer.accepted for answer in (*first, *both, *last)] == [True, False, False, True]


async def test_a_cancelled_call_cancels_no_other(store: HttpStore, slow: BlockingStore) -> None:
    jobs = [make_job() for _ in range(3)]
    slow.started.clear()
    calls = [asyncio.ensure_future(store.enqueue([jobs[0]]))]
    await asyncio.to_thread(slow.started.wait, WAIT_TIMEOUT)
    calls += [asyncio.ensure_future(store.enqueue([job])) for job in jobs[1:]]
    await asyncio.sleep(0)
    calls[1].cancel()
    slow.release.set()
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(done[1], asyncio.CancelledError)
    assert not isinstance(done[2], BaseException)
    assert done[2][0].accepted


async def test_close_waits_for_combined_calls(served: LiveServer, slow: BlockingStore) -> None:
    store = HttpStore(HttpConfig(url=served.url))
    jobs = [make_job() for _ in range(3)]
    calls = [asyncio.ensure_future(store.enqueue([jobs[0]]))]
    await asyncio.to_thread(slow.started.wait, WAIT_TIMEOUT)
    calls += [asyncio.ensure_future(store.enqueue([job])) for job in jobs[1:]]
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    slow.release.set()
    await closing
    assert all(call.done() for call in calls)
    assert all(answer.accepted for [answer] in await asyncio.gather(*calls))


async def test_an_unreachable_server_fails_all_combined_calls() -> None:
    async with HttpStore(HttpConfig(url="http://127.0.0.1:1", connect_retries=())) as store:
        calls = [store.enqueue([make_job()]) for _ in range(3)]
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, StoreUnavailableError)


def test_a_handle_works_in_another_event_loop(served: LiveServer, slow: BlockingStore) -> None:
    """Also after its calls were lost with their event loop."""
    store = HttpStore(HttpConfig(url=served.url))

    async def cut_off() -> None:
        asyncio.ensure_future(store.enqueue([make_job()]))  # noqa: RUF006 - lost on purpose
        await asyncio.to_thread(slow.started.wait, WAIT_TIMEOUT)

    asyncio.run(cut_off())
    slow.release.set()
    [answer] = asyncio.run(store.enqueue([make_job()]))
    assert answer.accepted


async def test_a_call_without_permission_is_refused_alone(tmp_path: Path) -> None:
    slow = BlockingStore(MemoryStore())
    app = Windlass("memory:", data=tmp_path)
    config = ServerConfig(auth=AuthMode.KEYS)
    with app.replace_store(slow, tmp_path), run_server(tmp_path, config, app=app) as served:
        slow.release.set()
        key = make_key(served, Role.PRODUCER)
        async with HttpStore(HttpConfig(url=served.url, key=key)) as store:
            jobs = [make_job(hold=True) for _ in range(3)]
            await store.enqueue(jobs)
            promote = Transition(job_id=jobs[1].id, fence=0, trigger=Trigger.PROMOTE)
            transitions = [submit(jobs[0].id), promote, submit(jobs[2].id)]
            first, second, third = await run_concurrently(
                slow, *(store.apply([transition]) for transition in transitions)
            )
    assert first[0].applied
    assert isinstance(second, StoreDeniedError)
    assert third[0].applied
