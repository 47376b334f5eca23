"""Rows that limits leave in the file, and limits in transactions of the caller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from windlass.core.admission.limit import LIMIT, Limit, LimitSetting
from windlass.core.decisions.outcome import Released, settle
from windlass.core.job.state import State
from windlass.core.versioned_record import Put
from windlass.store import Retention
from windlass.stores.sqlite import SqliteStore, records
from windlass.stores.sqlite.writes import enqueue_jobs
from windlass.stores.sqlite.writes.write_transaction import WriteTransaction
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.limits.concurrency import enqueue_several, set_limit, settle_all
from windlass.testing.factories import cancel_one, claim_all, make_job, no_jitter, sweep_all

QUEUE, KEYS = "queue:default", "key:test.noop"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest_asyncio.fixture
async def store(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(tmp_path / "jobs.db", clock=clock, durability="off") as store:
        yield store


async def count(store: SqliteStore, table: str) -> object:
    rows = await store._engine.read(
        lambda connection: connection.execute(f"SELECT count(*) FROM {table}").fetchall()
    )
    return rows[0][0]


async def counted(store: SqliteStore) -> list[Any]:
    """Return the counters of gates, which must match their permits."""
    counted, actual = await store._engine.read(
        lambda connection: (
            connection.execute("SELECT gate, permits, holding FROM windlass_gate WHERE permits > 0 "
                               "ORDER BY gate").fetchall(),
            connection.execute("SELECT gate, count(*), sum(held) FROM windlass_permit "
                               "GROUP BY gate ORDER BY gate").fetchall(),
        )
    )  # fmt: skip
    assert counted == actual
    return counted


async def test_jobs_of_a_transaction_are_admitted_up_to_the_limit(
    store: SqliteStore,
) -> None:
    await set_limit(store, QUEUE, concurrency=2)
    await enqueue_several(store, 1)
    transaction = store.transaction()
    answers = [*transaction.enqueue([make_job()]), *transaction.enqueue([make_job()])]
    states = [answer.row.state for answer in answers if answer.row]
    transaction.commit()
    assert states == [State.QUEUED, State.CREATED]
    assert len(await claim_all(store)) == 2


async def test_a_rolled_back_transaction_frees_its_slot(store: SqliteStore) -> None:
    await set_limit(store, QUEUE, concurrency=1)
    transaction = store.transaction()
    transaction.enqueue([make_job()])
    transaction.rollback()
    [row] = await enqueue_several(store, 1)
    assert [claimed.id for claimed in await claim_all(store)] == [row.id]


async def test_a_limit_applies_to_jobs_enqueued_in_the_same_transaction(store: SqliteStore) -> None:
    """A transaction reads the names of limits once, and again after it changed them."""
    limit = LimitSetting(override=Limit(concurrency=1)).encode()

    def run(tx: WriteTransaction) -> list[str | None]:
        enqueue_jobs.enqueue(tx, [make_job()])
        records.put_records(tx, [Put(kind=LIMIT, key=QUEUE, value=limit)])
        answers = enqueue_jobs.enqueue(tx, [make_job(), make_job()])
        return [answer.row.gate for answer in answers if answer.row]

    assert await store._engine.write(run) == [None, QUEUE]


async def test_idle_gates_leave_no_rows(store: SqliteStore, clock: VirtualClock) -> None:
    await set_limit(store, KEYS, starts=1, period=60)
    for key in ("ada", "bob"):
        await enqueue_several(store, 1, limit_key=key)
    await settle_all(store, await claim_all(store))
    clock.advance(30)
    await store.prune(Retention(succeeded=1), 100)
    # The starts still count, although their jobs are deleted.
    assert await count(store, "windlass_permit") == 2
    clock.advance(30)
    await store.prune(Retention(succeeded=1), 100)
    assert await count(store, "windlass_permit") == 0
    assert await count(store, "windlass_gate") == 0


async def test_pruning_frees_no_slot_of_a_running_job(
    store: SqliteStore, clock: VirtualClock
) -> None:
    await set_limit(store, QUEUE, concurrency=2, starts=100, period=1)
    await enqueue_several(store, 2)
    running = await claim_all(store)
    await enqueue_several(store, 2)  # checks the gate: the starts are recorded
    clock.advance(5)
    await store.prune(Retention(succeeded=1), 100)
    await enqueue_several(store, 1)
    assert await claim_all(store) == []
    await settle_all(store, running)
    assert len(await claim_all(store)) == 2


async def test_a_gate_has_a_next_check_only_while_jobs_wait(
    store: SqliteStore,
) -> None:
    await set_limit(store, QUEUE, starts=1, period=60)
    first, second = await enqueue_several(store, 2)
    with_check = "windlass_gate WHERE next_check_at IS NOT NULL"
    assert await count(store, with_check) == 1
    await cancel_one(store, second.id)
    assert await count(store, with_check) == 0
    await cancel_one(store, first.id)
    assert await count(store, "windlass_permit") == 0
    assert await count(store, "windlass_gate") == 0


async def test_gate_counters_match_the_permits(store: SqliteStore, clock: VirtualClock) -> None:
    await set_limit(store, QUEUE, concurrency=3)
    await set_limit(store, KEYS, starts=2, period=60)
    for key in ("ada", "bob"):
        await enqueue_several(store, 3, limit_key=key)
    assert [held for _, _, held in await counted(store)] == [2, 2, 3]
    running = await claim_all(store)
    await settle_all(store, running[:2])
    assert (QUEUE, 2, 2) in await counted(store)
    await set_limit(store, KEYS, concurrency=1)  # starts no longer count
    await settle_all(store, running[2:])
    await counted(store)
    clock.advance(60)
    await store.prune(Retention(succeeded=1), 100)
    await settle_all(store, await claim_all(store))
    await counted(store)


@pytest.mark.parametrize("rated", [False, True])
async def test_a_write_with_an_unexpected_number_of_permits_recounts_the_gate(
    store: SqliteStore, rated: bool
) -> None:
    async def tamper(sql: str) -> None:
        await store._engine.write(lambda tx: tx.connection.execute(sql).fetchall())

    starts = {"starts": 100, "period": 60} if rated else {}
    await set_limit(store, QUEUE, concurrency=2, **starts)
    await enqueue_several(store, 4)
    running = await claim_all(store)
    await tamper(f"DELETE FROM windlass_permit WHERE n = {running[0].serial}")
    await tamper(f"UPDATE windlass_permit SET started_at = NULL WHERE n = {running[1].serial}")
    await tamper(
        "INSERT INTO windlass_permit (n, gate, fence, at, held) "
        "SELECT n, gate, fence + 1, 0, 0 FROM windlass_job WHERE gate IS NOT NULL"
    )
    await settle_all(store, running)
    assert await counted(store) == [(QUEUE, 2, 2)]
    running = await claim_all(store)
    assert len(running) == 2
    await settle_all(store, running)
    assert await counted(store) == ([(QUEUE, 2, 0)] if rated else [])
    assert await count(store, "windlass_gate") == rated


@pytest.mark.parametrize("by", ["the limit", "maintenance"])
async def test_a_wrong_counter_is_fixed_by_a_limit_change_or_maintenance(
    store: SqliteStore, by: str
) -> None:
    await set_limit(store, QUEUE, concurrency=1)
    wrong = f"INSERT INTO windlass_gate (gate, permits, holding) VALUES ('{QUEUE}', 1, 1)"
    await store._engine.write(lambda tx: tx.connection.execute(wrong).fetchall())
    await enqueue_several(store, 1)
    assert await claim_all(store) == []
    if by == "maintenance":
        await store.prune(Retention(), 100)
    else:
        await set_limit(store, QUEUE, concurrency=1)
    await sweep_all(store)
    assert await counted(store) == [(QUEUE, 1, 1)]
    assert len(await claim_all(store)) == 1


async def test_starts_of_earlier_attempts_remain_while_they_count(
    store: SqliteStore, clock: VirtualClock
) -> None:
    await set_limit(store, QUEUE, starts=5, period=60)
    await enqueue_several(store, 2)
    await store.apply([settle(row, Released(), random=no_jitter) for row in await claim_all(store)])
    running = await claim_all(store)
    assert await counted(store) == [(QUEUE, 4, 2)]
    await set_limit(store, QUEUE, concurrency=5)
    await settle_all(store, running)
    assert await counted(store) == []


async def test_a_batch_of_plain_jobs_reads_the_limits_once(store: SqliteStore) -> None:
    seen: list[str] = []

    def trace(_: object, sql: str, __: object) -> bool:
        seen.append(sql)
        return True

    def run(tx: WriteTransaction) -> None:
        tx.connection.exec_trace = trace
        enqueue_jobs.enqueue(tx, [make_job() for _ in range(50)])
        tx.connection.exec_trace = None

    await store._engine.write(run)
    assert len([sql for sql in seen if "windlass_record" in sql]) == 1
    assert not any("windlass_permit" in sql or "windlass_gate" in sql for sql in seen)
