"""An open transaction blocks its own jobs and keys, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.stores.postgres.consistency_checks import inconsistencies
from tests.stores.postgres.server import execute
from tests.worker.event_waits import eventually
from tests.worker.workers import running_worker

from windlass import Context, Windlass
from windlass.core.decisions.enqueue import EnqueueStatus
from windlass.core.decisions.outcome import Failed, Succeeded, settle, succeed
from windlass.core.decisions.transition import ApplyRequest, CancelRequest, Status, Transition
from windlass.core.errors import StoreUnavailableError
from windlass.core.ids import uuid7
from windlass.core.job.lease import ExtendResult
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery
from windlass.store import AttemptRecords, Retention
from windlass.stores.postgres import PostgresConfig, PostgresStore
from windlass.stores.postgres.writes import apply_requests, writer
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    claim_all,
    get_one,
    log_record,
    make_failure,
    make_job,
    no_jitter,
    start_one,
    sweep_all,
)

SOON = 10.0  # seconds; only a wait for the open transaction takes longer
LOCK = "SELECT FROM windlass_job WHERE id = $1 FOR UPDATE"
HOLD = "SELECT windlass_enqueue($1::jsonb)"
BY_KEY = '{{"id": "{id}", "task": "default", "unique_key": "{key}", "debounce": {debounce}}}'


@asynccontextmanager
async def open_transaction(url: str, sql: str, *given: object) -> AsyncIterator[Any]:
    """Run a statement in a transaction that stays open; roll it back at the end of the block."""
    connection: Any = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.fetch(sql, *given)
        yield transaction
    finally:
        await connection.close()


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(PostgresConfig(url=postgres_url, timeout=2 * SOON)) as opened:
        yield opened


async def two_running(store: PostgresStore) -> tuple[JobRow, JobRow]:
    await store.enqueue([make_job(), make_job()])
    held, free = await claim_all(store)
    return held, free


def settle_statement(store: PostgresStore, row: JobRow) -> tuple[str, str]:
    """Return the statement of `settle_within` and its parameter."""
    sql, text = store.settlement(succeed(row, Succeeded(result=b"1")))
    return sql.replace(":argument", "$1"), text


# -- lease extensions


async def test_one_locked_job_does_not_expire_the_leases_of_others(
    store: PostgresStore, postgres_url: str
) -> None:
    held, free = await two_running(store)
    async with open_transaction(postgres_url, *settle_statement(store, held)):
        async with asyncio.timeout(SOON):
            first, second = await store.extend([held.lease, free.lease], 3600)

        assert free.lease_until is not None
        assert second.lease_until is not None
        assert second.lease_until > free.lease_until
        assert first == ExtendResult(lease_until=held.lease_until), (
            "the lease is neither lost nor extended"
        )


async def test_a_lease_is_extended_as_soon_as_its_job_is_unlocked(
    store: PostgresStore, postgres_url: str
) -> None:
    held = await start_one(store)
    async with open_transaction(postgres_url, *settle_statement(store, held)) as transaction:
        await store.extend([held.lease], 3600)
        await transaction.rollback()

        async def longer() -> bool:
            now = (await get_one(store, held.id)).lease_until
            return now is not None and held.lease_until is not None and now > held.lease_until

        await eventually(longer)


async def test_a_lease_whose_job_succeeded_meanwhile_is_lost(
    store: PostgresStore, postgres_url: str
) -> None:
    held = await start_one(store)
    async with open_transaction(postgres_url, *settle_statement(store, held)) as transaction:
        await store.extend([held.lease], 3600)
        await transaction.commit()
    [answer] = await store.extend([held.lease], 3600)
    assert answer.stale
    await eventually(lambda: asyncio.sleep(0, store._leases._task is None))


# -- settles, records, cancels


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["success", "failure"])
async def test_one_locked_job_blocks_no_other_settle(
    store: PostgresStore, postgres_url: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ending(row: JobRow) -> Transition:
        outcome = Succeeded() if kind == "success" else Failed(failure=make_failure(terminal=True))
        return settle(row, outcome, random=no_jitter)

    held, free = await two_running(store)
    async with open_transaction(postgres_url, LOCK, held.id) as transaction:
        async with asyncio.timeout(SOON):
            first, second = await store.apply([ending(held), ending(free)])
        assert (first.status, second.status) == (Status.BUSY, Status.APPLIED)
        assert (await get_one(store, held.id)).state is State.RUNNING
        monkeypatch.setattr(writer, "WORKER_LOCK_TIMEOUT", SOON)
        waiting = asyncio.ensure_future(store.apply([ending(held)]))
        await transaction.rollback()

        [answer] = await waiting
        assert answer.status is Status.APPLIED
    assert await inconsistencies(postgres_url) == {}


@pytest.mark.slow
async def test_a_worker_settles_others_while_one_is_locked(
    postgres_url: str, tmp_path: Path
) -> None:
    app = Windlass(postgres_url, data=tmp_path)
    connection: Any = await asyncpg.connect(postgres_url)
    transaction = connection.transaction()

    @app.task
    async def commits_late(ctx: Context) -> str:
        await transaction.start()
        await ctx.asettle_within(connection, "paid")
        return "paid"  # before the commit

    @app.task
    async def quick() -> str:
        return "done"

    async with running_worker(app), asyncio.timeout(2 * SOON):
        left = await commits_late.aenqueue()
        await eventually(lambda: asyncio.sleep(0, connection.is_in_transaction()))
        for _ in range(20):
            assert await (await quick.aenqueue()).aresult() == "done"
        await transaction.rollback()
        assert await left.aresult() == "paid"
        row = (await left.arefresh()).row
    assert (row.attempt, row.crash_count) == (1, 0)
    await connection.close()
    await app.aclose()


@pytest.mark.slow
async def test_one_locked_job_blocks_no_records_of_others(
    store: PostgresStore, postgres_url: str
) -> None:
    held, free = await two_running(store)
    async with open_transaction(postgres_url, LOCK, held.id):
        blocked = asyncio.ensure_future(
            store.record([AttemptRecords(held.lease, [log_record(1, "x")])])
        )
        async with asyncio.timeout(SOON):
            [answer] = await store.record([AttemptRecords(free.lease, [log_record(1, "x")])])
            assert answer.applied
            with pytest.raises(
                StoreUnavailableError, match=r"open transaction .* pg_stat_activity"
            ):
                await blocked


async def test_one_locked_job_blocks_no_other_cancel(
    store: PostgresStore, postgres_url: str
) -> None:
    held, free = await two_running(store)
    async with open_transaction(postgres_url, LOCK, held.id) as transaction:
        blocked = asyncio.ensure_future(store.apply([CancelRequest(job_id=held.id)]))
        async with asyncio.timeout(SOON):
            [answer] = await store.apply([CancelRequest(job_id=free.id)])
        assert answer.applied
        assert not blocked.done()
        await transaction.rollback()
        assert (await blocked)[0].applied


async def test_requests_for_one_job_keep_their_order_while_one_waits(
    store: PostgresStore, postgres_url: str
) -> None:
    """The success waits for its locked dependent, so the cancel behind it waits, too."""
    row, free = await two_running(store)
    dependent = make_job(queue="later", depends_on=(row.id,))
    await store.enqueue([dependent])
    requests: list[ApplyRequest] = [
        settle(row, Succeeded(), random=no_jitter),
        CancelRequest(job_id=row.id),
        CancelRequest(job_id=free.id),
    ]
    async with open_transaction(postgres_url, LOCK, dependent.id) as transaction:
        blocked = asyncio.ensure_future(store.apply(requests))
        async with asyncio.timeout(SOON):
            while not (await get_one(store, free.id)).cancel_requested:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await get_one(store, row.id) == row, "neither settled nor asked to stop"
        await transaction.rollback()
        assert [(answer.status, answer.state) for answer in await blocked] == [
            ("applied", State.SUCCEEDED),
            ("conflict", State.SUCCEEDED),
            ("applied", State.RUNNING),
        ]


# -- maintenance


async def test_one_locked_job_blocks_no_other_rescue(postgres_url: str) -> None:
    clock = VirtualClock()
    async with PostgresStore(postgres_url, clock=clock) as store:
        held, free = await two_running(store)
        clock.advance(31)
        async with (
            open_transaction(postgres_url, LOCK, held.id) as transaction,
            asyncio.timeout(SOON),
        ):
            answers = await sweep_all(store)
            assert sorted(answer.status for answer in answers) == ["applied", "busy"]
            assert (await get_one(store, free.id)).crash_count == 1
            await transaction.rollback()
        await sweep_all(store)
        assert (await get_one(store, held.id)).crash_count == 1


async def test_one_locked_job_blocks_no_other_promotion(postgres_url: str) -> None:
    clock = VirtualClock()
    async with PostgresStore(postgres_url, clock=clock) as store:
        held, free = make_job(delay=5), make_job(delay=5)
        await store.enqueue([held, free])
        clock.advance(6)
        async with open_transaction(postgres_url, LOCK, held.id), asyncio.timeout(SOON):
            await sweep_all(store)
            assert (await get_one(store, free.id)).state is State.QUEUED


async def test_one_locked_job_blocks_no_other_prune(postgres_url: str) -> None:
    clock = VirtualClock()
    retention = Retention(succeeded=10, log=5)
    async with PostgresStore(postgres_url, clock=clock) as store:
        rows = held, free = await two_running(store)
        await store.record([AttemptRecords(row.lease, [log_record(1, "x")]) for row in rows])
        await store.apply([settle(row, Succeeded(), random=no_jitter) for row in rows])
        async with open_transaction(postgres_url, LOCK, held.id), asyncio.timeout(SOON):
            clock.advance(6)
            assert (await store.prune(retention, 100)).logs == 1
            clock.advance(5)
            assert (await store.prune(retention, 100)).jobs == 1
        assert await store.get([free.id]) == [None]
        assert (await store.prune(retention, 100)).jobs == 1
        assert await store.get([held.id]) == [None]
    assert await inconsistencies(postgres_url) == {}


# -- keys


def by_key(key: str, *, debounce: bool = False) -> str:
    return BY_KEY.format(id=make_job().id, key=key, debounce=str(debounce).lower())


async def test_an_open_debounced_enqueue_does_not_lock_a_running_job(
    store: PostgresStore, postgres_url: str
) -> None:
    row = await start_one(store, task="default", unique_key="k")
    async with (
        open_transaction(postgres_url, HOLD, by_key("k", debounce=True)),
        asyncio.timeout(SOON),
    ):
        [longer] = await store.extend([row.lease], 3600)
        assert longer.lease_until is not None
        assert row.lease_until is not None
        assert longer.lease_until > row.lease_until
        [answer] = await store.apply([settle(row, Succeeded(), random=no_jitter)])
        assert answer.applied


async def test_a_locked_key_blocks_no_other_key(store: PostgresStore, postgres_url: str) -> None:
    async with open_transaction(postgres_url, HOLD, by_key("taken")) as transaction:
        blocked = [
            asyncio.ensure_future(store.enqueue([make_job(task="default", unique_key="taken")]))
            for _ in range(20)  # more than there are connections
        ]
        async with asyncio.timeout(SOON):
            for key in ("a", "b"):
                others = [make_job(unique_key=key, request_id=key), make_job()]
                answers = await store.enqueue(others)
                assert [answer.status for answer in answers] == [EnqueueStatus.CREATED] * 2
            assert len(await claim_all(store)) == 4
        assert not any(call.done() for call in blocked)
        await transaction.rollback()
        statuses = [answer.status for [answer] in await asyncio.gather(*blocked)]
    assert sorted(statuses) == [EnqueueStatus.CREATED] + [EnqueueStatus.DUPLICATE] * 19


async def test_jobs_of_one_call_keep_their_order_when_a_key_is_locked(
    store: PostgresStore, postgres_url: str
) -> None:
    """The second job has the key of the first; the third has the request id of the second."""
    jobs = [
        make_job(task="default", unique_key="taken"),
        make_job(task="default", unique_key="taken", request_id="r"),
        make_job(task="default", unique_key="other", request_id="r"),
        make_job(task="default"),
    ]
    async with open_transaction(postgres_url, HOLD, by_key("taken")) as transaction:
        call = asyncio.ensure_future(store.enqueue(jobs))

        async def is_stored() -> bool:
            return bool((await store.get([jobs[3].id]))[0])

        await eventually(is_stored)
        assert await store.get([job.id for job in jobs[:3]]) == [None] * 3
        await transaction.rollback()
        answers = await call
    created = [answer.status is EnqueueStatus.CREATED for answer in answers]
    assert created == [True, False, True, True]


@pytest.mark.slow
async def test_a_child_whose_key_is_locked_blocks_no_other_settle(
    store: PostgresStore, postgres_url: str
) -> None:
    held, free = await two_running(store)
    child = make_job(task="default", unique_key="taken")
    transitions = [
        settle(held, Succeeded(), random=no_jitter, children=[child]),
        settle(free, Succeeded(), random=no_jitter, children=[make_job(unique_key="other")]),
    ]
    async with open_transaction(postgres_url, HOLD, by_key("taken")) as transaction:
        async with asyncio.timeout(SOON):
            first, second = await store.apply(transitions)
        assert (first.status, second.status) == (Status.BUSY, Status.APPLIED)
        await transaction.rollback()
    [answer] = await store.apply(transitions[:1])
    assert answer.applied
    assert (await get_one(store, child.id)).state is State.QUEUED


async def test_a_wait_for_a_locked_key_times_out_with_an_error(
    store: PostgresStore, postgres_url: str
) -> None:
    engine = store._shared_engine
    engine.config = replace(engine.config, timeout=0.3)  # of lock waits, not of statements
    async with open_transaction(postgres_url, HOLD, by_key("taken")):
        with pytest.raises(StoreUnavailableError, match=r"open transaction .* or its key"):
            await store.enqueue([make_job(task="default", unique_key="taken")])


async def test_closing_ends_the_wait_for_locked_jobs(
    store: PostgresStore, postgres_url: str
) -> None:
    held = await start_one(store)
    async with open_transaction(postgres_url, LOCK, held.id):
        await store.extend([held.lease], 3600)
        blocked = asyncio.ensure_future(store.apply([CancelRequest(job_id=held.id)]))
        await asyncio.sleep(0)
        async with asyncio.timeout(SOON):
            await store.close()
            with pytest.raises(StoreUnavailableError):
                await blocked


# -- queue rows of ended jobs


async def test_a_claim_that_fails_leaves_no_expired_queue_row(postgres_url: str) -> None:
    """The claim held the lock of the queue row when the job expired, and then failed."""
    clock = VirtualClock()
    async with PostgresStore(postgres_url, clock=clock) as store:
        await store.enqueue([make_job(expires_in=5), make_job(expires_in=5), make_job()])
        first = "SELECT FROM windlass_queued ORDER BY position LIMIT 1 FOR UPDATE"
        clock.advance(6)
        async with open_transaction(postgres_url, first):
            await sweep_all(store)
        assert len(await execute(postgres_url, "SELECT FROM windlass_queued")) == 2
        await claim_all(store)
        assert len(await execute(postgres_url, "SELECT FROM windlass_queued")) == 1

        await store.prune(Retention(), 100)

        assert await execute(postgres_url, "SELECT FROM windlass_queued") == []
        states = sorted(row.state for row in (await store.find(JobQuery())).rows)
        assert states == ["failed", "failed", "running"]
        assert await inconsistencies(postgres_url) == {}


async def test_the_queue_row_of_a_queued_expired_job_stays(postgres_url: str) -> None:
    clock = VirtualClock()
    async with PostgresStore(postgres_url, clock=clock) as store:
        await store.enqueue([make_job(expires_in=5)])
        clock.advance(6)
        await store.prune(Retention(), 100)
        assert await inconsistencies(postgres_url) == {}


# -- jobs that depend on jobs


async def test_a_locked_parent_blocks_no_claim_of_others(
    store: PostgresStore, postgres_url: str
) -> None:
    parent, *others = jobs = [make_job() for _ in range(3)]
    await store.enqueue(jobs)
    child = f'{{"task": "t", "queue": "children", "depends_on": ["{parent.id}"]}}'
    async with open_transaction(postgres_url, HOLD, child) as transaction:
        async with asyncio.timeout(2 * SOON):
            assert [row.id for row in await claim_all(store)] == [job.id for job in others]
        await transaction.commit()
    [row] = await claim_all(store)
    assert row.id == parent.id
    assert (await store.apply([succeed(row, Succeeded())]))[0].applied
    assert len(await claim_all(store, "children")) == 1
    assert await inconsistencies(postgres_url) == {}


async def test_a_dependent_of_a_job_with_a_locked_key_waits_with_it(
    store: PostgresStore, postgres_url: str
) -> None:
    parent = make_job(task="default", unique_key="k")
    child = make_job(depends_on=(parent.id,))
    other = BY_KEY.format(id=uuid7(), key="k", debounce="false")
    async with open_transaction(postgres_url, HOLD, other) as transaction:
        storing = asyncio.create_task(store.enqueue([parent, child]))
        await asyncio.sleep(0.3)
        await transaction.rollback()
        answers = await storing
    assert [answer.status for answer in answers] == [EnqueueStatus.CREATED] * 2


async def test_a_success_sees_a_child_that_was_committed_meanwhile(
    store: PostgresStore, postgres_url: str
) -> None:
    """The fast settle saw no dependents, waits for the lock, and then reads the job again."""
    parent = await start_one(store)
    child = f'{{"task": "t", "queue": "children", "depends_on": ["{parent.id}"]}}'
    async with open_transaction(postgres_url, HOLD, child) as transaction:
        settling = asyncio.create_task(store.apply([succeed(parent, Succeeded())]))
        await eventually(lambda: _waits_for_a_lock(postgres_url))
        await transaction.commit()
        [answer] = await settling
    assert answer.applied
    assert len(await claim_all(store, "children")) == 1
    assert await inconsistencies(postgres_url) == {}


async def _waits_for_a_lock(url: str) -> bool:
    waits = "wait_event_type = 'Lock' AND datname = current_database()"
    return bool(await execute(url, f"SELECT FROM pg_stat_activity WHERE {waits}"))


# -- jobs that depend on jobs


@pytest.mark.slow
async def test_a_locked_dependent_blocks_the_end_of_a_job_but_not_its_retry(
    store: PostgresStore, postgres_url: str
) -> None:
    """A retry, a release or a rescue does not affect dependents."""
    retried, ended = await two_running(store)
    waiting = make_job(depends_on=(retried.id, ended.id))
    await store.enqueue([waiting])
    async with open_transaction(postgres_url, LOCK, waiting.id):
        again = settle(retried, Failed(failure=make_failure()), random=no_jitter)
        async with asyncio.timeout(SOON):
            [answer] = await store.apply([again])
            [busy] = await store.apply([succeed(ended, Succeeded())])
        assert (answer.status, answer.state) == (Status.APPLIED, State.RETRYING)
        assert busy.status is Status.BUSY
    [answer] = await store.apply([succeed(ended, Succeeded())])
    assert answer.status is Status.APPLIED
    assert (await get_one(store, waiting.id)).waiting_for == 1
    assert await inconsistencies(postgres_url) == {}


async def test_only_direct_dependents_block_a_success(
    store: PostgresStore, postgres_url: str
) -> None:
    parent = await start_one(store)
    child = make_job(depends_on=(parent.id,))
    grandchild = make_job(depends_on=(child.id,))
    await store.enqueue([child, grandchild])
    async with open_transaction(postgres_url, LOCK, grandchild.id), asyncio.timeout(SOON):
        [answer] = await store.apply([succeed(parent, Succeeded())])
    assert (answer.status, answer.state) == (Status.APPLIED, State.SUCCEEDED)
    assert (await get_one(store, child.id)).state is State.QUEUED


# -- cancels


async def test_a_settle_does_not_wait_for_a_running_cancel_of_the_same_handle(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancel may change many thousand dependents."""
    apply, started, go = apply_requests.apply, asyncio.Event(), asyncio.Event()

    async def slow_cancel(connection: Any, requests: Any, *more: Any, **options: Any) -> Any:
        if isinstance(requests[0], CancelRequest):
            started.set()
            await go.wait()
        return await apply(connection, requests, *more, **options)

    monkeypatch.setattr(apply_requests, "apply", slow_cancel)
    async with PostgresStore(PostgresConfig(url=postgres_url)) as store:
        held, free = await two_running(store)
        canceling = asyncio.create_task(store.apply([CancelRequest(job_id=held.id)]))
        await asyncio.wait_for(started.wait(), SOON)
        [settled] = await asyncio.wait_for(store.apply([succeed(free, Succeeded())]), SOON)
        assert settled.applied
        go.set()
        [canceled] = await canceling
        assert canceled.applied
