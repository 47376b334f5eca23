"""Group commit: concurrent calls share commits, but fail separately."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
import pytest_asyncio

from windlass.core.decisions.outcome import Succeeded
from windlass.core.errors import StoreUnavailableError
from windlass.core.query.job_query import JobQuery
from windlass.store import Retention
from windlass.stores.sqlite import SqliteConfig, SqliteStore
from windlass.stores.sqlite.engine import MAX_JOBS_PER_COMMIT
from windlass.stores.sqlite.writes.write_calls import WriteCall
from windlass.stores.sqlite.writes.write_transaction import WriteTransaction
from windlass.stores.wakeup import Wakeup
from windlass.testing.factories import claim_all, make_job, settle_one
from windlass.testing.power_cut import DiskOperation, PowerCutDisk

CALLS = 300
SOON = 10.0


class Counting:
    """Counts the syncs of a disk, the cost of a commit."""

    def __init__(self) -> None:
        self.syncs = 0

    def __call__(self, moment: DiskOperation, name: str) -> None:
        self.syncs += moment == "sync"


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(tmp_path / "jobs.db", durability="off") as store:
        await store.ping()
        yield store


async def test_concurrent_enqueues_take_far_fewer_syncs_than_calls(tmp_path: Path) -> None:
    count = Counting()
    disk = PowerCutDisk(hook=count)
    config = SqliteConfig(path=str(tmp_path / "jobs.db"), exclusive=True, vfs=disk.name)
    async with SqliteStore("", config=config) as store:
        await store.ping()
        before = count.syncs
        answers = await asyncio.gather(*(store.enqueue([make_job()]) for _ in range(CALLS)))
        assert all(answer.accepted for [answer] in answers)
        assert 1 <= count.syncs - before <= CALLS // 10
    disk.close()


async def test_a_single_call_is_one_commit(tmp_path: Path) -> None:
    count = Counting()
    disk = PowerCutDisk(hook=count)
    config = SqliteConfig(path=str(tmp_path / "jobs.db"), exclusive=True, vfs=disk.name)
    async with SqliteStore("", config=config) as store:
        await store.enqueue([make_job()])
        before = count.syncs
        await store.enqueue([make_job() for _ in range(50)])
        assert count.syncs - before == 1
    disk.close()


async def in_one_group(
    store: SqliteStore, *runs: Callable[[WriteTransaction], object], size: int = 1
) -> list[object | BaseException]:
    """Run calls in one group: they queue up while a transaction is open."""
    transaction = store.transaction()
    calls = [asyncio.create_task(store._engine.write(run, size)) for run in runs]
    await asyncio.sleep(0)
    transaction.commit()
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_one_failing_call_of_a_group_does_not_fail_the_others(
    store: SqliteStore,
) -> None:
    def put(key: str) -> Callable[[WriteTransaction], str]:
        def run(tx: WriteTransaction) -> str:
            tx.connection.execute(
                "INSERT INTO windlass_record VALUES ('k', ?, x'00', 1, NULL)", (key,)
            )
            return key

        return run

    def bad(tx: WriteTransaction) -> str:
        put("half")(tx)
        raise ValueError("not today")

    answers = await in_one_group(store, put("a"), bad, put("b"), put("a"), put("c"))
    assert answers[0] == "a"
    assert isinstance(answers[1], ValueError)
    assert answers[2] == "b"
    assert not isinstance(answers[3], str), "the same key twice"
    assert answers[4] == "c"
    assert [entry.key for entry in await store.list_records("k")] == ["a", "b", "c"]


async def test_a_group_is_one_transaction(store: SqliteStore) -> None:
    seen: list[int] = []

    def record(tx: WriteTransaction) -> None:
        seen.append(id(tx))

    await in_one_group(store, *[record] * 20)
    assert len(seen) == 20
    assert len(set(seen)) == 1


async def test_large_calls_are_committed_in_separate_groups(store: SqliteStore) -> None:
    seen = await in_one_group(store, *[lambda tx: tx] * 5, size=MAX_JOBS_PER_COMMIT // 2)
    assert [seen.index(tx) for tx in seen] == [0, 0, 2, 2, 4]


async def test_every_call_has_its_number_of_jobs(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    submit = store._engine._submit

    def record(call: WriteCall[Any]) -> None:
        sizes.append(call.size)
        submit(call)

    monkeypatch.setattr(store._engine, "_submit", record)
    jobs = [make_job() for _ in range(3)]
    await store.enqueue(jobs, atomic=True)
    rows = await claim_all(store, limit=4)
    await store.extend([row.lease for row in rows], 60)
    await store.delete([job.id for job in jobs])
    await store.prune(Retention(), 7)
    assert sizes == [3, 4, 3, 3, 7]


async def test_concurrent_calls_return_their_own_results(
    store: SqliteStore,
) -> None:
    jobs = [make_job(unique_key=str(number % 50)) for number in range(200)]
    answers = await asyncio.gather(*(store.enqueue([job]) for job in jobs))
    assert [answer.new.id for [answer] in answers] == [job.id for job in jobs]
    assert sum(answer.status == "created" for [answer] in answers) == 50
    claims = await asyncio.gather(*(claim_all(store, limit=3) for _ in range(30)))
    claimed = [row for rows in claims for row in rows]
    assert len({row.id for row in claimed}) == len(claimed) == 50
    settled = await asyncio.gather(*(settle_one(store, row, Succeeded()) for row in claimed))
    assert all(answer.applied for answer in settled)


async def test_a_cancelled_call_is_stored_whole_or_not_at_all(
    store: SqliteStore,
) -> None:
    batches = [[make_job() for _ in range(7)] for _ in range(60)]
    calls = [asyncio.create_task(store.enqueue(batch)) for batch in batches]
    for number, call in enumerate(calls):
        if number % 5 == 0:
            await asyncio.sleep(0)
        if number % 2:
            call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    await store.ping()  # all earlier calls have finished
    for number, batch in enumerate(batches):
        stored = [row is not None for row in await store.get([job.id for job in batch])]
        assert all(stored) or (number % 2 and not any(stored))


async def test_a_failing_commit_leaves_no_trace_of_any_call(tmp_path: Path) -> None:
    broken: list[bool] = []

    def fail(moment: DiskOperation, name: str) -> None:
        if broken and moment == "sync":
            raise apsw.IOError("as planned")

    disk = PowerCutDisk(hook=fail)
    config = SqliteConfig(path=str(tmp_path / "jobs.db"), exclusive=True, vfs=disk.name)
    async with SqliteStore("", config=config) as store:
        await store.ping()
        jobs = [make_job() for _ in range(20)]
        broken.append(True)
        calls = (store.enqueue([job]) for job in jobs)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(answer, StoreUnavailableError) for answer in answers)
        broken.clear()
        assert await store.get([job.id for job in jobs]) == [None] * 20
    disk.close()


# -- closing


async def test_closing_finishes_earlier_calls(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteStore(path, durability="off")
    jobs = [make_job() for _ in range(100)]
    tasks = [asyncio.create_task(store.enqueue([job])) for job in jobs]
    await asyncio.sleep(0)
    await asyncio.wait_for(store.close(), SOON)
    await asyncio.gather(*tasks)
    async with SqliteStore(path, durability="off") as again:
        assert None not in await again.get([job.id for job in jobs])


async def test_calls_made_while_closing_are_stored_or_refused_and_never_hang(
    tmp_path: Path,
) -> None:
    for number in range(20):
        path = tmp_path / f"{number}.db"
        store = SqliteStore(path, durability="off")
        await store.ping()
        closing = asyncio.create_task(store.close())
        jobs = [make_job() for _ in range(30)]
        answers: list[object] = []
        for job in jobs:
            async with asyncio.timeout(SOON):
                [answer] = await asyncio.gather(store.enqueue([job]), return_exceptions=True)
            answers.append(answer)
        await closing
        async with SqliteStore(path, durability="off") as again:
            rows = await again.get([job.id for job in jobs])
        for outcome, row in zip(answers, rows, strict=True):
            assert isinstance(outcome, StoreUnavailableError) == (row is None)


async def test_a_closed_store_raises(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db", durability="off")
    await store.ping()
    await store.close()
    await store.close()
    for call in (
        store.enqueue([make_job()]),
        store.get([make_job().id]),
        store.find(JobQuery()),
        store.ping(),
        claim_all(store),
        store.wait(["default"], 0.01),
    ):
        with pytest.raises(StoreUnavailableError, match=r"jobs\.db is closed"):
            await call
    with pytest.raises(StoreUnavailableError, match="closed"):
        store.transaction()


async def test_a_closed_handle_is_closed_though_its_twin_is_open(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db", durability="off")
    async with store.twin() as twin:
        await store.close()
        with pytest.raises(StoreUnavailableError, match="closed"):
            await store.enqueue([make_job()])
        [answer] = await twin.enqueue([make_job()])
        assert answer.accepted


async def test_closing_leaves_one_file_and_no_thread(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db", durability="off")
    await store.enqueue([make_job()])
    await store.find(JobQuery())
    thread = store._engine._thread
    assert thread is not None
    await store.close()
    assert not thread.is_alive()
    names = await asyncio.to_thread(lambda: [path.name for path in tmp_path.iterdir()])
    assert names == ["jobs.db"]


async def test_a_subscription_during_a_write_is_notified(
    store: SqliteStore,
) -> None:
    """Otherwise it would wait for the poll: it read the state before the commit."""
    engine = store._engine
    job = make_job()
    subscription = engine.job_wakeups.subscribe(job.id)

    def write(tx: WriteTransaction) -> Wakeup:
        wakeup = subscription.__enter__()
        tx.touch(job.id)
        return wakeup

    wakeup = await engine.write(write)
    subscription.__exit__(None, None, None)
    assert wakeup.count == 1
