"""Small calls over HTTP that are made at once share requests, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import pytest_asyncio
from tests.server.conftest import PATIENCE, Served, serving
from tests.server.remote.test_store_access import make_key
from tests.stores.server_fixture import OPEN

from windlass import Windlass
from windlass.core.decisions.enqueue import EnqueueStatus
from windlass.core.decisions.outcome import Succeeded, settle, submit
from windlass.core.decisions.transition import Transition
from windlass.core.errors import NotFoundError, StoreDeniedError, StoreUnavailableError
from windlass.core.ids import uuid7
from windlass.core.job.lease import Lease
from windlass.core.job.state import State, Trigger
from windlass.server.auth.api_keys import Role
from windlass.server.config import Door, ServerConfig
from windlass.store import Saying, Store
from windlass.stores.http import HttpConfig, HttpStore
from windlass.stores.http.combined_calls import SMALL
from windlass.stores.memory import MemoryStore
from windlass.testing import make_job
from windlass.testing.factories import claim_all, even, note
from windlass.testing.wrapped_store import WrappedStore

AT_ONCE = 32


class Slow(WrappedStore):
    """Holds the first call of a verb until it is let go, and counts the items of each."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.sizes: dict[str, list[int]] = {}
        self.come, self.go = Event(), Event()

    def wrap(self, store: Store) -> Slow:
        return self

    async def around(self, verb: str, call: Any) -> Any:
        return await call()

    async def _held(self, verb: str, items: Any) -> None:
        sizes = self.sizes.setdefault(verb, [])
        sizes.append(len(items))
        if len(sizes) == 1:
            self.come.set()
            await asyncio.to_thread(self.go.wait, PATIENCE)

    async def enqueue(self, jobs: Any, *, together: bool = False) -> Any:
        await self._held("enqueue", jobs)
        return await self.store.enqueue(jobs, together=together)

    async def apply(self, transitions: Any) -> Any:
        await self._held("apply", transitions)
        return await self.store.apply(transitions)

    async def record(self, sayings: Any) -> Any:
        await self._held("record", sayings)
        return await self.store.record(sayings)

    async def extend(self, leases: Any, seconds: float) -> Any:
        await self._held("extend", leases)
        return await self.store.extend(leases, seconds)


@pytest.fixture
def slow() -> Slow:
    return Slow(MemoryStore())


@pytest.fixture
def served(slow: Slow, tmp_path: Path) -> Iterator[Served]:
    app = Windlass("memory:", data=tmp_path)
    with app.stand_in(slow, tmp_path), serving(tmp_path, OPEN, app=app) as one:
        yield one


@pytest_asyncio.fixture
async def store(served: Served) -> AsyncIterator[HttpStore]:
    async with HttpStore(HttpConfig(url=served.url)) as one:
        yield one


async def at_once(slow: Slow, *calls: Any) -> list[Any]:
    """The first is under way when the others come."""
    slow.come.clear()
    slow.go.clear()
    first = asyncio.ensure_future(calls[0])
    await asyncio.to_thread(slow.come.wait, PATIENCE)
    others = [asyncio.ensure_future(call) for call in calls[1:]]
    await asyncio.sleep(0)  # they have been called
    await asyncio.sleep(0)
    slow.go.set()
    async with asyncio.timeout(PATIENCE):
        return await asyncio.gather(first, *others, return_exceptions=True)


async def test_what_comes_while_a_call_is_under_way_is_sent_as_one(
    store: HttpStore, slow: Slow
) -> None:
    jobs = [make_job(queue="q") for _ in range(AT_ONCE)]
    put = await at_once(slow, *(store.enqueue([job]) for job in jobs))
    assert slow.sizes["enqueue"] == [1, AT_ONCE - 1]
    assert [answer.new.id for [answer] in put] == [job.id for job in jobs]
    rows = await claim_all(store, "q", limit=AT_ONCE)
    assert [row.id for row in rows] == [job.id for job in jobs], "in the order in which they came"

    leases = [Lease(row.id, row.fence, row.token) for row in rows if row.token]
    lengths = [30.0 if place % 2 else 60.0 for place in range(AT_ONCE)]
    pairs = zip(leases, lengths, strict=True)
    longer = await at_once(slow, *(store.extend([lease], length) for lease, length in pairs))
    assert slow.sizes["extend"] == [1, AT_ONCE // 2, AT_ONCE // 2 - 1], "once for each length"
    assert all(answer.lease_until is not None for [answer] in longer)
    assert max(a.lease_until for [a] in longer[1::2]) < min(a.lease_until for [a] in longer[0::2])

    sayings = [Saying(lease, [note(1, f"says {lease.job_id}")]) for lease in leases]
    said = await at_once(slow, *(store.record([one]) for one in sayings))
    assert slow.sizes["record"] == [1, AT_ONCE - 1]
    assert all(answer.applied for [answer] in said)

    wishes = [settle(row, Succeeded(), random=even) for row in rows]
    ended = await at_once(slow, *(store.apply([one]) for one in wishes))
    assert slow.sizes["apply"] == [1, AT_ONCE - 1]
    assert all(answer.state is State.SUCCEEDED for [answer] in ended)


async def test_a_bad_job_is_refused_alone(store: HttpStore, slow: Slow) -> None:
    jobs = [
        make_job(),
        make_job(),
        make_job(depends_on=(uuid7(),)),
        make_job(headers={"x": "\ud800"}),
        make_job(priority="high"),
        make_job(),
    ]
    answers = await at_once(slow, *(store.enqueue([job]) for job in jobs))
    told = [one if isinstance(one, Exception) else one[0].status for one in answers]
    good, bad = EnqueueStatus.CREATED, EnqueueStatus.REFUSED
    assert [one for place, one in enumerate(told) if place != 3] == [good, good, bad, bad, good]
    assert isinstance(answers[2][0].error, NotFoundError)
    assert told[3] is not good
    assert [row is not None for row in await store.get([job.id for job in jobs])] == [
        True, True, False, False, False, True,
    ]  # fmt: skip


async def test_large_calls_have_requests_of_their_own(store: HttpStore, slow: Slow) -> None:
    many = [make_job() for _ in range(SMALL + 1)]
    await at_once(
        slow, *(store.enqueue(jobs) for jobs in ([make_job()], [make_job()], many, [make_job()]))
    )
    assert sorted(slow.sizes["enqueue"]) == [1, 2, SMALL + 1]


async def test_what_must_come_together_stays_apart_from_others(
    store: HttpStore, slow: Slow
) -> None:
    pair = [make_job(), make_job(depends_on=(uuid7(),))]
    first, both, last = await at_once(
        slow, store.enqueue([make_job()]), store.enqueue(pair, together=True),
        store.enqueue([make_job()]),
    )  # fmt: skip
    assert [one.accepted for one in (*first, *both, *last)] == [True, False, False, True]


async def test_who_gives_up_takes_nobody_along(store: HttpStore, slow: Slow) -> None:
    jobs = [make_job() for _ in range(3)]
    slow.come.clear()
    calls = [asyncio.ensure_future(store.enqueue([jobs[0]]))]
    await asyncio.to_thread(slow.come.wait, PATIENCE)
    calls += [asyncio.ensure_future(store.enqueue([job])) for job in jobs[1:]]
    await asyncio.sleep(0)
    calls[1].cancel()
    slow.go.set()
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(done[1], asyncio.CancelledError)
    assert not isinstance(done[2], BaseException)
    assert done[2][0].accepted


async def test_to_close_waits_for_what_was_gathered(served: Served, slow: Slow) -> None:
    store = HttpStore(HttpConfig(url=served.url))
    jobs = [make_job() for _ in range(3)]
    calls = [asyncio.ensure_future(store.enqueue([jobs[0]]))]
    await asyncio.to_thread(slow.come.wait, PATIENCE)
    calls += [asyncio.ensure_future(store.enqueue([job])) for job in jobs[1:]]
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    slow.go.set()
    await closing
    assert all(call.done() for call in calls)
    assert all(one.accepted for [one] in await asyncio.gather(*calls))


async def test_a_server_that_is_away_fails_all_of_them() -> None:
    async with HttpStore(HttpConfig(url="http://127.0.0.1:1", again=())) as store:
        calls = [store.enqueue([make_job()]) for _ in range(3)]
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, StoreUnavailableError)


def test_a_handle_goes_on_in_another_event_loop(served: Served, slow: Slow) -> None:
    """Even one whose calls were cut off with their loop."""
    store = HttpStore(HttpConfig(url=served.url))

    async def cut_off() -> None:
        asyncio.ensure_future(store.enqueue([make_job()]))  # noqa: RUF006 - it is to be lost
        await asyncio.to_thread(slow.come.wait, PATIENCE)

    asyncio.run(cut_off())
    slow.go.set()
    [answer] = asyncio.run(store.enqueue([make_job()]))
    assert answer.accepted


async def test_what_a_key_may_not_do_is_refused_alone(tmp_path: Path) -> None:
    slow = Slow(MemoryStore())
    app = Windlass("memory:", data=tmp_path)
    config = ServerConfig(door=Door.KEYS)
    with app.stand_in(slow, tmp_path), serving(tmp_path, config, app=app) as served:
        slow.go.set()
        key = make_key(served, Role.PRODUCER)
        async with HttpStore(HttpConfig(url=served.url, key=key)) as store:
            jobs = [make_job(hold=True) for _ in range(3)]
            await store.enqueue(jobs)
            promote = Transition(job_id=jobs[1].id, fence=0, trigger=Trigger.PROMOTE)
            wishes = [submit(jobs[0].id), promote, submit(jobs[2].id)]
            first, second, third = await at_once(slow, *(store.apply([one]) for one in wishes))
    assert first[0].applied
    assert isinstance(second, StoreDeniedError)
    assert third[0].applied
