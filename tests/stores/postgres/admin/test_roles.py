"""Least-privilege roles: each role has the privileges for its calls, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio
from tests.stores.postgres.server import CLEAN, database_url, execute, migrate
from tests.stores.postgres.unstable_server import as_user
from typer.testing import CliRunner

from windlass import Limit, StoreDeniedError, Windlass, WorkerConfig
from windlass.cli import cli
from windlass.core.admission.limit import LimitSetting, decode_limit
from windlass.core.decisions.outcome import Failed, Outcome, Released, Snoozed, Succeeded, settle
from windlass.core.decisions.transition import CancelRequest
from windlass.core.errors import StoreUnavailableError
from windlass.core.job.retry_policy import Fixed, Policy
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery
from windlass.core.versioned_record import Put
from windlass.store import AttemptRecords, Retention
from windlass.stores import roles_script
from windlass.stores.postgres import PostgresStore
from windlass.stores.postgres.admin.privileges import ROLES, grants
from windlass.task import Task
from windlass.testing.factories import (
    checkpoint_record,
    claim_all,
    enqueue_one,
    log_record,
    make_failure,
    make_job,
    no_jitter,
    set_paused,
    start_one,
)

Action = Callable[[PostgresStore, PostgresStore], Awaitable[object]]
SETTING = LimitSetting(declared=Limit(concurrency=2)).encode().decode()
LOCK = "SELECT pg_advisory_lock(7305)"  # roles belong to the server, not to a database


async def make_roles(server: str, url: str) -> None:
    """Create the roles under a lock: other test processes use the same server."""
    connection: Any = await asyncpg.connect(server)
    try:
        await connection.execute(LOCK)
        await execute(url, roles_script(url))
    finally:
        await connection.close()


@pytest.fixture(scope="module")
def admin_url(postgres_server: str) -> Iterator[str]:
    """URL of a database with the schema, the roles, and one user per role: <database>_worker …"""
    name = f"windlass_roles_{uuid4().hex[:8]}"
    url = database_url(postgres_server, name)
    asyncio.run(execute(postgres_server, f"CREATE DATABASE {name}"))
    asyncio.run(migrate(url))
    asyncio.run(make_roles(postgres_server, url))
    asyncio.run(execute(url, "CREATE TABLE private (x int); INSERT INTO private VALUES (1)"))
    users = [f"{name}_{kind}" for kind in ("viewer", "producer", "worker", "owner")]
    for user in users:
        role = f"windlass_{user.rpartition('_')[2]}"
        asyncio.run(execute(url, f"CREATE ROLE {user} LOGIN IN ROLE {role}; SELECT 1"))
    yield url
    asyncio.run(execute(postgres_server, f"DROP DATABASE {name} WITH (FORCE)"))
    for user in users:
        asyncio.run(execute(postgres_server, f"DROP ROLE {user}"))


def url_of(admin_url: str, kind: str) -> str:
    return as_user(admin_url, f"{urlsplit(admin_url).path[1:]}_{kind}")


@pytest_asyncio.fixture
async def superuser_store(admin_url: str) -> AsyncIterator[PostgresStore]:
    await execute(admin_url, CLEAN)
    async with PostgresStore(admin_url) as store:
        yield store


# Each action gets the store of the role, and the store of a superuser for preparation.


async def enqueue_with_keys(store: PostgresStore, _: PostgresStore) -> None:
    key = uuid4().hex
    await store.enqueue([make_job(request_id=key), make_job(unique_key=key), make_job(delay=9)])
    [answer] = await store.enqueue([make_job(unique_key=key, debounce=True)])
    assert answer.accepted


async def cancel(store: PostgresStore, superuser_store: PostgresStore) -> None:
    waiting, running = (
        await enqueue_one(superuser_store, queue="later"),
        await start_one(superuser_store),
    )
    ids = [waiting.id, running.id, (await enqueue_one(superuser_store, delay=60)).id]
    return_type = await store.apply([CancelRequest(job_id=job_id) for job_id in ids])
    assert all(answer.applied for answer in return_type)


async def retry(store: PostgresStore, superuser_store: PostgresStore) -> None:
    job = await start_one(superuser_store)
    await superuser_store.record([AttemptRecords(job.lease, [checkpoint_record(1, "voice", b"1")])])
    await superuser_store.apply(
        [settle(job, Failed(failure=make_failure(terminal=True)), random=no_jitter)]
    )
    new = make_job(retry_of=job.id, resume=True)
    [answer] = await store.enqueue([new])
    assert answer.accepted


async def run(store: PostgresStore, superuser_store: PostgresStore) -> None:
    """Claim, extend, record, and settle with every outcome."""
    policy = Policy(backoff=Fixed(seconds=0))
    await superuser_store.enqueue([make_job(policy=policy) for _ in range(5)])
    jobs = await claim_all(store)
    assert len(jobs) == 5
    leases = [job.lease for job in jobs]
    assert not any(answer.stale for answer in await store.extend(leases, 30))
    records = [log_record(1, "x"), checkpoint_record(2, "voice", b"1")]
    await store.record([AttemptRecords(lease, records) for lease in leases])
    outcomes: list[Outcome] = [
        Succeeded(), Succeeded(result=b"1"), Failed(failure=make_failure()), Released(),
        Snoozed(delay=0),
    ]  # fmt: skip
    transitions = [
        settle(job, outcome, random=no_jitter) for job, outcome in zip(jobs, outcomes, strict=True)
    ]
    assert all(answer.applied for answer in await store.apply(transitions))


async def claim(store: PostgresStore, superuser_store: PostgresStore) -> None:
    await enqueue_one(superuser_store)
    assert await claim_all(store)


async def prune(store: PostgresStore, superuser_store: PostgresStore) -> None:
    await superuser_store.apply(
        [settle(await start_one(superuser_store), Succeeded(), random=no_jitter)]
    )
    pruned = await store.prune(Retention(succeeded=1e-6, canceled=1e-6, failed=1e-6, log=1e-6), 9)
    assert pruned.jobs


async def delete(store: PostgresStore, superuser_store: PostgresStore) -> None:
    job = await start_one(superuser_store)
    await superuser_store.apply([settle(job, Succeeded(), random=no_jitter)])
    assert [answer.applied for answer in await store.delete([job.id])] == [True]


async def read(store: PostgresStore, superuser_store: PostgresStore) -> None:
    job = await start_one(superuser_store)
    await store.ping()
    assert (await store.get([job.id]))[0] is not None
    assert (await store.find(JobQuery())).rows
    await store.find(JobQuery(states=frozenset({State.FAILED})))
    assert await store.events(job.id)
    assert await store.insights.attempts(job.id)
    await store.checkpoints([job.id])
    assert await store.insights.stats()
    await store.insights.rollups(0, 1)
    await store.list_records("worker")
    await store.wait(["nothing"], 0.01)
    async for event in store.tail(job.id):
        if event.seq == 3:
            break


async def put_records(store: PostgresStore, _: PostgresStore) -> None:
    await store.put_records(
        [Put(kind="k", key="a", value=b"1"), Put(kind="k", key="a", value=b"2")]
    )


ACTIONS: dict[str, tuple[str, Action]] = {  # each with the first role that has the privileges
    "read": ("viewer", read),
    "enqueue": ("producer", lambda store, _: store.enqueue([make_job()])),
    "enqueue_with_keys": ("producer", enqueue_with_keys),
    "cancel": ("producer", cancel),
    "retry": ("producer", retry),
    "claim": ("worker", claim),
    "run": ("worker", run),
    "prune": ("worker", prune),
    "delete": ("worker", delete),
    "pause": ("worker", lambda store, _: set_paused(store, ["media"], paused=True)),
    "put_records": ("worker", put_records),
    "delete_records": ("worker", lambda store, _: store.delete_records("k", ["a"])),
}
USER_KINDS = ("viewer", "producer", "worker", "owner")


@pytest.mark.parametrize("kind", USER_KINDS)
@pytest.mark.parametrize("action_name", ACTIONS)
async def test_a_role_has_exactly_its_privileges(
    admin_url: str, superuser_store: PostgresStore, kind: str, action_name: str
) -> None:
    first_kind, action = ACTIONS[action_name]
    async with PostgresStore(url_of(admin_url, kind)) as store:
        if USER_KINDS.index(kind) >= USER_KINDS.index(first_kind):
            await action(store, superuser_store)
        else:
            with pytest.raises(StoreUnavailableError, match="grant what is missing"):
                await action(store, superuser_store)


ENQUEUE = (
    "SELECT status FROM windlass_enqueue("
    '\'[{"task": "a", "payload": {}}, {"task": "b", "payload": {}, "unique_key": "k"}]\')'
)


@pytest.mark.parametrize("kind", USER_KINDS)
async def test_the_sql_function_enqueues_for_producers_only(
    admin_url: str, superuser_store: PostgresStore, kind: str
) -> None:
    if kind == "viewer":
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await execute(url_of(admin_url, kind), ENQUEUE)
    else:
        await execute(url_of(admin_url, kind), ENQUEUE)
        assert len(await claim_all(superuser_store)) == 2


OWNER_STATEMENTS = {
    "alter": "ALTER TABLE windlass_job ADD COLUMN more int",
    "drop": "DROP TABLE windlass_log",
    "truncate": "TRUNCATE windlass_log",
    "create": "CREATE TABLE mine (x int)",
    "read other tables": "SELECT * FROM private",
    "lie about the schema": "DELETE FROM windlass_schema",
}


@pytest.mark.parametrize("statement_name", OWNER_STATEMENTS)
@pytest.mark.parametrize("kind", ["viewer", "producer", "worker"])
async def test_only_the_owner_changes_tables_and_no_role_reads_other_tables(
    admin_url: str, kind: str, statement_name: str
) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await execute(url_of(admin_url, kind), OWNER_STATEMENTS[statement_name])


async def test_the_owner_runs_first_and_later_migrations(postgres_server: str) -> None:
    name = f"windlass_roles_{uuid4().hex[:8]}"
    url = database_url(postgres_server, name)
    await execute(postgres_server, f"CREATE DATABASE {name}")
    await execute(postgres_server, f"CREATE ROLE {name}_owner LOGIN")
    try:
        await migrate(url)
        await make_roles(postgres_server, url)
        await execute(url, f"GRANT windlass_owner TO {name}_owner")
        await execute(url_of(url, "owner"), "ALTER TABLE windlass_record ADD COLUMN later int")
        await execute(url_of(url, "owner"), "CREATE TABLE windlass_later (x int)")
        await make_roles(postgres_server, url)  # idempotent; also covers the new table
        owners = "SELECT DISTINCT tableowner FROM pg_tables WHERE tablename LIKE 'windlass%'"
        assert [tuple(row) for row in await execute(url, owners)] == [("windlass_owner",)]
    finally:
        await execute(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")
        await execute(postgres_server, f"DROP ROLE {name}_owner")


async def test_every_table_is_in_the_script(admin_url: str) -> None:
    tables = (
        "SELECT relname FROM pg_class WHERE relname LIKE 'windlass\\_%' AND relkind IN ('r', 'S')"
    )
    existing = {name for [name] in await execute(admin_url, tables)}
    assert {name for _, _, name in grants()} == existing
    assert {role for role, _, _ in grants()} == set(ROLES)


async def test_a_worker_runs_as_worker_role_and_an_application_as_producer(admin_url: str) -> None:
    producer, app = Windlass(url_of(admin_url, "producer")), Windlass(url_of(admin_url, "worker"))

    async def double(number: int) -> int:
        return 2 * number

    app.task(name="double", queue="whole")(double)
    job = await producer.task(name="double", queue="whole")(double).aenqueue(4)
    worker = app.worker(WorkerConfig(queues={"whole": 2}))
    running = asyncio.create_task(worker.run())
    assert await job.aresult(30) == 8
    worker.stop()
    await running
    await producer.aclose()
    await app.aclose()


async def _limits(admin_url: str) -> dict[str, Limit | None]:
    found = await execute(admin_url, "SELECT key, value FROM windlass_record WHERE kind = 'limit'")
    return {name: decode_limit(value) for name, value in found}


async def test_an_application_as_a_producer_declares_limits_and_changes_none(
    admin_url: str, superuser_store: PostgresStore
) -> None:
    async def cut(user: str) -> None: ...

    def made(kind: str, most: int, **limits: Limit) -> tuple[Windlass, Task[[str], None]]:
        app = Windlass(
            url_of(admin_url, kind), limits={"queue:cuts": Limit(concurrency=most), **limits}
        )
        return app, app.task(
            name="cut", queue="cuts", key_limit=Limit(rate="5/1m", concurrency=2), limit_key="user"
        )(cut)

    for most in (1, 7):  # the first declaration is stored and remains
        app, task = made(
            "producer", most, **({"task:cut": Limit(concurrency=3)} if most > 1 else {})
        )
        for _ in range(2):
            await task.aenqueue("ann")
        await app.aclose()
    assert await _limits(admin_url) == {
        "queue:cuts": Limit(concurrency=1),
        "key:cut": Limit(rate="5/1m", concurrency=2),
        "task:cut": Limit(concurrency=3),  # although the rest of that call was refused
    }
    assert len(await claim_all(superuser_store, "cuts")) == 1
    app, _ = made("producer", 1)
    with pytest.raises(StoreDeniedError, match="not change the limit queue:cuts"):
        await app.limits.aset("queue:cuts", Limit(concurrency=9))
    with pytest.raises(StoreDeniedError, match="not change the limit queue:other"):
        await app.limits.aset("queue:other", Limit(concurrency=9))
    await app.aclose()
    app, task = made("worker", 7)
    await task.aenqueue("ann")
    await app.aclose()
    assert (await _limits(admin_url))["queue:cuts"] == Limit(concurrency=7)


INVALID_DECLARATIONS = {
    "another kind": ("api_key", SETTING),
    "no JSON": ("queue:a", "1"),
    "more than that": ("queue:a", SETTING.replace('"override":null', '"override":null,"x":1')),
    "as if given": ("queue:a", SETTING.replace('"override":null', '"override":{}')),
    "a float": ("queue:a", SETTING.replace(":2,", ":2e0,")),
    "a text": ("queue:a", SETTING.replace(":2,", ':"2",')),
    "none": ("queue:a", SETTING.replace(":2,", ":0,")),
    "too many": ("queue:a", SETTING.replace(":2,", ":100001,")),
    "half a rate": ("queue:a", SETTING.replace('"starts":null', '"starts":1')),
}


@pytest.mark.parametrize("case", INVALID_DECLARATIONS)
async def test_nothing_but_a_limit_is_stored_by_a_declaration(
    admin_url: str, superuser_store: PostgresStore, case: str
) -> None:
    name, value = INVALID_DECLARATIONS[case]
    with pytest.raises(asyncpg.PostgresError):
        await execute(
            url_of(admin_url, "producer"),
            f"SELECT windlass_declare_limit('{name}', '{value}'::text::bytea)",
        )
    assert await execute(admin_url, "SELECT FROM windlass_record") == []


async def test_only_producers_declare_limits_and_only_in_the_stores_table(
    admin_url: str, superuser_store: PostgresStore
) -> None:
    statement = f"SELECT windlass_declare_limit('queue:a', '{SETTING}'::text::bytea)"
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await execute(url_of(admin_url, "viewer"), statement)
    connection = await asyncpg.connect(url_of(admin_url, "producer"))
    await connection.execute("CREATE TEMP TABLE windlass_record (kind text, key text PRIMARY KEY)")
    await connection.execute(statement)
    await connection.close()
    assert await _limits(admin_url) == {"queue:a": Limit(concurrency=2)}


@pytest.mark.parametrize(
    ("name", "return_type"),
    [
        ("num_nonnulls(text, text)", "integer"),
        ("format(text, text, text)", "text"),
        ("windlass_lock_number(text, text, text)", "bigint"),
    ],
)
async def test_a_declaration_calls_no_foreign_function(
    admin_url: str, superuser_store: PostgresStore, name: str, return_type: str
) -> None:
    """Otherwise a role that can create functions could run code as the owner."""
    definition = f"CREATE FUNCTION {name} RETURNS {return_type} LANGUAGE plpgsql AS "
    await execute(admin_url, definition + "$$ BEGIN RAISE 'called'; END $$")
    try:
        statement = f"SELECT windlass_declare_limit('queue:a', '{SETTING}'::text::bytea)"
        await execute(url_of(admin_url, "producer"), statement)
    finally:
        await execute(admin_url, f"DROP FUNCTION public.{name}")
    assert await _limits(admin_url) == {"queue:a": Limit(concurrency=2)}


def test_the_script_is_printed_and_other_stores_have_none() -> None:
    printed = CliRunner().invoke(cli, ["migrate", "--roles", "--url", "postgresql://host/jobs"])
    assert printed.exit_code == 0
    assert printed.stdout == roles_script("postgresql://host/jobs")
    refused = CliRunner().invoke(cli, ["migrate", "--roles", "--url", "sqlite:///jobs.db"])
    assert refused.exit_code == 2
    assert "roles exist only on PostgreSQL" in refused.stderr
