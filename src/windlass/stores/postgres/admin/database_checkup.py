"""Checkup of a PostgreSQL database for `windlass check`: reads its settings, derives findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from windlass.core.clock import SECOND, Clock, Instant, SystemClock
from windlass.core.errors import SchemaError
from windlass.stores.checkup_finding import Finding, Verdict
from windlass.stores.postgres.admin import migrator, privileges
from windlass.stores.postgres.config import PostgresConfig
from windlass.stores.postgres.connection import Connection, connect
from windlass.stores.postgres.errors import DRIVER_ERRORS, translate
from windlass.stores.sql import query_file

MAX_DRIFT = 1.0  # seconds between the clocks
LONG_TRANSACTION = 600.0  # seconds that a transaction may stay open
MANY_DEAD_ROWS = 50_000  # fewer cost nothing, whatever their share
MIN_FREE_CONNECTIONS = 10
HANDLES = 2  # per worker: its own, and that of its lease keeper


@dataclass(frozen=True, slots=True)
class CheckupQueries:
    current_user: str
    newest_migration: str
    server: str
    settings: str
    newest_job: str
    dead_rows: str
    without_autovacuum: str
    long_transactions: str


CHECKUP_SQL = query_file.load(
    "windlass.stores.postgres.admin", CheckupQueries, "database_checkup.sql"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProperties:
    """Facts read from the server. Times in seconds."""

    where: str
    user: str
    version: str
    pooled: bool
    read_only: bool
    clock_drift: float  # how far the server's clock is ahead of this machine's
    newest_job_ahead: float  # how far the newest job's time is ahead of the server's
    settings: Mapping[str, str]
    free_connections: int
    max_connections: int
    pool: int
    listen: str
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)  # privileges, by role
    dead_rows: Sequence[tuple[str, int, int]] = ()  # table, dead rows, live rows
    without_autovacuum: Sequence[str] = ()  # tables
    long_transactions: Sequence[tuple[int, str, float]] = ()  # pid, user, seconds
    schema: Finding = field(default=Finding("schema", Verdict.OK, "up to date"))


async def checkup(config: PostgresConfig, clock: Clock | None = None) -> list[Finding]:
    """Return all findings, without writes. Raise if the server cannot be reached."""
    connection = await connect(config)
    try:
        reached = Finding("store", Verdict.OK, f"{config.where} is reachable")
        missing = await privileges.missing(connection)
        if missing["windlass_viewer"]:
            user = await connection.fetchval(CHECKUP_SQL.current_user)
            return [reached, _privileges(user, missing)]
        stored = await _schema(connection, config.where)
        if stored.verdict is Verdict.ERROR:
            return [reached, stored]
        server = await _server_properties(connection, config, clock or SystemClock())
        return list(findings_of(replace(server, schema=stored, missing=missing)))
    except DRIVER_ERRORS as error:
        raise translate(error, config.where) from error
    finally:
        connection.terminate()


async def _schema(connection: Connection, where: str) -> Finding:
    try:
        await migrator.check(connection, where)
    except SchemaError as error:
        return Finding("schema", Verdict.ERROR, str(error))
    newest = migrator.MIGRATIONS[-1].version
    stored = await connection.fetchval(CHECKUP_SQL.newest_migration)
    if stored > newest:
        message = f"version {stored} is newer than {newest} of this Windlass, but compatible"
        return Finding(
            "schema", Verdict.WARNING, message, "upgrade when convenient: pip install -U windlass"
        )
    return Finding("schema", Verdict.OK, f"up to date ({stored})")


async def _server_properties(
    connection: Connection, config: PostgresConfig, clock: Clock
) -> ServerProperties:
    before = clock.now()
    record = await connection.fetchrow(CHECKUP_SQL.server)
    assert record is not None
    midpoint: Instant = (before + clock.now()) // 2
    user, version, server_pid, read_only, now, max_connections, free_connections = record
    newest: Instant = await connection.fetchval(CHECKUP_SQL.newest_job) or now
    return ServerProperties(
        where=config.where,
        user=user,
        version=version,
        pooled=server_pid != connection.get_server_pid(),
        read_only=read_only,
        clock_drift=(now - midpoint) / SECOND,
        newest_job_ahead=(newest - now) / SECOND,
        settings=dict(map(tuple, await connection.fetch(CHECKUP_SQL.settings))),
        free_connections=free_connections,
        max_connections=max_connections,
        pool=config.pool,
        listen=config.listen,
        dead_rows=[
            (name, dead, live) for name, dead, live in await connection.fetch(CHECKUP_SQL.dead_rows)
        ],
        without_autovacuum=[
            name for [name] in await connection.fetch(CHECKUP_SQL.without_autovacuum)
        ],
        long_transactions=[
            (pid, owner, float(seconds))
            for pid, owner, seconds in await connection.fetch(
                CHECKUP_SQL.long_transactions, LONG_TRANSACTION
            )
        ],
    )


def findings_of(server: ServerProperties) -> Iterator[Finding]:
    """Derive findings, with their fixes."""
    if server.read_only:
        fix = "name the primary in the URL, or turn default_transaction_read_only off"
        message = f"{server.where} is read-only: it is a standby, or set to read-only"
        yield Finding("store", Verdict.ERROR, message, fix)
    else:
        message = f"{server.where} accepts writes (PostgreSQL {server.version})"
        yield Finding("store", Verdict.OK, message)
    yield server.schema
    yield _privileges(server.user, server.missing)
    yield from _durability(server.settings)
    yield _clock(server)
    yield _connections(server)
    yield from _pooler(server)
    yield from _tables(server)


def _privileges(user: str, missing: Mapping[str, Sequence[str]]) -> Finding:
    viewer, producer, worker = (missing[role] for role in privileges.ROLES)
    roles = "windlass migrate --roles prints the roles"
    if viewer:
        fix = f"GRANT windlass_viewer TO {user}, or more ({roles})"
        message = f"{user} cannot read jobs: missing {', '.join(viewer)}"
        return Finding("privileges", Verdict.ERROR, message, fix)
    if not producer and not worker:
        return Finding("privileges", Verdict.OK, f"{user} has all privileges of a worker")
    allowed = "only read" if producer else "read and enqueue, but not run a worker"
    fix = f"GRANT windlass_producer or windlass_worker TO {user}, if it needs more ({roles})"
    message = f"{user} can {allowed}: missing {', '.join([*producer, *worker])}"
    return Finding("privileges", Verdict.WARNING, message, fix)


def _durability(settings: Mapping[str, str]) -> Iterator[Finding]:
    if settings["fsync"] == "off" or settings["full_page_writes"] == "off":
        name = "fsync" if settings["fsync"] == "off" else "full_page_writes"
        fix = f"ALTER SYSTEM SET {name} = on, and restart the server"
        message = f"{name} is off: a power cut may destroy the database"
        yield Finding("durability", Verdict.ERROR, message, fix)
    elif settings["synchronous_commit"] == "off":
        fix = (
            "SET synchronous_commit = on for the server, the database and the role, if that matters"
        )
        message = "synchronous_commit is off: a crash may lose the latest commits"
        yield Finding("durability", Verdict.WARNING, message, fix)
    else:
        yield Finding("durability", Verdict.OK, "accepted jobs survive a power cut")


def _clock(server: ServerProperties) -> Finding:
    if server.newest_job_ahead > MAX_DRIFT:
        seconds = f"{server.newest_job_ahead:.0f} s"
        message = f"the newest job is {seconds} in the future: the server's clock was set back"
        fix = "synchronize the server's clock (NTP): it times waiting jobs and leases"
        return Finding("clock", Verdict.ERROR, message, fix)
    if abs(server.clock_drift) > MAX_DRIFT:
        direction = "ahead of" if server.clock_drift > 0 else "behind"
        message = (
            f"the server's clock is {abs(server.clock_drift):.1f} s {direction} this machine's"
        )
        fix = "synchronize both (NTP): leases use the server's, a run_at computed here uses yours"
        return Finding("clock", Verdict.WARNING, message, fix)
    return Finding(
        "clock", Verdict.OK, f"in sync with the server ({server.clock_drift * 1000:+.0f} ms)"
    )


def _connections(server: ServerProperties) -> Finding:
    per_worker = _max_per_worker(server)
    message = (
        f"{server.free_connections} of {server.max_connections} are free; "
        f"one worker uses up to {per_worker}"
    )
    if server.free_connections < max(MIN_FREE_CONNECTIONS, per_worker):
        fix = "raise max_connections, lower pool= in the URL, or add a pooler (pgbouncer)"
        return Finding("connections", Verdict.WARNING, message, fix)
    return Finding("connections", Verdict.OK, message)


def _max_per_worker(server: ServerProperties) -> int:
    """Return the connections of one worker: two pools, and one for LISTEN."""
    return HANDLES * server.pool + (server.listen != "off")


def _pooler(server: ServerProperties) -> Iterator[Finding]:
    if not server.pooled:
        return
    if server.listen:
        listen = "LISTEN is off" if server.listen == "off" else f"LISTEN uses {server.listen}"
        yield Finding("pooler", Verdict.OK, f"connected through a pooler; {listen}")
        return
    fix = "set listen=host:port of the server itself in the URL, or listen=off"
    message = (
        "connected through a pooler: in transaction mode LISTEN does not work, and workers poll"
    )
    yield Finding("pooler", Verdict.WARNING, message, fix)


def _tables(server: ServerProperties) -> Iterator[Finding]:
    off = [
        *server.without_autovacuum,
        *(["every table"] if server.settings["autovacuum"] == "off" else []),
    ]
    if off:
        fix = "ALTER SYSTEM SET autovacuum = on, or ALTER TABLE … RESET (autovacuum_enabled)"
        message = (
            f"autovacuum is off for {', '.join(off)}: dead rows accumulate, and claims slow down"
        )
        yield Finding("autovacuum", Verdict.WARNING, message, fix)
    else:
        yield Finding("autovacuum", Verdict.OK, "on")
    bloated = [
        (name, dead) for name, dead, live in server.dead_rows if dead > max(MANY_DEAD_ROWS, live)
    ]
    for name, dead in bloated:
        fix = f"VACUUM {name}; if that helps only for a while, check for long transactions"
        message = f"{name} has {dead:,} dead rows, more than live ones"
        yield Finding("bloat", Verdict.WARNING, message, fix)
    if not bloated:
        yield Finding("bloat", Verdict.OK, "few dead rows")
    for pid, owner, seconds in server.long_transactions:
        fix = f"end it (SELECT pg_terminate_backend({pid})), and find out why it stays open"
        message = (
            f"{owner}: open for {seconds / 60:.0f} min; vacuum cannot remove dead rows meanwhile"
        )
        yield Finding("transaction", Verdict.WARNING, message, fix)
