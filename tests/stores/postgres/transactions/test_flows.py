"""Flows in the caller's own PostgreSQL transaction: by each driver, and as the store decides."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.stores.postgres.server import execute
from tests.stores.postgres.transactions.test_enqueue import ASYNC, SYNC
from tests.stores.postgres.transactions.test_sql_enqueue import IDS, new_jobs, run_history

from windlass import ConflictError, InvalidArgumentError, Windlass
from windlass.core.job.new_job import NewJob
from windlass.flow import Flow
from windlass.stores.postgres import PostgresStore, rows, user_transaction
from windlass.task import Task
from windlass.testing.factories import make_job

SOON = 20.0  # seconds within which nothing here may hang


@pytest.fixture
def app(postgres_url: str) -> Iterator[Windlass]:
    made = Windlass(postgres_url)
    orders = "DROP TABLE IF EXISTS orders;CREATE TABLE orders (what text)"
    asyncio.run(execute(postgres_url, orders))
    yield made
    made.close()
    asyncio.run(execute(postgres_url, "DROP TABLE orders;"))


@pytest.fixture
def ship(app: Windlass) -> Task[[str], str]:
    @app.task
    def ship(order: str) -> str:
        return order

    return ship


def _flow(app: Windlass, ship: Task[[str], str], **options: Any) -> Flow:
    """The last of three is the one with options: the others are written before it."""
    flow = app.flow()
    first = flow.add(ship, "a rope")
    second = flow.put(ship.options(**options).call("a sail")).after(first)
    flow.add(ship, second.result)
    return flow


async def _stored(url: str) -> tuple[list[str], list[str]]:
    """The orders, and the states of the jobs."""
    orders = await execute(url, "SELECT what FROM orders ORDER BY 1")
    jobs = await execute(url, "SELECT state FROM windlass_job ORDER BY n")
    return [row[0] for row in orders], [row[0] for row in jobs]


@pytest.mark.parametrize("opened", SYNC)
def test_sync_a_flow_is_stored_or_refused_and_the_transaction_continues(
    app: Windlass, ship: Task[[str], str], postgres_url: str, opened: Any
) -> None:
    ship.options(unique_key="k").enqueue("an anchor")
    with opened(postgres_url) as (connection, insert):
        with app.within(connection):
            with pytest.raises(ConflictError, match="unique key 'k' is already held"):
                _flow(app, ship, unique_key="k").enqueue()
            insert("a boat")
            run = _flow(app, ship).enqueue()
        assert asyncio.run(_stored(postgres_url)) == ([], ["queued"])
    assert asyncio.run(_stored(postgres_url)) == (
        ["a boat"],
        ["queued", "queued", "created", "created"],
    )
    assert run.refresh().jobs == 3


@pytest.mark.parametrize("opened", ASYNC)
async def test_async_a_flow_is_stored_or_refused_and_the_transaction_continues(
    app: Windlass, ship: Task[[str], str], postgres_url: str, opened: Any
) -> None:
    await ship.options(unique_key="k").aenqueue("an anchor")
    async with opened(postgres_url) as (connection, insert):
        with app.within(connection):
            with pytest.raises(ConflictError, match="unique key 'k' is already held"):
                await _flow(app, ship, unique_key="k").aenqueue()
            await insert("a boat")
            run = await _flow(app, ship).aenqueue()
        assert await _stored(postgres_url) == ([], ["queued"])
    assert await _stored(postgres_url) == (
        ["a boat"],
        ["queued", "queued", "created", "created"],
    )
    assert (await run.arefresh()).jobs == 3


@st.composite
def flows(draw: st.DrawFn) -> list[NewJob]:
    """Most depend on those before them, some on any other, that may be there or not."""
    jobs = draw(st.lists(new_jobs, max_size=5))
    seen: list[Any] = []
    linked = []
    for new in jobs:
        near = st.sampled_from(seen) if seen else st.nothing()
        some = st.lists(st.one_of(near, near, near, st.sampled_from(IDS)), max_size=2, unique=True)
        parents = draw(st.one_of(st.just([]), some)) if seen else []
        linked.append(replace(new, depends_on=tuple(id_ for id_ in parents if id_ != new.id)))
        seen.append(new.id)
    return linked


def _without_state(results: Any) -> Any:
    """Remove the state of a displaced job, which the two report differently."""
    error: tuple[type[Exception], str] | None = results[2]
    if error is None:
        return results
    plain = re.sub("which (is [a-z]+|is replaced by one of these);", "which …;", error[1])
    return (*results[:2], (error[0], plain))


@pytest.mark.slow
@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(first=flows(), second=flows())
def test_enqueue_atomic_stores_the_rows_and_errors_of_the_store(
    postgres_database: str, first: list[NewJob], second: list[NewJob]
) -> None:
    (results, *stored), (results_too, *stored_too) = (
        asyncio.run(run_history(postgres_database, first, second, by_function=way, atomic=True))
        for way in (False, True)
    )
    assert stored_too == stored
    assert list(map(_without_state, results_too)) == list(map(_without_state, results))


async def _begin(url: str) -> tuple[Any, Any]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    return connection, transaction


async def test_a_flow_waits_for_the_transaction_with_its_key_and_then_decides(
    postgres_url: str,
) -> None:
    first, second = (make_job(unique_key="k"), make_job(unique_key="k"))
    child = make_job(depends_on=(second.id,))
    async with PostgresStore(postgres_url) as store:
        one, ones = await _begin(postgres_url)
        other, others = await _begin(postgres_url)
        await store.within(one).aenqueue([first], atomic=True)
        call = store.within(other).aenqueue([second, child], atomic=True)
        waiting = asyncio.create_task(call)
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await ones.commit()
        answers = await asyncio.wait_for(waiting, SOON)
        await others.commit()
        reason = f"job {second.id} of task 'test.noop': the unique key 'k' is already held by job "
        reason += f"{first.id}, which is queued; "
        assert all(str(answer.error).startswith(reason) for answer in answers)
        assert None not in await store.get([first.id])
        assert await store.get([second.id, child.id]) == [None, None]
        for connection in (one, other):
            await connection.close()


async def test_a_refused_flow_releases_its_key_locks(
    postgres_url: str,
) -> None:
    async with PostgresStore(postgres_url) as store:
        connection, transaction = await _begin(postgres_url)
        invalid = [make_job(request_id="r"), make_job(depends_on=(uuid4(),))]
        answers = await store.within(connection).aenqueue(invalid, atomic=True)
        assert not any(answer.accepted for answer in answers)
        [answer] = await asyncio.wait_for(store.enqueue([make_job(request_id="r")]), SOON)
        assert answer.accepted
        await transaction.rollback()
        await connection.close()


async def test_a_refused_flow_sends_no_notification(postgres_url: str) -> None:
    connection, transaction = await _begin(postgres_url)
    received: list[object] = []
    listener = await asyncpg.connect(postgres_url)
    await listener.add_listener("windlass", lambda *results: received.append(results))
    async with PostgresStore(postgres_url) as store:
        invalid = [make_job(), make_job(depends_on=(uuid4(),))]
        await store.within(connection).aenqueue(invalid, atomic=True)
        await transaction.commit()
        await listener.execute("SELECT")  # earlier notifications arrive before the response
        assert received == []
    await listener.close()
    await connection.close()


async def test_a_flow_of_many_jobs_is_refused_as_a_whole(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MAX_ROWS", 5)  # beyond which others come in several statements
    parts = [make_job() for _ in range(12)]
    end = make_job(depends_on=tuple(part.id for part in parts))
    lost = make_job(depends_on=(uuid4(),))
    async with PostgresStore(postgres_url) as store:
        connection, transaction = await _begin(postgres_url)
        for flow, accepted in (([*parts, end, lost], False), ([*parts, end], True)):
            answers = await store.within(connection).aenqueue(flow, atomic=True)
            assert {answer.accepted for answer in answers} == {accepted}
            found = await connection.fetch("SELECT FROM windlass_job")
            assert len(found) == (len(flow) if accepted else 0)
        await transaction.commit()
        await connection.close()
        [row] = await store.get([end.id])
    assert row is not None
    assert row.waiting_for == len(parts)


async def test_a_flow_too_large_for_one_statement_is_refused_before_it(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_transaction, "MAX_ATOMIC_BYTES", 3 * 2**20)
    large = [make_job(payload=b"x" * 2**20) for _ in range(3)]
    async with PostgresStore(postgres_url) as store:
        connection, transaction = await _begin(postgres_url)
        with pytest.raises(InvalidArgumentError, match="3 jobs take 4 MiB; jobs enqueued together"):
            await store.within(connection).aenqueue(large, atomic=True)
        [answer] = await store.within(connection).aenqueue(large[:1])
        assert answer.accepted
        await transaction.rollback()
        await connection.close()


# -- for any language


def _call(url: str, jobs: Sequence[dict[str, Any]]) -> list[Any]:
    with psycopg.connect(url) as connection:
        sql = "SELECT status FROM windlass_enqueue(%s, atomic => true)"
        return [row[0] for row in connection.execute(sql, [json.dumps(jobs)])]


def test_the_function_stores_all_or_raises_the_reason(postgres_url: str) -> None:
    first, second, third = (str(uuid4()) for _ in range(3))
    plain: dict[str, Any] = {"task": "t"}
    keyed = {**plain, "unique_key": "k"}
    assert _call(postgres_url, [keyed]) == ["created"]
    with pytest.raises(psycopg.Error, match="unique key 'k' is already held by job") as conflict:
        _call(
            postgres_url, [plain, {**keyed, "id": first}, {**plain, "depends_on": [first.upper()]}]
        )
    assert conflict.value.sqlstate == "WL003"
    with pytest.raises(psycopg.Error, match="which does not exist") as missing:
        _call(postgres_url, [plain, {**plain, "depends_on": [second]}])
    assert missing.value.sqlstate == "WL005"
    assert len(asyncio.run(execute(postgres_url, "SELECT FROM windlass_job"))) == 1

    sound = [keyed, {**plain, "id": third}, {**plain, "depends_on": [third]}]
    assert _call(postgres_url, sound) == ["duplicate", "created", "created"]
