"""What limits leave in the file, and in a transaction of the caller's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from windlass.core.admission.gates import LIMIT, Limit, Setting
from windlass.core.decisions.outcome import Released, settle
from windlass.core.job.state import State
from windlass.core.records import Put
from windlass.store import Retention
from windlass.stores.sqlite import SqliteStore, reads
from windlass.stores.sqlite.writes import enqueue_jobs
from windlass.stores.sqlite.writes.transaction import Tx
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.limits import end_all, put_in, set_limit
from windlass.testing.factories import cancel_one, claim_all, even, make_job, sweep_all

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
    """What gates counted of passes: it is what there is."""
    counted, there = await store._engine.read(
        lambda connection: (
            connection.execute("SELECT gate, passes, held FROM windlass_gate WHERE passes > 0 "
                               "ORDER BY gate").fetchall(),
            connection.execute("SELECT gate, count(*), sum(held) FROM windlass_pass "
                               "GROUP BY gate ORDER BY gate").fetchall(),
        )
    )  # fmt: skip
    assert counted == there
    return counted


async def test_jobs_of_ones_own_transaction_are_let_in_as_far_as_there_is_room(
    store: SqliteStore,
) -> None:
    await set_limit(store, QUEUE, concurrency=2)
    await put_in(store, 1)
    session = store.transaction()
    answers = [*session.enqueue([make_job()]), *session.enqueue([make_job()])]
    states = [answer.row.state for answer in answers if answer.row]
    session.commit()
    assert states == [State.QUEUED, State.CREATED]
    assert len(await claim_all(store)) == 2


async def test_a_transaction_that_is_rolled_back_leaves_its_slot(store: SqliteStore) -> None:
    await set_limit(store, QUEUE, concurrency=1)
    session = store.transaction()
    session.enqueue([make_job()])
    session.rollback()
    [row] = await put_in(store, 1)
    assert [claimed.id for claimed in await claim_all(store)] == [row.id]


async def test_a_limit_holds_for_what_is_enqueued_in_the_same_group(store: SqliteStore) -> None:
    """Their names are read once in a transaction, and anew once they were changed in it."""
    limit = Setting(given=Limit(concurrency=1)).encode()

    def run(tx: Tx) -> list[str | None]:
        enqueue_jobs.enqueue(tx, [make_job()])
        reads.put_records(tx, [Put(kind=LIMIT, key=QUEUE, value=limit)])
        answers = enqueue_jobs.enqueue(tx, [make_job(), make_job()])
        return [answer.row.gate for answer in answers if answer.row]

    assert await store._engine.write(run) == [None, QUEUE]


async def test_gates_that_nobody_comes_to_any_more_leave_nothing_behind(
    store: SqliteStore, clock: VirtualClock
) -> None:
    await set_limit(store, KEYS, starts=1, period=60)
    for key in ("ada", "bob"):
        await put_in(store, 1, limit_key=key)
    await end_all(store, await claim_all(store))
    clock.advance(30)
    await store.prune(Retention(succeeded=1), 100)
    assert await count(store, "windlass_pass") == 2  # they still count, though their jobs are gone
    clock.advance(30)
    await store.prune(Retention(succeeded=1), 100)
    assert await count(store, "windlass_pass") == 0
    assert await count(store, "windlass_gate") == 0


async def test_pruning_takes_no_slot_from_what_runs(
    store: SqliteStore, clock: VirtualClock
) -> None:
    await set_limit(store, QUEUE, concurrency=2, starts=100, period=1)
    await put_in(store, 2)
    running = await claim_all(store)
    await put_in(store, 2)  # the gate is looked at: the starts are written down
    clock.advance(5)
    await store.prune(Retention(succeeded=1), 100)
    await put_in(store, 1)
    assert await claim_all(store) == []
    await end_all(store, running)
    assert len(await claim_all(store)) == 2


async def test_a_gate_is_to_be_looked_at_only_while_somebody_waits_there(
    store: SqliteStore,
) -> None:
    await set_limit(store, QUEUE, starts=1, period=60)
    first, second = await put_in(store, 2)
    looks = "windlass_gate WHERE look_at IS NOT NULL"
    assert await count(store, looks) == 1
    await cancel_one(store, second.id)
    assert await count(store, looks) == 0
    await cancel_one(store, first.id)
    assert await count(store, "windlass_pass") == 0
    assert await count(store, "windlass_gate") == 0


async def test_gates_count_the_passes_that_there_are(
    store: SqliteStore, clock: VirtualClock
) -> None:
    await set_limit(store, QUEUE, concurrency=3)
    await set_limit(store, KEYS, starts=2, period=60)
    for key in ("ada", "bob"):
        await put_in(store, 3, limit_key=key)
    assert [held for _, _, held in await counted(store)] == [2, 2, 3]
    running = await claim_all(store)
    await end_all(store, running[:2])
    assert (QUEUE, 2, 2) in await counted(store)
    await set_limit(store, KEYS, concurrency=1)  # what started counts no more
    await end_all(store, running[2:])
    await counted(store)
    clock.advance(60)
    await store.prune(Retention(succeeded=1), 100)
    await end_all(store, await claim_all(store))
    await counted(store)


@pytest.mark.parametrize("rated", [False, True])
async def test_a_write_that_finds_other_passes_than_it_knows_of_counts_them_anew(
    store: SqliteStore, rated: bool
) -> None:
    async def meddle(sql: str) -> None:
        await store._engine.write(lambda tx: tx.connection.execute(sql).fetchall())

    starts = {"starts": 100, "period": 60} if rated else {}
    await set_limit(store, QUEUE, concurrency=2, **starts)
    await put_in(store, 4)
    running = await claim_all(store)
    await meddle(f"DELETE FROM windlass_pass WHERE n = {running[0].serial}")
    await meddle(f"UPDATE windlass_pass SET started_at = NULL WHERE n = {running[1].serial}")
    await meddle(
        "INSERT INTO windlass_pass (n, gate, fence, at, held) "
        "SELECT n, gate, fence + 1, 0, 0 FROM windlass_job WHERE gate IS NOT NULL"
    )
    await end_all(store, running)
    assert await counted(store) == [(QUEUE, 2, 2)]
    running = await claim_all(store)
    assert len(running) == 2
    await end_all(store, running)
    assert await counted(store) == ([(QUEUE, 2, 0)] if rated else [])
    assert await count(store, "windlass_gate") == rated


@pytest.mark.parametrize("by", ["the limit", "upkeep"])
async def test_a_count_that_is_wrong_is_right_once_it_was_looked_at(
    store: SqliteStore, by: str
) -> None:
    await set_limit(store, QUEUE, concurrency=1)
    wrong = f"INSERT INTO windlass_gate (gate, passes, held) VALUES ('{QUEUE}', 1, 1)"
    await store._engine.write(lambda tx: tx.connection.execute(wrong).fetchall())
    await put_in(store, 1)
    assert await claim_all(store) == []
    if by == "upkeep":
        await store.prune(Retention(), 100)
    else:
        await set_limit(store, QUEUE, concurrency=1)
    await sweep_all(store)
    assert await counted(store) == [(QUEUE, 1, 1)]
    assert len(await claim_all(store)) == 1


async def test_a_job_with_starts_of_earlier_attempts_leaves_them_as_they_count(
    store: SqliteStore, clock: VirtualClock
) -> None:
    await set_limit(store, QUEUE, starts=5, period=60)
    await put_in(store, 2)
    await store.apply([settle(row, Released(), random=even) for row in await claim_all(store)])
    running = await claim_all(store)
    assert await counted(store) == [(QUEUE, 4, 2)]
    await set_limit(store, QUEUE, concurrency=5)
    await end_all(store, running)
    assert await counted(store) == []


async def test_plain_jobs_cost_one_look_at_the_limits_for_all_of_them(store: SqliteStore) -> None:
    seen: list[str] = []

    def trace(_: object, sql: str, __: object) -> bool:
        seen.append(sql)
        return True

    def run(tx: Tx) -> None:
        tx.connection.exec_trace = trace
        enqueue_jobs.enqueue(tx, [make_job() for _ in range(50)])
        tx.connection.exec_trace = None

    await store._engine.write(run)
    assert len([sql for sql in seen if "windlass_record" in sql]) == 1
    assert not any("windlass_pass" in sql or "windlass_gate" in sql for sql in seen)
